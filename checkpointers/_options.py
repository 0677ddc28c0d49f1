"""Keyword options of the savers, checked and gathered once."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

from langgraph.checkpoint.serde.base import SerializerProtocol

from stepvault import events
from stepvault._core.codec import Codec
from stepvault._core.credentials import Credentials
from stepvault._core.evolution import Evolution, Migration
from stepvault._core.knowledge import Knowledge
from stepvault._core.numbers import check_count, check_minutes
from stepvault._core.runs import Runs
from stepvault._drivers.entropy import Entropy
from stepvault._drivers.gate import HybridGate, renew_after_fork
from stepvault.checkpointers._dialect import Dialect
from stepvault.checkpointers._keys import keys_of
from stepvault.checkpointers._ops.context import Clock, Core, Tables, Wired
from stepvault.checkpointers._sealed import SealedDialect
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError
from stepvault.events import OnEvent
from stepvault.ttl import Retention, ThreadTtl
from stepvault.types import TypedSerializer


@dataclass(frozen=True, slots=True)
class StorageOptions:
    """How values are stored.

    Attributes:
        compression: `"auto"` compresses what gets smaller; None stores raw.
        cache_bytes: Bound of the in-process cache of encoded elements.
        credential_keys: Further `configurable` keys that never reach metadata.
        metadata_keys: `configurable` keys that do, though their name is that of a credential.
        on_conflict: What a run meets that finds the thread's head moved by another run: `"fork"` goes on as LangGraph
            does and warns, `"raise"` raises HeadMovedError.
        interrupt_deadline: Minutes after which an unanswered interrupt is due, see `Inbox.due`.
        ttl: When threads expire, see `ThreadTtl`: `{"default_ttl": minutes, "refresh_on_read": True, ...}`.
        retention: How much history a thread keeps, see `Retention`: `{"keep_last": 50, "max_age": minutes, ...}`.
        subject_key: `configurable` keys that name the person a thread belongs to (one id or several under each).
        require_subject: Refuse to store a thread that names nobody.
        types: Application classes to register, see `TypedSerializer`.
        keyring: Seals everything that is stored, see docs/encryption.md; needs `stepvault[crypto]`.
        keys_url: Another database for the wrapped data keys; any backend.
        state_version: The version of the application's state, see docs/evolution.md.
        state_migrations: `{1: function}`: makes the channel values of version 2 from those of version 1.
        state_schema: A pydantic model, dataclass or TypedDict that channel values must fit.
        node_aliases: Former names of nodes: `{"old": "new"}`.
        start_empty: Beside tables of LangGraph's own saver that hold threads, begin without them and without a warning.
        on_event: Called with each `stepvault.events.Event`; quickly, and without a call of this saver.
    """

    compression: Literal["auto"] | None = "auto"
    cache_bytes: int = 64 << 20
    credential_keys: Sequence[str] = ()
    metadata_keys: Sequence[str] = ()
    types: Sequence[type] = ()
    unknown_types: Literal["imported", "refuse", "raw"] | None = None
    fidelity: Literal["upstream", "strict"] = "upstream"
    secrets: Literal["refuse", "allow"] | None = None  # allowed with a keyring
    on_conflict: Literal["fork", "raise"] = "fork"
    interrupt_deadline: float | None = None
    ttl: Mapping[str, Any] | None = None
    retention: Mapping[str, Any] | None = None
    subject_key: str | Sequence[str] = "user_id"
    require_subject: bool = False
    keyring: Keyring | None = None
    keys_url: str | None = None
    state_version: int | None = None
    state_migrations: Mapping[int, Migration] | None = None
    state_schema: type | None = None
    node_aliases: Mapping[str, str] | None = None
    on_event: OnEvent | None = None
    start_empty: bool = False

    @classmethod
    def take(cls, options: dict[str, Any]) -> StorageOptions:
        """Build from keywords.

        Raises:
            ConfigurationError: An unknown option.
        """
        known = {field.name for field in fields(cls)}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise ConfigurationError(
                f"Unknown option {unknown[0]!r}; known to every saver are {', '.join(sorted(known))}. "
                "Those of one backend and of Vault.open are in docs/options.md."
            )
        if options.get("compression", "auto") not in ("auto", None):
            raise ConfigurationError(f'compression must be "auto" or None, not {options["compression"]!r}.')
        if options.get("on_conflict", "fork") not in ("fork", "raise"):
            raise ConfigurationError(f'on_conflict must be "fork" or "raise", not {options["on_conflict"]!r}.')
        check_count("cache_bytes", options.get("cache_bytes", 0), least=0)
        check_minutes("interrupt_deadline", options.get("interrupt_deadline"))
        events.checked(options.get("on_event"))
        return cls(**options)

    def serializer(self) -> TypedSerializer:
        """The serializer these options describe."""
        return TypedSerializer(
            types=self.types,
            unknown_types=self.unknown_types,
            fidelity=self.fidelity,
            secrets=self.secrets or ("refuse" if self.keyring is None else "allow"),
        )


def build_core(dialect: Dialect, options: StorageOptions, serde: SerializerProtocol) -> Core:
    """The shared parts of a saver."""
    native = serde if isinstance(serde, TypedSerializer) else options.serializer()
    keys = keys_of(dialect, options.keyring, options.keys_url)
    knowledge, runs, wired = Knowledge(HybridGate, options.cache_bytes), Runs(), Wired()
    renew_after_fork(knowledge, runs, wired.reads)
    return Core(
        dialect=dialect if keys is None else SealedDialect(dialect, keys),
        keys=keys,
        wired=wired,
        keyring=options.keyring,
        knowledge=knowledge,
        runs=runs,
        codec=Codec(options.compression),
        credentials=Credentials.of(options.credential_keys, options.metadata_keys),
        random=Entropy(),
        tables=Tables(),
        native=native,
        offload=lambda work: partial(asyncio.to_thread, work),
        on_conflict=options.on_conflict,
        interrupt_deadline=options.interrupt_deadline,
        monotonic=time.monotonic,
        clock=Clock(),
        lost=OrderedDict(),
        ttl=ThreadTtl.of(options.ttl),
        retention=Retention.of(options.retention),
        subject_keys=_subject_keys(options),
        require_subject=options.require_subject,
        on_event=options.on_event,
        start_empty=options.start_empty,
        evolution=Evolution.of(
            options.state_version, options.state_migrations, options.state_schema, options.node_aliases
        ),
    )


def _subject_keys(options: StorageOptions) -> Sequence[str]:
    given = (options.subject_key,) if isinstance(options.subject_key, str) else options.subject_key
    if not isinstance(given, (list, tuple)) or not all(isinstance(key, str) and key for key in given):
        raise ConfigurationError(f"subject_key is a key of configurable, or a list of them, not {given!r}.")
    if options.require_subject and not given:
        raise ConfigurationError("require_subject needs a subject_key= that names people.")
    return tuple(given)

"""How long data lives: whole threads expire after a time without activity; histories are kept to a length.

Times are minutes, by the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from stepvault._core.numbers import check_count, check_flag, check_minutes, check_seconds
from stepvault.errors import ConfigurationError

_KEYS = {
    "default_ttl", "refresh_on_read", "sweep_interval_minutes", "sweep_limit", "sweep_seconds", "pin_interrupted",
    "native_grace_minutes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ThreadTtl:
    """When threads expire.

    Attributes:
        default_ttl: Minutes without activity after which a thread expires; None: only threads that say so themselves.
        refresh_on_read: Whether reading counts as activity; writing always does.
        sweep_interval_minutes: How often a sweeper that was started removes what has expired.
        sweep_limit: At most this many expired threads per sweep; None: all.
        sweep_seconds: How long a sweep may take; None: as long as it needs.
        pin_interrupted: A thread that waits for a human does not expire.
        native_grace_minutes: How long after its deadline Redis drops a thread that no sweep has removed; None: never.
            Without effect on SQLite and Postgres.
    """

    default_ttl: float | None = None
    refresh_on_read: bool = True
    sweep_interval_minutes: float | None = None
    sweep_limit: int | None = None
    sweep_seconds: float | None = None
    pin_interrupted: bool = True
    native_grace_minutes: float | None = 1440

    @classmethod
    def of(cls, given: Mapping[str, Any] | ThreadTtl | None) -> ThreadTtl:
        """Read LangGraph's `ttl=` dict.

        Raises:
            ConfigurationError: An unknown key, a number that is no time, or a flag that is none.
        """
        if given is None:
            return cls(native_grace_minutes=None)
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigurationError(f"ttl must be a dict such as {{'default_ttl': 60}}, not {type(given).__name__}.")
        unknown = sorted(map(str, given.keys() - _KEYS))
        if unknown:
            raise ConfigurationError(f"ttl has no key {unknown[0]!r}; known are {', '.join(sorted(_KEYS))}.")
        made = cls(**given)
        for name in ("default_ttl", "sweep_interval_minutes", "native_grace_minutes"):
            check_minutes(name, getattr(made, name))
        for name in ("refresh_on_read", "pin_interrupted"):
            check_flag(name, getattr(made, name))
        check_count("sweep_limit", made.sweep_limit, optional=True)
        check_seconds("sweep_seconds", made.sweep_seconds, optional=True)
        return made


def check_limits(limit: Any, seconds: Any) -> None:
    """Refuse limits of a sweep that are none.

    Raises:
        ConfigurationError: One is no number of threads above 0, or no number of seconds.
    """
    check_count("limit", limit, optional=True)
    check_seconds("seconds", seconds, optional=True)


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did.

    Attributes:
        threads: Expired threads removed (or, in a dry run, that would be).
        checkpoints: How many checkpoints they had.
        kept: Threads looked at that had been active meanwhile, or wait for a human.
        took: How long it took.
        more: Whether it stopped at a limit with more to do.
        trimmed: Checkpoints that retention took out of other threads (or would).
        freed: The bytes that this gave back: of their records, writes and values.
        items: Expired items of the store that `vault.sweep` removed.
    """

    threads: int
    checkpoints: int
    kept: int
    took: timedelta
    more: bool
    trimmed: int = 0
    freed: int = 0
    items: int = 0


_RETENTION_KEYS = {"keep_last", "max_age", "max_bytes", "keep_tagged"}


@dataclass(frozen=True, slots=True)
class Retention:
    """How much history a thread keeps, per namespace.

    What always stays: the newest checkpoint of each namespace, ends of branches where a question waits or a node is to
    run, and the ancestors that kept DeltaChannels are rebuilt from. A subgraph's checkpoints go with their caller's.

    Attributes:
        keep_last: At most this many checkpoints.
        max_age: Minutes after which a checkpoint goes.
        max_bytes: Oldest first until the thread takes no more than this, or nothing is left that may go.
        keep_tagged: Tagged checkpoints stay (`saver.tag`).
    """

    keep_last: int | None = None
    max_age: float | None = None
    max_bytes: int | None = None
    keep_tagged: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any] | Retention | None) -> Retention | None:
        """Read the `retention=` dict; None where nothing is limited.

        Raises:
            ConfigurationError: An unknown key, or a limit that is none.
        """
        if given is None or isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ConfigurationError(
                f"retention must be a dict such as {{'keep_last': 50}}, not {type(given).__name__}."
            )
        unknown = sorted(map(str, given.keys() - _RETENTION_KEYS))
        if unknown:
            raise ConfigurationError(
                f"retention has no key {unknown[0]!r}; known are {', '.join(sorted(_RETENTION_KEYS))}."
            )
        made = cls(**given)
        check_flag("keep_tagged", made.keep_tagged)
        check_minutes("max_age", made.max_age)
        for name in ("keep_last", "max_bytes"):
            check_count(name, getattr(made, name), optional=True)
        return made


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What retention took out of a thread: checkpoints, and the bytes of what only they needed."""

    checkpoints: int
    bytes: int

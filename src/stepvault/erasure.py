"""Forgetting one person: what would go, what went, and the receipt that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from stepvault.errors import ConfigurationError, MissingDependencyError, VerifyFailedError

Shared: TypeAlias = Literal["keep", "erase"]
STATES = ("received", "tombstoned", "deleted", "purged", "verified", "receipted")
DOMAIN = b"stepvault/receipt/1\n"


@dataclass(frozen=True, slots=True)
class PlannedThread:
    """A thread of the person; `shared` if it belongs to others too."""

    thread_id: str
    shared: bool


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What an erasure would touch; nothing was changed.

    Attributes:
        subject: The person.
        threads: Their threads; shared ones go only with `shared="erase"`.
        namespaces: Namespaces of the store that are theirs, with the number of items in each.
        decisions: How many decisions they made; these stay, without their name.
        unattributed: Threads that name nobody: whether they hold data of this person is not known.
        held: The reason of a hold, if one stops the erasure.
        hash: Identifies this plan; `erase(plan=plan)` refuses if the data changed since.
    """

    subject: str
    threads: list[PlannedThread]
    namespaces: dict[tuple[str, ...], int]
    decisions: int
    unattributed: int
    held: str | None
    hash: str


@dataclass(frozen=True, slots=True)
class PurgeStep:
    """Something done, or to be done by an operator, so that deleted data leaves files and memory too."""

    name: str
    done: bool
    detail: str


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """How far an erasure is.

    Attributes:
        id: Names it.
        state: `received`, `tombstoned`, `deleted`, `purged`, `verified` or `receipted`.
        requested_at: When it was asked for, by the database's clock.
        counts: What was removed so far.
        purge: Purge steps, done and not done.
        receipt: The signed receipt, at the end.
    """

    id: str
    state: str
    requested_at: datetime
    counts: Mapping[str, int]
    purge: list[PurgeStep] = field(default_factory=list)
    receipt: dict[str, Any] | None = None


def canonical(body: Mapping[str, Any]) -> bytes:
    """The signed bytes of a receipt: sorted keys, no spaces, UTF-8, behind a domain of their own."""
    return DOMAIN + json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def verify_receipt(receipt: Mapping[str, Any] | str, public_key: str | bytes) -> dict[str, Any]:
    """Check a receipt offline; returns its content.

    Args:
        receipt: The receipt, or its JSON text.
        public_key: The Ed25519 public key, 32 bytes or their hexadecimal form.

    Raises:
        VerifyFailedError: It was not signed by this key, or was changed since.
    """
    ed25519 = _ed25519()
    try:
        content = dict(json.loads(receipt) if isinstance(receipt, str) else receipt)
        signature = bytes.fromhex(content.pop("signature"))
    except (ValueError, KeyError, TypeError) as exc:
        raise VerifyFailedError("This is no receipt: it has no readable signature.") from exc
    raw = bytes.fromhex(public_key) if isinstance(public_key, str) else public_key
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(signature, canonical(content))
    except ValueError as exc:
        raise ConfigurationError("public_key is no Ed25519 public key: 32 bytes, or 64 hexadecimal digits.") from exc
    except Exception as exc:
        raise VerifyFailedError("The receipt was not signed by this key, or was changed since.") from exc
    return content


def sign(body: Mapping[str, Any], private_key: bytes) -> dict[str, Any]:
    """A receipt with its signature."""
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(private_key)
    return {**body, "signature": key.sign(canonical(body)).hex()}


def public_key_of(private_key: bytes) -> str:
    """The public key that belongs to a private one, in hexadecimal form."""
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(private_key)
    return str(key.public_key().public_bytes_raw().hex())


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as exc:
        raise MissingDependencyError('Receipts need an extra: pip install "stepvault[crypto]".') from exc
    return ed25519

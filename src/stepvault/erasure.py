"""Forgetting one person: what would go, what went, and the receipt that says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias

from stepvault._core.paging import Page
from stepvault._core.people import subject_key
from stepvault.errors import ConfigurationError, MissingDependencyError, VerifyFailedError

Shared: TypeAlias = Literal["keep", "erase", "anonymise"]
STATES = ("received", "tombstoned", "deleted", "told", "purged", "verified", "receipted")
PublicKey: TypeAlias = str | bytes
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
        ids: Every id of theirs, linked ones included.
        threads: Their threads; shared ones follow `shared=`.
        namespaces: Namespaces of the store that are theirs, with the number of items in each.
        decisions: How many decisions they made; these stay, without their name.
        unattributed: Threads that name nobody: whether they hold data of this person is not known.
        unattributed_namespaces: Namespaces that fit no pattern; None without `subject_patterns`, when any may.
        held: The reason of a hold, if one stops the erasure.
        hash: Identifies this plan; `erase(plan=plan)` refuses if the data changed since.
        derived: Namespaces of others with items that runs of these threads wrote, with their number; only with
            `plan(subject, derived=True)`. An erasure does not touch them: look whether they are about the person.
    """

    subject: str
    ids: list[str]
    threads: list[PlannedThread]
    namespaces: dict[tuple[str, ...], int]
    decisions: int
    unattributed: int
    unattributed_namespaces: int | None
    held: str | None
    hash: str
    derived: dict[tuple[str, ...], int] | None = None


@dataclass(frozen=True, slots=True)
class PurgeStep:
    """Something done, or to be done by an operator, so that deleted data leaves files and memory too.

    `retryable`: `resume()` tries it again if it is not done.
    """

    name: str
    done: bool
    detail: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class SubjectInfo:
    """A person with threads; how many."""

    subject: str
    threads: int


@dataclass(frozen=True, slots=True)
class SubjectPage(Page[SubjectInfo]):
    """People, and where the next page starts (None: there is none)."""

    subjects: list[SubjectInfo]
    cursor: str | None

    def _rows(self) -> list[SubjectInfo]:
        return self.subjects


@dataclass(frozen=True, slots=True)
class Assigned:
    """How many threads were attributed to somebody, and how many say nothing."""

    threads: int
    without: int


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """How far an erasure is.

    Attributes:
        id: Names it.
        state: `received`, `tombstoned`, `deleted`, `told`, `purged`, `verified` or `receipted`.
        requested_at: When it was asked for, by the database's clock.
        counts: What was removed so far.
        purge: Purge steps, done and not done.
        hooks: Which outside systems were told, by their names; False: not yet, or it failed, or whoever brought this to
            its end did not know the hook.
        receipt: At the end, `{"receipt": ..., "salts": [...]}`: the signed receipt, and the salts of its commitments,
            which belong to whoever asked for the erasure.
        follow_ups: Receipts of purge steps that were done later.
    """

    id: str
    state: str
    requested_at: datetime
    counts: Mapping[str, int]
    purge: list[PurgeStep] = field(default_factory=list)
    hooks: Mapping[str, bool] = field(default_factory=dict)
    receipt: dict[str, Any] | None = None
    follow_ups: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key that receipts are or were signed with.

    Attributes:
        public_key: 64 hexadecimal digits; publish it.
        since: When it came into use, by the database's clock.
        current: Whether new receipts are signed with it.
    """

    public_key: str
    since: datetime
    current: bool


def canonical(body: Mapping[str, Any]) -> bytes:
    """The signed bytes of a receipt: sorted keys, no spaces, UTF-8, behind a domain of their own."""
    return DOMAIN + json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(receipt: Mapping[str, Any]) -> str:
    """What the next receipt of the chain says of this one, signature included."""
    return hashlib.sha256(canonical(receipt)).hexdigest()


def verify_receipt(receipt: Mapping[str, Any] | str, public_key: PublicKey | Iterable[PublicKey]) -> dict[str, Any]:
    """Check a receipt offline; returns its content.

    Args:
        receipt: The receipt, or its JSON text.
        public_key: The Ed25519 public key, 32 bytes or their hexadecimal form; or several, after a rotation.

    Raises:
        VerifyFailedError: It was signed by none of these keys, or was changed since.
        ConfigurationError: There is no key, or what was given is none.
    """
    try:
        content = read_receipt(receipt)
        written = content.pop("signature")
        signature = bytes.fromhex(written)
        if signature.hex() != written:  # one spelling, as the next receipt holds the hash of this one
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise VerifyFailedError("This is no receipt: it has no readable signature.") from exc
    if not any(_signed_by(key, signature, content) for key in read_keys(public_key)):
        raise VerifyFailedError("The receipt was not signed by this key, or was changed since.")
    return content


def read_receipt(receipt: Mapping[str, Any] | str) -> dict[str, Any]:
    """A receipt or its JSON text as a dict of its own.

    Raises:
        ValueError: It is no JSON object, or says something twice: readers differ in which of the two they see.
    """
    return dict(json.loads(receipt, object_pairs_hook=_once) if isinstance(receipt, str) else receipt)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _signed_by(key: Any, signature: bytes, content: Mapping[str, Any]) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        key.verify(signature, canonical(content))
    except InvalidSignature:
        return False
    return True


def read_keys(given: PublicKey | Iterable[PublicKey]) -> list[Any]:
    """Public keys, to check signatures with.

    Raises:
        ConfigurationError: There is none, or something is none.
    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return [_read(given)]
    keys = [_read(key) for key in given]
    if not keys:
        raise ConfigurationError("Receipts are checked with the public keys that signed them; none was given.")
    return keys


def _read(public_key: Any) -> Any:
    try:
        raw = bytes.fromhex(public_key) if isinstance(public_key, str) else public_key
        return _ed25519().Ed25519PublicKey.from_public_bytes(raw)
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(
            "public_key is no Ed25519 public key: 32 bytes, or 64 hexadecimal digits, as erasure.public_key() gives it."
        ) from exc


def sign(body: Mapping[str, Any], private_key: bytes) -> dict[str, Any]:
    """A receipt with its signature."""
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(private_key)
    return {**body, "signature": key.sign(canonical(body)).hex()}


def public_key_of(private_key: bytes) -> str:
    """The public key that belongs to a private one, in hexadecimal form."""
    key = _ed25519().Ed25519PrivateKey.from_private_bytes(private_key)
    return str(key.public_key().public_bytes_raw().hex())


def commits_to(receipt: Mapping[str, Any] | str, salts: Iterable[str], subject: str) -> bool:
    """Whether a receipt is about this id: true only for who has its salts, which are not in the receipt.

    Args:
        receipt: The receipt, or its JSON text; `verify_receipt` says whether it is genuine.
        salts: The salts that came with it: `request.receipt["salts"]`.
        subject: The id.

    Raises:
        VerifyFailedError: It is no receipt of an erasure.
        ConfigurationError: The salts are none, or the id is none.
    """
    subject_key(subject)
    try:
        committed = set(read_receipt(receipt)["subject_commitments"])
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise VerifyFailedError("This is no receipt of an erasure: it says nothing of whom it is about.") from exc
    try:
        made = {commitment(bytes.fromhex(salt), subject) for salt in _listed(salts)}
    except (ValueError, TypeError) as exc:
        raise ConfigurationError('salts is the list that came with the receipt: request.receipt["salts"].') from exc
    return not made.isdisjoint(committed)


def _listed(salts: Any) -> Iterable[str]:
    if isinstance(salts, (str, bytes, Mapping)) or not isinstance(salts, Iterable):
        raise TypeError
    return salts


def commitment(salt: bytes, subject: str) -> str:
    """What a receipt says of an id."""
    return hashlib.sha256(salt + subject.encode("utf-8", "surrogatepass")).hexdigest()


def check_signing() -> None:
    """See that receipts can be signed, before anything is erased.

    Raises:
        MissingDependencyError: The extra for it is not installed.
    """
    _ed25519()


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ModuleNotFoundError as exc:
        raise MissingDependencyError('Receipts need an extra: pip install "stepvault[crypto]".') from exc
    return ed25519

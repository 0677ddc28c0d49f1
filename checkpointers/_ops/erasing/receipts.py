"""Receipts: signed, numbered and chained; and the keys that sign them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ormsgpack

from stepvault._core.plan import Op
from stepvault._core.rows import Doc, DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.inbox.entries import moment
from stepvault.checkpointers._ops.spaces import space
from stepvault.erasure import PurgeStep, SigningKey, digest_of, public_key_of, sign

_RECEIPTS, _SIGNING = "receipts", "signing"
_LAST = b"last"
_PAGE = 100


def first(scope: Scope, issuer: str, current: Request) -> Op[Request]:
    """Write the receipt of an erasure."""
    body = {
        "subject_commitments": current.commitments,
        "own": current.own, "shared": current.shared, "requested_at": moment(current.requested).isoformat(),
        "tombstoned_at": moment(current.tombstoned).isoformat(),
        "verified_at": moment(current.verified).isoformat(), "removed": current.counts, "remaining": 0,
        "unattributed": current.unattributed, "hooks": current.hooks, "purge": _shown(current.steps),
    }  # fmt: skip
    kept = {"receipt": body, "salts": current.salts}
    stored = yield from _issue(scope, issuer, current, b"r" + current.id.encode(), kept)

    def end(present: Request) -> Request:
        if present.state != current.state:
            return present
        return replace(present, state="receipted", receipt=stored, lists=[], fields=[])

    return (yield from requests.change(scope, current.id, end))


def follow_up(scope: Scope, issuer: str, current: Request, steps: list[PurgeStep]) -> Op[Request]:
    """Write a receipt of purge steps that were open in the one before."""
    assert current.receipt is not None
    number = len(current.follow_ups)
    now = yield from scope.core.dialect.now()
    body = {
        "follows": current.receipt["receipt"]["receipt"], "purged_at": moment(now).isoformat(), "purge": _shown(steps),
    }  # fmt: skip
    place = b"f" + current.id.encode() + number.to_bytes(2, "big")
    stored = yield from _issue(scope, issuer, current, place, {"receipt": body})

    def add(present: Request) -> Request:
        if len(present.follow_ups) > number:
            return present
        purge = [[step.name, step.done, step.detail, step.retryable] for step in steps]
        return replace(present, purge=purge, follow_ups=[*present.follow_ups, stored["receipt"]])

    return (yield from requests.change(scope, current.id, add))


def _issue(scope: Scope, issuer: str, current: Request, place: bytes, kept: dict[str, Any]) -> Op[dict[str, Any]]:
    """Sign and keep a receipt as the next of its chain, unless another worker has: one place, one receipt."""
    while True:
        key = yield from signing_key(scope)
        found = yield from scope.core.dialect.get_docs(space(scope, _RECEIPTS), [place, _LAST])
        by_key = {doc.key: doc for doc in found}
        if place in by_key:
            return scope.native.loads(by_key[place].body)  # type: ignore[no-any-return]
        last = by_key.get(_LAST)
        number, previous, chain = ormsgpack.unpackb(last.body) if last else (0, None, scope.core.random(8).hex())
        body = {
            "v": 1, "receipt": scope.core.random(16).hex(), "request": current.id, "issuer": issuer, "chain": chain,
            "number": number + 1, "previous": previous, "key": public_key_of(key), **kept["receipt"],
        }  # fmt: skip
        signed = sign(body, key)
        version = scope.core.random(8)
        newest = ormsgpack.packb([number + 1, digest_of(signed), chain])
        stored = {**kept, "receipt": signed}
        changes = [
            DocChange(_LAST, newest, version, last.version if last else None),
            DocChange(place, scope.native.dumps(stored), version, None),
        ]
        if (yield from scope.core.dialect.write_docs(space(scope, _RECEIPTS), changes, durable=True)):
            return stored


def every(scope: Scope) -> Op[list[dict[str, Any]]]:
    """Every receipt of this tenant, in the order of their numbers."""
    found: list[dict[str, Any]] = []
    for prefix in (b"r", b"f"):
        after = b""
        while True:
            docs = yield from scope.core.dialect.docs(space(scope, _RECEIPTS), prefix, after, _PAGE)
            found += [scope.native.loads(doc.body)["receipt"] for doc in docs]
            if len(docs) < _PAGE:
                break
            after = docs[-1].key
    return sorted(found, key=lambda receipt: receipt["number"])


def _shown(steps: list[PurgeStep]) -> list[dict[str, Any]]:
    return [{"step": step.name, "done": step.done, "detail": step.detail} for step in steps]


def signing_key(scope: Scope) -> Op[bytes]:
    """The private key that signs receipts of this tenant; made at first use."""
    while True:
        docs = yield from _key_docs(scope)
        if docs:
            return bytes(ormsgpack.unpackb(docs[-1].body)[0])
        yield from _add_key(scope, [])


def rotate(scope: Scope) -> Op[list[SigningKey]]:
    """Sign with a new key from now on. The private part of the one before is destroyed; its public part stays."""
    while True:
        docs = yield from _key_docs(scope)
        if (yield from _add_key(scope, docs)):
            return (yield from keys(scope))


def keys(scope: Scope) -> Op[list[SigningKey]]:
    """Every key that receipts of this tenant were signed with, oldest first; the last is in use."""
    yield from signing_key(scope)
    docs = yield from _key_docs(scope)
    return [_shown_key(doc, current=doc is docs[-1]) for doc in docs]


def _shown_key(doc: Doc, *, current: bool) -> SigningKey:
    _, public, since = ormsgpack.unpackb(doc.body)
    return SigningKey(public, moment(since), current)


def _key_docs(scope: Scope) -> Op[list[Doc]]:
    return (yield from scope.core.dialect.docs(space(scope, _SIGNING), b"k", b"", 1000))


def _add_key(scope: Scope, docs: list[Doc]) -> Op[bool]:
    now = yield from scope.core.dialect.now()
    private, version = scope.core.random(32), scope.core.random(8)
    place = b"k" + len(docs).to_bytes(4, "big")
    changes = [DocChange(place, ormsgpack.packb([private, public_key_of(private), now]), version, None)]
    for doc in docs[-1:]:
        _, public, since = ormsgpack.unpackb(doc.body)
        changes.append(DocChange(doc.key, ormsgpack.packb([b"", public, since]), version, doc.version))
    return (yield from scope.core.dialect.write_docs(space(scope, _SIGNING), changes, durable=True))

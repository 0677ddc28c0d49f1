"""The states of an erasure, and what each does: tombstone, delete, purge, verify, receipt."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ormsgpack

from stepvault._core.ids import new_uid
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Call, Op
from stepvault._core.rows import DocChange, Elements, Guard, Note
from stepvault._core.state import State
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.erasing.planning import hold_of, plan
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.expiry import watch
from stepvault.checkpointers._ops.inbox import decisions, keeping
from stepvault.checkpointers._ops.inbox.entries import moment
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import DECIDERS, PREFIX, SUBJECTS, TOMBSTONES, token
from stepvault.erasure import ErasurePlan, ErasureRequest, public_key_of, sign
from stepvault.errors import ConfigurationError, HoldError, PlanStaleError

_PAGE = 100
_FENCE = 24 * 3_600_000  # milliseconds for which a thread that was about to be made for an erased person stays closed
_RECEIPTS, _SIGNING = "receipts", "signing"
_LAST, _KEY = b"last", b"key"


@dataclass(frozen=True, slots=True)
class Eraser:
    """What an erasure works with beside the threads."""

    items: Items
    journal: Callable[[dict[str, Any]], None] | None
    issuer: str


def request(
    scope: Scope, eraser: Eraser, subject: str, shared: str, reason: str | None, planned: ErasurePlan | None
) -> Op[Request]:
    """Take up an erasure, or the one of this person that is under way.

    Raises:
        HoldError: A hold stands against it.
        PlanStaleError: The data is not what was planned.
    """
    if shared not in ("keep", "erase"):
        raise ConfigurationError(f'shared must be "keep" or "erase", not {shared!r}.')
    mark = token(scope, subject)
    held = yield from hold_of(scope, mark)
    if held is not None:
        raise HoldError(f"A hold stops this erasure: {held}. Release it first.")
    if planned is not None and (yield from plan(scope, subject, eraser.items)).hash != planned.hash:
        raise PlanStaleError
    for open_request in (yield from requests.every(scope)):
        if open_request.token == mark and open_request.state != "receipted":
            return open_request
    now = yield from scope.core.dialect.now()
    made = Request(scope.core.random(16).hex(), "received", subject, mark, shared, reason, now)
    return (yield from requests.create(scope, made))


def advance(scope: Scope, eraser: Eraser, request_id: str) -> Op[Request]:
    """Bring an erasure to its end, from wherever it is."""
    steps = {"received": _tombstone, "tombstoned": _delete, "deleted": _purge, "purged": _verify, "verified": _receipt}
    current = yield from requests.get(scope, request_id)
    while current.state in steps:
        current = yield from steps[current.state](scope, eraser, current)
    return current


def _moved(scope: Scope, current: Request, state: str, **fields: Any) -> Op[Request]:
    """Move to the next state, unless another worker has."""

    def alter(present: Request) -> Request:
        return replace(present, state=state, **fields) if present.state == current.state else present

    return (yield from requests.change(scope, current.id, alter))


def _tombstone(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    held = yield from hold_of(scope, current.token)
    if held is not None:
        raise HoldError(f"A hold stops this erasure: {held}. Release it first.")
    now = yield from scope.core.dialect.now()
    stone = {"standing": True, "request": current.id, "at": now}
    change = DocChange(current.token, ormsgpack.packb(stone), scope.core.random(8))
    yield from scope.core.dialect.write_docs(space(scope, TOMBSTONES), [change], durable=True)
    if eraser.journal is not None:
        line = {"token": current.token.hex(), "tenant": scope.tenant.hex(), "request": current.id, "at": now}
        journal = eraser.journal
        yield Call(lambda: journal(line))
    return (yield from _moved(scope, current, "tombstoned", tombstoned=now))


def _delete(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    while True:
        hints = yield from _hints(scope, current.token)
        if not hints:
            break
        counts = {"threads": 0, "checkpoints": 0, "shared": 0}
        for key in hints.values():
            for name, count in (yield from _delete_thread(scope, current, key)).items():
                counts[name] += count
        gone = [DocChange(place, None, b"") for place in hints]
        yield from scope.core.dialect.write_docs(space(scope, SUBJECTS), gone)
        yield from _count(scope, current, counts)
    yield from _count(scope, current, {"decisions": (yield from _forget_decisions(scope, current))})
    if current.subject is not None:
        yield from _count(scope, current, {"items": (yield from eraser.items.delete(current.subject))})
    return (yield from _moved(scope, current, "deleted"))


def _hints(scope: Scope, mark: bytes) -> Op[dict[bytes, ThreadKey]]:
    docs = yield from scope.core.dialect.docs(space(scope, SUBJECTS), mark, b"", _PAGE)
    return {doc.key: ThreadKey(scope.tenant, ormsgpack.unpackb(doc.body)[1]) for doc in docs}


def _count(scope: Scope, current: Request, more: dict[str, int]) -> Op[None]:
    def alter(present: Request) -> Request:
        counts = dict(present.counts)
        for name, count in more.items():
            if count:
                counts[name] = counts.get(name, 0) + count
        return replace(present, counts=counts)

    if any(more.values()):
        yield from requests.change(scope, current.id, alter)


def _delete_thread(scope: Scope, current: Request, key: ThreadKey) -> Op[dict[str, int]]:
    """Remove a thread, or the person from a shared one; close one that is about to be made."""
    while True:
        loaded = yield from scope.core.dialect.load(key, b"", b"\x00", None)
        if loaded.thread is None:
            if (yield from _fence(scope, current, key)):
                return {}
            continue
        state = State.unpack(loaded.thread.extents)
        if current.token not in state.subjects:
            return {}
        if len(state.subjects) > 1 and current.shared == "keep":
            if (yield from _unlink(scope, current, key, loaded.thread, state)):
                return {"shared": 1}
            continue
        removed = yield from keeping.delete(scope, key, loaded.thread.rev)
        if removed is not None:
            return {"threads": 1, "checkpoints": removed}


def _fence(scope: Scope, current: Request, key: ThreadKey) -> Op[bool]:
    """An empty thread in the place of one whose writer has passed the tombstone's check and not yet stored it.

    That writer is refused, looks again, and finds the tombstone. The fence expires like any thread.
    """
    until = (yield from scope.core.dialect.now()) + _FENCE
    yield from watch(scope, key, until)
    state = State(expires_at=until, fenced=True)
    guard = Guard(key, None, new_uid(), scope.core.random(8), state.pack())
    return (yield from scope.core.dialect.put_writes(guard, Elements(), ())) is not None


def _unlink(scope: Scope, current: Request, key: ThreadKey, thread: Any, state: State) -> Op[bool]:
    left = replace(state, subjects=tuple(mark for mark in state.subjects if mark != current.token))
    guard = Guard(key, thread, thread.uid, scope.core.random(8), left.pack())
    done = yield from scope.core.dialect.put_writes(guard, Elements(), (), [Note(PREFIX + current.token, None)])
    scope.core.knowledge.forget(key)
    return done is not None


def _forget_decisions(scope: Scope, current: Request) -> Op[int]:
    """Take the person's name out of the decisions they made; the decisions stay."""
    count = 0
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, DECIDERS), current.token, b"", _PAGE)
        for doc in docs:
            thread, interrupt_id = ormsgpack.unpackb(doc.body)
            at = Address(ThreadKey(scope.tenant, thread), b"", None, None)
            count += yield from decisions.rename_decider(scope, at, interrupt_id, f"erased:{current.token.hex()[:12]}")
        yield from scope.core.dialect.write_docs(
            space(scope, DECIDERS), [DocChange(doc.key, None, b"") for doc in docs]
        )
        if len(docs) < _PAGE:
            return count


def _purge(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    scope.core.knowledge.clear()
    done = yield from scope.core.dialect.purge()
    return (yield from _moved(scope, current, "purged", purge=[[step.name, step.done, step.detail] for step in done]))


def _verify(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    """Look through everything that is left; whatever came back meanwhile is deleted too."""
    found = bool((yield from _hints(scope, current.token)))
    after = None
    while not found:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        found = any(row.extents and current.token in State.unpack(row.extents).subjects for row in rows)
        if len(rows) < _PAGE:
            break
        after = rows[-1].no
    if not found and current.subject is not None:
        found = bool((yield from eraser.items.count(current.subject)))
    if found:
        return (yield from _moved(scope, current, "tombstoned"))
    now = yield from scope.core.dialect.now()
    return (yield from _moved(scope, current, "verified", verified=now))


def _receipt(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    """Write the receipt and forget the name: from here on only the token is known."""
    key = yield from signing_key(scope)
    while True:
        docs = yield from scope.core.dialect.get_docs(space(scope, _RECEIPTS), [_LAST])
        previous = docs[0].body.hex() if docs else None
        salt = scope.core.random(16)
        commitment = hashlib.sha256(salt + (current.subject or "").encode()).hexdigest()
        body = {
            "v": 1, "receipt": scope.core.random(16).hex(), "request": current.id, "issuer": eraser.issuer,
            "key": public_key_of(key), "shared": current.shared, "subject_commitment": commitment,
            "requested_at": moment(current.requested).isoformat(), "previous": previous,
            "tombstoned_at": moment(current.tombstoned).isoformat(),
            "verified_at": moment(current.verified).isoformat(), "removed": current.counts, "remaining": 0,
            "purge": [{"step": name, "done": done, "detail": detail} for name, done, detail in current.purge],
        }  # fmt: skip
        signed = {**sign(body, key)}
        digest = hashlib.sha256(ormsgpack.packb(signed, option=ormsgpack.OPT_SORT_KEYS)).digest()
        version = scope.core.random(8)
        last = DocChange(_LAST, digest, version, docs[0].version if docs else None)
        stored = {"receipt": signed, "salt": salt.hex()}
        kept = DocChange(b"r" + current.id.encode(), scope.native.dumps(stored), version, None)
        if (yield from scope.core.dialect.write_docs(space(scope, _RECEIPTS), [last, kept], durable=True)):
            break
        present = yield from scope.core.dialect.get_docs(space(scope, _RECEIPTS), [b"r" + current.id.encode()])
        if present:  # another worker was first: one request, one receipt
            stored = scope.native.loads(present[0].body)
            break
    return (yield from _moved(scope, current, "receipted", receipt=stored, subject=None))


def signing_key(scope: Scope) -> Op[bytes]:
    """The private key that signs receipts of this tenant; made at first use."""
    while True:
        docs = yield from scope.core.dialect.get_docs(space(scope, _SIGNING), [_KEY])
        if docs:
            return docs[0].body
        change = DocChange(_KEY, scope.core.random(32), scope.core.random(8), None)
        yield from scope.core.dialect.write_docs(space(scope, _SIGNING), [change], durable=True)


def readmit(scope: Scope, subject: str) -> Op[None]:
    """Let a person who was erased come back: what they write from now on is stored."""
    mark = token(scope, subject)
    docs = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), [mark])
    if not docs:
        return
    stone = {**ormsgpack.unpackb(docs[0].body), "standing": False}
    change = DocChange(mark, ormsgpack.packb(stone), scope.core.random(8))
    yield from scope.core.dialect.write_docs(space(scope, TOMBSTONES), [change], durable=True)


def reconcile(scope: Scope, eraser: Eraser, journaled: Sequence[dict[str, Any]]) -> Op[list[ErasureRequest]]:
    """Erase again whom the journal says to be erased, where the database does not know it (any more).

    Names are not in the journal, so store items are found only if the request still stands in the database.
    """
    done: list[ErasureRequest] = []
    for mark in dict.fromkeys(bytes.fromhex(line["token"]) for line in journaled):
        stones = yield from scope.core.dialect.get_docs(space(scope, TOMBSTONES), [mark])
        known = stones and not (yield from _hints(scope, mark))
        if known or (stones and not ormsgpack.unpackb(stones[0].body).get("standing")):
            continue
        now = yield from scope.core.dialect.now()
        made = Request(scope.core.random(16).hex(), "received", None, mark, "keep", "reconcile", now)
        yield from requests.create(scope, made)
        done.append((yield from advance(scope, eraser, made.id)).shown())
    return done

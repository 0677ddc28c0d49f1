"""Side effects, recorded before and after in the thread they belong to.

A record is a note of the thread: `started` is committed before the function runs, `done` with its result after. Who
finds `started` knows that a crash, an error or another worker stands in between, and does not run it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any, Literal

import ormsgpack

from stepvault._core.codec import unpack
from stepvault._core.ids import id_key, text_of
from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange, Elements, Note, Query, ThreadRow
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox.index import space
from stepvault.effects import EffectRecord
from stepvault.errors import ConfigurationError, EffectInDoubtError

PREFIX = b"e"
_SPACE = "effects"


@dataclass(frozen=True, slots=True)
class Effect:
    """What is kept of an effect."""

    name: str
    task: str
    arguments: bytes
    begun_by: bytes
    state: Literal["started", "done"]
    started: int
    result: Any = None


def effect_key(task_id: str, name: str, place: str) -> bytes:
    """The note key of an effect: the same whenever the same task asks for it again."""
    identity = ormsgpack.packb([task_id, name, place])
    return PREFIX + hashlib.blake2b(identity, digest_size=16).digest()


def idempotency_key(thread: ThreadKey, uid: bytes, key: bytes) -> str:
    """A key for outside services that stays the same when the effect is tried again."""
    return hashlib.blake2b(uid + thread.thread + key, digest_size=16).hexdigest()


def begin(scope: Scope, at: Address, key: bytes, effect: Effect) -> Op[Effect]:
    """Record that an effect starts; returns the record that counts: this one, or one that was there.

    Raises:
        ConfigurationError: The thread has no stored checkpoint.
    """
    yield from _index(scope, at.key, key)

    def change(present: Effect | None, now: int) -> Effect:
        return present or replace(effect, started=now)

    recorded: Effect = yield from _change(scope, at, key, change)
    return recorded


def finish(scope: Scope, at: Address, key: bytes, result: Any) -> Op[Effect]:
    """Record that an effect is done."""

    def change(present: Effect | None, now: int) -> Effect:
        if present is None:
            raise EffectInDoubtError("The record of this effect is gone: its thread was changed while it ran.")
        return replace(present, state="done", result=result)

    done: Effect = yield from _change(scope, at, key, change)
    yield from scope.core.dialect.write_docs(space(scope, _SPACE), [_doc(scope, at.key, key, drop=True)])
    return done


def forget(scope: Scope, at: Address, key: bytes) -> Op[None]:
    """Take back the record of an effect that did not happen."""
    yield from _change(scope, at, key, lambda present, now: None)
    yield from scope.core.dialect.write_docs(space(scope, _SPACE), [_doc(scope, at.key, key, drop=True)])


def _change(scope: Scope, at: Address, key: bytes, change: Any) -> Op[Any]:
    known = scope.core.knowledge.of(at.key)

    def attempt(view: View | None) -> Op[Any]:
        if view is None:
            raise ConfigurationError(f"Thread {text_of(at.key.thread)!r} has no checkpoint; effects belong to runs.")
        notes = yield from scope.core.dialect.notes(ThreadRow(view.no, view.uid, view.rev, b""), key)
        present = _read(scope, notes[0].body) if notes and notes[0].body else None
        effect = change(present, (yield from scope.core.dialect.now()))
        if effect is present:
            return (effect,)
        state = state_of(view)
        guard = replace(guard_for(scope, at, view, state), durable=True)
        body = scope.core.codec.pack(scope.native.dumps(asdict(effect))) if effect else None
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), [Note(key, body)])
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], state, encoder_for(scope, view, 0))
        return (effect,)

    (effect,) = yield from store(scope, at, attempt, lambda view: False, None)
    return effect


def _read(scope: Scope, body: bytes) -> Effect:
    return Effect(**scope.native.loads(unpack(body)))


def _index(scope: Scope, thread: ThreadKey, key: bytes) -> Op[None]:
    """Make a started effect findable, before it is recorded."""
    yield from scope.core.dialect.write_docs(space(scope, _SPACE), [_doc(scope, thread, key)])


def _doc(scope: Scope, thread: ThreadKey, key: bytes, *, drop: bool = False) -> DocChange:
    place = hashlib.blake2b(thread.thread, digest_size=16).digest() + key
    return DocChange(place, None if drop else ormsgpack.packb([thread.thread, key]), scope.core.random(8))


def stored_everywhere(scope: Scope, at: Address, checkpoint_ids: Mapping[str, str]) -> Op[bool]:
    """Whether every checkpoint a task stands on is in the database (by id: functional tasks name no real namespace)."""
    for checkpoint_id in set(checkpoint_ids.values()):
        query = Query(at.key.tenant, at.key.thread, checkpoint=id_key("checkpoint_id", checkpoint_id), limit=1)
        if not (yield from scope.core.dialect.page(query)):
            return False
    return True


def in_doubt(scope: Scope) -> Op[list[EffectRecord]]:
    """Effects that started and whose end is not known, of all threads."""
    found: list[EffectRecord] = []
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, _SPACE), b"", after, 100)
        for doc in docs:
            thread, key = ormsgpack.unpackb(doc.body)
            record = yield from get(scope, ThreadKey(scope.tenant, thread), key)
            if record is not None and record.state == "started":
                found.append(record)
        if not docs:
            return found
        after = docs[-1].key


def get(scope: Scope, thread: ThreadKey, key: bytes) -> Op[EffectRecord | None]:
    """The record of an effect."""
    loaded = yield from scope.core.dialect.load(thread, b"", b"\x00", None)
    if loaded.thread is None:
        return None
    notes = yield from scope.core.dialect.notes(loaded.thread, key)
    if not notes or notes[0].body is None:
        return None
    return record_of(thread, loaded.thread.uid, key, _read(scope, notes[0].body))


def record_of(thread: ThreadKey, uid: bytes, key: bytes, effect: Effect) -> EffectRecord:
    """An effect as users see it."""
    return EffectRecord(
        id=f"{key.hex()}:{text_of(thread.thread)}",
        name=effect.name,
        thread_id=text_of(thread.thread),
        task_id=effect.task,
        state=effect.state,
        started_at=datetime.fromtimestamp(effect.started / 1000, timezone.utc),
        result=effect.result,
        key=idempotency_key(thread, uid, key),
    )


def resolve(scope: Scope, effect_id: str, result: Any, *, retry: bool) -> Op[None]:
    """Settle an effect in doubt: it happened with this result, or it did not and may be tried again.

    Raises:
        ConfigurationError: No effect has this id.
    """
    digest, _, thread_id = effect_id.partition(":")
    try:
        key = bytes.fromhex(digest)
    except ValueError as exc:
        raise ConfigurationError(f"{effect_id!r} is no effect id.") from exc
    at = Address(scope.key(thread_id), b"", None, None)
    if (yield from get(scope, at.key, key)) is None:
        raise ConfigurationError(f"No effect has the id {effect_id!r}.")
    if retry:
        yield from forget(scope, at, key)
    else:
        yield from finish(scope, at, key, result)

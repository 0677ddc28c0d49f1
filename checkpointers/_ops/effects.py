"""Side effects, recorded before and after in the thread they belong to.

A record is a note of the thread: `started` is committed before the function runs, `done` with its result after. Who
finds `started` knows that a crash, an error or another worker stands in between, and does not run it again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple

import ormsgpack

from stepvault._core.codec import unpack
from stepvault._core.ids import check_text, id_key, text_of
from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.plan import Op
from stepvault._core.rows import Elements, Note, Query
from stepvault._core.serde.scrubbing import Scrubber
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.effect_hints import PREFIX, SPACE, drop_hints, restore_hints
from stepvault.checkpointers._ops.expiry import db_now, is_over
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.checkpointers._ops.inbox.entries import moment, shown
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import NOBODY, check_named, joined
from stepvault.effects import EffectRecord
from stepvault.errors import ConfigurationError, EffectInDoubtError

_PAGE = 100


@dataclass(frozen=True, slots=True)
class Effect:
    """What is kept of an effect; its result is packed."""

    name: str
    task: str
    arguments: bytes
    begun_by: bytes
    state: Literal["started", "done"] = "started"
    started: int = 0
    result: bytes | None = None
    given: bytes | None = None  # its arguments, until it is done


class Recorded(NamedTuple):
    """An effect as it stands, and the generation of its thread."""

    effect: Effect
    uid: bytes


Change = Callable[[Effect | None, int], Effect | None]
_FIELDS = tuple(field.name for field in fields(Effect))


def effect_key(task_id: str, name: str, place: str) -> bytes:
    """The note key of an effect: the same whenever the same task asks for it again."""
    identity = ormsgpack.packb([task_id, name, place])
    return PREFIX + hashlib.blake2b(identity, digest_size=16).digest()


def idempotency_key(thread: ThreadKey, uid: bytes, key: bytes) -> str:
    """A key for outside services that stays the same when the effect is tried again."""
    return hashlib.blake2b(uid + thread.thread + key, digest_size=16).hexdigest()


def begin(scope: Scope, at: Address, key: bytes, effect: Effect) -> Op[Recorded]:
    """Record that an effect starts; returns the record that counts: this one, or one that was there.

    Raises:
        ConfigurationError: The thread has no stored checkpoint.
        FencedError, LeaseHeldError, HeadMovedError, ThreadGoneError, SubjectErasedError: As for writes; nothing was
            begun.
    """

    def change(present: Effect | None, now: int) -> Effect:
        return present or replace(effect, started=now)

    recorded: Recorded = yield from _change(scope, at, key, change)
    return recorded


def finish(scope: Scope, at: Address, key: bytes, result: bytes) -> Op[Recorded]:
    """Record that an effect is done. It happened, so neither lease nor head stand against it."""

    def change(present: Effect | None, now: int) -> Effect:
        if present is None:
            raise EffectInDoubtError("The record of this effect is gone: its thread was changed while it ran.")
        return replace(present, state="done", result=result, given=None)

    done: Recorded = yield from _change(scope, at, key, change, check=False)
    yield from drop_hints(scope, at.key, [key])
    return done


def forget(scope: Scope, at: Address, key: bytes) -> Op[None]:
    """Take back the record of an effect that did not happen."""
    yield from _change(scope, at, key, lambda present, now: None, check=False)
    yield from drop_hints(scope, at.key, [key])


def _change(scope: Scope, at: Address, key: bytes, change: Change, *, check: bool = True) -> Op[Any]:
    known = scope.core.knowledge.of(at.key)

    def attempt(view: View | None) -> Op[Recorded | None]:
        if view is None:
            yield from check_named(scope, at)
            raise ConfigurationError(f"Thread {text_of(at.key.thread)!r} has no checkpoint; effects belong to runs.")
        ((thread, body),) = yield from scope.core.dialect.notes_at([(at.key, key)])
        if thread is None or (thread.uid, thread.rev) != (view.uid, view.rev):
            return None
        present = _read(scope, body) if body else None
        effect = change(present, (yield from db_now(scope.core)))
        if effect is present:
            return Recorded(effect, view.uid)  # type: ignore[arg-type]
        if present is None:
            yield from restore_hints(scope, at.key, [key])  # findable before it is recorded
        state, names = state_of(view), NOBODY
        if check and at.subjects:
            state, names = yield from joined(scope, at, state)
        guard = replace(guard_for(scope, at, view, state), durable=True)
        notes = [Note(key, _pack(scope, effect)), *names]
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), notes)
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], state, encoder_for(scope, view, 0))
        return Recorded(effect, view.uid)  # type: ignore[arg-type]

    return (yield from store(scope, at, known, attempt, lambda view: False, None, check=check))


def _pack(scope: Scope, effect: Effect | None) -> bytes | None:
    if effect is None:
        return None
    return scope.core.codec.pack(scope.native.dumps([getattr(effect, name) for name in _FIELDS]))


def _read(scope: Scope, body: bytes) -> Effect:
    return Effect(*scope.native.loads(unpack(body)))


def without(scope: Scope, note: Note, scrubber: Scrubber) -> Note:
    """An effect's note without a person; what it was called with goes whole, as arguments have no names."""
    assert note.body is not None
    effect = replace(_read(scope, note.body), given=None)
    if effect.result is not None:
        effect = replace(effect, result=scrubber.payload(effect.result, ("__effect__",)))
    return Note(note.key, _pack(scope, effect))


def in_doubt(scope: Scope) -> Op[list[EffectRecord]]:
    """Effects that started and whose end is not known, of all threads."""
    found: list[EffectRecord] = []
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, SPACE), b"", after, _PAGE)
        places = [(ThreadKey(scope.tenant, thread), key) for thread, key in (ormsgpack.unpackb(d.body) for d in docs)]
        rows = yield from scope.core.dialect.notes_at(places)
        for (thread, key), (row, body) in zip(places, rows, strict=True):
            effect = _read(scope, body) if row and body else None
            if row is not None and effect is not None and effect.state == "started":
                if not (yield from is_over(scope.core, row)):
                    found.append(record_of(scope, thread, row.uid, key, effect))
            elif row is None or effect is not None:
                yield from drop_hints(scope, thread, [key])
        if not docs:
            return found
        after = docs[-1].key


def read(scope: Scope, thread: ThreadKey, uid: bytes, note: Note) -> EffectRecord:
    """The effect of a note, as users see it."""
    assert note.body is not None
    return record_of(scope, thread, uid, note.key, _read(scope, note.body))


def done_by(scope: Scope, note: Note, tasks: Collection[bytes]) -> bool:
    """Whether the effect of a note is done, and of one of these tasks."""
    assert note.body is not None
    effect = _read(scope, note.body)
    return effect.state == "done" and id_key("task_id", effect.task) in tasks


def record_of(scope: Scope, thread: ThreadKey, uid: bytes, key: bytes, effect: Effect) -> EffectRecord:
    """An effect as users see it."""
    args, kwargs = shown(scope, effect.given) if effect.given is not None else (None, None)
    return EffectRecord(
        id=f"{key.hex()}:{text_of(thread.thread)}",
        name=effect.name,
        thread_id=text_of(thread.thread),
        task_id=effect.task,
        state=effect.state,
        started_at=moment(effect.started),
        result=shown(scope, effect.result),
        key=idempotency_key(thread, uid, key),
        args=args if args is None else tuple(args),
        kwargs=kwargs,
    )


def resolve(scope: Scope, effect_id: str, result: Any, *, retry: bool) -> Op[None]:
    """Settle an effect in doubt: it happened with this result, or it did not and may be tried again.

    Raises:
        ConfigurationError: No effect has this id, or it is done.
    """
    check_text("effect_id", effect_id)
    digest, _, thread_id = effect_id.partition(":")
    try:
        key = bytes.fromhex(digest)
    except ValueError as exc:
        raise ConfigurationError(f"{effect_id!r} is no effect id.") from exc
    at = Address(scope.key(thread_id), b"", None, None)
    ((row, body),) = yield from scope.core.dialect.notes_at([(at.key, key)])
    if row is None or body is None or key[:1] != PREFIX:
        raise ConfigurationError(f"No effect has the id {effect_id!r}.")
    if _read(scope, body).state == "done":
        raise ConfigurationError(f"Effect {effect_id!r} is done; there is nothing to settle.")
    if retry:
        yield from forget(scope, at, key)
    else:
        yield from finish(scope, at, key, scope.native.dumps(result))


def stored_everywhere(scope: Scope, at: Address, checkpoint_ids: Mapping[str, str]) -> Op[bool]:
    """Whether every checkpoint a task stands on is in the database (by id: functional tasks name no real namespace).

    Raises:
        SubjectErasedError: It never will be.
    """
    view = scope.core.knowledge.of(at.key).view
    known = {checkpoint for _, checkpoint in view.records} if view else set()
    for checkpoint_id in set(checkpoint_ids.values()):
        checkpoint = id_key("checkpoint_id", checkpoint_id)
        if checkpoint not in known:
            query = Query(at.key.tenant, at.key.thread, checkpoint=checkpoint, limit=1)
            if not (yield from scope.core.dialect.page(query)):
                yield from check_named(scope, at)
                return False
    return True

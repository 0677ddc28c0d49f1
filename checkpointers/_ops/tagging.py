"""Names of checkpoints, which retention keeps."""

from __future__ import annotations

from collections.abc import Collection

from stepvault._core.ids import id_of, text_key, text_of
from stepvault._core.knowledge import ThreadKey, View
from stepvault._core.plan import Op
from stepvault._core.rows import Elements, Guard, Note, ThreadRow
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.expiry import is_over
from stepvault.checkpointers._ops.guarded import encoder_for, guard_for, settle, state_of, store
from stepvault.errors import ConfigurationError

TAG = b"t"
Tagged = tuple[bytes, bytes]  # ns, checkpoint id


def tag(scope: Scope, at: Address, name: str, *, remove: bool = False) -> Op[None]:
    """Give a checkpoint a name, or take the name back. A name stands for one checkpoint of its thread.

    Raises:
        ConfigurationError: The config names no checkpoint, or one that is not stored.
    """
    known = scope.core.knowledge.of(at.key)
    checkpoint = at.checkpoint
    if checkpoint is None and not remove:
        raise ConfigurationError("tag() needs the checkpoint_id to name in its config.")
    if checkpoint is not None and not remove:
        loaded = yield from scope.core.dialect.load(at.key, at.ns, checkpoint, None)
        gone = loaded.thread is None or (yield from is_over(scope.core, loaded.thread))
        if gone or not loaded.checkpoints:
            raise ConfigurationError("tag() names a checkpoint that is not stored.")

    def attempt(view: View | None) -> Op[bool | None]:
        if view is None:
            raise ConfigurationError("tag() names a thread that is not stored.")
        state = state_of(view)
        guard = guard_for(scope, at, view, state)
        body = None if remove else scope.native.dumps([at.ns, checkpoint])
        note = Note(TAG + text_key("checkpoint_id", name), body)
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), [note])
        if stored is None:
            return None
        settle(at, known, view, guard, stored[0], state, encoder_for(scope, view, 0))
        return True

    yield from store(scope, at, known, attempt, lambda view: False, None)


def tags(scope: Scope, key: ThreadKey) -> Op[dict[str, str]]:
    """The names of a thread's checkpoints."""
    thread = yield from thread_of(scope, key)
    if thread is None or (yield from is_over(scope.core, thread)):
        return {}
    named = yield from tagged(scope, thread)
    return {text_of(name[1:]): id_of(checkpoint) for name, (_, checkpoint) in named.items()}


def tagged(scope: Scope, thread: ThreadRow) -> Op[dict[bytes, Tagged]]:
    """What the names of a thread stand for, by the keys of their notes."""
    notes = yield from scope.core.dialect.notes(thread, TAG)
    return {note.key: tuple(scope.native.loads(note.body or b"")) for note in notes}


def trim(scope: Scope, left: Guard, checkpoints: Collection[Tagged]) -> Op[None]:
    """Drop the names of checkpoints that a write has taken out, unless somebody writes at this very moment."""
    thread = ThreadRow(left.thread.no if left.thread else None, left.uid, left.rev, left.extents)
    named = yield from tagged(scope, thread)
    gone = [Note(key, None) for key, checkpoint in named.items() if checkpoint in checkpoints]
    if gone:
        guard = Guard(left.key, thread, left.uid, scope.core.random(8), left.extents, holder=left.holder)
        yield from scope.core.dialect.put_writes(guard, Elements(), (), gone)

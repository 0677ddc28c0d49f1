"""People as the index of subjects knows them: several ids of one person, who there is, and whose older threads are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import ormsgpack

from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange, Elements, Guard, Note, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import listing
from stepvault.checkpointers._ops.context import Address, Scope, thread_of
from stepvault.checkpointers._ops.inbox import index
from stepvault.checkpointers._ops.inbox.entries import CLOSED, WAITING, Entry, entry_of, notes_of
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, check_living, hint, joined, of_thread, token
from stepvault.erasure import Assigned, SubjectInfo
from stepvault.errors import ConfigurationError, SubjectErasedError

LINKS = "links"
_PAGE = 100


def ids_of(scope: Scope, subject: str) -> Op[list[str]]:
    """Every id of the person with this one, the given one first."""
    docs = yield from scope.core.dialect.get_docs(space(scope, LINKS), [token(scope, subject)])
    others = scope.native.loads(docs[0].body) if docs else []
    return list(dict.fromkeys([subject, *others]))


def link(scope: Scope, subjects: Sequence[str]) -> Op[list[str]]:
    """Make ids those of one person, with whatever each was linked to before.

    Raises:
        SubjectErasedError: One of them was erased.
    """
    while True:
        docs, bodies = dict[bytes, Any](), dict[bytes, bytes]()
        ids: dict[str, None] = {}
        for subject in subjects:
            for name in (yield from ids_of(scope, subject)):
                ids.setdefault(name)
        for doc in (yield from scope.core.dialect.get_docs(space(scope, LINKS), [token(scope, name) for name in ids])):
            docs[doc.key], bodies[doc.key] = doc.version, doc.body
        yield from check_living(scope, {token(scope, name): name for name in ids})
        body, version = scope.native.dumps(sorted(ids)), scope.core.random(8)
        changes = [DocChange(mark, body, version, docs.get(mark)) for mark in (token(scope, name) for name in ids)]
        if (yield from scope.core.dialect.write_docs(space(scope, LINKS), changes, durable=True)):
            break
    try:  # whoever erases them writes the tombstone first and reads the links then
        yield from check_living(scope, {token(scope, name): name for name in ids})
    except SubjectErasedError:
        back = [change._replace(body=bodies.get(change.key), expected=change.version) for change in changes]
        yield from scope.core.dialect.write_docs(space(scope, LINKS), back, durable=True)
        raise
    return sorted(ids)


def unlink(scope: Scope, tokens: Iterable[bytes]) -> Op[None]:
    """Forget which ids belong together."""
    changes = [DocChange(mark, None, b"") for mark in tokens]
    yield from scope.core.dialect.write_docs(space(scope, LINKS), changes)


def page(scope: Scope, after: bytes, limit: int) -> Op[tuple[list[SubjectInfo], bytes | None]]:
    """Some of the people with threads, each with how many; and where the next page starts."""
    found: list[SubjectInfo] = []
    while len(found) < limit:
        docs = yield from scope.core.dialect.docs(space(scope, SUBJECTS), b"", after, 1)
        if not docs:
            return found, None
        mark, count = docs[0].key[:16], 0
        name = text_of(ormsgpack.unpackb(docs[0].body)[0])
        after = b""
        while True:
            docs = yield from scope.core.dialect.docs(space(scope, SUBJECTS), mark, after, 500)
            count += len(docs)
            if len(docs) < 500:
                break
            after = docs[-1].key
        found.append(SubjectInfo(name, count))
        after = mark + b"\xff" * 40
    return found, after


def rebuild(scope: Scope) -> Op[int]:
    """Write every hint of the index of subjects anew from the threads; how many there are."""
    count, after = 0, None
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        for row in rows:
            if row.extents and State.unpack(row.extents).subjects:
                count += yield from heal(scope, ThreadKey(scope.tenant, row.thread))
        if len(rows) < _PAGE:
            return count
        after = rows[-1].no


def heal(scope: Scope, key: ThreadKey) -> Op[int]:
    """Write the hints that lead to a thread anew; how many there are."""
    thread = yield from thread_of(scope, key)
    if thread is None:
        return 0
    changes = [hint(scope, name, key) for name in (yield from of_thread(scope, thread))]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, SUBJECTS), changes)
    return len(changes)


def assign(scope: Scope, field: str, *, dry_run: bool) -> Op[Assigned]:
    """Attribute threads that name nobody by what their metadata says, the newest checkpoint that says it first."""
    if not isinstance(field, str) or not field:
        raise ConfigurationError(f"Threads are attributed by a key of their metadata, a str, not {field!r}.")
    done = without = 0
    after = None
    while True:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        for row in rows:
            if row.extents and State.unpack(row.extents).subjects:
                continue
            key = ThreadKey(scope.tenant, row.thread)
            names = yield from _said(scope, text_of(row.thread), field)
            if not names:
                without += 1
            elif dry_run or (yield from _attribute_living(scope, key, names)):
                done += 1
        if len(rows) < _PAGE:
            return Assigned(done, without)
        after = rows[-1].no


def _attribute_living(scope: Scope, key: ThreadKey, names: tuple[str, ...]) -> Op[bool]:
    try:
        return (yield from attribute(scope, key, names))
    except SubjectErasedError as exc:
        raise SubjectErasedError(
            f"Thread {text_of(key.thread)!r} is of somebody who was erased: delete it or readmit them, then repeat."
        ) from exc


def _said(scope: Scope, thread_id: str, field: str) -> Op[tuple[str, ...]]:
    state = listing.start(scope, {"configurable": {"thread_id": thread_id}}, None, None, None)
    while state.query is not None:
        found, state = yield from listing.page(scope, state)
        for entry in found:
            value: Any = entry.metadata.get(field)
            values = value if isinstance(value, (list, tuple)) else [value]
            names = [str(one) for one in values if isinstance(one, (str, int)) and not isinstance(one, bool)]
            if any(names):
                return tuple(name for name in names if name)
    return ()


def attribute(scope: Scope, key: ThreadKey, names: tuple[str, ...]) -> Op[bool]:
    """Add people to a thread, as a write that names them does, and to the questions that are in it."""
    at = Address(key, b"", None, None, subjects=names)
    while True:
        thread = yield from thread_of(scope, key)
        if thread is None:
            return False
        state = State.unpack(thread.extents)
        after = yield from joined(scope, at, state)
        if after.state == state:
            return False
        asked = yield from _asked(scope, key, thread, names)
        guard = Guard(key, thread, thread.uid, scope.core.random(8), after.state.pack())
        stored = yield from scope.core.dialect.put_writes(guard, Elements(), (), [*after.notes, *asked])
        scope.core.knowledge.forget(key)
        if stored is not None:
            return True


def _asked(scope: Scope, key: ThreadKey, thread: ThreadRow, names: Sequence[str]) -> Op[list[Note]]:
    """The questions of a thread with these people too; announced, so that their lists have them."""
    named: list[tuple[str | None, Entry]] = []
    for prefix in (WAITING, CLOSED):
        for note in (yield from scope.core.dialect.notes(thread, prefix)):
            entry = entry_of(scope, note.body) if note.body else None
            if entry is not None and not set(names) <= set(entry.subjects):
                named.append((None, replace(entry, subjects=tuple(dict.fromkeys([*entry.subjects, *names])))))
    return notes_of(scope, (yield from index.announce(scope, key, thread.uid, thread.rev, named))) if named else []

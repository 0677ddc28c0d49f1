"""The states of an erasure, and what each does: tombstone, delete, tell, purge, verify, receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ormsgpack

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Call, Op
from stepvault._core.rows import Deleted, Elements, Guard, Note, ThreadRow
from stepvault._core.state import State
from stepvault.checkpointers._ops import people, reads
from stepvault.checkpointers._ops.context import Scope, thread_of
from stepvault.checkpointers._ops.erasing import leaving, planning, receipts, requests, stones
from stepvault.checkpointers._ops.erasing.anonymising import Fields, Person, anonymise
from stepvault.checkpointers._ops.erasing.items import Items, Theirs
from stepvault.checkpointers._ops.erasing.naming import unname
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.erasing.telling import tell
from stepvault.checkpointers._ops.fencing import shut
from stepvault.checkpointers._ops.inbox import decisions, keeping, queries
from stepvault.checkpointers._ops.inbox.index import of_subject
from stepvault.checkpointers._ops.remains import is_gone
from stepvault.checkpointers._ops.spaces import drop_docs, space
from stepvault.checkpointers._ops.subjects import PREFIX, SUBJECTS, is_possible, of_thread, token
from stepvault.erasure import STATES, ErasurePlan, PurgeStep, check_signing, commitment
from stepvault.errors import ConfigurationError, HoldError, PlanStaleError

_PAGE = 500
_THREADS = 1000  # that go together


@dataclass(frozen=True, slots=True)
class Eraser:
    """What an erasure works with beside the threads."""

    items: Items
    journal: Callable[[dict[str, Any]], None] | None
    issuer: str
    hooks: Mapping[str, Callable[[list[str]], Any]] = field(default_factory=dict)
    progress: Callable[[Request], None] = lambda _: None
    purged: Sequence[PurgeStep] | None = None  # what one purge for several people did
    fields: Fields = field(default_factory=Fields)  # declared ones, for threads that are anonymised
    vacuum: bool = False

    def purge(self, scope: Scope) -> Op[list[PurgeStep]]:
        """Have deleted data leave files."""
        return (yield from scope.core.dialect.purge(rewrite=self.vacuum))


def request(
    scope: Scope,
    eraser: Eraser,
    subject: str,
    shared: str,
    reason: str | None,
    planned: ErasurePlan | None,
    own: str = "erase",
) -> Op[Request]:
    """Take up an erasure, or the one of this person that is under way.

    Raises:
        HoldError: A hold stands against it.
        PlanStaleError: The data is not what was planned.
        MissingDependencyError: The receipt could not be signed at the end.
    """
    check_signing()
    if shared not in ("keep", "erase", "anonymise"):
        raise ConfigurationError(f'shared must be "keep", "erase" or "anonymise", not {shared!r}.')
    if own not in ("erase", "anonymise"):
        raise ConfigurationError(f'own must be "erase" or "anonymise", not {own!r}.')
    ids = yield from people.ids_of(scope, subject)
    marks = [token(scope, name) for name in ids]
    yield from _check_hold(scope, marks)
    if planned is not None and (yield from planning.plan(scope, subject, eraser.items)).hash != planned.hash:
        raise PlanStaleError
    now = yield from scope.core.dialect.now()
    made = Request(
        scope.core.random(16).hex(), "received", ids, marks, shared, reason, now, own=own,
        hooks=dict.fromkeys(eraser.hooks, False),
        fields=[[list(path), packed] for path, packed in eraser.fields.packed(scope).items()],
    )  # fmt: skip
    return (yield from requests.create(scope, made))


def covers(scope: Scope, subject: str, shared: str, own: str, done: Request) -> Op[bool]:
    """Whether a request did what is asked for: one that was under way may have fewer ids, or another choice."""
    ids = yield from people.ids_of(scope, subject)
    return (done.shared, done.own) == (shared, own) and {token(scope, name) for name in ids} <= set(done.tokens)


def _check_hold(scope: Scope, marks: Sequence[bytes]) -> Op[None]:
    held = yield from planning.hold_of(scope, marks)
    if held is not None:
        raise HoldError(f"A hold stops this erasure: {held}. Release it first.")


def advance(scope: Scope, eraser: Eraser, request_id: str, until: str = "receipted") -> Op[Request]:
    """Bring an erasure to a state, by default to its end, from wherever it is."""
    steps = {
        "received": _tombstone, "tombstoned": _delete, "deleted": _tell, "told": _purge, "purged": _verify,
        "verified": _receipt,
    }  # fmt: skip
    current = yield from requests.get(scope, request_id)
    eraser.progress(current)
    while current.state in steps and STATES.index(current.state) < STATES.index(until):
        current = yield from steps[current.state](scope, eraser, current)
        eraser.progress(current)
    return current


def _moved(scope: Scope, current: Request, state: str, **fields: Any) -> Op[Request]:
    """Move to the next state, unless another worker has."""

    def alter(present: Request) -> Request:
        return replace(present, state=state, **fields) if present.state == current.state else present

    return (yield from requests.change(scope, current.id, alter))


def _tombstone(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    """Close the door. A hold set at this very moment wins: it is looked for again once the tombstone stands.

    Links are looked for again too: once it stands, nobody adds another id to these.
    """
    now = yield from scope.core.dialect.now()
    while True:
        try:
            yield from _check_hold(scope, current.tokens)
            yield from stones.close(scope, current.tokens, current.id, now)
            yield from _check_hold(scope, current.tokens)
        except HoldError:
            yield from stones.take_back(scope, current.tokens, current.id)
            raise
        ids = yield from _linked(scope, current)
        if not ids:
            break
        current = yield from requests.widen(scope, current, {token(scope, name): name for name in ids})
        if current.state != "received":
            return current
    yield from eraser.items.refuse(current.tokens)
    if eraser.journal is not None:
        for mark in current.tokens:
            line = {
                "token": mark.hex(), "tenant": scope.tenant.hex(), "request": current.id, "at": now,
                "shared": current.shared, "own": current.own, "fields": [".".join(path) for path in current.declared],
            }  # fmt: skip
            yield Call(lambda line=line: eraser.journal(line))  # type: ignore[misc]
    return (yield from _moved(scope, current, "tombstoned", tombstoned=now))


def _linked(scope: Scope, current: Request) -> Op[list[str]]:
    """Ids that were linked to those of a request since it was made."""
    found: dict[str, None] = {}
    for name in current.subjects:
        found.update(dict.fromkeys((yield from people.ids_of(scope, name))))
    return [name for name in found if name not in current.subjects]


def _delete(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    yield from leaving.unwatch(
        scope, lambda row: any(_choice(current, mark, row) == "erase" for mark in current.tokens)
    )
    for mark in current.tokens:
        while True:
            hints = yield from _hints(scope, mark)
            if not hints:
                break
            counts, missed = yield from _delete_page(scope, eraser, current, mark, [*hints.values()])
            yield from _count(scope, eraser, current, counts, missed)
            yield from drop_docs(scope, SUBJECTS, [*hints])
        renamed = yield from decisions.rename_deciders(scope, mark)
        yield from _count(scope, eraser, current, {"decisions": renamed})
    for place in current.lists or [of_subject(scope, name) for name in current.subjects]:
        yield from queries.tidy(scope, place)
    items = yield from leaving.settle(scope, eraser.items, current.id)
    items += yield from eraser.items.delete(theirs(scope, current), current.tokens)
    yield from reads.drop_pins(scope, lambda namespace: eraser.items.holds(namespace, theirs(scope, current)))
    yield from _count(scope, eraser, current, {"items": items})
    if scope.core.keys is not None:
        for mark in current.tokens:
            yield from scope.core.keys.shred_whole(mark)
    return (yield from _moved(scope, current, "deleted", leaving=[]))


def theirs(scope: Scope, current: Request) -> Theirs:
    """Whether an id is one of the person's, told by its token alone."""
    marks = set(current.tokens)
    return lambda name: is_possible(name) and token(scope, name) in marks


def _hints(scope: Scope, mark: bytes) -> Op[dict[bytes, ThreadKey]]:
    docs = yield from scope.core.dialect.docs(space(scope, SUBJECTS), mark, b"", _THREADS, oldest=True)
    return {doc.key: ThreadKey(scope.tenant, ormsgpack.unpackb(doc.body)[1]) for doc in docs}


def _count(
    scope: Scope, eraser: Eraser, current: Request, more: Mapping[str, int], missed: Sequence[ThreadKey] = ()
) -> Op[None]:
    """Add to the counts; of threads that were missed something may be left."""

    def alter(present: Request) -> Request:
        counts = dict(present.counts)
        for name, count in more.items():
            if count:
                counts[name] = counts.get(name, 0) + count
        return replace(leaving.missed(present, missed), counts=counts)

    if missed or any(more.values()):
        eraser.progress((yield from requests.change(scope, current.id, alter, durable=False)))


def _delete_page(
    scope: Scope, eraser: Eraser, current: Request, mark: bytes, keys: Sequence[ThreadKey]
) -> Op[tuple[Counter[str], list[ThreadKey]]]:
    """Remove together the threads that go, then see to each of the others; the hints that led here stay.

    Returns:
        What was done, and the threads that were not there although something led to them.
    """
    if current.own == "erase":
        beside = None if current.shared == "erase" else current.tokens
        found, items = yield from keeping.delete_of(scope, keys, mark, beside)
    else:
        looked = yield from scope.core.dialect.notes_at([(key, b"") for key in keys])
        found, items = [thread for thread, _ in looked], 0
    gone, absent, others = list[ThreadKey](), list[ThreadKey](), list[tuple[ThreadKey, ThreadRow | None]]()
    checkpoints = 0
    for key, one in zip(keys, found, strict=True):
        if isinstance(one, Deleted):
            gone.append(key)
            checkpoints += one.checkpoints
        else:
            others.append((key, one))
            if one is None:
                absent.append(key)
    left = yield from keeping.clear(scope, absent, led_by=mark)
    items += yield from eraser.items.delete_scopes([*gone, *left])
    counts = Counter(threads=len(gone) + len(left), checkpoints=checkpoints, items=items)
    missed: list[ThreadKey] = []
    for key, row in others:
        done = yield from _delete_thread(scope, eraser, current, mark, key, row)
        counts.update(done or {})
        if done is None and key not in left:
            missed.append(key)
    return counts, missed


def _choice(current: Request, mark: bytes, thread: ThreadRow) -> str | None:
    """What becomes of a thread; None if it is not this person's."""
    subjects = State.subjects_of(thread.extents)
    if mark not in subjects:
        return None
    return current.own if set(subjects) <= set(current.tokens) else current.shared


def _delete_thread(
    scope: Scope, eraser: Eraser, current: Request, mark: bytes, key: ThreadKey, row: ThreadRow | None
) -> Op[dict[str, int] | None]:
    """Remove a thread and its memory, or the person from one that stays; close one that is about to be made.

    `row` is the thread as it was read together with others; the hint that led here is dropped with theirs.

    Returns:
        What was done; None if there is no such thread, any more or yet.
    """
    while True:
        thread = row or (yield from thread_of(scope, key))
        row = None
        if thread is None:
            if (yield from shut(scope, key, None)):
                return None
            continue
        choice = _choice(current, mark, thread)
        if choice is None:
            empty = is_gone(thread)  # closed by a worker that was killed before it said so
            if not empty:
                yield from leaving.outgrow(scope, key, thread, current.tombstoned)
            if (yield from shut(scope, key, thread)):
                return None if empty else {}
            continue
        if choice == "keep":
            yield from decisions.drop_subjects(scope, key, current.tokens)
            if (yield from unname(scope, key, thread, (yield from _ids_in(scope, current, thread)))):
                continue
            if (yield from _unlink(scope, current, key, thread)):
                yield from leaving.watch(scope, key, thread)
                return {"shared": 1}
            continue
        if choice == "anonymise":
            person = Person((yield from _ids_in(scope, current, thread)), current.tokens)
            once = anonymise(scope, key, thread, person, {**current.declared, **eraser.fields.packed(scope)})
            done, items = yield from leaving.with_memory(scope, eraser.items, current.id, key, thread, once)
            if done:
                yield from leaving.watch(scope, key, thread)
                return {"anonymised": 1, "items": items}
            continue
        removed = yield from keeping.delete_all(scope, [(key, thread)], led_by=mark)
        if removed.checkpoints != [None]:
            items = removed.items + (yield from eraser.items.delete_scopes([key]))
            return {"threads": 1, "checkpoints": removed.checkpoints[0] or 0, "items": items}


def _ids_in(scope: Scope, current: Request, thread: ThreadRow) -> Op[list[str]]:
    """The person's ids; after a restore, nothing but their threads tells them."""
    known = yield from of_thread(scope, thread)
    return sorted({*current.subjects, *(name for name in known if token(scope, name) in current.tokens)})


def _unlink(scope: Scope, current: Request, key: ThreadKey, thread: ThreadRow) -> Op[bool]:
    state = State.unpack(thread.extents)
    left = replace(state, subjects=tuple(mark for mark in state.subjects if mark not in current.tokens))
    notes = [Note(PREFIX + mark, None) for mark in state.subjects if mark in current.tokens]
    guard = Guard(key, thread, thread.uid, scope.core.random(8), left.pack())
    done = yield from scope.core.dialect.put_writes(guard, Elements(), (), notes)
    scope.core.knowledge.forget(key)
    return done is not None


def _tell(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    """Tell outside systems, then forget the names: nobody needs them any more, and the purge comes next."""
    current = yield from tell(scope, eraser.hooks, current)
    names, after = current.subjects, {}
    if names:  # a second time, after something came back, they are forgotten already
        salts = [scope.core.random(16) for _ in names]
        made = [commitment(salt, name) for salt, name in zip(salts, names, strict=True)]
        lists = [of_subject(scope, name) for name in names]
        after = {
            "subjects": list[str](), "salts": [salt.hex() for salt in salts], "commitments": sorted(made),
            "lists": lists,
        }  # fmt: skip
    yield from people.unlink(scope, current.tokens)
    return (yield from _moved(scope, current, "told", **after))


def _purge(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    scope.core.knowledge.clear()
    # One purge for several people does not do for what came back after it, which was deleted after it.
    together = eraser.purged if not current.purge else None
    done = together if together is not None else (yield from eraser.purge(scope))
    steps = [[step.name, step.done, step.detail, step.retryable] for step in done]
    return (yield from _moved(scope, current, "purged", purge=steps))


def purge_again(scope: Scope, eraser: Eraser, request_id: str) -> Op[Request]:
    """Try open purge steps of a finished erasure once more; a follow-up receipt says what is done now."""
    current = yield from requests.get(scope, request_id)
    before = {step.name: step.done for step in current.steps}
    steps = yield from eraser.purge(scope)
    if not any(step.done and not before.get(step.name) for step in steps):
        return current
    return (yield from receipts.follow_up(scope, eraser.issuer, current, steps))


def _verify(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    """Look through everything that is left; whatever came back meanwhile is deleted too."""
    marks, found, nobody, after = set(current.tokens), False, 0, None
    for mark in current.tokens:
        found = found or bool((yield from _hints(scope, mark)))
        found = found or bool((yield from decisions.decided_by(scope, mark, b""))[1])
    while not found:
        rows = yield from scope.core.dialect.threads(scope.tenant, _PAGE, after)
        for row in rows:
            state = State.unpack(row.extents) if row.extents else State()
            nobody += not state.subjects and not state.fenced
            if not marks.isdisjoint(state.subjects):
                found = True
                yield from people.heal(scope, ThreadKey(scope.tenant, row.thread))
        if len(rows) < _PAGE:
            break
        after = rows[-1].no
    for place in current.lists:
        yield from queries.tidy(scope, place)
    found = found or bool((yield from eraser.items.count(theirs(scope, current))))
    if found or (yield from _shred_the_rest(scope, current)):
        return (yield from _moved(scope, current, "tombstoned"))
    now = yield from scope.core.dialect.now()
    unattributed = {"threads": nobody, "namespaces": (yield from eraser.items.unattributed())}
    return (yield from _moved(scope, current, "verified", verified=now, unattributed=unattributed))


def _shred_the_rest(scope: Scope, current: Request) -> Op[bool]:
    """Destroy keys of what is not in the database any more, but may be in its backups; whether there were any."""
    count = 0
    if scope.core.keys is not None:
        for mark in current.tokens:
            count += yield from scope.core.keys.shred_linked(scope.tenant, mark, shared=current.shared == "erase")
    return count > 0


def _receipt(scope: Scope, eraser: Eraser, current: Request) -> Op[Request]:
    return (yield from receipts.first(scope, eraser.issuer, current))

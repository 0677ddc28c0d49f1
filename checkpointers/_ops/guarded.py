"""The write protocol: encode against what is known, commit only if that still holds, else learn and repeat.

Every write compares the thread's revision under its row lock and leaves a new one. A refused write changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stepvault._core.chunks import PACK_BYTES, ChunkRow, closed_pages, pack_rows
from stepvault._core.codec import unpack
from stepvault._core.ids import new_uid, text_of
from stepvault._core.knowledge import Known, View
from stepvault._core.manifest import PAGE, Extents, first_of, page_of
from stepvault._core.plan import Acquire, Atomic, Op
from stepvault._core.record import decode_record
from stepvault._core.rows import Elements, Guard, ThreadRow
from stepvault._core.state import State
from stepvault._core.values import Encoder
from stepvault.checkpointers._ops import permits
from stepvault.checkpointers._ops.context import Address, Scope
from stepvault.checkpointers._ops.expiry import is_expired
from stepvault.checkpointers._ops.holding import turn
from stepvault.checkpointers._ops.inbox import keeping
from stepvault.checkpointers._ops.load import read
from stepvault.checkpointers._ops.reads import forget_before
from stepvault.checkpointers._ops.subjects import announce
from stepvault.errors import ConflictError, StorageUnavailableError, ThreadGoneError

T = TypeVar("T")

_ATTEMPTS = 64  # only a backend without locks ever needs more than three
_LOCK_AFTER = 2
_HOLD_AFTER = 4  # where there are no locks
_REPEATS = 2  # after a lost connection
_NO_ELEMENTS = Elements()


def store(
    scope: Scope,
    at: Address,
    known: Known,
    attempt: Callable[[View | None], Op[T | None]],
    needs: Callable[[View], bool],
    base: bytes | None,
    *,
    check: bool = True,
) -> Op[T]:
    """Do a write, however often another writer comes first.

    Args:
        scope: The saver's view.
        at: Where to write.
        known: What is known of its thread.
        attempt: Encodes the write against a view (None: the thread does not exist) and stores it; None if refused.
        needs: Whether the write must load `base` although a view is known.
        base: The checkpoint whose elements and forms the write most likely shares.
        check: Whether leases and moved heads stop it.

    Raises:
        FencedError, LeaseHeldError, HeadMovedError: See `permits.may_write`.
        ThreadGoneError: The run loaded a generation of this thread that is gone.
        ConflictError: Other writers were always first.
    """
    entered = known.gate.try_acquire() or (yield Acquire(known.gate))
    known.busy += 1
    repeats = 0
    expired: list[int] = []
    try:
        for tries in range(_ATTEMPTS):
            holding = (yield from turn(scope, at.key)) if tries >= _HOLD_AFTER else None
            once = _once(
                scope, at, known, attempt, needs, base, check, expired, holding.hold.holder if holding else b""
            )
            locked = tries >= _LOCK_AFTER and scope.core.dialect.locks
            if locked:
                yield from announce(scope, at)
            try:
                if holding is not None:
                    result = yield from holding.during(once)
                    yield from holding.end()
                    known.view = None  # which that has made old
                else:
                    result = yield from (_locked(scope, at, once) if locked else once)
            except StorageUnavailableError as exc:
                repeats += 1
                if not exc.repeat or repeats > _REPEATS:
                    raise
                result = None
            while expired:
                yield from forget_before(scope, at.key, expired.pop())
            if result is not None:
                return result
            known.view = None
        raise ConflictError(f"Thread {text_of(at.key.thread)!r} is written by others without pause; repeat later.")
    except BaseException:
        known.view = None  # what was noted may not have been committed
        raise
    finally:
        known.busy -= 1
        if entered:
            known.gate.release()


def _locked(scope: Scope, at: Address, once: Op[T | None]) -> Op[T | None]:
    def inside() -> Op[T | None]:
        yield from scope.core.dialect.lock(at.key)
        return (yield from once)

    return (yield Atomic(inside(), "write"))  # type: ignore[no-any-return]


def _once(
    scope: Scope,
    at: Address,
    known: Known,
    attempt: Callable[[View | None], Op[T | None]],
    needs: Callable[[View], bool],
    base: bytes | None,
    check: bool,
    expired: list[int],
    holder: bytes,
) -> Op[T | None]:
    view = known.view
    expected = at.run.loaded.get(at.key) if at.run else None
    doubtful = view is not None and check and permits.is_doubtful(at, view)
    if view is None or doubtful or needs(view) or (expected and view.generation != expected):
        loaded, _, view = yield from read(scope, known, at.key, at.ns, base, writer=True)
        if view is not None:
            for row in loaded.checkpoints:
                view.keep(row.ns, row.id, decode_record(unpack(row.body)))
    if expected and (view is None or view.generation != expected):
        scope.tell("conflict", "gone", at.key)
        raise ThreadGoneError(
            f"Thread {text_of(at.key.thread)!r} was deleted, erased, anonymised or expired while this run was at work; "
            "nothing was stored. Start a new run."
        )
    mortal = view is not None and view.state.expires_at is not None and expected != view.generation
    if view is not None and mortal and (yield from is_expired(scope.core, view.state)):
        if (yield from keeping.delete(scope, at.key, view.rev)) is None:
            return None
        expired.append(view.state.expires_at or 0)
        known.view = view = None
    if view is None:
        yield from keeping.clear(scope, [at.key])  # of a former thread of this id
    if check and permits.is_restricted(at, view):
        yield from permits.may_write(scope, at, view)
    if view is not None:
        view.holder = holder
    return (yield from attempt(view))


def encoder_for(scope: Scope, view: View | None, inline: int) -> Encoder:
    """An encoder against a view."""
    known = view.known if view else {}
    extents = view.state.extents.copy() if view else Extents()
    return Encoder(scope.port, scope.core.knowledge.seed, known, extents, inline)


def state_of(view: View | None) -> State:
    """The state a write starts from."""
    return view.state if view else State()


def guard_for(scope: Scope, at: Address, view: View | None, state: State) -> Guard:
    """What the write relies on; a fresh revision and, for a new thread, a fresh generation."""
    rev, packed = scope.core.random(8), state.pack()
    if view is None:
        return Guard(at.key, None, new_uid(), rev, packed)
    return Guard(at.key, ThreadRow(view.no, view.uid, view.rev, b""), view.uid, rev, packed, holder=view.holder)


def elements_for(scope: Scope, view: View | None, encoder: Encoder) -> Elements:
    """Rows of the new elements; a page that they close is packed into one row with its older elements."""
    if not encoder.elements:
        return _NO_ELEMENTS
    rows = pack_rows(encoder.elements, scope.core.codec)
    pages = closed_pages(rows)
    return _repacked(scope, view, encoder, rows, pages) if pages else Elements(rows)


def _repacked(scope: Scope, view: View | None, encoder: Encoder, rows: list[ChunkRow], pages: list[int]) -> Elements:
    stored = {**(view.elements if view else {}), **dict(encoder.elements)}
    fresh = {number for number, _ in encoder.elements}
    whole: list[ChunkRow] = []
    closed: list[int] = []
    for page in pages:
        first = first_of(page)
        if first not in fresh and not (view and page in view.pages):
            continue  # older elements of this page are not at hand
        members = [(number, stored[number]) for number in range(first, first + PAGE) if number in stored]
        if sum(len(element) for _, element in members) <= PACK_BYTES:
            whole += pack_rows(members, scope.core.codec, PACK_BYTES)
            closed.append(page)
    taken = set(closed)
    opened = [page for page in closed if first_of(page) in fresh]
    return Elements([row for row in rows if page_of(row.no) not in taken] + whole, closed, opened)


def settle(
    at: Address, known: Known, view: View | None, guard: Guard, no: object, state: State, encoder: Encoder
) -> View:
    """Note a stored write: the view moves on to the revision and the state it left."""
    if view is None:
        view = View(no, guard.uid, guard.rev, state)
    view.rev, view.state = guard.rev, state
    if encoder.elements:
        view.add(encoder.new, encoder.elements)
    known.view = view
    if at.run is not None:
        at.run.note(at.key, view.generation)
    return view

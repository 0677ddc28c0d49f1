"""Operations as data: what an operation asks for, and the two loops that answer it.

An operation (`Op[T]`) is a generator. It yields requests and receives their results; it does no I/O itself.
`run` and `arun` are the only two places where an operation meets a driver.

Nothing changes a request. They are not frozen because each operation makes many, and a frozen one costs six times
as much to make; the same goes for guards.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from typing_extensions import LiteralString

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Mode: TypeAlias = Literal["read", "write"]


@dataclass(slots=True)
class Stmt:
    """One SQL statement and its arguments.

    `guard=True`: if it returns no row, the whole batch is rolled back, what follows is not run, and the reply ends
    with this statement's empty result. On SQLite, a statement without `RETURNING` replies one empty row if it changed
    any.
    `many=True`: `args` is a sequence of argument rows, run one after the other.
    """

    sql: LiteralString
    args: Sequence[Any] | Mapping[str, Any] = ()
    guard: bool = False
    many: bool = False


@dataclass(slots=True)
class Command:
    """One Redis command (`("HGET", key, field)`)."""

    args: tuple[Any, ...]


@dataclass(slots=True)
class Script:
    """One call of a named Lua script on one key, or on keys of one slot.

    `each=True`: on any keys, with one argument for each; the reply has one entry for each. In a cluster every key gets
    a call of its own.
    """

    name: str
    keys: tuple[bytes, ...]
    args: tuple[Any, ...] = ()
    each: bool = False


@dataclass(slots=True)
class Batch:
    """One round trip to one database; atomic if it has more than one statement.

    The reply is one list of rows per statement (SQL) or one raw reply per command (Redis).
    `retry=True` says that repeating the batch after a lost connection is harmless. `durable=True` commits past a
    power loss, whatever the connection's setting.
    """

    statements: Sequence[Stmt | Command | Script]
    retry: bool = False
    durable: bool = False
    outside: bool = False  # one statement that no transaction can hold (VACUUM, a WAL checkpoint)


@dataclass(slots=True)
class Atomic:
    """Run a sub-operation on one connection, in one transaction (`read`: one snapshot)."""

    op: Op[Any]
    mode: Mode = "write"


@dataclass(slots=True)
class Call:
    """Other I/O: an embedder, a key service, a hook. The async half falls back to the sync one in a thread."""

    sync: Callable[[], Any]
    asynchronous: Callable[[], Awaitable[Any]] | None = None


class Gate(Protocol):
    """A lock that threads and tasks may wait for alike; the reply says whether it is held."""

    def try_acquire(self) -> bool: ...
    def acquire(self) -> bool: ...
    def aacquire(self) -> Awaitable[bool]: ...
    def release(self) -> None: ...


@dataclass(slots=True)
class Acquire:
    """Wait for a gate; whoever acquired it releases it in a `finally`."""

    gate: Gate


Request: TypeAlias = Batch | Atomic | Call | Acquire
Op: TypeAlias = Generator[Request, Any, T]


class Driver(Protocol):
    """The sync side of one database."""

    def execute(self, batch: Batch) -> list[Any]: ...
    def session(self, mode: Mode) -> AbstractContextManager[Driver]: ...


class AsyncDriver(Protocol):
    """The async side of one database.

    A driver with a worker thread may run a whole op there: then it has `run_op`.
    """

    async def execute(self, batch: Batch) -> list[Any]: ...
    def session(self, mode: Mode) -> AbstractAsyncContextManager[AsyncDriver]: ...


def run(op: Op[T], driver: Driver) -> T:
    """Drive `op` to its result; a failed request is raised inside `op`."""
    try:
        request = next(op)
        while True:
            try:
                reply = answer(request, driver)
            except BaseException as exc:
                request = op.throw(exc)
            else:
                request = op.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def answer(request: Request, driver: Driver) -> Any:
    """What a driver has to say to a request."""
    if type(request) is Batch:
        return driver.execute(request)
    if type(request) is Atomic:
        with driver.session(request.mode) as session:
            return run(request.op, session)
    if type(request) is Acquire:
        return request.gate.acquire()
    assert isinstance(request, Call)
    return request.sync()


async def arun(op: Op[T], driver: AsyncDriver) -> T:
    """Async version of `run`."""
    try:
        request = next(op)
        while True:
            try:
                reply = await _aanswer(request, driver)
            except BaseException as exc:
                request = op.throw(exc)
            else:
                request = op.send(reply)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def _aanswer(request: Request, driver: AsyncDriver) -> Any:
    if type(request) is Batch:
        return await driver.execute(request)
    if type(request) is Atomic:
        async with driver.session(request.mode) as session:
            return await arun(request.op, session)
    if type(request) is Acquire:
        return await request.gate.aacquire()
    assert isinstance(request, Call)
    if request.asynchronous is not None:
        return await request.asynchronous()
    return request.sync()

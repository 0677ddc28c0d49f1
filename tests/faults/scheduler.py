"""Every order in which the batches of a few operations can reach the database, with a crash at each point.

An operation is a generator of requests, and each request is one transaction. So to run several operations at once
is to choose, again and again, whose request is served next; `schedules` tries every choice. A crash is an operation
that is never served again, in a process that is gone.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, permutations
from typing import Any

from stepvault._core.plan import Acquire
from stepvault.errors import StepvaultError

Step = Callable[[Any], Any]  # calls one method of a saver


class Capturing:
    """A driver that keeps an operation instead of running it."""

    op: Any = None

    def run(self, op: Any) -> Any:
        self.op = op


def captured(saver: Any, step: Step) -> Any:
    """The operation behind a call."""
    driver, saver._driver = saver._driver, Capturing()
    try:
        step(saver)
        return saver._driver.op
    finally:
        saver._driver = driver


@dataclass
class Running:
    """One operation under way: the request it waits for, then what came of it."""

    op: Any
    driver: Any
    served: int = 0
    request: Any = None
    outcome: Any = None
    ended: bool = False
    crashed: bool = False
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._advance(lambda: next(self.op))

    @property
    def runnable(self) -> bool:
        waits = isinstance(self.request, Acquire) and self.request.gate.busy  # type: ignore[attr-defined]
        return not (self.ended or self.crashed or waits)

    def serve(self) -> None:
        """Answer one request."""
        self.served += 1
        self.log.append(type(self.request).__name__)
        try:
            reply = self._reply()
        except Exception as exc:
            failure = exc
            self._advance(lambda: self.op.throw(failure))
        else:
            self._advance(lambda: self.op.send(reply))

    def _reply(self) -> Any:
        if isinstance(self.request, Acquire):
            return self.request.gate.acquire()
        return self.driver.run(_alone(self.request))

    def crash(self) -> None:
        """The process of this operation is killed: nothing of it runs any more."""
        self.crashed = True

    def _advance(self, step: Callable[[], Any]) -> None:
        try:
            self.request = step()
        except StopIteration as stop:
            self.ended, self.outcome = True, ("returned", stop.value)
        except StepvaultError as exc:
            self.ended, self.outcome = True, ("raised", type(exc).__name__)


def _alone(request: Any) -> Any:
    """An operation that makes one request."""
    return (yield request)


@dataclass(frozen=True)
class Ending:
    """What is left: the outcome of each operation (None: it was killed) and all that is stored."""

    outcomes: tuple[Any, ...]
    state: Any


class Deadlock(AssertionError):
    """Operations wait for each other."""


def schedules(
    start: Callable[[], Sequence[Running]], *, crash: int | None = None, limit: int | None = None
) -> Iterator[list[Running]]:
    """Run the operations in every order of their requests; operation `crash` is also killed at every point.

    Past `limit` orders, as many again are drawn by lot; the lot is the same each time.
    """
    prefix: list[int] = []
    for _ in count() if limit is None else range(limit):
        running = list(start())
        taken, open_choices = _follow(running, crash, lambda at, _: prefix[at] if at < len(prefix) else 0)
        yield running
        while open_choices and taken[-1] == open_choices[-1] - 1:
            taken.pop()
            open_choices.pop()
        if not open_choices:
            return
        prefix[:] = [*taken[:-1], taken[-1] + 1]
    lot = random.Random(0)
    for _ in range(limit or 0):
        running = list(start())
        _follow(running, crash, lambda _, moves: lot.randrange(moves))
        yield running


def _follow(
    running: list[Running], crash: int | None, choose: Callable[[int, int], int]
) -> tuple[list[int], list[int]]:
    """Serve requests as chosen until nothing is left; returns what was taken, and of how many."""
    taken: list[int] = []
    counts: list[int] = []
    while any(not one.ended and not one.crashed for one in running):
        moves: list[Callable[[], None]] = [one.serve for one in running if one.runnable]
        if not moves:
            raise Deadlock([one.log for one in running])
        if crash is not None and not running[crash].ended and not running[crash].crashed:
            moves.append(running[crash].crash)
        taken.append(choose(len(taken), len(moves)))
        counts.append(len(moves))
        moves[taken[-1]]()
    return taken, counts


def serial(
    start: Callable[[], Sequence[Running]], state: Callable[[], Any], *, crash: int | None = None
) -> list[Ending]:
    """What can be left when the operations run one after the other; `crash` may have been killed before or after."""
    endings = []
    for order in permutations(range(len(start()))):
        for applied in (True,) if crash is None else (True, False):
            running = list(start())
            for number in order:
                if number == crash and not applied:
                    running[number].crash()
                while running[number].runnable:
                    running[number].serve()
            outcomes = [None if number == crash else one.outcome for number, one in enumerate(running)]
            ending = Ending(tuple(outcomes), state())
            if ending not in endings:
                endings.append(ending)
    return endings

"""Driving several operations on one thread: what they want to write at the same time is committed together.

Each batch stays atomic by itself, and an operation goes on only after its batch is committed: nothing can be told
apart from one commit after the other, except that there are fewer of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from stepvault._core import plan
from stepvault._core.plan import Acquire, Batch, Driver, Op, Request


class JoiningDriver(Driver, Protocol):
    """A driver that commits several batches in one transaction."""

    def joins(self, batch: Batch) -> bool:
        """Whether a batch may share a transaction with others; one that only reads need not."""
        ...

    def execute_together(self, batches: Sequence[Batch]) -> list[list[Any]]:
        """Run batches in one transaction, each of them whole or not at all; if that fails, none of them."""
        ...


class Running:
    """One operation on its way."""

    __slots__ = ("driver", "error", "op", "reply", "request")

    def __init__(self, op: Op[Any], driver: JoiningDriver) -> None:
        self.op = op
        self.driver = driver
        self.request: Request | None = None  # what it waits for
        self.reply: Any = None
        self.error: BaseException | None = None

    def end(self, result: Any, failure: BaseException | None) -> None:
        """Take what became of it."""
        raise NotImplementedError

    def tell(self) -> None:
        """Tell who asked for it; it has ended."""
        raise NotImplementedError

    def step(self) -> Request | None:
        """Go on with the reply, or the error, to the next request; None at the end."""
        error, self.error = self.error, None
        try:
            return self.op.send(self.reply) if error is None else self.op.throw(error)
        except StopIteration as stop:
            self.end(stop.value, None)
        except BaseException as exc:
            self.end(None, exc)
        return None

    def execute(self, request: Request) -> None:
        """Have a request answered."""
        try:
            self.reply = plan.answer(request, self.driver)
        except BaseException as exc:
            self.error = exc


def run_together(operations: Sequence[Running]) -> None:
    """Drive operations to their ends."""
    ready = deque(operations)
    writing: list[Running] = []
    gated: deque[Running] = deque()
    ended: list[Running] = []
    while True:
        while ready:
            _advance(ready.popleft(), writing, gated, ended)
        for one in ended:  # now that all are done: who is told takes the interpreter from us
            one.tell()
        ended.clear()
        if writing:
            _commit(writing)
            ready.extend(writing)
            writing.clear()
        elif gated:  # whoever holds the gate is not among us
            first = gated.popleft()
            assert first.request is not None
            first.execute(first.request)
            first.request = None
            ready.append(first)
        else:
            return
        ready.extend(gated)
        gated.clear()


def _advance(one: Running, writing: list[Running], gated: deque[Running], ended: list[Running]) -> None:
    """Go on until it is at its end, wants to write, or stands before a gate that somebody holds."""
    while True:
        request, one.request = one.request or one.step(), None
        if request is None:
            ended.append(one)
            return
        if type(request) is Batch and one.driver.joins(request):
            one.request = request
            writing.append(one)
            return
        if type(request) is not Acquire:
            one.execute(request)
        elif request.gate.try_acquire():
            one.reply = True
        else:
            one.request = request
            gated.append(one)
            return


def _commit(writing: Sequence[Running]) -> None:
    batches = [one.request for one in writing if type(one.request) is Batch]
    if len(batches) > 1:
        try:
            replies = writing[0].driver.execute_together(batches)
        except Exception:  # each by itself meets its own error, or none
            replies = None
    else:
        replies = None
    for number, (one, batch) in enumerate(zip(writing, batches, strict=True)):
        one.request = None
        if replies is None:
            one.execute(batch)
        else:
            one.reply = replies[number]

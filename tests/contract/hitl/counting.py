"""Counting the round trips of a saver, and stopping a process between two of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any

from stepvault._core import plan


@contextlib.contextmanager
def batches(saver: Any) -> Iterator[list[Any]]:
    """Every batch that any operation sends meanwhile."""
    seen: list[Any] = []
    answer, aanswer = plan.answer, plan._aanswer

    def counting(request: Any, driver: Any) -> Any:
        if isinstance(request, plan.Batch):
            seen.append(request)
        return answer(request, driver)

    async def acounting(request: Any, driver: Any) -> Any:
        if isinstance(request, plan.Batch):
            seen.append(request)
        return await aanswer(request, driver)

    plan.answer, plan._aanswer = counting, acounting
    try:
        yield seen
    finally:
        plan.answer, plan._aanswer = answer, aanswer


def die_after(count: int) -> None:
    """Kill this process with SIGKILL once it has sent so many batches."""
    answer = plan.answer
    left = count

    def counting(request: Any, driver: Any) -> Any:
        nonlocal left
        if isinstance(request, plan.Batch):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
        return answer(request, driver)

    plan.answer = counting

"""Telling outside systems that a person is gone."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from stepvault._core.plan import Call, Op
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.requests import Request

_TRIES = 3
Hook: TypeAlias = "Callable[[list[str]], Any]"

logger = logging.getLogger("stepvault")


def tell(scope: Scope, hooks: Mapping[str, Hook], current: Request) -> Op[Request]:
    """Tell outside systems, each a few times at most; what a killed worker has told may be told again.

    After a restore nobody knows the names, and these systems were told before.
    """
    for name, hook in hooks.items() if current.subjects else ():
        if current.hooks.get(name):
            continue
        done = False
        for _ in range(_TRIES):
            work = _quietly(hook, list(current.subjects))
            done = yield Call(work, scope.core.offload(work))
            if done:
                break
        outcome = {name: done}

        def note(present: Request, outcome: dict[str, bool] = outcome) -> Request:
            return replace(present, hooks={**present.hooks, **outcome})

        current = yield from requests.change(scope, current.id, note)
    return current


def _quietly(hook: Hook, ids: list[str]) -> Callable[[], bool]:
    def work() -> bool:
        try:
            found = hook(ids)
        except Exception as exc:  # whatever it is, it is in the receipt; what it says may name the person
            logger.warning("An erasure hook failed: %s", type(exc).__name__)
            return False
        if inspect.isawaitable(found):  # of a plain function, perhaps a lambda, that calls an async client
            if inspect.iscoroutine(found):
                found.close()
            logger.warning("An erasure hook told nobody: it returned something to be awaited.")
            return False
        return True

    return work

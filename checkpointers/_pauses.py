"""The callback handler that hears of pauses, as LangGraph 1.2 and later tell them (`langgraph.callbacks`).

A run that stops without a question stopped at a breakpoint, its own or one of a subgraph. The handler is told after
everything of the run is stored. An event names the checkpoint; the run of this process that stands there, the thread.
"""

from __future__ import annotations

import asyncio
import logging
from functools import cache
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler

from stepvault._core.ids import id_key
from stepvault._core.plan import Op
from stepvault.checkpointers._ops.inbox import pausing
from stepvault.errors import ConfigurationError, StepvaultError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver

logger = logging.getLogger("stepvault")


def pause_handler(saver: BaseSaver) -> BaseCallbackHandler:
    """A handler that lists the pauses of a saver's threads in its inbox.

    Raises:
        ConfigurationError: This LangGraph does not tell handlers of pauses.
    """
    kind = _kind()
    if kind is None:
        raise ConfigurationError("This LangGraph does not tell of pauses; upgrade it, or ask get_state(config).next.")
    handler: BaseCallbackHandler = kind(saver)
    return handler


def pause_handlers(saver: BaseSaver) -> list[BaseCallbackHandler]:
    """That handler, or nothing."""
    return [pause_handler(saver)] if _kind() is not None else []


@cache
def _kind() -> Any:
    """The class of handlers, made when first asked for: LangGraph itself is no dependency."""
    try:
        from langgraph.callbacks import GraphCallbackHandler
    except ImportError:
        return None

    class PauseHandler(GraphCallbackHandler):
        def __init__(self, saver: BaseSaver) -> None:
            self._saver = saver

        @property  # LangGraph asks whether it is a coroutine function
        def on_interrupt(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return self._heard
            return self._aheard

        def _heard(self, event: Any) -> None:
            with _Told(event):
                self._saver._run(_noted(self._saver, event))

        async def _aheard(self, event: Any) -> None:
            with _Told(event):
                await self._saver._arun(_noted(self._saver, event))

    return PauseHandler


class _Told:
    """Keeps an error from the caller: the run is stored, and invoking it again would pass the breakpoint."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, StepvaultError):
            logger.warning("The pause at checkpoint %s is not in the inbox: %s", self._event.checkpoint_id, error)
            return True
        return False


def _noted(saver: BaseSaver, event: Any) -> Op[bool]:
    if event.interrupts or event.checkpoint_ns:
        return False
    checkpoint = id_key("checkpoint_id", event.checkpoint_id)
    thread = saver._core.runs.standing_at(saver._scope.tenant, checkpoint)
    if thread is None:
        return False
    return (yield from pausing.record(saver._scope, thread, checkpoint))

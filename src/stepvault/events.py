"""What happens beside an app's own reads and writes, as `on_event=` is told it: for logs, metrics and alarms."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from stepvault.errors import ConfigurationError

logger = logging.getLogger("stepvault")

Kind: TypeAlias = Literal[
    "swept", "erasure", "conflict", "compacted", "repaired", "sealed", "unsealed", "rotated", "adopted"
]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened: ids and numbers, never payloads or names of people.

    Attributes:
        kind: `swept`: a sweep ended. `erasure`: one reached a state, or counted on in it. `conflict`: a write was
            refused or forked because of another worker. `compacted`, `repaired`: a thread was. `sealed`, `unsealed`: a
            database was. `rotated`: data keys were wrapped anew. `adopted`: LangGraph's own data was copied.
        tenant: Whose data.
        detail: Of an erasure, the state; of a conflict, `fork`, `head_moved`, `lease_held`, `fenced` or `gone`.
        thread_id: Of a conflict, and of a thread that was compacted or repaired.
        request_id: Of an erasure.
        numbers: How many of what.
    """

    kind: Kind
    tenant: str
    detail: str | None = None
    thread_id: str | None = None
    request_id: str | None = None
    numbers: Mapping[str, int] = field(default_factory=dict)


OnEvent: TypeAlias = "Callable[[Event], object]"


def checked(on_event: Any) -> OnEvent | None:
    """An `on_event=` that can be called.

    Raises:
        ConfigurationError: It cannot, or is a coroutine function, which nobody would await.
    """
    if on_event is None or (callable(on_event) and not inspect.iscoroutinefunction(on_event)):
        return on_event  # type: ignore[no-any-return]
    raise ConfigurationError("on_event must be a plain function of one Event; have it pass events on to a coroutine.")


def tell(on_event: OnEvent | None, event: Event) -> None:
    """Hand an event over; whatever comes of it, the operation goes on."""
    if on_event is not None:
        try:
            on_event(event)
        except Exception:
            logger.exception("on_event raised at an event of the kind %r; the operation goes on.", event.kind)

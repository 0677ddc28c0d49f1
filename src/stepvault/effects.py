"""Side effects that run once: their records and what a function may say about itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class EffectRecord:
    """One side effect of one task.

    Attributes:
        id: Names it in `resolve`.
        name: As given to `once`.
        thread_id: The thread it belongs to.
        task_id: The task that asked for it.
        state: `started`: it began and its end is not known; `done`.
        started_at: When it began, by the database's clock.
        result: What it returned, once done.
        key: A key that stays the same when it is tried again: pass it to payment APIs as idempotency key.
        args: What the function was called with, kept while its end is not known; None: more than 64 KB, or done.
        kwargs: Its keyword arguments, likewise.
    """

    id: str
    name: str
    thread_id: str
    task_id: str
    state: Literal["started", "done"]
    started_at: datetime
    result: Any
    key: str
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None


class EffectNotDone(Exception):
    """Raise this in an effect's function to say that nothing happened, so that it may be tried again."""

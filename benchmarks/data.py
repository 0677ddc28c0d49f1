"""What the workloads store: the same words, states and steps every time."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.base import Checkpoint, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6

CHANNEL_SIZES = [200, 330, 560, 930, 1550, 2600, 4300, 7200, 12000, 20000]


def _vocabulary() -> list[str]:
    rng = random.Random(7)
    weights = [8, 2, 3, 4, 12, 2, 2, 6, 7, 0.2, 0.8, 4, 2.5, 7, 8, 2, 0.1, 6, 6, 9, 3, 1, 2, 0.2, 2, 0.1]
    return ["".join(rng.choices(string.ascii_lowercase, weights, k=rng.randint(2, 10))) for _ in range(3000)]


_WORDS = _vocabulary()


def text(rng: random.Random, size: int) -> str:
    """Prose-like: most words come from the common ones, some from all."""
    parts: list[str] = []
    length = 0
    while length < size:
        common = rng.random() < 0.7
        word = _WORDS[min(int(rng.paretovariate(0.7)) - 1, 2999)] if common else rng.choice(_WORDS)
        parts.append(word)
        length += len(word) + 1
    return " ".join(parts)[:size]


_LONG = [text(random.Random(100 + i), 2 * size) for i, size in enumerate(CHANNEL_SIZES)]


def channel_value(channel: int, step: int, thread: int) -> dict[str, Any]:
    """A value of this channel's size, different at each step."""
    size = CHANNEL_SIZES[channel]
    start = (step * 37 + thread * 11) % size
    return {"k": channel, "text": _LONG[channel][start : start + size], "tags": ["a", "b"], "step": step}


def steps(thread: int, count: int, channels: int) -> Iterator[tuple[Checkpoint, list[str]]]:
    """Checkpoints of one thread and the channels each one changes: all at first, then one after the other."""
    values: dict[str, Any] = {f"ch{i}": channel_value(i, 0, thread) for i in range(channels)}
    for step in range(count):
        changed = list(values) if step == 0 else [f"ch{step % channels}"]
        if step:
            values[changed[0]] = channel_value(step % channels, step, thread)
        checkpoint = empty_checkpoint()
        checkpoint["id"] = str(uuid6(clock_seq=step))
        checkpoint["channel_values"] = dict(values)
        checkpoint["updated_channels"] = list(changed)
        yield checkpoint, changed


def writes(thread: int, step: int) -> list[tuple[str, Any]]:
    return [
        ("a", channel_value(2, step, thread)),
        ("b", channel_value(3, step, thread)),
        ("branch:to:n", None),
    ]

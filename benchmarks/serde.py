"""Encoding and decoding: Stepvault's serializer against LangGraph's, on the values threads are made of.

    python -m benchmarks.serde [--count 1000] [--repeat 7]

Prints microseconds per value (the best of several runs), bytes per value, and the ratios.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from stepvault.types import TypedSerializer, register_type

USAGE = {"input_tokens": 812, "output_tokens": 20, "total_tokens": 832, "input_token_details": {"cache_read": 0}}
META = {"model_name": "some-model", "finish_reason": "stop", "system_fingerprint": "fp_1", "logprobs": None}


@dataclass
class Claim:
    """An application's dataclass."""

    number: int
    text: str
    tags: list[str]


class Order(BaseModel):
    """An application's model."""

    number: int
    customer: str
    lines: list[dict[str, Any]] = []


def human(n: int) -> HumanMessage:
    """Return a question."""
    return HumanMessage(f"What is the status of order {n}, and when will it arrive in Hamburg?", id=f"h-{n}")


def assistant(n: int) -> AIMessage:
    """Return an answer with a tool call."""
    call = {"name": "lookup", "args": {"order": n, "fields": ["status", "eta"]}, "id": f"call-{n}"}
    return AIMessage(
        f"Let me look at order {n}.", id=f"a-{n}", tool_calls=[call], usage_metadata=USAGE, response_metadata=META
    )


def tool(n: int) -> ToolMessage:
    """Return a tool's result."""
    return ToolMessage(
        f'{{"order": {n}, "status": "in transit"}}', tool_call_id=f"call-{n}", name="lookup", id=f"t-{n}"
    )


def cases(count: int) -> dict[str, list[Any]]:
    """Return the values to measure, by name."""
    return {
        "HumanMessage": [human(n) for n in range(count)],
        "AIMessage": [assistant(n) for n in range(count)],
        "ToolMessage": [tool(n) for n in range(count)],
        "chat": [make(n) for n in range(count // 3) for make in (human, assistant, tool)],
        "Document": [Document(f"page {n} " * 20, metadata={"source": f"s{n}", "page": n}) for n in range(count)],
        "dict": [{"id": n, "name": f"n{n}", "score": n / 7, "tags": ["a", "b"]} for n in range(count)],
        "dataclass": [Claim(n, f"claim {n}", ["a", "b"]) for n in range(count)],
        "pydantic": [Order(number=n, customer=f"c{n}", lines=[{"sku": "x", "n": 2}]) for n in range(count)],
        "tuple": [(n, f"t{n}", 1.5) for n in range(count)],
    }


def best(action: Callable[[], Any], count: int, repeat: int) -> float:
    """Return the best time of an action, in microseconds for each of `count` values."""
    found = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        action()
        found = min(found, time.perf_counter() - start)
    return found / count * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    register_type(Claim, name="benchmark.claim")
    register_type(Order, name="benchmark.order")
    ours = TypedSerializer()
    theirs = JsonPlusSerializer(allowed_msgpack_modules=[Claim, Order])
    print(f"{'':14}{'encode us':>18}{'':>8}{'decode us':>18}{'':>8}{'bytes':>16}{'':>8}")
    print(f"{'':14}{'ours':>9}{'theirs':>9}{'ratio':>8}" + f"{'ours':>9}{'theirs':>9}{'ratio':>8}" * 2)
    for name, values in cases(arguments.count).items():
        row = []
        for act in ("dumps_typed", "loads_typed"):
            for serde in (ours, theirs):
                given = values if act == "dumps_typed" else serde.dumps_typed(values)
                row.append(best(lambda: getattr(serde, act)(given), len(values), arguments.repeat))  # noqa: B023
        sizes = [len(serde.dumps_typed(values)[1]) / len(values) for serde in (ours, theirs)]
        line = f"{name:14}"
        for a, b in ((row[0], row[1]), (row[2], row[3]), (sizes[0], sizes[1])):
            line += f"{a:9.2f}{b:9.2f}{a / b:7.2f}x"
        print(line)
    alone = cases(arguments.count)["chat"]
    one_by_one = best(lambda: [ours.dumps(value) for value in alone], len(alone), arguments.repeat)
    print(f"\nchat, each message dumped alone: {one_by_one:.2f} us")


if __name__ == "__main__":
    main()

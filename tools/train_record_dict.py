"""Make `src/stepvault/_core/record.dict`, the dictionary that checkpoint and write bodies are compressed with.

    python tools/train_record_dict.py            measure the dictionary that is there, and a new one
    python tools/train_record_dict.py --write    put the new one in its place

Runs graphs of many shapes on an SQLite file, takes the bodies as they are before compression, and picks those
that help the others most. What is in them of one application or one run (ids, times, hashes, versions) is
blanked, and the graphs say nothing, so the dictionary holds structure and LangGraph's own names only. A body that
was written with a dictionary is read with the same one: after 0.1.0 a new dictionary needs a new codec id.
"""

from __future__ import annotations

import argparse
import operator
import re
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import zstandard
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.channels import DeltaChannel
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from stepvault._core.codec import unpack
from stepvault.checkpointers.sqlite import SqliteSaver

TARGET = Path(__file__).resolve().parent.parent / "src" / "stepvault" / "_core" / "record.dict"
SIZE = 6 * 1024
LEVEL = 3

# -- graphs of many shapes that say nothing


class Fields(TypedDict, total=False):
    messages: Annotated[list[Any], operator.add]
    input: str
    output: str
    query: str
    question: str
    answer: str
    context: list[Any]
    documents: list[Any]
    results: Annotated[list[Any], operator.add]
    remaining_steps: int
    structured_response: dict[str, Any]


class DeltaMessages(TypedDict):
    messages: Annotated[list[Any], DeltaChannel(_messages_delta_reducer, snapshot_frequency=3)]


def _line(state: Any, saver: Any, steps: dict[str, Any]) -> Any:
    graph = StateGraph(state)
    for name, step in steps.items():
        graph.add_node(name, step)
    for left, right in zip([START, *steps], [*steps, END], strict=True):
        graph.add_edge(left, right)
    return graph.compile(checkpointer=saver)


def _say(**calls: Any) -> Callable[[Any], Any]:
    return lambda state: {"messages": [AIMessage("", **calls)]}


def chat(saver: Any, name: str, state: Any = MessagesState) -> None:
    graph = _line(state, saver, {name: _say()})
    for _ in range(6):
        graph.invoke({"messages": [("user", "")]}, _config())


def react(saver: Any, name: str) -> None:
    @tool
    def search(query: str) -> str:
        """Search."""
        return ""

    call = {"name": "search", "args": {"query": ""}, "id": "call"}

    def model(state: Any) -> Any:
        last = state["messages"][-1].type
        return {"messages": [AIMessage("", tool_calls=[call] if last == "human" else [])]}

    graph = StateGraph(MessagesState)
    graph.add_node(name, model)
    graph.add_node("tools", ToolNode([search]))
    graph.add_edge(START, name)
    graph.add_conditional_edges(name, tools_condition)
    graph.add_edge("tools", name)
    agent = graph.compile(checkpointer=saver)
    for _ in range(3):
        agent.invoke({"messages": [("user", "")]}, _config())


def fields(saver: Any) -> None:
    steps = {
        "retrieve": lambda state: {"context": [], "documents": [], "query": ""},
        "generate": lambda state: {"answer": "", "output": "", "remaining_steps": 0},
        "respond": lambda state: {"messages": [AIMessage("")], "structured_response": {}},
    }
    graph = _line(Fields, saver, steps)
    for _ in range(3):
        graph.invoke({"input": "", "question": ""}, _config())


def subgraph(saver: Any, own: bool) -> None:
    inner = _line(MessagesState, own or None, {"model": _say(), "respond": _say()})
    graph = _line(MessagesState, saver, {"agent": inner})
    for _ in range(3):
        graph.invoke({"messages": [("user", "")]}, _config())


def send(saver: Any) -> None:
    graph = StateGraph(Fields)
    graph.add_node("worker", lambda state: {"results": [""]})
    graph.add_conditional_edges(START, lambda state: [Send("worker", {"input": ""}) for _ in range(3)], ["worker"])
    compiled = graph.compile(checkpointer=saver)
    for _ in range(2):
        compiled.invoke({"input": ""}, _config())


def human(saver: Any) -> None:
    def review(state: Any) -> Any:
        return {"output": str(interrupt({"question": "", "action": "", "args": {}}))[:0]}

    graph = _line(Fields, saver, {"agent": _say(), "review": review})
    for _ in range(2):
        graph.invoke({"input": ""}, _config())
        graph.invoke(Command(resume={"type": "accept"}), _config())


def handoff(saver: Any) -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("supervisor", lambda state: Command(goto="researcher", update={"messages": [AIMessage("")]}))
    graph.add_node("researcher", lambda state: Command(goto=END, update={"messages": [AIMessage("")]}))
    graph.add_edge(START, "supervisor")
    graph.compile(checkpointer=saver).invoke({"messages": [("user", "")]}, _config())


def parallel(saver: Any) -> None:
    graph = StateGraph(Fields)
    for name in ("plan", "research", "write"):
        graph.add_node(name, lambda state: {"results": [""]})
        graph.add_edge(START, name)
    graph.add_node("summarize", lambda state: {"output": ""})
    graph.add_edge(["plan", "research", "write"], "summarize")
    graph.compile(checkpointer=saver).invoke({"input": ""}, _config())


def edits(saver: Any) -> None:
    graph = _line(MessagesState, saver, {"agent": _say()})
    graph.invoke({"messages": [("user", "")]}, _config())
    graph.update_state(_config(), {"messages": [("user", "")]})
    past = list(graph.get_state_history(_config()))[-2]
    graph.invoke(None, past.config)


def functional(saver: Any) -> None:
    @task
    def work(value: str) -> str:
        return value

    @entrypoint(checkpointer=saver)
    def flow(value: str, *, previous: Any = None) -> Any:
        work(value).result()
        return entrypoint.final(value="", save="")

    for _ in range(3):
        flow.invoke("", _config())


def failing(saver: Any) -> None:
    def fail(state: Any) -> Any:
        raise ValueError

    graph = _line(MessagesState, saver, {"agent": _say(), "tools": fail})
    with suppress(ValueError):
        graph.invoke({"messages": [("user", "")]}, _config())


GRAPHS: list[Callable[[Any], None]] = [
    failing,
    functional,
    edits,
    parallel,
    handoff,
    human,
    send,
    lambda saver: subgraph(saver, own=True),
    lambda saver: subgraph(saver, own=False),
    fields,
    lambda saver: chat(saver, "chatbot", DeltaMessages),
    lambda saver: react(saver, "agent"),
    lambda saver: react(saver, "model"),
    lambda saver: chat(saver, "chatbot"),
    lambda saver: chat(saver, "model"),
]


def _config() -> Any:
    names = ("user_id", "assistant_id", "graph_id", "langgraph_request_id")
    return {"configurable": {"thread_id": "t", **dict.fromkeys(names, "")}, "metadata": {"created_by": ""}}


# -- samples: bodies without what belongs to one run

_BLANKS = [
    (re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), b"0" * 36),
    (re.compile(rb"[0-9a-f]{32}"), b"0" * 32),
    (re.compile(rb"\xcf\x00\x06.{6}", re.DOTALL), b"\xcf\x00\x06" + bytes(6)),  # microseconds since 1970
    (re.compile(rb"\xa8[0-9a-f]{8}"), b"\xa800000001"),  # versions
]


def blanked(body: bytes) -> bytes:
    for pattern, blank in _BLANKS:
        body = pattern.sub(blank, body)
    return body


def bodies(graph: Callable[[Any], None]) -> list[bytes]:
    """The bodies that one graph leaves, uncompressed."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "samples.db")
        with SqliteSaver.from_conn_string(path, compression=None) as saver:
            graph(saver)
        with closing(sqlite3.connect(path)) as connection:
            tables = ("stepvault_checkpoint", "stepvault_write")
            return [unpack(body) for table in tables for (body,) in connection.execute(f"SELECT body FROM {table}")]


# -- the dictionary


def compressed_size(samples: Sequence[bytes], dictionary: bytes) -> int:
    data = zstandard.ZstdCompressionDict(dictionary or bytes(8), dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=data, write_checksum=False, write_dict_id=False)
    return sum(len(compressor.compress(sample)) for sample in samples)


def build(samples: Sequence[bytes]) -> bytes:
    """Take the sample that saves most per byte, again and again; what was taken first stands last, near at hand."""
    candidates = sorted(Counter(blanked(sample) for sample in samples))
    chosen = b""
    size = compressed_size(samples, chosen)
    while candidates:
        found = [(compressed_size(samples, candidate + chosen), candidate) for candidate in candidates]
        gains = [((size - after) / len(candidate), candidate, after) for after, candidate in found]
        gain, best, after = max(gains)
        if gain <= 0 or len(chosen) + len(best) > SIZE:
            break
        chosen, size = best + chosen, after
        candidates = [candidate for rate, candidate, _ in gains if rate > 0 and candidate != best]
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"replace {TARGET.name}")
    arguments = parser.parse_args()
    samples = [bodies(graph) for graph in GRAPHS]
    everything = [body for found in samples for body in found]
    new = build(everything)
    print(f"{len(everything)} bodies, {sum(map(len, everything)):,} bytes")
    for name, dictionary in (("none", b""), (TARGET.name, TARGET.read_bytes()), ("new", new)):
        print(f"  {name:<12}{len(dictionary):>6} bytes: {compressed_size(everything, dictionary):>8,} bytes")
    if arguments.write:
        TARGET.write_bytes(new)


if __name__ == "__main__":
    main()

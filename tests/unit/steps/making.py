"""Runs of every shape, for properties."""

from __future__ import annotations

from datetime import timezone
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from stepvault.steps import (
    ActionStep,
    FinalStep,
    InterruptStep,
    ResumeStep,
    Run,
    StoredSystem,
    TaskStep,
    ToolResult,
)

texts = st.text(max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    texts,
    st.binary(max_size=4),
    st.decimals(allow_nan=False).map(Decimal),
    st.dates(),
)
keys = st.one_of(texts, st.sampled_from(["$value", "$dict", "kind"]), st.integers(), st.tuples(st.integers()))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.tuples(inner),
        st.frozensets(st.integers(), max_size=1),
    ),
    max_leaves=6,
)
json_dicts = st.dictionaries(names, st.one_of(st.integers(), names, st.lists(names, max_size=2)), max_size=2)
blocks = st.one_of(
    names,
    st.lists(st.one_of(names, st.fixed_dictionaries({"type": st.just("text"), "text": names})), max_size=2),
)
calls = st.fixed_dictionaries(
    {"name": names, "args": json_dicts, "id": st.one_of(st.none(), names), "type": st.just("tool_call")}
)
usages = st.none() | st.fixed_dictionaries(
    dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), st.integers(0))
)
ids = st.none() | names

ai = st.builds(
    AIMessage,
    content=blocks,
    id=ids,
    name=ids,
    tool_calls=st.lists(calls, max_size=2),
    usage_metadata=usages,
    response_metadata=json_dicts,
    additional_kwargs=json_dicts,
)
system = st.builds(SystemMessage, content=blocks, id=ids)
messages: Any = st.one_of(
    ai,
    system,
    st.builds(HumanMessage, content=blocks, id=ids, name=ids, additional_kwargs=json_dicts),
    st.builds(
        ToolMessage, content=names, tool_call_id=names, artifact=values, status=st.sampled_from(["success", "error"])
    ),
    st.builds(ChatMessage, content=blocks, role=names),
    st.builds(FunctionMessage, content=blocks, name=names),
)
times = st.none() | st.datetimes(timezones=st.just(timezone.utc))
common: dict[str, Any] = {
    "id": names,
    "checkpoint_id": names,
    "run_id": ids,
    "at": times,
    "seconds": st.none() | st.floats(0, 1e9),
    "missing": st.lists(names, max_size=2).map(tuple),
}
results = st.builds(
    ToolResult, tool_call_id=names, message=st.none() | messages, checkpoint_id=ids, seconds=st.none() | st.floats(0, 9)
)
steps = st.one_of(
    st.builds(TaskStep, **common, messages=st.lists(messages, max_size=2).map(tuple), input=values),
    st.builds(ActionStep, **common, message=st.none() | ai, results=st.lists(results, max_size=2).map(tuple)),
    st.builds(InterruptStep, **common, interrupt_id=ids, node=ids, value=values),
    st.builds(ResumeStep, **common, interrupt_id=ids, answer=values, by=ids, note=ids),
    st.builds(FinalStep, **common, message=st.none() | ai, value=values),
)
runs = st.builds(
    Run,
    thread_id=names,
    checkpoint_id=names,
    messages_key=names,
    steps=st.lists(steps, max_size=3).map(tuple),
    system_messages=st.lists(st.builds(StoredSystem, message=system, checkpoint_id=names), max_size=2).map(tuple),
    order=st.none(),
    memory=st.sampled_from(["state", "saved"]),
    saved=values,
)


def sample() -> Run:
    """A small run with one step of each kind."""
    said: list[BaseMessage] = [HumanMessage("hi", id="1"), AIMessage("", id="2"), AIMessage("bye", id="3")]
    given = {"checkpoint_id": "c", "run_id": "r"}
    return Run(
        thread_id="t",
        checkpoint_id="c",
        steps=(
            TaskStep(id="c:1", messages=(said[0],), **given),
            ActionStep(id="c:2", message=said[1], results=(ToolResult(tool_call_id="x"),), **given),
            InterruptStep(id="c:3", interrupt_id="i", value={"sure": (1, 2)}, **given),
            ResumeStep(id="c:4", interrupt_id="i", answer=True, by="Ada", **given),
            FinalStep(id="c:5", message=said[2], **given),
        ),
        system_messages=(StoredSystem(message=SystemMessage("be kind"), checkpoint_id="c"),),
        order=(-1, 0, 1, 2),
    )

"""Steps from a saver that keeps less than ours, and from histories that were edited."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from stepvault.steps import ActionStep, FinalStep, InterruptStep, ResumeStep, Run, TaskStep, iter_steps

CONFIG: Any = {"configurable": {"thread_id": "t"}}


def graph(*replies: Any) -> Any:
    """Each turn says the next reply, or asks it if it is a question."""
    left = list(replies)

    def model(state: Any) -> Any:
        said = left[0]
        if isinstance(said, str):
            said = AIMessage(f"told {interrupt(said)} and {interrupt('sure?')}")
        left.pop(0)
        return {"messages": said}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_edge(START, "model")
    return builder.compile(checkpointer=InMemorySaver())


def run_of(app: Any) -> Run:
    return Run.from_thread(app.checkpointer, "t")


def test_another_saver_gives_the_same_with_what_it_lacks_marked() -> None:
    app = graph("who?")
    app.invoke({"messages": [("user", "hi")]}, CONFIG)
    app.invoke(Command(resume="me"), CONFIG)
    app.invoke(Command(resume="yes"), CONFIG)

    task, earlier, first, question, second, final = run_of(app).steps

    assert isinstance(task, TaskStep)
    assert isinstance(earlier, InterruptStep)
    assert {"value", "interrupt_id", "node", "at"} == set(earlier.missing)
    assert isinstance(first, ResumeStep)
    assert first.answer == "me"
    assert isinstance(question, InterruptStep)
    assert question.value == "sure?"
    assert isinstance(second, ResumeStep)
    assert (second.answer, set(second.missing)) == ("yes", {"at", "by"})
    assert isinstance(final, FinalStep)
    assert final.message is not None
    assert final.message.content == "told me and yes"
    assert list(iter_steps(app.checkpointer, "t")) == list(run_of(app).steps)


def test_what_waits_is_asked_and_not_answered() -> None:
    app = graph("who?")
    app.invoke({"messages": [("user", "hi")]}, CONFIG)

    assert [step.kind for step in run_of(app).steps] == ["task", "interrupt"]


def test_messages_that_were_edited_or_removed_are_steps_but_not_what_the_model_sees() -> None:
    app = graph([AIMessage("one", id="1")], [AIMessage("two", id="2")])
    app.invoke({"messages": [HumanMessage("hi", id="h")]}, CONFIG)
    app.update_state(CONFIG, {"messages": [AIMessage("one, edited", id="1"), RemoveMessage("h")]})
    app.invoke({"messages": [SystemMessage("be kind"), HumanMessage("again")]}, CONFIG)

    run = run_of(app)

    assert run.to_messages() == app.get_state(CONFIG).values["messages"]
    said = [message.content for step in run.steps for message in step.to_messages()]
    assert said == ["hi", "one", "one, edited", "again", "two"]
    assert Run.load_json(run.dump_json()).to_messages() == run.to_messages()
    assert run.to_messages("new")[1:] == [m for m in run.to_messages() if m.type != "system"]


def test_results_are_joined_by_their_call_and_lost_ones_marked() -> None:
    calls = [{"name": "f", "args": {}, "id": name} for name in ("x", "y")]
    said = [
        AIMessage("", tool_calls=calls),
        ToolMessage("about y", tool_call_id="y"),
        AIMessage("done"),
        ToolMessage("about nothing", tool_call_id="z"),
    ]
    app = graph(said)
    app.invoke({"messages": [("user", "hi")]}, CONFIG)

    _, action, final, orphan = run_of(app).steps

    assert isinstance(action, ActionStep)
    assert [(r.tool_call_id, r.message is None) for r in action.results] == [("y", False), ("x", True)]
    assert action.missing == ("results",)
    assert isinstance(final, ActionStep)
    assert isinstance(orphan, ActionStep)
    assert (orphan.message, orphan.missing) == (None, ("message",))
    assert run_of(app).to_messages() == app.get_state(CONFIG).values["messages"]


@pytest.mark.parametrize("key", ["messages", "chat"])
def test_the_key_of_the_messages_is_a_parameter(key: str) -> None:
    from typing import Annotated

    from langgraph.graph.message import add_messages
    from typing_extensions import TypedDict

    state = TypedDict("state", {key: Annotated[list[Any], add_messages], "topic": str})  # type: ignore[misc]
    builder = StateGraph(state)
    builder.add_node("model", lambda values: {key: [AIMessage(values["topic"])]})
    builder.add_edge(START, "model")
    app = builder.compile(checkpointer=InMemorySaver())
    app.invoke({key: [("user", "hi")], "topic": "tea"}, CONFIG)

    task, final = Run.from_thread(app.checkpointer, "t", messages_key=key).steps

    assert isinstance(task, TaskStep)
    assert task.input == {"topic": "tea"}
    assert isinstance(final, FinalStep)

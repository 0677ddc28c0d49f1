"""Steps of real graphs on every backend: what they say, and that it is what the model saw."""

from __future__ import annotations

import asyncio
import operator
from datetime import datetime, timezone
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import ConfigurationError
from stepvault.steps import (
    ActionStep,
    FinalStep,
    InterruptStep,
    ResumeStep,
    Run,
    Step,
    TaskStep,
    aiter_steps,
    iter_steps,
)
from tests.contract.matrix import Database
from tests.graphs.test_agents import agent, say

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


class App:
    """A graph over a database, called as the database is."""

    def __init__(self, database: Database, saver: Any, graph: Any) -> None:
        self.sync, self.saver, self.graph = database.mode == "sync", saver, graph

    @classmethod
    async def of(cls, database: Database, build: Any) -> App:
        saver = await database.raw()
        return cls(database, saver, build(saver))

    async def call(self, target: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        if self.sync:
            return await asyncio.to_thread(getattr(target, name), *args, **kwargs)
        return await getattr(target, f"a{name}")(*args, **kwargs)

    async def invoke(self, value: Any, thread: str = "t", **options: Any) -> Any:
        return await self.call(self.graph, "invoke", value, named(thread), **options)

    async def run(self, thread: str = "t", **options: Any) -> Run:
        return await self.call(Run, "from_thread", self.saver, thread, **options)

    async def messages(self, thread: str = "t") -> list[BaseMessage]:
        return (await self.call(self.graph, "get_state", named(thread))).values["messages"]

    async def iter(self, **options: Any) -> list[Step]:
        if self.sync:
            return await asyncio.to_thread(lambda: list(iter_steps(self.saver, "t", **options)))
        return [step async for step in aiter_steps(self.saver, "t", **options)]


def named(thread: str) -> Any:
    return {"configurable": {"thread_id": thread}}


def kinds(run: Run) -> list[str]:
    return [step.kind for step in run.steps]


async def test_an_agent_that_asks_a_human(database: Database) -> None:
    app = await App.of(database, agent)
    inbox = Inbox(app.saver)
    begun = datetime.now(timezone.utc)
    await app.invoke(say("weather weather", 0))
    asked = await app.invoke(say("book", 1))
    decision = await app.call(inbox, "decide", asked["__interrupt__"][0].id, "yes", by="Ada", note="as she asked")
    await app.invoke(decision.command)

    run = await app.run()

    assert kinds(run) == ["task", "action", "final", "task", "interrupt", "resume", "action", "final"]
    first, action, final, _, question, answer, booked, _ = run.steps
    assert isinstance(first, TaskStep)
    assert isinstance(action, ActionStep)
    assert isinstance(final, FinalStep)
    assert isinstance(question, InterruptStep)
    assert isinstance(answer, ResumeStep)
    assert isinstance(booked, ActionStep)
    assert [result.tool_call_id for result in action.results] == [call["id"] for call in action.message.tool_calls]
    assert action.usage == {"input_tokens": 2, "output_tokens": 1, "total_tokens": 3}
    assert (question.value, question.node) == ({"book": "city 0"}, "tools")
    assert (answer.answer, answer.by, answer.note) == ("yes", "Ada", "as she asked")
    assert answer.interrupt_id == question.interrupt_id == asked["__interrupt__"][0].id
    assert booked.results[0].message.content == "booked city 0"
    assert not any(step.missing for step in run.steps)
    assert all(step.at is not None and step.at.year >= begun.year for step in run.steps)
    assert all(step.seconds >= 0 for step in run.steps if isinstance(step, (ActionStep, FinalStep)))
    assert len({step.id for step in run.steps}) == len(run.steps)
    assert run.to_messages() == await app.messages()
    assert run.to_messages("Be brief.") == [SystemMessage("Be brief."), *await app.messages()]
    assert Run.load_json(run.dump_json()) == run


async def test_steps_are_read_in_parts(database: Database) -> None:
    app = await App.of(database, agent)
    await app.invoke(say("weather", 0))
    runs = [await app.run()]
    await app.call(app.graph, "invoke", say("weather", 1), {**named("t"), "run_id": "0" * 31 + "1"})
    runs.append(await app.run())
    steps = await app.iter()

    assert steps == list(runs[1].steps)
    assert await app.iter(since=runs[0].steps[-1].id) == steps[3:]
    assert await app.iter(since=runs[0].steps[-1].at) == steps[3:]
    assert await app.iter(limit=2) == steps[:2]
    assert [step.kind for step in await app.iter(run_id=steps[-1].run_id)] == ["task", "action", "final"]
    assert list(runs[1].iter_steps(since=steps[1].id, limit=2)) == steps[2:4]
    with pytest.raises(ConfigurationError, match="No step"):
        await app.iter(since="nothing")
    with pytest.raises(ConfigurationError, match="'nobody' has no checkpoint"):
        await app.run("nobody")


async def test_a_run_saved_at_its_exit_marks_what_is_not_stored(database: Database) -> None:
    app = await App.of(database, agent)
    await app.invoke(say("weather", 0), durability="exit")
    await app.invoke(say("book", 1), durability="exit")
    await app.invoke(Command(resume="no"), durability="exit")

    run = await app.run()

    assert kinds(run) == ["task", "action", "final", "task", "interrupt", "resume", "action", "final"]
    assert [step.missing for step in run.steps[:3]] == [("at", "seconds")] * 3
    answer = run.steps[5]
    assert isinstance(answer, ResumeStep)
    assert answer.answer is None
    assert "answer" in answer.missing
    assert run.to_messages() == await app.messages()


async def test_a_fork_is_followed_by_its_checkpoint(database: Database) -> None:
    app = await App.of(database, agent)
    await app.invoke(say("weather", 0))
    before = await app.run()
    await app.invoke(say("book", 1))
    config = {"configurable": {"thread_id": "t", "checkpoint_id": before.checkpoint_id}}
    await app.call(app.graph, "invoke", say("hello", 2), config)

    assert await app.run(checkpoint_id=before.checkpoint_id) == before
    assert "hello" in [m.content for m in (await app.run()).to_messages()]
    assert (await app.run()).steps[:3] == before.steps


async def test_a_loaded_run_goes_on_in_a_new_thread(database: Database) -> None:
    app = await App.of(database, agent)
    await app.invoke(say("weather", 0))
    loaded = Run.load_json((await app.run()).dump_json())

    await app.call(loaded, "continue_in", app.graph, named("next"))

    assert not (await app.call(app.graph, "get_state", named("next"))).next
    said = await app.invoke(say("weather", 1), "next")
    assert said["messages"][: len(loaded.to_messages())] == loaded.to_messages()
    assert len(said["messages"]) == 8
    with pytest.raises(ConfigurationError, match="'next' exists"):
        await app.call(loaded, "continue_in", app.graph, named("next"))


async def test_a_function_with_a_memory(database: Database) -> None:
    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def chat(asked: list[BaseMessage], *, previous: list[BaseMessage] | None = None) -> Any:
            seen = [*(previous or []), *asked]
            said = AIMessage(f"{len(seen)} messages")
            return entrypoint.final(value=said, save=[*seen, said])

        return chat

    app = await App.of(database, build)
    for number in range(2):
        await app.invoke([HumanMessage(f"turn {number}")])

    run = await app.run()
    assert kinds(run) == ["task", "final", "task", "final"]
    assert [m.content for m in run.to_messages()] == ["turn 0", "1 messages", "turn 1", "3 messages"]
    await app.call(run, "continue_in", app.graph, named("next"))
    assert (await app.invoke([HumanMessage("turn 2")], "next")).content == "5 messages"


async def test_a_state_without_messages_under_keys_of_its_own(database: Database) -> None:
    class State(TypedDict, total=False):
        topic: str
        notes: Annotated[list[str], operator.add]

    def build(saver: Any) -> Any:
        graph = StateGraph(State)
        graph.add_node("ask", lambda state: {"notes": [f"{state['topic']}: {interrupt('sure?')}"]})
        graph.add_edge(START, "ask")
        return graph.compile(checkpointer=saver)

    app = await App.of(database, build)
    await app.invoke({"topic": "tea"})
    await app.invoke(Command(resume="yes"))

    task, question, answer, final = (await app.run()).steps
    assert isinstance(task, TaskStep)
    assert isinstance(question, InterruptStep)
    assert isinstance(answer, ResumeStep)
    assert isinstance(final, FinalStep)
    assert (task.input, question.value, answer.answer) == ({"topic": "tea"}, "sure?", "yes")
    assert (answer.by, "by" in answer.missing) == (None, True)
    assert final.value == {"topic": "tea", "notes": ["tea: yes"]}


async def test_stored_system_messages_are_set_apart(database: Database) -> None:
    def build(saver: Any) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [AIMessage(f"{len(state['messages'])}")]})
        graph.add_edge(START, "model")
        return graph.compile(checkpointer=saver)

    app = await App.of(database, build)
    await app.invoke({"messages": [SystemMessage("Be kind."), HumanMessage("hello")]})

    run = await app.run()
    assert kinds(run) == ["task", "final"]
    assert [stored.message.content for stored in run.system_messages] == ["Be kind."]
    assert run.to_messages() == await app.messages()
    assert [m.content for m in run.to_messages("Be brief.")] == ["Be brief.", "hello", "2"]
    assert Run.load_json(run.dump_json()).to_messages() == run.to_messages()

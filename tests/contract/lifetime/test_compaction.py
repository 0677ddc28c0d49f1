"""A live thread's messages are shortened by a new checkpoint, with a summary; nothing else of it changes."""

from __future__ import annotations

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault.compaction import PROVENANCE
from stepvault.errors import ConfigurationError, ConflictError, FencedError, LeaseHeldError
from tests.contract.building import config, listed, put
from tests.contract.matrix import Database


class Chat(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    chat: Annotated[list[Any], operator.add]
    topic: str


def talk(count: int) -> list[Any]:
    """Questions, each with a tool call, its result and an answer, after a system prompt: 1 + 4 * count messages."""
    said: list[Any] = [SystemMessage("be kind", id="s")]
    for n in range(count):
        call = {"name": "look", "args": {"n": n}, "id": f"call{n}"}
        said += [
            HumanMessage(f"question {n} " + "q" * 300, id=f"h{n}"),
            AIMessage("", tool_calls=[call], id=f"a{n}"),
            ToolMessage("r" * 300, tool_call_id=f"call{n}", id=f"t{n}"),
            AIMessage(f"answer {n}", id=f"b{n}"),
        ]
    return said


def ids_of(messages: Any) -> list[str]:
    return [message.id for message in messages]


def graph(saver: Any, **options: Any) -> Any:
    def answer(state: Chat) -> Any:
        return {"messages": [AIMessage(f"seen {len(state['messages'])}")]}

    def last(state: Chat) -> Any:
        return {"topic": state["messages"][-1].content}

    builder = StateGraph(Chat).add_node("answer", answer).add_node("last", last)
    return builder.add_edge(START, "answer").add_edge("answer", "last").compile(checkpointer=saver, **options)


def summary_of(messages: list[Any]) -> str:
    return f"{len(messages)} messages"


async def asummary_of(messages: list[Any]) -> str:
    await asyncio.sleep(0)
    return summary_of(messages)


async def status(saver: Any) -> str:
    ((thread),) = (await saver.athreads()).threads
    return str(thread.status)


async def test_the_old_go_and_a_summary_says_where_it_comes_from(database: Database) -> None:
    saver = await database.saver()
    said = talk(3)
    at = await put(saver, {"messages": said, "topic": "t" * 400})
    before = await saver.aget_tuple(at)
    plan = await saver.acompact_thread("t", keep_messages=2, dry_run=True)
    assert plan.dry_run
    assert plan.checkpoint_id is None
    assert len(await listed(saver, config())) == 1
    report = await saver.acompact_thread("t", keep_messages=2, summarise=summary_of, count_tokens=len)
    # two would part the last call from its result
    assert list(report.removed) == list(plan.removed) == ids_of(said[1:10])
    assert report.characters_saved > 1000
    assert (report.tokens_before, report.tokens_after, report.tokens_saved) == (13, 5, 8)
    head = await saver.aget_tuple(config())
    assert head.checkpoint["id"] == report.checkpoint_id
    system, summary, *rest = head.checkpoint["channel_values"]["messages"]
    assert (system, rest) == (said[0], said[-3:])
    assert (summary.content, summary.id) == ("9 messages", report.summary_id)
    source = {"checkpoint_id": report.compacted_from, "message_ids": list(report.removed)}
    assert summary.response_metadata[PROVENANCE] == source
    assert head.metadata["compaction"] == {**source, "summary_id": summary.id}
    assert head.parent_config == before.config
    assert head.checkpoint["channel_values"]["topic"] == "t" * 400
    assert await saver.aget_tuple(at) == before  # nothing was rewritten
    assert await status(saver) == "compacted"


async def test_a_summary_is_summed_up_in_the_next_one(database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"messages": talk(3)})
    first = await saver.acompact_thread("t", keep_messages=8, summarise=summary_of)
    second = await saver.acompact_thread("t", keep_messages=4, summarise=summary_of)
    assert second.removed[0] == first.summary_id
    assert second.compacted_from == first.checkpoint_id
    again = await saver.acompact_thread("t", keep_messages=4)
    assert again.removed == (second.summary_id,)
    nothing = await saver.acompact_thread("t", keep_messages=4)
    assert (nothing.removed, nothing.checkpoint_id) == ((), None)


async def test_calls_without_a_result_stay_and_so_do_types(database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"messages": [*talk(2), AIMessage("", tool_calls=[{"name": "x", "args": {}, "id": "c"}], id="w")]})
    report = await saver.acompact_thread("t", keep_messages=0, keep_types=(HumanMessage,))
    left = (await saver.aget_tuple(config())).checkpoint["channel_values"]["messages"]
    assert ids_of(left) == ["h0", "h1", "w"]
    assert report.kept == 3


async def test_messages_of_another_channel_and_kind(database: Database) -> None:
    saver = await database.saver()
    said = [{"role": "user", "content": str(n)} for n in range(6)]
    await put(saver, {"chat": said})
    with pytest.raises(ConfigurationError, match="messages_key"):
        await saver.acompact_thread("t", keep_messages=1)
    await saver.acompact_thread("t", keep_messages=2, messages_key="chat", summarise=summary_of)
    first, *rest = (await saver.aget_tuple(config())).checkpoint["channel_values"]["chat"]
    assert (first["role"], first["content"], rest) == ("system", "4 messages", said[4:])


async def test_a_failing_summary_changes_nothing_and_leaves_no_lease(database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"messages": talk(2)})

    def fail(messages: list[Any]) -> str:
        raise RuntimeError("no model")

    with pytest.raises(RuntimeError, match="no model"):
        await saver.acompact_thread("t", keep_messages=1, summarise=fail)
    assert (len(await listed(saver, config())), await status(saver)) == (1, "idle")


async def test_what_is_not_there_or_no_number_is_refused(database: Database) -> None:
    saver = await database.saver()
    with pytest.raises(ConfigurationError):
        await saver.acompact_thread("none", keep_messages=1)
    assert (await saver.athreads()).threads == []
    with pytest.raises(ConfigurationError):
        await saver.acompact_thread("t", keep_messages=-1)


async def test_it_waits_for_no_other_worker(async_database: Database) -> None:
    saver, other = await async_database.raw(), await async_database.raw()
    await put(saver, {"messages": talk(2)})
    async with other.lease("t"):
        with pytest.raises(LeaseHeldError):
            await saver.acompact_thread("t", keep_messages=1)

    async def meanwhile(messages: list[Any]) -> str:
        with pytest.raises(LeaseHeldError):
            await put(other, {"messages": []})
        await other.adelete_thread("t")
        return "x"

    with pytest.raises(FencedError):  # it was deleted: nothing comes back
        await saver.acompact_thread("t", keep_messages=1, summarise=meanwhile)
    assert await saver.aget_tuple(config()) is None


async def test_a_graph_goes_on_from_what_its_state_shows(async_database: Database) -> None:
    saver = await async_database.raw()
    app = graph(saver)
    for n in range(4):
        await app.ainvoke({"messages": [HumanMessage(f"turn {n}", id=f"h{n}")]}, config())
    report = await saver.acompact_thread("t", keep_messages=2, summarise=asummary_of)
    shown = await app.aget_state(config())
    assert ids_of(shown.values["messages"])[0] == report.summary_id
    assert len(shown.values["messages"]) == 3
    assert shown.next == ()
    done = await app.ainvoke({"messages": [HumanMessage("more", id="more")]}, config())
    assert ids_of(done["messages"])[:-1] == [*ids_of(shown.values["messages"]), "more"]
    assert done["topic"] == "seen 4"
    assert await status(saver) == "idle"
    line = await saver.alineage("t")
    assert [run.kind for run in line.runs] == [*["input"] * 4, "update", "input"]


async def test_a_graph_that_stopped_before_a_node_still_stands_there(async_database: Database) -> None:
    saver = await async_database.raw()
    app = graph(saver, interrupt_before=["last"])
    await app.ainvoke({"messages": talk(2)}, config())
    assert (await app.aget_state(config())).next == ("last",)
    await saver.acompact_thread("t", keep_messages=1)
    assert (await app.aget_state(config())).next == ("last",)
    done = await app.ainvoke(None, config())
    assert (done["topic"], len(done["messages"])) == ("seen 9", 2)


async def test_a_question_to_a_human_is_not_lost(async_database: Database) -> None:
    saver = await async_database.raw()

    def ask(state: Chat) -> Any:
        return {"messages": [AIMessage(interrupt("?"))]}

    app = StateGraph(Chat).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=saver)
    await app.ainvoke({"messages": talk(2)}, config())
    with pytest.raises(ConflictError, match="question"):
        await saver.acompact_thread("t", keep_messages=1)
    done = await app.ainvoke(Command(resume="yes"), config())
    assert done["messages"][-1].content == "yes"
    assert (await saver.acompact_thread("t", keep_messages=1)).kept == 2

"""A chat: messages that are added, edited and removed."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from tests.graphs.comparing import Twins


def chat(saver: Any) -> Any:
    """Answers, obeys `edit` and `forget`, and cuts the chat down when it gets long."""

    def answer(state: MessagesState) -> Any:
        messages = state["messages"]
        said = messages[-1].content
        if said == "edit":
            return {
                "messages": [AIMessage("edited", id=messages[1].id), HumanMessage("edit, please", id=messages[-1].id)]
            }
        if said == "forget":
            return {"messages": [RemoveMessage(id=message.id) for message in messages[1:-1:2]]}
        if said == "forget all":
            return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), AIMessage("who?", id="fresh")]}
        return {"messages": [AIMessage(f"you said {said} " * 30, id=f"a{len(messages)}")]}

    def trim(state: MessagesState) -> Any:
        return {"messages": [RemoveMessage(id=message.id) for message in state["messages"][:-8]]}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_node("trim", trim)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", "trim")
    builder.add_edge("trim", END)
    return builder.compile(checkpointer=saver)


def said(text: str, number: int) -> Any:
    return {"messages": [HumanMessage(text, id=f"h{number}")]}


async def test_a_chat_with_edits_and_removals(twins: Twins) -> None:
    await twins.start(chat)
    for number, text in enumerate(("hi", "more", "edit", "then", "forget", "again", "forget all", "and", "on")):
        await twins.invoke(said(text, number))


async def test_messages_without_ids(twins: Twins) -> None:
    await twins.start(chat)
    await twins.invoke({"messages": ["plain text", ("user", "a pair"), {"role": "ai", "content": "a dict"}]})
    await twins.invoke({"messages": "one"})


async def test_messages_of_every_kind(twins: Twins) -> None:
    await twins.start(chat)
    call = {"name": "look", "args": {"at": [1, {"deep": None}]}, "id": "c1", "type": "tool_call"}
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    messages = [
        HumanMessage([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "data:,x"}}], id="1"),
        AIMessage("", id="2", tool_calls=[call], usage_metadata=usage, response_metadata={"model": "m"}),
        ToolMessage("result", tool_call_id="c1", id="3", artifact={"raw": [1, 2]}, status="error"),
        AIMessage("done", id="4", name="ada", additional_kwargs={"reasoning": "because"}),
    ]
    await twins.invoke({"messages": messages})
    await twins.invoke(said("next", 5))


async def test_an_update_from_outside_edits_and_removes(twins: Twins) -> None:
    await twins.start(chat)
    await twins.invoke(said("hi", 1))
    await twins.update({"messages": [HumanMessage("hi, corrected", id="h1")]})
    await twins.update({"messages": [RemoveMessage(id="a1")]}, as_node="answer")
    await twins.invoke(None)
    await twins.invoke(said("on", 2))

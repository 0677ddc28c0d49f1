"""The prebuilt agent: a model that calls tools, in turns, with a human who approves."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from langgraph.types import Command, interrupt

from tests.graphs.comparing import Twins

pytestmark = pytest.mark.filterwarnings("ignore:create_react_agent has been moved")


class FakeModel(BaseChatModel):
    """Calls what the last message names, and repeats what the tools say."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **kwargs: Any) -> FakeModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        last, number = messages[-1], len(messages)
        usage = {"input_tokens": number, "output_tokens": 1, "total_tokens": number + 1}
        if isinstance(last, ToolMessage):
            reply = AIMessage(f"the tool says {last.content}", id=f"m{number}", usage_metadata=usage)
        else:
            names = str(last.content).split()
            calls = [
                {"name": name, "args": {"city": f"city {i}"}, "id": f"{number}-{i}"} for i, name in enumerate(names)
            ]
            reply = AIMessage("", id=f"m{number}", tool_calls=calls, usage_metadata=usage)
        return ChatResult(generations=[ChatGeneration(message=reply)])


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"{city}: sunny" * 20


@tool
def book(city: str) -> str:
    """Book a trip, if a human agrees."""
    return f"booked {city}" if interrupt({"book": city}) == "yes" else "not booked"


@tool
def broken(city: str) -> str:
    """Never works."""
    raise ValueError(f"no {city}")


def agent(saver: Any) -> Any:
    return create_react_agent(FakeModel(), [weather, book, broken], checkpointer=saver, prompt="You are a fake.")


def say(text: str, number: int) -> Any:
    return {"messages": [{"role": "user", "content": text, "id": f"u{number}"}]}


async def test_an_agent_over_several_turns(twins: Twins) -> None:
    await twins.start(agent)
    for number, text in enumerate(("weather", "weather weather", "weather")):
        await twins.invoke(say(text, number), ordered=False)
    assert len((await twins.state()).values["messages"]) == 13


async def test_a_tool_that_asks_a_human(twins: Twins) -> None:
    await twins.start(agent)
    await twins.invoke(say("book", 1), ordered=False)
    assert (await twins.state()).interrupts[0].value == {"book": "city 0"}
    await twins.invoke(Command(resume="yes"), ordered=False)
    await twins.invoke(say("book", 2), ordered=False)
    await twins.invoke(Command(resume="no"), ordered=False)
    texts = [message.content for message in (await twins.state()).values["messages"]]
    assert "booked city 0" in texts
    assert "not booked" in texts


async def test_a_tool_that_fails(twins: Twins) -> None:
    await twins.start(agent)
    said = await twins.invoke(say("broken", 1), ordered=False)
    assert "no city 0" in repr(said)
    await twins.invoke(say("weather", 2), ordered=False)


async def test_a_human_edits_what_the_agent_wants_to_do(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        return create_react_agent(FakeModel(), [weather], checkpointer=saver, interrupt_before=["tools"])

    await twins.start(build)
    await twins.invoke(say("weather", 1), ordered=False)
    call = {"name": "weather", "args": {"city": "corrected"}, "id": "1-0"}
    await twins.update({"messages": [AIMessage("", id="m1", tool_calls=[call])]})
    await twins.invoke(None, ordered=False)
    assert "corrected: sunny" in (await twins.state()).values["messages"][-1].content

"""Whatever users can put in, in whatever place: none of it is found in what is stored."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import SecretStr
from typing_extensions import TypedDict

from stepvault.checkpointers._effects import Effects
from stepvault.checkpointers._inbox import Inbox
from stepvault.errors import ValueNotSerializableError
from tests.contract.building import config, put
from tests.contract.matrix import Database

Marker = Callable[[str], str]


class State(TypedDict, total=False):
    log: Annotated[list[Any], operator.add]
    text: str


class Places:
    """Markers by where they were put."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self.texts: dict[str, str] = {}

    def __call__(self, place: str) -> str:
        return self.texts.setdefault(place, self._marker(place))

    def found_in(self, content: bytes) -> list[str]:
        """The places whose marker is there, as text, by its random part, or as hex digits of its bytes."""
        found = []
        for place, text in self.texts.items():
            digits = text.rpartition("-")[2]
            forms = (text.encode(), digits.encode(), bytes.fromhex(digits), digits.encode().hex().encode())
            if any(form in content for form in forms):
                found.append(place)
        return found


async def test_nothing_that_users_put_in_is_found(database: Database, marker: Marker) -> None:
    saver = await database.saver(ttl={"default_ttl": 60}, interrupt_deadline=5)
    at = Places(marker)
    thread = at("thread id")
    first = await put(
        saver,
        {
            "small": at("small value"),
            "list": [{"role": "user", "content": at("list item") * 20}],
            "dict": {at("dict key"): {"nested": [at("nested value")] * 9} for _ in range(1)},
            "long": at("long text") * 1000,
            at("channel name"): 1,
            "bytes": at("bytes").encode(),
        },
        at=config(thread, user_id=at("subject")),
        metadata={at("metadata key"): 1, "user": at("metadata value"), "deep": {"a": at("deep metadata")}},
    )
    writes = [("small", at("write")), ("long", at("long write") * 500), ("__error__", ValueError(at("error")))]
    await saver.aput_writes(first, writes, "task", at("task path"))
    await saver.atag(first, at("tag"))
    await saver.acopy_thread(thread, at("copied thread"))

    assert at.found_in(database.content()) == []
    everything = [entry async for entry in saver.alist(None, filter={"user": at("metadata value")})]
    assert {entry.config["configurable"]["thread_id"] for entry in everything} == {thread, at("copied thread")}
    assert await saver.atags(thread) == {at("tag"): first["configurable"]["checkpoint_id"]}
    (named,) = [info for info in await saver.athreads() if info.thread_id == thread]
    assert named.subjects in ((), (at("subject"),))


async def test_nothing_of_a_graph_with_questions_effects_and_failures_is_found(
    database: Database, marker: Marker
) -> None:
    saver = await database.raw(unknown_types="raw")
    inbox, effects, at = Inbox(saver), Effects(saver), Places(marker)

    async def ask(state: State) -> State:
        answer = interrupt({"question": at("question")})
        paid = await effects.aonce(at("effect name"), lambda amount: at("effect result"), at("effect argument"))
        return {"log": [answer, paid]}

    async def fail(state: State) -> State:
        raise RuntimeError(at("failure"))

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("fail", fail)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "fail")
    graph = builder.compile(checkpointer=saver)
    thread = {"configurable": {"thread_id": at("thread id"), "user_id": at("subject")}}
    await graph.ainvoke({"log": [at("input")], "text": at("input text") * 100}, thread)
    (asked,) = await inbox.alist()
    await inbox.aamend(asked.id, default=at("default"), external_ref=at("reference"))
    assert at.found_in(database.content()) == []
    (again,) = await inbox.alist(external_ref=at("reference"))
    decision = await inbox.adecide(again.id, at("answer"), by=at("decider"), note=at("remark"))
    assert at.found_in(database.content()) == []
    with pytest.raises(RuntimeError, match=at("failure")):
        await graph.ainvoke(decision.command, {**decision.config, **thread})

    assert at.found_in(database.content()) == []
    assert set(at.texts) >= {"question", "effect name", "effect result", "effect argument", "answer", "failure"}
    state = await graph.aget_state(thread)
    assert at("answer") in state.values["log"]
    assert [i.value["question"] for i in await inbox.alist(status=None)] == [at("question")]


async def test_two_threads_with_the_same_content_share_no_bytes(database: Database) -> None:
    saver = await database.saver()
    for thread in ("one", "two"):
        await put(saver, {"text": "the same " * 400}, at=config(thread), id="1ef00000-0000-6000-8000-000000000000")
    await asyncio.sleep(0)
    bodies = [entry async for entry in saver.alist(None)]
    assert len(bodies) == 2
    assert bodies[0].checkpoint == bodies[1].checkpoint


async def test_the_scan_finds_what_is_not_sealed(database: Database, marker: Marker) -> None:
    saver = await database.saver(keyring=None, compression=None)
    at = Places(marker)
    first = await put(saver, {"value": at("value")}, at=config(at("thread id")), metadata={"key": at("metadata")})
    await saver.aput_writes(first, [("value", at("write"))], "task")
    await saver.atag(first, at("tag"))

    assert at.found_in(database.content()) == ["value", "thread id", "metadata", "write", "tag"]


async def test_secrets_are_stored_where_they_are_sealed(database: Database, marker: Marker) -> None:
    secret = marker("secret")
    stored = await put(saver := await database.saver(), {"key": {"of": [SecretStr(secret)]}})
    values = (await saver.aget_tuple(stored)).checkpoint["channel_values"]
    assert values["key"]["of"][0].get_secret_value() == secret
    assert secret.encode() not in database.content()
    strict = await database.saver(secrets="refuse")
    with pytest.raises(ValueNotSerializableError, match=r"'key'.*a secret"):
        await put(strict, {"key": SecretStr(secret)}, at=config("other"))

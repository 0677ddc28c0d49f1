"""A person leaves threads that stay: nothing of them is left in rows or files, and the graphs go on."""

from __future__ import annotations

import base64
import random
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from stepvault import Vault
from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._inbox import Inbox
from stepvault.checkpointers._subjects import Subjects
from stepvault.errors import SubjectErasedError, ThreadGoneError
from tests.contract.building import config, put, whole
from tests.contract.erasure.test_erasure import erasure_of
from tests.contract.matrix import Database

WHO = "ann@example.com"


class Markers:
    """Text that a scan of the raw database sees, as it cannot be compressed."""

    def __init__(self) -> None:
        self._dice = random.Random(11)
        self.made: list[bytes] = []

    def __call__(self, size: int = 45) -> str:
        made = base64.b64encode(self._dice.randbytes(size)).decode().rstrip("=").replace("/", "x").replace("+", "y")
        self.made.append(made[:32].encode())
        return made

    def left(self, database: Database) -> list[bytes]:
        content = database.content()
        return [marker for marker in self.made if marker in content]


@dataclass
class Customer:
    """What an application keeps of a person."""

    name: str
    age: int
    plan: str = "gold"


class State(MessagesState):
    email: str
    customer: Any
    notes: Annotated[list[dict[str, Any]], add]
    steps: int


def graph_for(saver: Any, markers: Markers) -> Any:
    def talk(state: State) -> Any:
        call = {"name": "mail", "args": {"to": markers(), "n": 3}, "id": "call-1"}
        said = AIMessage(markers(600), tool_calls=[call], additional_kwargs={"raw": markers()})
        return {"messages": [said], "notes": [{"name": markers(), "score": 3}], "steps": state["steps"] + 1}

    def ask(state: State) -> Any:
        answer = interrupt({"question": "Go on?", "email": state["email"], "about": WHO})
        return {"messages": [("ai", f"answer {answer}")], "steps": state["steps"] + 1}

    graph = StateGraph(State).add_node("talk", talk).add_node("ask", ask).add_edge(START, "talk")
    return graph.add_edge("talk", "ask").compile(checkpointer=saver)


FIELDS = ("email", "customer.name", "notes.name", "long")


async def test_a_graph_goes_on_without_the_person(async_database: Database) -> None:
    saver, markers = await async_database.raw(), Markers()
    graph = graph_for(saver, markers)
    at = config("shared", user_id=[WHO, "bob"])
    at["metadata"] = {"customer_email": WHO, "email": markers()}
    for n in range(3):
        made = {
            "messages": [("user", markers(500)), {"role": "user", "content": markers()}],
            "email": markers(), "customer": Customer(markers(), 40), "notes": [{"name": markers(), "score": n}],
            "steps": n,
        }  # fmt: skip
        await graph.ainvoke(made, at)
        await graph.ainvoke(Command(resume={"ok": True, "email": markers()}), at) if n < 2 else None
    before = await whole(saver, "shared")
    inbox, async_names = Inbox(saver), async_database.under_async_names(saver)
    (waiting,) = (await inbox.alist()).interrupts
    await inbox.aamend(waiting.id, external_ref=f"slack/{WHO}")
    erasure = erasure_of(async_names, personal_fields=FIELDS)
    request = await erasure.aerase(WHO, shared="anonymise")
    assert request.counts == {"anonymised": 1}
    assert request.receipt is not None
    assert request.receipt["receipt"]["shared"] == "anonymise"
    assert [thread.subjects for thread in (await saver.athreads()).threads] == [("bob",)]

    after = await whole(saver, "shared")
    assert [entry.checkpoint["id"] for entry in after] == [entry.checkpoint["id"] for entry in before]
    assert WHO not in repr(after)
    assert not any(marker.decode() in repr(after) for marker in markers.made)
    values = after[0].checkpoint["channel_values"]
    assert values["customer"] == Customer("[erased]", 40)
    assert [note["score"] for note in values["notes"]] == [n for k in range(3) for n in (k, 3)]
    assert {message.content for message in values["messages"]} == {"[erased]"}
    (waiting,) = (await inbox.alist(external_ref="slack/[erased]")).interrupts
    assert waiting.value == {"question": "Go on?", "email": "[erased]", "about": "[erased]"}
    done = await graph.ainvoke(Command(resume="yes"), config("shared", user_id="bob"))
    assert done["messages"][-1].content == "answer yes"
    assert len(done["messages"]) == 12
    assert markers.left(async_database) == []
    with pytest.raises(SubjectErasedError):
        await graph.ainvoke(Command(resume="yes"), at)


async def test_threads_of_ones_own_stay_too_if_asked_for(database: Database) -> None:
    saver, markers = await database.saver(), Markers()
    long = markers(9_000)
    at = await put(saver, {"long": long, "blob": WHO * 3_000, "n": 1}, at=config("hers", user_id=WHO))
    at = await put(saver, {"long": long + markers(9_000), "blob": WHO, "n": 2}, at=at, metadata={"email": markers()})
    await saver.aput_writes(at, [("long", markers(9_000)), ("n", 3)], "task")
    await put(saver, {"n": 1}, at=config("bob's", user_id="bob"))
    request = await erasure_of(saver, personal_fields={"long": "gone", "email": None}).aanonymise(WHO)
    assert request.counts == {"anonymised": 1}
    first, second = await whole(saver, "hers")
    assert first.checkpoint["channel_values"] == {"long": "gone", "blob": "[erased]", "n": 2}
    assert first.pending_writes == [("task", "long", "gone"), ("task", "n", 3)]
    assert first.metadata["email"] == "[erased]"  # type: ignore[typeddict-item]
    assert second.checkpoint["channel_values"]["n"] == 1
    assert markers.left(database) == []
    assert {thread.thread_id: thread.subjects for thread in (await saver.athreads()).threads} == {
        "hers": (), "bob's": ("bob",),
    }  # fmt: skip
    found = [entry async for entry in saver.alist(None, filter={"user_id": WHO})]
    assert found == []


async def test_a_run_at_work_does_not_bring_them_back(async_database: Database) -> None:
    saver = await async_database.raw()
    erasure = erasure_of(async_database.under_async_names(saver))

    async def node(state: MessagesState) -> Any:
        await erasure.aerase("ann", shared="anonymise")
        return {"messages": [("ai", "x")]}

    graph = StateGraph(MessagesState).add_node("n", node).add_edge(START, "n").compile(checkpointer=saver)
    await saver.aput(config("t", user_id="ann"), *_first())
    with pytest.raises(ThreadGoneError):
        await graph.ainvoke({"messages": [HumanMessage("of ann")]}, config("t", user_id="bob"))
    assert "of ann" not in repr(await whole(saver, "t"))


def _first() -> Any:
    from tests.contract.building import checkpoint

    made = checkpoint({})
    return made, {"source": "input", "step": -1}, {}


async def test_what_takes_a_fields_place_can_be_said(database: Database) -> None:
    saver = await database.saver()
    await put(saver, {"m": Customer("Ann", 40)}, at=config("hers", user_id="ann"))
    await erasure_of(saver, personal_fields={"name": "Nobody", "age": 18}).aanonymise("ann")
    assert (await whole(saver, "hers"))[0].checkpoint["channel_values"]["m"] == Customer("Nobody", 18)


def test_recorded_effects_lose_the_person() -> None:
    with Vault.open("memory://", personal_fields=["email"]) as vault:

        def pay(state: MessagesState) -> Any:
            vault.effects.once("mail", lambda to: {"email": to, "ok": 1}, "secretperson")
            with pytest.raises(ZeroDivisionError):
                vault.effects.once("broken", lambda to: 1 / 0, "secretperson")
            return {"messages": [("ai", "x")]}

        graph = StateGraph(MessagesState).add_node("pay", pay).add_edge(START, "pay").compile(vault.checkpointer)
        graph.invoke({"messages": [("user", "secretperson")]}, config("hers", user_id="ann"))
        vault.erasure.anonymise("ann")
        (doubtful,) = vault.effects.in_doubt()
        assert (doubtful.name, doubtful.args, doubtful.kwargs) == ("broken", None, None)
        assert b"secretperson" not in vault.checkpointer._driver.connection().serialize()


WORDS = ("step", "source", "loop", "content", "role", "ask", "left", "right", "join", "string", "object", "type", "id")


async def test_people_called_like_what_steers_a_graph(async_database: Database) -> None:
    """And fields of theirs that are called so."""
    saver = await async_database.raw()
    ok = {"type": "string", "description": "of step"}
    schema = {"type": "object", "properties": {"ok": ok}, "required": ["ok"]}

    def ask(state: Any) -> Any:
        return {"notes": [interrupt({"source": "web", "of": "loop"}, response_schema=schema)["ok"]]}

    graph = StateGraph(State).add_node("ask", ask).add_node("left", lambda _: {"steps": 1})
    graph.add_node("right", lambda _: {"notes": [interrupt("?")]}).add_node("all", lambda _: {"notes": ["done"]})
    graph.add_edge(START, "left").add_edge(START, "right").add_edge(["left", "right"], "all")
    graph.add_conditional_edges("all", lambda _: [Send("ask", {"n": n}) for n in (1, 2)], ["ask"])
    app = graph.compile(checkpointer=saver)
    await Subjects(saver).alink(*WORDS)
    erasure = Erasure(saver, personal_fields=["source", "step", "id", "node", "type"])

    async def resumed(thread: str, answer: Any) -> Any:
        state = await app.aget_state(config(thread))
        assert state.metadata is not None
        assert state.metadata["source"] == "loop"
        answers = {asked.id: answer for asked in state.interrupts}
        return await app.ainvoke(Command(resume=answers), config(thread, user_id=["bob", *them]))

    them: Sequence[str] = WORDS
    for thread in ("joins", "sends"):  # one waits beside what it is to be joined with, one in two tasks
        first = {
            "messages": [{"role": "user", "content": "hi"}],
            "customer": {"role": "x", "content": "y"},
            "notes": [],
        }
        await app.ainvoke(first, config(thread, user_id=["bob", *WORDS]))
    await resumed("sends", "yes")
    await erasure.aerase("step", shared="anonymise")
    them = ()
    asked = (await Inbox(saver).alist(thread_id="sends")).interrupts
    assert [(one.value, one.response_schema) for one in asked] == [
        (
            {"[erased]": "[erased]", "of": "[erased]"},
            {**schema, "properties": {"ok": {**ok, "description": "of [erased]"}}},
        )
    ] * 2
    assert len((await resumed("joins", "yes"))["__interrupt__"]) == 2
    for thread in ("joins", "sends"):
        assert (await resumed(thread, {"ok": "fine"}))["notes"] == ["yes", "done", "fine", "fine"]

"""Memory in compiled graphs: written in one thread, read in another, and it remembers where it came from."""

from __future__ import annotations

from typing import Annotated, Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore
from typing_extensions import TypedDict


class State(TypedDict):
    said: str
    known: Annotated[list[str], lambda old, new: new]


def graph_of(store: Any) -> Any:
    async def remember(state: State, config: RunnableConfig, *, store: BaseStore) -> Any:
        user = config["configurable"]["user_id"]
        known = [item.value["text"] for item in await store.asearch(("memories", user))]
        await store.aput(("memories", user), state["said"][:20], {"text": state["said"]})
        return {"known": known}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    return builder.compile(checkpointer=InMemorySaver(), store=store)


def sync_graph_of(store: Any) -> Any:
    def remember(state: State, config: RunnableConfig, *, store: BaseStore) -> Any:
        user = config["configurable"]["user_id"]
        known = [item.value["text"] for item in store.search(("memories", user))]
        store.put(("memories", user), state["said"][:20], {"text": state["said"]})
        return {"known": known}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", END)
    return builder.compile(checkpointer=InMemorySaver(), store=store)


async def test_what_one_thread_writes_another_reads(stores: Any) -> None:
    store = stores.raw()
    await stores.named(store).asetup()
    graph = graph_of(store) if stores.mode == "async" else sync_graph_of(store)

    async def say(thread: str, user: str, text: str) -> list[str]:
        config = {"configurable": {"thread_id": thread, "user_id": user}}
        if stores.mode == "async":
            return (await graph.ainvoke({"said": text, "known": []}, config))["known"]
        return graph.invoke({"said": text, "known": []}, config)["known"]

    assert await say("t1", "ada", "I like tea") == []
    assert await say("t2", "ada", "I like chess") == ["I like tea"]
    assert await say("t3", "bob", "I like rain") == []
    assert await say("t1", "ada", "And you?") == ["I like chess", "I like tea"]
    (tea,) = await stores.named(store).asearch(("memories", "ada"), filter={"text": "I like tea"})
    assert tea.source.thread_id == "t1"
    steps = list(graph.checkpointer.list({"configurable": {"thread_id": "t1"}}))
    assert tea.source.checkpoint_id in {step.checkpoint["id"] for step in steps}
    item = await stores.named(store).aget(("memories", "ada"), "I like tea")
    assert item.source == tea.source


async def test_what_no_run_wrote_has_no_source(store: Any) -> None:
    await store.aput(("a",), "k", {"v": 1})
    assert (await store.aget(("a",), "k")).source is None
    assert (await store.asearch(("a",)))[0].source is None

"""What an agent learns in one conversation, it knows in the next: a store beside the checkpointer.

    python examples/memory_across_threads.py

Two users, three conversations, one SQLite file. Memories live in namespaces of their user, remember which
conversation they came from, expire if they are to, and go with one call.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore

from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.stores.sqlite import SqliteStore


def assistant(state: MessagesState, config: RunnableConfig, *, store: BaseStore) -> dict[str, list[AIMessage]]:
    """Stands in for a model: remembers what it is told to, and says what it knows."""
    memories = ("memories", config["configurable"]["user_id"])
    said = state["messages"][-1].text
    if said.startswith("Remember: "):
        fact = said.removeprefix("Remember: ")
        store.put(memories, key=fact.split()[0].lower(), value={"fact": fact, "kind": "preference"})
        return {"messages": [AIMessage("I will.")]}
    known = store.search(memories, filter={"kind": "preference"})
    return {"messages": [AIMessage("; ".join(item.value["fact"] for item in known) or "Nothing yet.")]}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "app.db")  # checkpoints and memories can share a file
        with SqliteSaver.from_conn_string(path) as saver, SqliteStore.from_conn_string(path) as store:
            builder = StateGraph(MessagesState)
            builder.add_node("assistant", assistant)
            builder.add_edge(START, "assistant")
            graph = builder.compile(checkpointer=saver, store=store)

            def say(thread: str, user: str, text: str) -> None:
                config = {"configurable": {"thread_id": thread, "user_id": user}}
                answer = graph.invoke({"messages": [("user", text)]}, config)["messages"][-1].text
                print(f"[{thread}] {user}: {text}\n[{thread}] assistant: {answer}")

            say("monday", "ada", "Remember: tea, never coffee")
            say("monday", "ada", "Remember: chess on Fridays")
            say("tuesday", "ada", "What do you know about me?")
            say("tuesday-2", "bob", "What do you know about me?")

            (tea,) = store.search(("memories", "ada"), filter={"fact": "tea, never coffee"})
            assert tea.source is not None
            print(f"The tea was mentioned in thread {tea.source.thread_id!r}.")

            store.put(("memories", "ada"), "offer", {"fact": "has a voucher", "kind": "offer"}, ttl=60 * 24)
            print(f"{store.list_namespaces(prefix=('memories',))} hold {len(store.search(('memories',)))} memories.")
            print(f"Ada leaves: {store.delete_namespace(('memories', 'ada')).items} memories deleted.")
            say("wednesday", "ada", "What do you know about me?")


if __name__ == "__main__":
    main()

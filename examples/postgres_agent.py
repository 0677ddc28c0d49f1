"""An agent on Postgres: one saver for threads and event loops, and a conversation that a second process continues.

    python examples/postgres_agent.py postgresql://user:password@localhost:5432/app

or with the URL in STEPVAULT_URL. It keeps its tables in a schema of its own and removes them at the end.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import psycopg
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.graph import START, MessagesState, StateGraph

from stepvault.checkpointers.postgres import PostgresSaver

SCHEMA = "stepvault_example"


def answer(state: MessagesState) -> dict[str, list[AnyMessage]]:
    """Stands in for a model: it shows that it remembers the whole conversation."""
    said = [message.text for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage(f"You have told me {len(said)} things, the first was {said[0]!r}.")]}


def build(saver: PostgresSaver) -> Any:
    return StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile(checkpointer=saver)


def conversation(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


async def serve_many(saver: PostgresSaver) -> int:
    """A web server's day: many conversations at once over one pool."""
    agent = build(saver)
    asked = (agent.ainvoke({"messages": [("user", f"hello from {n}")]}, conversation(f"guest-{n}")) for n in range(20))
    answers = await asyncio.gather(*asked)
    return len(answers)


def main(url: str) -> None:
    with PostgresSaver.from_conn_string(url, schema=SCHEMA) as saver:
        saver.setup()  # once per deployment; here it creates the schema too
        build(saver).invoke({"messages": [("user", "I like tea")]}, conversation("ada"))

    # Another worker, another day: it shares nothing with the first but the URL.
    with PostgresSaver.from_conn_string(url, schema=SCHEMA) as saver:
        state = build(saver).invoke({"messages": [("user", "and rain")]}, conversation("ada"))
        print("Ada's agent:", state["messages"][-1].text)

    # The same class in an event loop; its pool belongs to the loop and is closed with it.
    async def evening() -> None:
        async with PostgresSaver.from_conn_string(url, schema=SCHEMA, pool_config={"max_size": 5}) as saver:
            print("served at once:", await serve_many(saver), "guests over at most 5 connections")

    asyncio.run(evening())

    with PostgresSaver.from_conn_string(url, schema=SCHEMA) as saver:
        history = list(saver.list(conversation("ada")))
        print("Ada's history:", len(history), "checkpoints; threads:", len(saver.threads()))
        saver.delete_thread("ada")
        print("after deletion:", len(list(saver.list(conversation("ada")))), "checkpoints")

    with psycopg.connect(url) as connection:
        connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STEPVAULT_URL")
    if not address:
        sys.exit("Name a database: postgres_agent.py postgresql://user@localhost/app, or set STEPVAULT_URL.")
    main(address)

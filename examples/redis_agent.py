"""An agent whose memory is in Redis or Valkey: it pauses for a human, and another process could take over.

    python examples/redis_agent.py redis://localhost:6379/0

or with the URL in STEPVAULT_URL. It uses keys of its own prefix and removes what it stored.
"""

from __future__ import annotations

import os
import sys
from typing import TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt

from stepvault.checkpointers.redis import RedisSaver


class Refund(TypedDict, total=False):
    order: str
    amount: float
    approved: bool
    log: list[str]


def look_up(state: Refund) -> Refund:
    return {"amount": 89.0, "log": [f"order {state['order']}: 89.00 EUR"]}


def ask(state: Refund) -> Refund:
    answer = interrupt({"question": f"Refund {state['amount']:.2f} EUR?"})
    return {"approved": answer == "yes"}


def settle(state: Refund) -> Refund:
    outcome = "refunded" if state["approved"] else "refused"
    return {"log": [*state["log"], outcome]}


def build() -> StateGraph:
    steps = StateGraph(Refund)
    steps.add_node("look_up", look_up)
    steps.add_node("ask", ask)
    steps.add_node("settle", settle)
    steps.add_edge(START, "look_up")
    steps.add_edge("look_up", "ask")
    steps.add_edge("ask", "settle")
    steps.add_edge("settle", END)
    return steps


def main(url: str) -> None:
    thread = {"configurable": {"thread_id": "refund-1001"}}

    with RedisSaver.from_conn_string(url, prefix="stepvault-example") as saver:
        saver.setup()
        agent = build().compile(checkpointer=saver)
        waiting = agent.invoke({"order": "1001"}, thread)
        print("asks:", waiting["__interrupt__"][0].value["question"])

    # Minutes or days later, in this process or another one: nothing but the URL is needed to go on.
    with RedisSaver.from_conn_string(url, prefix="stepvault-example") as saver:
        for info in saver.threads():
            print("waits:" if info.status == "interrupted" else "rests:", info.thread_id)
        agent = build().compile(checkpointer=saver)
        done = agent.invoke(Command(resume="yes"), thread)
        print("ends:", ", ".join(done["log"]))
        print("history:", len(list(agent.get_state_history(thread))), "checkpoints")
        saver.delete_thread("refund-1001")


if __name__ == "__main__":
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("STEPVAULT_URL")
    if not address:
        sys.exit("Name a server: redis_agent.py redis://localhost:6379/0, or set STEPVAULT_URL.")
    main(address)

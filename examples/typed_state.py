"""A state that changes over three versions of an app, while a thread waits for a human.

    python examples/typed_state.py

Version 1 of a claims app asks a human and stops. Version 2 renames a channel, version 3 turns an amount into money,
renames the node and checks the state. Before the deploy, `verify` says whether version 3 can go on with every thread;
then the question that version 1 asked is answered under version 3.
"""

from __future__ import annotations

import operator
import tempfile
from pathlib import Path
from typing import Annotated, Any

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from stepvault import Vault, register_type
from stepvault.errors import StateInvalidError

THREAD: Any = {"configurable": {"thread_id": "claim-17"}}


# -- Version 1


class StateV1(TypedDict, total=False):
    name: str
    amount: float
    log: Annotated[list[str], operator.add]


def build_v1(saver: Any) -> CompiledStateGraph:
    def ask(state: StateV1) -> Any:
        answer = interrupt(f"Pay {state['amount']:.2f} to {state['name']}?")
        return {"log": [f"paid: {answer}"]}

    graph = StateGraph(StateV1)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    return graph.compile(checkpointer=saver)


# -- Version 3: what became of it. Version 2 only renamed `name` to `customer`.


class Money(BaseModel):
    cents: int
    currency: str = "EUR"


class StateV3(BaseModel):
    customer: str
    amount: Money
    log: Annotated[list[str], operator.add] = []


register_type(Money, name="claims.Money")  # a class of `__main__` needs a name that other programs can find


def build_v3(saver: Any) -> CompiledStateGraph:
    def approve(state: StateV3) -> Any:
        answer = interrupt(f"Pay {state.amount.cents} cents to {state.customer}?")
        return {"log": [f"paid {state.amount.cents} {state.amount.currency} cents: {answer}"]}

    graph = StateGraph(StateV3)
    graph.add_node("approve", approve)
    graph.add_edge(START, "approve")
    return graph.compile(checkpointer=saver)


def rename_name(values: dict[str, Any]) -> dict[str, Any]:
    """From version 1 to 2. A migration also meets states in which a channel is not written yet."""
    if "name" in values:
        values["customer"] = values.pop("name")
    return values


def make_money(values: dict[str, Any]) -> dict[str, Any]:
    """From version 2 to 3."""
    if "amount" in values:
        values["amount"] = Money(cents=round(values["amount"] * 100))
    return values


V3: dict[str, Any] = {
    "state_version": 3,
    "state_migrations": {1: rename_name, 2: make_money},
    "state_schema": StateV3,
    "node_aliases": {"ask": "approve"},
}


# -- The story


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'claims.db'}"

        with Vault.open(url) as vault:
            asked = build_v1(vault.checkpointer).invoke({"name": "Ada", "amount": 89.0}, THREAD)
            print("version 1 asks:", asked["__interrupt__"][0].value)

        print("\nA deploy without node_aliases would lose the question. verify() says so before:")
        with Vault.open(url, **{**V3, "node_aliases": {}}) as vault:
            report = vault.verify(graph=build_v3(vault.checkpointer))
            print(report)

        with Vault.open(url, **V3) as vault:
            app = build_v3(vault.checkpointer)
            print("\nWith it:", vault.verify(graph=app))
            waiting = vault.inbox.list()[0]
            print(f"waits at {waiting.node!r}: {waiting.value}")
            decision = vault.inbox.decide(waiting.id, "yes", by="Grace")
            said = app.invoke(decision.command, decision.config)
            print("version 3 says:", said["log"][-1])

        with Vault.open(url) as vault:
            try:
                build_v1(vault.checkpointer).invoke({"log": []}, THREAD)
            except StateInvalidError as error:
                print("\nversion 1 is told:", error)


if __name__ == "__main__":
    main()

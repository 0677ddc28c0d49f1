"""A payment that happens once, although its process is killed in the middle (SIGKILL) and the run is resumed.

    python examples/payment_once.py

The first worker dies after the bank has taken the money and before anything could be stored. The second one does not
pay again: it is told that the payment is in doubt, with the key under which to ask the bank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, interrupt

from stepvault import Vault
from stepvault.errors import EffectInDoubtError

ORDER = {"configurable": {"thread_id": "order-17"}}


class State(TypedDict, total=False):
    cents: int
    receipt: dict[str, object]


class Bank:
    """Stands for a payment service: it remembers every charge by its idempotency key."""

    def __init__(self, folder: Path) -> None:
        self._book = folder / "bank.txt"

    def charge(self, key: str, cents: int) -> None:
        with self._book.open("a") as book:
            book.write(f"{key} {cents}\n")

    def charges(self) -> dict[str, int]:
        lines = self._book.read_text().splitlines() if self._book.exists() else []
        assert len(lines) == len({line.split()[0] for line in lines}), "charged twice"
        return {key: int(cents) for key, cents in map(str.split, lines)}


def shop(vault: Vault, bank: Bank, *, dies: bool) -> CompiledStateGraph:
    def charge(cents: int) -> dict[str, object]:
        bank.charge(vault.effects.key(), cents)
        if dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"paid": cents}

    def pay(state: State) -> State:
        interrupt(f"Pay {state['cents'] / 100:.2f} EUR?")
        return {"receipt": vault.effects.once("charge", charge, state["cents"])}

    return StateGraph(State).add_node("pay", pay).add_edge(START, "pay").compile(checkpointer=vault.checkpointer)


def first_worker(vault: Vault, bank: Bank) -> None:
    graph = shop(vault, bank, dies=True)
    graph.invoke({"cents": 8900}, ORDER)
    graph.invoke(Command(resume="yes"), ORDER)


def second_worker(vault: Vault, bank: Bank) -> None:
    graph = shop(vault, bank, dies=False)
    try:
        graph.invoke(None, ORDER)
    except EffectInDoubtError as exc:
        print(f"second worker: {str(exc).split(':')[0]}")
    (record,) = vault.effects.in_doubt()
    paid = bank.charges().get(record.key)
    print(f"second worker: the bank says that {record.key[:8]}... was charged {paid} cents")
    if paid is None:
        vault.effects.resolve(record.id, retry=True)
    else:
        vault.effects.resolve(record.id, result={"paid": paid})
    print(f"second worker: {graph.invoke(None, ORDER)['receipt']}, charges: {len(bank.charges())}")


def main() -> None:
    if len(sys.argv) == 2:
        with Vault.open(f"sqlite:///{sys.argv[1]}/shop.db") as vault:
            return first_worker(vault, Bank(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as name:
        died = subprocess.run([sys.executable, __file__, name], check=False)
        print(f"first worker: ended by signal {-died.returncode} in the middle of the payment")
        with Vault.open(f"sqlite:///{name}/shop.db") as vault:
            second_worker(vault, Bank(Path(name)))


if __name__ == "__main__":
    main()

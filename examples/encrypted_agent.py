"""An assistant whose database nobody can read without the keys: threads, memory, questions to humans, rotation.

python examples/encrypted_agent.py
"""

from __future__ import annotations

import operator
import tempfile
from pathlib import Path
from typing import Annotated

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

from stepvault import Vault
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError

SECRET = "patient 4711 is allergic to penicillin"


class State(TypedDict):
    messages: Annotated[list[str], operator.add]


def remember(state: State, runtime: Runtime) -> State:
    assert runtime.store is not None
    runtime.store.put(("patients", "4711"), "allergies", {"text": state["messages"][-1]})
    return {"messages": ["noted"]}


def confirm(state: State) -> State:
    return {"messages": [f"confirmed by {interrupt({'question': 'Correct?', 'about': state['messages'][0]})}"]}


def app(vault: Vault):  # type: ignore[no-untyped-def]
    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_node("confirm", confirm)
    builder.add_edge(START, "remember")
    builder.add_edge("remember", "confirm")
    builder.add_edge("confirm", END)
    return builder.compile(checkpointer=vault.checkpointer, store=vault.store)


def readable(folder: Path) -> bool:
    """Whether the secret can be found in any file."""
    return any(b"penicillin" in path.read_bytes() for path in folder.iterdir())


def main(folder: Path) -> None:
    url = f"sqlite:///{folder / 'app.db'}"
    keys = Path(folder.parent / f"{folder.name}.keys")  # apart from the data; in production, in a secret store
    Keyring.generate("2026-05").to_file(keys)
    at = {"configurable": {"thread_id": "visit 4711"}}

    with Vault.open(url, keyring=Keyring.from_file(keys), pseudonymise_ids=True) as vault:
        app(vault).invoke({"messages": [SECRET]}, at)
        (question,) = vault.inbox.list()
        print("The inbox asks about:", question.value["about"])
        done = app(vault).invoke(Command(resume="Dr. Ada"), at)
        print("The thread ends with:", done["messages"][-1])
        (found,) = vault.store.search(("patients",), query="penicillin")
        print("Memory is found by its words:", found.value["text"])
    print("Readable in the files:", readable(folder))

    try:
        with Vault.open(url) as vault:
            vault.threads()
    except ConfigurationError as exc:
        print("Without keys:", exc)

    fresh = Keyring.from_file(keys).rotated("2026-06")
    fresh.to_file(keys, overwrite=True)  # 1. deploy the new ring everywhere
    with Vault.open(url, keyring=Keyring.from_file(keys), pseudonymise_ids=True) as vault:
        done = vault.keys.rotate(destroy_old=True)  # 2. rewrap; no payload is touched
        print(f"Rotated {done.rewrapped} data keys; destroy {', '.join(done.destroyable)} where it is kept")
    fresh.without("2026-05").to_file(keys, overwrite=True)  # 3. destroy the old one
    with Vault.open(url, keyring=Keyring.from_file(keys), pseudonymise_ids=True) as vault:
        print("Threads with the new key alone:", [thread.thread_id for thread in vault.threads()])
    keys.unlink()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))

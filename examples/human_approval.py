"""Approvals across processes: an agent asks and ends, a person decides later, a third process carries on.

    python examples/human_approval.py

Each role is a process of its own; all they share is the database file. What a person decides is recorded once and kept
until a run has used it, so any of them may crash in between.
"""

from __future__ import annotations

import operator
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt

from stepvault import Vault
from stepvault.errors import AlreadyDecidedError

MAILS = {"ada": "Refund 89 EUR", "bob": "Refund 9000 EUR", "eve": "Delete my account"}
VERDICTS = {
    "ada": {"action": "approve"},
    "bob": {"action": "edit", "text": "Refund 900 EUR"},
    "eve": {"action": "reject"},
}
SCHEMA = {
    "type": "object",
    "required": ["action"],
    "properties": {"action": {"enum": ["approve", "edit", "reject"]}, "text": {"type": "string"}},
}


class State(TypedDict, total=False):
    draft: str
    sent: Annotated[list[str], operator.add]


def review(state: State) -> State:
    answer = interrupt({"question": "Send this?", "draft": state["draft"]}, response_schema=SCHEMA)
    if answer["action"] == "reject":
        return {"sent": []}
    return {"sent": [answer.get("text", state["draft"])]}


def graph_of(vault: Vault) -> CompiledStateGraph:
    builder = StateGraph(State).add_node("review", review).add_edge(START, "review")
    return builder.compile(checkpointer=vault.checkpointer)


def ask(vault: Vault) -> None:
    graph = graph_of(vault)
    for customer, draft in MAILS.items():
        graph.invoke({"draft": draft}, {"configurable": {"thread_id": f"mail-{customer}", "user_id": customer}})
    print(f"agent: asked {len(MAILS)} questions and ended")


def decide(vault: Vault) -> None:
    for question in vault.inbox.list():
        verdict = VERDICTS[str(question.subject)]
        print(f"person: {question.value['draft']!r} for {question.subject}: {verdict['action']}")
        vault.inbox.decide(question.id, verdict, by="grace")
        try:
            vault.inbox.decide(question.id, {"action": "approve"}, by="mallory")
        except AlreadyDecidedError as exc:
            print(f"        a second opinion is refused: {exc.by} was first")


def carry_on(vault: Vault) -> None:
    graph = graph_of(vault)
    for question in vault.inbox.list(status="decided"):
        assert question.decision is not None
        result = graph.invoke(question.decision.command, question.decision.config)
        print(f"worker: {question.thread_id}: sent {result['sent']}")
    print(f"worker: {len(vault.inbox.list(status='decided'))} decisions left")


ROLES = {"ask": ask, "decide": decide, "carry-on": carry_on}


def main() -> None:
    if len(sys.argv) == 3:
        with Vault.open(f"sqlite:///{sys.argv[2]}") as vault:
            return ROLES[sys.argv[1]](vault)
    with tempfile.TemporaryDirectory() as folder:
        for role in ROLES:
            subprocess.run([sys.executable, __file__, role, str(Path(folder) / "mail.db")], check=True)


if __name__ == "__main__":
    main()

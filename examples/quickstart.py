"""An agent that asks a human before it acts, and outlives its own process.

    python examples/quickstart.py                  the whole story, in a temporary folder
    python examples/quickstart.py --path demo.db   the same, and the file is kept

Five acts: one process runs the agent until it needs a human, and exits. A second process finds the question
in the file, answers it, and the agent finishes. Then the history of the conversation, another ending for it,
and its price in bytes. The model is a stand-in that needs no key; the rest is what an application would use.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, interrupt

from stepvault import Vault

THREAD = {"configurable": {"thread_id": "order-4711"}}


# -- The agent: nothing here knows where its state is kept.


@tool
def find_order(order: str) -> str:
    """Look an order up."""
    return f"Order {order}: one coffee grinder, 89.00 EUR, delivered"


@tool
def refund(order: str, amount: float) -> str:
    """Give the money back, if a human agrees."""
    answer = interrupt({"question": f"Refund {amount:.2f} EUR for order {order}?"})
    if not answer["approved"]:
        return f"Refused by {answer['by']}"
    return f"Refunded {amount:.2f} EUR, approved by {answer['by']}"


class StandInModel(BaseChatModel):
    """Says what a real model would; it looks at the last message only."""

    @property
    def _llm_type(self) -> str:
        return "stand-in"

    def bind_tools(self, tools: Any, **kwargs: Any) -> StandInModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages[-1]))])

    def _reply(self, last: BaseMessage) -> AIMessage:
        if isinstance(last, HumanMessage):
            return _calling("find_order", order="4711")
        if isinstance(last, ToolMessage) and last.name == "find_order":
            return _calling("refund", order="4711", amount=89.0)
        if "approved" in last.text:
            return AIMessage("Your 89.00 EUR are on their way back to you.")
        return AIMessage("We cannot refund this order, but we will repair the grinder.")


def _calling(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{name}"}])


def build_agent(saver: Any) -> CompiledStateGraph:
    tools = [find_order, refund]
    model = StandInModel().bind_tools(tools)
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


# -- The five acts


def open_vault(path: Path) -> Vault:
    return Vault.open(f"sqlite:///{path}")


def ask(path: Path) -> None:
    """First process: run until the agent needs a human."""
    with open_vault(path) as vault:
        agent = build_agent(vault.checkpointer)
        result = agent.invoke({"messages": [("user", "Order 4711 arrived broken. I want my money back.")]}, THREAD)
        show_messages(result["messages"])
        print(f"  ?          {result['__interrupt__'][0].value['question']}")


def answer(path: Path) -> None:
    """Second process: find the question in the file and answer it."""
    with open_vault(path) as vault:
        for thread in vault.threads():
            print(f"  thread     {thread.thread_id}, {thread.status}, {thread.checkpoints} checkpoints")
        agent = build_agent(vault.checkpointer)
        waiting = agent.get_state(THREAD)
        print(f"  ?          {waiting.interrupts[0].value['question']}")
        print("  Ada says yes")
        result = agent.invoke(Command(resume={"approved": True, "by": "Ada"}), THREAD)
        show_messages(result["messages"][len(waiting.values["messages"]) :])


def history(path: Path) -> None:
    """Every step is there, newest first."""
    with open_vault(path) as vault:
        for state in build_agent(vault.checkpointer).get_state_history(THREAD):
            asked = [f"asks {found.value['question']!r}" for found in state.interrupts]
            then = ", ".join(asked or state.next) or "the end"
            count = len(state.values.get("messages", []))
            print(f"  step {state.metadata['step']:>2}  {count} messages  {state.created_at[11:23]}  {then}")


def fork(path: Path) -> None:
    """Go back to the question and give the other answer; the first ending stays."""
    with open_vault(path) as vault:
        agent = build_agent(vault.checkpointer)
        question = next(state for state in agent.get_state_history(THREAD) if state.interrupts)
        branch = agent.update_state(question.config, {"messages": []}, as_node="model")
        asked = agent.invoke(None, branch)
        print(f"  ?          {asked['__interrupt__'][0].value['question']}")
        print("  Grace says no")
        result = agent.invoke(Command(resume={"approved": False, "by": "Grace"}), THREAD)
        show_messages(result["messages"][len(question.values["messages"]) :])
        endings = [state for state in agent.get_state_history(THREAD) if not state.next]
        print(f"  The thread now has {len(endings)} endings; both can be read and continued.")


def compare_bytes(folder: Path, turns: int = 200) -> None:
    """The same chat with the official saver and with ours: only the import differs."""
    text = sum(len(message.content) for turn in chat(turns) for message in turn)
    print(f"  {turns} turns, {_kb(text)} of text")
    ours = folder / "chat.db"
    with open_vault(ours) as vault:
        run_chat(vault.checkpointer, turns)
    print(f"  Stepvault {_kb(ours.stat().st_size):>20}")
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver as OfficialSaver
    except ImportError:
        print("  official saver: not installed (pip install langgraph-checkpoint-sqlite)")
        return
    official = folder / "official.db"
    with OfficialSaver.from_conn_string(str(official)) as saver:
        run_chat(saver, turns)
    ratio = official.stat().st_size / ours.stat().st_size
    print(f"  official SqliteSaver {_kb(official.stat().st_size):>9}   {ratio:.0f} times as much")


# -- A long chat


def chat(turns: int) -> Iterator[tuple[HumanMessage, AIMessage]]:
    """The same words every time."""
    rng = random.Random(7)
    words = ["".join(rng.choices("aeinorstldmu", k=rng.randint(2, 9))) for _ in range(2000)]
    for _ in range(turns):
        question, reply = (" ".join(rng.choices(words, k=k)) for k in (15, 150))
        yield HumanMessage(question), AIMessage(reply)


def run_chat(saver: Any, turns: int) -> None:
    model = GenericFakeChatModel(messages=(reply for _, reply in chat(turns)))
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_edge(START, "model")
    agent = graph.compile(checkpointer=saver)
    for question, _ in chat(turns):
        agent.invoke({"messages": [question]}, {"configurable": {"thread_id": "chat"}})


# -- The stage


def show_messages(messages: list[BaseMessage]) -> None:
    for message in messages:
        if message.text:
            print(f"  {message.type:<10} {message.text}")
        for call in getattr(message, "tool_calls", ()):
            args = ", ".join(f"{name}={value!r}" for name, value in call["args"].items())
            print(f"  {message.type:<10} {call['name']}({args})")


def in_a_new_process(act: str, path: Path) -> None:
    sys.stdout.flush()
    subprocess.run([sys.executable, __file__, "--path", str(path), "--act", act], check=True)


def play(path: Path) -> None:
    title("1. A first process runs the agent until it needs a human, and exits")
    in_a_new_process("ask", path)
    title("2. A second process finds the question in the file and answers it")
    in_a_new_process("answer", path)
    title("3. The thread's history, newest first")
    history(path)
    title("4. Time travel: the same question, answered differently")
    fork(path)
    title("5. What it costs on disk")
    with tempfile.TemporaryDirectory() as folder:
        compare_bytes(Path(folder))
    print(f"\nThe thread of acts 1 to 4 is {_kb(path.stat().st_size)}: {path}")


def title(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")


def _kb(size: int) -> str:
    return f"{size / 1024:,.0f} KB"


@contextmanager
def file_for(path: Path | None) -> Iterator[Path]:
    if path is not None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "demo.db"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", type=Path, help="keep the thread in this file")
    parser.add_argument("--act", choices=("ask", "answer"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.act:
        {"ask": ask, "answer": answer}[arguments.act](arguments.path)
        return
    if arguments.path and arguments.path.exists():
        parser.error(f"{arguments.path} exists; name a new file")
    with file_for(arguments.path) as path:
        play(path)


if __name__ == "__main__":
    main()

"""A thread's history as typed steps: shown, moved as JSON to another process, and continued there.

    python examples/typed_steps.py

One process runs an agent that asks a human, and prints its steps as JSON. A second process, with a database of its
own, reads them, shows them, and goes on with the conversation.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from stepvault import Vault
from stepvault.steps import ActionStep, FinalStep, InterruptStep, ResumeStep, Run, TaskStep

THREAD: Any = {"configurable": {"thread_id": "order-4711"}}


@tool
def refund(order: str) -> str:
    """Give the money back, if a human agrees."""
    return f"refunded {order}" if interrupt(f"Refund order {order}?") == "yes" else "refused"


def model(state: MessagesState) -> Any:
    """Says what a real model would."""
    messages = state["messages"]
    usage: Any = {"input_tokens": 10 * len(messages), "output_tokens": 5, "total_tokens": 10 * len(messages) + 5}
    return {"messages": [reply(messages, usage)]}


def reply(messages: list[BaseMessage], usage: Any) -> AIMessage:
    last = messages[-1]
    if isinstance(last, ToolMessage):
        return AIMessage(f"Done: {last.text}.", usage_metadata=usage)
    if "refund" in last.text:
        call = {"name": "refund", "args": {"order": "4711"}, "id": f"call-{len(messages)}"}
        return AIMessage("", tool_calls=[call], usage_metadata=usage)
    questions = [message.text for message in messages if isinstance(message, HumanMessage)]
    return AIMessage(f"You have asked {len(questions)} things, first: {questions[0]!r}", usage_metadata=usage)


def build(saver: Any) -> CompiledStateGraph:
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tools", ToolNode([refund]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile(checkpointer=saver)


def first_process() -> None:
    with Vault.open("memory://") as vault:
        app = build(vault.checkpointer)
        asked = app.invoke({"messages": [HumanMessage("I want a refund.")]}, THREAD)
        decision = vault.inbox.decide(asked["__interrupt__"][0].id, "yes", by="Ada", note="within 30 days")
        app.invoke(decision.command, decision.config)
        print(Run.from_thread(vault.checkpointer, "order-4711").dump_json())


def second_process(text: str) -> None:
    run = Run.load_json(text)
    print(f"{len(run.steps)} steps of thread {run.thread_id}:")
    show(run)
    with Vault.open("memory://") as vault:
        app = build(vault.checkpointer)
        config = run.continue_in(app, {"configurable": {"thread_id": "order-4711-continued"}})
        said = app.invoke({"messages": [HumanMessage("What did I ask?")]}, config)
        print("\nContinued:", said["messages"][-1].text)


def show(run: Run) -> None:
    for step in run.steps:
        match step:
            case TaskStep():
                print(f"  task       {step.messages[0].text}")
            case ActionStep(message=AIMessage() as message):
                names = ", ".join(call["name"] for call in message.tool_calls)
                results = ", ".join(result.message.text for result in step.results if result.message)
                print(f"  action     {names} -> {results}  ({(step.usage or {})['total_tokens']} tokens)")
            case InterruptStep():
                print(f"  interrupt  {step.value}")
            case ResumeStep():
                print(f"  resume     {step.answer!r} by {step.by}: {step.note}")
            case FinalStep(message=AIMessage() as message):
                print(f"  final      {message.text}")


def main() -> None:
    if sys.argv[1:] == ["first"]:
        first_process()
        return
    dumped = subprocess.run([sys.executable, __file__, "first"], check=True, capture_output=True, text=True).stdout
    print(f"The first process dumped {len(dumped)} characters of JSON.")
    second_process(dumped)


if __name__ == "__main__":
    main()

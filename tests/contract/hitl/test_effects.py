"""Effects: once per task, recorded, typed; in doubt where nobody can know."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, ToolRuntime
from langgraph.types import Command, RetryPolicy, interrupt

from stepvault.effects import EffectNotDone
from stepvault.errors import ConfigurationError, EffectInDoubtError, EffectNotDurableError, ThreadGoneError
from tests.contract.hitl.building import App, State, chain
from tests.contract.matrix import Database


@dataclass
class Receipt:
    order: str
    cents: int


class Bank:
    """Something outside that remembers every call."""

    def __init__(self, app: App) -> None:
        self.app, self.calls, self.fails = app, [], 0

    def charge(self, order: str, cents: int = 0) -> Receipt:
        self.calls.append((order, self.app.vault.effects.key()))
        if self.fails:
            self.fails -= 1
            raise ConnectionError("no reply")
        return Receipt(order, cents)

    async def acharge(self, order: str, cents: int = 0) -> Receipt:
        await asyncio.sleep(0)
        return self.charge(order, cents)


@pytest.fixture
async def app(database: Database) -> App:
    return await App.on(database, types=[Receipt])


@pytest.fixture
def bank(app: App) -> Bank:
    return Bank(app)


def paying(app: App, bank: Bank, *orders: Any, **keys: Any) -> Any:
    """A node that pays each order and then asks, so that it runs again."""
    effects = app.vault.effects

    def pay(state: Any) -> Any:
        paid = [effects.once("charge", bank.charge, order, cents=5, **keys) for order in orders]
        return {"log": [*paid, interrupt("sure?")]}

    async def apay(state: Any) -> Any:
        paid = [await effects.aonce("charge", bank.acharge, order, cents=5, **keys) for order in orders]
        return {"log": [*paid, interrupt("sure?")]}

    return chain(app.saver, ("pay", pay if app.sync else apay))


async def test_once_although_the_node_runs_again(app: App, bank: Bank) -> None:
    graph = paying(app, bank, "A", "B")
    await app.invoke(graph, {"log": []})
    assert [order for order, _ in bank.calls] == ["A", "B"]
    other = await app.another(types=[Receipt])
    result = await other.invoke(paying(other, bank, "A", "B"), Command(resume="yes"))
    assert result["log"] == [Receipt("A", 5), Receipt("B", 5), "yes"]  # typed, as the first call returned it
    assert len(bank.calls) == 2
    assert len({key for _, key in bank.calls}) == 2


async def test_a_new_turn_pays_anew(app: App, bank: Bank) -> None:
    graph = paying(app, bank, "A")
    for _ in range(2):
        await app.invoke(graph, {"log": []})
        await app.invoke(graph, Command(resume="yes"))
    assert len(bank.calls) == 2


async def test_other_arguments_are_noticed(app: App, bank: Bank) -> None:
    await app.invoke(paying(app, bank, "A"), {"log": []})
    with pytest.raises(EffectInDoubtError, match="other arguments") as caught:
        await app.invoke(paying(app, bank, "B"), Command(resume="yes"))
    record = caught.value.record
    assert (record.name, record.result, record.args) == ("charge", Receipt("A", 5), None)  # of what is done: the result
    assert [order for order, _ in bank.calls] == ["A"]


async def test_a_key_of_its_own(app: App, bank: Bank) -> None:
    graph = paying(app, bank, "A", "A", key="order A")
    await app.invoke(graph, {"log": []})
    await app.invoke(graph, Command(resume="yes"))
    assert len(bank.calls) == 1


async def test_an_error_in_between_is_in_doubt_until_settled(app: App, bank: Bank) -> None:
    bank.fails = 1
    graph = paying(app, bank, "A")
    with pytest.raises(ConnectionError):
        await app.invoke(graph, {"log": []})
    with pytest.raises(EffectInDoubtError, match="end is not known") as caught:
        await app.invoke(graph, None)
    (record,) = await app.effects("in_doubt")
    assert record == caught.value.record
    assert (record.name, record.thread_id, record.state, record.key) == ("charge", "t", "started", bank.calls[0][1])
    assert (record.args, record.kwargs) == (("A",), {"cents": 5})
    await app.effects("resolve", record.id, result=Receipt("A", 7))
    assert await app.effects("in_doubt") == []
    await app.invoke(graph, None)
    assert (await app.invoke(graph, Command(resume="ok")))["log"] == [Receipt("A", 7), "ok"]
    assert len(bank.calls) == 1


async def test_settled_to_try_again_with_the_same_key(app: App, bank: Bank) -> None:
    bank.fails = 1
    graph = paying(app, bank, "A")
    with pytest.raises(ConnectionError):
        await app.invoke(graph, {"log": []})
    (record,) = await app.effects("in_doubt")
    await app.effects("resolve", record.id, retry=True)
    await app.invoke(graph, None)
    assert [key for _, key in bank.calls] == [record.key] * 2


async def test_settling_what_is_not_in_doubt(app: App, bank: Bank) -> None:
    await app.invoke(paying(app, bank, "A"), {"log": []})
    for wrong in ({}, {"result": 1, "retry": True}):
        with pytest.raises(ConfigurationError, match="either"):
            await app.effects("resolve", "x", **wrong)
    for unknown in ("no id", "ab:t", f"e{'0' * 33}:t"):
        with pytest.raises(ConfigurationError, match="id"):
            await app.effects("resolve", unknown, retry=True)


async def test_an_effect_that_says_that_nothing_happened(app: App) -> None:
    tries: list[int] = []

    def full(state: Any) -> Any:
        raise EffectNotDone("the line is busy")

    def call(state: Any) -> Any:
        tries.append(1)
        return app.vault.effects.once("dial", full if len(tries) < 3 else len, state["log"])

    async def acall(state: Any) -> Any:
        tries.append(1)
        return await app.vault.effects.aonce("dial", full if len(tries) < 3 else len, state["log"])

    graph = chain(app.saver, ("call", lambda s: {"log": [call(s)]}))
    if not app.sync:

        async def node(state: Any) -> Any:
            return {"log": [await acall(state)]}

        graph = chain(app.saver, ("call", node))
    for value in ({"log": []}, None):
        with pytest.raises(EffectNotDone):
            await app.invoke(graph, value)
        assert await app.effects("in_doubt") == []
    assert (await app.invoke(graph, None))["log"] == [0]


async def test_a_retry_policy_counts_anew(app: App, bank: Bank) -> None:
    attempts: list[int] = []
    effects = app.vault.effects

    def pay(state: Any) -> Any:
        paid = [effects.once("charge", bank.charge, order) for order in "AB"]
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("after the payment")
        return {"log": paid}

    async def apay(state: Any) -> Any:
        paid = [await effects.aonce("charge", bank.acharge, order) for order in "AB"]
        attempts.append(1)
        if len(attempts) < 3:
            raise OSError("after the payment")
        return {"log": paid}

    builder = StateGraph(State)
    policy = RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=OSError)
    builder.add_node("pay", pay if app.sync else apay, retry_policy=policy).add_edge(START, "pay")
    result = await app.invoke(builder.compile(checkpointer=app.saver), {"log": []})
    assert result["log"] == [Receipt("A", 0), Receipt("B", 0)]
    assert len(bank.calls) == 2


async def test_refused_where_the_checkpoint_is_not_stored(app: App, bank: Bank) -> None:
    with pytest.raises(EffectNotDurableError, match="durability"):
        await app.invoke(paying(app, bank, "A"), {"log": []}, durability="exit")
    assert bank.calls == []


async def test_waits_for_the_checkpoint_of_an_async_run(app: App, bank: Bank) -> None:
    graph = paying(app, bank, "A")
    for turn in range(3):
        await app.invoke(graph, {"log": []}, durability="async")
        await app.invoke(graph, Command(resume="yes"), durability="async")
        assert len(bank.calls) == turn + 1


async def test_in_subgraphs(app: App, bank: Bank) -> None:
    graph = chain(app.saver, ("outer", chain(None, ("inner", paying(app, bank, "A").builder.compile()))))
    await app.invoke(graph, {"log": []})
    await app.invoke(graph, Command(resume="yes"))
    assert len(bank.calls) == 1


async def test_in_tasks(app: App, bank: Bank) -> None:
    effects = app.vault.effects

    if app.sync:

        @task
        def pay(order: str) -> Any:
            return effects.once("charge", bank.charge, order)

        @entrypoint(checkpointer=app.saver)
        def flow(orders: list[str]) -> Any:
            paid = [future.result() for future in [pay(order) for order in orders]]
            return [paid, interrupt("sure?")]
    else:

        @task
        async def pay(order: str) -> Any:
            return await effects.aonce("charge", bank.acharge, order)

        @entrypoint(checkpointer=app.saver)
        async def flow(orders: list[str]) -> Any:
            paid = await asyncio.gather(*(pay(order) for order in orders))
            return [list(paid), interrupt("sure?")]

    await app.invoke(flow, ["A", "B"])
    paid, answer = await app.invoke(flow, Command(resume="yes"))
    assert (paid, answer) == ([Receipt("A", 0), Receipt("B", 0)], "yes")
    assert sorted(order for order, _ in bank.calls) == ["A", "B"]


def tool_graph(app: App, bank: Bank, *, keyed: bool) -> Any:
    effects = app.vault.effects

    @tool
    def pay(order: str, runtime: ToolRuntime) -> str:
        """Pay an order."""
        key = {"key": runtime.tool_call_id} if keyed else {}
        return effects.once("charge", bank.charge, order, **key).order

    @tool("pay")
    async def apay(order: str, runtime: ToolRuntime) -> str:
        """Pay an order."""
        key = {"key": runtime.tool_call_id} if keyed else {}
        return (await effects.aonce("charge", bank.acharge, order, **key)).order

    builder = StateGraph(MessagesState)
    builder.add_node("tools", ToolNode([pay if app.sync else apay], handle_tool_errors=False))
    builder.add_node("ask", lambda state: {"messages": [HumanMessage(interrupt("sure?"))]})
    builder.add_edge(START, "tools").add_edge("tools", "ask")
    return builder.compile(checkpointer=app.saver)


def calls(*orders: str) -> Any:
    found = [{"name": "pay", "args": {"order": order}, "id": f"call {order}"} for order in orders]
    return {"messages": [AIMessage("", tool_calls=found)]}


async def test_in_tools_side_by_side(app: App, bank: Bank) -> None:
    graph = tool_graph(app, bank, keyed=True)
    await app.invoke(graph, calls("A", "B"))
    assert sorted(order for order, _ in bank.calls) == ["A", "B"]
    assert len({key for _, key in bank.calls}) == 2


async def test_tools_side_by_side_need_keys(app: App, bank: Bank) -> None:
    with pytest.raises(ConfigurationError, match="key="):
        await app.invoke(tool_graph(app, bank, keyed=False), calls("A", "B"))
    await app.invoke(tool_graph(app, bank, keyed=False), calls("C"), "alone")


async def test_outside_of_a_run(app: App, bank: Bank) -> None:
    with pytest.raises(ConfigurationError, match="inside a node"):
        await app.effects("once", "charge", bank.charge, "A")
    with pytest.raises(ConfigurationError, match=r"effects\.key"):
        app.vault.effects.key()


async def test_not_copied_and_deleted_with_the_thread(app: App, bank: Bank) -> None:
    graph = paying(app, bank, "A")
    bank.fails = 1
    with pytest.raises(ConnectionError):
        await app.invoke(graph, {"log": []})
    await app.call(app.saver, "copy_thread", "t", "copy")
    assert {record.thread_id for record in await app.effects("in_doubt")} == {"t"}
    await app.invoke(graph, None, "copy")
    assert len(bank.calls) == 2
    await app.call(app.saver, "delete_thread", "t")
    assert await app.effects("in_doubt") == []


async def test_a_thread_deleted_while_its_effect_runs(app: App, bank: Bank) -> None:
    def charge() -> None:
        asyncio.run(app.call(app.saver, "delete_thread", "t"))

    async def acharge() -> None:
        await app.saver.adelete_thread("t")

    def pay(state: Any) -> Any:
        return {"log": [app.vault.effects.once("charge", charge)]}

    async def apay(state: Any) -> Any:
        return {"log": [await app.vault.effects.aonce("charge", acharge)]}

    with pytest.raises(ThreadGoneError):
        await app.invoke(chain(app.saver, ("pay", pay if app.sync else apay)), {"log": []})
    assert await app.effects("in_doubt") == []

"""The approvals example as two workers serve it: two apps over one database, spoken to through ASGI."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

from stepvault import Vault

EXAMPLE = Path(__file__).parent.parent / "examples" / "approvals_api.py"


@functools.cache
def example() -> Any:
    spec = importlib.util.spec_from_file_location("approvals_api", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # its annotations are looked up there
    spec.loader.exec_module(module)
    return module


class Worker:
    """One app with its own connections."""

    def __init__(self, url: str) -> None:
        self.vault = Vault.open(url)
        self.graph = example().agent(self.vault)
        self.app = example().create_app(self.vault, self.graph)
        transport = httpx.ASGITransport(self.app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://app")

    async def decide(self, interrupt_id: str, answer: Any, user: str | None = "ann") -> httpx.Response:
        headers = {"x-user": user} if user else {}
        return await self.client.post(f"/approvals/{interrupt_id}", json={"answer": answer}, headers=headers)

    async def ask(self, *threads: str) -> None:
        for thread in threads:
            await self.graph.ainvoke({"log": []}, {"configurable": {"thread_id": thread, "user_id": f"of {thread}"}})

    async def get(self, path: str, **params: Any) -> Any:
        reply = await self.client.get(path, params=params)
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture
async def workers(tmp_path: Path) -> AsyncIterator[list[Worker]]:
    url = f"sqlite:///{tmp_path / 'app.db'}"
    async with AsyncExitStack() as stack:
        workers = [Worker(url) for _ in range(2)]
        for worker in workers:
            await stack.enter_async_context(worker.app.router.lifespan_context(worker.app))
            await stack.enter_async_context(worker.client)
        yield workers


async def test_listed_in_pages_and_by_person(workers: list[Worker]) -> None:
    one, two = workers
    await one.ask("a", "b", "c")
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await two.get("/approvals", limit=2, **cursor)
        seen += [found["thread_id"] for found in page["approvals"]]
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    assert seen == ["a", "b", "c"]
    (found,) = (await two.get("/approvals", subject="of b"))["approvals"]
    assert (found["thread_id"], found["status"], found["response_schema"]) == ("b", "pending", {"type": "boolean"})
    assert await one.get(f"/approvals/{found['id']}") == found


async def test_one_decision_counts_and_runs_once(workers: list[Worker]) -> None:
    await workers[0].ask("a")
    (waiting,) = (await workers[1].get("/approvals"))["approvals"]
    replies = await asyncio.gather(
        *(workers[n % 2].decide(waiting["id"], n % 2 == 0, f"user {n}") for n in range(8)),
    )
    assert Counter(reply.status_code for reply in replies) == {200: 1, 409: 7}
    (heard,) = [n for n, reply in enumerate(replies) if reply.status_code == 200]
    kept = await workers[1].get(f"/approvals/{waiting['id']}")
    assert (kept["status"], kept["decision"]["by"]) == ("answered", f"user {heard}")
    assert all(f"user {heard}" in reply.json()["detail"] for reply in replies if reply.status_code == 409)
    state = await workers[0].graph.aget_state({"configurable": {"thread_id": "a"}})
    assert state.values["log"] == ["deployed" if heard % 2 == 0 else "stopped"]
    told = await workers[0].get("/changes")
    assert [change["kind"] for change in told["changes"]] == ["created", "decided", "answered"]
    assert (await workers[1].get("/changes", cursor=told["cursor"]))["changes"] == []


async def test_refusals_have_their_status(workers: list[Worker]) -> None:
    one, two = workers
    await one.ask("a", "late", "moved")
    ids = {found["thread_id"]: found["id"] for found in (await one.get("/approvals"))["approvals"]}
    await one.vault.inbox.aamend(ids["late"], deadline=datetime(2020, 1, 1, tzinfo=timezone.utc))
    await one.ask("moved")
    told = {
        401: await two.decide(ids["a"], True, None),
        404: await two.decide("0" * 32, True),
        409: await two.decide(ids["moved"], True),
        410: await two.decide(ids["late"], True),
        422: await two.decide(ids["a"], "maybe"),
    }
    assert {status: reply.status_code for status, reply in told.items()} == {status: status for status in told}
    assert told[409].json()["error"] == "SupersededError"
    assert (await two.get(f"/approvals/{ids['a']}"))["status"] == "pending"


async def test_a_decision_survives_a_worker_that_cannot_run(workers: list[Worker]) -> None:
    one, two = workers
    await one.ask("a")
    (waiting,) = (await one.get("/approvals"))["approvals"]
    async with two.vault.checkpointer.lease("a"):
        assert (await one.decide(waiting["id"], True)).json()["status"] == "decided"
    (left,) = await two.vault.inbox.alist(status="decided")
    assert left.decision is not None
    assert (await two.graph.ainvoke(left.decision.command, left.decision.config))["log"] == ["deployed"]

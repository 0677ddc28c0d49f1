"""An approvals page's back end with FastAPI: list what waits, decide, follow changes.

    pip install fastapi uvicorn
    STEPVAULT_URL=sqlite:///app.db uvicorn --factory examples.approvals_api:from_environment

Without arguments this file runs its own little demonstration against the app, in memory.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypedDict

import httpx
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import interrupt
from pydantic import BaseModel

from stepvault import Vault
from stepvault.errors import (
    AlreadyDecidedError,
    AnswerInvalidError,
    DeadlinePassedError,
    DecisionError,
    HeadMovedError,
    InterruptNotFoundError,
    LeaseHeldError,
    SupersededError,
)

STATUS: dict[type[DecisionError], int] = {
    InterruptNotFoundError: 404,
    AlreadyDecidedError: 409,
    SupersededError: 409,
    DeadlinePassedError: 410,
    AnswerInvalidError: 422,
}


class Verdict(BaseModel):
    answer: Any
    note: str | None = None


class State(TypedDict, total=False):
    log: Annotated[list[str], operator.add]


def agent(vault: Vault) -> CompiledStateGraph:
    """Put your graph here."""

    def ask(state: State) -> State:
        approved = interrupt("Deploy to production?", response_schema={"type": "boolean"})
        return {"log": ["deployed" if approved else "stopped"]}

    return StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile(checkpointer=vault.checkpointer)


def create_app(vault: Vault, graph: CompiledStateGraph) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with vault:
            yield

    app = FastAPI(lifespan=lifespan)

    @app.exception_handler(DecisionError)
    async def refused(request: Request, exc: DecisionError) -> JSONResponse:
        return JSONResponse({"error": type(exc).__name__, "detail": str(exc)}, STATUS.get(type(exc), 400))

    @app.get("/approvals")
    async def waiting(subject: str | None = None, cursor: str | None = None, limit: int = 50) -> dict[str, Any]:
        page = await vault.inbox.alist(subject=subject, cursor=cursor, limit=limit)
        return {"approvals": [found.to_dict() for found in page], "cursor": page.cursor}

    @app.get("/approvals/{interrupt_id}")
    async def one(interrupt_id: str) -> dict[str, Any]:
        return (await vault.inbox.aget(interrupt_id)).to_dict()

    @app.post("/approvals/{interrupt_id}")
    async def decide(interrupt_id: str, verdict: Verdict, request: Request) -> dict[str, Any]:
        user = request.headers.get("x-user")  # your login goes here
        if user is None:
            raise HTTPException(401)
        await vault.inbox.adecide(interrupt_id, verdict.answer, by=user, note=verdict.note)
        await carry_on(interrupt_id)
        return (await vault.inbox.aget(interrupt_id)).to_dict()

    @app.get("/changes")
    async def changes(cursor: str | None = None) -> dict[str, Any]:
        page = await vault.inbox.achanges(cursor)
        told = [{"kind": change.kind, "approval": change.interrupt.to_dict()} for change in page]
        return {"changes": told, "cursor": page.cursor}

    async def carry_on(interrupt_id: str) -> None:
        """Run with the decision, in one worker; a larger app leaves this to a queue."""
        found = await vault.inbox.aget(interrupt_id)
        assert found.decision is not None
        try:
            async with vault.checkpointer.lease(found.thread_id, expect_interrupt=found.interrupt_id) as config:
                await graph.ainvoke(found.decision.command, config)
        except (LeaseHeldError, HeadMovedError):
            pass  # another worker is at it, or done; the decision is recorded and kept until a run has used it

    return app


def from_environment() -> FastAPI:
    vault = Vault.open()
    return create_app(vault, agent(vault))


async def demonstrate() -> None:
    vault = Vault.open("memory://")
    graph = agent(vault)
    app = create_app(vault, graph)
    await graph.ainvoke({"log": []}, {"configurable": {"thread_id": "release-7"}})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as client:
        (waiting,) = (await client.get("/approvals")).json()["approvals"]
        print("waits:", waiting["thread_id"], waiting["value"])
        for user, answer in (("ann", "maybe"), ("ann", True), ("bob", False)):
            reply = await client.post(f"/approvals/{waiting['id']}", json={"answer": answer}, headers={"x-user": user})
            print(user, answer, "->", reply.status_code, reply.json().get("status") or reply.json()["error"])
        told = (await client.get("/changes")).json()["changes"]
        print("changes:", [change["kind"] for change in told])
    await vault.aclose()


if __name__ == "__main__":
    asyncio.run(demonstrate())

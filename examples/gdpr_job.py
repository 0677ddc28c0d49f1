"""A nightly job that answers the day's privacy requests: plan, export, erase, keep the receipts.

    python examples/gdpr_job.py --url sqlite:////srv/app.db --requests requests.csv --out /srv/privacy

The CSV has the columns `ticket`, `person` and `reason`. Kill the job at any moment and start it again: what was done is
not done twice, what was begun is brought to its end. A row that cannot be answered stops no other. Without arguments it
makes a small database and shows itself.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from langgraph.graph import START, MessagesState, StateGraph

from stepvault import Vault
from stepvault.erasure import ErasureRequest, commits_to
from stepvault.errors import StepvaultError
from stepvault.receipts import verify_receipts


class Job:
    """One run over a list of requests."""

    def __init__(self, vault: Vault, out: Path) -> None:
        self.erasure = vault.erasure
        self.out = out
        self.unkept: list[ErasureRequest] = []  # with receipts that no run has kept yet
        for folder in ("exports", "requests", "receipts"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def run(self, requests: Path) -> int:
        """Work through the requests; how many could not be answered."""
        for done in self.erasure.resume():  # what an earlier run left behind
            print("resumed:", done.id[:8], done.state, flush=True)
        self.unkept = [
            self.erasure.status(receipt["request"])
            for receipt in self.erasure.receipts()
            if not self.place(receipt).exists() and "follows" not in receipt
        ]
        left = sum(not self.attempt(row) for row in read(requests))
        self.check_receipts()
        return left

    def attempt(self, row: dict[str, str]) -> bool:
        """Answer one request, or say why not."""
        try:
            return self.answer(row["ticket"], row["person"], row["reason"])
        except StepvaultError as exc:  # a hold, an id that can be nobody's, ...
            print(f"{row['ticket']}: {exc}", flush=True)
            return False

    def answer(self, ticket: str, person: str, reason: str) -> bool:
        """Answer one request, or what is left of it."""
        noted = self.out / "requests" / ticket
        for done in self.unkept:  # an earlier run was killed before it could note which request this is
            if not noted.exists() and is_about(done, person):
                write(noted, done.id)
        if noted.exists():  # an earlier run began it; `resume` brought it to its end
            return self.keep(ticket, person, self.erasure.status(noted.read_text()))
        plan = self.erasure.plan(person)
        shared = sum(thread.shared for thread in plan.threads)
        print(f"{ticket}: {len(plan.threads)} threads ({shared} shared), {len(plan.namespaces)} namespaces", flush=True)
        if plan.held:
            print(f"{ticket}: held: {plan.held}", flush=True)
            return False
        self.export(ticket, person)

        def note(request: ErasureRequest) -> None:
            """Called as the erasure goes on: from the first time on we know its id."""
            write(noted, request.id)
            print(f"{ticket}: {request.state}", flush=True)

        return self.keep(ticket, person, self.erasure.erase(person, reason=reason, progress=note))

    def export(self, ticket: str, person: str) -> None:
        """Give the person what we have of them. A later run must not replace it: by then it would be empty."""
        path = self.out / "exports" / f"{ticket}.jsonl"
        if path.exists():
            return
        unfinished = path.with_suffix(".part")
        with unfinished.open("w", encoding="utf-8") as file:
            lines = self.erasure.export(person, file)
        unfinished.replace(path)
        print(f"{ticket}: exported {lines} lines", flush=True)

    def keep(self, ticket: str, person: str, request: ErasureRequest) -> bool:
        """Keep the receipt for the person, with the salt that names them."""
        if request.receipt is None:
            return False
        if not is_about(request, person):
            print(f"{ticket}: this ticket was another person's", flush=True)
            return False
        write(self.out / "exports" / f"{ticket}.receipt.json", json.dumps(request.receipt, indent=2))
        for step in request.purge:
            if not step.done:
                print(f"{ticket}: left to the operator: {step.name}", flush=True)
        return True

    def place(self, receipt: dict[str, Any]) -> Path:
        """Where a receipt is kept."""
        return self.out / "receipts" / f"{receipt['number']:08}.json"

    def check_receipts(self) -> None:
        """Keep every receipt by its number, and check them: anybody can do this offline with the public keys."""
        for receipt in self.erasure.receipts():
            write(self.place(receipt), json.dumps(receipt, indent=2))
        keys = [key.public_key for key in self.erasure.signing_keys()]
        receipts = {path.name: path.read_text() for path in (self.out / "receipts").glob("*.json")}
        report = verify_receipts(receipts, keys)
        print(f"{report.genuine} receipts, {'none missing' if report.complete else report}", flush=True)


def read(requests: Path) -> list[dict[str, str]]:
    """The requests, if each has a person and a ticket of its own that can name a file."""
    with requests.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    tickets = [row.get("ticket") or "" for row in rows]
    for number, (row, ticket) in enumerate(zip(rows, tickets, strict=True), 1):
        named = ticket.strip(".") and Path(ticket).name == ticket and tickets.count(ticket) == 1
        if not named or not row.get("person") or row.get("reason") is None or None in row:
            raise SystemExit(f"{requests}: request {number} is not a ticket of its own, a person and a reason")
    return rows


def is_about(request: ErasureRequest, person: str) -> bool:
    """Whether the receipt of a request is about this person."""
    kept = request.receipt
    return kept is not None and commits_to(kept["receipt"], kept["salts"], person)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_suffix(".part")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def make_demo(folder: Path) -> tuple[str, Path]:
    """A database with some people's data, and the requests of two of them."""
    url = f"sqlite:///{folder}/app.db"
    graph = StateGraph(MessagesState).add_node("answer", lambda state: {"messages": [("ai", "Noted.")]})
    graph.add_edge(START, "answer")
    with Vault.open(url) as vault:
        agent = graph.compile(checkpointer=vault.checkpointer, store=vault.store)
        for person in ("ada", "grace", "alan"):
            at = {"configurable": {"thread_id": f"chat with {person}", "user_id": person}}
            agent.invoke({"messages": [("user", f"I am {person}, remember me")]}, at)  # type: ignore[arg-type]
            vault.store.put(("users", person), "profile", {"name": person})
        vault.erasure.hold("grace", "open invoice 17")
    requests = folder / "requests.csv"
    requests.write_text("ticket,person,reason\nT-1,ada,art. 17\nT-2,grace,art. 17\nT-3,alan,account closed\n")
    return url, requests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default=os.environ.get("STEPVAULT_URL"))
    parser.add_argument("--requests", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url, requests = (given.url, given.requests) if given.requests else make_demo(Path(folder))
        out = given.out or Path(folder, "privacy")
        out.mkdir(parents=True, exist_ok=True)
        # The journal belongs on another disk than the database: `stepvault erase reconcile` reads it after a restore.
        with Vault.open(url, journal=out / "journal.jsonl", issuer="Example Ltd, data protection") as vault:
            left = Job(vault, out).run(requests)
    if left and given.requests:
        raise SystemExit(f"{left} requests are still open")


if __name__ == "__main__":
    main()

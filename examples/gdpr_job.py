"""A nightly job that answers the day's privacy requests: plan, export, erase, keep the receipts.

    python examples/gdpr_job.py --url sqlite:////srv/app.db --requests requests.csv --out /srv/privacy

The CSV has the columns `ticket`, `person` and `reason`. Kill the job at any moment and start it again: what was done is
not done twice, what was begun is brought to its end. Without arguments it makes a small database and shows itself.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from pathlib import Path

from langgraph.graph import START, MessagesState, StateGraph

from stepvault import Vault
from stepvault.erasure import ErasureRequest
from stepvault.errors import HoldError
from stepvault.receipts import verify_receipts


class Job:
    """One run over a list of requests."""

    def __init__(self, vault: Vault, out: Path) -> None:
        self.erasure = vault.erasure
        self.out = out
        for folder in ("exports", "requests", "receipts"):
            (out / folder).mkdir(parents=True, exist_ok=True)

    def run(self, requests: Path) -> int:
        """Work through the requests; how many could not be answered."""
        for done in self.erasure.resume():  # what an earlier run left behind
            print("resumed:", done.id[:8], done.state, flush=True)
        with requests.open(encoding="utf-8", newline="") as file:
            left = sum(not self.answer(**row) for row in csv.DictReader(file))
        self.check_receipts()
        return left

    def answer(self, ticket: str, person: str, reason: str) -> bool:
        """Answer one request, or what is left of it."""
        noted = self.out / "requests" / ticket
        if noted.exists():  # an earlier run began it; `resume` brought it to its end
            return self.keep(ticket, self.erasure.status(noted.read_text()))
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

        try:
            return self.keep(ticket, self.erasure.erase(person, reason=reason, progress=note))
        except HoldError as exc:  # set at this very moment
            print(f"{ticket}: {exc}", flush=True)
            return False

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

    def keep(self, ticket: str, request: ErasureRequest) -> bool:
        """Keep the receipts: in the archive by their numbers, and for the person with the salt that names them."""
        if request.receipt is None:
            return False
        write(self.out / "exports" / f"{ticket}.receipt.json", json.dumps(request.receipt, indent=2))
        for receipt in (request.receipt["receipt"], *request.follow_ups):
            write(self.out / "receipts" / f"{receipt['number']:08}.json", json.dumps(receipt, indent=2))
        for step in request.purge:
            if not step.done:
                print(f"{ticket}: left to the operator: {step.name}", flush=True)
        return True

    def check_receipts(self) -> None:
        """Anybody can do this offline with the public keys."""
        keys = [key.public_key for key in self.erasure.signing_keys()]
        receipts = {path.name: path.read_text() for path in (self.out / "receipts").glob("*.json")}
        report = verify_receipts(receipts, keys)
        print(f"{report.genuine} receipts, {'none missing' if report.complete else report}", flush=True)


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

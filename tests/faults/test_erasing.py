"""An erasure that is killed at any point, among other workers and late writers, comes to its end: once, and for all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault.checkpointers._ops.effect_hints import SPACE as EFFECTS
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.inbox.index import of_subject
from stepvault.checkpointers._ops.people import LINKS
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import DECIDERS, SUBJECTS, token
from stepvault.erasure import STATES, commits_to
from stepvault.errors import SubjectErasedError
from stepvault.receipts import verify_receipts
from tests.contract.matrix import KEYRING, Database, RedisClusterDatabase, SqliteDatabase, everywhere
from tests.faults.erasing import MARKER, finished
from tests.faults.linking import IDS

SOAK = [pytest.mark.soak, pytest.mark.timeout(3600)]
SETTINGS = [
    pytest.param(param.values[0], sealed, kills, id=f"{param.id}-{'sealed' if sealed else 'plain'}-{kills}",
                 marks=[*param.marks, *(SOAK if kills >= 200 else [pytest.mark.timeout(600)])])
    for param in everywhere()
    for sealed in (False, True)
    for kills in ((4, 200) if param.values[0][0] is not RedisClusterDatabase else (2, 200) if sealed else (200,))
]  # fmt: skip


@pytest.mark.parametrize(("database", "sealed", "kills"), SETTINGS, indirect=["database"])
async def test_an_erasure_that_is_killed_ends_once(
    database: Database, sealed: bool, kills: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = url_of(database)
    options: dict[str, Any] = {**database.options}
    if sealed:
        options["keys_url"] = f"sqlite:///{tmp_path / 'keys.db'}"
    runs = erased(url, {**options, "sealed": sealed}, kills)
    with Vault.open(url, **options, **({"keyring": KEYRING} if sealed else {})) as vault:
        for tenant, _ in runs:
            check(vault.for_tenant(tenant), tenant)
    died = Counter(state for _, states in runs for state in states)
    assert died.total() >= kills
    if kills >= 200:
        with capsys.disabled():
            print(f"\n{database.name}, {'sealed' if sealed else 'plain'}: {died.total()} killed, {dict(died)}")
        assert set(died) >= {"before", *STATES[:-1]}, "in every state"
    assert MARKER.encode() not in database.content()


def erased(url: str, options: dict[str, Any], kills: int) -> list[tuple[str, list[str]]]:
    """Tenants under which workers were killed, and the states of the erasure they died in."""
    words = [sys.executable, "-m", "tests.faults.erasing", url, json.dumps(options), "7", str(kills)]
    words.append(str(len(STATES) if kills >= 200 else 1))  # before the first state, and in each but the last
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=3500)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def check(vault: Vault, tenant: str) -> None:
    """Nothing of the person is left, the others have what they had, and each request has one receipt."""
    saver, store = vault.checkpointer, vault.store
    plan = vault.erasure.plan("ann", derived=True)
    assert (plan.threads, plan.namespaces, plan.decisions) == ([], {}, 0), tenant
    subjects = {thread.thread_id: thread.subjects for thread in saver.threads()}
    assert subjects == {"both": ("bob",), "bob": ("bob",), "bob asks": ("bob",)}, tenant
    assert "'ann'" not in repr(saver.get_tuple({"configurable": {"thread_id": "both"}})), tenant
    notes = (*store.thread_scope("bob"), "notes")
    assert {item.namespace for item in store.search(())} == {notes, ("users", "bob"), ("users", "ann-2")}, tenant

    found = [*vault.inbox.list(status="decided"), *vault.inbox.list()]
    assert [(one.thread_id, one.subjects) for one in found] == [("bob asks", ("bob",))], tenant
    assert found[0].decision is not None
    assert (found[0].decision.by or "").startswith("erased:"), tenant

    run, scope = saver._run, saver._scope
    docs = lambda name, key: run(scope.core.dialect.docs(space(scope, name), key, b"", 10))  # noqa: E731
    assert docs(SUBJECTS, token(scope, "ann")) == docs(DECIDERS, token(scope, "ann")) == [], tenant
    assert docs("inbox", of_subject(scope, "ann")) == [], tenant
    assert len(docs(EFFECTS, b"")) <= 1, tenant  # of bob's
    if scope.core.keys is not None:
        assert [key for key in vault.keys.of("ann") if key.wrapped_by is not None] == [], tenant
    check_receipts(vault, tenant)


REMOVED = {"threads": 3, "items": 2, "decisions": 2}  # of both ids together, each once
ROUNDS = [2, pytest.param(60, marks=SOAK)]


@pytest.mark.parametrize("database", everywhere(cluster=SOAK), indirect=True)
@pytest.mark.parametrize("rounds", ROUNDS)
async def test_two_ids_of_one_person_are_erased_at_once(database: Database, rounds: int) -> None:
    words = [sys.executable, "-m", "tests.faults.linking", url_of(database), json.dumps(database.options), str(rounds)]
    ran = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, timeout=3500)
    assert len(ran.stdout.split()) == rounds
    with Vault.open(url_of(database), **database.options) as whole:
        for tenant in ran.stdout.split():
            vault = whole.for_tenant(tenant)
            check_together(vault, tenant)
            done = finished(vault)
            first, *later = sorted(done, key=lambda request: request.tombstoned)
            counted = sum((Counter(one.counts) for one in done), Counter[str]())
            assert {name: counted[name] for name in ("threads", "items", "decisions")} == REMOVED, (tenant, counted)
            assert all(_is_of(one, {token(vault.checkpointer._scope, name): name for name in IDS}) for one in done), (
                tenant
            )
            in_turn = all(one.tombstoned >= first.verified for one in later)  # the other process came to it late
            assert in_turn or int(tenant) % 2, "one erasure of one person at a time, if it was known to be one"


def _is_of(request: Request, names: dict[bytes, str]) -> bool:
    """Whether the receipt of an erasure is about those of these people whom it erased, and says no more than was done.

    It may say less: a worker that was slower than another counts after the receipt.
    """
    assert request.receipt is not None
    receipt, salts = request.receipt["receipt"], request.receipt["salts"]
    said = {mark for mark, name in names.items() if commits_to(receipt, salts, name)}
    true = all(count <= request.counts[name] for name, count in receipt["removed"].items())
    return true and said == set(request.tokens) and receipt["remaining"] == 0


def check_together(vault: Vault, tenant: str) -> None:
    """Nothing is left of either id, nor that they belonged together."""
    run, scope = vault.checkpointer._run, vault.checkpointer._scope
    bobs = {"shared": ("bob",), **{f"asks {subject}": ("bob",) for subject in IDS}}
    assert {thread.thread_id: thread.subjects for thread in vault.threads()} == bobs, tenant
    assert vault.store.search(()) == [], tenant
    assert run(scope.core.dialect.docs(space(scope, LINKS), b"", b"", 10)) == [], tenant
    for subject in IDS:
        assert run(scope.core.dialect.docs(space(scope, SUBJECTS), token(scope, subject), b"", 10)) == [], tenant
        with pytest.raises(SubjectErasedError):
            vault.store.put(("users", subject), "k", {})
    check_receipts(vault, tenant)


def url_of(database: Database) -> str:
    return f"sqlite:///{database.url}" if isinstance(database, SqliteDatabase) else database.url


def check_receipts(vault: Vault, tenant: str) -> None:
    saver = vault.checkpointer
    run, scope = saver._run, saver._scope
    assert run(requests.unfinished(scope)) == [], tenant
    done = finished(vault)
    assert len(done) >= 1
    assert all(request.subjects == [] for request in done)
    receipts = {request.id: (request.receipt or {})["receipt"] for request in done}
    report = verify_receipts(receipts, [key.public_key for key in vault.erasure.signing_keys()])
    assert report.complete, (tenant, report)
    assert list(report.last.values()) == [len(done)] == [report.genuine], "exactly one receipt each"

"""Arguments of a wrong kind are refused by name, before anything is done; never passed over, never a bare error."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import pytest

from stepvault import Vault
from stepvault.erasure import commits_to, verify_receipt
from stepvault.errors import ConfigurationError, IdentifierError, VerifyFailedError
from stepvault.receipts import verify_receipts
from stepvault.steps import iter_steps
from stepvault.stores.memories import Memories
from tests.contract.building import checkpoint, config

NO_COUNTS = [-1, True, 1.5, "5", math.nan, math.inf]
NO_TIMES = [-1, True, "5", math.nan, math.inf, 10**12]

COUNTS: dict[str, Callable[[Vault, Any], Any]] = {
    "list": lambda vault, n: vault.checkpointer.list(config(), limit=n),
    "threads": lambda vault, n: vault.threads(limit=n),
    "sweep": lambda vault, n: vault.sweep(limit=n),
    "apply_ttl": lambda vault, n: vault.checkpointer.apply_ttl(limit=n),
    "inbox": lambda vault, n: vault.inbox.list(limit=n),
    "inbox of a thread": lambda vault, n: vault.inbox.list(limit=n, thread_id="t"),
    "subjects": lambda vault, n: vault.subjects.list(limit=n),
    "steps": lambda vault, n: list(iter_steps(vault.checkpointer, "t", limit=n)),
    "keep_messages": lambda vault, n: vault.compact_thread("t", keep_messages=n),
    "search": lambda vault, n: vault.store.search(("a",), limit=n),
    "offset": lambda vault, n: vault.store.search(("a",), offset=n),
    "namespaces": lambda vault, n: vault.store.list_namespaces(limit=n),
    "max_depth": lambda vault, n: vault.store.list_namespaces(max_depth=n),
    "memories": lambda vault, n: Memories(vault.store).search(limit=n),
    "cache_bytes": lambda vault, n: Vault.open("memory://", cache_bytes=n),
    "keep_last": lambda vault, n: Vault.open("memory://", retention={"keep_last": n}),
    "sweep_limit": lambda vault, n: Vault.open("memory://", ttl={"sweep_limit": n}),
}
TIMES: dict[str, Callable[[Vault, Any], Any]] = {
    "seconds": lambda vault, time: vault.sweep(seconds=time),
    "lease": lambda vault, time: vault.checkpointer.lease("t", ttl=time),
    "interval": lambda vault, time: vault.checkpointer.start_ttl_sweeper(time),
    "stop": lambda vault, time: vault.checkpointer.stop_ttl_sweeper(time),
    "stop of a store": lambda vault, time: vault.store.stop_ttl_sweeper(time),
    "busy_timeout": lambda vault, time: Vault.open("memory://", busy_timeout=time),
    "interrupt_deadline": lambda vault, time: Vault.open("memory://", interrupt_deadline=time),
    "default_ttl": lambda vault, time: Vault.open("memory://", ttl={"default_ttl": time}),
}


@pytest.fixture
def vault() -> Any:
    with Vault.open("memory://", store_ttl={"sweep_interval_minutes": 5}) as vault:
        vault.checkpointer.put(config(), checkpoint({"a": 1}), {}, {})
        yield vault


@pytest.mark.parametrize("of", COUNTS)
def test_a_number_of_things_is_a_whole_number(vault: Vault, of: str) -> None:
    for number in NO_COUNTS:
        with pytest.raises(ConfigurationError, match="must be"):
            COUNTS[of](vault, number)


@pytest.mark.parametrize("of", ["threads", "sweep", "apply_ttl", "inbox", "subjects", "keep_last"])
def test_no_page_and_no_portion_is_of_nothing(vault: Vault, of: str) -> None:
    with pytest.raises(ConfigurationError, match="an int >= 1, not 0"):
        COUNTS[of](vault, 0)


@pytest.mark.parametrize("of", TIMES)
def test_a_time_is_a_number_that_clocks_can_count(vault: Vault, of: str) -> None:
    for time in NO_TIMES:
        with pytest.raises(ConfigurationError, match="number of"):
            TIMES[of](vault, time)


def test_stores_take_times_as_langgraph_does_and_no_others(vault: Vault) -> None:
    for time in (-1, True, "soon", math.nan):
        with pytest.raises(ConfigurationError, match="number of minutes"):
            vault.store.start_ttl_sweeper(time)
        with (
            pytest.raises(ConfigurationError, match="number of minutes"),
            Vault.open("memory://", store_ttl={"sweep_interval_minutes": time}) as other,
        ):
            other.store.get(("a",), "k")
        with pytest.raises(ConfigurationError, match="min_score"):
            vault.store.search(("a",), query="x", min_score="high")
    vault.store.start_ttl_sweeper("5")  # type: ignore[arg-type]
    assert vault.store.stop_ttl_sweeper(5)


PEOPLE: dict[str, Callable[[Vault, Any], Any]] = {
    "plan": lambda vault, who: vault.erasure.plan(who),
    "erase": lambda vault, who: vault.erasure.erase(who),
    "anonymise": lambda vault, who: vault.erasure.anonymise(who),
    "export": lambda vault, who: vault.erasure.export(who, io.StringIO()),
    "hold": lambda vault, who: vault.erasure.hold(who, "case 12"),
    "release": lambda vault, who: vault.erasure.release(who),
    "readmit": lambda vault, who: vault.erasure.readmit(who),
    "link": lambda vault, who: vault.subjects.link("ann", who),
    "ids": lambda vault, who: vault.subjects.ids(who),
    "threads": lambda vault, who: vault.threads(subject=who),
    "inbox": lambda vault, who: vault.inbox.list(subject=who),
}


@pytest.mark.parametrize("of", PEOPLE)
def test_a_person_is_named_by_a_text(vault: Vault, of: str) -> None:
    for who in ("", b"ann", 5, ["ann"]):
        with pytest.raises(IdentifierError, match="subject must"):
            PEOPLE[of](vault, who)


def test_a_hold_has_a_reason_and_none_lifts_no_hold(vault: Vault) -> None:
    vault.erasure.hold("ann", "case 12")
    for reason in (None, "", 5):
        with pytest.raises(ConfigurationError, match="reason"):
            vault.erasure.hold("ann", reason)  # type: ignore[arg-type]
    assert vault.erasure.plan("ann").held == "case 12"


OTHERS: dict[str, Callable[[Vault, Any], Any]] = {
    "get": lambda vault, wrong: vault.inbox.get(wrong),
    "decide": lambda vault, wrong: vault.inbox.decide(wrong, "yes"),
    "due": lambda vault, wrong: vault.inbox.due(wrong),
    "changes": lambda vault, wrong: vault.inbox.changes(wrong),
    "cursor": lambda vault, wrong: vault.inbox.list(cursor=wrong),
    "node": lambda vault, wrong: vault.inbox.list(node=wrong),
    "resolve": lambda vault, wrong: vault.effects.resolve(wrong, retry=True),
    "people": lambda vault, wrong: vault.subjects.list(cursor=wrong),
    "status": lambda vault, wrong: vault.erasure.status(wrong),
    "a plan": lambda vault, wrong: vault.erasure.erase("ann", plan=wrong),
    "erase_many": lambda vault, wrong: vault.erasure.erase_many(wrong),
    "assign": lambda vault, wrong: vault.subjects.assign(wrong),
    "prune": lambda vault, wrong: vault.checkpointer.prune(wrong),
    "runs": lambda vault, wrong: vault.checkpointer.delete_for_runs(wrong),
    "backup": lambda vault, wrong: vault.backup(wrong),
    "open": lambda vault, wrong: Vault.open(wrong),
    "lease": lambda vault, wrong: vault.checkpointer.lease("t", expect_interrupt=wrong),
    "export": lambda vault, wrong: vault.erasure.export("ann", wrong),
    "hooks": lambda vault, wrong: Vault.open("memory://", hooks=wrong).erasure,
    "a hook": lambda vault, wrong: Vault.open("memory://", hooks={"crm": wrong}).erasure,
    "issuer": lambda vault, wrong: Vault.open("memory://", issuer=wrong).erasure,
    "journal": lambda vault, wrong: Vault.open("memory://", journal=wrong).erasure,
    "personal_fields": lambda vault, wrong: Vault.open("memory://", personal_fields=wrong).erasure,
    "index": lambda vault, wrong: Vault.open("memory://", index=wrong).store,
    "store_ttl": lambda vault, wrong: Vault.open("memory://", store_ttl=wrong).store,
    "types": lambda vault, wrong: Vault.open("memory://", types=wrong),
    "subject_key": lambda vault, wrong: Vault.open("memory://", subject_key=wrong),
    "receipts": lambda vault, wrong: verify_receipts(wrong, "ab" * 32),
}


@pytest.mark.parametrize("of", OTHERS)
def test_other_arguments_of_a_wrong_kind_are_named(vault: Vault, of: str) -> None:
    for wrong in (5, b"text"):
        with pytest.raises(ConfigurationError):
            OTHERS[of](vault, wrong)


def test_one_id_is_no_list_of_ids(vault: Vault) -> None:
    for verb in (vault.checkpointer.prune, vault.checkpointer.delete_for_runs):
        with pytest.raises(IdentifierError, match="must be a list of ids"):
            verb("thread")


WRONG = [None, 5, b"x", [None], object()]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_receipts_are_checked_with_receipts_keys_and_salts(vault: Vault, wrong: Any) -> None:
    issued = vault.erasure.erase("ann").receipt
    assert issued is not None
    receipt, salts, key = issued["receipt"], issued["salts"], vault.erasure.public_key()
    with pytest.raises(VerifyFailedError, match="no receipt"):
        verify_receipt(wrong, key)
    with pytest.raises(VerifyFailedError, match="no receipt"):
        commits_to(wrong, salts, "ann")
    for check in (verify_receipt, lambda receipt, key: verify_receipts({"1.json": receipt}, key)):
        with pytest.raises(ConfigurationError, match="no Ed25519 public key"):
            check(receipt, wrong)
    with pytest.raises(ConfigurationError, match="salts"):
        commits_to(receipt, wrong, "ann")
    with pytest.raises(IdentifierError, match="subject"):
        commits_to(receipt, salts, wrong)


def test_what_stands_around_a_receipt_is_no_receipt(vault: Vault) -> None:
    issued = vault.erasure.erase("ann").receipt
    assert issued is not None
    with pytest.raises(VerifyFailedError, match="no receipt"):
        verify_receipt(issued, vault.erasure.public_key())
    with pytest.raises(VerifyFailedError, match="no receipt"):
        commits_to(issued, issued["salts"], "ann")
    with pytest.raises(ConfigurationError, match="none was given"):
        verify_receipt(issued["receipt"], [])
    with pytest.raises(ConfigurationError, match="salts"):
        commits_to(issued["receipt"], issued["salts"][0], "ann")
    assert commits_to(issued["receipt"], issued["salts"], "ann")


@pytest.mark.parametrize("kind", ["sytem", "humans", "toool", None, 3])
def test_kinds_of_messages_to_keep_are_no_slips(vault: Vault, kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="keep_types holds"):
        vault.compact_thread("t", keep_messages=1, keep_types=("system", kind))

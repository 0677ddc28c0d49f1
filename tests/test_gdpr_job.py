"""The example of a privacy job, killed again and again, each time a little later: each request is answered once."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepvault import Vault
from stepvault.erasure import commits_to

EXAMPLE = Path(__file__).parent.parent / "examples" / "gdpr_job.py"


def job() -> Any:
    spec = importlib.util.spec_from_file_location("gdpr_job", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_survives_being_killed_anywhere(tmp_path: Path) -> None:
    url, requests = job().make_demo(tmp_path)
    out = tmp_path / "privacy"
    words = [sys.executable, "-W", "error", str(EXAMPLE), "--url", url]
    words += ["--requests", str(requests), "--out", str(out)]
    kills = 0
    while (status := killed_at_line(2 * kills + 1, words)) < 0:
        kills += 1
    assert kills >= 3
    assert status == 1, "one request is held"
    receipts = [json.loads(path.read_text()) for path in sorted((out / "receipts").glob("*.json"))]
    assert [receipt["number"] for receipt in receipts] == [1, 2]
    assert [receipt["issuer"] for receipt in receipts] == ["Example Ltd, data protection"] * 2
    assert sum(receipt["removed"].get("threads", 0) for receipt in receipts) == 2
    for ticket, person in (("T-1", "ada"), ("T-3", "alan")):
        lines = [json.loads(line) for line in (out / "exports" / f"{ticket}.jsonl").read_text().splitlines()]
        assert {line["kind"] for line in lines} == {"checkpoint", "item", "step"}
        theirs = json.loads((out / "exports" / f"{ticket}.receipt.json").read_text())
        assert commits_to(theirs["receipt"], theirs["salts"], person)
        assert not commits_to(theirs["receipt"], theirs["salts"], "grace")
    with Vault.open(url) as vault:
        assert [thread.subjects for thread in vault.threads()] == [("grace",)]
        assert [item.namespace for item in vault.store.search(())] == [("users", "grace")]
        vault.erasure.release("grace")
    assert subprocess.run(words, capture_output=True, timeout=100, check=True).stdout.endswith(b"none missing\n")
    assert len(list((out / "receipts").glob("*.json"))) == 3


def test_what_a_killed_run_did_not_note_is_found(tmp_path: Path) -> None:
    """Also what was erased by somebody else meanwhile."""
    url, requests = job().make_demo(tmp_path)
    with Vault.open(url) as vault:
        vault.erasure.erase("ada")
        vault.erasure.rotate_signing_key()
        assert job().Job(vault, tmp_path / "out").run(requests) == 1
        kept = [json.loads(path.read_text()) for path in sorted((tmp_path / "out" / "receipts").iterdir())]
        assert kept == vault.erasure.receipts()
        theirs = json.loads((tmp_path / "out" / "exports" / "T-1.receipt.json").read_text())
        assert theirs["receipt"]["removed"]["threads"] == 1


@pytest.mark.parametrize(
    "row", ["T-1,alan,twice", ",alan,none", "../T-4,alan,away", "T-4,,nobody", "T-4,alan", "T-4,alan,x,y"]
)
def test_a_list_that_cannot_be_meant_is_refused_whole(tmp_path: Path, row: str) -> None:
    url, requests = job().make_demo(tmp_path)
    requests.write_text(requests.read_text() + row + "\n")
    with Vault.open(url) as vault:
        with pytest.raises(SystemExit, match=r"request [14] is not"):
            job().Job(vault, tmp_path / "out").run(requests)
        assert len(vault.threads()) == 3


def test_a_row_that_cannot_be_answered_stops_no_other(tmp_path: Path) -> None:
    url, requests = job().make_demo(tmp_path)
    requests.write_text(f"\ufeffticket,person,reason\nT-1,{'a' * 5000},long\nT-2,ada,art. 17\n", encoding="utf-8")
    with Vault.open(url) as vault:
        assert job().Job(vault, tmp_path / "out").run(requests) == 1
        requests.write_text("ticket,person,reason\nT-2,alan,of another day\n")
        assert job().Job(vault, tmp_path / "out").run(requests) == 1
        assert {thread.thread_id for thread in vault.threads()} == {"chat with grace", "chat with alan"}


def killed_at_line(number: int, words: list[str]) -> int:
    """Kill it after so many lines; the status it ended with."""
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for count, _ in enumerate(process.stdout, 1):
            if count == number:
                process.kill()
        process.wait(100)
        assert process.stderr is not None
        told = process.stderr.read()
    assert process.returncode < 0 or "Traceback" not in told, told
    return process.returncode

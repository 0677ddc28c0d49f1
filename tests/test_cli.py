"""The command line: every command, as people and as programs call it."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt
from typer.testing import CliRunner

from stepvault import Vault
from stepvault.cli import main
from stepvault.cli.app import app
from stepvault.cli.wording import OPTIONS
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, ConflictError, HoldError, StepvaultError, VerifyFailedError
from tests.contract.building import checkpoint, config
from tools.devlink import ROOMS, ROOT

# A terminal that rich calls dumb has 80 columns, whatever COLUMNS says: CI may be one.
NO_TRACES = {"STEPVAULT_URL": "", "STEPVAULT_KEYS": "", "COLUMNS": "200", "NO_COLOR": "1", "TERM": "xterm"}


def ask(state: MessagesState) -> Any:
    return {"messages": [("ai", interrupt("go on?"))]}


def put(vault: Vault, thread: str, **more: Any) -> Any:
    made = checkpoint({"a": f"data of {thread}"})
    at = config(thread, **{name: value for name, value in more.items() if name == "user_id"})
    kept = {"source": "loop", "step": 0, **more}
    return vault.checkpointer.put(at, made, kept, made["channel_versions"])  # type: ignore[arg-type]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with threads of two people, one of nobody's, one that waits for a human, and memory."""
    url = f"sqlite:///{tmp_path}/app.db"
    with Vault.open(url) as vault:
        vault.setup()
        for person in ("ann", "bob"):
            put(vault, f"{person}'s", user_id=person)
        put(vault, "old", customer="carl")
        vault.store.put(("users", "ann"), "k", {"likes": "tea"})
        graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
        graph.compile(checkpointer=vault.checkpointer).invoke({"messages": []}, config("waits", user_id="bob"))
    return url


def call(*words: str, url: str | None = None, text: str | None = None) -> Any:
    before = ["--url", url] if url else []
    return CliRunner().invoke(app, [*before, *words], input=text, env=NO_TRACES)


def told(*words: str, url: str, text: str | None = None) -> str:
    done = call(*words, url=url, text=text)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def read(*words: str, url: str, text: str | None = None) -> Any:
    """What a program reads."""
    return json.loads(told("--json", *words, url=url, text=text))


def refused(*words: str, url: str, by: type[StepvaultError]) -> None:
    done = call(*words, url=url)
    assert done.exit_code == 1
    assert isinstance(done.exception, by), done.exception


def test_compact(url: str) -> None:
    with Vault.open(url) as vault:
        graph = StateGraph(MessagesState).add_node("a", lambda state: {"messages": [("ai", "x" * 50)]})
        graph.add_edge(START, "a").compile(checkpointer=vault.checkpointer).invoke(
            {"messages": [("human", "hello")]}, config("long")
        )
    words = ("compact", "long", "--keep", "1", "--summarise", "builtins:repr")
    assert read(*words, url=url)["checkpoint_id"] is None
    done = read(*words, "--yes", url=url)
    assert (len(done["removed"]), done["kept"]) == (1, 1)
    assert "compacted" in told("threads", url=url)
    refused("compact", "waits", "--keep", "1", "--yes", url=url, by=ConflictError)


def test_threads_and_show(url: str) -> None:
    assert {thread["thread_id"] for thread in read("threads", url=url)} == {"ann's", "bob's", "old", "waits"}
    assert [thread["thread_id"] for thread in read("threads", "--subject", "ann", url=url)] == ["ann's"]
    assert "more: --cursor" in told("threads", "--limit", "1", url=url)
    assert "interrupted" in told("threads", url=url)
    assert len(read("show", "ann's", url=url)) == 1
    assert "data of ann" in told("show", "ann's", "--values", url=url)


def test_ids_can_be_copied_into_the_next_command(url: str) -> None:
    with Vault.open(url) as vault:
        (question,) = vault.inbox.list()
        head = vault.checkpointer.get_tuple(config("waits")).checkpoint["id"]  # type: ignore[union-attr]
    for width in ("80", ""):  # a terminal, a pipe
        env = {**NO_TRACES, "COLUMNS": width}
        assert f" {question.interrupt_id} " in CliRunner().invoke(app, ["--url", url, "inbox"], env=env).stdout
        assert f" {head} " in CliRunner().invoke(app, ["--url", url, "show", "waits"], env=env).stdout


def test_a_narrow_terminal_folds_no_short_word(url: str) -> None:
    done = CliRunner().invoke(app, ["--url", url, "threads"], env={**NO_TRACES, "COLUMNS": "80"})
    assert "interrupted" in done.stdout


def test_a_mistyped_path_makes_no_database(tmp_path: Path) -> None:
    refused("threads", url=f"sqlite:///{tmp_path}/typo.db", by=ConfigurationError)
    assert not list(tmp_path.iterdir())


def test_inbox_and_decide(url: str) -> None:
    (question,) = read("inbox", url=url)
    assert question["value"] == "go on?"
    assert read("decide", question["id"], '{"yes": 1}', "--by", "eve", url=url)["answer"] == {"yes": 1}
    assert read("inbox", url=url) == []
    assert [entry["id"] for entry in read("inbox", "--status", "decided", url=url)] == [question["id"]]
    refused("decide", question["id"], "no", url=url, by=StepvaultError)


def test_an_erasure_is_a_dry_run_until_it_is_confirmed(url: str) -> None:
    (plan,) = read("erase", "plan", "ann", url=url)
    assert [thread["thread_id"] for thread in plan["threads"]] == ["ann's"]
    assert read("erase", "run", "ann", url=url) == [plan]
    assert "Dry run" in call("erase", "run", "ann", url=url).output
    assert len(read("threads", "--subject", "ann", url=url)) == 1
    (row,) = read("erase", "run", "ann", "--yes", url=url)
    assert row["state"] == "receipted"
    assert read("threads", "--subject", "ann", url=url) == []
    assert read("erase", "status", row["request"], url=url)["counts"] == {"threads": 1, "checkpoints": 1, "items": 1}
    assert read("erase", "resume", url=url) == []


def test_patterns_of_the_app_say_whose_memory_is_erased(url: str) -> None:
    with Vault.open(url) as vault:
        for namespace in (("people", "u-ann"), ("odd/label", "u-ann")):
            vault.store.put(namespace, "k", {"n": 1})
    patterns = ("--subject-pattern", "people/u-{subject}", "--subject-pattern", '["odd/label", "u-{subject}"]')
    (plan,) = read(*patterns, "erase", "plan", "ann", url=url)
    assert sorted(plan["namespaces"].values()) == [1, 1]
    told(*patterns, "erase", "run", "ann", "--yes", url=url)
    with Vault.open(url) as vault:
        assert vault.store.list_namespaces() == [("users", "ann")]
    for wrong in ("people", "[people/u-{subject}"):
        assert call("--subject-pattern", wrong, "erase", "plan", "ann", url=url).exit_code == 2


def test_ids_need_not_stand_on_the_command_line(url: str) -> None:
    assert read("hold", "-", "case 7", url=url, text="ann\n") == {"held": True}
    assert read("erase", "plan", "--from", "-", url=url, text="ann\n")[0]["held"] == "case 7"
    told("release", "-", url=url, text="ann\n")
    assert set(read("subjects", "link", "-", url=url, text="ann\nann@old\n")["ids"]) == {"ann", "ann@old"}
    exported = told("export", "-", url=url, text="ann@old\n")
    assert {json.loads(line)["kind"] for line in exported.splitlines()} == {"checkpoint", "step", "item"}
    told("erase", "run", "--from", "-", "--yes", url=url, text="ann\n")
    assert read("readmit", "-", url=url, text="ann\n") == {"readmitted": True}
    assert call("hold", "-", "case 7", url=url, text="\n").exit_code == 2


def test_threads_of_ones_own_can_be_anonymised(url: str) -> None:
    with Vault.open(url) as vault:
        made = checkpoint({"email": "ann@example.com", "name": "Ann", "total": 3})
        at = config("order", user_id="ann")
        vault.checkpointer.put(at, made, {"source": "loop"}, made["channel_versions"])
    fields = ("--personal-field", "name", "--personal-field", "email=gone@example.invalid")
    told("erase", "run", "ann", "--yes", "--own", "anonymise", *fields, url=url)
    with Vault.open(url) as vault:
        found = vault.checkpointer.get_tuple(config("order"))
        assert found is not None
        assert found.checkpoint["channel_values"] == {"email": "gone@example.invalid", "name": "[erased]", "total": 3}
        assert vault.erasure.plan("ann").threads == []
    assert call("erase", "run", "bob", "--yes", "--own", "keep", url=url).exit_code == 1


def test_a_list_of_people_is_erased_row_by_row(url: str, tmp_path: Path) -> None:
    people, receipts = tmp_path / "people.txt", tmp_path / "receipts"
    people.write_text("ann\n\nheld\nbob\n")
    told("hold", "held", "case 7", url=url)
    done = call("--json", "erase", "run", "--from", str(people), "--receipts", str(receipts), "--yes", url=url)
    assert done.exit_code == 1
    assert [row["state"] for row in json.loads(done.stdout)] == ["receipted", "HoldError", "receipted"]
    assert "ann" not in done.stdout
    key = read("erase", "keys", url=url)[-1]["public_key"]
    report = json.loads(told("--json", "erase", "verify-receipts", str(receipts), "--public-key", key, url=url))
    assert (report["complete"], report["genuine"]) == (True, 2)
    first, second = sorted(receipts.glob("*.json"))
    assert read("erase", "verify-receipt", str(first), "--public-key", key, url=url)["genuine"] is True
    first.unlink()
    done = call("--json", "erase", "verify-receipts", str(receipts), "--public-key", key)
    assert done.exit_code == 1
    assert list(json.loads(done.stdout)["missing"].values()) == [[1]]
    second.write_text(second.read_text().replace('"remaining": 0', '"remaining": 1'))
    refused("erase", "verify-receipt", str(second), "--public-key", key, url=url, by=VerifyFailedError)
    told("release", "held", url=url)
    assert read("erase", "run", "--from", "-", "--yes", url=url, text="held\n")[0]["state"] == "receipted"


@pytest.mark.parametrize("source", ["file", "-"])
def test_a_list_is_read_as_it_is_meant(url: str, tmp_path: Path, source: str) -> None:
    """Written on Windows; an id with a line separator in it is one id; what is no text names nobody."""
    people = tmp_path / "people.txt"
    with Vault.open(url) as vault:
        put(vault, "hers", user_id="bob\u2028ann\x85cy")
    given = "\ufeffbob\u2028ann\x85cy\r\nnobody\r\n".encode()
    for content in (given, b"caf\xe9\n"):
        people.write_bytes(content)
        words = ["erase", "run", "--yes", *(["--from", str(people)] if source == "file" else ["-"])]
        done = CliRunner().invoke(app, ["--url", url, "--json", *words], input=content, env=NO_TRACES)
        assert done.exit_code == (0 if content == given else 1)
    assert isinstance(done.exception, ConfigurationError)
    with Vault.open(url) as vault:
        assert {thread.thread_id for thread in vault.threads()} == {"ann's", "bob's", "old", "waits"}


def test_receipts_of_a_run_that_was_killed_are_kept_by_the_next(url: str, tmp_path: Path) -> None:
    receipts = tmp_path / "receipts"
    told("erase", "run", "ann", "--yes", url=url)  # killed before it wrote them
    told("erase", "run", "bob", "--yes", "--receipts", str(receipts), url=url)
    first, second = sorted(receipts.iterdir())
    second.unlink()
    before = first.stat().st_mtime_ns
    assert read("erase", "resume", "--receipts", str(receipts), url=url) == []
    assert sorted(receipts.iterdir()) == [first, second]
    assert first.stat().st_mtime_ns == before, "what is there stays"
    key = read("erase", "keys", url=url)[-1]["public_key"]
    assert read("erase", "verify-receipts", str(receipts), "--public-key", key, url=url)["genuine"] == 2


def test_a_hold_stops_an_erasure(url: str) -> None:
    told("hold", "ann", "case 7", url=url)
    assert read("erase", "plan", "ann", url=url)[0]["held"] == "case 7"
    assert call("erase", "run", "ann", "--yes", url=url).exit_code == 1
    with Vault.open(url) as vault, pytest.raises(HoldError):
        vault.erasure.erase("ann")


def test_the_journal_and_who_comes_back(url: str, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    refused("erase", "reconcile", "--journal", journal, url=url, by=ConfigurationError)
    told("erase", "run", "ann", "--yes", "--journal", journal, url=url)
    assert read("erase", "reconcile", "--journal", journal, url=url) == []
    told("readmit", "ann", "--journal", journal, url=url)
    with Vault.open(url) as vault:
        put(vault, "again", user_id="ann")
    assert read("erase", "reconcile", "--journal", journal, url=url) == []


def test_a_journal_is_replayed_for_every_tenant(tmp_path: Path) -> None:
    journal, (before, restored) = str(tmp_path / "journal"), (f"sqlite:///{tmp_path}/{n}.db" for n in range(2))
    for url in (before, restored):
        with Vault.open(url) as vault:
            put(vault.for_tenant("acme"), "hers", user_id="ann")
    told("--tenant", "acme", "erase", "run", "ann", "--yes", "--journal", journal, url=before)
    assert read("--tenant", "another", "erase", "reconcile", "--journal", journal, url=restored) == []
    (done,) = read("erase", "reconcile", "--journal", journal, url=restored)
    assert done["counts"] == {"threads": 1, "checkpoints": 1}
    with Vault.open(restored) as vault:
        acme = vault.for_tenant("acme")
        put(acme, "his", user_id="bob")
        for name, reached in (("bob", "tombstoned"), ("nobody", "deleted")):
            with pytest.raises(ZeroDivisionError):
                acme.erasure.erase(name, progress=lambda request, reached=reached: 1 // (request.state != reached))
        acme.checkpointer.delete_thread("his")  # so the tenant has no thread any more
    assert [done["state"] for done in read("erase", "resume", url=restored)] == ["receipted"] * 2


def test_signing_keys_are_rotated(url: str) -> None:
    first = read("erase", "keys", url=url)
    both = read("erase", "keys", "--rotate", url=url)
    assert [key["current"] for key in both] == [False, True]
    assert both[0]["public_key"] == first[0]["public_key"]


def test_export(url: str, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in told("export", "ann", url=url).splitlines()]
    assert {line["kind"] for line in lines} >= {"checkpoint", "item"}
    out = tmp_path / "ann.jsonl"
    assert read("export", "ann", "--file", str(out), url=url)["lines"] == len(lines)
    assert len(out.read_text().splitlines()) == len(lines)


def test_upkeep_of_a_database(url: str, tmp_path: Path) -> None:
    assert {one["name"]: one["threads"] for one in read("stats", "--by", "subject", url=url)}["ann"] == 1
    assert read("health", url=url)["reachable"] is True
    target = f"sqlite:///{tmp_path}/backup.db"
    assert read("backup", target, url=url)["kind"] == "file"
    assert read("threads", url=target) == read("threads", url=url)


def test_subjects(url: str) -> None:
    found = read("subjects", "list", url=url)
    assert {person["subject"]: person["threads"] for person in found} == {"ann": 1, "bob": 2}
    assert read("subjects", "assign", "--from-metadata", "customer", url=url)["threads"] == 1
    assert len(read("subjects", "list", url=url)) == 2
    assert read("subjects", "assign", "--from-metadata", "customer", "--yes", url=url)["threads"] == 1
    assert "carl" in told("subjects", "list", url=url)
    assert read("subjects", "link", "ann", "carl", url=url)["ids"] == ["ann", "carl"]
    (plan,) = read("erase", "plan", "carl", url=url)
    assert {thread["thread_id"] for thread in plan["threads"]} == {"ann's", "old"}
    assert read("subjects", "rebuild", url=url)["entries"] == 4
    assert call("subjects", "link", "ann", url=url).exit_code == 2


def test_upkeep(url: str, tmp_path: Path) -> None:
    assert read("sweep", "--dry-run", url=url)["threads"] == 0
    assert read("sweep", "--apply-ttl", "60", url=url)["threads"] == 0
    assert all(thread["expires_at"] for thread in read("threads", url=url))
    assert read("verify", url=url)["problems"] == []
    at = read("show", "ann's", url=url)[0]["checkpoint_id"]
    assert read("repair", "ann's", "--to", at, url=url)["to"] == at
    refused("repair", "ann's", "--to", "none", url=url, by=ConfigurationError)
    assert len(read("show", "ann's", url=url)) == 1
    assert read("repair", "ann's", "--to", at, "--yes", url=url)["head"] != at
    assert read("doctor", url=url)["database"] == "answers"
    assert "CREATE TABLE" in told("schema", "sqlite", url=url)
    assert "CREATE TABLE" in told("schema", "postgres", url=url)
    assert call("schema", "oracle", url=url).exit_code == 2
    assert read("rebuild", url=url) == {"deadlines": 4, "subjects": 3, "interrupts": 1}


def test_a_copy_has_the_same_people(url: str, tmp_path: Path) -> None:
    copy = f"sqlite:///{tmp_path}/copy.db"
    assert read("copy", copy, url=url) == {"threads": 4, "items": 1}
    assert {thread["thread_id"]: thread["subjects"] for thread in read("threads", url=copy)} == {
        "ann's": ["ann"],
        "bob's": ["bob"],
        "waits": ["bob"],
        "old": [],
    }
    assert len(read("inbox", url=copy)) == 1


def test_a_copy_has_the_same_keys_and_tenant(tmp_path: Path) -> None:
    source, copy, kept = (f"sqlite:///{tmp_path}/{name}.db" for name in ("source", "copy", "keys"))
    keyring = Keyring.generate()
    keyring.to_file(tmp_path / "keyfile")
    with Vault.open(source, keyring=keyring, keys_url=kept) as vault:
        put(vault, "of no tenant")
        put(vault.for_tenant("acme"), "of acme")
        vault.for_tenant("acme").store.put(("a",), "k", {"likes": "peppermint"})
    sealed = ("--keyfile", str(tmp_path / "keyfile"), "--tenant", "acme")
    refused(*sealed, "threads", url=source, by=ConfigurationError)
    assert read(*sealed, "--keys-url", kept, "copy", copy, url=source) == {"threads": 1, "items": 1}
    with pytest.raises(StepvaultError, match="pass keyring"):
        Vault.open(copy).threads()
    assert b"peppermint" not in (tmp_path / "copy.db").read_bytes()
    (thread,) = read(*sealed, "threads", url=copy)
    assert thread["thread_id"] == "of acme"


def test_json_is_one_document_and_pages_go_on(url: str) -> None:
    shown = read("show", "ann's", "--values", url=url)
    assert shown["values"] == {"a": "data of ann's"}
    assert len(shown["checkpoints"]) == 1
    refused("show", "nobody's", url=url, by=ConfigurationError)
    assert read("hold", "ann", "trial", url=url) == {"held": True}
    assert read("release", "ann", url=url) == {"held": False}
    page = call("--json", "threads", "--limit", "3", url=url)
    assert len(json.loads(page.stdout)) == 3
    (rest,) = read("threads", "--cursor", page.stderr.split()[-1], url=url)
    assert rest["thread_id"] not in page.stdout


def test_rebuild_finds_what_lost_its_index(redis_url: str) -> None:
    with Vault.open(redis_url) as vault, redis.Redis.from_url(redis_url) as client:
        vault.setup()
        for person in ("ann", "bob"):
            put(vault, f"{person}'s", user_id=person)
        for key in client.scan_iter("stepvault:*ix:*"):
            client.delete(key)
    assert read("threads", url=redis_url) == []
    assert read("rebuild", url=redis_url)["entries put back"] == 2
    assert len(read("threads", url=redis_url)) == 2


def test_keys(url: str, tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    made = read("keys", "generate", file, "--id", "first", url=url)
    assert made["ids"] == ["first"]
    assert read("keys", "generate", file, "--add", "--id", "second", url=url)["primary"] == "second"
    secrets = [line.split(":")[1].strip() for line in Path(file).read_text().splitlines() if ":" in line]
    sealed = f"sqlite:///{tmp_path}/sealed.db"
    with Vault.open(sealed, keyring=Keyring.from_file(file).with_primary("first")) as vault:
        put(vault, "t")
    refused("threads", url=sealed, by=ConfigurationError)
    assert len(read("--keyfile", file, "threads", url=sealed)) == 1
    listed = told("--keyfile", file, "keys", "list", url=sealed)
    assert not any(secret and secret in listed for secret in secrets)
    assert len(read("--keyfile", file, "keys", "rotate", url=sealed)) == 2
    assert read("--keyfile", file, "keys", "rotate", "--destroy-old", "--yes", url=sealed)["destroyable"] == ["first"]


def test_seal(url: str, tmp_path: Path) -> None:
    file = str(tmp_path / "keys")
    told("keys", "generate", file, url=url)
    assert "Dry run" in call("--keyfile", file, "seal", url=url).output
    done = read("--keyfile", file, "seal", "--settle", "0", "--yes", url=url)
    assert (done["threads"], done["items"]) == (4, 1)
    assert read("--keyfile", file, "keys", "list", "--subject", "nobody", url=url) == []
    assert "Dry run" in call("--keyfile", file, "unseal", url=url).output
    assert read("--keyfile", file, "unseal", "--settle", "0", "--yes", url=url)["threads"] == 4
    assert len(read("threads", url=url)) == 4
    assert read("--keyfile", file, "seal", "--settle", "0", "--yes", url=url)["threads"] == 4
    assert len(read("--keyfile", file, "threads", url=url)) == 4
    refused("threads", url=url, by=ConfigurationError)


def test_tenants_are_apart(url: str) -> None:
    assert json.loads(told("--json", "--tenant", "other", "threads", url=url)) == []


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:hunter2@127.0.0.1:1/db", "redis://me:hunter2@127.0.0.1:1", "mysql://me:hunter2@h/db", "hunter2"],
)
def test_a_real_process_hides_passwords_and_says_what_is_wrong(url: str) -> None:
    words = [sys.executable, "-c", "from stepvault.cli import main; main()", "--url", url, "threads"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "Error" in done.stderr
    assert "Traceback" not in done.stderr
    assert url == "hunter2" or "hunter2" not in done.stdout + done.stderr


def test_a_real_process_ends_with_the_status_of_its_command(url: str) -> None:
    words = [sys.executable, "-c", "from stepvault.cli import main; main()", "--url", url, "--json"]
    done = subprocess.run([*words, "threads"], capture_output=True, timeout=100, check=True)
    assert len(json.loads(done.stdout)) == 4
    assert subprocess.run([*words, "frobnicate"], capture_output=True, timeout=100, check=False).returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("erase plan --from {none}", "No such file"),
        ("erase run ann --yes --receipts {file}/x", "file"),
        ("erase run ann --yes --journal {none}/x", ""),
        ("erase run ann --yes --from {file}", "not both"),
        ("erase run ann --yes --personal-field =x", "NAME"),
        ("erase verify-receipt {none} --public-key 00", "No such file"),
        ("erase verify-receipts {none} --public-key 00", "no receipts"),
        ("export ann --file {none}/x", "No such file"),
        ("compact t1 --keep 1 --summarise no_such_module:f", "no module"),
        ("adopt sqlite:///{file}", "no SQLite"),
        ("repair none --to none", "no checkpoint"),
        ("sweep --limit 0", "limit must be"),
        ("sweep --seconds nan", "seconds"),
    ],
)
def test_a_wrong_call_is_refused_in_words_and_erases_nobody(
    words: str, said: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_text("bob\n" * 1000)
    argv = [word.format(none=tmp_path / "none", file=file) for word in words.split()]
    monkeypatch.setattr(sys, "argv", ["stepvault", "--url", url, *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (1, 2)
    assert said in capsys.readouterr().err
    assert len(read("threads", url=url)) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("threads", "keyring= is --keyfile FILE (or STEPVAULT_KEYS)"),
        ("--keyfile {keys} --tenant a sweep --all-tenants", "all_tenants= is --all-tenants"),
        ("--keyfile {keys} threads --limit 0", "limit= is --limit"),
        ("--keyfile {keys} compact t --keep -1", "keep_messages= is --keep"),
        ("--keyfile {keys} sweep --apply-ttl -5", "default_ttl= is --apply-ttl"),
        ("--keyfile {keys} seal --settle -1 --yes", "settle= is --settle"),
        ("--keyfile {keys} erase verify-receipt {receipt} --public-key 00", "public_key= is --public-key"),
        ("doctor", "keyring= is --keyfile"),
        ("erase run ann --yes", "keyring= is --keyfile"),
    ],
)
def test_errors_name_the_options_of_the_command_line(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, url, receipt = tmp_path / "keys", f"sqlite:///{tmp_path}/sealed.db", tmp_path / "receipt"
    receipt.write_text('{"signature": "00"}')
    ring = Keyring.generate()
    ring.to_file(keys)
    with Vault.open(url, keyring=ring) as vault:
        put(vault, "t")
    argv = [word.format(keys=keys, receipt=receipt) for word in words.split()]
    monkeypatch.setattr(sys, "argv", ["stepvault", "--url", url, *argv])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (1, 2)
    shown = capsys.readouterr()
    assert said in " ".join((shown.err + shown.out).split())


def test_every_option_that_a_message_names_in_python_has_its_name_here() -> None:
    """So that a new message is not forgotten."""
    commands = [app, *(group.typer_instance for group in app.registered_groups)]
    names = {
        name
        for command in commands
        for info in (*command.registered_commands, command.registered_callback)
        if info is not None and info.callback is not None
        for name in inspect.signature(info.callback).parameters
    }
    said = set()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py") if "cli" not in path.parts):
        raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
        texts = [part.value for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
        said |= set(re.findall(r"\b([a-z_]+)=", " ".join(text for text in texts if isinstance(text, str))))
    assert {"keyring", "keys_url", "all_tenants"} <= said
    assert (said & names) - OPTIONS.keys() == set()


def test_an_app_that_is_not_there_is_named(url: str) -> None:
    refused("--app", "no_such_module", "threads", url=url, by=ConfigurationError)
    refused("--app", "os:no_such_function", "threads", url=url, by=ConfigurationError)


def test_a_receipt_of_an_erasure_that_waits_for_its_journal_comes_later(url: str, tmp_path: Path) -> None:
    journal = tmp_path / "later" / "journal"
    assert call("erase", "run", "ann", "--yes", "--journal", str(journal), url=url).exit_code == 1
    journal.parent.mkdir()
    (done,) = read("erase", "resume", "--journal", str(journal), url=url)
    assert done["state"] == "receipted"
    assert journal.read_text()

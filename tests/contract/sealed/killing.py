"""A sealing to be killed: run by a test in a process of its own, which forks one child per kill.

python -m tests.contract.sealed.killing FOLDER EVERY [unseal]

Kills at every EVERYth statement of a sealing of an SQLite file, threads and items, or of an unsealing. After each kill,
a process with keys reads every thread; then it is gone on with. Prints how many kills there were.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base.id import uuid6

from stepvault import Vault
from stepvault.checkpointers.sqlite import SqliteSaver
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError

KEYRING = Keyring({"test": bytes(range(32))})
THREADS = 4


def fill(path: Path, keyring: Keyring | None) -> dict[str, Any]:
    """Threads; what they hold."""
    with SqliteSaver.from_conn_string(str(path), ttl={"default_ttl": 600}, keyring=keyring) as saver:
        for number in range(THREADS):
            at: Any = {"configurable": {"thread_id": str(number), "checkpoint_ns": "", "user_id": "somebody"}}
            for step in range(2):
                values = {"log": [f"{number} {step} " * 50, step]}
                made: Any = {
                    "v": 4, "id": str(uuid6(clock_seq=step)), "ts": "", "channel_values": values,
                    "channel_versions": {"log": f"{step:08}"}, "versions_seen": {}, "updated_channels": None,
                }  # fmt: skip
                at = saver.put(at, made, {"source": "loop", "step": step}, made["channel_versions"])
                saver.put_writes(at, [("log", step)], f"task {step}")
        before = read(saver)
    with Vault.open(f"sqlite:///{path}", keyring=keyring) as vault:
        for number in range(THREADS):
            vault.store.put(("n", str(number)), "k", {"text": f"somebody {number}"})
    return before


def check_items(path: Path, keyring: Keyring | None) -> None:
    with Vault.open(f"sqlite:///{path}", keyring=keyring) as vault:
        for number in range(THREADS):
            item = vault.store.get(("n", str(number)), "k")
            assert item is not None
            assert item.value == {"text": f"somebody {number}"}
        assert len(vault.store.search(("n",))) == THREADS


def convert(path: Path, name: str, trace: Any = None) -> None:
    with Vault.open(f"sqlite:///{path}", keyring=KEYRING) as vault:
        if trace is not None:  # the store is on the same connection
            vault.checkpointer._driver.connection().set_trace_callback(trace)  # type: ignore[attr-defined]
        getattr(vault, name)(settle=0)


def read(saver: SqliteSaver) -> dict[str, Any]:
    return {
        str(n): list(saver.list({"configurable": {"thread_id": str(n), "checkpoint_ns": ""}})) for n in range(THREADS)
    }


def main(folder: str, every: str, direction: str = "seal") -> None:
    template, copy = Path(folder) / "template.db", Path(folder) / "copy.db"
    sealing = direction == "seal"
    before = fill(template, None if sealing else KEYRING)
    kills = 0
    for statement in itertools.count(0, int(every)):
        for path in Path(folder).glob("copy.db*"):
            path.unlink()
        shutil.copyfile(template, copy)
        if not killed_at(statement, copy, direction):
            break
        kills += 1
        (check if sealing else check_unsealed)(copy, before)
    print(kills)


def killed_at(statement: int, path: Path, direction: str) -> bool:
    """Whether a child that counts its statements was killed before this one."""
    child = os.fork()
    if child == 0:
        try:
            left = [statement]

            def count(sql: str) -> None:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

            convert(path, direction, count)
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def check(path: Path, before: dict[str, Any]) -> None:
    """What a pod with keys reads after the kill, and what is there after the sealing has gone on."""
    with SqliteSaver.from_conn_string(str(path), keyring=KEYRING) as saver:
        if begun(saver):
            assert read(saver) == before
    convert(path, "seal")
    check_items(path, KEYRING)
    with SqliteSaver.from_conn_string(str(path), keyring=KEYRING) as saver:
        assert read(saver) == before
        assert {info.thread_id for info in saver.threads()} == before.keys()
    content = b"".join(part.read_bytes() for part in path.parent.glob("copy.db*"))
    assert b"somebody" not in content


def check_unsealed(path: Path, before: dict[str, Any]) -> None:
    """What a pod reads after the kill, with keys unless it has ended, and without them once it was gone on with."""
    ended = contextlib.suppress(ConfigurationError)
    with ended, SqliteSaver.from_conn_string(str(path), keyring=KEYRING) as saver:
        assert read(saver) == before
    convert(path, "unseal")
    check_items(path, None)
    with SqliteSaver.from_conn_string(str(path)) as saver:
        assert read(saver) == before
        assert {info.thread_id for info in saver.threads()} == before.keys()


def begun(saver: SqliteSaver) -> bool:
    """Whether the marker was set before the kill; without it, the database is refused as an unsealed one."""
    inner = saver._core.dialect.inner  # type: ignore[attr-defined]
    return bool(saver._driver.run(inner.get_docs(b"vault", [b"seal"])))


if __name__ == "__main__":
    main(*sys.argv[1:])

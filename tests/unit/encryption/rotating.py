"""Rotations to be killed: run by the tests in a process of its own, which forks one child per kill.

python -m tests.unit.encryption.rotating kills DATABASE OLD_KEYS ALL_KEYS KEYS
python -m tests.unit.encryption.rotating rotate DATABASE ALL_KEYS
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepvault._core.plan import Op
from stepvault._keystore.rotation import Progress, destroy_old, rotate
from stepvault.encryption import Keyring
from tests.unit.encryption.making import Store, drain

PAGE = 4


def kills(database: str, old: str, new: str, count: str) -> None:
    """Kill a rotation at each of its statements, in turn; after each, all keys open and a second run finishes."""
    keyring = Keyring.from_file(new)
    template = Path(database)
    store = Store(template)
    secrets = {draft.owner: draft.secret.value for draft in store.fill(Keyring.from_file(old), int(count))}
    store.run(_checkpoint())
    store.close()
    print(_kill_each(template, keyring, secrets, rotate), _kill_each(template, keyring, secrets, destroy_old))


def _kill_each(template: Path, keyring: Keyring, secrets: dict[bytes, bytes], operation: Any) -> int:
    """Kill at the first statement, the second, ..., until it ends before it is killed; how many there were."""
    copy = template.with_suffix(".copy")
    for statement in itertools.count():
        _copy(template, copy)
        if not _killed_at(statement, copy, keyring, operation):
            return statement
        _check(copy, keyring, secrets, operation)
    raise AssertionError


def _killed_at(statement: int, path: Path, keyring: Keyring, operation: Any) -> bool:
    """Whether a child that counts its statements was killed before this one."""
    child = os.fork()
    if child == 0:
        try:
            store = Store(path)
            left = [statement]

            def count(sql: str) -> None:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1

            store.driver.connection().set_trace_callback(count)
            store.run(operation(store.dialect, keyring.wrapper(), page=PAGE))
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status)


def _check(path: Path, keyring: Keyring, secrets: dict[bytes, bytes], operation: Any) -> None:
    store = Store(path)
    _open_all(store, keyring, secrets)
    store.run(operation(store.dialect, keyring.wrapper(), page=PAGE))
    _open_all(store, keyring.without(*keyring.ids[1:]), secrets)
    store.close()


def _open_all(store: Store, keyring: Keyring, secrets: dict[bytes, bytes]) -> None:
    rows = store.rows()
    opened = drain(keyring.wrapper().unwrap(rows))
    assert {row.owner: opened[row.id].value for row in rows} == secrets


def _copy(source: Path, target: Path) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{target}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(source, target)


def _checkpoint() -> Op[None]:
    from stepvault._core.plan import Atomic, Batch, Stmt

    def inside() -> Op[None]:
        yield Batch([Stmt("PRAGMA wal_checkpoint(TRUNCATE)")])

    yield Atomic(inside(), "read")


def rotation(database: str, new: str) -> None:
    """Wait for the other one, then rotate; prints how many keys this process moved."""
    store = Store(Path(database))
    keyring = Keyring.from_file(new)
    print("ready", flush=True)
    sys.stdin.readline()
    done: list[Progress] = []
    store.run(rotate(store.dialect, keyring.wrapper(), done.append, page=PAGE))
    print(done[-1].rewrapped)


if __name__ == "__main__":
    commands: dict[str, Callable[..., None]] = {"kills": kills, "rotate": rotation}
    commands[sys.argv[1]](*sys.argv[2:])

"""Workers that are killed while they seal, rotate and unseal, in pairs, beside writers that go on throughout.

Run as a program, it takes a database through its forms again and again: two workers begin a change, one is killed at a
batch, the other at any time, until one comes to its end. After each kill, a fresh process finds everything that writers
were told is stored. It prints how many workers were killed in each change. To be killed once, a database need not be
unsealed again.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import INTERRUPT
from langgraph.types import Interrupt

from stepvault._keystore import marker, rotation
from stepvault.checkpointers._directions import seal, unseal
from stepvault.checkpointers._inbox import Inbox
from stepvault.checkpointers._ops import holding
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError, KeyNotFoundError
from tests.contract.building import checkpoint, config, new_id
from tests.contract.matrix import DATABASES, saver_elsewhere
from tests.faults.workload import Deadly

MARKER = "secret-2a90c1f7be35"
SETTLE, RECHECK = 0.6, 0.1  # seconds; between them is what a pod may take for a write
PAGE, THREADS = 3, 5


def content(thread: str, number: int) -> dict[str, Any]:
    return {"log": [f"{MARKER} {thread} {number}"] * 3, "number": number}


def fill(saver: Any, told: Callable[[str, str, int], None]) -> None:
    """Threads of a few checkpoints, and a question that waits."""
    saver.setup()
    for thread in [f"t{number}" for number in range(THREADS)]:
        for number in range(2):
            write(saver, thread, number, told)
    made = checkpoint(content("asks", 0), id=new_id())
    at = saver.put(config("asks"), made, {"step": 0}, made["channel_versions"])
    saver.put_writes(at, [(INTERRUPT, (Interrupt(value=MARKER, id="i" * 32),))], "task")
    told("asks", made["id"], 0)


def write(saver: Any, thread: str, number: int, told: Callable[[str, str, int], None]) -> None:
    made = checkpoint(content(thread, number), id=new_id())
    saver.put(config(thread), made, {"step": number, "who": MARKER}, made["channel_versions"])
    told(thread, made["id"], number)


def write_on(saver: Any, told: Callable[[str, str, int], None], name: str, fresh: int) -> None:
    """Write to every thread, and to some new ones, until told to end; refused is who has not the form of the day."""
    ended = False

    def stop(*_: Any) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, stop)
    number = 0
    while not ended:
        number += 1
        thread = f"{name} {number}" if number % 40 == 0 and number < 40 * fresh else f"t{number % THREADS}"
        try:
            write(saver, thread, number, told)
        except (ConfigurationError, KeyNotFoundError):
            time.sleep(0.02)
        time.sleep(0.004)


def check(saver: Any, told: list[tuple[str, str, int]], *, whole: bool = False) -> None:
    """Everything that somebody was told is there and holds what it held; `whole`: and nothing twice."""
    names = [info.thread_id for info in saver.threads(limit=1000)]
    assert set(names) >= {thread for thread, _, _ in told}, names
    assert not whole or len(names) == len(set(names)), names
    for thread in set(names):
        found = {entry.checkpoint["id"]: entry for entry in saver.list(config(thread))}
        for _, checkpoint_id, number in [line for line in told if line[0] == thread]:
            assert found[checkpoint_id].checkpoint["channel_values"] == content(thread, number), (thread, number)
    if whole:
        (asked,) = Inbox(saver).list()
        assert (asked.value, asked.thread_id) == (MARKER, "asks")


class World:
    """One database, and the processes on it."""

    def __init__(self, name: str, url: str, seed: str, most: int, folder: Path) -> None:
        self.name, self.url, self.most, self._folder = name, url, most, folder
        self.dice, self.kills = random.Random(seed), Counter[str]()
        self.ring = Keyring({f"first-{seed}": bytes(range(32))})

    def saver(self, keyring: Keyring | None) -> Any:
        return saver_elsewhere(self.name, self.url, **({} if keyring is None else {"keyring": keyring}))

    def tell(self) -> Callable[[str, str, int], None]:
        """Notes what was stored; each process has a file."""
        file = os.open(self._folder / f"{os.getpid()}", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        return lambda *line: (os.write(file, json.dumps(line).encode() + b"\n"), None)[1]

    def told(self) -> list[tuple[str, str, int]]:
        files = [path.read_text() for path in self._folder.iterdir()]
        return [
            tuple(json.loads(line)) for text in files for line in text.splitlines(keepends=True) if line[-1] == "\n"
        ]

    def forget(self) -> None:
        for path in self._folder.iterdir():
            path.unlink()

    def start(self, work: Callable[[Any], Any], keyring: Keyring | None, at: tuple[str, int] | None = None) -> int:
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            saver = self.saver(keyring)
            if at is not None:
                saver._driver = Deadly(saver._driver, *at)
            work(saver)
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)

    def do(self, work: Callable[[Any], Any], keyring: Keyring | None) -> None:
        assert ended(self.start(work, keyring)) == 0

    def check(self, *keyrings: Keyring | None, whole: bool = False) -> None:
        """By a fresh process, with the first of these keyrings that is not refused."""
        told = self.told()

        def look(_: Any) -> None:
            for keyring in keyrings:
                try:
                    with self.saver(keyring) as saver:
                        check(saver, told, whole=whole)
                    return
                except ConfigurationError:
                    continue
            raise AssertionError("refused with and without keys")

        self.do(look, None)

    def change(self, name: str, work: Callable[[Any], Any], pods: list[Keyring], *readers: Keyring | None) -> None:
        """Have pairs of workers begin a change until one ends it."""
        writers = [
            self.start(lambda saver, n=n: write_on(saver, self.tell(), f"{name} {n}", 3), pod)
            for n, pod in enumerate(pods)
        ]
        longest, last = (0.03, 16) if name == "rotate" else (2 * SETTLE + 0.5, self.dice.choice((20, 60, 120)))
        kills, done = 0, False
        while not done:
            kind, at = self.dice.choice(("before", "after")), self.dice.randint(1, last)
            spared = kills >= self.most
            workers = [self.start(work, pods[0], None if spared else (kind, at)), self.start(work, pods[0])]
            time.sleep(self.dice.uniform(0.0, longest))
            if not spared:
                os.kill(workers[1], signal.SIGKILL)
            ends = [ended(worker) for worker in workers]
            assert set(ends) <= {0, -signal.SIGKILL}, ends
            kills += ends.count(-signal.SIGKILL)
            self.check(*readers)
            done = 0 in ends
        self.kills[name] += kills
        time.sleep(2 * RECHECK)
        for writer in writers:
            os.kill(writer, signal.SIGTERM)
        assert [ended(writer) for writer in writers] == [0] * len(writers)

    def enter(self) -> None:
        """From unsealed to sealed, then under new keys."""
        ring = self.ring
        self.do(lambda saver: fill(saver, self.tell()), None)
        self.change("seal", lambda saver: saver._driver.run(seal(saver._scope, SETTLE)), [ring, ring], ring, None)
        self.check(ring, whole=True)
        self.do(self.shows_nothing, self.ring)

        new = ring.rotated(f"key-{sum(self.kills.values())}")
        self.change("rotate", rotate, [new, ring], new)
        self.ring = new.without(ring.primary)
        self.check(self.ring, whole=True)
        self.do(self.needs_only(self.ring.primary), self.ring)
        self.do(self.shows_nothing, self.ring)

    def leave(self) -> None:
        pods = [self.ring, self.ring]
        self.change("unseal", lambda saver: saver._driver.run(unseal(saver._scope, SETTLE)), pods, self.ring, None)
        self.check(None, whole=True)
        self.do(empty, None)
        self.forget()

    def shows_nothing(self, saver: Any) -> None:
        if self.name == "sqlite":  # which leaves copies where it moves rows; the sealing may have found it busy
            saver._driver.run(saver._core.dialect.inner.purge(rewrite=True))
        cls = next(cls for cls in DATABASES if cls.name == self.name)
        found = cls("sync", self.url).content()
        assert MARKER.encode() not in found

    def needs_only(self, primary: str) -> Callable[[Any], None]:
        def look(saver: Any) -> None:
            keys = saver._core.keys
            assert {use.kek for use in saver._driver.run(keys.store.uses())} == {primary}

        return look


def rotate(saver: Any) -> None:
    """In pages of a few keys, so that there is more to be killed in."""
    keys = saver._core.keys
    saver._driver.run(rotation.destroy_old(keys.store, keys.wrapper, page=PAGE))


def empty(saver: Any) -> None:
    for info in saver.threads(limit=1000):
        saver.delete_thread(info.thread_id)


def ended(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(name: str, url: str, seed: str, kills: str, most: str) -> None:
    marker.RECHECK = RECHECK
    importlib.import_module(next(cls.module for cls in DATABASES if cls.name == name))  # once, and not in each child
    holding.HOLD = 0.6
    with tempfile.TemporaryDirectory() as folder:
        world = World(name, url, seed, int(most), Path(folder))
        while True:
            world.enter()
            if int(kills) > 1:
                world.leave()
            print(json.dumps(world.kills), flush=True)
            if sum(world.kills.values()) >= int(kills):
                break


if __name__ == "__main__":
    main(*sys.argv[1:])

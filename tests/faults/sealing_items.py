"""Sealing, rotation and unsealing of a store that are killed at random moments, while an app writes without a pause.

python -m tests.faults.sealing_items URL KILLS SEED [SETTLE]

Run as a program, over an empty database. Workers convert it back and forth, now and then two at once, and are killed;
whenever one has ended by itself, every item is as it was. The app is a process that uses the store with keys or without
them, whichever is accepted, and knows at any time what it has stored. Prints how many workers were killed.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from langgraph.store.base import PutOp

from stepvault import Vault
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError
from stepvault.stores._conversion import ItemConversion

MARKER = "secret-9c41f0a7de23"
RINGS = {name: Keyring({"a": bytes(range(32)), "b": bytes(range(1, 33))}, primary=name) for name in "ab"}
COUNT = 230  # items that nobody writes: three pages
KEYS = 12  # of those that the app writes


def embed(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) + 0.01 for letter in "0123456789"] for text in texts]


class Place:
    """A database, opened with keys or without."""

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, *, keys: bool, ring: str = "a") -> Vault:
        options: dict[str, Any] = {"keyring": RINGS[ring], "pseudonymise_ids": True} if keys else {}
        return Vault.open(self.url, index={"dims": 10, "embed": embed, "fields": ["text"]}, **options)

    def fill(self) -> list[Any]:
        with self.open(keys=False) as vault:
            vault.setup()
            values = [{"text": f"{MARKER} word{n} {n}", "n": n} for n in range(COUNT)]
            vault.store.batch([
                PutOp(("fixed", f"n{n % 5}"), f"k{n}", value, ttl=600 if n % 3 else None)
                for n, value in enumerate(values)
            ])  # fmt: skip
            return shown(vault)


def shown(vault: Vault) -> list[Any]:
    """What can be found of the items that nobody writes."""
    items = vault.store.search(("fixed",), limit=COUNT + 1)
    searches = [
        vault.store.search(("fixed",), query="word77", mode="text", limit=1),
        vault.store.search(("fixed", "n3"), query="333", limit=1),
        vault.store.search(("fixed",), filter={"n": 200}),
    ]
    return [
        [(item.namespace, item.key, item.value, item.created_at, item.updated_at) for item in items],
        [[item.key for item in found] for found in searches],
        vault.store.list_namespaces(prefix=("fixed",)),
    ]


def differ(before: list[Any], after: list[Any], what: str) -> None:
    """Say what is not as it was."""
    parts = [
        [item for item in one if item not in other] for one, other in ((before[0], after[0]), (after[0], before[0]))
    ]
    assert parts == [[], []], (what, "lost, and new", parts)
    assert before == after, (what, "another order or search")


class App:
    """Uses the store until it is told to end."""

    def __init__(self, place: Place, seed: int) -> None:
        self._place = place
        self._random = random.Random(seed)
        self._keys = False
        self._vault: Vault | None = None
        self._has: dict[str, int] = {}
        self._number = 0

    def run(self) -> None:
        told = False

        def stop(*_: Any) -> None:
            nonlocal told
            told = True

        signal.signal(signal.SIGTERM, stop)
        while not told:
            self.step()
        for number in range(KEYS):
            self.accepted(lambda store, key=f"k{number}": self.check(store, key))

    def step(self) -> None:
        key, self._number = f"k{self._random.randrange(KEYS)}", self._number + 1
        what = self._random.random()
        if what < 0.4:
            value = {"text": f"{MARKER} {key}", "n": self._number}
            self.accepted(lambda store: store.put(("app", key), key, value))
            self._has[key] = self._number
        elif what < 0.5:
            self.accepted(lambda store: store.delete(("app", key), key))
            self._has.pop(key, None)
        elif what < 0.8:
            self.accepted(lambda store: self.check(store, key))
        else:
            self.accepted(self.check_all)

    def accepted(self, use: Callable[[Any], None]) -> None:
        """Do this with the store; with keys where they are asked for, without them where they are refused."""
        for _ in range(1000):
            vault = self._vault = self._vault or self._place.open(keys=self._keys)
            vault.store._scope.core.seen.admitted = float("-inf")  # it looks each time
            try:
                use(vault.store)
            except ConfigurationError:
                vault.close()
                self._vault, self._keys = None, not self._keys
                time.sleep(0.02)
            else:
                return
        raise AssertionError("refused with keys and without")

    def check(self, store: Any, key: str) -> None:
        item = store.get(("app", key), key)
        assert (item and item.value["n"]) == self._has.get(key), (key, item, self._has.get(key), self._keys)

    def check_all(self, store: Any) -> None:
        found = {item.key: item.value["n"] for item in store.search(("app",), limit=2 * KEYS)}
        assert found == self._has, (found, self._has, self._keys)


def work(place: Place, what: str, settle: float, pipe: int) -> None:
    """One conversion; tells when it has begun with items."""
    once = ItemConversion.once

    def told(self: ItemConversion) -> Any:
        os.write(pipe, b".")
        return once(self)

    ItemConversion.once = told  # type: ignore[method-assign]
    ring = what[-1] if what.startswith("rotate") else "a"
    with place.open(keys=True, ring=ring) as vault:
        if what == "seal":
            vault.seal(settle=settle)
        elif what == "unseal":
            vault.unseal(settle=settle)
        else:
            os.write(pipe, b".")
            vault.keys.rotate()


def forked(do: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            do()
        except BaseException:
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    return child


class Killing:
    """Workers for one conversion, killed until one ends by itself."""

    def __init__(self, place: Place, settle: float, chance: random.Random, longest: float) -> None:
        self._place, self._settle, self._random, self._longest = place, settle, chance, longest
        self.killed = 0
        self._took: dict[str, float] = {}

    def through(self, what: str, most: int) -> None:
        """Convert; kill at most so many workers on the way."""
        while True:
            workers = [self._start(what) for _ in range(self._random.choice((1, 1, 2)))]
            ended = [self._end(what, *worker, may_kill=self.killed < most) for worker in workers]
            if any(ended):
                return

    def _start(self, what: str) -> tuple[int, int]:
        reading, writing = os.pipe()
        child = forked(lambda: work(self._place, what, self._settle, writing))
        os.close(writing)
        return child, reading

    def _end(self, what: str, child: int, reading: int, *, may_kill: bool) -> bool:
        """Whether a worker ended by itself."""
        if may_kill:
            if self._random.random() < 0.8:
                os.read(reading, 1)
            time.sleep(self._random.random() * self._took.get(what, self._longest))
            os.kill(child, signal.SIGKILL)
        else:
            os.read(reading, 1)
        begun = time.monotonic()
        _, status = os.waitpid(child, 0)
        os.close(reading)
        if os.WIFSIGNALED(status):
            self.killed += 1
            return False
        assert os.WEXITSTATUS(status) == 0, f"a worker failed at {what}"
        if not may_kill:
            self._took[what] = max(0.05, time.monotonic() - begun - self._settle)
        return True


def main(url: str, kills: str, seed: str, settle: str = "0.5") -> None:
    place, chance = Place(url), random.Random(int(seed))
    before = place.fill()
    app = forked(lambda: App(place, int(seed)).run())
    killing = Killing(place, float(settle), chance, 0.5)
    rounds = 0
    try:
        while killing.killed < int(kills) or not rounds:
            for what in ("seal", "rotate b", "unseal", "seal", "rotate a", "unseal"):
                killing.through(what, int(kills))
                with place.open(keys=what != "unseal") as vault:
                    differ(before, shown(vault), what)
                assert os.waitpid(app, os.WNOHANG) == (0, 0), "the app has failed"
                rounds += 1
                if killing.killed >= int(kills) and what.startswith("rotate"):
                    break
    finally:
        os.kill(app, signal.SIGTERM)
    _, status = os.waitpid(app, 0)
    assert status == 0, "the app has failed"
    print(killing.killed)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The Redis primitives against the SQLite ones: the same random operations, the same answers, through every layout.

Segments close, split and are packed after 64 to 128 checkpoints, so histories here are a few hundred long.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stepvault._core.chunks import ChunkRow
from stepvault._core.ids import id_key, new_uid
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import page_of
from stepvault._core.rows import (
    CheckpointRow,
    Elements,
    Guard,
    Loaded,
    Note,
    Query,
    Removal,
    Skeleton,
    ThreadRow,
    WriteRow,
)
from stepvault._drivers.redis import RedisDriver
from stepvault._drivers.sqlite import SqliteDriver
from stepvault.checkpointers.redis.dialect import RedisDialect
from stepvault.checkpointers.redis.scripts import SCRIPTS
from stepvault.checkpointers.sqlite.dialect import SqliteDialect

SPACES = (b"", b"sub:1", b"a\0b", b"{x}*\n", "späce\udc80".encode("utf-8", "surrogatepass"))
SOURCES = (b"input", b"loop", None)


def token(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=16).digest()


class Twin:
    """One dialect with its driver, and what it needs to write: the thread as it left it."""

    def __init__(self, driver: Any, dialect: Any) -> None:
        self.driver = driver
        self.dialect = dialect
        self.threads: dict[ThreadKey, ThreadRow] = {}

    def __call__(self, name: str, *args: Any) -> Any:
        return self.driver.run(getattr(self.dialect, name)(*args))

    def guard(self, key: ThreadKey, uid: bytes, rev: bytes) -> Guard:
        thread = self.threads.get(key)
        return Guard(key, thread, thread.uid if thread else uid, rev, b"state" + rev)

    def settle(self, guard: Guard, no: Any) -> None:
        self.threads[guard.key] = ThreadRow(no, guard.uid, guard.rev, b"")


class Pair:
    """Both, given the same operations."""

    def __init__(self, twins: list[Twin], seed: int) -> None:
        self.twins = twins
        self.random = random.Random(seed)
        self.keys = [ThreadKey(b"", b"t"), ThreadKey(b"tenant", b"t")]
        self.ids: dict[ThreadKey, list[tuple[bytes, bytes]]] = {key: [] for key in self.keys}
        self.next_no: dict[ThreadKey, int] = dict.fromkeys(self.keys, 1)
        self.clock = 0

    def new_id(self) -> bytes:
        self.clock += 1
        if self.random.random() < 0.85:  # in order, as LangGraph's are
            return id_key("checkpoint_id", f"1f0b{self.clock:04x}-0000-6000-8000-{self.random.getrandbits(48):012x}")
        return self.random.choice(
            [
                id_key("checkpoint_id", f"0{self.random.getrandbits(28):07x}-0000-6000-8000-000000000000"),
                id_key("checkpoint_id", f"text {self.random.randrange(10**6)}\0:{{}}"),
            ]
        )

    def same(self, name: str, *args: Any, view: Callable[[Any], Any] = lambda reply: reply) -> Any:
        first, second = (view(twin(name, *args)) for twin in self.twins)
        assert first == second, (name, args)
        return first

    def elements(self, key: ThreadKey) -> tuple[Elements, bytes | None]:
        count = self.random.choice((0, 0, 1, 1, 2, 70))
        first = self.next_no[key]
        rows = []
        for no in range(first, first + count):
            rows.append(ChunkRow(no, 1, b"element %d" % no))
        self.next_no[key] += count
        if not rows:
            return Elements(), None
        low, high = page_of(rows[0].no), page_of(rows[-1].no)
        return Elements(rows), low.to_bytes(4, "big") + high.to_bytes(4, "big")

    def put(self, key: ThreadKey) -> None:
        known = self.ids[key]
        if known and self.random.random() < 0.1:
            ns, id_ = self.random.choice(known)
        else:
            ns, id_ = self.random.choice((b"", b"", self.random.choice(SPACES))), self.new_id()
            known.append((ns, id_))
        elements, refs = self.elements(key)
        parent = self.random.choice(known)[1]
        run = b"run %d" % (self.clock // 40) if self.random.random() < 0.8 else None
        row = CheckpointRow(
            ns, id_, parent, run, self.random.choice(SOURCES), self.clock % 7, 1_000 + self.clock, refs,
            b"body %d" % self.clock,
        )  # fmt: skip
        tokens = [token(self.clock % 3)]
        notes = [Note(b"n%d" % self.random.randrange(5), self.random.choice((b"note", None)))]
        self.write(key, lambda twin, guard: twin("put", guard, elements, row, tokens, notes))

    def put_writes(self, key: ThreadKey) -> None:
        known = self.ids[key]
        near = known[-4:] if self.random.random() < 0.8 else known
        ns, id_ = self.random.choice(near) if known and self.random.random() < 0.95 else (b"", self.new_id())
        task = id_key("task_id", f"task {self.random.randrange(3)}\0")
        elements, refs = self.elements(key)
        ks = self.random.sample((0, 0, 1, -1, -3), 2)
        rows = [
            WriteRow(ns, id_, task, k, b"run w", 1_000, refs, b"write %d" % self.random.getrandbits(30)) for k in {*ks}
        ]
        self.write(key, lambda twin, guard: twin("put_writes", guard, elements, rows, []))

    def write(self, key: ThreadKey, do: Callable[[Twin, Guard], Any]) -> None:
        uid, rev = new_uid(), self.random.randbytes(8)
        fresh = []
        for twin in self.twins:
            guard = twin.guard(key, uid, rev)
            reply = do(twin, guard)
            assert reply is not None
            no, new = reply if isinstance(reply, tuple) else (reply, True)
            fresh.append(new)
            twin.settle(guard, no)
        assert fresh[0] == fresh[1]

    def remove(self, key: ThreadKey) -> None:
        skeleton: Skeleton | None = self.twins[0]("skeleton", key)
        if skeleton is None:
            return
        count = self.random.choice((0, 1, 3, len(skeleton.checkpoints) // 3))
        gone = self.random.sample(
            [(row.ns, row.id) for row in skeleton.checkpoints], min(count, len(skeleton.checkpoints))
        )
        taken = set(gone)
        writes = [
            (w.ns, w.checkpoint, w.task, w.k)
            for w in skeleton.writes
            if (w.ns, w.checkpoint) in taken or self.random.random() < 0.05
        ]
        chunks = self.random.sample([no for no, _, _ in skeleton.chunks], len(skeleton.chunks) // 10)
        rewritten = [ChunkRow(no, 1, b"rewritten %d" % no) for no in chunks[::2]]
        rev = self.random.randbytes(8)
        for twin in self.twins:
            guard = twin.guard(key, b"", rev)
            assert twin("remove", guard, Removal(gone, writes, chunks, rewritten)) is True
            twin.threads[key] = twin("skeleton", key).thread
        self.ids[key] = [pair for pair in self.ids[key] if pair not in taken]

    def check(self, key: ThreadKey) -> None:
        thread = key.thread
        choice = self.random.choice
        known = self.ids[key] or [(b"", b"\0x")]
        for ns in SPACES:
            self.same("load", key, ns, None, None, view=plain)
        self.same("load", key, *choice(known), None, view=plain)
        self.same("load", key, choice(SPACES), choice(known)[1], None, view=plain)
        self.same("skeleton", key, view=bare)
        for _ in range(4):
            ns = choice((None, b"", choice(SPACES)))
            query = Query(
                key.tenant,
                choice((thread, None)),
                ns,
                choice((None, None, None, choice(known)[1])),
                choice((None, choice(known)[1])),
                choice((None, None, b"loop")),
                choice((None, None, 3)),
                choice((None, None, b"run 1")),
                choice(((), (token(1),))),
                choice((None, (choice(known)[1], choice(SPACES) if ns is None else ns, thread))),
                choice((1, 5, 50, 500)),
            )
            self.same("page", query, view=lambda groups: [(k, plain(loaded)) for k, loaded in groups])
        self.same("threads_of_runs", key.tenant, [b"run 1"], view=set)
        for prefix in (b"n", b"n1", b"", b"x"):
            first, second = (t("notes", t.threads[key], prefix) if key in t.threads else [] for t in self.twins)
            assert first == second


def plain(loaded: Loaded) -> Any:
    """What a read returned, without what each backend is free to choose."""
    pages = {n for row in (*loaded.checkpoints, *loaded.writes) for n in range(0, len(row.refs or b""), 8)}
    return (
        loaded.thread.uid if loaded.thread and loaded.thread.uid else None,
        loaded.checkpoints,
        sorted(loaded.writes),
        sorted(loaded.chunks) if pages else [],
    )


def bare(skeleton: Skeleton | None) -> Any:
    if skeleton is None:
        return None
    chunks = sorted(tuple(chunk) for chunk in skeleton.chunks)
    return skeleton.thread.uid, sorted(skeleton.checkpoints), sorted(skeleton.writes), chunks


@pytest.fixture
def twins(valkey_server: Any) -> Iterator[list[Twin]]:
    sqlite = Twin(SqliteDriver(":memory:"), SqliteDialect())
    sqlite("setup")
    redis = Twin(RedisDriver(SCRIPTS, url=valkey_server.url), RedisDialect("test"))
    yield [sqlite, redis]
    for twin in (sqlite, redis):
        twin.driver.close()


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_give_what_sqlite_gives(twins: list[Twin], seed: int) -> None:
    pair = Pair(twins, seed)
    for step in range(500):
        key = pair.keys[0] if pair.random.random() < 0.8 else pair.keys[1]
        verb = pair.random.choices((pair.put, pair.put_writes, pair.remove), (60, 40, 0.5 if step < 450 else 5))[0]
        verb(key)
        if step % 25 == 0:
            pair.check(key)
    for key in pair.keys:
        pair.check(key)
        copied = ThreadKey(key.tenant, b"copy")
        for twin in pair.twins:
            assert twin("copy", twin.threads[key], Guard(copied, None, b"u" * 16, b"r" * 8, b"state")) is True
        pair.same("skeleton", copied, view=bare)
        pair.same("delete", key)
        pair.same("load", key, b"", None, None, view=plain)

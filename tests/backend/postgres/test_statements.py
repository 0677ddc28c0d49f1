"""What is sent: how many round trips an operation takes, and how the server runs them, whatever it knows."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import psycopg
import pytest
from psycopg.types.numeric import Int8

from stepvault._core.chunks import ChunkRow
from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Stmt
from stepvault._core.rows import (
    CheckpointRow,
    DocChange,
    Elements,
    Guard,
    Held,
    Note,
    Query,
    Removal,
    ThreadRow,
    WriteRow,
)
from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.checkpointers.postgres.making import make_dialect, take_options
from tests.backend.postgres.both_ways import WAYS, Caller
from tests.backend.postgres.plans import looked_at
from tests.contract.building import config


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that were executed, transaction control included."""
    texts: list[str] = []
    for cls in (psycopg.Connection, psycopg.AsyncConnection):

        def watched(self: Any, command: Any, *args: Any, original: Any = cls._exec_command, **kwargs: Any) -> Any:
            texts.append(str(command))
            return original(self, command, *args, **kwargs)

        monkeypatch.setattr(cls, "_exec_command", watched)
    for kind in (psycopg.Cursor, psycopg.AsyncCursor):

        def execute(self: Any, query: Any, *args: Any, original: Any = kind.execute, **kwargs: Any) -> Any:
            texts.append(str(query))
            return original(self, query, *args, **kwargs)

        monkeypatch.setattr(kind, "execute", execute)
    return texts


@pytest.mark.parametrize("way", WAYS)
async def test_the_common_operations_take_one_round_trip(postgres_url: str, way: str, sent: list[str]) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url)
    await saver.asetup()
    caller = Caller(saver, way)

    async def round_trips(method: str, *args: Any) -> int:
        sent.clear()
        await caller.call(method, *args)
        return len(sent)

    at = await caller.put(["x" * 500], "warm")
    await caller.get("warm")
    sent.clear()
    at = await caller.put(["x" * 500, "y" * 500], "warm", metadata={"who": "x"})
    assert len(sent) == 1
    assert await round_trips("put_writes", at, [("value", "z" * 500), ("other", 1)], "task") == 1
    assert await round_trips("get_tuple", config("warm")) == 1
    assert await round_trips("get_tuple", at) == 1
    other = Caller(PostgresSaver.from_conn_string(postgres_url), way)
    await other.get("nothing")
    sent.clear()
    assert await other.get("warm") == ["x" * 500, "y" * 500]
    assert len(sent) == 1
    sent.clear()
    found = [entry async for entry in saver.alist(config("warm"), limit=10)]
    assert len(found) == 2
    assert len(sent) == 1
    await asyncio.gather(caller.close(), other.close())
    await asyncio.gather(saver.aclose(), other.saver.aclose())


KEY = ThreadKey(b"", b"t1")
THREAD = ThreadRow(1, b"u", b"r", b"e")


def everyday_statements() -> dict[str, Stmt]:
    """One of each kind that a run sends."""
    dialect = make_dialect(None, "stepvault_", take_options({}, None))
    guard = Guard(KEY, THREAD, b"u", b"n", b"e")
    elements = Elements([ChunkRow(64, 1, b"x")], [0])
    row = CheckpointRow(b"", b"c9", None, None, None, 1, None, None, b"b")
    write = WriteRow(b"", b"c9", b"t", 0, None, None, None, b"b")
    notes = [Note(b"k", b"v"), Note(b"j", None)]
    ops = {
        "head": dialect.load(KEY, b"", None, None),
        "head, held": dialect.load(KEY, b"", None, Held(b"r", {1, 2, 5})),
        "by id": dialect.load(KEY, b"", b"c9", None),
        "list": dialect.page(Query(b"", b"t1", b"", limit=10)),
        "list, filter": dialect.page(Query(b"", b"t1", b"", tokens=[b"x"], limit=10)),
        "put": dialect.put(guard, elements, row, [b"x"], notes),
        "put_writes": dialect.put_writes(guard, elements, [write], notes),
    }
    requests = {name: next(op) for name, op in ops.items()}
    return {name: request.statements[0] for name, request in requests.items()}  # type: ignore[union-attr, misc]


FILL = """
INSERT INTO stepvault_thread (tenant, thread, uid, rev, extents, created_at, updated_at)
    SELECT '', ('t' || i)::bytea, 'u', 'r', 'e', 0, 0 FROM generate_series(1, 1000) i;
INSERT INTO stepvault_checkpoint
    SELECT i % 10 + 1, '', ('c' || i)::bytea, NULL, NULL, 'loop', i, 0,
        int4multirange(int4range(i / 640, i / 640 + 1)), 'b'
    FROM generate_series(1, 20000) i;
INSERT INTO stepvault_write SELECT t, ns, id, 't', 0, NULL, 0, NULL, 'b' FROM stepvault_checkpoint;
INSERT INTO stepvault_chunk SELECT i % 10 + 1, i, 1, decode(repeat('ab', 500), 'hex') FROM generate_series(1, 20000) i;
INSERT INTO stepvault_meta SELECT 'x', t, ns, id FROM stepvault_checkpoint;
INSERT INTO stepvault_note SELECT i % 10 + 1, ('n' || i)::bytea, 'b' FROM generate_series(1, 20000) i;
"""


@pytest.mark.parametrize("partitions", [0, 4])
def test_plans_follow_the_indexes_whatever_the_statistics_say(postgres_url: str, partitions: int) -> None:
    with PostgresSaver.from_conn_string(postgres_url, partitions=partitions) as saver:
        saver.setup()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        plans = [plans_of(connection)]
        connection.execute(FILL.encode())
        plans.append(plans_of(connection))
        connection.execute("ANALYZE")
        plans.append(plans_of(connection))
        connection.execute("SET plan_cache_mode = force_generic_plan")
        plans.append(plans_of(connection))
        for found in plans:
            for name, plan in found.items():
                assert not re.findall(r"Seq Scan on stepvault_\w+", plan), (name, plan)
                assert "Hash Join" not in plan, (name, plan)


def plans_of(connection: psycopg.Connection[Any]) -> dict[str, str]:
    found = {}
    for name, statement in everyday_statements().items():
        rows = connection.execute(f"EXPLAIN (COSTS OFF) {statement.sql}".encode(), statement.args).fetchall()
        found[name] = "\n".join(line for (line,) in rows)
    return found


MANY = """
INSERT INTO stepvault_thread (tenant, thread, uid, rev, extents, created_at, updated_at)
    SELECT '', ('t' || i)::bytea, 'u', 'r', 'e', 0, 0 FROM generate_series(%(first)s::int, %(last)s::int) i;
INSERT INTO stepvault_note SELECT no, 'n', 'b' FROM stepvault_thread WHERE no >= %(first)s;
INSERT INTO stepvault_checkpoint
    SELECT no, '', 'c', NULL, ('r' || no)::bytea, 'loop', 1, 0, NULL, 'b' FROM stepvault_thread WHERE no >= %(first)s;
"""


def statements_of_several_threads() -> dict[str, Stmt]:
    """One of each kind that looks at several threads, or removes them."""
    dialect = make_dialect(None, "stepvault_", take_options({}, None))
    numbers = range(1, 1001, 10)
    keys = [ThreadKey(b"", b"t%d" % number) for number in numbers]
    args = {"numbers": [Int8(number) for number in numbers], "revs": [b"r"] * len(numbers), "limit": Int8(9999)}
    requests: dict[str, Any] = {
        "threads": next(dialect.notes_at([(key, b"") for key in keys])),
        "notes": next(dialect.notes_at([(key, b"n") for key in keys])),
        "lock": next(dialect._delete_of(keys, b"p", None)),
    }
    found = {name: request.statements[0] for name, request in requests.items()}
    removing = ("sizes", "lock_threads_at", "delete_threads", "delete_locked")
    return found | {name: dialect._stmt(name, **args) for name in removing}


MANY_ROWS = f"""{MANY}
INSERT INTO stepvault_meta SELECT ('m' || no / 100)::bytea, no, '', 'c' FROM stepvault_thread WHERE no >= %(first)s;
INSERT INTO stepvault_doc SELECT 's', thread, 'v', 'b' FROM stepvault_thread WHERE no >= %(first)s;
INSERT INTO stepvault_checkpoint SELECT 2, 'n', thread, NULL, NULL, 'loop', 1, 0, NULL, 'b'
    FROM stepvault_thread WHERE no >= %(first)s;
INSERT INTO stepvault_write SELECT 2, 'n', thread, 't', 0, ('r' || no)::bytea, 0, NULL, 'b'
    FROM stepvault_thread WHERE no >= %(first)s;
INSERT INTO stepvault_chunk SELECT 2, no, 1, 'b' FROM stepvault_thread WHERE no >= %(first)s;
"""


def statements_of_several_rows() -> dict[str, Stmt]:
    """One of each kind that looks at several docs, runs or rows of one thread, or removes them."""
    dialect = make_dialect(None, "stepvault_", take_options({}, None))
    numbers = range(1, 1001, 10)
    keys = [b"t%d" % number for number in numbers]
    guard = Guard(ThreadKey(b"", b"t2"), ThreadRow(2, b"u", b"r", b"e"), b"u", b"n", b"e")
    checkpoints = [(b"n", key) for key in keys]
    writes = [(b"n", key, b"t", 0) for key in keys]
    removal = Removal(checkpoints=checkpoints, writes=writes, chunks=list(numbers), rewritten=[])
    removed = next(dialect.remove(guard, removal)).statements[1:]
    requests: dict[str, Any] = {
        "docs": next(dialect.get_docs(b"s", keys)),
        "change docs": next(dialect.write_docs(b"s", [DocChange(key, b"x", b"w", b"v") for key in keys])),
        "drop docs": next(dialect.write_docs(b"s", [DocChange(key, None, b"") for key in keys])),
        "chunks": next(dialect.chunks(ThreadRow(2, b"", b"", b""), numbers)),
        "threads of runs": next(dialect.threads_of_runs(b"", [b"r%d" % number for number in numbers])),
        "list, run": next(dialect.page(Query(b"", None, run=b"r7", limit=1000))),
        "list, filter": next(dialect.page(Query(b"", None, tokens=[b"m5"], limit=1000))),
        "list, filters": next(dialect.page(Query(b"", None, tokens=[b"m5"], source=b"loop", limit=1000))),
    }
    found = {name: request.statements[0] for name, request in requests.items()}
    return found | dict(zip(("remove checkpoints", "remove writes", "remove chunks"), removed, strict=True))


@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("what", ["threads", "rows"])
def test_several_are_found_among_more_as_among_few(postgres_url: str, what: str, analyzed: bool) -> None:
    fill, statements = {
        "threads": (MANY, statements_of_several_threads),
        "rows": (MANY_ROWS, statements_of_several_rows),
    }[what]
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        saver.setup()
    touched: list[dict[str, int]] = []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("thread", "checkpoint", "write", "chunk", "meta", "note", "doc"):
            connection.execute(f"ALTER TABLE stepvault_{table} SET (autovacuum_enabled = false)".encode())
        for first, last in ((1, 1000), (1001, 20_000)):
            psycopg.ClientCursor(connection).execute(fill.encode(), {"first": first, "last": last})
            if analyzed:
                connection.execute("ANALYZE")
            touched.append({name: looked_at(connection, one) for name, one in statements().items()})
    for name, few in touched[0].items():
        assert 0 < touched[1][name] <= 3 * few, (name, touched)


async def test_a_page_of_a_list_reads_no_more_of_a_longer_thread(postgres_url: str) -> None:
    saver = PostgresSaver.from_conn_string(postgres_url)
    await saver.asetup()
    caller = Caller(saver, "async")
    touched = {}
    for number in range(1, 401):
        await caller.put(number)
        if number in (40, 400):
            statement = everyday_statements()["list"]
            args = {**statement.args, "thread": b"t"}  # type: ignore[dict-item]
            with psycopg.connect(postgres_url) as connection:
                explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement.sql}".encode()
                row = connection.execute(explained, args).fetchone()
            assert row is not None
            touched[number] = row[0][0]["Plan"]["Shared Hit Blocks"]
    assert touched[400] < 2 * touched[40]
    await saver.aclose()

"""How the server runs what is sent: what it looks at, whatever it knows of the tables, and in which order it locks."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from stepvault._core.plan import Op, Stmt
from stepvault._drivers import postgres_cursors
from stepvault.stores._dialect import Find, IndexRecord, ItemRow, Match, Near, NewItem, Whole, Work
from stepvault.stores.postgres import PostgresStore, make_dialect
from stepvault.stores.postgres.dialect import PostgresDialect
from tests.backend.postgres.plans import looked_at
from tests.contract.stores.embedding import DIMS, embed

pytestmark = pytest.mark.xdist_group("postgres")

INDEX: dict[str, Any] = {"dims": DIMS, "embed": embed, "ann_index_config": {"kind": "flat"}}
VECTOR = b"\0\0\x80\x3f" * DIMS
MANY = """
INSERT INTO stepvault_item (no, tenant, ns, key, created_at, updated_at, ttl, expires_at, tokens, words, body)
    SELECT i, '', to_char(i / 100, 'FM000')::bytea, ('k' || i)::bytea, 0, 0, 1,
        CASE WHEN i <= 100 THEN 0 ELSE 4e15 END, '{}', to_tsvector('simple', 'w' || i / 100), 'b'
    FROM generate_series(%(first)s::int, %(last)s::int) i;
INSERT INTO stepvault_vector (item, no, tenant, ns, embedding)
    SELECT id, no, tenant, ns, array_fill(1::real, ARRAY[24])::vector FROM stepvault_item WHERE no >= %(first)s;
INSERT INTO stepvault_erased SELECT '', ('m' || i)::bytea FROM generate_series(%(first)s::int, %(last)s::int) i;
"""


def item(ns: bytes, key: bytes) -> NewItem:
    return NewItem(ns, key, 1.0, None, None, b"", None, "w", [VECTOR], b"b")


def row(no: int, ns: bytes, key: bytes) -> ItemRow:
    return ItemRow(no, ns, key, 0, 0, 1.0, None, None, b"b")


def dialect_with_vectors() -> PostgresDialect:
    dialect = make_dialect(None, "stepvault_", INDEX, False)
    dialect._see(IndexRecord(DIMS, "cosine", "", ready=True), "public")
    return dialect


def statements_of_several() -> dict[str, Stmt]:
    """One of each kind that looks at several items, or writes them."""
    dialect = dialect_with_vectors()
    numbers = range(101, 1001, 9)
    names = [(b"%03d" % (no // 100), b"k%d" % no) for no in numbers]
    rows = [row(no, *name) for no, name in zip(numbers, names, strict=True)]
    items = [item(*name) for name in names]
    changes = [(Whole(row.no, row.no, b"", new), new) for row, new in zip(rows, items, strict=True)]
    near = Near(b"003", 10, vector=VECTOR, max_age=2**60)
    marks = [b"m%d" % no for no in numbers]
    ops: dict[str, Op[Any]] = {
        "get": dialect.work(b"", Work(gets=names)),
        "delete": dialect.work(b"", Work(deletes=names)),
        "put": dialect.work(b"", Work(puts=items)),
        "put and delete": dialect.work(
            b"", Work(puts=items[:50], deletes=names[50:], people=[b"-" + m for m in marks])
        ),
        "find": dialect.work(b"", Work(finds=[Find(b"003", 1000)])),
        "match": dialect.work(b"", Work(finds=[Match(b"003", 1000, words=["w3"])])),
        "namespaces": dialect.work(b"", Work(namespaces=[b"003"])),
        "near": dialect.work(b"", Work(finds=[near])),
        "whole": dialect.whole(list(numbers)),
        "set vectors": dialect.set_vectors([(no, [VECTOR]) for no in numbers]),
        "touch": dialect.touch(b"", rows),
        "pin": dialect.pin(b"", names, pinned=True),
        "unpin": dialect.pin(b"", names, pinned=False),
        "drop": dialect.drop(b"", rows),
        "delete below": dialect.delete_below(b"", [b"003", b"005"]),
        "sweep": dialect.sweep(100),
        "still": dialect._exchange(changes),
        "drop vectors": dialect._give([(row.no, new) for row, new in zip(rows, items, strict=True)]),
    }
    found = {name: next(op).statements[0] for name, op in ops.items()}  # type: ignore[union-attr, misc]
    giving = ops["drop vectors"]
    found["exchange"] = giving.send([[]]).statements[0]  # type: ignore[union-attr, misc, assignment]
    exchanging = ops["still"]
    found["targets"] = exchanging.send([[(no,) for no in numbers]]).statements[0]  # type: ignore[union-attr, misc, assignment]
    found["near few"] = ops["near"].send([[(-1,)]]).statements[0]  # type: ignore[union-attr, misc, assignment]
    found["readmit"] = Stmt(dialect._text("unset_erased"), {"tenant": b"", "mark": marks})
    return found


@pytest.mark.parametrize("analyzed", ["never", "early", "always"])
def test_several_items_are_found_among_more_as_among_few(postgres_url: str, analyzed: str) -> None:
    with PostgresStore.from_conn_string(postgres_url, index=INDEX) as store:
        store.setup()
        store.put(("a",), "k", {"text": "makes the vectors"})
        store.delete(("a",), "k")
    touched: list[dict[str, int]] = []
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for table in ("item", "vector", "erased"):
            connection.execute(f"ALTER TABLE stepvault_{table} SET (autovacuum_enabled = false)".encode())
        for first, last in ((1, 1000), (1001, 20_000)):
            psycopg.ClientCursor(connection).execute(MANY.encode(), {"first": first, "last": last})
            if analyzed == "always" or (analyzed == "early" and first == 1):
                connection.execute("ANALYZE")
            touched.append({name: looked_at(connection, one) for name, one in statements_of_several().items()})
    for name, few in touched[0].items():
        assert 0 < touched[1][name] <= 3 * few, (name, touched)


LOCKING = ("put", "delete", "pin", "unpin", "touch", "drop", "still")


def test_items_are_locked_in_the_order_of_their_names(postgres_url: str) -> None:
    """However they are given and were put: of two batches that meet, one waits for the other."""
    with PostgresStore.from_conn_string(postgres_url) as store:
        store.setup()
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("TRUNCATE stepvault_item")
        for no, key in enumerate(b"cebad"):
            connection.execute(ONE.encode(), {"no": no, "key": bytes([key])})
        for name in LOCKING:
            connection.execute("UPDATE stepvault_item SET expires_at = %s", (None if name == "unpin" else 4 * 10**15,))
            assert free_while_one_is_held(postgres_url, connection, statement_over_all(name)) == [b"d", b"e"], name


ONE = """
INSERT INTO stepvault_item (no, tenant, ns, key, created_at, updated_at, ttl, body)
VALUES (%(no)s, '', 'n', %(key)s, 0, 0, 1, 'b')
"""


def statement_over_all(name: str) -> Stmt:
    dialect = make_dialect(None, "stepvault_", None, False)
    rows = [row(no, b"n", bytes([key])) for no, key in enumerate(b"cebad")]
    names = [(one.ns, one.key) for one in rows]
    changes = [(Whole(one.no, one.no, b"", item(one.ns, one.key)), item(one.ns, one.key)) for one in rows]
    ops: dict[str, Op[Any]] = {
        "put": dialect.work(b"", Work(puts=[item(*name) for name in names])),
        "delete": dialect.work(b"", Work(deletes=names)),
        "pin": dialect.pin(b"", names, pinned=True),
        "unpin": dialect.pin(b"", names, pinned=False),
        "touch": dialect.touch(b"", rows),
        "drop": dialect.drop(b"", rows),
        "still": dialect._exchange(changes),
    }
    return next(ops[name]).statements[0]  # type: ignore[union-attr, return-value]


def free_while_one_is_held(url: str, connection: psycopg.Connection[Any], statement: Stmt) -> list[bytes]:
    """What is not locked while a statement waits for the item in the middle."""
    with ThreadPoolExecutor() as pool, psycopg.connect(url) as holder, psycopg.connect(url) as worker:
        holder.execute("SELECT FROM stepvault_item WHERE key = 'c' FOR UPDATE")
        done = pool.submit(postgres_cursors.cursor(worker).execute, statement.sql, statement.args)
        waits = "SELECT cardinality(pg_blocking_pids(%s))"
        while not done.done() and connection.execute(waits, (worker.info.backend_pid,)).fetchall() == [(0,)]:
            time.sleep(0.002)
        rows = connection.execute("SELECT key FROM stepvault_item ORDER BY key FOR UPDATE SKIP LOCKED").fetchall()
        holder.rollback()
        done.result()
        worker.rollback()
    return [key for (key,) in rows]

"""What only Postgres does: pools, schemas, many setups at once, the approximate index."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from typing import Any

import psycopg
import pytest
from langgraph.store.base import PutOp
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from stepvault._core.people import digest_of
from stepvault.errors import ConfigurationError, EventLoopError, MigrationRequiredError, SubjectErasedError
from stepvault.stores.postgres import PostgresStore
from stepvault.stores.postgres.aio import AsyncPostgresStore
from tests.contract.stores.embedding import DIMS, embed, similarity, vector

pytestmark = pytest.mark.xdist_group("postgres")

NS = ("a", "b")
INDEX: dict[str, Any] = {"dims": DIMS, "embed": embed, "fields": ["text"]}


def test_official_constructor_forms(postgres_url: str) -> None:
    with psycopg.Connection.connect(postgres_url, autocommit=True, prepare_threshold=0) as connection:
        store = PostgresStore(connection, ttl={"default_ttl": 10})
        store.setup()
        store.put(NS, "k", {"v": 1})
        assert store.get(NS, "k") is not None
        with connection.pipeline() as pipe:
            piped = PostgresStore(connection, pipe=pipe)
            piped.put(NS, "piped", {"v": 1})
            assert piped.get(NS, "piped") is not None
        store.close()
        assert not connection.closed
    with ConnectionPool(postgres_url, min_size=1, max_size=2, open=True) as pool:
        assert len(PostgresStore(pool).search(NS)) == 2
    with PostgresStore.from_conn_string(
        postgres_url, pipeline=True, pool_config={"min_size": 1, "max_size": 3}
    ) as store:
        assert len(store.search(NS)) == 2
    with pytest.raises(ConfigurationError):
        PostgresStore(3)  # type: ignore[arg-type]


def test_who_is_marked_as_erased_waits_for_puts_that_have_not_seen_it(postgres_url: str) -> None:
    store = PostgresStore.from_conn_string(postgres_url)
    with store, psycopg.Connection.connect(postgres_url, autocommit=True) as connection, ThreadPoolExecutor() as pool:
        store.setup()
        token = digest_of(b"", b"ann")
        with connection.transaction():
            PostgresStore(connection).put(("users", "ann"), "k", {"v": 1})
            marked = pool.submit(store.mark_erased, [token])
            with pytest.raises(TimeoutError):
                marked.result(0.5)
        marked.result(10)
        assert store.get(("users", "ann"), "k") is not None, "before the mark: there for an erasure to delete"
        with pytest.raises(SubjectErasedError), connection.transaction():
            PostgresStore(connection).put(("users", "ann"), "k", {"v": 2})
        assert store.list_namespaces() == [("users", "ann")]


async def test_official_async_forms(postgres_url: str) -> None:
    async with AsyncPostgresStore.from_conn_string(postgres_url, index=INDEX) as store:
        await store.setup()
        await store.aput(NS, "k", {"text": "c1 i1"})
        assert [item.key for item in await store.asearch(NS, query="c1 i1")] == ["k"]
        assert await store.sweep_ttl() == 0
        with pytest.raises(EventLoopError):
            store.get(NS, "k")
        assert (await asyncio.to_thread(store.get, NS, "k")).key == "k"
    async with AsyncConnectionPool(postgres_url, open=False) as pool:
        store = AsyncPostgresStore(pool)
        assert await store.aget(NS, "k") is not None
        only_async = PostgresStore(pool)
        with pytest.raises(ConfigurationError, match="URL"):
            await asyncio.to_thread(only_async.get, NS, "k")


def test_without_setup(postgres_url: str) -> None:
    with PostgresStore.from_conn_string(postgres_url) as store, pytest.raises(MigrationRequiredError, match="setup"):
        store.put(NS, "k", {"v": 1})
    with PostgresStore.from_conn_string(postgres_url, automatic_setup=True) as store:
        store.put(NS, "k", {"v": 1})
        assert store.get(NS, "k") is not None


def test_single_items_keep_their_plans(postgres_url: str) -> None:
    with psycopg.Connection.connect(postgres_url, autocommit=True, prepare_threshold=0) as connection:
        store = PostgresStore(connection)
        store.setup()
        for number in range(20):
            store.put(NS, f"k{number}", {"v": number})
            assert store.get(NS, f"k{number}") is not None
        plans = "SELECT custom_plans FROM pg_prepared_statements WHERE statement LIKE %s"
        for statement in ("WITH refused%", "(SELECT%"):
            assert connection.execute(plans, (statement,)).fetchall() == [(5,)]


def test_many_setups_at_once(postgres_url: str) -> None:
    def setup(_: int) -> None:
        with PostgresStore.from_conn_string(postgres_url, index=INDEX) as store:
            store.setup()
            store.put(NS, "k", {"text": "c1 i1"})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(setup, range(6)))


def test_printed_ddl_is_what_setup_does(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        connection.execute(PostgresStore.ddl(schema="memory", table_prefix="x_").encode())
    with PostgresStore.from_conn_string(postgres_url, schema="memory", table_prefix="x_") as store:
        store.put(NS, "k", {"v": 1})
        store.setup()
        assert store.get(NS, "k") is not None


def test_inside_a_transaction_of_the_caller(postgres_url: str) -> None:
    with psycopg.Connection.connect(postgres_url, autocommit=True) as connection:
        store = PostgresStore(connection)
        store.setup()
        with connection.transaction(force_rollback=True):
            store.put(NS, "k", {"v": 1})
            assert store.get(NS, "k") is not None
        assert store.get(NS, "k") is None


@pytest.mark.parametrize("kind", ["hnsw", "ivfflat"])
def test_a_filter_never_starves_the_approximate_index(postgres_url: str, kind: str, monkeypatch: Any) -> None:
    """Above the number of candidates that are compared one by one, the index is asked, however rare what matches."""
    monkeypatch.setattr("stepvault.stores.postgres.dialect._EXACT", 50)
    texts = [f"c{number % 20} i{number}" for number in range(2000)]
    parameters = {"m": 8} if kind == "hnsw" else {"nlist": 20}
    index = {**INDEX, "ann_index_config": {"kind": kind, **parameters}}
    with PostgresStore.from_conn_string(postgres_url, index=index) as store:
        store.setup()
        for start in range(0, 2000, 500):
            store.batch([
                PutOp(("docs",), f"k{n}", {"text": texts[n], "n": n, "rare": n % 200 == 0, "two": [texts[n]] * 2})
                for n in range(start, start + 500)
            ])  # fmt: skip
        recalls = []
        for query in ("c3 i9001", "c7 i9002", "c11 i9003"):
            asked = vector(query)
            best = sorted(range(2000), key=lambda n: -similarity("cosine", asked, vector(texts[n])))
            found = [item.value["n"] for item in store.search(("docs",), query=query, limit=10)]
            recalls.append(len(set(found) & set(best[:10])) / 10)
            rare = store.search(("docs",), query=query, filter={"rare": True}, limit=10)
            assert [item.value["n"] for item in rare] == [n for n in best if n % 200 == 0]
            late = store.search(("docs",), query=query, filter={"n": {"$gte": 1995}}, limit=10)
            assert [item.value["n"] for item in late] == [n for n in best if n >= 1995]
            assert len(store.search(("docs",), query=query, limit=300)) == 300
        assert sum(recalls) / len(recalls) >= 0.9


@pytest.mark.parametrize("ann", [{"kind": "flat"}, {"kind": "hnsw", "vector_type": "halfvec", "ef_construction": 40}])
def test_other_indexes(postgres_url: str, ann: Any) -> None:
    with PostgresStore.from_conn_string(postgres_url, index={**INDEX, "ann_index_config": ann}) as store:
        store.setup()
        store.batch([PutOp(NS, f"k{number}", {"text": f"c{number} i{number}"}) for number in range(10)])
        assert store.search(NS, query="c4 i4", limit=1)[0].key == "k4"


def test_wrong_indexes() -> None:
    url = "postgresql://localhost/x"
    for ann in ({"kind": "tree"}, {"vector_type": "bit"}, {"kind": "hnsw", "nlist": 3}, {"m": "8"}):
        with pytest.raises(ConfigurationError, match="ann_index_config"):
            PostgresStore.from_conn_string(url, index={**INDEX, "ann_index_config": ann})


def test_writers_at_once_leave_one_set_of_vectors(postgres_url: str) -> None:
    with PostgresStore.from_conn_string(postgres_url, index=INDEX) as store:
        store.setup()
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda n: store.put(NS, "k", {"text": f"c{n % 20} i{n}"}), range(60)))
        (item,) = store.search(NS, query="c1 i1")
        assert abs(item.score - similarity("cosine", vector("c1 i1"), vector(item.value["text"]))) < 1e-3
        store.delete_namespace(("a",))
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT count(*) FROM stepvault_vector").fetchone() == (0,)

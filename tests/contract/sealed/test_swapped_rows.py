"""Every stored payload in the place of every other: within and across threads, tables, tenants, items and docs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from stepvault import Vault
from stepvault._core.envelope import key_id_of
from stepvault._core.plan import Op
from stepvault._core.rows import Doc, Loaded
from stepvault.checkpointers import _sealing as rows_of
from stepvault.checkpointers._ops.doc_marks import SPACES
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import KeyNotFoundError, PayloadError, RowMismatchError
from stepvault.stores._dialect import Find, Work
from tests.contract.building import config, put
from tests.contract.matrix import Database
from tests.contract.sealed.test_nothing_in_clear import State
from tests.contract.sealed.test_stores import Vaults


class Row(NamedTuple):
    """A payload that was stored, its place, and how one that stands there is opened."""

    place: str
    body: bytes
    opened: Callable[[bytes], Op[Any]]


@pytest.fixture
async def vaults(database: Database) -> AsyncIterator[Vaults]:
    vaults = Vaults(database)
    yield vaults
    await vaults.close()


async def fill(vault: Vault, thread: str) -> None:
    """Two checkpoints of several channels, writes, notes of a tag, a question and a person; items and docs."""
    at = config(thread, user_id=f"owner of {thread}")
    first = await put(vault.checkpointer, {"log": ["x" * 300, "y" * 300], "long": "z" * 3000}, at=at)
    await vault.checkpointer.aput_writes(first, [("log", 1)], "task")
    await vault.checkpointer.aput_writes(first, [("__error__", "e"), ("log", 2)], "other task")
    await vault.checkpointer.atag(first, "tag")
    await put(vault.checkpointer, {"log": ["x" * 300, "y" * 300, "w" * 300], "long": "z" * 3001}, at=first)
    builder = StateGraph(State)
    builder.add_node("ask", lambda state: {"log": [interrupt("question")]})
    builder.add_edge(START, "ask")
    await builder.compile(checkpointer=vault.checkpointer).ainvoke({"text": "t"}, config(f"{thread} asks"))
    for key in ("one", "two"):
        await vault.store.aput((thread, "facts"), key, {"text": key})
    await vault.erasure.ahold(f"owner of {thread}", "held")


async def rows_in(vault: Vault, tenant: Vault) -> list[Row]:
    found: list[Row] = []
    for view in (vault, tenant):
        saver = view.checkpointer
        found += await saver._driver.arun(_of_threads(view))
        found += await saver._driver.arun(_of_docs(view))
        found += await view.store._driver.arun(_of_items(view))
    return found


def _of_threads(vault: Vault) -> Op[list[Row]]:
    scope = vault.checkpointer._scope
    sealed: Any = scope.core.dialect
    inner, found = sealed._inner, []
    for summary in (yield from inner.threads(scope.tenant, 50, None)):
        name = f"{scope.tenant!r} {summary.thread!r}"
        skeleton = yield from inner.skeleton(_key(scope.tenant, summary.thread))
        thread = skeleton.thread
        numbers = [number for number, _, _ in skeleton.chunks]
        chunks = (yield from inner.chunks(thread, numbers)).chunks if numbers else []
        kinds = {"checkpoints": skeleton.checkpoints, "writes": skeleton.writes, "chunks": chunks}
        for kind, rows in kinds.items():
            for number, row in enumerate(rows):
                opened = _loaded(sealed, scope.tenant, thread, kind, row)
                found.append(Row(f"{name} {kind} {number}", bytes(row.body), opened))
        for note in (yield from inner.notes(thread, b"")):
            opened = _note(sealed, scope.tenant, bytes(thread.uid), note.key)
            found.append(Row(f"{name} note {note.key[:1]!r} {note.key.hex()}", bytes(note.body), opened))
    return found


def _key(tenant: bytes, thread: bytes) -> Any:
    from stepvault._core.knowledge import ThreadKey

    return ThreadKey(tenant, bytes(thread))


def _loaded(sealed: Any, tenant: bytes, thread: Any, kind: str, row: Any) -> Callable[[bytes], Op[Any]]:
    return lambda body: sealed._opened(tenant, replace(Loaded(thread), **{kind: [row._replace(body=body)]}))


def _note(sealed: Any, tenant: bytes, uid: bytes, key: bytes) -> Callable[[bytes], Op[Any]]:
    def opened(body: bytes) -> Op[Any]:
        seal = yield from sealed._keys.sealer(tenant, uid, [body])
        return rows_of.opened_id(seal, body) if key == rows_of.REAL_ID else rows_of.opened_note(seal, key, body)

    return opened


def _of_docs(vault: Vault) -> Op[list[Row]]:
    scope = vault.checkpointer._scope
    sealed: Any = scope.core.dialect
    found = []
    for name in SPACES:
        where = space(scope, name)
        for doc in (yield from sealed._inner.docs(where, b"", b"", 50)):
            found.append(Row(f"{where!r} {doc.key!r}", bytes(doc.body), _doc(sealed, where, doc)))
    return found


def _doc(sealed: Any, where: bytes, doc: Doc) -> Callable[[bytes], Op[Any]]:
    return lambda body: sealed._opened_docs(where, [doc._replace(body=body)])


def _of_items(vault: Vault) -> Op[list[Row]]:
    scope = vault.store._scope
    sealed: Any = scope.core.dialect
    reply = yield from sealed.inner.work(scope.tenant, Work(finds=[Find(b"", 50)]))
    names = yield from sealed._names(scope.tenant)
    return [
        Row(f"{scope.tenant!r} item {row.ns!r} {row.key!r}", bytes(row.body), _item(sealed, names, row))
        for (row, *_) in reply.finds[0]
    ]


def _item(sealed: Any, names: Any, row: Any) -> Callable[[bytes], Op[Any]]:
    return lambda body: sealed._opened(
        names, [replace(row, body=body) if not hasattr(row, "_replace") else row._replace(body=body)]
    )


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.soak)])
async def test_no_payload_stands_in_for_any_other(vaults: Vaults, every: int) -> None:
    """Each pair of one owner; of different owners, whose keys are looked for in the database, every seventh."""
    vault = vaults.open(pseudonymise_ids=True)
    await vault.asetup()
    tenant = vault.for_tenant("acme")
    for view, thread in ((vault, "one"), (vault, "two"), (tenant, "one")):
        await fill(view, thread)
    rows = await rows_in(vault, tenant)
    kinds = {kind for kind in ("checkpoints", "writes", "chunks", "note", "item") if any(kind in r.place for r in rows)}
    assert kinds == {"checkpoints", "writes", "chunks", "note", "item"}
    assert len({row.place for row in rows}) == len(rows) > 70
    driver = vault.checkpointer._driver
    wrong = await driver.arun(_swapped(rows, every))
    assert wrong == []


def _swapped(rows: list[Row], every: int) -> Op[list[str]]:
    """What opened in a place that is not its own, or was refused by another error than the right one."""
    wrong = []
    for at, place in enumerate(rows):
        yield from place.opened(place.body)
        for number, row in enumerate(rows):
            same = key_id_of(row.body) == key_id_of(place.body)
            if row is place or (not same and (at + number) % every):
                continue
            try:
                yield from place.opened(row.body)
                wrong.append(f"{row.place} opens as {place.place}")
            except PayloadError as error:
                if type(error) is not (RowMismatchError if same else KeyNotFoundError):
                    wrong.append(f"{row.place} as {place.place}: {error!r}")
    return wrong

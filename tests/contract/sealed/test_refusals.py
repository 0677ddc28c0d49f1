"""Rows that were moved, changed, forged or cut are refused, each with an error of its own, on every backend."""

from __future__ import annotations

import logging
import os
from typing import Any

import pytest

from stepvault._core.envelope import key_id_of
from stepvault._core.key_cache import MAX_TTL
from stepvault._core.knowledge import ThreadKey
from stepvault._core.rows import Loaded
from stepvault.encryption import Keyring
from stepvault.errors import (
    ConfigurationError,
    KeyNotFoundError,
    KeyShreddedError,
    KeyUnavailableError,
    PayloadError,
    PlaintextRejectedError,
    RowMismatchError,
    TamperedError,
    TruncatedError,
    UnsupportedFormatError,
    WrongKeyError,
)
from tests.contract.building import config, put, whole
from tests.contract.matrix import KEYRING, Database
from tests.contract.sealed.raw import Raw, flipped, with_body

SECRET = "a-secret-that-shows-nowhere"


async def filled(saver: Any, thread: str = "t") -> Any:
    """A thread with a checkpoint of elements, a special write and a note."""
    first = await put(saver, {"log": [SECRET * 20, SECRET * 30]}, at=config(thread), metadata={"who": SECRET})
    await saver.aput_writes(first, [("__error__", SECRET)], "task")
    await saver.atag(first, "tag")
    return await put(saver, {"log": [SECRET * 20, SECRET * 30, "more" * 99]}, at=first)


async def fresh(database: Database, **options: Any) -> Any:
    """A saver that knows nothing yet, as in another process."""
    return await database.saver(**options)


async def read(database: Database, at: Any = None) -> Any:
    return await (await fresh(database)).aget_tuple(at or config())


async def test_rows_of_one_thread_do_not_stand_in_for_one_another(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    raw = Raw(saver)
    one, two = (await raw.skeleton("t")).checkpoints
    await raw.put_checkpoint("t", one._replace(body=two.body))
    await raw.put_checkpoint("t", two._replace(body=one.body))
    with pytest.raises(RowMismatchError):
        await whole(await fresh(database))
    await raw.put_checkpoint("t", one)
    await raw.put_checkpoint("t", two)
    assert len(await whole(await fresh(database))) == 2

    first, second, *_ = await raw.chunks("t")
    await raw.put_chunk("t", first._replace(body=second.body))
    with pytest.raises(RowMismatchError):
        await whole(await fresh(database))


async def test_a_body_of_one_kind_does_not_stand_in_for_another(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    raw = Raw(saver)
    skeleton = await raw.skeleton("t")
    (chunk, *_), note, (write,) = await raw.chunks("t"), (await raw.notes("t"))[0], skeleton.writes
    checkpoint = skeleton.checkpoints[0]
    for body in (chunk.body, note.body, write.body):
        assert body is not None
        await raw.put_checkpoint("t", checkpoint._replace(body=body))
        with pytest.raises(RowMismatchError):
            await whole(await fresh(database))
    await raw.put_checkpoint("t", checkpoint)
    await raw.put_write("t", write._replace(body=checkpoint.body))
    with pytest.raises(RowMismatchError):
        await whole(await fresh(database))


async def test_rows_of_another_thread_or_tenant_are_refused(database: Database) -> None:
    saver = await database.saver()
    await filled(saver, "victim")
    await filled(saver, "t")
    raw = Raw(saver)
    (mine, *_), (theirs, *_) = (await raw.skeleton("t")).checkpoints, (await raw.skeleton("victim")).checkpoints
    await raw.put_checkpoint("t", mine._replace(body=theirs.body))
    with pytest.raises(KeyNotFoundError):
        await whole(await fresh(database))
    for note in await raw.notes("victim"):
        await raw.put_note("t", note)
    with pytest.raises(KeyNotFoundError):
        await (await fresh(database)).athreads()


async def test_every_flipped_bit_is_refused(database: Database) -> None:
    """Of the header and the tags on every backend; of the whole row on SQLite, which is the fastest."""
    saver = await database.saver()
    await put(saver, {"small": 1})
    raw = Raw(saver)
    (row,) = (await raw.skeleton("t")).checkpoints
    step = 1 if database.name == "sqlite" else 41
    refused: dict[type, int] = {}
    reader = saver._core.dialect
    for bit in range(0, 8 * len(row.body), step):
        with pytest.raises(PayloadError) as caught:
            await raw.do(_open(reader, row, flipped(row.body, bit)))
        refused[type(caught.value)] = refused.get(type(caught.value), 0) + 1
    assert refused.keys() >= {TamperedError}
    await raw.put_checkpoint("t", row._replace(body=flipped(row.body, 8 * 60)))
    with pytest.raises(TamperedError):
        await read(database)


def _open(sealed: Any, row: Any, body: bytes) -> Any:
    """Open one changed row as a read does."""
    key = yield from sealed._token(ThreadKey(b"", b"t"))
    loaded = yield from sealed._inner.load(key, row.ns, row.id, None)
    return (yield from sealed._opened(b"", Loaded(loaded.thread, [with_body(row, body)])))


async def test_plain_cut_and_foreign_formats_are_refused(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    raw = Raw(saver)
    row = max((await raw.skeleton("t")).checkpoints, key=lambda row: row.id)
    for body, error in (
        (b"\x00plain", PlaintextRejectedError),
        (row.body[:-1], TruncatedError),
        (row.body[:30], TruncatedError),
        (row.body + b"x", TruncatedError),
        (row.body[:1] + b"\x02" + row.body[2:], UnsupportedFormatError),
    ):
        await raw.put_checkpoint("t", row._replace(body=body))
        with pytest.raises(error):
            await read(database)


async def test_docs_outside_threads_are_bound_to_their_place_too(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 60})
    await filled(saver, "one")
    await filled(saver, "two")
    raw = Raw(saver)
    await raw.change_doc(b"expiry\x00", lambda doc: flipped(doc.body, 8 * 50))
    with pytest.raises(TamperedError):
        await saver.asweep()


@pytest.mark.parametrize("ring", ["another key of the same id", "another id", "none"])
async def test_another_keyring_or_none_is_refused_at_once(database: Database, ring: str) -> None:
    saver = await database.saver()
    await filled(saver)
    rings = {"another key of the same id": Keyring({"test": os.urandom(32)}), "another id": Keyring.generate("other")}
    other = database.under_async_names(database.unprepared(keyring=rings.get(ring)))
    error = {"another id": KeyNotFoundError, "none": ConfigurationError}.get(ring, WrongKeyError)
    for attempt in (lambda: other.aget_tuple(config()), lambda: put(other, {"x": 1}), other.athreads):
        with pytest.raises(error, match={"none": "pass keyring="}.get(ring, "test")):
            await attempt()
    assert len(await whole(saver)) == 2


async def test_an_unsealed_database_is_not_taken_for_a_sealed_one(database: Database) -> None:
    plain = await database.saver(keyring=None)
    await put(plain, {"x": 1})
    sealed = database.under_async_names(database.unprepared())
    for attempt in (lambda: sealed.aget_tuple(config()), lambda: put(sealed, {"x": 2})):
        with pytest.raises(ConfigurationError, match="unsealed threads"):
            await attempt()
    assert len(await whole(plain)) == 1


async def test_a_destroyed_key_ends_a_thread_and_no_other(database: Database) -> None:
    saver = await database.saver()
    await filled(saver, "gone")
    await filled(saver, "kept")
    uid = (await Raw(saver).skeleton("gone")).thread.uid
    await Raw(saver).do(saver._core.keys.shred([bytes(uid)]))
    for reader in (saver, await fresh(database)):
        with pytest.raises(KeyShreddedError):
            await reader.aget_tuple(config("gone"))
        with pytest.raises(KeyShreddedError):
            await put(reader, {"x": 1}, at=config("gone"))
        assert len(await whole(reader, "kept")) == 2
        assert [info.thread_id for info in await reader.athreads()] == ["kept"]
        found = [entry async for entry in reader.alist(None, limit=3)]
        assert [entry.config["configurable"]["thread_id"] for entry in found] == ["kept", "kept"]


async def test_what_cannot_be_read_any_more_can_still_be_deleted(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 60})
    await filled(saver)
    uid = (await Raw(saver).skeleton("t")).thread.uid
    await Raw(saver).do(saver._core.keys.shred([bytes(uid)]))
    await saver.adelete_thread("t")
    assert await whole(saver) == []
    await filled(saver)
    assert len(await whole(saver)) == 2


async def test_a_deleted_thread_takes_its_key_along(database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    uid = bytes((await Raw(saver).skeleton("t")).thread.uid)
    await saver.adelete_thread("t")
    (key,) = await Raw(saver).do(saver._core.keys.store.load([uid]))
    assert key.wrapped is None
    await put(saver, {"x": 1})
    assert len(await whole(await fresh(database))) == 1


class Service:
    """A key service that can be down."""

    def __init__(self) -> None:
        self._ring = Keyring({"far": bytes(range(32))}).wrapper()
        self.down = False
        self.calls = 0

    def wrap(self, key_id: str, plaintext: bytes, context: bytes) -> bytes:
        return self._answer(plaintext)

    def unwrap(self, key_id: str, wrapped: bytes, context: bytes) -> bytes:
        return self._answer(wrapped)

    def _answer(self, data: bytes) -> bytes:
        self.calls += 1
        if self.down:
            raise OSError("no route to host")
        return bytes(byte ^ 0x5A for byte in data)


async def test_a_key_service_that_is_down_is_not_a_lost_key(database: Database) -> None:
    service = Service()
    ring = Keyring(primary="far", service=service)
    saver = await fresh(database, keyring=ring)
    await filled(saver)
    calls = service.calls
    await whole(saver)
    assert service.calls == calls  # keys are cached
    service.down = True
    with pytest.raises(KeyUnavailableError):
        await put(saver, {"x": 1}, at=config("new"))
    reader = database.under_async_names(database.unprepared(keyring=ring))
    with pytest.raises(KeyUnavailableError):
        await reader.aget_tuple(config())
    service.down = False
    assert len(await whole(reader)) == 2
    await put(saver, {"x": 1}, at=config("new"))


async def test_refusals_show_no_content_and_no_keys(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    saver = await database.saver()
    await filled(saver)
    raw = Raw(saver)
    (row, *_) = (await raw.skeleton("t")).checkpoints
    shown = []
    for body in (flipped(row.body, 8 * 70), b"plain" + SECRET.encode(), row.body[:-1]):
        await raw.put_checkpoint("t", row._replace(body=body))
        with pytest.raises(PayloadError) as caught:
            await whole(await fresh(database))
        shown.append(str(caught.getrepr(style="long", showlocals=False)) + repr(caught.value))
    key = bytes(range(32))
    for text in (*shown, caplog.text, repr(saver._core.keys), repr(saver._core), repr(KEYRING)):
        assert SECRET not in text
        assert key.hex() not in text
        assert repr(key) not in text


async def test_what_a_process_can_do_that_still_holds_a_destroyed_key(database: Database) -> None:
    """Open what is put back, for a minute; the thread is gone for it as for any other, so it cannot write it on."""
    one, other = await fresh(database), await fresh(database)
    head = await filled(one)
    assert len(await whole(other)) == 2
    raw = Raw(other)
    before = await raw.skeleton("t")
    uid = bytes(before.thread.uid)
    await one.adelete_thread("t")
    for saver in (one, other):
        assert await saver.aget_tuple(config()) is None
        assert await whole(saver) == []
    cache = other._core.keys.cache
    assert cache.get(uid) is not None

    def restored(saver: Any) -> Any:
        return saver._core.dialect._opened(b"", Loaded(before.thread, list(before.checkpoints)))

    assert (await raw.do(restored(other))).checkpoints
    with pytest.raises(KeyShreddedError):
        await Raw(one).do(restored(one))

    await put(other, {"x": 1}, at=head)  # begins another thread, under a key of its own
    after = await raw.skeleton("t")
    assert bytes(after.thread.uid) != uid
    assert key_id_of(after.checkpoints[0].body) != key_id_of(before.checkpoints[0].body)
    assert len(await whole(one)) == 1

    clock = cache._clock
    cache._clock = lambda: clock() + MAX_TTL
    with pytest.raises(KeyShreddedError):
        await raw.do(restored(other))

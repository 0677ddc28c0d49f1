"""What somebody does who can write to the database and has no keys: rows as they are stored, changed and put back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stepvault._core.ids import text_key
from stepvault._core.knowledge import ThreadKey
from stepvault._core.rows import CheckpointRow, DocChange, Elements, Guard, Note, Removal, Skeleton, ThreadRow


class Raw:
    """The stored rows of a sealed saver."""

    def __init__(self, saver: Any) -> None:
        self._saver = saver
        self._keys = saver._core.keys
        self.dialect = saver._core.dialect._inner

    async def do(self, op: Any) -> Any:
        return await self._saver._driver.arun(op)

    async def key(self, thread: str) -> ThreadKey:
        index = await self.do(self._keys.index())
        return ThreadKey(b"", index.thread(b"", text_key("thread_id", thread)))

    async def skeleton(self, thread: str) -> Skeleton:
        found = await self.do(self.dialect.skeleton(await self.key(thread)))
        assert found is not None
        return found

    async def chunks(self, thread: str) -> list[Any]:
        skeleton = await self.skeleton(thread)
        loaded = await self.do(self.dialect.chunks(skeleton.thread, [number for number, _, _ in skeleton.chunks]))
        return list(loaded.chunks)

    async def notes(self, thread: str) -> list[Note]:
        return list(await self.do(self.dialect.notes((await self.skeleton(thread)).thread, b"")))

    async def put_checkpoint(self, thread: str, row: CheckpointRow) -> None:
        guard = await self._guard(thread)
        assert await self.do(self.dialect.put(guard, Elements(), row, ())) is not None

    async def put_chunk(self, thread: str, row: Any) -> None:
        guard = await self._guard(thread)
        assert await self.do(self.dialect.remove(guard, Removal(chunks=[row.no], rewritten=[row])))

    async def put_write(self, thread: str, row: Any) -> None:
        """Only a special write (an error, an interrupt) can be replaced."""
        assert row.k < 0
        guard = await self._guard(thread)
        assert await self.do(self.dialect.put_writes(guard, Elements(), [row])) is not None

    async def put_note(self, thread: str, note: Note) -> None:
        guard = await self._guard(thread)
        assert await self.do(self.dialect.put_writes(guard, Elements(), (), [note])) is not None

    async def change_doc(self, space: bytes, change: Callable[[Any], bytes]) -> None:
        (doc, *_) = await self.do(self.dialect.docs(space, b"", b"", 10))
        assert await self.do(self.dialect.write_docs(space, [DocChange(doc.key, change(doc), doc.version)]))

    async def _guard(self, thread: str) -> Guard:
        row: ThreadRow = (await self.skeleton(thread)).thread
        return Guard(await self.key(thread), row, row.uid, os.urandom(8), row.extents)


def flipped(stored: bytes, bit: int) -> bytes:
    changed = bytearray(stored)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def with_body(row: Any, body: bytes) -> Any:
    return row._replace(body=body) if hasattr(row, "_replace") else replace(row, body=body)

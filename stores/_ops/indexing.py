"""The vector index of a database: made once, checked before use, made anew when the model changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, TypeVar

from langgraph.store.base import tokenize_path

from stepvault._core.plan import Op
from stepvault.errors import ConfigurationError, IndexMismatchError, MigrationRequiredError
from stepvault.stores._ops.context import Core, Path, Scope
from stepvault.stores._ops.texts import texts_at
from stepvault.stores._ops.values import decode_value

T = TypeVar("T")

_PAGE = 100


def setup(core: Core) -> Op[None]:
    """Create or migrate the tables, and the vector index if there is none. Idempotent."""
    yield from core.dialect.setup()
    core.seen.tables = True
    if core.index is not None and (yield from core.dialect.index()) is None:
        yield from core.dialect.make_index(core.index.record(ready=True))


def prepared(core: Core, op: Op[T]) -> Op[T]:
    """The operation, after `setup` if this store has not seen the tables and the backend makes them on first use."""
    return op if core.seen.tables or not core.dialect.automatic_setup else _after_setup(core, op)


def _after_setup(core: Core, op: Op[T]) -> Op[T]:
    yield from setup(core)
    return (yield from op)


def check_index(core: Core, *, searching: bool) -> Op[None]:
    """Refuse to mix vectors of two models, and to search while they are made anew.

    Raises:
        IndexMismatchError: The vectors that are stored were made with other settings, or are just being replaced.
        MigrationRequiredError: There is no index yet.
    """
    if core.seen.index or core.index is None:
        return
    stored = yield from core.dialect.index()
    if stored is None:
        raise MigrationRequiredError("This database has no vector index; call setup() once.")
    wanted = core.index.record(ready=True)
    for name in ("dims", "distance", "model"):
        was, now = getattr(stored, name), getattr(wanted, name)
        if was != now:
            raise IndexMismatchError(
                f"The vectors of this database were made with {name} {was!r}, this store has {now!r}; "
                "use the settings they were made with, or call reindex() once."
            )
    if not stored.ready and searching:
        raise IndexMismatchError("The vectors of this database are being made anew; run reindex() to its end.")
    core.seen.index = stored.ready


def fields_text(index: Any) -> str | None:
    """What an item keeps of the `index=` it was put with.

    Raises:
        ConfigurationError: It is neither False nor a list of paths.
    """
    if index is None:
        return None
    if index is False:
        return "[]"
    if not isinstance(index, (list, tuple)) or not all(isinstance(path, str) and path for path in index):
        raise ConfigurationError(f"index must be None, False or a list of paths, not {index!r}.")
    return json.dumps(list(index))


def paths_of(fields: str | None, default: Sequence[Path]) -> list[Path]:
    """Undo `fields_text`."""
    if fields is None:
        return list(default)
    return [(path, "$" if path == "$" else tokenize_path(path)) for path in json.loads(fields)]


def begin_reindex(core: Core) -> Op[None]:
    """Drop the vectors; searches by vector are refused until the end."""
    if core.index is None:
        raise ConfigurationError('reindex() needs a store with index={"dims": ..., "embed": ...}.')
    core.seen.index = False
    stored = yield from core.dialect.index()
    if stored != core.index.record(ready=False):  # else: an interrupted run, to be gone on with
        yield from core.dialect.make_index(core.index.record(ready=False))


def reindex_page(scope: Scope, after: Any) -> Op[tuple[list[tuple[Any, list[str]]], Any]]:
    """The next items with the texts to embed, and where the page after them begins (None: nowhere)."""
    index = scope.core.index
    assert index is not None
    rows, following = yield from scope.core.dialect.page(after, _PAGE)
    wanted = []
    for name, fields, body in rows:
        texts = texts_at(decode_value(scope, body), paths_of(fields, index.paths))
        wanted.append((name, texts))
    return wanted, following


def store_page(scope: Scope, wanted: Sequence[tuple[Any, Sequence[str]]], documents: dict[str, bytes]) -> Op[None]:
    """Store the vectors of a page; items written meanwhile are not touched, their version comes later."""
    yield from scope.core.dialect.set_vectors([(name, [documents[text] for text in texts]) for name, texts in wanted])


def finish_reindex(core: Core) -> Op[None]:
    """Open the new vectors for searches."""
    assert core.index is not None
    yield from core.dialect.finish_index(core.index.record(ready=True))

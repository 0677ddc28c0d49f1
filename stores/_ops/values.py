"""Item values to stored bytes and back, and the items made of rows."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from langgraph.store.base import Item, SearchItem

from stepvault._core.codec import unpack
from stepvault._core.ids import text_of
from stepvault.errors import ConfigurationError, PayloadError, TruncatedError
from stepvault.stores._dialect import ItemRow
from stepvault.stores._ops.context import Scope, Source
from stepvault.stores._ops.namespaces import ns_of

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class StoredItem(Item):
    """An item, and where it came from.

    Attributes:
        source: The thread and checkpoint of the run that wrote it; None if no run did.
    """

    __slots__ = ("source",)
    source: Source | None


class FoundItem(SearchItem):
    """A search result, and where it came from.

    Attributes:
        source: The thread and checkpoint of the run that wrote it; None if no run did.
    """

    __slots__ = ("source",)
    source: Source | None


def plain_value(value: Any) -> dict[str, Any]:
    """A value as a dict; an exact or derived dict stays what it is.

    Raises:
        ConfigurationError: It is no mapping.
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    raise ConfigurationError(f"The value of an item is a mapping, not {type(value).__name__}.")


def encode_value(scope: Scope, value: Mapping[str, Any]) -> bytes:
    """The stored bytes of a value: its type tag, then what the serializer made of it, compressed."""
    tag, payload = scope.serde.dumps_typed(value)
    name = tag.encode()
    return scope.core.codec.pack(bytes((len(name),)) + name + payload)


def decode_value(scope: Scope, body: bytes) -> dict[str, Any]:
    """Decode `encode_value`.

    Raises:
        PayloadError: It is damaged, or of a type that may not be revived here.
    """
    data = unpack(body)
    end = 1 + data[0] if data else 0
    if not data or len(data) < end:
        raise TruncatedError
    return scope.serde.loads_typed((data[1:end].decode("ascii", "replace"), data[end:]))  # type: ignore[no-any-return]


def value_of(scope: Scope, row: ItemRow) -> dict[str, Any]:
    """The value of a row.

    Raises:
        PayloadError: It cannot be read; the message names the item.
    """
    try:
        return decode_value(scope, row.body)
    except PayloadError as exc:
        exc.args = (f"{exc} (item {text_of(row.key)!r} in {ns_of(row.ns)!r})",)
        raise


def item_of(scope: Scope, row: ItemRow) -> StoredItem:
    """The item of a row."""
    item = StoredItem(
        value=value_of(scope, row),
        key=text_of(row.key),
        namespace=ns_of(row.ns),
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
    )
    item.source = _source(row)
    return item


def found_of(row: ItemRow, value: dict[str, Any], score: float | None) -> FoundItem:
    """The search result of a row."""
    item = FoundItem(
        namespace=ns_of(row.ns),
        key=text_of(row.key),
        value=value,
        created_at=moment(row.created_at),
        updated_at=moment(row.updated_at),
        score=score,
    )
    item.source = _source(row)
    return item


def moment(microseconds: int) -> datetime:
    """A time of the database."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _source(row: ItemRow) -> Source | None:
    if row.thread is None:
        return None
    return Source(text_of(row.thread), text_of(row.checkpoint) if row.checkpoint is not None else None)

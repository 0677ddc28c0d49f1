"""Bodies of the checkpoint and write rows: self-contained, so that any record loads without its ancestors.

A checkpoint body is `[v, ts, versions, channels, seen, updated, rest, metadata]` where a channel is
`[name, version index, form]` (no form: the channel is empty) and versions are interned. Code that gives its state a
version adds that version at the end, to writes too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

import ormsgpack

from stepvault._core.ids import text_of
from stepvault._core.ports import Port
from stepvault._core.values import INLINE, Form, named, refs_of, runs_in
from stepvault.errors import TruncatedError

_KNOWN_KEYS = frozenset(("v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"))
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_UNVERSIONED = -1
_EMPTY = b"\x80"  # what ours makes of {}


@dataclass(slots=True)
class Record:
    """A checkpoint with forms in place of values."""

    v: int
    ts: str
    versions: dict[str, Any] = field(default_factory=dict)
    forms: dict[str, Form] = field(default_factory=dict)
    seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    updated: list[str] | None = None
    rest: Form = None
    metadata: Form = None
    state_version: int | None = None  # of the application's state

    def refs(self) -> bytes | None:
        """The page ranges of every element that it needs, packed."""
        return refs_of(self.forms.values())

    def runs(self) -> list[tuple[int, int]]:
        """Every run of elements that it needs."""
        return [run for form in self.forms.values() for run in runs_in(form)]


class Write(NamedTuple):
    """One channel write of a task, with a form in place of its value."""

    idx: int
    channel: str
    form: Form


class TaskWrites(NamedTuple):
    """The writes of one `put_writes` call."""

    path: str
    writes: list[Write]
    tick: int
    state_version: int | None


class _Versions(dict[Any, int]):
    """Numbers of versions, given as they are met. What is no text comes with its type: 1, 1.0 and True are three."""

    def __missing__(self, value: Any) -> int:
        number = self[value] = len(self)
        return number


def encode_record(record: Record) -> bytes:
    """The bytes of a record."""
    versions = _Versions()
    forms, channels, seen = record.forms, [], []
    for name, value in record.versions.items():
        number = versions[value if type(value) is str else (type(value), value)]
        channels.append((name, number, forms[name]) if name in forms else (name, number))
    places = {name: place for place, name in enumerate(record.versions)}
    channels += [(name, _UNVERSIONED, form) for name, form in forms.items() if name not in places]
    for node, known in record.seen.items():
        pairs: list[Any] = []
        for name, value in known.items():
            pairs += (
                places.get(name, name),
                versions[value if type(value) is str else (type(value), value)],
            )
        seen.append((node, pairs))
    updated = None if record.updated is None else [places.get(name, name) for name in record.updated]
    interned = [value if type(value) is str else value[1] for value in versions]
    parts = [record.v, _pack_ts(record.ts), interned, channels, seen, updated, record.rest, record.metadata]
    return _pack(parts if record.state_version is None else [*parts, record.state_version])


def decode_record(body: bytes) -> Record:
    """Read `encode_record`.

    Raises:
        TruncatedError: The bytes are not a record.
    """
    try:
        v, ts, interned, channels, seen, updated, rest, metadata, *more = ormsgpack.unpackb(body)
        names = [name if type(name := channel[0]) is str else _text(name) for channel in channels]
        record = Record(v, _unpack_ts(ts), rest=rest, metadata=metadata, state_version=_version(more))
        for name, channel in zip(names, channels, strict=True):
            if channel[1] != _UNVERSIONED:
                record.versions[name] = interned[channel[1]]
            if len(channel) > 2:
                record.forms[name] = channel[2]
        for node, parts in seen:
            record.seen[_text(node)] = {
                names[name] if type(name) is int else _text(name): interned[at]
                for name, at in zip(parts[::2], parts[1::2], strict=True)
            }
        if updated is not None:
            record.updated = [names[name] if type(name) is int else _text(name) for name in updated]
    except (ValueError, TypeError, IndexError, KeyError, AttributeError) as exc:
        raise TruncatedError("A checkpoint record is damaged; restore the row from a backup.") from exc
    return record


def encode_writes(
    path: str, writes: Sequence[tuple[int, str, Form]], tick: int = 0, state_version: int | None = None
) -> bytes:
    """The body of one `put_writes` call; `tick` orders answers among each other."""
    more = ([tick] if tick else []) if state_version is None else [tick, state_version]
    return _pack([path, list(map(tuple, writes)), *more])


def decode_writes(body: bytes) -> TaskWrites:
    """Read `encode_writes`."""
    try:
        path, writes, *more = ormsgpack.unpackb(body)
        found = [Write(idx, _text(channel), form) for idx, channel, form in writes]
        return TaskWrites(_text(path), found, more[0] if more else 0, _version(more[1:]))
    except (ValueError, TypeError) as exc:
        raise TruncatedError("A writes record is damaged; restore the row from a backup.") from exc


def _version(more: list[Any]) -> int | None:
    """The version of the application's state, if the row says it."""
    if more and type(more[0]) is not int:
        raise TypeError
    return more[0] if more else None


def rest_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """What a checkpoint holds beyond the fields that records name."""
    further = checkpoint.keys() - _KNOWN_KEYS
    return {key: checkpoint[key] for key in further} if further else {}


def typed_form(port: Port, kind: str, value: Mapping[str, Any]) -> Form:
    """Metadata and the rest of a checkpoint: never split, in the saver's own serialization.

    Raises:
        ValueNotSerializableError: It cannot be stored; names the kind, the path in it and the type.
    """
    if port.splits and not port.flag:
        return named(kind, port.dumps, value) if value else _EMPTY
    return [INLINE, *named(kind, port.dumps_typed, value)]


def _pack(value: Any) -> bytes:
    try:
        return ormsgpack.packb(value)
    except (TypeError, ValueError):
        return ormsgpack.packb(_bytes_for_surrogates(value))


def _bytes_for_surrogates(value: Any) -> Any:
    """Names that are not valid UTF-8 stand as bytes."""
    if type(value) is list or type(value) is tuple:
        return [_bytes_for_surrogates(item) for item in value]
    if type(value) is dict:
        return {key: _bytes_for_surrogates(item) for key, item in value.items()}
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogatepass")
    return value


def _text(name: Any) -> str:
    return text_of(name) if type(name) is bytes else name


def _pack_ts(ts: str) -> str | int:
    try:
        at = datetime.fromisoformat(ts)
        if at.tzinfo is timezone.utc and at.isoformat() == ts:
            since = at - _EPOCH
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    except (ValueError, TypeError):
        pass
    return ts


def _unpack_ts(ts: str | int) -> str:
    if type(ts) is int:
        return (_EPOCH + timedelta(0, *divmod(ts, 1_000_000))).isoformat()
    return ts  # type: ignore[return-value]

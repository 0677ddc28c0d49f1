"""A channel value as a form: inline bytes, or a manifest of numbered elements.

Forms are what a checkpoint record holds per channel:

    nil                      None
    bytes                    the value itself, small, in the native encoding
    [code, count, runs]      elements of the thread, `runs` packed by `manifest.pack_runs`
    [INLINE, tag, bytes]     the value itself, written by another serializer
    [FOREIGN, tag, runs]     the same in elements
    [NESTED, {name: form}]   the parts of a graph's input, each on its own
    [DELTA, form]            a `_DeltaSnapshot` around a value
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias, TypeVar

import xxhash

from stepvault._core.manifest import (
    Extents,
    Runs,
    pack_runs,
    packed_pages,
    pages_in,
    pages_of,
    runs_of,
    unpack_runs,
)
from stepvault._core.ports import JSONPLUS_FLAG, Port
from stepvault._core.serde.library import trusted_class
from stepvault.errors import StepvaultError, TruncatedError, UnsupportedFormatError, ValueNotSerializableError

INLINE, LIST, DICT, WHOLE, TEXT, BYTES, LIST_BLOCKS, DICT_BLOCKS, NESTED, FOREIGN, DELTA = range(11)

_AROUND = (NESTED, DELTA)
_DeltaSnapshot = trusted_class("langgraph.checkpoint.serde.types:_DeltaSnapshot")  # None before 4.1

Form: TypeAlias = Any
T = TypeVar("T")

INLINE_LIMIT = 256  # smaller new values stand in the record
PROMOTE_LIMIT = 128  # an unchanged inline value of this size becomes an element instead of being repeated
WRITE_INLINE_LIMIT = 1024
_BLOCK = 4096  # strings and lists of small parts grow at their end: fixed blocks share all but the last
_LARGE_BLOCK = 1 << 20
_MANY, _SMALL_PART = 1024, 64
_FEW_ITEMS = 8


def digest(element: bytes, seed: int) -> bytes:
    """A fingerprint for this process only: xxh3 is not collision resistant, so the seed is random and never stored."""
    return xxhash.xxh3_128_digest(element, seed)


def array_header(n: int) -> bytes:
    return (
        bytes((0x90 | n,))
        if n < 16
        else b"\xdc" + n.to_bytes(2, "big")
        if n < 1 << 16
        else b"\xdd" + n.to_bytes(4, "big")
    )


def map_header(n: int) -> bytes:
    return (
        bytes((0x80 | n,))
        if n < 16
        else b"\xde" + n.to_bytes(2, "big")
        if n < 1 << 16
        else b"\xdf" + n.to_bytes(4, "big")
    )


def named(place: str, encode: Callable[..., T], *args: Any) -> T:
    """`encode(*args)`; if the last argument cannot be encoded, the error says where it stands.

    Raises:
        ValueNotSerializableError: Names the place, the path in it and the type.
    """
    try:
        return encode(*args)
    except Exception as exc:
        raise_named(place, args[-1], exc)


def raise_named(place: str, value: Any, exc: Exception) -> NoReturn:
    """Raise what the encoding of a value failed with, with its place."""
    if isinstance(exc, ValueNotSerializableError):
        exc.args = (f"{place}: {exc}",)
        raise exc
    if isinstance(exc, (StepvaultError, MemoryError)):
        raise exc
    raise ValueNotSerializableError(
        f"{place}: a value of type {type(value).__name__} cannot be stored ({exc})."
    ) from exc


@dataclass(slots=True)
class Encoder:
    """Turns the values of one write into forms, numbering the elements the thread does not have yet."""

    port: Port
    seed: int
    known: Mapping[bytes, int]
    extents: Extents
    inline: int = INLINE_LIMIT
    new: dict[bytes, int] = field(default_factory=dict)
    elements: list[tuple[int, bytes]] = field(default_factory=list)

    def form(self, channel: str, value: Any) -> Form:
        """The form of one channel value.

        Raises:
            ValueNotSerializableError: It cannot be stored; names the channel, the path in it and the type.
        """
        try:
            return self._form(channel, value)
        except Exception as exc:
            raise_named(f"Channel {channel!r}", value, exc)

    def _form(self, channel: str, value: Any) -> Form:
        if value is None:
            return None
        if not self.port.splits:
            return self._foreign(channel, value)
        kind = type(value)
        if kind is _DeltaSnapshot:
            return [DELTA, self._form(channel, value.value)]
        if kind is list and value:
            return self._list(channel, value)
        if kind is dict and value:
            return self._dict(channel, value)
        if kind is str and len(value) > 2 * _BLOCK:
            return self._blocks(channel, TEXT, _utf8(value), 0) or self._whole(channel, value)
        if kind is bytes and len(value) > 2 * _BLOCK:
            return self._blocks(channel, BYTES, value, 0)
        return self._whole(channel, value)

    def nested(self, channel: str, value: Any) -> Form:
        """The form of a graph's input: each part on its own, so that it is shared with the writes that follow."""
        if not self.port.splits or type(value) is not dict or not all(map(_plain_key, value)):
            return self.form(channel, value)
        if not any(type(part) is list and part for part in value.values()):
            return self.form(channel, value)
        return [NESTED, {name: self.form(channel, part) for name, part in value.items()}]

    def promoted(self, channel: str, form: Form) -> Form:
        """An unchanged inline value of some size becomes an element the first time it is repeated."""
        if type(form) is bytes and len(form) >= PROMOTE_LIMIT:
            return [WHOLE, 1, self._runs([self._number(channel, form)])]
        return form

    def _list(self, channel: str, value: list[Any]) -> Form:
        dumps = self.port.dumps
        parts = [dumps(item) for item in value]
        identified = all(getattr(item, "id", None) for item in value)
        return self._parts(channel, LIST, array_header(len(parts)), parts, identified)

    def _dict(self, channel: str, value: dict[Any, Any]) -> Form:
        if len(value) < _FEW_ITEMS or not all(map(_plain_key, value)):
            return self._whole(channel, value)
        dumps = self.port.dumps
        parts = [dumps(key) + dumps(item) for key, item in value.items()]
        if 2 * max(map(len, parts)) > sum(map(len, parts)):
            return self._bytes(channel, map_header(len(parts)) + b"".join(parts))
        return self._parts(channel, DICT, map_header(len(parts)), parts, False)

    def _parts(self, channel: str, code: int, header: bytes, parts: list[bytes], identified: bool) -> Form:
        seed, known = self.seed, self.known
        marks = [xxhash.xxh3_128_digest(part, seed) for part in parts]
        if not identified and not any(mark in known for mark in marks):
            size = sum(map(len, parts))
            if size < self.inline:
                return self._inline(header + b"".join(parts))
        if len(parts) > _MANY and sum(map(len, parts)) < _SMALL_PART * len(parts):
            return self._blocks(channel, LIST_BLOCKS if code == LIST else DICT_BLOCKS, b"".join(parts), len(parts))
        numbers = [self._number(channel, part, mark) for part, mark in zip(parts, marks, strict=True)]
        return [code | self.port.flag, len(parts), self._runs(numbers)]

    def _whole(self, channel: str, value: Any) -> Form:
        return self._bytes(channel, self.port.dumps(value))

    def _bytes(self, channel: str, payload: bytes) -> Form:
        if len(payload) < self.inline:
            return self._inline(payload)
        pieces = list(_cut(payload, _LARGE_BLOCK))
        return [
            WHOLE | self.port.flag,
            len(pieces),
            self._runs([self._number(channel, piece) for piece in pieces]),
        ]

    def _inline(self, payload: bytes) -> Form:
        return [INLINE, "msgpack", payload] if self.port.flag else payload

    def _blocks(self, channel: str, code: int, payload: bytes | None, count: int) -> Form:
        if payload is None:
            return None
        size = _BLOCK if len(payload) < 1024 * _BLOCK else _LARGE_BLOCK
        numbers = [self._number(channel, piece) for piece in _cut(payload, size)]
        return [code | self.port.flag, count, self._runs(numbers)]

    def _foreign(self, channel: str, value: Any) -> Form:
        tag, payload = self.port.dumps_typed(value)
        if len(payload) < self.inline:
            return [INLINE, tag, payload]
        return [
            FOREIGN,
            tag,
            self._runs([self._number(channel, piece) for piece in _cut(payload, _LARGE_BLOCK)]),
        ]

    def _number(self, channel: str, element: bytes, mark: bytes | None = None) -> int:
        mark = mark or xxhash.xxh3_128_digest(element, self.seed)
        number = self.known.get(mark) or self.new.get(mark)
        if number is None:
            number = self.new[mark] = self.extents.take(channel)
            self.elements.append((number, element))
        return number

    def _runs(self, numbers: list[int]) -> bytes:
        return pack_runs(runs_of(numbers))


def refs_of(forms: Iterable[Form]) -> bytes | None:
    """The `refs` of a row: merged page ranges of every element that these forms need."""
    spans: set[tuple[int, int]] = set()
    for form in forms:
        if type(form) is list and form[0] != INLINE:
            spans.update(pages_of(runs_in(form)) if form[0] in _AROUND else pages_in(form[2]))
    return packed_pages(frozenset(spans)) if spans else None


def runs_in(form: Form) -> Sequence[tuple[int, int]]:
    """Every run of element numbers that a form needs."""
    if type(form) is not list or form[0] == INLINE:
        return ()
    if form[0] == NESTED:
        return [run for part in form[1].values() for run in runs_in(part)]
    return runs_in(form[1]) if form[0] == DELTA else unpack_runs(form[2])


@dataclass(slots=True)
class Decoder:
    """Turns forms back into values, given the elements of their thread."""

    port: Port  # the saver's serializer
    native: Port  # ours: reads what it wrote, and under its type policy what LangGraph's wrote
    elements: Mapping[int, bytes]
    _ahead: dict[int, Any] = field(default_factory=dict)  # values by the id of their form, each to be taken once

    def look_ahead(self, forms: Sequence[Form]) -> None:
        """Decode what will be asked for next in one go, which costs a third.

        The forms stay alive until then. What cannot be decoded so is left to `value`, which says what is wrong with it.
        """
        plain: list[Form] = []
        parts: list[bytes] = []
        try:
            for form in forms:
                if type(form) is bytes:
                    parts.append(form)
                elif type(form) is list and form[0] == WHOLE:
                    parts += self._pieces(unpack_runs(form[2]))
                elif type(form) is list and (header := _HEADERS.get(form[0])):
                    parts.append(header(form[1]))
                    parts += self._pieces(unpack_runs(form[2]))
                else:
                    continue
                plain.append(form)
            values = self.native.loads(array_header(len(plain)) + b"".join(parts))
            self._ahead = dict(zip(map(id, plain), values, strict=True))
        except StepvaultError:
            self._ahead = {}

    def value(self, form: Form) -> Any:
        if form is None:
            return None
        if self._ahead:
            found = self._ahead.pop(id(form), self)
            if found is not self:
                return found
        if type(form) is bytes:
            return self.native.loads(form)
        code = form[0]
        if code == INLINE:
            return self._typed(form[1], form[2])
        if code == NESTED:
            return {name: self.value(part) for name, part in form[1].items()}
        if code == DELTA:
            if _DeltaSnapshot is None:
                raise UnsupportedFormatError("a stored delta snapshot needs a newer langgraph-checkpoint")
            return _DeltaSnapshot(self.value(form[1]))
        if code == FOREIGN:
            return self._typed(form[1], self._join(unpack_runs(form[2])))
        return self._elements(code & ~JSONPLUS_FLAG, form[1], unpack_runs(form[2]), code)

    def _elements(self, kind: int, count: int, runs: Runs, code: int) -> Any:
        payload = self._join(runs)
        if kind in (LIST, LIST_BLOCKS):
            payload = array_header(count) + payload
        elif kind in (DICT, DICT_BLOCKS):
            payload = map_header(count) + payload
        elif kind == TEXT:
            return payload.decode("utf-8")
        elif kind == BYTES:
            return payload
        elif kind != WHOLE:
            raise UnsupportedFormatError(f"A stored value has form {kind}, unknown to this version; upgrade Stepvault.")
        return self._typed("msgpack", payload) if code & JSONPLUS_FLAG else self.native.loads(payload)

    def _join(self, runs: Runs) -> bytes:
        return b"".join(self._pieces(runs))

    def _pieces(self, runs: Runs) -> list[bytes]:
        elements = self.elements
        try:
            if len(runs) == 1 and runs[0][1] == 1:
                return [elements[runs[0][0]]]
            return [elements[number] for first, count in runs for number in range(first, first + count)]
        except KeyError as exc:
            raise TruncatedError(
                f"Element {exc.args[0]} of a stored value is missing; restore the thread from a backup."
            ) from exc

    def _typed(self, tag: str, payload: bytes) -> Any:
        reader = self.native if tag == "msgpack" and not self.port.flag else self.port
        return reader.loads_typed((tag, payload))


_HEADERS: Mapping[int, Callable[[int], bytes]] = {
    LIST: array_header,
    LIST_BLOCKS: array_header,
    DICT: map_header,
    DICT_BLOCKS: map_header,
}


def _plain_key(key: Any) -> bool:
    return type(key) is str and (key.isascii() or _utf8(key) is not None)


def _utf8(text: str) -> bytes | None:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return None


def _cut(payload: bytes, size: int) -> Iterator[bytes]:
    if len(payload) <= size:
        yield payload
        return
    for at in range(0, len(payload), size):
        yield payload[at : at + size]

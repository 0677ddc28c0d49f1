"""The forms of a thread's rows without a person: what is replaced stands where it stood, so manifests stay as they are.

An element keeps its number unless two places that share it want different things of it; a value that is stored in
pieces and changes is stored anew, whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from stepvault._core.chunks import ChunkRow, unpack_row
from stepvault._core.manifest import Extents, pack_runs, runs_of, unpack_runs
from stepvault._core.ports import JSONPLUS_FLAG, Port
from stepvault._core.record import Record, TaskWrites, Write
from stepvault._core.serde.scrubbing import Path, Scrubber, says_something
from stepvault._core.values import (
    BYTES,
    DELTA,
    DICT,
    DICT_BLOCKS,
    FOREIGN,
    INLINE,
    LIST,
    LIST_BLOCKS,
    NESTED,
    TEXT,
    WHOLE,
    Form,
    array_header,
    map_header,
)
from stepvault.errors import TruncatedError

_PIECE = 1 << 20
_ONE = map_header(1)
_NOTHING = b"\xc0"
_OTHER = (INLINE, NESTED, FOREIGN, DELTA)


@dataclass(slots=True)
class Rewriter:
    """Rewrites the forms of one thread; `kept` are the elements they need afterwards, by number."""

    scrubber: Scrubber
    port: Port
    native: Port
    elements: dict[int, bytes]
    extents: Extents
    kept: dict[int, bytes] = field(default_factory=dict)
    _fresh: dict[bytes, int] = field(default_factory=dict)
    _seen: dict[tuple[int, int, Path], bytes] = field(default_factory=dict)

    def record(self, record: Record) -> Record:
        """A checkpoint."""
        record.forms = {name: self.form(name, (name,), form) for name, form in record.forms.items()}
        record.metadata = self.form("metadata", ("metadata",), record.metadata)
        record.rest = self.form("rest", ("rest",), record.rest)
        return record

    def writes(self, found: TaskWrites) -> list[Write]:
        """The writes of a task."""
        return [write._replace(form=self.form(write.channel, (write.channel,), write.form)) for write in found.writes]

    def learn(self, forms: Iterable[tuple[str, Form]]) -> None:
        """Take note of which channels hold messages."""
        looked: set[bytes] = set()
        for channel, form in forms:
            if type(form) is list and form[0] == DELTA:
                form = form[1]
            mark = form if type(form) is bytes else form[2] if type(form) is list and form[0] not in _OTHER else b""
            if mark and channel not in self.scrubber.said and mark not in looked:
                looked.add(mark)
                if says_something(self._first(form)):
                    self.scrubber.said.add(channel)

    def _first(self, form: Form) -> bytes:
        """A stored value, or the first item of a list."""
        if type(form) is bytes:
            return form
        payload = self.elements[unpack_runs(form[2])[0][0]] if form[0] & ~JSONPLUS_FLAG == LIST else b""
        payload = payload or (self._join(form[2]) if form[0] & ~JSONPLUS_FLAG == WHOLE else _NOTHING)
        return self._native(payload) if form[0] & JSONPLUS_FLAG else payload

    # -- forms

    def form(self, channel: str, path: Path, form: Form) -> Form:
        """One form; elements that it needs are kept."""
        if form is None:
            return None
        if type(form) is bytes:
            return self._payload(form, path, 0)
        code = form[0]
        if code == INLINE:
            return [INLINE, *self._typed(form[1], form[2], path)]
        if code == NESTED:
            return [NESTED, {name: self.form(channel, (*path, name), part) for name, part in form[1].items()}]
        if code == DELTA:
            return [DELTA, self.form(channel, path, form[1])]
        if code == FOREIGN:
            payload = self._join(form[2])
            tag, after = self._typed(form[1], payload, path)
            return self._same(form) if after == payload else [FOREIGN, tag, self._pieces(channel, after)[1]]
        kind, flag = code & ~JSONPLUS_FLAG, code & JSONPLUS_FLAG
        if kind in (LIST, DICT) and not self.scrubber.declares(path):
            return [code, form[1], self._each(channel, form[2], kind, path, flag)]
        return self._whole(channel, path, form, kind, flag)

    def _whole(self, channel: str, path: Path, form: Form, kind: int, flag: int) -> Form:
        payload = self._join(form[2])
        if kind in (LIST, LIST_BLOCKS):
            payload = array_header(form[1]) + payload
        elif kind in (DICT, DICT_BLOCKS):
            payload = map_header(form[1]) + payload
        elif kind == TEXT:
            payload = self.native.dumps(payload.decode())
        elif kind == BYTES:
            payload = self.native.dumps(payload)
        after = self._payload(payload, path, 0 if kind in (TEXT, BYTES) else flag)
        if after == payload:
            return self._same(form)
        if kind == WHOLE and form[1] == 1 and len(after) <= _PIECE:
            ((first, _),) = unpack_runs(form[2])
            return [form[0], 1, pack_runs([(self._place(channel, first, after), 1)])]
        count, runs = self._pieces(channel, after)
        return [WHOLE | (0 if kind in (TEXT, BYTES) else flag), count, runs]

    def _each(self, channel: str, runs: bytes, kind: int, path: Path, flag: int) -> bytes:
        numbers = []
        for number in _numbers(runs):
            after = self._seen.get((number, kind, path))
            if after is None:
                element = self.elements[number]
                if kind == LIST:
                    after = self._payload(element, path, flag)
                else:
                    after = self._payload(_ONE + element, path, flag)[1:]
                self._seen[(number, kind, path)] = after
            numbers.append(self._place(channel, number, after))
        return pack_runs(runs_of(numbers))

    def _same(self, form: Form) -> Form:
        """A form whose elements stay as they are, wherever their numbers are not taken by something else."""
        channel = ""
        numbers = [self._place(channel, number, self.elements[number]) for number in _numbers(form[2])]
        return [form[0], form[1], pack_runs(runs_of(numbers))]

    def _place(self, channel: str, number: int, element: bytes) -> int:
        """Keep an element under its number, or under another if that one is taken."""
        present = self.kept.setdefault(number, element)
        return number if present == element else self._number(channel, element)

    def _number(self, channel: str, element: bytes) -> int:
        number = self._fresh.get(element)
        if number is None:
            number = self._fresh[element] = self.extents.take(channel)
            self.kept[number] = element
        return number

    def _pieces(self, channel: str, payload: bytes) -> tuple[int, bytes]:
        parts = [payload[at : at + _PIECE] for at in range(0, len(payload), _PIECE)] or [b""]
        return len(parts), pack_runs(runs_of([self._number(channel, part) for part in parts]))

    # -- payloads

    def _payload(self, payload: bytes, path: Path, flag: int) -> bytes:
        before = self._native(payload) if flag else payload
        after = self.scrubber.payload(before, path)
        if after == before:
            return payload
        return self.port.dumps(self.native.loads(after)) if flag else after

    def _native(self, payload: bytes) -> bytes:
        return self.native.dumps(self.port.loads(payload))

    def _typed(self, tag: str, payload: bytes, path: Path) -> tuple[str, bytes]:
        """A payload of another serializer, by way of ours."""
        reader = self.native if tag == "msgpack" and not self.port.flag else self.port
        before = self.native.dumps(reader.loads_typed((tag, payload)))
        after = self._payload(before, path, 0)
        return (tag, payload) if after == before else self.port.dumps_typed(self.native.loads(after))

    def _join(self, runs: bytes) -> bytes:
        try:
            return b"".join(self.elements[number] for number in _numbers(runs))
        except KeyError as exc:
            raise TruncatedError(f"Element {exc.args[0]} of a stored value is missing.") from exc


def _numbers(runs: bytes) -> Iterable[int]:
    return (number for first, count in unpack_runs(runs) for number in range(first, first + count))


def elements_of(chunks: Collection[ChunkRow]) -> dict[int, bytes]:
    """The elements of rows by number."""
    elements: dict[int, bytes] = {}
    for chunk in chunks:
        unpack_row(chunk, elements)
    return elements

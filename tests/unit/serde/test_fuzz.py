"""Whatever bytes stand in a row: a value or a named error, in bounded memory, and no code of the row's choosing."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import warnings
from typing import Any

import ormsgpack
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from stepvault._core.serde import decode, nesting
from stepvault.errors import PayloadError, StepvaultError, TruncatedError
from stepvault.types import TypedSerializer
from tests.unit.serde import app_types as app
from tests.unit.serde.strategies import anything

SERDE = TypedSerializer()
RAW = TypedSerializer(unknown_types="raw")
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
TAGS = ["sv1", "msgpack", "json", "null", "bytes", "bytearray", "pickle", "x"]


def load(tag: str, data: bytes) -> None:
    """Load, let only our errors through, and use what came out as a reader would."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a pattern may be deprecated
        for serde in (SERDE, RAW):
            try:
                value = serde.loads_typed((tag, data))
            except StepvaultError:
                continue
            try:
                RAW.dumps(value)
            except StepvaultError:
                continue


@given(st.sampled_from(TAGS), st.binary(max_size=60))
@QUICK
def test_random_bytes(tag: str, data: bytes) -> None:
    load(tag, data)


@given(anything, st.data())
@QUICK
def test_damaged_payloads(value: Any, data: st.DataObject) -> None:
    payload = bytearray(SERDE.dumps(value))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1))
        payload[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        assume(payload)
    load("sv1", bytes(payload))


@given(anything, st.data())
@QUICK
def test_cut_payloads(value: Any, data: st.DataObject) -> None:
    payload = SERDE.dumps(value)
    cut = payload[: data.draw(st.integers(0, len(payload) - 1))]
    with pytest.raises(PayloadError):
        SERDE.loads(cut)
    with pytest.raises(PayloadError):
        SERDE.loads(payload + data.draw(st.binary(min_size=1, max_size=4)))


def test_a_cut_payload_is_called_so() -> None:
    payload = SERDE.dumps([HumanMessage("x" * 100), {"a": 1}])
    for cut in (0, 1, 50, len(payload) - 1):
        with pytest.raises(TruncatedError):
            SERDE.loads(payload[:cut])


codes = st.integers(0, 45)
parts = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(lambda code, items: ormsgpack.Ext(code, ormsgpack.packb(items)), codes, st.lists(inner, max_size=9))
    ),
    max_leaves=12,
)


@given(st.sampled_from(["sv1", "msgpack"]), codes, parts)
@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@example("sv1", 17, [1, 0])
@example("sv1", 19, [0, 1, 0])
@example("sv1", 22, [2020, 99, 1, 0, 0, 0, 0])
@example("sv1", 27, ["../../etc/passwd"])
@example("sv1", 27, ["/etc/passwd"])
@example("sv1", 32, ["(" * 5000, 0])
@example("sv1", 32, ["a", 128])
@example("sv1", 40, ["|O", [1], "C", b"x" * 8])
@example("sv1", 40, ["<f8", [2**62, 2**62], "C", b""])
@example("sv1", 40, ["<f8", [-1], "C", b""])
@example("sv1", 40, ["V0", [2**40], "C", b""])
@example("sv1", 1, [0, 0])
@example("sv1", 1, [0, 1 << 60, *range(6)])
@example("sv1", 5, [[1]])
@example("sv1", 6, [[], 1])
@example("msgpack", 1, ["re", "compile", ["(" * 5000]])
def test_well_formed_nonsense(tag: str, code: int, items: Any) -> None:
    load(tag, ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(items))))


@given(st.sampled_from([*map(str, range(3))]), parts, parts, parts)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
def test_nonsense_records(kind: str, fields: Any, fingerprint: Any, state: Any) -> None:
    for name in ("Claim", "Model", "Color", "Point", "Attr", "Page", "Nested"):
        stored = f"{app.__name__}:{name}"
        for named in (stored, [stored, ["@int"]], [stored, [stored, "@union"]]):
            record = [named, 1, kind, fields, fingerprint, state, state]
            load("sv1", ormsgpack.packb(ormsgpack.Ext(2, ormsgpack.packb(record))))


@given(parts.filter(lambda p: p is not None), parts)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_nonsense_json(ident: Any, arguments: Any) -> None:
    for lc in (1, 2):
        for one in (
            ident,
            ["datetime", "datetime"],
            ["langchain", "HumanMessage"],
            [*app.__name__.split("."), "Claim"],
        ):
            envelope = {"lc": lc, "type": "constructor", "id": one, "args": arguments, "kwargs": arguments}
            load("json", json.dumps(envelope, default=str).encode())


LYING = {
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "str": b"\xdb\xff\xff\xff\xff",
    "bin": b"\xc6\xff\xff\xff\xff",
    "ext": b"\xc9\xff\xff\xff\xff\x03",
}


@pytest.mark.parametrize("kind", LYING)
def test_headers_that_lie_about_their_size(kind: str) -> None:
    head = LYING[kind]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for data in (head, b"\x91" * 100 + head, b"\xc7" + bytes([len(head)]) + b"\x03" + head, head + b"\x00" * 1000):
        for tag in ("sv1", "msgpack"):
            with pytest.raises(PayloadError):
                SERDE.loads_typed((tag, data))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


def test_the_check_of_sizes_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "unpackb", nesting._unpackb)
    for kind, head in LYING.items():
        with pytest.raises(PayloadError):
            SERDE.loads(b"\x91" + head + kind.encode())
    with pytest.raises(TruncatedError):
        SERDE.loads(b"\xde\xff\xff" + b"\x01\xde\xff\xff" * 1000)
    value = [{str(n): [n] * 20 for n in range(20)}] * 20 + [list(range(70_000)), "\u0740\u07ff" * 9, b"\xdd\xff"]
    assert SERDE.loads(SERDE.dumps(value)) == value


def deep(levels: int, width: int, code: int) -> bytes:
    data = b"\x01"
    for _ in range(levels):
        data = b"\x91" * width + data
        data = b"\xc9" + len(data).to_bytes(4, "big") + bytes([code]) + data
    return data


DEEP = """
import sys
sys.setrecursionlimit(100_000)
from stepvault.errors import PayloadError
from stepvault.types import TypedSerializer
from tests.unit.serde.test_fuzz import deep
for tag, code in (("sv1", 3), ("msgpack", 7)):
    for levels, width in ((1, 2000), (300, 1), (100, 900), (190, 190), (5000, 3)):
        try:
            TypedSerializer().loads_typed((tag, deep(levels, width, code)))
        except PayloadError:
            print("refused")
"""


def test_deep_payloads_do_not_break_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", DEEP], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, ["refused"] * 10), done.stderr


def test_keys_with_the_name_of_a_method_are_not_set() -> None:
    for serde_tag in ("sv1",):
        good = ormsgpack.unpackb(SERDE.dumps(app.Model(n=1)), ext_hook=lambda _, data: ormsgpack.unpackb(data))
        good[3]["model_dump"] = "x"
        record = ormsgpack.packb(ormsgpack.Ext(2, ormsgpack.packb(good)))
        assert callable(SERDE.loads_typed((serde_tag, record)).model_dump)


def test_theirs_damaged() -> None:
    payload = JsonPlusSerializer().dumps_typed([AIMessage("x"), app.Claim(1), {1, 2}, app.Color.RED])[1]
    for at in range(len(payload)):
        for byte in (0x00, 0x80, 0xC1, 0xC7, 0xDD, 0xFF):
            load("msgpack", payload[:at] + bytes([byte]) + payload[at + 1 :])
        load("msgpack", payload[:at])

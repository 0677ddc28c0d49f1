"""What LangGraph's own serializers wrote can be read, under our type policy."""

from __future__ import annotations

import json
import re
import sys
from collections import deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import langgraph.types
import numpy as np
import ormsgpack
import pydantic
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.load import dumpd
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde import types as serde_types
from langgraph.checkpoint.serde.base import CipherProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import Item
from langgraph.types import Command, Interrupt, Send

from stepvault.errors import PayloadError, StateInvalidError, UnknownTypeError, UnsupportedFormatError
from stepvault.types import RawValue, TypedSerializer, TypeRegistry
from tests.unit.serde import app_types as app
from tests.unit.serde.comparing import assert_same
from tests.unit.serde.strategies import messages

THEIRS = JsonPlusSerializer()
SERDE = TypedSerializer()
MOMENT = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=2)))

VALUES: list[Any] = [
    None,
    b"x",
    bytearray(b"x"),
    {"a": [1, 2.5, None, True, "x"], "b": {1: 2}},
    {1, 2},
    frozenset("a"),
    deque([1]),
    MOMENT,
    datetime(2024, 1, 1),
    date(2024, 1, 1),
    time(1, 2, 3, 4, fold=1),
    time(1, tzinfo=timezone.utc),
    timedelta(1, 2, 3),
    timezone(timedelta(hours=1), "x"),
    ZoneInfo("Europe/Berlin"),
    UUID(int=5),
    Decimal("1.50"),
    ip_address("1.2.3.4"),
    ip_network("::/64"),
    ip_interface("1.2.3.4/24"),
    Path("/a/b"),
    re.compile("a", re.I),
    np.arange(6).reshape(2, 3),
    app.Color.RED,
    app.Level.HIGH,
    app.Point(1, 2),
    app.Claim(1, "x", [{"a": 1}]),
    app.Frozen([1]),
    app.Slotted(1, 2),
    app.Derived(3),
    app.Model(n=1, text="x"),
    app.Computed(n=2),
    app.Aliased(theValue=1),  # type: ignore[call-arg]
    app.Extra(n=1, more=2),  # type: ignore[call-arg]
    HumanMessage("x", id="1"),
    AIMessage("x", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}], response_metadata={"m": 1}),
    AIMessageChunk("x", chunk_position="last"),
    ToolMessage("x", tool_call_id="1", artifact={"a": 1}, status="error"),
    RemoveMessage(id="x"),
    Document("x", metadata={"a": 1}),
    Send("n", {"a": 1}),
    Interrupt(value={"a": 1}, id="i"),
    Command(update={"a": 1}, resume=[1], goto="n"),
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "HumanMessage"], "kwargs": {}},
    {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["true"]},
]

# What only newer versions of LangGraph have.
if hasattr(langgraph.types, "TimeoutPolicy"):
    VALUES.append(Send("n", 1, timeout=langgraph.types.TimeoutPolicy(run_timeout=1.0)))
if hasattr(serde_types, "_DeltaSnapshot"):
    VALUES.append(serde_types._DeltaSnapshot([HumanMessage("x")]))


@pytest.mark.parametrize("value", VALUES, ids=lambda v: type(v).__name__)
def test_msgpack_payloads(value: Any) -> None:
    back = SERDE.loads_typed(THEIRS.dumps_typed(value))
    assert type(back) is type(value)
    if isinstance(value, np.ndarray):
        assert_same(back, value)
    elif isinstance(value, pydantic.BaseModel):
        assert back.model_dump() == value.model_dump()
    else:
        assert back == value
    if type(value) is not bytearray:  # inside a list they store it as bytes
        assert type(SERDE.loads_typed(THEIRS.dumps_typed([value]))[0]) is type(value)


def test_store_items() -> None:
    item = Item(value={"a": 1}, key="k", namespace=("a",), created_at=MOMENT, updated_at=MOMENT)
    assert SERDE.loads_typed(THEIRS.dumps_typed(item)) == item


@given(messages(st.integers(0, 9)))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_messages_as_their_own_reader_gives_them(value: Any) -> None:
    data = THEIRS.dumps_typed(value)
    assert SERDE.loads_typed(data) == THEIRS.loads_typed(data)


def test_sets_of_tuples_which_their_reader_loses() -> None:
    value = {(1, (2, "x")), (3,)}
    data = THEIRS.dumps_typed({"a": value, "b": frozenset(value)})
    assert THEIRS.loads_typed(data)["a"] != value
    assert SERDE.loads_typed(data) == {"a": value, "b": frozenset(value)}


def test_nested_models_are_validated() -> None:
    value = app.Nested(one=app.Model(n=1), many=[app.Model(n=2)], level=app.Level.HIGH, claim=app.Claim(1))
    assert_same(SERDE.loads_typed(THEIRS.dumps_typed(value)).claim, value.claim)


def test_what_does_not_fit_its_class_is_an_error() -> None:
    data = THEIRS.dumps_typed(app.Splitting(parts="a,b"))
    with pytest.raises(StateInvalidError, match="parts: value_error"):
        SERDE.loads_typed(data)


def test_the_type_policy_holds() -> None:
    closed = TypedSerializer(unknown_types="refuse", registry=TypeRegistry())
    for value in (app.Claim(1), app.Model(n=1), app.Color.RED, app.Point(1), app.Outer.Inner.X):
        data = THEIRS.dumps_typed([value])
        with pytest.raises(UnknownTypeError):
            closed.loads_typed(data)
        assert TypedSerializer(types=[type(value)], unknown_types="refuse").loads_typed(data) == [value]
    allowed = closed.with_msgpack_allowlist([(app.__name__, "Claim")])
    assert allowed.loads_typed(THEIRS.dumps_typed(app.Claim(1))) == app.Claim(1)


def test_upcasters_take_foreign_payloads_as_version_1() -> None:
    registry = TypeRegistry()
    registry.register(
        app.Model, name="m", version=2, aliases=[f"{app.__name__}:Claim"], upcasters={1: lambda f: {"n": f["number"]}}
    )
    serde = TypedSerializer(registry=registry)
    assert serde.loads_typed(THEIRS.dumps_typed(app.Claim(7))) == app.Model(n=7)


def test_raw_values_of_foreign_payloads_can_be_stored() -> None:
    raw = TypedSerializer(unknown_types="raw", registry=TypeRegistry())
    data = THEIRS.dumps_typed([app.Claim(1, "x")])
    sys.modules.pop(app.__name__)
    try:
        (value,) = raw.loads_typed(data)
    finally:
        sys.modules[app.__name__] = app
    assert isinstance(value, RawValue)
    assert value.data == {"number": 1, "text": "x", "items": []}
    assert SERDE.loads(raw.dumps([value])) == [app.Claim(1, "x")]


@pytest.mark.parametrize(
    "value",
    [
        app.Color.BLUE, app.Level.LOW, app.Status.OPEN, app.Access.READ, app.Point(1, app.Color.RED), app.Pair(1, 2),
        app.Claim(1, "x"), app.Frozen(1), app.Model(n=1, text="x", any=2), app.Computed(n=2), app.Outer.Inner.X,
        app.Outer.Part(3), [{"a": {app.Color.RED}}],
    ],
    ids=repr,
)  # fmt: skip
def test_copies_need_no_class_and_lose_none(value: Any) -> None:
    copies = SERDE.for_copies()
    stored = copies.dumps(copies.loads_typed(THEIRS.dumps_typed(value)))
    assert copies.dumps(copies.loads(stored)) == stored
    reader = TypedSerializer(types=[app.Outer.Inner, app.Outer.Part], registry=TypeRegistry())
    assert_same(reader.loads(stored), value)


@pytest.mark.parametrize("code", range(6))
def test_rows_cannot_call_or_import(code: int) -> None:
    for module, name in (("os", "system"), ("subprocess", "Popen"), ("builtins", "eval"), ("antigravity", "x")):
        for payload in ("true", ["true"], {"command": "true"}):
            inner = ormsgpack.packb([module, name, payload, "__init__"])
            with pytest.raises(UnknownTypeError):
                SERDE.loads_typed(("msgpack", ormsgpack.packb(ormsgpack.Ext(code, inner))))
    assert "antigravity" not in sys.modules


def lc2(*ident: str, **call: Any) -> dict[str, Any]:
    return {"lc": 2, "type": "constructor", "id": list(ident), **call}


@pytest.mark.parametrize(
    ("stored", "value"),
    [
        (lc2("uuid", "UUID", args=["00000000000000000000000000000005"]), UUID(int=5)),
        (lc2("decimal", "Decimal", args=["1.5"]), Decimal("1.5")),
        (lc2("builtins", "set", args=[[[1, 2], 3]]), {(1, 2), 3}),
        (lc2("datetime", "datetime", method="fromisoformat", args=[MOMENT.isoformat()]), MOMENT),
        (lc2("datetime", "timedelta", args=[1, 2, 3]), timedelta(1, 2, 3)),
        (lc2("datetime", "time", kwargs={"hour": 1, "fold": 1}), time(1, fold=1)),
        (lc2("zoneinfo", "ZoneInfo", args=["UTC"]), ZoneInfo("UTC")),
        (lc2("pathlib", "PosixPath", args=["/", "a"]), Path("/a")),
        (lc2("re", "compile", args=["a", 2]), re.compile("a", 2)),
        (lc2("builtins", "bytes", method="fromhex", args=["00ff"]), b"\x00\xff"),
        (lc2(*app.__name__.split("."), "Claim", kwargs={"number": 1}), app.Claim(1)),
        (lc2(*app.__name__.split("."), "Model", method=[None, "construct"], kwargs={"n": 1}), app.Model(n=1)),
        (lc2(*app.__name__.split("."), "Color", args=["red"]), app.Color.RED),
        (lc2("langgraph", "types", "Send", kwargs={"node": "n", "arg": 1}), Send("n", 1)),
        (dumpd(HumanMessage("x", id="1")), HumanMessage("x", id="1")),
        (dumpd(AIMessage("x", tool_calls=[{"name": "f", "args": {}, "id": "c"}])), None),
        (dumpd(Document("x")), Document("x")),
        ({"lc": 1, "type": "secret", "id": ["HOME"]}, None),
        ({"lc": 1, "type": "constructor", "id": "no list"}, None),
        ({"lc": True, "type": "constructor", "id": ["langchain", "x"]}, None),
        ({"lc": 3, "type": "constructor", "id": ["os", "system"], "args": ["true"]}, None),
        ({"plain": [1, None]}, None),
    ],
    ids=lambda v: str(v)[:60],
)
def test_json_payloads(stored: dict[str, Any], value: Any) -> None:
    if value is None:
        value = AIMessage("x", tool_calls=[{"name": "f", "args": {}, "id": "c"}]) if "kwargs" in stored else stored
    back = SERDE.loads_typed(("json", json.dumps({"a": [stored]}).encode()))
    assert back == {"a": [value]}
    assert type(back["a"][0]) is type(value)


@pytest.mark.parametrize(
    "stored",
    [
        lc2("os", "system", args=["true"]),
        lc2("antigravity", "x"),
        {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "PromptTemplate"], "kwargs": {}},
        {"lc": 1, "type": "constructor", "id": ["langchain_community", "x", "ShellTool"], "kwargs": {}},
    ],
    ids=str,
)
def test_json_rows_cannot_call_or_import(stored: dict[str, Any]) -> None:
    with pytest.raises(UnknownTypeError):
        SERDE.loads_typed(("json", json.dumps(stored).encode()))
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN1", b'{"a": 1} x'])
def test_damaged_json(data: bytes) -> None:
    with pytest.raises(PayloadError):
        SERDE.loads_typed(("json", data))


class Xor(CipherProtocol):
    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "aes", bytes(b ^ 7 for b in plaintext)

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        assert ciphername == "aes"
        return bytes(b ^ 7 for b in ciphertext)


@pytest.mark.parametrize("value", [None, b"x", [HumanMessage("x")]], ids=str)
def test_encrypted_payloads(value: Any) -> None:
    theirs = EncryptedSerializer(Xor())
    data = theirs.dumps_typed(value)
    assert "+aes" in data[0]
    for cipher in (theirs, Xor()):
        assert TypedSerializer(cipher=cipher).loads_typed(data) == value
    with pytest.raises(UnsupportedFormatError, match="cipher="):
        SERDE.loads_typed(data)
    ours = EncryptedSerializer(Xor(), TypedSerializer())
    assert ours.loads_typed(data) == value
    assert ours.loads_typed(ours.dumps_typed(value)) == value
    with pytest.raises(PayloadError, match="key"):
        TypedSerializer(cipher=Xor()).loads_typed(("msgpack+other", data[1]))

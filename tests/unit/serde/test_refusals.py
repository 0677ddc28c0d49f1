"""What is refused, with path and type; what is stored as its base; what user data cannot do."""

from __future__ import annotations

import asyncio
import threading
import types
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import ormsgpack
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.runnables.utils import AddableDict
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.types import Send

from stepvault.errors import PayloadError, StepvaultError, ValueNotSerializableError
from stepvault.types import TypedSerializer, base_form
from tests.unit.serde import app_types as app
from tests.unit.serde.comparing import assert_same

SERDE = TypedSerializer()
STRICT = TypedSerializer(fidelity="strict")


def refused(value: Any, serde: TypedSerializer = SERDE) -> ValueNotSerializableError:
    with pytest.raises(ValueNotSerializableError) as caught:
        serde.dumps(value)
    assert isinstance(caught.value, TypeError)
    return caught.value


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ([1, [2, lambda: None]], "[1][1]"),
        ({"a": {"b c": threading.Lock()}}, "['a']['b c']"),
        ({1: {None: threading.Lock()}}, "[1][None]"),
        ((1, threading.Lock()), "[1]"),
        (app.Claim(1, items=[threading.Lock()]), ".items[0]"),
        (app.Model(n=1, any=[app.Frozen(threading.Lock())]), ".any[0].value"),
        (app.Point(1, threading.Lock()), ".y"),
        (ToolMessage("x", tool_call_id="1", artifact={"k": threading.Lock()}), ".artifact['k']"),
        (HumanMessage("x", additional_kwargs={"k": threading.Lock()}), ".additional_kwargs['k']"),
        (HumanMessage("x", surplus=threading.Lock()), "['surplus']"),
        (Send("n", {"a": threading.Lock()}), ".arg['a']"),
        (defaultdict(list, a=threading.Lock()), "['a']"),
        (deque([threading.Lock()]), "[0]"),
        (slice(None, threading.Lock()), ".stop"),
    ],
)
def test_the_path_of_what_cannot_be_stored(value: Any, path: str) -> None:
    error = refused(value)
    assert error.path == path
    assert path in str(error)
    assert error.type_name in ("_thread.lock", "builtins.function", "_thread.LockType")


def make_generator() -> Any:
    yield 1


async def coroutine() -> None:
    pass


@pytest.mark.parametrize(
    "value",
    [
        object(),
        object,
        print,
        lambda: 1,
        make_generator(),
        iter([]),
        types,
        threading.Lock(),
        threading.Thread(),
        asyncio.Event(),
        app.Plain(1),
        app.Names(["x"]),
        app.Lookup(),
        app.Outer(),
        app.Tagged,
        type("Sub", (dict,), {})(),
        type("Sub", (OrderedDict,), {})(),
        type("Sub", (set,), {})([1]),
        type("Sub", (tuple,), {})([1]),
        type("Sub", (Decimal,), {})(1),
        type("Sub", (datetime,), {})(2020, 1, 1),
        defaultdict(lambda: 1),
        app.NeedsInitVar(1, 2),
        NotImplemented,
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_is_refused(value: Any) -> None:
    assert refused(value).type_name
    refused([{"k": value}])


def test_an_open_file_is_refused(tmp_path: Any) -> None:
    with open(tmp_path / "f", "w") as file:
        refused({"f": file})


FOREIGN: list[Any] = [ormsgpack.Ext(2, b"\x91\x01"), ormsgpack.Ext(99, b"")]
if hasattr(ormsgpack, "Fragment"):
    FOREIGN.append(ormsgpack.Fragment(b"\xd4\x03\x90"))


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"a": (v,)}, lambda v: app.Claim(1, items=[v])])
@pytest.mark.parametrize("value", FOREIGN, ids=lambda v: type(v).__name__)
def test_objects_of_the_msgpack_library_are_refused(value: Any, wrap: Any) -> None:
    assert refused(wrap(value)).type_name.startswith("ormsgpack")


MARKERS: list[Any] = [
    {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "x"},
    },
    {"lc": 2, "type": "constructor", "id": ["os", "system"], "args": ["true"], "kwargs": {}},
    {"lc": 1, "type": "secret", "id": ["HOME"]},
    ["tests.unit.serde.app_types:Claim", 1, "d", {"number": 1}, None],
    {"__type__": "x", "__class__": "y", "sv1": 1},
    ormsgpack.packb(ormsgpack.Ext(2, b"\x91\x01")),
    SERDE.dumps(app.Claim(1)),
    "sv1.end",
    b"\xac" + b"sv1.end",
]


@pytest.mark.parametrize("value", MARKERS, ids=lambda v: str(type(v)))
def test_data_shaped_like_a_marker_stays_data(value: Any) -> None:
    assert_same(SERDE.loads(SERDE.dumps(value)), value)
    assert_same(SERDE.loads_typed(SERDE.dumps_typed([value])), [value])
    message = HumanMessage("x", additional_kwargs={"v": value})
    assert_same(SERDE.loads(SERDE.dumps(message)), message)
    assert_same(SERDE.loads_typed(JsonPlusSerializer().dumps_typed([value])), [value])


def test_base_forms() -> None:
    class Zone(tzinfo):
        def utcoffset(self, dt: Any) -> timedelta:
            return timedelta(hours=1)

    moment = datetime(2024, 1, 1, tzinfo=Zone())
    forms: list[tuple[Any, Any]] = [
        (app.Text("x"), "x"),
        (app.Number(3), 3),
        (AIMessage("x").text, "x"),
        (memoryview(b"x"), b"x"),
        (ValueError("x"), "ValueError('x')"),
    ]
    for value, form in forms:
        assert_same(SERDE.loads(SERDE.dumps({"k": value})), {"k": form})
        refused(value, STRICT)
    assert_same(SERDE.loads(SERDE.dumps({app.Text("k"): 1})), {"k": 1})
    back = SERDE.loads(SERDE.dumps(moment))
    assert (back, back.utcoffset()) == (moment, timedelta(hours=1))
    refused(moment, STRICT)
    refused({app.Text("k"): 1}, STRICT)
    tagged = app.Tagged("x")
    tagged.tag = "t"
    assert "attributes" in str(refused(tagged))
    assert base_form(ValueError("x")) == JsonPlusSerializer().loads_typed(
        JsonPlusSerializer().dumps_typed(ValueError("x"))
    )
    assert base_form((1,)) == (1,)


def test_overridden_methods_of_a_subclass_are_not_asked() -> None:
    class Sly(str):
        __slots__ = ()

        def __str__(self) -> str:
            return "other"

        def __iter__(self) -> Any:
            raise AssertionError

    assert SERDE.loads(SERDE.dumps(Sly("x"))) == "x"


def test_langchain_dicts_keep_their_type() -> None:
    back = SERDE.loads(SERDE.dumps(AddableDict(a=1)))
    assert type(back) is AddableDict
    assert back == {"a": 1}


@pytest.mark.parametrize("strict", [False, True])
def test_secrets_are_refused_in_clear(strict: bool) -> None:
    serde = STRICT if strict else SERDE
    secret = pydantic.SecretStr("hunter2")
    for value in (secret, [secret], app.Keys(name="a", token=secret), pydantic.SecretBytes(b"x")):
        error = refused(value, serde)
        assert "secret" in str(error)
        assert "hunter2" not in str(error)
    assert refused(app.Keys(name="a", token=secret)).path == ".token"
    private = app.Private(n=1)
    private._lock = secret
    assert refused(private).path == "._lock"
    refused(type("MySecret", (pydantic.SecretStr,), {})("x"), TypedSerializer(secrets="allow"))


def test_secrets_are_stored_when_allowed() -> None:
    serde = TypedSerializer(secrets="allow")
    value = [app.Keys(name="a", token=pydantic.SecretStr("s")), pydantic.SecretBytes(b"x")]
    back = serde.loads(serde.dumps(value))
    assert_same(back, value)
    assert back[0].token.get_secret_value() == "s"
    assert_same(SERDE.loads(serde.dumps(value)), value)


def nested(depth: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


@dataclass
class Node:
    below: Any


WRAPS: list[Any] = [
    lambda v: [v],
    lambda v: {"k": v},
    lambda v: (v,),
    lambda v: {1: v},
    lambda v: {(1,): v},
    Node,
    lambda v: app.Model(n=1, any=v),
    lambda v: deque([v]),
    lambda v: ToolMessage("", tool_call_id="1", artifact=v),
    lambda v: [{"a": (v, [])}],
    lambda v: frozenset([v]),
]


@pytest.mark.parametrize("wrap", WRAPS)
def test_nesting_is_bounded(wrap: Any) -> None:
    assert_same(SERDE.loads(SERDE.dumps(nested(40, wrap))), nested(40, wrap))
    error = refused(nested(260, wrap))
    assert "deep" in str(error)


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: (v,), Node, lambda v: {"k": v}])
def test_the_documented_depth_is_reached(wrap: Any) -> None:
    value = nested(190, wrap)
    back = SERDE.loads(SERDE.dumps(value))
    for _ in range(190):
        assert type(back) is type(value)
        back, value = (
            (v[0] if isinstance(v, (list, tuple)) else v["k"] if isinstance(v, dict) else v.below)
            for v in (back, value)
        )


@pytest.mark.parametrize("wrap", [lambda v: (v,), Node, lambda v: {(1,): v}])
@pytest.mark.parametrize(("levels", "width"), [(1, 250), (2, 250), (4, 250), (5, 250), (9, 30), (60, 2), (20, 250)])
def test_what_is_written_can_be_read(levels: int, width: int, wrap: Any) -> None:
    value = nested(levels, lambda v: wrap(nested_in(v, width)))
    try:
        data = SERDE.dumps(value)
    except ValueNotSerializableError:
        assert levels * width > 150
        return
    assert SERDE.dumps(SERDE.loads(data)) == data


def nested_in(value: Any, width: int) -> Any:
    for _ in range(width):
        value = [value]
    return value


def test_values_that_contain_themselves() -> None:
    listed: list[Any] = []
    listed.append([listed])
    keyed: dict[str, Any] = {}
    keyed["a"] = {"b": keyed}
    node = Node(None)
    node.below = (node,)
    message = ToolMessage("x", tool_call_id="1")
    message.artifact = {"m": [message]}
    for value in (listed, keyed, node, message):
        assert "contains itself" in str(refused(value))


def test_a_shared_value_is_stored_twice() -> None:
    one = [1]
    back = SERDE.loads(SERDE.dumps([one, one]))
    assert back == [[1], [1]]
    assert back[0] is not back[1]


def test_a_broken_repr_or_property_is_our_error() -> None:
    class Bad(Exception):
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(StepvaultError):
        SERDE.dumps([Bad()])


@pytest.mark.parametrize("tag", ["sv2", "", "pickle", "msgpack+aes", "jsonx"])
def test_unknown_tags(tag: str) -> None:
    with pytest.raises(PayloadError):
        SERDE.loads_typed((tag, b"\x80\x04N."))


def test_tags() -> None:
    assert SERDE.dumps_typed(None) == ("null", b"")
    assert SERDE.dumps_typed(b"x") == ("bytes", b"x")
    for value in (None, b"x", bytearray(b"x"), 1, "a"):
        assert_same(SERDE.loads_typed(SERDE.dumps_typed(value)), value)

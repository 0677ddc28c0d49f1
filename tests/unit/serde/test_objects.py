"""Objects of application classes: state the constructor would change, and what cannot be kept."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

import langgraph.types
import numpy as np
import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde import types as serde_types
from langgraph.store.base import Item, SearchItem
from langgraph.types import Command, Interrupt, Overwrite, PregelTask, Send, StateSnapshot

from stepvault.errors import ValueNotSerializableError
from stepvault.types import TypedSerializer
from tests.unit.serde import app_types as app
from tests.unit.serde.comparing import assert_same

SERDE = TypedSerializer()
STRICT = TypedSerializer(fidelity="strict")


def again(value: Any, serde: TypedSerializer = SERDE) -> Any:
    back = serde.loads(serde.dumps(value))
    assert_same(back, value)
    return back


def test_fields_set_survive() -> None:
    assert again(app.Model(n=1)).model_dump(exclude_unset=True) == {"n": 1}
    assert again(HumanMessage("x")).__pydantic_fields_set__ == {"content"}


def test_aliases() -> None:
    value = again(app.Aliased(theValue=3, o=4))  # type: ignore[call-arg]
    assert (value.value, value.other) == (3, 4)


def test_private_attributes() -> None:
    value = app.Private(n=1)
    value._count = 5
    assert again(value)._count == 5


def test_a_private_attribute_that_cannot_be_stored_is_made_anew() -> None:
    value = app.Private(n=1)
    value._count, value._lock = 5, threading.Lock()
    back = SERDE.loads(SERDE.dumps(value))
    assert (back._count, back._lock) == (5, None)
    with pytest.raises(ValueNotSerializableError, match="_lock"):
        STRICT.dumps(value)


@pytest.mark.parametrize(
    "value",
    [
        app.Computed(n=3),
        app.Nested(one=app.Model(n=1), many=[app.Model(n=2, text="x")], claim=app.Claim(1)),
        app.Growing(text="a"),
        app.Splitting(parts="a,b"),
        app.Root([1, 2]),
        app.Page[int](items=[1]),
        app.Page[app.Model](items=[app.Model(n=1)]),
        app.Page[list[int]](items=[[1]]),
        app.Page[dict[str, int | None]](items=[{"a": None}]),
        app.Page[app.Page[int]](items=[app.Page[int](items=[1])]),
        app.Page(items=["untyped"]),
        app.Derived(4),
        app.FrozenAttr(1),
        app.Attr(x=1, hidden=2),
        app.Outer.Part(1),
        app.Outer.Inner.X,
        app.Access.READ | app.Access.WRITE,
        app.Checked(n=1),
        app.Row(a=1),
    ],
    ids=lambda v: type(v).__name__,
)
def test_state_comes_back_exactly(value: Any) -> None:
    again(value)
    again([{"k": value}])


def test_a_model_that_was_never_valid_comes_back_as_it_was() -> None:
    value = app.Model.model_construct(n="not an int")
    assert SERDE.loads(SERDE.dumps(value)).__dict__ == value.__dict__


def test_a_generic_keeps_its_parameters() -> None:
    assert type(again(app.Page[int](items=[1]))) is app.Page[int]


def test_a_cached_property_is_computed_anew() -> None:
    value = app.WithCache(2)
    assert value.double == 4
    assert "double" not in again(value).__dict__
    again(value, STRICT)


def test_attributes_that_are_no_fields() -> None:
    value = app.Claim(1)
    value.note = "x"  # type: ignore[attr-defined]
    assert not hasattr(SERDE.loads(SERDE.dumps(value)), "note")
    with pytest.raises(ValueNotSerializableError, match="no fields"):
        STRICT.dumps(value)


def test_a_constructor_that_needs_more_than_fields_is_refused() -> None:
    with pytest.raises(ValueNotSerializableError, match="constructor"):
        SERDE.dumps(app.NeedsInitVar(1, 2))


def test_legacy_models() -> None:
    legacy = pytest.importorskip("pydantic.v1")

    class Old(legacy.BaseModel):  # type: ignore[misc, name-defined]
        n: int
        text: str = "x"
        _secret: int = legacy.PrivateAttr(1)

    serde = TypedSerializer(types=[Old])
    value = Old(n=1)
    value._secret = 7
    back = serde.loads(serde.dumps(value))
    assert type(back) is Old
    assert (back, back.__fields_set__, back._secret) == (value, {"n"}, 7)


LIBRARY: list[Any] = [
    Send("n", {"a": (1,)}),
    Command(graph=Command.PARENT, update={"a": {1}}, goto="n"),
    Command(resume={"id": (1, 2)}, goto=[Send("n", 1)]),
    Interrupt(value={"q": app.Color.RED}, id="i"),
    Overwrite([1, (2,)]),
    PregelTask("id", "n", ("a", 1, ("b",)), None, (Interrupt(1, "i"),)),
    StateSnapshot({"a": 1}, ("n",), {"configurable": {}}, None, None, None, (), ()),
    RemoveMessage(id="x"),
    ToolMessage("x", tool_call_id="1", artifact=app.Claim(1)),
    AIMessage("x", invalid_tool_calls=[{"name": "f", "args": "{", "id": "1", "error": "e"}]),
]
# What only newer versions of LangGraph have.
if hasattr(langgraph.types, "TimeoutPolicy"):
    LIBRARY.append(Send("n", HumanMessage("x"), timeout=langgraph.types.TimeoutPolicy(run_timeout=3.5)))
if "response_schema" in Interrupt.__dataclass_fields__:
    LIBRARY.append(Interrupt(value=1, id="i", response_schema={"type": "object"}))
if hasattr(serde_types, "_DeltaSnapshot"):
    LIBRARY.append(serde_types._DeltaSnapshot([HumanMessage("x"), (1,)]))


@pytest.mark.parametrize("value", LIBRARY, ids=lambda v: type(v).__name__)
def test_library_objects(value: Any) -> None:
    again(value)
    again({"k": [value]})
    closed = TypedSerializer(unknown_types="refuse", fidelity="strict", types=[app.Color, app.Claim])
    again(value, closed)


def test_store_items() -> None:
    moment = datetime(2024, 1, 1)
    item = Item(value={"a": (1,)}, key="k", namespace=("a", "b"), created_at=moment, updated_at=moment)
    back = SERDE.loads(SERDE.dumps(item))
    assert type(back) is Item
    assert back == item
    assert back.value == {"a": (1,)}
    found = SearchItem(("a",), "k", {}, moment, moment, score=0.5)
    assert SERDE.loads(SERDE.dumps(found)).score == 0.5


def test_message_extras_and_odd_messages() -> None:
    again(HumanMessage("x", surplus={"a": (1,)}))
    again(AIMessage.model_construct(content="x", type="other"))
    odd = HumanMessage("x")
    del odd.__dict__["name"]
    assert SERDE.loads(SERDE.dumps(odd)).__dict__ == odd.__dict__


def test_a_text_accessor_is_stored_as_text() -> None:
    text = AIMessage("hello").text
    assert type(SERDE.loads(SERDE.dumps(text))) is str
    with pytest.raises(ValueNotSerializableError):
        STRICT.dumps(text)


@pytest.mark.parametrize("dtype", ["?", "i1", "<u8", ">f4", "c16", "M8[ns]", "m8[D]", "U3", "S2", "f2"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays(dtype: str, order: Any) -> None:
    array = np.asarray(np.arange(12).reshape(3, 4), order=order).astype(dtype)
    back = again(array)
    assert back.flags.writeable
    assert back.flags.f_contiguous == array.flags.f_contiguous
    again([array[1, 2], array[:0], array[0, 0:1].reshape(())])
    again(array[::2, ::2])


@pytest.mark.parametrize(
    "array",
    [np.array([{}], dtype=object), np.zeros(1, dtype=[("a", "i4")]), np.ma.masked_array([1], [True])],
    ids=["object", "structured", "masked"],
)
def test_arrays_that_are_refused(array: Any) -> None:
    with pytest.raises(ValueNotSerializableError, match="numpy"):
        SERDE.dumps({"a": array})


def test_numpy_scalars_are_not_their_base() -> None:
    again(np.float64(1.5))
    again(np.str_("x"))
    again({np.float64(1.5): 1, np.int64(3): 2})


def test_pydantic_time_zones() -> None:
    moment = pydantic.TypeAdapter(datetime).validate_json('"2024-01-01T00:00:00+02:00"')
    assert again(moment).utcoffset() == moment.utcoffset()

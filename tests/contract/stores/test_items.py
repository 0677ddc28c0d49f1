"""What is put comes back: exactly, under its own name, and as nobody's alias."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import pytest
from langchain_core.messages import AIMessage

from stepvault.errors import ConfigurationError, IdentifierError, ValueNotSerializableError

NS = ("users", "ada")


class Mood(enum.Enum):
    CALM = "calm"


VALUES: dict[str, Any] = {
    "moment": dt.datetime(2026, 3, 29, 2, 30, 0, 123456, tzinfo=dt.timezone(dt.timedelta(hours=2)), fold=1),
    "date": dt.date(1, 1, 1),
    "span": dt.timedelta(days=-1, microseconds=1),
    "decimal": Decimal("0.10"),
    "fraction": Fraction(1, 3),
    "bytes": b"\x00\xff",
    "tuple": (1, (2, [3, (4,)])),
    "set": {(1, 2), (3, 4)},
    "frozen": frozenset({"a"}),
    "nul": "a\0b",
    "surrogate": "\ud800",
    "big": 2**200,
    "negative": -(2**64),
    "infinity": float("inf"),
    "uuid": uuid.UUID(int=7),
    "path": PurePosixPath("a/b"),
    "deque": deque([1, 2], maxlen=3),
    "ordered": OrderedDict(b=1, a=2),
    "enum": Mood.CALM,
    "message": AIMessage("hello", id="m1"),
    "nested": {"a": [{"b": None, "c": True}], 1: "one", (1, 2): "pair"},
    "empty": {},
}


async def test_values_come_back_exactly(store: Any) -> None:
    await store.aput(NS, "all", VALUES)
    item = await store.aget(NS, "all")
    assert item.value == VALUES
    for name, value in VALUES.items():
        assert type(item.value[name]) is type(value), name
    assert item.value["moment"].fold == 1
    assert item.value["deque"].maxlen == 3
    assert list(item.value["ordered"]) == ["b", "a"]
    (found,) = await store.asearch(NS)
    assert found.value == VALUES


async def test_an_item_knows_its_name_and_times(store: Any) -> None:
    before = dt.datetime.now(dt.timezone.utc) - dt.timedelta(seconds=60)
    await store.aput(NS, "k", {"v": 1})
    first = await store.aget(NS, "k")
    assert (first.namespace, first.key) == (NS, "k")
    assert first.created_at == first.updated_at > before
    assert first.created_at.utcoffset() == dt.timedelta(0)
    await store.aput(NS, "other", {"v": 0})
    await store.aput(NS, "k", {"v": 2})
    second = await store.aget(NS, "k")
    assert second.value == {"v": 2}
    assert second.created_at == first.created_at
    assert second.updated_at >= first.updated_at
    await store.adelete(NS, "k")
    assert await store.aget(NS, "k") is None
    await store.aput(NS, "k", {"v": 3})
    assert (await store.aget(NS, "k")).created_at >= second.updated_at


async def test_later_changes_to_a_value_do_not_reach_the_store(store: Any) -> None:
    value = {"list": [1]}
    await store.aput(NS, "k", value)
    value["list"].append(2)
    first = await store.aget(NS, "k")
    assert first.value == {"list": [1]}
    first.value["list"].append(3)
    assert (await store.aget(NS, "k")).value == {"list": [1]}


KEYS = ["", "a\0b", "%", "_", "*", "'; --", "a.b", "\ud800", "ключ", "x" * 1000, "\0\0"]


async def test_any_text_is_a_key(store: Any) -> None:
    for key in KEYS:
        await store.aput(NS, key, {"k": key})
    for key in KEYS:
        assert (await store.aget(NS, key)).value == {"k": key}
    assert {item.key for item in await store.asearch(NS, limit=100)} == set(KEYS)
    for left, key in enumerate(reversed(KEYS)):
        assert len(await store.asearch(NS, limit=100)) == len(KEYS) - left
        await store.adelete(NS, key)
        assert await store.aget(NS, key) is None


async def test_what_cannot_be_stored_is_refused_by_name(store: Any) -> None:
    with pytest.raises(ValueNotSerializableError):
        await store.aput(NS, "k", {"f": lambda: None})
    with pytest.raises(ConfigurationError, match="mapping"):
        await store.aput(NS, "k", ["no", "mapping"])
    with pytest.raises(IdentifierError, match="too long"):
        await store.aput(NS, "x" * 5000, {})
    with pytest.raises(IdentifierError, match="too long"):
        await store.aput(("x" * 5000,), "k", {})
    assert await store.asearch(()) == []


async def test_an_empty_value_and_deleting_nothing(store: Any) -> None:
    await store.aput(NS, "k", {})
    assert (await store.aget(NS, "k")).value == {}
    await store.adelete(NS, "unknown")
    assert await store.aget(("unknown",), "k") is None


async def test_large_values(store: Any) -> None:
    value = {"text": "αβγ" * 400_000, "numbers": list(range(50_000))}
    await store.aput(NS, "k", value)
    assert (await store.aget(NS, "k")).value == value


async def test_tenants_do_not_see_each_other(store: Any) -> None:
    blue, green = store.for_tenant("blue"), store.for_tenant("green")
    await blue.aput(NS, "k", {"of": "blue"})
    await green.aput(NS, "k", {"of": "green"})
    assert (await blue.aget(NS, "k")).value == {"of": "blue"}
    assert await store.aget(NS, "k") is None
    assert [item.value for item in await green.asearch(())] == [{"of": "green"}]
    assert await store.alist_namespaces() == []
    assert (await green.adelete_namespace(("users",))).items == 1
    assert (await blue.aget(NS, "k")).value == {"of": "blue"}


async def test_another_serializer_and_no_compression(stores: Any) -> None:
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    theirs = await stores.open(serde=JsonPlusSerializer(), compression=None)
    await theirs.aput(NS, "theirs", {"v": "x" * 1000})
    ours = await stores.open()
    await ours.aput(NS, "ours", {"v": "y" * 1000})
    assert (await ours.aget(NS, "theirs")).value == {"v": "x" * 1000}

"""Hypothesis strategies for everything that must round-trip."""

from __future__ import annotations

import re
from collections import ChainMap, Counter, OrderedDict, defaultdict, deque
from datetime import timedelta, timezone
from decimal import Decimal
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage
from langgraph.types import Command, Interrupt, Send

from tests.unit.serde import app_types as app

text = st.text(st.characters(codec=None, exclude_categories=()), max_size=12)
clean = st.text(st.characters(codec="utf-8"), max_size=12)
ints = st.integers() | st.integers(-(2**80), 2**80) | st.sampled_from([2**63 - 1, 2**63, 2**64, -(2**63) - 1])
floats = st.floats(allow_nan=True, allow_infinity=True) | st.just(-0.0)
zones = (
    st.just(timezone.utc)
    | st.sampled_from(["Europe/Berlin", "America/New_York", "Asia/Kathmandu"]).map(ZoneInfo)
    | st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
    | st.just(timezone(timedelta(hours=2), "here"))
)
datetimes = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.datetimes(),
    st.none() | zones,
    st.sampled_from([0, 1]),
)
atoms = st.none() | st.booleans() | ints | floats | text | st.binary(max_size=8)
values = (
    st.decimals()
    | st.fractions()
    | st.complex_numbers()
    | st.builds(range, st.integers(-9, 9), st.integers(-9, 99), st.integers(1, 9))
    | st.uuids()
    | datetimes
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.ip_addresses()
    | st.sampled_from([*app.Color, *app.Level, *app.Status, *app.Outer.Inner])
    | st.sampled_from([app.Access.READ | app.Access.WRITE, app.Access(0), app.Bits.A | app.Bits.B])
    | st.sampled_from([PurePosixPath("/a/b c"), PurePosixPath("."), PureWindowsPath("c:/x"), PurePosixPath("a\udcff")])
    | st.sampled_from([re.compile("a+", re.I), re.compile(b"x", re.S), re.compile("ä|\ud800", re.M | re.X)])
    | st.just(...)
)
hashable_atoms = (atoms | values).filter(lambda value: not (isinstance(value, Decimal) and value.is_snan()))
hashables = st.recursive(
    hashable_atoms,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=6,
)
unhashable_atoms = st.binary(max_size=4).map(bytearray) | st.builds(slice, ints, st.none(), atoms)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Everything that holds other values."""
    lists = st.lists(inner, max_size=4)
    dicts = st.dictionaries(clean, inner, max_size=4)
    return (
        lists
        | lists.map(tuple)
        | dicts
        | st.dictionaries(hashables, inner, max_size=3)
        | st.sets(hashables, max_size=3)
        | st.builds(deque, lists, st.none() | st.integers(4, 9))
        | dicts.map(OrderedDict)
        | dicts.map(lambda d: defaultdict(list, d))
        | st.lists(hashables, max_size=4).map(Counter)
        | st.builds(ChainMap, dicts, dicts)
        | objects(inner)
    )


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of application and library classes."""
    small = st.integers(-5, 5)
    return (
        st.builds(app.Point, small, inner)
        | st.builds(app.Pair, inner, inner)
        | st.builds(app.Claim, small, clean, st.lists(inner, max_size=2))
        | st.builds(app.Frozen, inner)
        | st.builds(app.Slotted, inner, inner)
        | st.builds(app.FrozenSlotted, value=inner)
        | st.builds(app.Derived, small)
        | st.builds(app.Attr, inner, small)
        | st.builds(app.FrozenAttr, inner)
        | st.builds(app.Model, n=small, any=inner)
        | st.builds(app.Extra, n=small, surplus=inner)
        | st.builds(lambda v: app.FrozenModel.model_construct(value=v), inner)
        | st.builds(lambda ns: app.Page[int](items=ns), st.lists(small, max_size=3))
        | messages(inner)
        | st.builds(lambda v: Document(page_content="text", metadata={"k": v}, id="d"), inner)
        | st.builds(Send, clean, inner)
        | st.builds(lambda v: Interrupt(value=v, id="i"), inner)
        | st.builds(lambda v, w: Command(update={"k": v}, resume=w, goto=[Send("n", v), "m"]), inner, inner)
    )


def messages(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Messages of every kind, with anything where anything may stand."""
    blocks: st.SearchStrategy[Any] = clean | st.lists(st.sampled_from(BLOCKS), max_size=3)
    extras = st.dictionaries(clean, inner, max_size=2)
    usage = st.none() | st.just(
        {"input_tokens": 3, "output_tokens": 1, "total_tokens": 4, "input_token_details": {"cache_read": 1}}
    )
    calls = st.lists(
        st.builds(lambda a: {"name": "f", "args": {"a": a}, "id": "c1", "type": "tool_call"}, inner),
        max_size=2,
    )
    return (
        st.builds(HumanMessage, blocks, additional_kwargs=extras, id=st.none() | clean)
        | st.builds(SystemMessage, blocks, response_metadata=extras)
        | st.builds(AIMessage, blocks, usage_metadata=usage, tool_calls=calls, response_metadata=extras)
        | st.builds(AIMessageChunk, blocks, usage_metadata=usage, chunk_position=st.sampled_from([None, "last"]))
        | st.builds(
            ToolMessage,
            blocks,
            tool_call_id=clean,
            artifact=inner,
            status=st.sampled_from(["success", "error"]),
        )
    )


BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "hi", "annotations": [{"type": "citation", "url": "u", "start_index": 0}]},
    {"type": "reasoning", "reasoning": "because", "extras": {"signature": "s"}},
    {"type": "image", "url": "https://example.org/a.png"},
    {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}},
    {"type": "file", "file_id": "f1"},
    {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"},
    {"type": "video", "url": "https://example.org/a.mp4"},
    {"type": "text-plain", "text": "t", "mime_type": "text/plain"},
    {"type": "tool_call", "name": "f", "args": {"a": 1}, "id": "c"},
    {"type": "invalid_tool_call", "name": "f", "args": "{", "id": "c", "error": "bad"},
    {"type": "server_tool_call", "name": "web", "args": {}, "id": "s"},
    {"type": "server_tool_result", "tool_call_id": "s", "status": "success", "output": [1]},
    {"type": "non_standard", "value": {"x": [None, 1.5]}},
]
anything = st.recursive(atoms | values | unhashable_atoms, containers, max_leaves=12)

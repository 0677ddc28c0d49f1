"""The stored bytes are a promise: these may be added to, never changed."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.types import Command, Send

from stepvault.types import TypedSerializer, TypeRegistry
from tests.unit.serde import app_types as app
from tests.unit.serde.comparing import assert_same

REGISTRY = TypeRegistry()
REGISTRY.register(app.Claim, name="claim", version=3)
REGISTRY.register(app.Color, name="color")
REGISTRY.register(app.Point, name="point")
SERDE = TypedSerializer(registry=REGISTRY)

VALUES: dict[str, Any] = {
    "plain": {"a": [1, -1, 2**64 - 1, 1.5, True, None, "ü", b"x"], "b": {}},
    "tuple": (1, ("a",)),
    "set": {3, 1, 2},
    "frozenset": frozenset(["a"]),
    "odd keys": {(1, 2): 1, None: 2},
    "surrogate": "\ud800",
    "big": [2**64, -(2**63) - 1],
    "bytearray": bytearray(b"x"),
    "containers": [deque([1], 2), defaultdict(list, a=[1]), OrderedDict(a=1), Counter("aa")],
    "numbers": [Decimal("-0.0"), Fraction(1, 3), 1 + 2j, range(1, 5, 2), slice(1, None), ...],
    "moments": [
        datetime(2024, 1, 2, 3, 4, 5, 6),
        datetime(2024, 10, 27, 2, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        date(2024, 1, 2),
        time(1, 2, tzinfo=timezone.utc),
        timedelta(-1, 2, 3),
        timezone(timedelta(hours=1), "x"),
    ],
    "names": [UUID(int=1), PurePosixPath("/a"), ip_address("::1"), re.compile("a", re.I)],
    "objects": [app.Claim(1, "x"), app.Color.RED, app.Point(1, 2)],
    "human": HumanMessage("hi", id="1"),
    "assistant": AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "c"}]),
    "tool": ToolMessage("x", tool_call_id="c", artifact=(1,)),
    "document": Document("x", metadata={"a": 1}),
    "send": Send("n", {"a": 1}),
    "command": Command(update={"a": 1}, goto="n"),
}
STORED: dict[str, str] = {
    "plain": "82a1619801ffcfffffffffffffffffcb3ff8000000000000c3c0a2c3bcc40178a16280",
    "tuple": "d7039201c7030391a161",
    "set": "d60493010203",
    "frozenset": "c7030591a161",
    "odd keys": "c70a0694c7030392010201c002",
    "surrogate": "c7060791c403eda080",
    "big": "92c70c0891c409000000000000000001c70c0891c409ffffffffffffff7fff",
    "bytearray": "d60991c40178",
    "containers": "94d60a92029101c70b0b92a46c69737481a1619101c7050c9181a16101c7050d9181a16102",
    "numbers": (
        "96c7061091a42d302e30c70311920103c7131292cb3ff0000000000000cb4000000000000000d61393010502d6149301c0c0d41590"
    ),
    "moments": (
        "96c70a1697cd07e8010203040506c71d1699cd07e80a1b02000000c70f1b91ad4575726f70652f4265726c696e01"
        "c7061793cd07e80102c70b189501020000d61a93000000d61993ff0203d71a9400cd0e1000a178"
    ),
    "names": ("94c7131d91c41000000000000000000000000000000001c7051e9200a22f61c7061f9203a33a3a31d62092a16122"),
    "objects": (
        "93c7260295a5636c61696d03a16483a66e756d62657201a474657874a178a56974656d7390ce9e6783a8c71f0295"
        "a5636f6c6f7201a16582a46e616d65a3524544a576616c7565a3726564c0c7120295a5706f696e7401a16e82a178"
        "01a17902c0"
    ),
    "human": "c71101980021a268698080a568756d616ec0a131",
    "assistant": (
        "c733019b0141a08080a26169c0c09184a46e616d65a166a46172677381a16101a26964a163a474797065a9746f6f6c5f63616c6c90c0"
    ),
    "tool": "c71d019b02ccc1a1788080a4746f6f6cc0c0a163d5039101a773756363657373",
    "document": "c71301960f06c081a16101a178a8446f63756d656e74",
    "send": ("c72a0295b46c616e6767726170682e74797065733a53656e6401a16c82a46e6f6465a16ea361726781a16101c0"),
    "command": (
        "c7430295b76c616e6767726170682e74797065733a436f6d6d616e6401a16484a56772617068c0a6757064617465"
        "81a16101a6726573756d65c0a4676f746fa16ece6d4f110a"
    ),
}


@pytest.mark.parametrize("name", STORED)
def test_what_was_stored_can_be_read(name: str) -> None:
    assert_same(SERDE.loads(bytes.fromhex(STORED[name])), VALUES[name])


@pytest.mark.parametrize("name", VALUES)
def test_the_bytes_are_the_same(name: str) -> None:
    assert SERDE.dumps(VALUES[name]).hex() == STORED[name]

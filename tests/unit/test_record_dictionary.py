"""The dictionary that bodies are compressed with: structure only, and worth its bytes."""

from __future__ import annotations

import re
from importlib.resources import files

from stepvault._core.codec import Codec, unpack
from stepvault._core.record import Record, encode_record

DICTIONARY = files("stepvault._core").joinpath("record.dict").read_bytes()


def test_it_holds_no_ids_hashes_or_times() -> None:
    ids = re.findall(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}", DICTIONARY)
    assert {found.strip(b"0-") for found in ids} <= {b""}
    times = re.findall(rb"\xcf\x00\x06(.{6})", DICTIONARY, re.DOTALL)
    assert set(times) <= {bytes(6)}


def test_a_record_of_a_chat_shrinks_to_less_than_half() -> None:
    record = Record(
        4,
        "2026-02-03T04:05:06.789012+00:00",
        versions={"__start__": "0000004a", "messages": "0000004c", "branch:to:writer": "0000004c"},
        forms={"messages": [1, 148, b"\x02\x94\x01"]},
        seen={"__input__": {}, "__start__": {"__start__": "0000004a"}, "writer": {"branch:to:writer": "0000004b"}},
        updated=["messages"],
        metadata=b"\x83\xa6source\xa4loop\xa4step\x49\xa7parents\x80",
    )
    body = encode_record(record)
    packed = Codec().pack(body, record=True)
    assert unpack(packed) == body
    assert 2 * len(packed) < len(body)

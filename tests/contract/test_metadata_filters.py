"""A filter is Python equality of top-level metadata values, on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault.errors import ConfigurationError
from tests.contract.building import config, id_of, ids, listed, put

QUOTES = ["'", '"', "'; DROP TABLE stepvault_thread; --", "`", "\\"]
HOSTILE = ["", " ", "%", "_", "*", "a.b", "$.a", "{a}", "a:b", "a/b", "\n", "\x00", "ü", "\ud800", *QUOTES]

VALUES: list[Any] = [
    *("a", "A", "a ", "a%", "1", "true", "null", *HOSTILE),
    *(0, 1, -1, 2**53, 2**53 + 1, 2**63, 2**64, -(2**70), 10**400),
    *(True, False, 0.5, -0.5, 1e300, 2.0**53, float("inf")),
    *(None, [1, 2], [], {}, {"a": 1}, {"a": {"b": [1]}}, ["a", None]),
]


async def test_a_filter_finds_what_is_equal_in_python(saver: Any) -> None:
    stored = [id_of(await put(saver, metadata={"key": value})) for value in VALUES]

    for wanted in VALUES:
        expected = [id for id, value in zip(stored, VALUES, strict=True) if value == wanted]
        assert await ids(saver, config(), filter={"key": wanted}) == expected[::-1], wanted


@pytest.mark.parametrize(("stored", "wanted"), [(1, True), (True, 1.0), (0.0, False), (2**53, 2.0**53), (-0.0, 0)])
async def test_numbers_that_are_equal_match_whatever_their_type(saver: Any, stored: Any, wanted: Any) -> None:
    await put(saver, metadata={"key": stored})

    assert len(await ids(saver, config(), filter={"key": wanted})) == 1
    assert await ids(saver, config(), filter={"key": str(wanted)}) == []


@pytest.mark.parametrize("key", ["source", "step", "run_id", "other"])
@pytest.mark.parametrize(
    ("stored", "near"),
    [("1", 1), (1, "1"), ("loop", "LOOP"), (None, "None"), (2**62, 2**62 + 1), ([1], [True, 1]), ("x" * 100, "x" * 99)],
)
async def test_keys_with_a_column_of_their_own_filter_like_any_other(
    saver: Any, key: str, stored: Any, near: Any
) -> None:
    await put(saver, metadata={key: stored})

    assert len(await ids(saver, config(), filter={key: stored})) == 1
    assert await ids(saver, config(), filter={key: near}) == []


async def test_every_key_must_match(saver: Any) -> None:
    both = id_of(await put(saver, metadata={"a": 1, "b": [2], "source": "input"}))
    await put(saver, metadata={"a": 1, "b": [3], "source": "input"})
    await put(saver, metadata={"a": 1, "b": [2], "source": "loop"})

    assert await ids(saver, config(), filter={"a": 1, "b": [2], "source": "input"}) == [both]
    assert len(await ids(saver, config(), filter={})) == 3
    assert len(await ids(saver, None, filter={"a": 1})) == 3


async def test_an_unknown_key_matches_nothing(saver: Any) -> None:
    await put(saver, metadata={"known": 1})

    for unknown in ("other", "know", "known.", "KNOWN", *HOSTILE):
        assert await ids(saver, config(), filter={unknown: 1}) == []
        assert await ids(saver, None, filter={"known": 1, unknown: 1}) == []


async def test_a_wanted_none_matches_a_missing_key_as_in_memory(saver: Any) -> None:
    await put(saver, metadata={"key": None})
    await put(saver, metadata={"other": 1})

    assert len(await ids(saver, config(), filter={"key": None})) == 2
    assert len(await ids(saver, config(), filter={"source": None})) == 0


async def test_hostile_keys_are_data(saver: Any) -> None:
    for key in HOSTILE:
        await put(saver, metadata={key: "here"})

    for key in HOSTILE:
        assert len(await ids(saver, config(), filter={key: "here"})) == 1, key
        assert await ids(saver, config(), filter={key: "there"}) == []


@pytest.mark.parametrize("key", ["api_key", "token", "PASSWORD", "Authorization"])
async def test_a_key_that_is_never_stored_is_refused(saver: Any, key: str) -> None:
    await put(saver)
    with pytest.raises(ConfigurationError, match="credential"):
        await ids(saver, config(), filter={key: "x"})


@pytest.mark.parametrize("filter", [{1: 2}, {None: 1}, {b"a": 1}, ["a"], "a", {("a",): 1}])
async def test_a_filter_that_is_no_mapping_of_text_is_refused(saver: Any, filter: Any) -> None:
    await put(saver)
    with pytest.raises(ConfigurationError, match="filter"):
        await ids(saver, config(), filter=filter)


async def test_a_replaced_checkpoint_is_found_by_its_new_metadata_only(saver: Any) -> None:
    stored = await put(saver, metadata={"a": 1, "b": 2})
    await put(saver, id=id_of(stored), metadata={"a": 3})

    assert await ids(saver, config(), filter={"a": 1}) == []
    assert await ids(saver, config(), filter={"b": 2}) == []
    assert await ids(saver, config(), filter={"a": 3}) == [id_of(stored)]


async def test_a_replacement_without_metadata_is_found_by_none(saver: Any) -> None:
    stored = await put(saver, metadata={"a": 1})
    await saver.aput(config(), {**(await saver.aget_tuple(stored)).checkpoint}, {}, {})

    assert await ids(saver, config(), filter={"a": 1}) == []
    assert await ids(saver, config()) == [id_of(stored)]


@pytest.mark.parametrize("key", [1, 1.5, True, None, b"key"], ids=repr)
async def test_keys_that_are_no_text_are_kept_and_not_filtered_by(saver: Any, key: Any) -> None:
    at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", key: 3}}
    await put(saver, at=at, metadata={key: 1, "a": 2})

    (found,) = await listed(saver, config(), filter={"a": 2})
    assert found.metadata[key] == 1  # type: ignore[literal-required]

"""Ids are data of any content; what cannot be stored is refused by name, and then nothing of it is stored."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from stepvault.errors import IdentifierError, StepvaultError, ValueNotSerializableError
from tests.contract.building import checkpoint, config, id_of, ids, new_id, put, whole

HOSTILE = [
    *("", " ", "\n", "\t\r\n", "\x00", "a\x00b", "\x7f\x01\x1f", "\ud800", "\udfff x", "é", "e\u0301", "🧨"),
    *("'", '"', "''", '\\"', "`", "\\", "\\x00", "%", "%s", "%(a)s", "_", "*", "?", "[a-z]", "^", "$1", ":1", "?1"),
    *(":", "::", "/", "../..", "{", "}", "{}", "{a}", "{{a}}", "|", "a|b:c", "~", "#", ";", ",", "--", "null", "None"),
    *("'; DROP TABLE stepvault_thread; --", "redis.call('FLUSHALL')", "$(id)", "<a>", "true", "0", "-1", "1e3"),
]


def sized(text: str, bytes_: int) -> str:
    return (text * bytes_)[:bytes_]


async def test_hostile_thread_ids_and_namespaces(saver: Any) -> None:
    id = new_id()
    for text in HOSTILE:
        stored = await put(saver, {"text": text}, at=config(text, text), id=id)
        await saver.aput_writes(stored, [("text", text)], "task")
        assert stored == config(text, text, id)

    for text in HOSTILE:
        (found,) = await whole(saver, text)
        assert found.config == config(text, text, id)
        assert found.checkpoint["channel_values"] == {"text": text}
        assert found.pending_writes == [("task", "text", text)]
    assert {thread.thread_id for thread in await saver.athreads(limit=1000)} == set(HOSTILE)
    for number, text in enumerate(HOSTILE, 1):
        await saver.adelete_thread(text)
        assert len(await ids(saver, None)) == len(HOSTILE) - number, text


async def test_hostile_checkpoint_ids_tasks_channels_and_paths(saver: Any) -> None:
    texts = [text for text in HOSTILE if text]
    for text in texts:
        await put(saver, {text: text, "shared": ["x" * 500]}, id=text)
        at = config("t", "", text)
        for task in texts[::9]:
            await saver.aput_writes(at, [(task, text), ("__error__", task)], task, task)

    for text in texts:
        found = await saver.aget_tuple(config("t", "", text))
        assert found.checkpoint["id"] == text
        assert found.checkpoint["channel_values"] == {text: text, "shared": ["x" * 500]}
        expected = [write for task in sorted(texts[::9]) for write in ((task, "__error__", task), (task, task, text))]
        assert found.pending_writes == expected
    assert sorted(await ids(saver, config())) == sorted(texts)


async def test_hostile_node_names_and_fields(saver: Any) -> None:
    seen = {text: {text: "00000001", "a": "00000002"} for text in HOSTILE}
    versions = dict.fromkeys(HOSTILE, "00000001")
    updated = list(HOSTILE)
    stored = await put(saver, channel_versions=versions, versions_seen=seen, updated_channels=updated)

    found = (await saver.aget_tuple(stored)).checkpoint

    assert found["versions_seen"] == seen
    assert found["channel_versions"] == versions
    assert found["updated_channels"] == updated


async def test_hostile_runs(saver: Any) -> None:
    for text in HOSTILE:
        await put(saver, at=config(f"thread {HOSTILE.index(text)}"), metadata={"run_id": text})

    for number, text in enumerate(HOSTILE, 1):
        assert len(await ids(saver, None, filter={"run_id": text})) == 1, text
        await saver.adelete_for_runs([text])
        if not text:  # names no run
            await saver.adelete_thread("thread 0")
        assert len(await ids(saver, None)) == len(HOSTILE) - number, text


BAD_THREADS = [None, b"t", bytearray(b"t"), ["t"], ("t",), {"t": 1}, {"t"}]


@pytest.mark.parametrize("bad", BAD_THREADS, ids=lambda bad: type(bad).__name__)
async def test_threads_that_are_no_text_are_refused_on_every_verb(saver: Any, bad: Any) -> None:
    name = type(bad).__name__
    for verb in (
        lambda: saver.aget_tuple(config(bad)),
        lambda: ids(saver, config(bad)),
        lambda: put(saver, at=config(bad)),
        lambda: saver.aput_writes(config(bad, "", "1"), [("a", 1)], "task"),
        lambda: saver.adelete_thread(bad),
        lambda: saver.aprune([bad]),
        lambda: saver.aprune([bad], strategy="delete"),
        lambda: saver.acopy_thread(bad, "copy"),
        lambda: saver.acopy_thread("t", bad),
        lambda: saver.aget_delta_channel_history(config=config(bad), channels=["a"]),
    ):
        with pytest.raises(IdentifierError, match=f"thread_id must be a str, not {name}"):
            await verb()


@pytest.mark.parametrize("bad", [1, b"1", ["1"], {"a"}, object()], ids=lambda bad: type(bad).__name__)
async def test_other_ids_that_are_no_text_are_refused(saver: Any, bad: Any) -> None:
    stored = await put(saver, {"a": 1})
    before = await whole(saver)
    for verb in (
        lambda: saver.aget_tuple(config("t", "", bad)),
        lambda: saver.aget_tuple(config("t", bad)),
        lambda: ids(saver, config("t", "", bad)),
        lambda: ids(saver, config("t", bad)),
        lambda: ids(saver, config(), before=config("t", "", bad)),
        lambda: put(saver, at=config("t", bad)),
        lambda: put(saver, at=config("t", "", bad)),
        lambda: saver.aput(config(), {**checkpoint({}), "id": bad}, {}, {}),
        lambda: saver.aput_writes(stored, [("a", 1)], bad),
        lambda: saver.aput_writes(config("t", "", bad), [("a", 1)], "task"),
        lambda: saver.aput_writes(config("t", bad, "1"), [("a", 1)], "task"),
    ):
        with pytest.raises(IdentifierError, match="must be a str"):
            await verb()
    assert await whole(saver) == before


@pytest.mark.parametrize("bad", [1, None, b"a", ("a",)], ids=lambda bad: type(bad).__name__)
async def test_channels_that_are_no_text_are_refused(saver: Any, bad: Any) -> None:
    stored = await put(saver, {"a": 1})
    before = await whole(saver)
    for verb in (
        lambda: put(saver, {bad: 1}),
        lambda: put(saver, {"a": 1}, channel_versions={bad: "1", "a": "1"}),
        lambda: put(saver, {"a": 1}, versions_seen={"node": {bad: "1"}}),
        lambda: put(saver, {"a": 1}, versions_seen={bad: {"a": "1"}}),
        lambda: put(saver, {"a": 1}, updated_channels=[bad]),
        lambda: saver.aput_writes(stored, [("a", 1), (bad, 1)], "task"),
    ):
        with pytest.raises(IdentifierError, match="must be a str"):
            await verb()
    assert await whole(saver) == before


async def test_ids_of_ten_megabytes_are_refused(saver: Any) -> None:
    await put(saver, {"a": 1})
    before = await whole(saver)
    long = "ä" * (5 << 20)
    for verb in (
        lambda: saver.aget_tuple(config(long)),
        lambda: put(saver, at=config(long)),
        lambda: put(saver, at=config("t", long)),
        lambda: put(saver, id=long),
        lambda: put(saver, at=config("t", "", long)),
        lambda: saver.aput_writes(config("t", "", "1"), [("a", 1)], long),
        lambda: saver.adelete_thread(long),
        lambda: saver.acopy_thread("t", long),
        lambda: ids(saver, config(long)),
        lambda: ids(saver, config(), before=config("t", "", long)),
    ):
        with pytest.raises(IdentifierError, match="10,485,760 bytes long") as refused:
            await verb()
        assert len(str(refused.value)) < 300
    assert await whole(saver) == before


async def test_the_longest_ids_work_at_once(saver: Any) -> None:
    thread, ns, id, task = (sized("äx", n // 3 * 2) for n in (2000, 2000, 255, 255))
    stored = await put(saver, {"a": 1}, at=config(thread, ns), id=id, metadata={"run_id": "r" * 255})
    await saver.aput_writes(stored, [("a", 2)], task)
    await put(saver, at=stored)

    (first,) = [entry for entry in await whole(saver, thread) if entry.parent_config is None]
    assert first.config == config(thread, ns, id)
    assert first.pending_writes == [(task, "a", 2)]
    await saver.acopy_thread(thread, sized("y", 2000))
    assert len(await whole(saver, sized("y", 2000))) == 2


async def test_names_values_and_filters_of_ten_megabytes_work(saver: Any) -> None:
    long = sized("long text ", 10 << 20)
    stored = await put(saver, {long: long}, metadata={"key": long, long: 1})
    await saver.aput_writes(stored, [(long, long)], "task")

    (found,) = await whole(saver)
    assert found.checkpoint["channel_values"] == {long: long}
    assert found.pending_writes == [("task", long, long)]
    assert len(await ids(saver, config(), filter={"key": long, long: 1})) == 1
    assert await ids(saver, config(), filter={"key": long + "!"}) == []
    assert await ids(saver, config(), filter={long + "!": 1}) == []


async def test_a_run_id_of_any_length_is_found_by_that_id_only(saver: Any) -> None:
    long = sized("r", 5000)
    await put(saver, metadata={"run_id": long})

    assert await ids(saver, None, filter={"run_id": long[:-1]}) == []
    assert len(await ids(saver, None, filter={"run_id": long})) == 1
    await saver.adelete_for_runs([long[:-1], long[:255]])
    assert len(await whole(saver)) == 1
    await saver.adelete_for_runs([long])
    assert await whole(saver) == []


def endless() -> Any:
    value: list[Any] = [1]
    value.append({"again": value})
    return value


UNSTORABLE: dict[str, Callable[[], Any]] = {
    "object": object,
    "function": lambda: lambda: 1,
    "lock": threading.Lock,
    "generator": lambda: (i for i in ()),
    "cycle": endless,
    "module": lambda: threading,
    "inside": lambda: {"list": [1, {"deep": (1, object())}]},
    "key": lambda: {object(): 1},
    "late": lambda: [*range(5000), object()],
}


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_what_cannot_be_stored_names_its_channel_and_stores_nothing(saver: Any, kind: str) -> None:
    good = ["good" * 300, *range(300)]
    stored = await put(saver, {"a": ["before" * 100]})
    await saver.aput_writes(stored, [("a", 1)], "task")
    before = await whole(saver)

    for verb in (
        lambda: put(saver, {"first": good, "the bad one": UNSTORABLE[kind](), "last": good}, at=stored),
        lambda: put(saver, {"first": good, "the bad one": UNSTORABLE[kind]()}, id=id_of(stored)),
        lambda: put(saver, {"first": good, "the bad one": UNSTORABLE[kind]()}, at=config("new")),
        lambda: saver.aput_writes(stored, [("a", good), ("the bad one", UNSTORABLE[kind]())], "task"),
        lambda: saver.aput_writes(stored, [("a", good), ("the bad one", UNSTORABLE[kind]())], "new task"),
        lambda: saver.aput_writes(config("new", "", "1"), [("the bad one", UNSTORABLE[kind]())], "task"),
    ):
        with pytest.raises(ValueNotSerializableError, match="the bad one"):
            await verb()

    assert await whole(saver) == before
    assert [thread.thread_id for thread in await saver.athreads()] == ["t"]
    child = await put(saver, {"a": ["before" * 100, *good]}, at=stored)
    assert (await saver.aget_tuple(child)).checkpoint["channel_values"] == {"a": ["before" * 100, *good]}


@pytest.mark.parametrize("kind", UNSTORABLE)
async def test_metadata_that_cannot_be_stored_is_named_too(saver: Any, kind: str) -> None:
    await put(saver, {"a": 1})
    before = await whole(saver)

    with pytest.raises(ValueNotSerializableError, match="metadata"):
        await put(saver, {"a": 2}, metadata={"bad": UNSTORABLE[kind]()})

    assert await whole(saver) == before


async def test_errors_never_show_a_value(saver: Any) -> None:
    secret = "the secret of the user"
    for values in ({"a": [secret, object()]}, {"a": {"key": secret, "other": object()}}):
        with pytest.raises(StepvaultError) as refused:
            await put(saver, values)
        assert secret not in str(refused.value)

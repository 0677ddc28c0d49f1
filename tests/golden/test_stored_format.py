"""What was stored stays readable; see `making.py` for how the files here came to be."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepvault._core.codec import unpack
from stepvault._core.record import decode_record, decode_writes
from stepvault._core.values import DELTA, FOREIGN, INLINE, NESTED
from tests.contract.building import config
from tests.golden.making import HERE, OPTIONS, RECORDS, WRITES, database, expected, opened, records, story

DATABASES = sorted(HERE.glob("sqlite_*.sql"))
BODIES = sorted(HERE.glob("records_*.json"))


def check(saver: Any) -> None:
    """The whole story is there, exactly."""
    for (thread, ns, id), (made, metadata, parent, writes) in expected().items():
        for entry in (saver.get_tuple(config(thread, ns, id)), *saver.list(config(thread, ns, id))):
            assert entry.checkpoint == made
            assert entry.metadata == metadata
            assert (entry.parent_config or {"configurable": {"checkpoint_id": None}})["configurable"][
                "checkpoint_id"
            ] == parent
            assert entry.pending_writes == writes
    assert len(list(saver.list(None))) == len(expected())


@pytest.mark.parametrize("path", DATABASES, ids=lambda path: path.stem)
def test_a_frozen_database_is_read_and_goes_on(path: Path, tmp_path: Path) -> None:
    kind = path.stem.split("_")[1]
    with opened(path.read_text(encoding="utf-8"), tmp_path / "frozen.db", kind) as saver:
        check(saver)
        goes_on(saver)


@pytest.mark.parametrize("kind", OPTIONS)
def test_a_database_of_today_is_read_and_goes_on(kind: str, tmp_path: Path) -> None:
    with opened(database(kind), tmp_path / "today.db", kind) as saver:
        check(saver)
        goes_on(saver)


def goes_on(saver: Any) -> None:
    """Nothing that is stored later disturbs what was stored before; what is removed leaves the rest whole."""
    *_, last = story()
    head = saver.get_tuple(config("chat"))
    longer = [*head.checkpoint["channel_values"]["messages"], "one more"]
    made = {**head.checkpoint, "id": "f", "channel_values": {"messages": longer}}
    stored = saver.put(head.config, made, {}, made["channel_versions"])
    assert saver.get_tuple(stored).checkpoint["channel_values"] == {"messages": longer}
    saver.copy_thread("values", "copy")
    saver.prune(["values", "chat"])
    saver.delete_thread("values")
    assert saver.get_tuple(config("copy", "", last.id)).checkpoint["channel_values"] == last.values
    assert saver.get_tuple(stored) is None or saver.get_tuple(stored).checkpoint["channel_values"] == {
        "messages": longer
    }


@pytest.mark.parametrize("path", BODIES, ids=lambda path: path.stem)
def test_frozen_bodies_are_read_and_written(path: Path) -> None:
    frozen = json.loads(path.read_text(encoding="utf-8"))
    read_back(frozen)
    if path == BODIES[-1]:
        assert records() == frozen


def test_bodies_of_today_are_read() -> None:
    read_back(records())


def read_back(bodies: dict[str, str]) -> None:
    for name, record in RECORDS.items():
        found = decode_record(bytes.fromhex(bodies[f"record {name}"]))
        assert repr(found) == repr(record)
    for name, (path, writes) in WRITES.items():
        assert decode_writes(bytes.fromhex(bodies[f"writes {name}"]))[:2] == (path, writes)


def forms(form: Any) -> Iterator[Any]:
    """The kinds of a form and of the forms in it."""
    if type(form) is not list:
        yield type(form).__name__
        return
    yield form[0]
    if form[0] == NESTED:
        for part in form[1].values():
            yield from forms(part)
    elif form[0] == DELTA:
        yield from forms(form[1])


def test_the_story_has_every_form_of_a_value(tmp_path: Path) -> None:
    found = set()
    for kind in OPTIONS:
        with opened(database(kind), tmp_path / f"{kind}.db", kind) as saver:
            bodies = saver._driver.connection().execute("SELECT body FROM stepvault_checkpoint").fetchall()
        for (body,) in bodies:
            found |= {code for form in decode_record(unpack(body)).forms.values() for code in forms(form)}
    plain = set(range(INLINE, DELTA + 1))
    split = {code | 16 for code in plain - {INLINE, NESTED, FOREIGN, DELTA}}
    assert found == plain | split | {"NoneType", "bytes"}

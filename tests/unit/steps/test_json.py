"""Runs as JSON: nothing is lost, and whatever is not such a text is refused with the place."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepvault._steps.payloads import from_json, to_json
from stepvault.errors import StepsLoadError
from stepvault.steps import Run
from tests.unit.steps.making import runs, sample, values

ROOT = Path(__file__).parents[3]


@given(values)
def test_values_come_back_as_they_were(value: Any) -> None:
    back = from_json(json.loads(json.dumps(to_json(value))))

    assert back == value
    assert repr(back) == repr(value)


@settings(deadline=None, max_examples=60)
@given(runs)
def test_runs_come_back_as_they_were(run: Run) -> None:
    back = Run.load_json(run.dump_json())

    assert back == run
    assert back.to_messages() == run.to_messages()
    assert [repr(step) for step in back.steps] == [repr(step) for step in run.steps]


def test_each_kind_is_tagged_and_the_format_has_a_version() -> None:
    dumped = json.loads(sample().dump_json())

    assert (dumped["format"], dumped["version"]) == ("stepvault.run", 1)
    assert [step["kind"] for step in dumped["steps"]] == ["task", "action", "interrupt", "resume", "final"]
    assert sample().to_messages()[0].content == "be kind"


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("version",), 2, "format version other than 1"),
        (("format",), "other", r"\$\.format"),
        (("steps", 2, "kind"), "thought", r"\$\.steps\[2\]"),
        (("steps", 0, "messages", 0), {"type": "human"}, r"\$\.steps\[0\]\.task\.messages\[0\].*data"),
        (("steps", 1, "message", "type"), "system", r"\$\.steps\[1\]\.action\.message.*not an ai message"),
        (("steps", 1, "message", "data"), {"tool_calls": 7}, r"\$\.steps\[1\]\.action\.message.*no ai message"),
        (("steps", 2, "value"), {"$value": "%%"}, r"\$\.steps\[2\]\.interrupt\.value.*base64"),
        (("steps", 2, "value"), {"$value": "AAAA"}, r"\$\.steps\[2\]\.interrupt\.value"),
        (("steps", 2, "value"), {"$dict": [[[], 1]]}, r"\$\.steps\[2\]\.interrupt\.value"),
        (("steps", 3, "at"), "yesterday", r"\$\.steps\[3\]\.resume\.at"),
        (("steps", 4, "more"), 1, r"\$\.steps\[4\]\.final\.more"),
        (("order",), [99], "order names a message"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(path: tuple[Any, ...], value: Any, place: str) -> None:
    dumped = at = json.loads(sample().dump_json())
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = value

    with pytest.raises(StepsLoadError, match=place):
        Run.load_json(json.dumps(dumped))


@pytest.mark.parametrize("text", ["", "null", "[]", "{", b"\xff", '{"format": "stepvault.run"}', "[" * 100_000])
def test_other_texts_are_refused(text: Any) -> None:
    with pytest.raises(StepsLoadError):
        Run.load_json(text)


def test_deep_values_come_back_or_are_refused() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    run = sample().model_copy(update={"saved": deep})

    assert Run.load_json(run.dump_json()).saved == deep


def test_damaged_dumps_raise_nothing_else() -> None:
    """Bytes changed, taken out, doubled; whatever loads is a run."""
    chance = random.Random(7)
    text = sample().dump_json().encode()
    for _ in range(3000):
        damaged = bytearray(text)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(damaged))
            match chance.randrange(3):
                case 0:
                    damaged[at] = chance.choice(b'{}[]",:0123456789nulltrue\x00\xff$')
                case 1:
                    del damaged[at : at + chance.randint(1, 20)]
                case _:
                    damaged[at:at] = damaged[at : at + chance.randint(1, 20)]
        with contextlib.suppress(StepsLoadError):
            assert isinstance(Run.load_json(bytes(damaged)), Run)


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_any_part_replaced_by_anything_raises_nothing_else(data: st.DataObject) -> None:
    dumped = json.loads(sample().dump_json())
    at: Any = dumped
    while True:
        place = data.draw(st.sampled_from(list(at) if isinstance(at, dict) else range(len(at))))
        if not isinstance(at[place], (dict, list)) or not at[place] or data.draw(st.booleans()):
            break
        at = at[place]
    at[place] = data.draw(
        st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just({"$value": "xw=="}), st.just([]))
    )
    with contextlib.suppress(StepsLoadError):
        Run.load_json(json.dumps(dumped))


@pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:2])) < (2, 12), reason="older pydantic says the same in other words"
)
def test_the_published_schema_is_the_schema() -> None:
    """Renew it with `python -m tests.unit.steps.test_json`."""
    published = json.loads((ROOT / "docs" / "steps.schema.json").read_text(encoding="utf-8"))

    assert published == Run.json_schema()


if __name__ == "__main__":
    text = json.dumps(Run.json_schema(), indent=2, sort_keys=True)
    (ROOT / "docs" / "steps.schema.json").write_text(text + "\n", encoding="utf-8")

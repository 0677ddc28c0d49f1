"""Classes whose own code does not take, or changes, what it once made: still the same value, or refused by name."""

from __future__ import annotations

import collections
import pathlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Dict, Generic, List, Literal, NamedTuple, Tuple, TypeVar, Union  # noqa: UP035 - named below

import attrs
import numpy
import pydantic
import pytest

from stepvault.errors import PayloadError, StateInvalidError, ValueNotSerializableError
from stepvault.types import TypedSerializer, register_type
from tests.unit.serde.comparing import assert_same

T = TypeVar("T")
serde = TypedSerializer()


@dataclass
class Parsed:
    when: Any

    def __post_init__(self) -> None:
        self.when = datetime.fromisoformat(self.when)


@dataclass(frozen=True, slots=True)
class SplitOnce:
    parts: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", self.parts.split(","))


@dataclass
class Growing:
    tags: list[Any]
    options: dict[str, list[int]] = field(default_factory=lambda: {"a": []})

    def __post_init__(self) -> None:
        self.tags.append("seen")
        self.options["a"].append(1)
        self.first = self.options["a"]


@dataclass
class Unlucky:
    host: str

    def __post_init__(self) -> None:
        if self.host == "down":
            raise OSError("no network")


@attrs.define
class Converted:
    parts: Any = attrs.field(converter=lambda text: text.split(","))


@attrs.frozen
class Checked:
    n: Any = attrs.field(default=1, validator=attrs.validators.instance_of(int))


class PostParsed(pydantic.BaseModel):
    parts: Any
    _runs: int = pydantic.PrivateAttr(default=3)

    def model_post_init(self, _context: Any) -> None:
        self.parts = self.parts.split(",")


class PostGrowing(pydantic.BaseModel, extra="allow"):
    items: list[int]

    def model_post_init(self, _context: Any) -> None:
        self.items.append(1)


class Named(pydantic.BaseModel):
    cls: int = 1
    self_: int = 2
    _kept: int = 3


class Point(NamedTuple):
    x: int
    y: int


class Diagonal(Point):
    def __new__(cls, both: int) -> Diagonal:
        return super().__new__(cls, both, both)


@pydantic.dataclasses.dataclass(config=pydantic.ConfigDict(extra="allow"))
class Open:
    n: int


@dataclass
class Box(Generic[T]):
    x: T


class Shouted(str):
    def __new__(cls, text: str) -> Shouted:
        return super().__new__(cls, text + "!")


class Counted(dict[str, int]):
    def __init__(self, *names: str) -> None:
        super().__init__(dict.fromkeys(names, 1))


class Clock:
    def __init__(self, start: str) -> None:
        self.start: Any = datetime.fromisoformat(start)


class Page(pydantic.BaseModel, Generic[T]):
    item: T


class Plain:
    pass


@pytest.mark.parametrize(
    "value",
    [
        Parsed("2020-01-01"),
        SplitOnce("a,b"),
        Growing([]),
        Converted("a,b"),
        PostParsed(parts="a,b"),
        PostGrowing(items=[], more=2),  # type: ignore[call-arg]
        Named(cls=5),
        Diagonal(3),
        Open(n=1, other=[2]),  # type: ignore[call-arg]
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_class_need_not_take_its_own_output(value: Any) -> None:
    again = serde.loads(serde.dumps(value))
    assert_same(again, value)
    assert_same(serde.loads(serde.dumps(again)), value)


def test_what_a_class_would_refuse_comes_back() -> None:
    changed = Checked()
    object.__setattr__(changed, "n", "no int any more")
    assert serde.loads(serde.dumps(changed)).n == "no int any more"


def test_what_a_constructor_derives_from_its_fields_is_made_of_them() -> None:
    again = serde.loads(serde.dumps(Growing([])))
    assert again.first is again.options["a"]
    assert again.options == {"a": [1]}


def test_undeclared_fields_of_an_open_dataclass_are_kept() -> None:
    assert vars(serde.loads(serde.dumps(Open(n=1, other=[2])))) == {"n": 1, "other": [2]}  # type: ignore[call-arg]


def test_a_failure_that_is_no_matter_of_data_is_not_hidden() -> None:
    made = Unlucky("up")
    made.host = "down"
    with pytest.raises(StateInvalidError, match="Unlucky"):
        serde.loads(serde.dumps(made))


def test_registered_builtins_and_objects_too() -> None:
    for cls in (Shouted, Counted, Clock):
        register_type(cls)
    shouted, counted, clock = serde.loads(serde.dumps([Shouted("a"), Counted("a", "b"), Clock("2020-01-01")]))
    assert (type(shouted), str(shouted)) == (Shouted, "a!")
    assert (type(counted), dict(counted)) == (Counted, {"a": 1, "b": 1})
    assert clock.start == datetime(2020, 1, 1)


def test_a_generic_dataclass_is_stored_under_strict_fidelity() -> None:
    strict = TypedSerializer(fidelity="strict")
    assert strict.loads(strict.dumps(Box[int](1))) == Box(1)


@dataclass
class AlsoDict(dict[str, int]):
    n: int = 0


@dataclass
class AlsoText(str):
    n: int = 0


def test_a_dataclass_that_is_also_a_container_is_refused_when_items_would_be_lost() -> None:
    filled = AlsoDict(1)
    assert serde.loads(serde.dumps(filled)).n == 1
    filled["a"] = 1
    for value, base in ((filled, "dict"), (AlsoText(1), "str")):
        with pytest.raises(ValueNotSerializableError, match=f"it is a {base} besides its fields"):
            serde.dumps([value])


ARGUMENTS = [
    (datetime, datetime(2020, 1, 1)),
    (date, date(2020, 1, 1)),
    (Decimal, Decimal(1)),
    (uuid.UUID, uuid.UUID(int=1)),
    (pathlib.Path, pathlib.Path("a")),
    (re.Pattern, re.compile("a")),
    (collections.deque[int], collections.deque([1])),
    (object, 1),
    (Literal["a", 1], 1),
    (dict[str, list[Literal["a"]]], {"a": ["a"]}),
    (Dict[str, Any], {"a": 1}),  # noqa: UP006 - another class than the one above
    (List[int], [1]),  # noqa: UP006
    (Tuple[int, ...], (1,)),  # noqa: UP006
    (Mapping[str, int], {"a": 1}),
    (Union[int, str], 1),  # noqa: UP007
    (int | str, 1),
]


@pytest.mark.parametrize(("argument", "item"), ARGUMENTS, ids=lambda one: str(one)[:24])
def test_type_arguments_of_generic_models(argument: Any, item: Any) -> None:
    value = Page[argument](item=item)
    assert_same(serde.loads(serde.dumps([value])), [value])


def test_a_type_argument_that_could_not_be_found_again_is_refused() -> None:
    class Loose(pydantic.BaseModel, Generic[T], arbitrary_types_allowed=True):
        item: T

    register_type(Loose, name="loose")
    with pytest.raises(ValueNotSerializableError, match=r"Plain, its type argument, is not plain data"):
        serde.dumps(Loose[Plain](item=Plain()))


def test_an_empty_numpy_text_is_a_scalar_too() -> None:
    for empty in (numpy.str_(""), numpy.bytes_(b"")):
        again = serde.loads(serde.dumps(empty))
        assert (type(again), again) == (type(empty), empty)


@pytest.mark.parametrize("wrap", [lambda v: (v,), Box, lambda v: frozenset([v]), lambda v: {(1,): v}])
def test_what_is_just_shallow_enough_to_be_written_can_be_read(wrap: Any) -> None:
    value: Any = 0
    written = 0
    for _ in range(210):
        value = wrap(value)
        try:
            data = serde.dumps(value)
        except ValueNotSerializableError:
            break
        serde.loads(data)
        written += 1
    assert 195 <= written <= 205


def test_a_damaged_end_that_is_an_array_is_a_payload_error() -> None:
    with pytest.raises(PayloadError):
        serde.loads(b"\xc0" + serde.dumps(numpy.arange(4)))


def test_an_array_without_bytes_makes_no_room() -> None:
    import ormsgpack

    payload = ormsgpack.packb(ormsgpack.Ext(6, ormsgpack.packb(["<i8", [3], "C", 400_000_000])))
    with pytest.raises(PayloadError, match="no data"):
        serde.loads_typed(("msgpack", payload))

"""Classes an application might keep in its state."""

from __future__ import annotations

import enum
import functools
from collections import namedtuple
from dataclasses import InitVar, dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import attrs
import pydantic
from typing_extensions import TypedDict

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = ("b", 1)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Status(str, enum.Enum):
    OPEN = "open"
    DONE = "done"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    A = 1
    B = 2


class Outer:
    class Inner(enum.Enum):
        X = 1

    @dataclass
    class Part:
        n: int


class Point(NamedTuple):
    x: int
    y: Any = None


Pair = namedtuple("Pair", "left right")


class Row(TypedDict, total=False):
    a: int
    b: Any


@dataclass
class Claim:
    number: int
    text: str = ""
    items: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    value: Any


@dataclass(slots=True)
class Slotted:
    value: Any
    other: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenSlotted:
    value: Any


@dataclass
class Derived:
    base: int
    total: int = field(init=False)
    runs: int = 0

    def __post_init__(self) -> None:
        self.total = self.base * 2
        self.runs += 1  # not idempotent


@dataclass
class WithCache:
    n: int

    @functools.cached_property
    def double(self) -> int:
        return self.n * 2


@dataclass
class NeedsInitVar:
    n: int
    seed: InitVar[int]

    def __post_init__(self, seed: int) -> None:
        self.n += seed


@attrs.define
class Attr:
    x: Any
    _hidden: int = 0
    made: int = attrs.field(init=False, default=7)


@attrs.frozen
class FrozenAttr:
    x: Any = attrs.field(converter=lambda v: [v])  # not idempotent


class Model(pydantic.BaseModel):
    n: int
    text: str = "default"
    any: Any = None


class Nested(pydantic.BaseModel):
    one: Model
    many: list[Model] = []
    level: Level = Level.LOW
    claim: Claim | None = None


class Aliased(pydantic.BaseModel):
    value: int = pydantic.Field(alias="theValue")
    other: int = pydantic.Field(default=1, validation_alias=pydantic.AliasChoices("o", "other_one"))


class Private(pydantic.BaseModel):
    n: int
    _count: int = pydantic.PrivateAttr(default=0)
    _lock: Any = pydantic.PrivateAttr(default=None)


class Computed(pydantic.BaseModel):
    n: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def square(self) -> int:
        return self.n**2


class Extra(pydantic.BaseModel, extra="allow"):
    n: int = 0


class FrozenModel(pydantic.BaseModel, frozen=True):
    value: Any


class Growing(pydantic.BaseModel):
    text: str

    @pydantic.field_validator("text")
    @classmethod
    def shout(cls, text: str) -> str:
        return text + "!"  # not idempotent


class Splitting(pydantic.BaseModel):
    parts: Any

    @pydantic.field_validator("parts", mode="before")
    @classmethod
    def split(cls, parts: Any) -> list[str]:
        if not isinstance(parts, str):
            raise ValueError("a str is needed")  # refuses its own output
        return parts.split(",")


class Page(pydantic.BaseModel, Generic[T]):
    items: list[T]
    next: int | None = None


class Root(pydantic.RootModel[list[int]]):
    pass


class Keys(pydantic.BaseModel):
    name: str
    token: pydantic.SecretStr


@pydantic.dataclasses.dataclass
class Checked:
    n: int


class Plain:
    """No dataclass: storable only when registered."""

    def __init__(self, a: int, b: str = "b") -> None:
        self.a = a
        self.b = b

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]


class Text(str):
    """A str without state of its own."""

    __slots__ = ()


class Tagged(str):
    tag: str = ""


class Number(int):
    pass


class Names(list[str]):
    pass


class Lookup(dict[str, int]):
    pass

"""Which classes are stored and revived, and how a stored type changes over the years."""

from __future__ import annotations

import dataclasses
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pydantic
import pytest
from langchain_core.prompts import PromptTemplate

from stepvault.errors import (
    ConfigurationError,
    PayloadError,
    StateInvalidError,
    UnknownTypeError,
    ValueNotSerializableError,
)
from stepvault.types import RawValue, TypedSerializer, TypeRegistry, register_type
from tests.unit.serde import app_types as app
from tests.unit.serde.comparing import assert_same


def serde(*types: type, registry: TypeRegistry | None = None, **options: Any) -> TypedSerializer:
    return TypedSerializer(types=types, registry=registry or TypeRegistry(), **options)


def registered(cls: type, **options: Any) -> TypedSerializer:
    registry = TypeRegistry()
    registry.register(cls, **options)
    return TypedSerializer(registry=registry)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that exists while the test runs."""
    made = types.ModuleType("canary_module")
    made.__dict__["made"] = []
    code = """
from dataclasses import dataclass
class Canary:
    def __init__(self, *args, **kwargs): made.append((args, kwargs))
@dataclass
class Data:
    n: int
    def __post_init__(self): made.append(self.n)
def function(*args): made.append(args)
def __getattr__(name): made.append(name); raise AttributeError(name)
"""
    monkeypatch.setitem(sys.modules, "canary_module", made)
    exec(code, made.__dict__)
    return made


def test_plain_data_of_imported_modules_is_revived() -> None:
    value = [app.Claim(1), app.Color.RED, app.Point(1), app.Model(n=1), app.Attr(1)]
    assert_same(serde().loads(serde().dumps(value)), value)


def test_refuse_closes_the_default() -> None:
    data = serde().dumps(app.Claim(1))
    closed = serde(unknown_types="refuse")
    with pytest.raises(UnknownTypeError, match=r"app_types:Claim.*types=\[Claim\]") as caught:
        closed.loads(data)
    assert caught.value.type_name.endswith("app_types:Claim")
    with pytest.raises(ValueNotSerializableError, match=r"types=\[Claim\]"):
        closed.dumps(app.Claim(1))
    opened = serde(app.Claim, unknown_types="refuse")
    assert opened.loads(opened.dumps(app.Claim(1))) == app.Claim(1)


def test_registering_one_type_blocks_no_other() -> None:
    value = [app.Claim(1), app.Model(n=1)]
    one = serde(app.Claim)
    assert_same(one.loads(one.dumps(value)), value)


@pytest.mark.parametrize("setting", ["true", "1", "YES"])
def test_the_strict_switch_of_langgraph(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGGRAPH_STRICT_MSGPACK", setting)
    for locked in (serde(), serde(unknown_types="imported")):
        with pytest.raises(ValueNotSerializableError):
            locked.dumps(app.Claim(1))
        allowed = locked.with_msgpack_allowlist({(app.__name__, "Claim")})
        assert allowed.loads(allowed.dumps(app.Claim(1))) == app.Claim(1)


def test_allowlists_are_merged() -> None:
    base = serde(unknown_types="refuse").with_msgpack_allowlist([(app.__name__, "Claim")])
    both = base.with_msgpack_allowlist([(app.__name__, "Model"), app.Attr])
    for value in (app.Claim(1), app.Model(n=1), app.Attr(1)):
        assert_same(both.loads(both.dumps(value)), value)
    assert both.with_msgpack_allowlist([(app.__name__, "Model"), app.Attr]) is both
    with pytest.raises(ValueNotSerializableError):
        base.dumps(app.Model(n=1))


def test_raw_keeps_what_is_not_known() -> None:
    data = serde().dumps([app.Claim(1, "x"), {app.Color.RED: app.Page[int](items=[1])}])
    tool = serde(unknown_types="raw")
    sys.modules.pop(app.__name__)
    try:
        claim, mapping = tool.loads(data)
    finally:
        sys.modules[app.__name__] = app
    assert isinstance(claim, RawValue)
    assert claim.type_name == f"{app.__name__}:Claim"
    assert (claim.version, claim.data) == (1, {"number": 1, "text": "x", "items": []})
    (page,) = mapping.values()
    assert page.type_name == f"{app.__name__}:Page[int]"
    assert tool.dumps([claim, mapping]) == data
    assert serde().loads(tool.dumps([claim, mapping]))[0] == app.Claim(1, "x")


def test_nothing_is_imported_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    data = serde().dumps(app.Claim(1))
    for name in (b"tests.unit.serde.app_types:Claim", app.__name__.encode() + b":Claim"):
        forged = data.replace(name, b"antigravity:" + b"x" * (len(name) - 12))
    monkeypatch.setattr("builtins.__import__", lambda name, *a, **k: pytest.fail(f"imports {name}"))
    with pytest.raises(UnknownTypeError):
        serde().loads(forged)
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("name", ["Canary", "function", "absent", "dataclass", "made"])
def test_only_plain_data_is_called(module: types.ModuleType, name: str) -> None:
    good = serde().dumps(module.Data(1))
    module.made.clear()
    assert serde().loads(good) == module.Data(1)
    module.made.clear()
    stored = registered(app.Claim, name=f"canary_module:{name}").dumps(app.Claim(1))
    with pytest.raises(UnknownTypeError):
        serde().loads(stored)
    assert module.made == []


def test_a_class_under_another_name_is_not_reached(module: types.ModuleType) -> None:
    module.__dict__["Alias"] = app.Claim
    stored = registered(app.Claim, name="canary_module:Alias").dumps(app.Claim(1))
    with pytest.raises(UnknownTypeError):
        serde().loads(stored)


def test_langchain_objects_other_than_messages_are_refused() -> None:
    with pytest.raises(ValueNotSerializableError, match="register_type"):
        serde().dumps(PromptTemplate.from_template("x"))


def test_local_and_main_classes_need_a_name() -> None:
    @dataclass
    class Local:
        n: int

    with pytest.raises(ValueNotSerializableError, match=r"register_type\(Local, name='Local'\)") as caught:
        serde().dumps({"a": [Local(1)]})
    assert (caught.value.path, caught.value.type_name) == ("['a'][0]", f"{__name__}.{Local.__qualname__}")
    with pytest.raises(ValueNotSerializableError):
        serde().with_msgpack_allowlist([(__name__, "Local")]).dumps(Local(1))
    named = registered(Local, name="Local")
    assert named.loads(named.dumps(Local(1))) == Local(1)

    main = dataclasses.make_dataclass("Main", ["n"])
    main.__module__ = "__main__"
    with pytest.raises(ValueNotSerializableError, match="__main__"):
        serde().dumps(main(1))
    for known in (serde(main), registered(main, name="Main")):
        assert known.loads(known.dumps(main(1))) == main(1)
    with pytest.raises(UnknownTypeError):
        serde().loads(serde(main).dumps(main(1)))


def test_a_class_replaced_in_its_module_is_refused() -> None:
    gone = dataclasses.make_dataclass("Gone", ["n"])
    gone.__module__ = app.__name__
    with pytest.raises(ValueNotSerializableError, match="not found"):
        serde().dumps(gone(1))


@pytest.mark.parametrize(
    "value",
    [app.Plain(1), app.Text("x"), app.Number(3), app.Names(["a"]), app.Lookup(a=1)],
    ids=lambda value: type(value).__name__,
)
def test_registered_classes_of_other_kinds(value: Any) -> None:
    known = serde(type(value))
    back = known.loads(known.dumps([value, {"k": value}]))
    assert type(back[0]) is type(value)
    assert back == [value, {"k": value}]


def test_a_registered_str_keeps_its_attributes() -> None:
    value = app.Tagged("x")
    value.tag = "t"
    known = serde(app.Tagged)
    back = known.loads(known.dumps(value))
    assert (type(back), back, back.tag) == (app.Tagged, "x", "t")


def test_the_stored_name_is_free_of_the_module() -> None:
    data = registered(app.Claim, name="claim").dumps(app.Claim(1))
    assert b"app_types" not in data
    assert registered(app.Claim, name="claim").loads(data) == app.Claim(1)
    with pytest.raises(UnknownTypeError, match="claim"):
        serde().loads(data)


def test_aliases_find_what_was_stored_before() -> None:
    data = serde().dumps(app.Claim(1, "x"))

    @dataclass
    class Renamed:
        number: int
        text: str
        items: list[Any]

    for alias in (f"{app.__name__}:Claim", f"{app.__name__}.Claim"):
        assert registered(Renamed, name="r", aliases=[alias]).loads(data) == Renamed(1, "x", [])


def upgrade_2(fields: dict[str, Any]) -> dict[str, Any]:
    return {"full": f"{fields['first']} {fields['last']}"}


def upgrade_3(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "age": 0}


class One(pydantic.BaseModel):
    first: str
    last: str


class Two(pydantic.BaseModel):
    full: str


class Three(pydantic.BaseModel):
    full: str
    age: int


def person(cls: type, version: int, **upcasters: Any) -> TypedSerializer:
    return registered(cls, name="person", version=version, **upcasters)


def test_upcasters_run_step_by_step() -> None:
    first = person(One, 1).dumps(One(first="A", last="B"))
    second = person(Two, 2, upcasters={1: upgrade_2}).dumps(Two(full="C D"))
    third = person(Three, 3, upcasters={1: upgrade_2, 2: upgrade_3})
    assert third.loads(first) == Three(full="A B", age=0)
    assert third.loads(second) == Three(full="C D", age=0)


def test_older_code_meets_newer_data() -> None:
    newer = person(Three, 3, upcasters={2: upgrade_3}).dumps(Three(full="x", age=1))
    with pytest.raises(PayloadError, match=r"version 3.*version 1"):
        person(One, 1).loads(newer)


def test_a_missing_upcaster_is_named() -> None:
    first = person(One, 1).dumps(One(first="A", last="B"))
    with pytest.raises(PayloadError, match=r"version 1.*version 3.*upcaster for 1"):
        person(Three, 3, upcasters={2: upgrade_3}).loads(first)


def test_a_failing_upcaster_is_named() -> None:
    first = person(One, 1).dumps(One(first="A", last="B"))
    with pytest.raises(StateInvalidError, match="upcaster from version 1"):
        person(Two, 2, upcasters={1: lambda fields: fields["gone"]}).loads(first)


def test_changed_classes_go_through_their_validator() -> None:
    stored = registered(One, name="p").dumps(One(first="1", last="2"))

    class Changed(pydantic.BaseModel):
        first: int
        last: str
        added: str = "default"

    back = registered(Changed, name="p").loads(stored)
    assert (back.first, back.last, back.added) == (1, "2", "default")

    class Demanding(pydantic.BaseModel):
        first: str
        last: str
        needed: int

    with pytest.raises(StateInvalidError, match="needed: missing") as caught:
        registered(Demanding, name="p").loads(stored)
    assert "'1'" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_dropped_dataclass_field_is_named() -> None:
    stored = registered(app.Claim, name="c").dumps(app.Claim(1, "x"))
    smaller = dataclasses.make_dataclass("Claim", [("number", int)])
    with pytest.raises(StateInvalidError, match="text, items"):
        registered(smaller, name="c").loads(stored)


def test_an_enum_member_survives_a_new_value_or_a_new_name() -> None:
    import enum

    stored = registered(app.Status, name="s").dumps(app.Status.OPEN)
    revalued = enum.Enum("Status", {"OPEN": "opened"})
    renamed = enum.Enum("Status", {"STARTED": "open"})
    gone = enum.Enum("Status", {"OTHER": "other"})
    assert registered(revalued, name="s").loads(stored) is revalued.OPEN
    assert registered(renamed, name="s").loads(stored) is renamed.STARTED
    with pytest.raises(StateInvalidError, match="does not fit"):
        registered(gone, name="s").loads(stored)


def test_register_type_reaches_serializers_made_before() -> None:
    early = TypedSerializer()

    @dataclass
    class Late:
        n: int

    with pytest.raises(ValueNotSerializableError):
        early.dumps(Late(1))
    assert register_type(Late, name="tests.late") is Late
    assert early.loads(early.dumps(Late(1))) == Late(1)


@pytest.mark.parametrize(
    "options",
    [
        {"version": 0},
        {"version": True},
        {"name": ""},
        {"aliases": "one"},
        {"upcasters": {1: print}},
        {"version": 2, "upcasters": {2: print}},
        {"version": 2, "upcasters": {1: "no function"}},
    ],
    ids=str,
)
def test_wrong_registrations(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        TypeRegistry().register(app.Claim, **options)


def test_a_name_belongs_to_one_class() -> None:
    registry = TypeRegistry()
    registry.register(app.Claim, name="x")
    registry.register(app.Claim, name="x")
    with pytest.raises(ConfigurationError, match="already registered"):
        registry.register(app.Model, name="x")
    with pytest.raises(ConfigurationError):
        registry.register("no class")  # type: ignore[type-var]


@pytest.mark.parametrize("option", ["unknown_types", "fidelity", "secrets"])
def test_wrong_options(option: str) -> None:
    with pytest.raises(ConfigurationError, match=option):
        TypedSerializer(**{option: "nonsense"})  # type: ignore[arg-type]


def test_another_langchain_core(monkeypatch: pytest.MonkeyPatch) -> None:
    from langchain_core.messages import HumanMessage

    from stepvault._core.serde import messages

    data = serde().dumps(HumanMessage("x", id="1"))
    shape = messages.shape(0)
    older = (*messages.SHAPES[0][:2], ("content", "type", "id", "forgotten"))
    monkeypatch.setattr(messages, "SHAPES", (older, *messages.SHAPES[1:]))
    monkeypatch.setattr(messages, "_shapes", {})
    stored = bytearray(serde().dumps(HumanMessage("x", id="1")))
    assert b"HumanMessage" in stored, "a class that is not the table's own is stored by name"
    import ormsgpack

    old_bytes = ormsgpack.packb(ormsgpack.Ext(1, ormsgpack.packb([0, 0b101, "x", "human", "1", "kept"])))
    back = serde().loads(old_bytes)
    assert (type(back), back.content, back.id, back.name) == (HumanMessage, "x", "1", None)
    assert back.__pydantic_extra__ == {"forgotten": "kept"}
    assert back.__pydantic_fields_set__ == {"content", "id"}
    monkeypatch.undo()
    assert messages.shape(0) is shape
    assert serde().loads(bytes(stored)) == serde().loads(data)


def test_one_serializer_serves_many_threads() -> None:
    shared = serde()
    value = [app.Claim(1), app.Page[int](items=[1]), {app.Color.RED: (1, {2})}]
    expected = serde().dumps(value)

    def work(number: int) -> bool:
        made = dataclasses.make_dataclass(f"Thread{number}", ["n"])
        TypeRegistry(shared._policy.registry).register(made, name=f"thread-{number}")
        return all(shared.dumps(shared.loads(shared.dumps(value))) == expected for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(32)))

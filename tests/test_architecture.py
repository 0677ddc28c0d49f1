"""The rules of the house that a reader relies on, read from the source without running it where possible.

Change a rule here together with `CONTRIBUTING.md`, which gives the reasons.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.devlink import ROOMS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# Lowest first: a module imports from its own layer and from those below.
LAYERS = {
    "errors": r"stepvault\.errors",
    "core": r"stepvault\._core",
    "concepts": r"stepvault\.(?!(errors|_core|_drivers|checkpointers|stores|vault|adopting|copying|_moving|_upkeep|"
    r"_sealing|cli)\b)\w+",
    "drivers": r"stepvault\._drivers",
    "dialects": r"stepvault\.(checkpointers|stores)\._dialect",
    "ops": r"stepvault\.(checkpointers|stores)\._ops",
    "shells": r"stepvault\.(checkpointers|stores)\.((?!_dialect|_ops)_\w+|memories)",
    "backends": r"stepvault\.(checkpointers|stores)\.(sqlite|postgres|redis)",
    "vault": r"stepvault\.(vault|adopting|copying|_moving|_upkeep|_sealing)",
    "cli": r"stepvault\.cli",
    "front page": r"stepvault(\.checkpointers|\.stores)?$",
}
ORDER = list(LAYERS)
BACKENDS = ("sqlite", "postgres", "redis")

SQLITE, POSTGRES, REDIS = (rf"stepvault\.(_drivers\.{name}\w*|\w+\.{name})" for name in BACKENDS)

# A library, and the only places that may import it: whoever lacks the extra must be able to import the rest.
CONFINED = {
    "sqlite3": SQLITE,
    "aiosqlite": SQLITE,
    "sqlite_vec": SQLITE,
    "psycopg": POSTGRES,
    "psycopg_pool": POSTGRES,
    "pgvector": POSTGRES,
    "redis": REDIS,
    "cryptography": r"stepvault\.(_core\.crypto|erasure)",
    "typer": r"stepvault\.cli",
    "rich": r"stepvault\.cli",
}

# What `_core` must not touch: I/O, threads, clocks, chance, the environment. It gets all that as arguments.
IMPURE_MODULES = {"asyncio", "concurrent", "multiprocessing", "os", "random", "secrets", "selectors", "shutil"}
IMPURE_MODULES |= {"signal", "socket", "subprocess", "tempfile", "threading", "time"}
IMPURE_MODULES |= CONFINED.keys() - {"cryptography"}  # which only computes
IMPURE_CALLS = {"now", "utcnow", "today", "uuid1", "uuid4", "uuid6", "uuid7", "open", "getenv", "urandom"}

PURE_ENOUGH = {
    ("stepvault._core.key_cache", "threading"): "a lock around memory, held over no I/O",
    ("stepvault._core.knowledge", "threading"): "a lock around memory, held over no I/O",
    ("stepvault._core.runs", "threading"): "a lock around memory, held over no I/O",
    ("stepvault._core.reads", "threading"): "a lock around memory, held over no I/O",
    ("stepvault._core.knowledge", "secrets"): "a hash seed that never leaves the process",
    ("stepvault._core.ids", "uuid4"): "`new_uid`, the one source of thread uids",
}

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
LONG_FILES: dict[str, str] = {}  # path: why it is long
LONG_FUNCTIONS: dict[str, str] = {}  # path:name: why it is long

SHAPELESS_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
# A class of the first name has no method of the second for a reason.
UNPAIRED: dict[tuple[str, str], str] = {}

FOREIGN_PATH = re.compile(r"(?<![\w.}/:~-])/(?:root|home|work|opt|Users|mnt|workspace)/\w")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sql", ".lua", ".cfg", ".ini", ".yml", ".yaml", ".json", ".txt", ""}


@cache
def modules() -> dict[str, Path]:
    """Every module of the package by its import name."""
    found = {}
    for room, name in ROOMS.items():
        prefix = ("stepvault", *(() if name == "." else (name,)))
        for path in sorted((ROOT / room).rglob("*.py")):
            parts = path.relative_to(ROOT / room).with_suffix("").parts
            found[".".join(prefix + parts).removesuffix(".__init__")] = path
    return found


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports(module: str) -> tuple[str, ...]:
    """What a module imports, wherever it does; a submodule taken from its package counts as itself."""
    found = []
    for node in ast.walk(tree(modules()[module])):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name if name in modules() else str(node.module) for name in names]
    return tuple(dict.fromkeys(found))


def edges() -> Iterator[tuple[str, str]]:
    """Each import of one of our modules by another."""
    for module in modules():
        for target in imports(module):
            if target.split(".")[0] == "stepvault":
                yield module, target


def layer(module: str) -> str:
    for name, pattern in LAYERS.items():
        if re.match(rf"{pattern}(\.|$)", module):
            return name
    pytest.fail(f"{module} is in no layer: give it one in LAYERS")


def room(module: str) -> str:
    """`checkpointers` or `stores`, or nothing for the shared floor."""
    return module.split(".")[1] if module.startswith(("stepvault.checkpointers.", "stepvault.stores.")) else ""


def backend(module: str) -> str:
    """`sqlite`, `postgres` or `redis`, or nothing for what they share."""
    names = set(BACKENDS) & set(module.split("."))
    return names.pop() if names else ""


def test_imports_point_down() -> None:
    wrong = [(a, b) for a, b in edges() if ORDER.index(layer(b)) > ORDER.index(layer(a))]
    assert not wrong


def test_drivers_know_plan_and_errors_only() -> None:
    allowed = ("stepvault._drivers", "stepvault._core.plan", "stepvault._core.numbers", "stepvault.errors")
    wrong = [(a, b) for a, b in edges() if layer(a) == "drivers" and not b.startswith(allowed)]
    assert not wrong


def test_only_backends_and_above_know_a_driver() -> None:
    above = {"drivers", "backends", "vault", "cli"}
    # a lock, a timer, chance: no database
    tools = ("stepvault._drivers.gate", "stepvault._drivers.sweeper", "stepvault._drivers.entropy")
    wrong = [(a, b) for a, b in edges() if layer(b) == "drivers" and layer(a) not in above and b not in tools]
    assert not wrong


def test_rooms_and_backends_do_not_know_each_other() -> None:
    floors = {"vault", "cli", "front page"}
    wrong = []
    for a, b in edges():
        strangers = (room(a) and room(b) and room(a) != room(b)) or (
            backend(a) and backend(b) and backend(a) != backend(b)
        )
        if strangers and layer(a) not in floors:
            wrong.append((a, b))
    assert not wrong


def test_nobody_inside_imports_the_front_page() -> None:
    assert not [(a, b) for a, b in edges() if layer(b) == "front page" and layer(a) != "front page"]


def test_libraries_stay_in_their_place() -> None:
    wrong = []
    for module in modules():
        for target in imports(module):
            place = CONFINED.get(target.split(".")[0])
            if place and not re.match(rf"{place}(\.|$)", module):
                wrong.append((module, target))
    assert not wrong


def test_core_is_pure() -> None:
    wrong = []
    for module in modules():
        if layer(module) != "core":
            continue
        wrong += [(module, name) for name in imports(module) if name.split(".")[0] in IMPURE_MODULES]
        wrong += [(module, name) for name in calls(module) if name in IMPURE_CALLS]
    assert not [use for use in wrong if use not in PURE_ENOUGH]


def calls(module: str) -> Iterator[str]:
    """The last name of each call: `now` for `datetime.now()`; `open` only as the built-in."""
    for node in ast.walk(tree(modules()[module])):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name):
                    yield name
                case ast.Attribute(attr=name) if name != "open":
                    yield name


def test_every_folder_with_code_is_a_package_that_the_wheel_contains() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {name for name, path in modules().items() if path.name == "__init__.py"}
    loose = {path.parent for path in modules().values() if not (path.parent / "__init__.py").exists()}
    assert not loose, "folders with code need an __init__.py"
    assert not folders ^ set(listed), "`packages` in pyproject.toml: what is not listed is not shipped"
    assert len(listed) == len(folders)


def test_files_are_short() -> None:
    sizes = {relative(path): len(path.read_text().splitlines()) for path in modules().values()}
    long = {path for path, lines in sizes.items() if lines > MAX_FILE_LINES}
    assert long == set(LONG_FILES), "split the file, or say why in LONG_FILES"


def test_functions_are_short() -> None:
    long = {name for path in modules().values() for name, lines in functions(path) if lines > MAX_FUNCTION_LINES}
    assert long == set(LONG_FUNCTIONS), "split the function, or say why in LONG_FUNCTIONS"


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a file with its length, the docstring left out."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            first = node.body[0]
            prose = first.end_lineno - first.lineno + 1 if ast.get_docstring(node) and first.end_lineno else 0
            yield f"{relative(path)}:{node.name}", node.end_lineno - node.lineno + 1 - prose


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_modules_say_what_they_hold() -> None:
    everything = [path for path in texts() if path.suffix == ".py"]
    assert not [relative(path) for path in everything if path.stem.lstrip("_") in SHAPELESS_NAMES]


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    wrong = []
    for path in texts():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if FOREIGN_PATH.search(line):
                wrong.append(f"{relative(path)}:{number}: {line.strip()}")
    assert not wrong


def texts() -> Iterator[Path]:
    """Our text files; not what tools left in the checkout."""
    skipped = {"build", "dist", "__pycache__"}
    for top in sorted(ROOT.iterdir()):
        if top.name in skipped or (top.name.startswith(".") and top.name != ".ci"):
            continue
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            inside = path.relative_to(ROOT).parts
            generated = any(part in skipped or (part.startswith(".") and part != ".ci") for part in inside)
            if path.is_file() and path.suffix in TEXT_SUFFIXES and not generated:
                yield path


def classes() -> dict[str, type[Any]]:
    """Every public class of the package by `module.Name`."""
    found = {}
    for module in modules():
        if "._" in module:
            continue
        for name, value in vars(importlib.import_module(module)).items():
            if inspect.isclass(value) and value.__module__ == module and not name.startswith("_"):
                found[f"{module}.{name}"] = value
    return found


def public(cls: type[Any]) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_")}


def test_async_classes_have_the_methods_of_their_sync_twins() -> None:
    known = classes()
    wrong = []
    for path, cls in known.items():
        if not cls.__name__.startswith("Async"):
            continue
        twins = [other for other in known.values() if f"Async{other.__name__}" == cls.__name__]
        assert twins, f"{path} is the twin of nothing"
        for twin in twins:
            asynchronous = {name if hasattr(twin, name) else name.removeprefix("a") for name in public(cls)}
            wrong += [(path, name) for name in public(twin) ^ asynchronous if (path, name) not in UNPAIRED]
    assert not wrong


def test_async_methods_take_what_their_sync_twins_take() -> None:
    wrong = []
    for path, cls in classes().items():
        for name in public(cls):
            both = getattr(cls, name), getattr(cls, f"a{name}", None)
            if all(map(inspect.isfunction, both)) and parameters(both[0]) != parameters(both[1]):
                wrong.append(f"{path}.{name}")
    assert not wrong


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    signature = inspect.signature(function)
    return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

"""What is shipped: the wheel, built from the sdist, holds every file, and works with no extra installed.

It is built from a copy of the checkout, so that what earlier builds left behind cannot hide a missing line.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools.devlink import ROOMS, ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = [pytest.mark.xdist_group("packaging"), pytest.mark.timeout(300)]

SHIPPED_SUFFIXES = {".py", ".sql", ".lua", ".dict"}

# What an extra brings, and the modules that need it: anything else imports without.
EXTRAS = {
    "postgres": {"psycopg", "psycopg_pool", "pgvector"},
    "redis": {"redis"},
    "crypto": {"cryptography"},
    "vector": {"numpy", "sqlite_vec"},
    "cli": {"typer", "rich"},
}
NEEDS = {
    "postgres": r"stepvault\.(_drivers\.postgres\w*|\w+\.postgres)\b",
    "redis": r"stepvault\.(_drivers\.redis\w*|\w+\.redis)\b",
    "cli": r"stepvault\.cli\b",
}

# Where the name to import is not that of the distribution.
DISTRIBUTIONS = {"langgraph": "langgraph-checkpoint", "pydantic_core": "pydantic"}

# Run before the code under test: neither the extras nor LangGraph are there, only langgraph-checkpoint.
BLOCKER = """
import sys

OURS_OF_LANGGRAPH = ("langgraph.checkpoint", "langgraph.store", "langgraph.cache")

class Blocker:
    def find_spec(self, name, path=None, target=None):
        foreign = name.startswith("langgraph.") and not name.startswith(OURS_OF_LANGGRAPH)
        if foreign or name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

BLOCKED = set(%r)
sys.meta_path.insert(0, Blocker())
"""

IMPORT_ALL = """
import importlib, json
outcome = {}
for name in %r:
    try:
        importlib.import_module(name)
    except ImportError as exc:
        outcome[name] = [type(exc).__name__, str(exc)]
print(json.dumps(outcome))
"""

# Modules that `import stepvault` adds to those of langgraph-checkpoint.
ADDED_MODULES = """
import json, sys
import langgraph.checkpoint.base, langgraph.checkpoint.serde.jsonplus, langgraph.store.base
before = set(sys.modules)
import stepvault
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {name for names in EXTRAS.values() for name in names} | {
    "sqlite3",
    "aiosqlite",
    "asyncio",
    "multiprocessing",
}
HEAVY_PARTS = ("langgraph.graph", "langgraph.pregel", "langgraph.prebuilt", "langchain_core.language_models")
MOST_ADDED = 80


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist and the wheel built from it."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("src", "checkpointers", "stores"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", target, source])
    return target


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    return next(distributions.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel; the dependencies come by path from the environment of the tests."""
    environment = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install"]
    run([*pip, "--quiet", "--no-deps", "--no-index", wheel])
    site = Path(run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(paths))
    return python


def run(words: list[Any]) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_without(python: Path, blocked: set[str], code: str) -> Any:
    return json.loads(run([python, "-c", BLOCKER % sorted(blocked) + code]))


def shipped() -> Iterator[tuple[str, Path]]:
    """Every file of the package: its path in the wheel, and in the checkout."""
    for room, name in ROOMS.items():
        for path in sorted((ROOT / room).rglob("*")):
            generated = {"__pycache__"} & set(path.parts)
            if path.is_file() and not generated and (path.suffix in SHIPPED_SUFFIXES or path.name == "py.typed"):
                yield (Path("stepvault") / name / path.relative_to(ROOT / room)).as_posix(), path


def modules() -> list[str]:
    names = [Path(name).with_suffix("").as_posix().replace("/", ".") for name, _ in shipped() if name.endswith(".py")]
    return [name.removesuffix(".__init__") for name in names if not name.endswith("__main__")]


def third_parties() -> set[str]:
    """The top names of what the package imports, anywhere."""
    found = set()
    for name, path in shipped():
        if name.endswith(".py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Import):
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    found.add(str(node.module).partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"stepvault"}


def needs(module: str, *extras: str) -> bool:
    return any(re.match(NEEDS[extra], module) for extra in extras if extra in NEEDS)


def test_wheel_holds_every_file_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert held == {name for name, _ in shipped()}
        for name, path in shipped():
            assert archive.read(name) == path.read_bytes()


def test_every_import_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    declared = {re.split(r"[^\w-]", line)[0] for line in lines}
    imported = {DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in third_parties()}
    assert imported <= declared


def test_sdist_holds_licence_and_readme(distributions: Path) -> None:
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def test_everything_but_the_extras_imports_without_them(python: Path) -> None:
    blocked = {name for names in EXTRAS.values() for name in names}
    failures = run_without(python, blocked, IMPORT_ALL % modules())
    assert not {name: why for name, why in failures.items() if not needs(name, *EXTRAS)}


@pytest.mark.parametrize("extra", EXTRAS)
def test_one_missing_extra_breaks_what_needs_it_alone(python: Path, extra: str) -> None:
    failures = run_without(python, EXTRAS[extra], IMPORT_ALL % modules())
    assert not {name: why for name, why in failures.items() if not needs(name, extra)}


@pytest.mark.parametrize("extra", NEEDS)
def test_what_needs_an_extra_names_it(python: Path, extra: str) -> None:
    entries = (name for name in modules() if not name.startswith("stepvault.cli."))  # reached through `main`
    needy = [name for name in entries if needs(name, extra) and "._" not in name]
    failures = run_without(python, EXTRAS[extra], IMPORT_ALL % needy)
    for kind, message in failures.values():
        assert kind == "MissingDependencyError"
        assert "pip install" in message
        assert f"stepvault[{extra}]" in message


def test_the_command_line_without_its_extra_says_what_to_install(python: Path) -> None:
    code = """
import contextlib, io, json
from stepvault.cli import main
with contextlib.redirect_stderr(io.StringIO()) as said:
    try:
        main()
    except SystemExit as exc:
        print(json.dumps([exc.code, said.getvalue()]))
"""
    status, said = run_without(python, EXTRAS["cli"], code)
    assert status == 1
    assert said == 'MissingDependencyError: The command line needs an extra: pip install "stepvault[cli]".\n'


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ("postgres", "stepvault.checkpointers.postgres.PostgresSaver"),
        ("postgres", "stepvault.stores.postgres.PostgresStore"),
        ("redis", "stepvault.checkpointers.redis.RedisSaver"),
        ("redis", "stepvault.stores.redis.RedisStore"),
    ],
)
def test_a_backend_without_its_extra_says_what_to_install(python: Path, extra: str, name: str) -> None:
    module, _, cls = name.rpartition(".")
    code = f"""
import json
try:
    from {module} import {cls}
    outcome = ["nothing", ""]
except ImportError as exc:
    outcome = [type(exc).__name__, str(exc)]
print(json.dumps(outcome))
"""
    kind, message = run_without(python, EXTRAS[extra], code)
    assert kind == "MissingDependencyError"
    assert "pip install" in message
    assert f"stepvault[{extra}]" in message


def test_import_stepvault_is_light(python: Path) -> None:
    added = json.loads(run([python, "-c", ADDED_MODULES]))
    heavy = [name for name in added if name.partition(".")[0] in HEAVY or name.startswith(HEAVY_PARTS)]
    assert not heavy
    assert len(added) <= MOST_ADDED, added

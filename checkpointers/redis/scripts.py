"""The Lua scripts, each composed of the parts it names in its `-- uses:` line."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from stepvault._drivers.redis_settings import ScriptText

_FOLDER = files("stepvault.checkpointers.redis").joinpath("scripts")


def _read(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _compose(text: str) -> ScriptText:
    uses, writes = [], False
    for line in text.splitlines():
        if line.startswith("-- uses:"):
            uses = line.removeprefix("-- uses:").split()
        writes = writes or line == "-- writes"
    source = _lean("".join(_read(f"_{part}") for part in uses) + text)
    return ScriptText(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), writes)


def _lean(text: str) -> str:
    """Without the lines that are comments: servers keep the text."""
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("--"))


SCRIPTS = {
    name: _compose(_read(name))
    for name in sorted(entry.name.removesuffix(".lua") for entry in _FOLDER.iterdir())
    if not name.startswith("_")
}

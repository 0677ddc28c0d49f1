"""The Lua scripts, each composed of the parts it names in its `-- uses:` line."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from stepvault._drivers.redis_settings import ScriptText

_FOLDER = files("stepvault.stores.redis").joinpath("scripts")


def _read(name: str) -> str:
    return _FOLDER.joinpath(f"{name}.lua").read_text(encoding="utf-8")


def _compose(text: str) -> ScriptText:
    lines = text.splitlines()
    uses = [part for line in lines if line.startswith("-- uses:") for part in line.removeprefix("-- uses:").split()]
    whole = "".join(_read(f"_{part}") for part in uses) + text
    # Without the lines that are comments: servers keep the text.
    source = "\n".join(line for line in whole.splitlines() if line and not line.startswith("--"))
    return ScriptText(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest(), "-- writes" in lines)


SCRIPTS = {
    name: _compose(_read(name))
    for name in sorted(entry.name.removesuffix(".lua") for entry in _FOLDER.iterdir())
    if not name.startswith("_")
}

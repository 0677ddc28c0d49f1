"""Named SQL statements from `.sql` files: `-- name: load_head` starts one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from typing_extensions import LiteralString

_NAME = re.compile(r"^-- name: (\w+)[^\n]*\n", re.MULTILINE)


def named(text: str) -> Mapping[str, LiteralString]:
    """The statements of a file by name; comments after the name line are dropped."""
    parts = _NAME.split(text)[1:]
    statements = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("--")]
        statements[name] = " ".join(" ".join(lines).split()).rstrip(";")
    return {name: literal(text) for name, text in statements.items()}


def literal(text: str) -> LiteralString:
    """Vouch for SQL put together from our own files and constants; values never go through here."""
    return cast(LiteralString, text)  # type: ignore[redundant-cast]

"""The names of the tables, with the schema and prefix of a saver, quoted once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from psycopg.sql import Identifier
from typing_extensions import LiteralString

from stepvault._core.sqltext import literal
from stepvault.errors import ConfigurationError

HASHED = ("chunk", "checkpoint", "write", "meta", "note")  # partitioned by thread where asked for
_TABLES = ("thread", *HASHED, "doc", "migration")
_INDEXES = ("checkpoint_run", "write_run", "meta_thread")
_LONGEST = 63  # bytes of a Postgres name; a longer one is cut without a word
_REFUSED = set("\0%{}")  # of these, percent signs and braces mark places in our statements
_PLACE = re.compile(r"\{(\w+)\}")
_NOW = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"


class Names:
    """Fills statements with the tables of one schema and prefix.

    Raises:
        ConfigurationError: A schema or prefix that Postgres has no room for.
    """

    def __init__(self, schema: str | None, prefix: str) -> None:
        if schema == "" or any(not isinstance(name, str) or _REFUSED & set(name) for name in (schema or "s", prefix)):
            raise ConfigurationError("schema and table_prefix are names without NUL, percent signs and braces.")
        longest = max(_INDEXES, key=len)
        if max(len(f"{prefix}{longest}_p0000".encode()), len((schema or "").encode())) > _LONGEST:
            raise ConfigurationError("schema and table_prefix must leave room in Postgres's 63 bytes per name.")
        self.schema = schema
        self.prefix = prefix
        self._filling = {"now": _NOW, "theirs": self.table("checkpoints", prefix="")}
        self._filling |= {name: self.table(name) for name in _TABLES}
        self._filling |= {name: _quoted(f"{prefix}{name}") for name in _INDEXES}
        if schema is not None:
            self._filling["schema"] = _quoted(schema)

    def table(self, name: str, *, prefix: str | None = None) -> str:
        """A table as statements name it."""
        whole = (self.prefix if prefix is None else prefix) + name
        return _quoted(whole) if self.schema is None else _quoted(self.schema, whole)

    def fill(self, text: str, more: Mapping[str, str] | None = None) -> LiteralString:
        """A statement with its names in place of `{name}`; what has no name here stays."""
        filling = {**self._filling, **(more or {})}
        return literal(_PLACE.sub(lambda match: filling.get(match[1], match[0]), text))


def _quoted(*parts: str) -> str:
    return Identifier(*parts).as_string(None)

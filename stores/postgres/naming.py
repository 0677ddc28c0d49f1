"""The names of the tables, with the schema and prefix of a store, quoted once."""

from __future__ import annotations

import re
from collections.abc import Mapping

from psycopg.sql import Identifier, Literal
from typing_extensions import LiteralString

from stepvault._core.sqltext import literal
from stepvault.errors import ConfigurationError

_TABLES = ("item", "vector", "vector_index", "store_migration", "item_no", "erased")
_INDEXES = ("item_number", "item_expiry", "item_words")
_LONGEST = 63  # bytes of a Postgres name; a longer one is cut without a word
_PLACE = re.compile(r"\{(\w+)\}")
# As sub-queries, so that they are computed once and not for every row.
_NOW = "(SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
_LIVE = f"(i.expires_at IS NULL OR i.expires_at > {_NOW})"


class Names:
    """Fills statements with the tables of one schema and prefix.

    Raises:
        ConfigurationError: A schema or prefix that Postgres has no room for.
    """

    def __init__(self, schema: str | None, prefix: str) -> None:
        for what, name in (("schema", schema), ("table_prefix", prefix)):
            if name is not None and (not isinstance(name, str) or "\0" in name or (name == "" and what == "schema")):
                raise ConfigurationError(f"{what} must be a name, not {name!r}.")
        longest = max((*_TABLES, *_INDEXES), key=len)
        if max(len(f"{prefix}{longest}".encode()), len((schema or "").encode())) > _LONGEST:
            raise ConfigurationError("schema and table_prefix must leave room in Postgres's 63 bytes per name.")
        self.schema = schema
        self._prefix = prefix
        self._filling = {"now": _NOW, "live": _LIVE}
        self._filling |= {name: self.table(name) for name in _TABLES}
        self._filling |= {name: Identifier(prefix + name).as_string(None) for name in _INDEXES}
        self._filling["item_no_name"] = Literal(self.table("item_no")).as_string(None)
        if schema is not None:
            self._filling["schema"] = Identifier(schema).as_string(None)

    def table(self, name: str) -> str:
        """A table as statements name it."""
        parts = (self._prefix + name,) if self.schema is None else (self.schema, self._prefix + name)
        return Identifier(*parts).as_string(None)

    def fill(self, text: str, more: Mapping[str, str] | None = None) -> LiteralString:
        """A statement with its names in place of `{name}`; what has no name here stays."""
        filling = {**self._filling, **(more or {})}
        return literal(_PLACE.sub(lambda match: filling.get(match[1], match[0]), text))

"""What pgvector needs to know: types, operators and the parameters of an approximate index."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg.sql import Identifier

from stepvault.errors import ConfigurationError
from stepvault.stores._dialect import IndexRecord

_OPERATORS = {"cosine": ("<=>", "cosine_ops"), "dot": ("<#>", "ip_ops"), "l2": ("<->", "l2_ops")}
_MOST_DIMS = {"vector": 2000, "halfvec": 4000}  # of an approximate index
_PARAMETERS = {
    "hnsw": {"m": "m", "ef_construction": "ef_construction"},
    "ivfflat": {"nlist": "lists", "lists": "lists"},
}


@dataclass(frozen=True, slots=True)
class AnnSettings:
    """The `ann_index_config` of an index, checked.

    Attributes:
        kind: "hnsw", "ivfflat", or "flat" for no approximate index.
        vector_type: "vector", or "halfvec" for half the space.
        parameters: Of the index, as SQL names them.
    """

    kind: str = "hnsw"
    vector_type: str = "vector"
    parameters: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> AnnSettings:
        """Check a dict as the official store takes it.

        Raises:
            ConfigurationError: A wrong kind, type or parameter.
        """
        config = dict(config or {})
        kind, vector_type = config.pop("kind", "hnsw"), config.pop("vector_type", "vector")
        if kind not in ("hnsw", "ivfflat", "flat"):
            raise ConfigurationError(f'ann_index_config["kind"] must be "hnsw", "ivfflat" or "flat", not {kind!r}.')
        if vector_type not in _MOST_DIMS:
            raise ConfigurationError(
                f'ann_index_config["vector_type"] must be "vector" or "halfvec", not {vector_type!r}.'
            )
        known, parameters = _PARAMETERS.get(kind, {}), []
        for name, value in config.items():
            if name not in known or type(value) is not int or value < 1:
                raise ConfigurationError(f"ann_index_config[{name!r}] = {value!r} is no parameter of {kind}.")
            parameters.append((known[name], value))
        return cls(kind, vector_type, tuple(parameters))

    def approximate(self, dims: int) -> bool:
        """Whether there is an index to search in; pgvector has none for very long vectors."""
        return self.kind != "flat" and dims <= _MOST_DIMS[self.vector_type]

    def filling(self, distance: str, schema: str, record: IndexRecord | None = None) -> dict[str, str]:
        """What statements name of pgvector, in the schema it is installed in."""
        operator, operators = _OPERATORS[distance]
        place = Identifier(schema).as_string(None)
        parameters = ", ".join(f"{name} = {value}" for name, value in self.parameters)
        return {
            "vector_type": f"{place}.{self.vector_type}",
            "distance": f"OPERATOR({place}.{operator})",
            "score": "1 - " if distance == "cosine" else "-",
            "method": self.kind,
            "operators": f"{place}.{self.vector_type}_{operators}",
            "parameters": f"WITH ({parameters})" if parameters else "",
            "dims": str(record.dims) if record else "",
        }


def text_of_vector(vector: bytes) -> str:
    """A float32 vector as pgvector reads it."""
    numbers = struct.unpack(f"{len(vector) // 4}f", vector)
    return "[" + ",".join([f"{number:.9g}" for number in numbers]) + "]"


def vector_of_text(text: str) -> bytes:
    """Undo `text_of_vector`."""
    numbers = [float(number) for number in text.strip("[]").split(",")]
    return struct.pack(f"{len(numbers)}f", *numbers)

"""A stored value whose class this process does not know, kept as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RawValue:
    """A stored object of a type that is not loaded here (`unknown_types="raw"`).

    It dumps back to the bytes it came from; changing `data` changes nothing stored.

    Attributes:
        type_name: The stored name of the type.
        version: The stored version of the type.
        data: The stored fields.
        payload: The stored record, which alone counts when two are compared.
    """

    type_name: str = field(compare=False)
    version: int = field(compare=False)
    data: Any = field(compare=False)
    payload: bytes = field(repr=False)

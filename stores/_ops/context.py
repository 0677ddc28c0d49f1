"""What every operation is given: the store's parts, and the tenant of a view."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from langchain_core.embeddings import Embeddings
from langgraph.checkpoint.serde.base import SerializerProtocol

from stepvault._core.blind_index import Marks
from stepvault._core.codec import Codec
from stepvault._keystore.keys import Keys
from stepvault.stores._dialect import Dialect, IndexRecord

Distance: TypeAlias = Literal["cosine", "dot", "l2"]
Path: TypeAlias = tuple[str, "str | list[str]"]  # as written, and tokenized


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The `index=` of a store, checked."""

    dims: int
    embeddings: Embeddings
    paths: Sequence[Path]
    distance: Distance
    model: str
    plain: bool = False  # vectors are stored as they are even in a sealed store

    def record(self, *, ready: bool) -> IndexRecord:
        """What the database keeps of it."""
        return IndexRecord(self.dims, self.distance, self.model, ready)


@dataclass(slots=True)
class Seen:
    """What is known to be in the database."""

    tables: bool = False
    index: bool = False
    admitted: float = float("-inf")  # since when it is known whether this store may use it
    marks: Marks | None = None  # of people, if it was unsealed


@dataclass(slots=True)
class Wired:
    """What a vault has put beside this store; see `threads`."""

    threads: Any = None  # a `threads.Threads`
    unadopted: bytes | None = None  # the trace that taking over `adopt_from=` leaves, until it is seen


@dataclass(frozen=True, slots=True)
class Core:
    """The parts of a store that its views share."""

    dialect: Dialect
    codec: Codec
    index: IndexSettings | None
    text_paths: Sequence[Path] | None  # None: no text is indexed
    keys: Keys | None = None  # of a sealed store, if they are its own to close
    subject_patterns: Sequence[Sequence[str]] | None = None
    seen: Seen = field(default_factory=Seen)
    wired: Wired = field(default_factory=Wired)
    monotonic: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Scope:
    """A store's view: the shared parts, its tenant and its serializer."""

    core: Core
    tenant: bytes
    serde: SerializerProtocol


@dataclass(frozen=True, slots=True)
class Source:
    """Where an item came from.

    Attributes:
        thread_id: The thread of the run that wrote it.
        checkpoint_id: The checkpoint that run was at.
    """

    thread_id: str
    checkpoint_id: str | None = None

"""What a backend provides to keep key rows: primitives as operations, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from stepvault._core.keys import DataKey
from stepvault._core.plan import Command, Op, Script, Stmt

Statement: TypeAlias = Stmt | Command | Script
Place: TypeAlias = tuple[bytes, int]  # owner, generation: the order of pages

START: Place = (b"", -1)


class KekUse(NamedTuple):
    """How many live data keys a key-encryption key wraps."""

    kek: str
    keys: int


class Linked(NamedTuple):
    """An owner linked to a subject, and to how many subjects it is linked in all."""

    owner: bytes
    subjects: int


class KeyStore(Protocol):
    """Storage primitives of one backend. Every batch is atomic."""

    def setup(self) -> Op[None]:
        """Create or migrate the tables; idempotent, safe with many callers at once."""
        ...

    def load(self, owners: Sequence[bytes]) -> Op[list[DataKey]]:
        """Every generation of these owners, shredded ones too."""
        ...

    def insertion(self, key: DataKey, shredded: int = 0) -> Sequence[Statement]:
        """Statements that add a key, to stand in a batch of one's own or in that of a thread's first write.

        The last one is a guard. It refuses if the generation exists, if the key-encryption key was retired, or if
        the owner has not exactly so many shredded generations: an erasure came in between.
        """
        ...

    def linking(self, subject: bytes, owners: Sequence[bytes]) -> Sequence[Statement]:
        """Statements that say whose data these owners' keys seal. Idempotent."""
        ...

    def linked(self, subject: bytes) -> Op[list[Linked]]:
        """The owners linked to a subject."""
        ...

    def page(self, kek: str, after: Place, limit: int) -> Op[list[DataKey]]:
        """Live keys that are wrapped by another key-encryption key than this, in order."""
        ...

    def rewrap(self, changes: Sequence[tuple[DataKey, DataKey]]) -> Op[int]:
        """Replace wrapped forms that are still as given; how many were."""
        ...

    def shred(self, owners: Sequence[bytes]) -> Op[int]:
        """Destroy every key of these owners and leave tombstones, also of owners without one; how many were live."""
        ...

    def forget(self, before: int, limit: int) -> Op[int]:
        """Remove the rows and links of at most `limit` owners shredded before a time (ms since 1970); how many."""
        ...

    def retire(self, keks: Sequence[str]) -> Op[None]:
        """From now on, refuse new data keys wrapped by these. Idempotent."""
        ...

    def retired(self) -> Op[list[str]]:
        """The retired key-encryption keys."""
        ...

    def uses(self) -> Op[list[KekUse]]:
        """Live data keys by key-encryption key."""
        ...

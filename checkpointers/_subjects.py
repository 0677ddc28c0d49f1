"""`vault.subjects`: whose data there is, which ids are one person's, and whose older threads are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepvault._core.numbers import check_count
from stepvault._core.plan import Op
from stepvault.checkpointers._ops import people
from stepvault.erasure import Assigned, SubjectPage
from stepvault.errors import ConfigurationError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver


class Subjects:
    """The people of one tenant, as the index of subjects knows them."""

    def __init__(self, saver: BaseSaver) -> None:
        self._saver = saver

    def list(self, *, limit: int = 50, cursor: str | None = None) -> SubjectPage:
        """One page of the people with threads, in no order that means anything."""
        return self._saver._run(self._page(limit, cursor))

    async def alist(self, *, limit: int = 50, cursor: str | None = None) -> SubjectPage:
        """Async version of `list`."""
        return await self._saver._arun(self._page(limit, cursor))

    def _page(self, limit: int, cursor: str | None) -> Op[SubjectPage]:
        check_count("limit", limit)
        try:
            after = bytes.fromhex(cursor or "")
        except (ValueError, TypeError) as exc:
            raise ConfigurationError(f"cursor {cursor!r} is not one that list() returned.") from exc
        found, following = yield from people.page(self._saver._scope, after, limit)
        return SubjectPage(found, following.hex() if following else None)

    def link(self, subject: str, *others: str) -> tuple[str, ...]:
        """Make several ids those of one person: plans, erasures, exports and holds take them as one.

        Returns:
            Every id of the person now.

        Raises:
            SubjectErasedError: One of them was erased.
        """
        return tuple(self._saver._run(people.link(self._saver._scope, [subject, *others])))

    async def alink(self, subject: str, *others: str) -> tuple[str, ...]:
        """Async version of `link`."""
        return tuple(await self._saver._arun(people.link(self._saver._scope, [subject, *others])))

    def ids(self, subject: str) -> tuple[str, ...]:
        """Every id of the person with this one, the given one first."""
        return tuple(self._saver._run(people.ids_of(self._saver._scope, subject)))

    async def aids(self, subject: str) -> tuple[str, ...]:
        """Async version of `ids`."""
        return tuple(await self._saver._arun(people.ids_of(self._saver._scope, subject)))

    def assign(self, metadata_key: str, *, dry_run: bool = False) -> Assigned:
        """Attribute threads that name nobody by a key of their metadata. Idempotent, resumable.

        For data stored before people were named. The newest checkpoint that has the key decides; a list names
        several people.

        Raises:
            SubjectErasedError: A thread is that of somebody who was erased; delete it, or readmit them.
        """
        return self._saver._run(people.assign(self._saver._scope, metadata_key, dry_run=dry_run))

    async def aassign(self, metadata_key: str, *, dry_run: bool = False) -> Assigned:
        """Async version of `assign`."""
        return await self._saver._arun(people.assign(self._saver._scope, metadata_key, dry_run=dry_run))

    def rebuild(self) -> int:
        """Write the index of people anew from the threads; how many entries it has then."""
        return self._saver._run(people.rebuild(self._saver._scope))

    async def arebuild(self) -> int:
        """Async version of `rebuild`."""
        return await self._saver._arun(people.rebuild(self._saver._scope))

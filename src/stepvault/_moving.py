"""People when a vault is copied: who was erased, in either, stays erased; links and holds go along."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import ormsgpack

from stepvault._core.people import named_in
from stepvault._core.plan import Op
from stepvault.checkpointers._ops import people, subjects
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import planning, stones
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import SubjectErasedError

if TYPE_CHECKING:
    from stepvault.vault import Vault

_PAGE = 200
_NAMESPACES = 10_000

logger = logging.getLogger("stepvault")


def bring(source: Vault, target: Vault) -> None:
    """Make known in the target which ids are one person's, whose data is held, and who was erased.

    Raises:
        SubjectErasedError: Somebody whose data is to be copied was erased there.
    """
    origin, saver = source.checkpointer, target.checkpointer
    names, linked, holds = _names(source), set[tuple[str, ...]](), dict[str, str]()
    while part := list(islice(names, _PAGE)):
        links, held = origin._run(_known(origin._scope, part))
        linked.update(links)
        holds |= held
        everybody = {*part, *(name for link in links for name in link)}
        saver._run(_refuse_erased(saver._scope, everybody))
    for link in sorted(linked):
        saver._run(people.link(saver._scope, link))
    for name, reason in holds.items():
        saver._run(planning.hold(saver._scope, name, reason))
    _bring_stones(source, target)


def _bring_stones(source: Vault, target: Vault) -> None:
    """Close the door in the target too, behind whom the source closed it.

    Where each is sealed with marks of its own, those of one say nothing in the other.
    """
    origin, saver, probe = source.checkpointer._scope, target.checkpointer, bytes(16)
    marked: Callable[[bytes], bytes] | None = None
    if origin.mark(probe) == probe:
        marked = saver._scope.mark
    elif origin.mark(probe) == saver._scope.mark(probe):
        marked = bytes
    found = iter(source.checkpointer._run(stones.standing(origin)).items())
    if marked is None:
        if next(found, None):
            logger.warning("Nobody who was erased is known in the copy: it is sealed with keys of its own.")
        return
    while part := dict(islice(found, _PAGE)):
        shut = saver._run(stones.bring(saver._scope, {marked(mark): stone for mark, stone in part.items()}))
        saver._run(target.erasure._eraser.items.refuse(shut))


def _names(source: Vault) -> Iterator[str]:
    """Everybody whose a thread or a namespace is or may be, some of them more than once."""
    cursor = None
    while True:
        page = source.threads(limit=_PAGE, cursor=cursor)
        yield from (name for info in page.threads for name in info.subjects)
        if (cursor := page.cursor) is None:
            break
    patterns, at = source._erasing.get("subject_patterns"), 0
    while found := source.store.list_namespaces(limit=_NAMESPACES, offset=at):
        yield from (name for ns in found for name in named_in(patterns, ns) if subjects.is_possible(name))
        at += len(found)


def _refuse_erased(scope: Scope, names: Iterable[str]) -> Op[None]:
    if (yield from subjects.erased(scope, [subjects.token(scope, name) for name in names])):
        raise SubjectErasedError(
            "Somebody whose data this is was erased in the database to copy to. Nothing was copied: erase them here "
            "too, or readmit them there."
        )


def _known(scope: Scope, names: list[str]) -> Op[tuple[list[tuple[str, ...]], dict[str, str]]]:
    """Ids that belong together, and the reasons of holds."""
    marks = {subjects.token(scope, name): name for name in names}
    links = yield from scope.core.dialect.get_docs(space(scope, people.LINKS), list(marks))
    holds = yield from scope.core.dialect.get_docs(space(scope, planning.HOLDS), list(marks))
    reasons = {marks[doc.key]: str(ormsgpack.unpackb(doc.body)) for doc in holds}
    return [tuple(scope.native.loads(doc.body)) for doc in links], reasons

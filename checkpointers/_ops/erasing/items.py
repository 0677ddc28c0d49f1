"""The store's part of a person, through the public methods of any store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from langgraph.store.base import BaseStore

from stepvault._core.ids import text_of
from stepvault._core.knowledge import ThreadKey
from stepvault._core.people import named_in
from stepvault._core.plan import Call, Op
from stepvault.errors import IdentifierError

_PAGE = 500
_NAMES = 10_000  # namespaces of a page: stores list all of them for each
Theirs: TypeAlias = "Callable[[str], bool]"  # whether an id is one of the person's


class Items:
    """A person's namespaces in a store; None where there is no store.

    A namespace is theirs if it holds their `Memories`, if one of its labels is their id, or, with patterns such as
    `("users", "u-{subject}")`, if it begins with a pattern filled in. Whose an id is, is asked of a predicate: after a
    restore only tokens are known.
    """

    def __init__(self, store: BaseStore | None, patterns: Sequence[Sequence[str]] | None) -> None:
        self.store = store
        self._patterns = patterns

    def count(self, theirs: Theirs) -> Op[dict[tuple[str, ...], int]]:
        """Their namespaces, with the number of items in each."""
        found: dict[tuple[str, ...], int] = {}
        for namespace in (yield from self.namespaces(theirs)):
            at = 0
            while True:
                page = yield from self._search(namespace, at)
                mine = sum(tuple(item.namespace) == namespace for item in page)
                found[namespace] = found.get(namespace, 0) + mine
                at += len(page)
                if len(page) < _PAGE:
                    break
        return {namespace: count for namespace, count in found.items() if count}

    def delete(self, theirs: Theirs, tokens: Sequence[bytes] = ()) -> Op[int]:
        """Delete their items; how many there were. What sealed them is linked to these tokens before."""
        deleted = 0
        found = yield from self.namespaces(theirs)
        if found and tokens and self._is_sealed:
            yield from self._call("link_keys", found, tokens)
        for namespace in found:
            if hasattr(self.store, "delete_namespace"):  # what a restore brought back shut is not in a search
                removed = yield from self._call("delete_namespace", namespace)
                deleted += getattr(removed, "items", 0)
                continue
            while True:
                page = yield from self._search(namespace, 0)
                for item in page:
                    yield from self._call("delete", item.namespace, item.key)
                deleted += len(page)
                if len(page) < _PAGE:
                    break
        return deleted

    def refuse(self, tokens: Sequence[bytes], *, erased: bool = True) -> Op[None]:
        """Have the store refuse what is put for people from here on, or accept it again, if it can do so."""
        if hasattr(self.store, "mark_erased"):
            yield from self._call("mark_erased", tokens, erased=erased)

    def drop_shut(self) -> Op[None]:
        """Remove what a restore has brought back of items whose keys were destroyed, if the store seals any."""
        if self._is_sealed:
            yield from self._call("drop_shut")

    def page(self, namespace: tuple[str, ...], at: int, *, below: bool = False) -> Op[tuple[list[Any], int | None]]:
        """Some items of one namespace itself, or of those below too, and where the next page starts."""
        page = yield from self._search(namespace, at)
        own = page if below else [item for item in page if tuple(item.namespace) == namespace]
        return own, at + len(page) if len(page) == _PAGE else None

    def namespaces(self, theirs: Theirs) -> Op[list[tuple[str, ...]]]:
        """Their namespaces."""
        found: list[tuple[str, ...]] = []
        at = 0
        while self.store is not None:
            page = yield from self._call("list_namespaces", limit=_NAMES, offset=at)
            found += [tuple(namespace) for namespace in page if self._is_theirs(tuple(namespace), theirs)]
            at += len(page)
            if len(page) < _NAMES:
                break
        return found

    def scope_of(self, thread_id: str) -> tuple[str, ...] | None:
        """The namespace of a thread's own memory; None where the store has no such thing, or none for so long an id."""
        scope = getattr(self.store, "thread_scope", None)
        try:
            return tuple(scope(thread_id)) if scope is not None else None
        except IdentifierError:
            return None

    def delete_scopes(self, threads: Sequence[ThreadKey]) -> Op[int]:
        """Delete the own memory of threads, together; how many items there were."""
        if not threads or not self.has_scopes:
            return 0
        removed = yield from self._call("delete_thread_scope", *(text_of(key.thread) for key in threads))
        return int(removed.items)

    @property
    def has_scopes(self) -> bool:
        """Whether threads have memory of their own in this store."""
        return hasattr(self.store, "delete_thread_scope")

    @property
    def _is_sealed(self) -> bool:
        return bool(getattr(self.store, "is_sealed", False))

    def derived(self, threads: Collection[str], theirs: Theirs) -> Op[dict[tuple[str, ...], int]]:
        """Items elsewhere that runs of these threads wrote, by namespace. Looks through the whole store."""
        found: dict[tuple[str, ...], int] = {}
        at = 0
        while self.store is not None:
            page = yield from self._search((), at)
            for item in page:
                source, namespace = getattr(item, "source", None), tuple(item.namespace)
                if source is not None and source.thread_id in threads and not self._is_theirs(namespace, theirs):
                    found[namespace] = found.get(namespace, 0) + 1
            at += len(page)
            if len(page) < _PAGE:
                break
        return found

    def unattributed(self) -> Op[int | None]:
        """How many namespaces fit no pattern; None without patterns, when every label may be somebody's id."""
        if self._patterns is None or self.store is None:
            return None if self.store is not None else 0
        count = at = 0
        while True:
            page = yield from self._call("list_namespaces", limit=_NAMES, offset=at)
            count += sum(not self._is_theirs(tuple(namespace), lambda _: True) for namespace in page)
            at += len(page)
            if len(page) < _NAMES:
                return count

    def _is_theirs(self, namespace: tuple[str, ...], theirs: Theirs) -> bool:
        return any(map(theirs, named_in(self._patterns, namespace)))

    def holds(self, namespace: Sequence[str], theirs: Theirs) -> bool:
        """Whether a namespace is the person's."""
        return self._is_theirs(tuple(namespace), theirs)

    def _search(self, namespace: tuple[str, ...], offset: int) -> Op[list[Any]]:
        found = yield from self._call("search", namespace, limit=_PAGE, offset=offset)
        return list(found)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Op[Any]:
        store = self.store
        return (yield Call(
            lambda: getattr(store, name)(*args, **kwargs), lambda: getattr(store, f"a{name}")(*args, **kwargs)
        ))  # fmt: skip

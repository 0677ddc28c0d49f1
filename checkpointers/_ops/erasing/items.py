"""The store's part of a person, through the public methods of any store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langgraph.store.base import BaseStore

from stepvault._core.plan import Call, Op

_PAGE = 500


class Items:
    """A person's namespaces in a store; None where there is no store.

    A namespace is theirs if one of its labels is their id, or, with patterns such as `("users", "u-{subject}")`, if it
    begins with a pattern filled in.
    """

    def __init__(self, store: BaseStore | None, patterns: Sequence[Sequence[str]] | None) -> None:
        self.store = store
        self._patterns = patterns

    def count(self, subject: str) -> Op[dict[tuple[str, ...], int]]:
        """Their namespaces, with the number of items in each."""
        found: dict[tuple[str, ...], int] = {}
        for namespace in (yield from self._namespaces(subject)):
            count = 0
            while True:
                page = yield from self._search(namespace, count)
                count += len(page)
                if len(page) < _PAGE:
                    break
            found[namespace] = count
        return {namespace: count for namespace, count in found.items() if count}

    def delete(self, subject: str) -> Op[int]:
        """Delete their items; how many there were."""
        deleted = 0
        for namespace in (yield from self._namespaces(subject)):
            while True:
                page = yield from self._search(namespace, 0)
                for item in page:
                    if not hasattr(self.store, "delete_namespace"):
                        yield from self._call("delete", item.namespace, item.key)
                deleted += len(page)
                if page and hasattr(self.store, "delete_namespace"):
                    removed = yield from self._call("delete_namespace", namespace)
                    deleted += getattr(removed, "items", len(page)) - len(page)
                    break
                if len(page) < _PAGE:
                    break
        return deleted

    def each(self, subject: str) -> Op[list[Any]]:
        """Their items."""
        items: list[Any] = []
        for namespace in (yield from self._namespaces(subject)):
            at = 0
            while True:
                page = yield from self._search(namespace, at)
                items += [item for item in page if tuple(item.namespace) == namespace]
                at += len(page)
                if len(page) < _PAGE:
                    break
        return items

    def _namespaces(self, subject: str) -> Op[list[tuple[str, ...]]]:
        if self.store is None:
            return []
        found: list[tuple[str, ...]] = []
        at = 0
        while True:
            page = yield from self._call("list_namespaces", limit=_PAGE, offset=at)
            found += [tuple(namespace) for namespace in page if self._theirs(tuple(namespace), subject)]
            at += len(page)
            if len(page) < _PAGE:
                return found

    def _theirs(self, namespace: tuple[str, ...], subject: str) -> bool:
        if self._patterns is None:
            return subject in namespace
        return any(namespace[: len(filled)] == filled for filled in self._filled(subject))

    def _filled(self, subject: str) -> Iterator[tuple[str, ...]]:
        for pattern in self._patterns or ():
            yield tuple(label.replace("{subject}", subject) for label in pattern)

    def _search(self, namespace: tuple[str, ...], offset: int) -> Op[list[Any]]:
        found = yield from self._call("search", namespace, limit=_PAGE, offset=offset)
        return list(found)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Op[Any]:
        store = self.store
        return (yield Call(
            lambda: getattr(store, name)(*args, **kwargs), lambda: getattr(store, f"a{name}")(*args, **kwargs)
        ))  # fmt: skip

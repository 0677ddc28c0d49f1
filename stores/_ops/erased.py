"""People who were erased: their marks in the store, and those that a put is looked up by.

A mark is a token of a person, as the erasures of a vault have it. Where it is made with a key, it says so, so that both
kinds can stand side by side while a store is being sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stepvault._core.people import digest_of, named_in
from stepvault._core.plan import Op
from stepvault.stores._dialect import keyed_mark
from stepvault.stores._ops.context import Scope
from stepvault.stores._ops.namespaces import ns_of


def people_in(scope: Scope, namespaces: Iterable[bytes]) -> list[bytes]:
    """Marks of everybody whose items may be in these namespaces."""
    found = {name for ns in namespaces for name in named_in(scope.core.subject_patterns, ns_of(ns))}
    digests = [digest_of(scope.tenant, name.encode("utf-8", "surrogatepass")) for name in found]
    marks = scope.core.seen.marks
    return digests if marks is None else [keyed_mark(marks.mark(scope.tenant, digest)) for digest in digests]


def set_erased(scope: Scope, tokens: Sequence[bytes], *, erased: bool) -> Op[None]:
    """Refuse what is put for people from here on, or accept it again."""
    marks = list(tokens) if scope.core.seen.marks is None else [keyed_mark(token) for token in tokens]
    yield from scope.core.dialect.set_erased(scope.tenant, marks, erased=erased)

"""Spaces of docs: each tenant has its own of each name."""

from __future__ import annotations

from collections.abc import Sequence

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops.context import Scope

_TOGETHER = 1000  # docs that one step drops


def space(scope: Scope, name: str) -> bytes:
    """A space of docs of this tenant."""
    return name.encode() + b"\x00" + scope.tenant


def drop_docs(scope: Scope, name: str, keys: Sequence[bytes]) -> Op[None]:
    """Drop docs, whatever they are."""
    for start in range(0, len(keys), _TOGETHER):
        gone = [DocChange(key, None, b"") for key in keys[start : start + _TOGETHER]]
        yield from scope.core.dialect.write_docs(space(scope, name), gone)


def is_of_tenant(name: bytes) -> bool:
    """Whether a space is one of `space`."""
    return b"\x00" in name


def tenant_of(name: bytes) -> bytes:
    """Whose space it is."""
    return name.partition(b"\x00")[2]

"""Spaces of docs: each tenant has its own of each name."""

from __future__ import annotations

from stepvault.checkpointers._ops.context import Scope


def space(scope: Scope, name: str) -> bytes:
    """A space of docs of this tenant."""
    return name.encode() + b"\x00" + scope.tenant


def is_of_tenant(name: bytes) -> bool:
    """Whether a space is one of `space`."""
    return b"\x00" in name


def tenant_of(name: bytes) -> bytes:
    """Whose space it is."""
    return name.partition(b"\x00")[2]

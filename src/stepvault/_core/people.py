"""Whose data something is: what stands for a person, and which namespaces name them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

from stepvault._core.labels import owner_of

HOLE = "{subject}"


def digest_of(tenant: bytes, subject: bytes) -> bytes:
    """Sixteen bytes that stand for a person of a tenant, before they are marked."""
    return hashlib.blake2b(subject, digest_size=16, key=_key_of(tenant)).digest()


@lru_cache(1024)
def _key_of(tenant: bytes) -> bytes:
    return hashlib.blake2b(tenant, digest_size=32).digest()


def named_by(pattern: Sequence[str], namespace: Sequence[str]) -> Iterator[str]:
    """The id that fills a pattern so that a namespace begins with it, if there is one."""
    if len(namespace) < len(pattern):
        return
    named: set[str] = set()
    for part, label in zip(pattern, namespace, strict=False):
        before, hole, after = part.partition(HOLE)
        if not hole:
            if part != label:
                return
        elif len(label) > len(before) + len(after) and label.startswith(before) and label.endswith(after):
            named.add(label[len(before) : len(label) - len(after)])
        else:
            return
    if len(named) == 1:
        yield named.pop()


def named_in(patterns: Sequence[Sequence[str]] | None, namespace: Sequence[str]) -> list[str]:
    """Every id that may be a person's in a namespace: without patterns, each label.

    Memories are their owner's, whatever the patterns say.
    """
    owner = owner_of(namespace)
    found = [] if owner is None else [owner]
    if patterns is None:
        found += namespace if owner is None else namespace[2:]
    else:
        found += [subject for pattern in patterns for subject in named_by(pattern, namespace)]
    return list(dict.fromkeys(found))

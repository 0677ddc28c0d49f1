"""Who a sealed payload is: the name of its row and column, as the tuple that its seal is bound to.

Tables have their logical names here, threads their uid, so a prefix or a renumbered row changes nothing. Together
with the `scope` (deployment, tenant, owner) an identity names one payload of the whole system. Append-only: a changed
tuple makes stored payloads unreadable. Nothing that changes during a row's life belongs here.
"""

from __future__ import annotations

import struct
from typing import TypeAlias

from stepvault._core.crypto import frame

Identity: TypeAlias = tuple[bytes, ...]

_number = struct.Struct(">q").pack


def scope(deployment: bytes, tenant: bytes, owner: bytes) -> bytes:
    """Where the identities of one owner (a thread's uid, a subject's token) are valid."""
    return frame((deployment, tenant, owner))


def thread_id() -> Identity:
    """The real id of a thread, whose row is found by a token of it."""
    return (b"thread", b"id")


def thread_subjects() -> Identity:
    """The real names of a thread's subjects."""
    return (b"thread", b"subjects")


def checkpoint_body(ns: bytes, checkpoint: bytes) -> Identity:
    return (b"checkpoint", b"body", ns, checkpoint)


def write_body(ns: bytes, checkpoint: bytes, task: bytes, k: int) -> Identity:
    return (b"write", b"body", ns, checkpoint, task, _number(k))


def chunk(first: int, count: int) -> Identity:
    """A row of elements `first .. first + count - 1`."""
    return (b"chunk", b"body", _number(first), _number(count))


def item(column: bytes, namespace: bytes, key: bytes) -> Identity:
    """A column of a store item: `value`, `names` (its real namespace and key), `text`."""
    return (b"item", column, namespace, key)


def vector(namespace: bytes, key: bytes, path: bytes) -> Identity:
    """The embedding of one field of a store item."""
    return (b"vector", b"values", namespace, key, path)


def note(key: bytes) -> Identity:
    """A small record of a thread: an interrupt with its decision, an effect."""
    return (b"note", b"body", key)


def doc(space: bytes, key: bytes) -> Identity:
    """A small record outside threads."""
    return (b"doc", b"body", space, key)

"""Where started effects are found: a hint for each, outside its thread."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import ormsgpack

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.spaces import drop_docs, space

PREFIX = b"e"  # of the notes of effects
SPACE = "effects"


def restore_hints(scope: Scope, thread: ThreadKey, keys: Sequence[bytes]) -> Op[None]:
    """Make effects findable."""
    version = scope.core.random(8)
    changes = [DocChange(_hint(scope, thread, key), ormsgpack.packb([thread.thread, key]), version) for key in keys]
    if changes:
        yield from scope.core.dialect.write_docs(space(scope, SPACE), changes)


def drop_hints(scope: Scope, thread: ThreadKey, keys: Sequence[bytes]) -> Op[None]:
    """Let effects be found no more: they are done, or gone."""
    yield from drop_hints_of(scope, [(thread, key) for key in keys])


def drop_hints_of(scope: Scope, effects: Iterable[tuple[ThreadKey, bytes]]) -> Op[None]:
    """The same for effects of several threads."""
    yield from drop_docs(scope, SPACE, [_hint(scope, thread, key) for thread, key in effects])


def _hint(scope: Scope, thread: ThreadKey, key: bytes) -> bytes:
    return scope.mark(hashlib.blake2b(thread.thread, digest_size=16).digest()) + key

"""Erasure requests as docs: kept by compare-and-set, changed by whoever works on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.inbox.entries import moment
from stepvault.checkpointers._ops.spaces import space
from stepvault.erasure import ErasureRequest, PurgeStep
from stepvault.errors import ConfigurationError

SPACE = "erasures"


@dataclass(frozen=True, slots=True)
class Request:
    """What is kept of an erasure. The subject's name goes when the receipt is written; the token stays."""

    id: str
    state: str
    subject: str | None
    token: bytes
    shared: str
    reason: str | None
    requested: int
    tombstoned: int = 0
    verified: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    purge: list[list[Any]] = field(default_factory=list)
    receipt: dict[str, Any] | None = None

    def shown(self) -> ErasureRequest:
        """As users see it."""
        steps = [PurgeStep(*step) for step in self.purge]
        return ErasureRequest(self.id, self.state, moment(self.requested), dict(self.counts), steps, self.receipt)


def create(scope: Scope, request: Request) -> Op[Request]:
    """Keep a new request."""
    change = DocChange(request.id.encode(), _pack(scope, request), scope.core.random(8), None)
    yield from scope.core.dialect.write_docs(space(scope, SPACE), [change], durable=True)
    return request


def get(scope: Scope, request_id: str) -> Op[Request]:
    """A request by its id.

    Raises:
        ConfigurationError: There is none.
    """
    docs = yield from scope.core.dialect.get_docs(space(scope, SPACE), [request_id.encode()])
    if not docs:
        raise ConfigurationError(f"No erasure has the id {request_id!r}.")
    return _unpack(scope, docs[0].body)


def every(scope: Scope) -> Op[list[Request]]:
    """All requests, oldest first."""
    found: list[Request] = []
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, SPACE), b"", after, 100)
        found += [_unpack(scope, doc.body) for doc in docs]
        if len(docs) < 100:
            return sorted(found, key=lambda request: request.requested)
        after = docs[-1].key


def change(scope: Scope, request_id: str, alter: Callable[[Request], Request]) -> Op[Request]:
    """Change a request as it now is."""
    while True:
        docs = yield from scope.core.dialect.get_docs(space(scope, SPACE), [request_id.encode()])
        if not docs:
            raise ConfigurationError(f"No erasure has the id {request_id!r}.")
        request = alter(_unpack(scope, docs[0].body))
        update = DocChange(docs[0].key, _pack(scope, request), scope.core.random(8), docs[0].version)
        if (yield from scope.core.dialect.write_docs(space(scope, SPACE), [update], durable=True)):
            return request


def _pack(scope: Scope, request: Request) -> bytes:
    return scope.native.dumps(asdict(request))


def _unpack(scope: Scope, body: bytes) -> Request:
    return Request(**scope.native.loads(body))

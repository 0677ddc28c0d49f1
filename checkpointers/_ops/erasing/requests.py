"""Erasure requests as docs: kept by compare-and-set, changed by whoever works on them.

Beside the requests stand two kinds of marks: the request that is open for a person, so that there is one at a time,
and the receipts some of whose purge steps are to be tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from stepvault._core.plan import Op
from stepvault._core.rows import DocChange
from stepvault._core.serde.scrubbing import Path
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.inbox.entries import moment
from stepvault.checkpointers._ops.spaces import space
from stepvault.erasure import ErasureRequest, PurgeStep
from stepvault.errors import ConfigurationError

SPACE = "erasures"
_REQUEST, _OPEN, _UNPURGED = b"r", b"o", b"p"
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Request:
    """What is kept of an erasure. The subject's names go before the purge, so that they leave files with it.

    What the receipt says of them, and where questions to them are listed, is worked out by then; their tokens stay.
    """

    id: str
    state: str
    subjects: list[str]
    tokens: list[bytes]
    shared: str
    reason: str | None
    requested: int
    tombstoned: int = 0
    verified: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    unattributed: dict[str, int | None] = field(default_factory=dict)
    hooks: dict[str, bool] = field(default_factory=dict)
    purge: list[list[Any]] = field(default_factory=list)
    receipt: dict[str, Any] | None = None
    follow_ups: list[dict[str, Any]] = field(default_factory=list)
    own: str = "erase"  # what becomes of threads that are theirs alone
    salts: list[str] = field(default_factory=list)
    commitments: list[str] = field(default_factory=list)
    lists: list[bytes] = field(default_factory=list)  # of the inbox
    leaving: list[list[Any]] = field(default_factory=list)  # threads that go, see `leaving`
    fields: list[list[Any]] = field(default_factory=list)  # declared ones, for whoever goes on: path, what to put there

    @property
    def declared(self) -> dict[Path, bytes | None]:
        """Its declared fields, as a scrubber takes them."""
        return {tuple(path): packed for path, packed in self.fields}

    @property
    def steps(self) -> list[PurgeStep]:
        """Its purge steps."""
        return [PurgeStep(*step) for step in self.purge]

    def shown(self) -> ErasureRequest:
        """As users see it."""
        return ErasureRequest(
            self.id, self.state, moment(self.requested), dict(self.counts), self.steps, dict(self.hooks), self.receipt,
            list(self.follow_ups),
        )  # fmt: skip


def create(scope: Scope, request: Request) -> Op[Request]:
    """Keep a new request; or give the one that is open for this person."""
    while True:
        version = scope.core.random(8)
        changes = [DocChange(_OPEN + token, request.id.encode(), version, None) for token in request.tokens]
        changes.append(DocChange(_REQUEST + request.id.encode(), _pack(scope, request), version, None))
        if (yield from scope.core.dialect.write_docs(space(scope, SPACE), changes, durable=True)):
            return request
        found = yield from open_of(scope, request.tokens)
        if found is not None:
            return found


def open_of(scope: Scope, tokens: Sequence[bytes]) -> Op[Request | None]:
    """The request that is open for one of these ids, if there is one."""
    docs = yield from scope.core.dialect.get_docs(space(scope, SPACE), [_OPEN + token for token in tokens])
    return (yield from get(scope, docs[0].body.decode())) if docs else None


def get(scope: Scope, request_id: str) -> Op[Request]:
    """A request by its id.

    Raises:
        ConfigurationError: There is none.
    """
    key = request_id.encode("utf-8", "surrogatepass") if isinstance(request_id, str) else b""
    docs = yield from scope.core.dialect.get_docs(space(scope, SPACE), [_REQUEST + key])
    if not docs:
        raise ConfigurationError(f"No erasure has the id {request_id!r}.")
    return _unpack(scope, docs[0].body)


def unfinished(scope: Scope) -> Op[list[str]]:
    """Ids of the requests that have no receipt yet."""
    return (yield from _marked(scope, _OPEN))


def unpurged(scope: Scope) -> Op[list[str]]:
    """Ids of the requests with purge steps to be tried again."""
    return (yield from _marked(scope, _UNPURGED))


def _marked(scope: Scope, prefix: bytes) -> Op[list[str]]:
    found: dict[str, None] = {}
    after = b""
    while True:
        docs = yield from scope.core.dialect.docs(space(scope, SPACE), prefix, after, _PAGE)
        found.update(dict.fromkeys(doc.body.decode() for doc in docs))
        if len(docs) < _PAGE:
            return list(found)
        after = docs[-1].key


def change(scope: Scope, request_id: str, alter: Callable[[Request], Request], *, durable: bool = True) -> Op[Request]:
    """Change a request as it now is; its marks follow its state in the same step."""
    while True:
        docs = yield from scope.core.dialect.get_docs(space(scope, SPACE), [_REQUEST + request_id.encode()])
        if not docs:
            raise ConfigurationError(f"No erasure has the id {request_id!r}.")
        before = _unpack(scope, docs[0].body)
        request = alter(before)
        version = scope.core.random(8)
        changes = [DocChange(docs[0].key, _pack(scope, request), version, docs[0].version)]
        if request.state == "receipted":
            if before.state != "receipted":
                marks = yield from scope.core.dialect.get_docs(space(scope, SPACE), [_OPEN + t for t in request.tokens])
                mine = [mark for mark in marks if mark.body.decode() == request.id]
                changes += [DocChange(mark.key, None, b"", mark.version) for mark in mine]
            left = any(step.retryable and not step.done for step in request.steps)
            mark = _UNPURGED + request.id.encode()
            changes.append(DocChange(mark, request.id.encode() if left else None, version if left else b""))
        if (yield from scope.core.dialect.write_docs(space(scope, SPACE), changes, durable=durable)):
            return request


def widen(scope: Scope, current: Request, ids: Mapping[bytes, str]) -> Op[Request]:
    """Take more ids of the person into a request that has not begun; a request of their own may be open beside it."""

    def alter(present: Request) -> Request:
        new = [(mark, name) for mark, name in ids.items() if mark not in present.tokens]
        if present.state != "received" or not new:
            return present
        tokens, names = zip(*new, strict=True)
        return replace(present, tokens=[*present.tokens, *tokens], subjects=[*present.subjects, *names])

    return (yield from change(scope, current.id, alter))


def _pack(scope: Scope, request: Request) -> bytes:
    return scope.native.dumps({one.name: getattr(request, one.name) for one in fields(request)})


def _unpack(scope: Scope, body: bytes) -> Request:
    return Request(**scope.native.loads(body))

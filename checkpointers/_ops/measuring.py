"""How much a database holds, and how it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepvault._core.ids import text_of
from stepvault._core.plan import Op
from stepvault.checkpointers._ops import overview, sweeping
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing import requests
from stepvault.checkpointers._ops.expiry import SPACE
from stepvault.checkpointers._ops.inbox.entries import moment
from stepvault.checkpointers._ops.overview import ThreadInfo
from stepvault.checkpointers._ops.spaces import space
from stepvault.errors import ConfigurationError
from stepvault.overview import Health, Stats, StatsBy

_PAGE, _MOST = 200, 1000
_BY = ("tenant", "subject", "thread", "status")


def stats(scope: Scope, by: StatsBy) -> Op[list[Stats]]:
    """Sums over threads, the largest first. Without a tenant of its own, a view sums up every tenant's."""
    if by not in _BY:
        raise ConfigurationError(f"by must be one of {', '.join(_BY)}, not {by!r}.")
    sums: dict[str | None, list[int]] = {}
    tenants = (yield from scope.core.dialect.tenants()) if by == "tenant" and not scope.tenant else [scope.tenant]
    for tenant in tenants:
        cursor: str | None = None
        while True:
            page = yield from overview.threads(replace(scope, tenant=tenant), None, _PAGE, cursor)
            for info in page.threads:
                for name in _names(by, text_of(tenant), info):
                    _add(sums.setdefault(name, [0, 0, 0]), info)
            if (cursor := page.cursor) is None:
                break
    found = [Stats(name, *counts) for name, counts in sums.items()]
    return sorted(found, key=lambda one: one.bytes, reverse=True)


def _names(by: StatsBy, tenant: str, info: ThreadInfo) -> Sequence[str | None]:
    if by == "subject":
        return info.subjects or (None,)
    return ({"tenant": tenant, "thread": info.thread_id, "status": info.status}[by],)


def _add(counts: list[int], info: ThreadInfo) -> None:
    counts[0] += 1
    counts[1] += info.checkpoints
    counts[2] += info.bytes


def health(scope: Scope, free_disk: int | None) -> Op[Health]:
    """How a database does that answers: what waits to be done in it."""
    now = yield from scope.core.dialect.now()
    overdue = 0
    for one in (yield from sweeping.swept(scope)):
        docs = yield from scope.core.dialect.docs(space(one, SPACE), b"", b"", _MOST - overdue)
        overdue += sum(int.from_bytes(doc.key[:8], "big") <= now for doc in docs)
        if overdue >= _MOST:
            break
    erasures = unpurged = 0
    for one in (yield from _erasing(scope)):
        erasures += len((yield from requests.unfinished(one)))
        unpurged += len((yield from requests.unpurged(one)))
    return Health(
        reachable=True,
        clock=moment(now),
        free_disk=free_disk,
        overdue=overdue,
        erasures=erasures,
        unpurged=unpurged,
        sealed=scope.core.keys is not None,
        warnings=tuple((yield from scope.core.dialect.warnings())),
    )


def _erasing(scope: Scope) -> Op[list[Scope]]:
    """This view, or a view of each tenant that anybody was erased of."""
    if scope.tenant:
        return [scope]
    tenants = yield from scope.core.dialect.tenants_with(requests.SPACE.encode())
    return [replace(scope, tenant=tenant) for tenant in tenants]

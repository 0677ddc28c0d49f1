"""Rotation: rewrapping every data key under the primary key-encryption key, while the app runs.

A page is one transaction of compare-and-set updates, so it may be killed anywhere, repeated, or run by several
processes at once: a row is under its old key or under the new one, and what is left is found again by asking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from stepvault._core.keys import DataKey, Draft
from stepvault._core.plan import Op
from stepvault._core.wrapping import Wrapper
from stepvault._keystore.store import START, KeyStore
from stepvault.errors import ConfigurationError, KeyNotFoundError, WrongKeyError

PAGE = 500


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a rotation got.

    Attributes:
        rewrapped: Data keys that this run moved to the primary key.
        failed: Data keys that do not open with the key they name; they were left as they are.
        after: Where the next page starts; None at the end.
        problem: Says which data key was the first to fail.
    """

    rewrapped: int = 0
    failed: int = 0
    after: bytes | None = START
    problem: str | None = None


def rotate(
    store: KeyStore, wrapper: Wrapper, report: Callable[[Progress], None] | None = None, *, page: int = PAGE
) -> Op[Progress]:
    """Rewrap until every live data key is under the primary key.

    Raises:
        ConfigurationError: The primary key was retired by an earlier rotation.
        KeyNotFoundError: Data keys are under a key that the keyring does not have; nothing was changed.
        WrongKeyError: Some do not open with the key they name; the others were rewrapped.
    """
    yield from check(store, wrapper)
    progress = Progress()
    while progress.after is not None:
        progress = yield from rewrap_page(store, wrapper, progress, page)
        if report is not None:
            report(progress)
    if progress.problem is not None:
        raise WrongKeyError(f"{progress.failed} data keys could not be rewrapped. {progress.problem}")
    return progress


def destroy_old(
    store: KeyStore, wrapper: Wrapper, report: Callable[[Progress], None] | None = None, *, page: int = PAGE
) -> Op[list[str]]:
    """Make every other key-encryption key useless; returns the ids that can now be destroyed where they are kept.

    Retires them first: a process that still has an old primary key can store nothing new under it.

    Raises:
        As `rotate`.
    """
    yield from check(store, wrapper)
    uses = yield from store.uses()
    old = sorted({*wrapper.old(), *(use.kek for use in uses)} - {wrapper.primary})
    if old:
        yield from store.retire(old)
    yield from rotate(store, wrapper, report, page=page)
    left = [use for use in (yield from store.uses()) if use.kek != wrapper.primary]
    if left:
        raise ConfigurationError(f"Data keys are still being wrapped by {left[0].kek!r}; rotate again.")
    return old


def check(store: KeyStore, wrapper: Wrapper) -> Op[None]:
    """Whether a rotation can succeed; see `rotate`."""
    if wrapper.primary in (yield from store.retired()):
        raise ConfigurationError(f"Key {wrapper.primary!r} was retired by a rotation; make a fresh primary key.")
    missing = [use for use in (yield from store.uses()) if not wrapper.can_open(use.kek)]
    if missing:
        raise KeyNotFoundError(
            f"{missing[0].keys} data keys are wrapped by {missing[0].kek!r}, which is not in the keyring; add it."
        )


def rewrap_page(store: KeyStore, wrapper: Wrapper, progress: Progress, limit: int = PAGE) -> Op[Progress]:
    """Rewrap the next data keys."""
    assert progress.after is not None
    page = yield from store.page(wrapper.primary, progress.after, limit)
    drafts, problems = yield from _opened(wrapper, page.rows)
    fresh = yield from wrapper.wrap([draft for _, draft in drafts])
    changes = [(row, new) for (row, _), new in zip(drafts, fresh, strict=True)]
    rewrapped = (yield from store.rewrap(changes)) if changes else 0
    return replace(
        progress,
        rewrapped=progress.rewrapped + rewrapped,
        failed=progress.failed + len(problems),
        after=page.after,
        problem=progress.problem or next(iter(problems), None),
    )


def _opened(wrapper: Wrapper, rows: Sequence[DataKey]) -> Op[tuple[list[tuple[DataKey, Draft]], list[str]]]:
    """The keys of a page; a bad one costs the page's speed, not the page."""
    try:
        secrets = yield from wrapper.unwrap(rows)
        return [(row, Draft(row.owner, row.gen, secrets[row.id])) for row in rows], []
    except WrongKeyError as exc:
        if len(rows) == 1:
            return [], [str(exc)]
    opened: list[tuple[DataKey, Draft]] = []
    problems: list[str] = []
    for row in rows:
        good, bad = yield from _opened(wrapper, [row])
        opened += good
        problems += bad
    return opened, problems

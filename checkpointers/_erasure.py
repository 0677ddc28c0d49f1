"""`vault.erasure`: forgetting one person, with proof; sync and async."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from langgraph.store.base import BaseStore

from stepvault._core.ids import text_of
from stepvault._core.people import checked_patterns
from stepvault._core.plan import Op
from stepvault.checkpointers._erasing_options import (
    check_file,
    checked_fields,
    checked_hooks,
    checked_issuer,
    checked_reason,
)
from stepvault.checkpointers._journal import Journal
from stepvault.checkpointers._ops.erasing import exporting, planning, receipts, requests, returning, steps
from stepvault.checkpointers._ops.erasing.items import Items
from stepvault.checkpointers._ops.erasing.requests import Request
from stepvault.checkpointers._ops.erasing.steps import Eraser
from stepvault.erasure import ErasurePlan, ErasureRequest, SigningKey
from stepvault.errors import ConfigurationError, HoldError, StepvaultError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver


class Erasure:
    """Erases people from the threads, inbox and memory of one tenant.

    An erasure is kept in the database as it goes. If it is killed, `resume()` in any process brings it to its end;
    the same call again does no harm.

    Args:
        saver: Whose threads.
        store: Whose items; None if there is no store.
        subject_patterns: Namespaces that belong to a person, such as `("users", "u-{subject}")`; by default every
            namespace with a label equal to their id.
        journal: A file outside the database to which tombstones are also written; `reconcile()` reads it after a
            restore.
        issuer: Who erases, as receipts say.
        hooks: Outside systems to tell, by name: functions of the list of the person's ids, called after their data is
            deleted. One that raises is tried again at once, three times in all; the receipt says which were told.
        personal_fields: Fields of the state that are personal, for threads that are anonymised: names or dotted
            paths, matched from the end (`"email"`, `"customer.name"`). As a mapping, each with what takes its place;
            None, as for a plain list, blanks what is in it.
        vacuum: Have purges rewrite files too, which holds others up meanwhile: VACUUM on SQLite, VACUUM FULL and
            CHECKPOINT on Postgres, BGREWRITEAOF and BGSAVE on Redis. What the role may not do is reported.
    """

    def __init__(
        self,
        saver: BaseSaver,
        store: BaseStore | None = None,
        *,
        subject_patterns: Sequence[Sequence[str]] | None = None,
        journal: str | os.PathLike[str] | None = None,
        issuer: str = "stepvault",
        hooks: Mapping[str, Callable[[list[str]], Any]] | None = None,
        personal_fields: Iterable[str] | Mapping[str, Any] = (),
        vacuum: bool = False,
    ) -> None:
        self._saver = saver
        self._journal = Journal(journal) if journal is not None else None
        self._eraser = Eraser(
            Items(store, checked_patterns(subject_patterns)),
            self._journal.append if self._journal is not None else None,
            checked_issuer(issuer),
            checked_hooks(hooks),
            progress=self._tell,
            fields=checked_fields(personal_fields),
            vacuum=vacuum,
        )

    def plan(self, subject: str, *, derived: bool = False) -> ErasurePlan:
        """What an erasure of this person would touch; changes nothing.

        Args:
            subject: The person.
            derived: Also look through the whole store for items elsewhere that runs of their threads wrote.
        """
        return self._saver._run(planning.plan(self._saver._scope, subject, self._eraser.items, derived=derived))

    async def aplan(self, subject: str, *, derived: bool = False) -> ErasurePlan:
        """Async version of `plan`."""
        return await self._saver._arun(planning.plan(self._saver._scope, subject, self._eraser.items, derived=derived))

    def erase(
        self,
        subject: str,
        *,
        shared: str = "keep",
        reason: str | None = None,
        plan: ErasurePlan | None = None,
        progress: Callable[[ErasureRequest], None] | None = None,
    ) -> ErasureRequest:
        """Erase a person: tombstone, delete, purge, verify, receipt. Idempotent, resumable.

        Args:
            subject: The person, by any of their ids.
            shared: What becomes of threads that belong to others too: `"keep"` takes the person's name off them,
                `"anonymise"` also what they say of the person (see `anonymise`), `"erase"` removes them.
            reason: Why, for your own records; it is kept with the request.
            plan: Refuse if the data is not what was planned.
            progress: Called as counts and state change.

        Raises:
            HoldError: A hold stands against it.
            PlanStaleError: The data changed since `plan`.
        """
        return self._saver._run(self._erase(subject, shared, reason, plan, progress))

    async def aerase(
        self,
        subject: str,
        *,
        shared: str = "keep",
        reason: str | None = None,
        plan: ErasurePlan | None = None,
        progress: Callable[[ErasureRequest], None] | None = None,
    ) -> ErasureRequest:
        """Async version of `erase`."""
        return await self._saver._arun(self._erase(subject, shared, reason, plan, progress))

    def anonymise(
        self,
        subject: str,
        *,
        reason: str | None = None,
        plan: ErasurePlan | None = None,
        progress: Callable[[ErasureRequest], None] | None = None,
    ) -> ErasureRequest:
        """Erase a person and keep their threads, shared or not, so that graphs can go on with them.

        In each thread's whole history, its pending writes, questions, decisions and effects, what messages say,
        `personal_fields` and the person's ids are replaced by `[erased]`. The threads' own memory is deleted. The
        rest is as for `erase`: tombstone, memory, hooks, purge, receipt.

        Raises:
            HoldError: A hold stands against it.
            PlanStaleError: The data changed since `plan`.
        """
        return self._saver._run(self._erase(subject, "anonymise", reason, plan, progress, "anonymise"))

    async def aanonymise(
        self,
        subject: str,
        *,
        reason: str | None = None,
        plan: ErasurePlan | None = None,
        progress: Callable[[ErasureRequest], None] | None = None,
    ) -> ErasureRequest:
        """Async version of `anonymise`."""
        return await self._saver._arun(self._erase(subject, "anonymise", reason, plan, progress, "anonymise"))

    def _erase(
        self,
        subject: str,
        shared: str,
        reason: str | None,
        plan: ErasurePlan | None,
        progress: Callable[[ErasureRequest], None] | None,
        own: str = "erase",
    ) -> Op[ErasureRequest]:
        scope, eraser = self._saver._scope, self._telling(progress)
        if plan is not None and not isinstance(plan, ErasurePlan):
            raise ConfigurationError(f"plan must be what plan() returned, not {type(plan).__name__}.")
        while True:
            request = yield from steps.request(scope, eraser, subject, shared, reason, plan, own)
            done = yield from steps.advance(scope, eraser, request.id)
            if (yield from steps.covers(scope, subject, shared, own, done)):
                return done.shown()

    def _telling(self, progress: Callable[[ErasureRequest], None] | None) -> Eraser:
        if progress is None:
            return self._eraser
        if not callable(progress):
            raise ConfigurationError(f"progress must be a function of the request, not {type(progress).__name__}.")

        def told(request: Request) -> None:
            self._tell(request)
            progress(request.shown())

        return replace(self._eraser, progress=told)

    def _tell(self, request: Request) -> None:
        self._saver._scope.tell("erasure", request.state, request_id=request.id, numbers=dict(request.counts))

    def erase_many(
        self,
        subjects: Iterable[str],
        *,
        shared: str = "keep",
        reason: str | None = None,
        progress: Callable[[ErasureRequest], None] | None = None,
        own: str = "erase",
    ) -> list[ErasureRequest | StepvaultError]:
        """Erase several people with one purge for all; what became of each, in order: the request, or why not.

        Args:
            subjects: The people.
            shared: As for `erase`.
            reason: As for `erase`.
            progress: As for `erase`.
            own: What becomes of threads that are theirs alone: `"erase"`, or `"anonymise"`.
        """
        return self._saver._run(self._erase_many(subjects, shared, reason, progress, own))

    async def aerase_many(
        self,
        subjects: Iterable[str],
        *,
        shared: str = "keep",
        reason: str | None = None,
        progress: Callable[[ErasureRequest], None] | None = None,
        own: str = "erase",
    ) -> list[ErasureRequest | StepvaultError]:
        """Async version of `erase_many`."""
        return await self._saver._arun(self._erase_many(subjects, shared, reason, progress, own))

    def _erase_many(
        self,
        subjects: Iterable[str],
        shared: str,
        reason: str | None,
        progress: Callable[[ErasureRequest], None] | None,
        own: str,
    ) -> Op[list[ErasureRequest | StepvaultError]]:
        scope, found, eraser = self._saver._scope, list[Any](), self._telling(progress)
        if isinstance(subjects, (str, bytes)) or not isinstance(subjects, Iterable):
            raise ConfigurationError("erase_many takes a list of people; for one person, call erase.")
        asked = list(subjects)
        for subject in asked:
            try:
                request = yield from steps.request(scope, eraser, subject, shared, reason, None, own)
                found.append((yield from steps.advance(scope, eraser, request.id, until="told")))
            except StepvaultError as exc:
                found.append(exc)
        if all(isinstance(one, StepvaultError) for one in found):
            return found
        eraser = replace(eraser, purged=(yield from self._eraser.purge(scope)))
        for n, (subject, request) in enumerate(zip(asked, found, strict=True)):
            if not isinstance(request, StepvaultError):
                try:
                    done = yield from steps.advance(scope, eraser, request.id)
                    covered = yield from steps.covers(scope, subject, shared, own, done)
                    again = self._erase(subject, shared, reason, None, progress, own)
                    found[n] = done.shown() if covered else (yield from again)
                except StepvaultError as exc:
                    found[n] = exc
        return found

    def status(self, request_id: str) -> ErasureRequest:
        """How far an erasure is, with its receipt at the end."""
        return self._saver._run(self._status(request_id))

    async def astatus(self, request_id: str) -> ErasureRequest:
        """Async version of `status`."""
        return await self._saver._arun(self._status(request_id))

    def _status(self, request_id: str) -> Op[ErasureRequest]:
        return (yield from requests.get(self._saver._scope, request_id)).shown()

    def receipts(self) -> list[dict[str, Any]]:
        """Every receipt of this tenant in the order of their numbers: whole even where somebody kept none."""
        return self._saver._run(receipts.every(self._saver._scope))

    async def areceipts(self) -> list[dict[str, Any]]:
        """Async version of `receipts`."""
        return await self._saver._arun(receipts.every(self._saver._scope))

    def resume(self) -> list[ErasureRequest]:
        """Bring every unfinished erasure to its end, and try open purge steps of finished ones again.

        One that a hold stops is returned as it is.
        """
        return self._saver._run(self._resume())

    async def aresume(self) -> list[ErasureRequest]:
        """Async version of `resume`."""
        return await self._saver._arun(self._resume())

    def _resume(self) -> Op[list[ErasureRequest]]:
        scope, done = self._saver._scope, []
        for request_id in (yield from requests.unfinished(scope)):
            try:
                done.append((yield from steps.advance(scope, self._eraser, request_id)).shown())
            except HoldError:
                done.append((yield from requests.get(scope, request_id)).shown())
        for request_id in (yield from requests.unpurged(scope)):
            done.append((yield from steps.purge_again(scope, self._eraser, request_id)).shown())
        return done

    def hold(self, subject: str, reason: str) -> None:
        """Hold a person's data against erasure."""
        self._saver._run(planning.hold(self._saver._scope, subject, checked_reason(reason)))

    async def ahold(self, subject: str, reason: str) -> None:
        """Async version of `hold`."""
        await self._saver._arun(planning.hold(self._saver._scope, subject, checked_reason(reason)))

    def release(self, subject: str) -> None:
        """Lift a hold. Idempotent."""
        self._saver._run(planning.hold(self._saver._scope, subject, None))

    async def arelease(self, subject: str) -> None:
        """Async version of `release`."""
        await self._saver._arun(planning.hold(self._saver._scope, subject, None))

    def readmit(self, subject: str) -> None:
        """Let an erased person come back: what they write from now on is stored. Idempotent."""
        self._saver._run(returning.readmit(self._saver._scope, self._eraser, subject))

    async def areadmit(self, subject: str) -> None:
        """Async version of `readmit`."""
        await self._saver._arun(returning.readmit(self._saver._scope, self._eraser, subject))

    def public_key(self) -> str:
        """The key that new receipts are checked with: `verify_receipt(receipt, public_key)`. Publish it."""
        return self.signing_keys()[-1].public_key

    async def apublic_key(self) -> str:
        """Async version of `public_key`."""
        return (await self.asigning_keys())[-1].public_key

    def signing_keys(self) -> list[SigningKey]:
        """Every key that receipts of this tenant were signed with, oldest first. Publish them all."""
        return self._saver._run(receipts.keys(self._saver._scope))

    async def asigning_keys(self) -> list[SigningKey]:
        """Async version of `signing_keys`."""
        return await self._saver._arun(receipts.keys(self._saver._scope))

    def rotate_signing_key(self) -> list[SigningKey]:
        """Sign with a new key from now on; the private part of the one before is destroyed."""
        return self._saver._run(receipts.rotate(self._saver._scope))

    async def arotate_signing_key(self) -> list[SigningKey]:
        """Async version of `rotate_signing_key`."""
        return await self._saver._arun(receipts.rotate(self._saver._scope))

    def export(self, subject: str, file: IO[str]) -> int:
        """Write everything of a person as JSON Lines, page by page; how many lines.

        Each thread's checkpoints as they are (`checkpoint`), its memory (`item`), questions with their answers
        (`question`), recorded effects (`effect`), then what was said and done in it as typed steps (`step`, as
        `Run.steps` dumps them); then what the person decided, in others' threads too (`decision`), and items. Shared
        threads are included and say so. Values that JSON does not know are written as their `repr`. What cannot be
        read is named in lines of the kind `incomplete`.
        """
        check_file(file)
        at: exporting.Progress | None
        at, ids = self._saver._run(exporting.begin(self._saver._scope, subject))
        count = 0
        while at is not None:
            before = at.thread
            lines, at = self._saver._run(exporting.page(self._saver._scope, at, self._eraser.items, ids))
            count += _write(lines, file)
            if before is not None and at is not None and at.thread is None:
                for line in exporting.steps_of(self._saver, text_of(before.thread)):
                    count += _write([line], file)
        return count

    async def aexport(self, subject: str, file: IO[str]) -> int:
        """Async version of `export`."""
        check_file(file)
        at: exporting.Progress | None
        at, ids = await self._saver._arun(exporting.begin(self._saver._scope, subject))
        count = 0
        while at is not None:
            before = at.thread
            lines, at = await self._saver._arun(exporting.page(self._saver._scope, at, self._eraser.items, ids))
            count += _write(lines, file)
            if before is not None and at is not None and at.thread is None:
                async for line in exporting.asteps_of(self._saver, text_of(before.thread)):
                    count += _write([line], file)
        return count

    def reconcile(self) -> list[ErasureRequest]:
        """After a restore or a failover: put the tombstones of the journal back and delete what came back."""
        return self._saver._run(returning.reconcile(self._saver._scope, self._eraser, self._journaled()))

    async def areconcile(self) -> list[ErasureRequest]:
        """Async version of `reconcile`."""
        return await self._saver._arun(returning.reconcile(self._saver._scope, self._eraser, self._journaled()))

    def _journaled(self) -> list[dict[str, Any]]:
        tenant = self._saver._scope.tenant.hex()
        return [line for line in (self._journal.lines() if self._journal else ()) if line["tenant"] == tenant]


def _write(lines: list[dict[str, Any]], file: IO[str]) -> int:
    file.writelines(map(exporting.written, lines))
    return len(lines)

"""People with several ids, people of older data, and the index that finds them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from langgraph.store.memory import InMemoryStore

from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, hint
from stepvault.checkpointers._subjects import Subjects
from stepvault.errors import ConfigurationError, HoldError, SubjectErasedError
from tests.contract.building import config, put
from tests.contract.erasure.test_erasure import erasure_of, filled, names
from tests.contract.matrix import AsAsync, Database, InThreads


def subjects_of(saver: Any) -> Any:
    return InThreads(Subjects(saver.saver)) if isinstance(saver, AsAsync) else Subjects(saver)


async def test_linked_ids_are_one_person(database: Database) -> None:
    saver, store = await database.saver(), InMemoryStore()
    await filled(saver, ("ann", "ann@old", "a-17", "bob"))
    await put(saver, {"a": 1}, at=config("both", user_id=["ann", "a-17"]))
    store.put(("users", "a-17"), "k", {"v": 1})
    subjects, erasure = subjects_of(saver), erasure_of(saver, store=store)
    assert await subjects.alink("ann", "ann@old") == ("ann", "ann@old")
    assert await subjects.alink("a-17", "ann") == ("a-17", "ann", "ann@old")
    assert set(await subjects.aids("ann@old")) == {"a-17", "ann", "ann@old"}
    plan = await erasure.aplan("ann@old")
    assert {thread.thread_id: thread.shared for thread in plan.threads} == {
        "thread of ann": False, "thread of ann@old": False, "thread of a-17": False, "both": False,
    }  # fmt: skip
    out = io.StringIO()
    await erasure.aexport("ann", out)
    assert {json.loads(line)["kind"] for line in out.getvalue().splitlines()} == {
        "checkpoint",
        "step",
        "item",
    }
    await erasure.ahold("a-17", "case 12")
    with pytest.raises(HoldError):
        await erasure.aerase("ann")
    await erasure.arelease("ann")
    request = await erasure.aerase("ann", plan=await erasure.aplan("ann"))
    assert request.counts == {"threads": 4, "checkpoints": 4, "items": 1}
    assert len(request.receipt["receipt"]["subject_commitments"]) == 3
    assert await names(saver) == {"thread of bob", "nobody's"}
    for subject in ("ann", "ann@old", "a-17"):
        with pytest.raises(SubjectErasedError):
            await put(saver, {"a": 1}, at=config("new", user_id=subject))
        assert await subjects.aids(subject) == (subject,)
    with pytest.raises(SubjectErasedError):
        await subjects.alink("bob", "ann")
    assert b"ann@old" not in database.content()


async def test_older_threads_are_attributed_by_their_metadata(database: Database) -> None:
    saver = await database.saver()
    at = await put(saver, {"a": 1}, at=config("one"), metadata={"customer": "ann"})
    await put(saver, {"a": 2}, at=at, metadata={})
    await put(saver, {"a": 1}, at=config("two"), metadata={"customer": ["ann", "bob"]})
    await put(saver, {"a": 1}, at=config("three"), metadata={"customer": ""})
    await put(saver, {"a": 1}, at=config("four", user_id="carl"), metadata={"customer": "ann"})
    subjects = subjects_of(saver)
    dry = await subjects.aassign("customer", dry_run=True)
    assert (dry.threads, dry.without) == (2, 1)
    assert {person.subject for person in (await subjects.alist()).subjects} == {"carl"}
    assert await subjects.aassign("customer") == dry
    assert (await subjects.aassign("customer")).threads == 0
    found = {person.subject: person.threads for person in (await subjects.alist()).subjects}
    assert found == {"ann": 2, "bob": 1, "carl": 1}
    request = await erasure_of(saver).aerase("ann")
    assert request.counts == {"threads": 1, "checkpoints": 2, "shared": 1}
    assert await names(saver) == {"two", "three", "four"}


async def test_people_are_listed_page_by_page(database: Database) -> None:
    saver = await database.saver()
    await filled(saver, [f"p{n}" for n in range(7)])
    subjects = subjects_of(saver)
    found, cursor = [], None
    while True:
        page = await subjects.alist(limit=3, cursor=cursor)
        found += [person.subject for person in page.subjects]
        if (cursor := page.cursor) is None:
            break
    assert sorted(found) == [f"p{n}" for n in range(7)]
    for wrong in ({"limit": 0}, {"cursor": "x"}):
        with pytest.raises(ConfigurationError):
            await subjects.alist(**wrong)


@pytest.mark.parametrize("rebuild", [True, False])
async def test_an_index_that_was_lost_is_made_anew(rebuild: bool, database: Database) -> None:
    saver = await database.saver()
    await filled(saver)
    await lose_index(getattr(saver, "saver", saver), database.mode)
    subjects, erasure = subjects_of(saver), erasure_of(saver)
    assert (await subjects.alist()).subjects == []
    assert len((await erasure.aplan("ann")).threads) == 1, "a plan asks the threads themselves"
    if rebuild:
        assert await subjects.arebuild() == 2
        assert len((await subjects.alist()).subjects) == 2
    assert (await erasure.aerase("ann")).counts == {"threads": 1, "checkpoints": 1}
    assert await names(saver) == {"thread of bob", "nobody's"}


async def lose_index(saver: Any, mode: str) -> None:
    scope = saver._scope
    lost = [hint(scope, person, scope.key(f"thread of {person}"))._replace(body=None) for person in ("ann", "bob")]
    op = scope.core.dialect.write_docs(space(scope, SUBJECTS), lost)
    saver._run(op) if mode == "sync" else await saver._arun(op)


async def test_data_of_nobody_is_refused_where_somebody_must_be_named(database: Database) -> None:
    saver = await database.saver(require_subject=True, subject_key=("user_id", "tenant_user"))
    with pytest.raises(ConfigurationError, match="require_subject"):
        await put(saver, {"a": 1})
    with pytest.raises(ConfigurationError, match="require_subject"):
        await saver.aput_writes(config(checkpoint_id="c"), [("a", 1)], "task")
    at = await put(saver, {"a": 1}, at=config(tenant_user="ann"))
    await put(saver, {"a": 2}, at=at)  # the thread is hers
    assert [thread.subjects for thread in (await saver.athreads()).threads] == [("ann",)]
    assert (await erasure_of(saver).aplan("ann")).unattributed == 0


async def test_erasing_several_purges_once_and_says_what_became_of_each(database: Database) -> None:
    saver = await database.saver()
    await filled(saver, ("ann", "bob", "carl"))
    erasure = erasure_of(saver)
    await erasure.ahold("bob", "case 12")
    ann, bob, carl = await erasure.aerase_many(["ann", "bob", "carl"])
    assert (ann.state, carl.state) == ("receipted", "receipted")
    assert isinstance(bob, HoldError)
    assert await names(saver) == {"thread of bob", "nobody's"}
    assert [request.receipt["receipt"]["number"] for request in (ann, carl)] == [1, 2]

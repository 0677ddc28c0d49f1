"""People with several ids, people of older data, and the index that finds them."""

from __future__ import annotations

import io
import json
import sys
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.types import interrupt

from stepvault import Vault
from stepvault._upkeep import copy_over
from stepvault.checkpointers._erasure import Erasure
from stepvault.checkpointers._inbox import Inbox
from stepvault.checkpointers._ops import people
from stepvault.checkpointers._ops.erasing import steps, stones
from stepvault.checkpointers._ops.spaces import space
from stepvault.checkpointers._ops.subjects import SUBJECTS, hint, token
from stepvault.checkpointers._subjects import Subjects
from stepvault.errors import ConfigurationError, HoldError, IdentifierError, SubjectErasedError
from tests.contract.building import config, put
from tests.contract.erasure.test_erasure import erasure_of, filled, names
from tests.contract.matrix import AsAsync, Database, InThreads


class Person(str, Enum):
    ANN = "ann"


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
    assert {person.subject for person in await subjects.alist()} == {"carl"}
    assert await subjects.aassign("customer") == dry
    assert (await subjects.aassign("customer")).threads == 0
    found = {person.subject: person.threads for person in (await subjects.alist()).subjects}
    assert found == {"ann": 2, "bob": 1, "carl": 1}
    request = await erasure_of(saver).aerase("ann")
    assert request.counts == {"threads": 1, "checkpoints": 2, "shared": 1}
    assert await names(saver) == {"two", "three", "four"}
    await erasure_of(saver).aerase("carl")
    await put(saver, {"a": 1}, at=config("late"), metadata={"customer": "carl"})
    with pytest.raises(SubjectErasedError, match="'late'"):
        await subjects.aassign("customer")


async def test_questions_that_wait_name_whom_their_thread_is_given_to(async_database: Database, tmp_path: Path) -> None:
    saver = await async_database.raw()
    graph = StateGraph(MessagesState).add_node("ask", lambda state: {"messages": [("ai", interrupt("?"))]})
    compiled = graph.add_edge(START, "ask").compile(checkpointer=saver)
    await compiled.ainvoke({"messages": []}, config("0", customer="ann"))
    await compiled.ainvoke({"messages": []}, config("1", user_id="bob"))
    inbox = Inbox(saver)
    assert list(await inbox.alist(subject="ann")) == []
    assert (await Subjects(saver).aassign("customer")).threads == 1
    assert await saver._arun(people.attribute(saver._scope, saver._scope.key("1"), ("ann",)))
    assert [one.subjects for one in await inbox.alist(subject="ann")] == [("ann",), ("bob", "ann")]
    assert [one.thread_id for one in await inbox.alist(subject="bob")] == ["1"]

    with Vault.open(f"sqlite:///{tmp_path / 'a.db'}") as source, Vault.open(f"sqlite:///{tmp_path / 'b.db'}") as copy:
        graph.compile(checkpointer=source.checkpointer).invoke({"messages": []}, config(user_id="ann"))
        copy_over(source, copy)
        assert [one.subjects for one in copy.inbox.list(subject="ann")] == [("ann",)]
        copy.erasure.erase("ann")
        assert list(copy.inbox.list(status=None)) == []

    assert (await erasure_of(async_database.under_async_names(saver)).aerase("ann")).counts["shared"] == 1
    assert list(await inbox.alist(subject="ann", status=None)) == []
    assert [one.subjects for one in await inbox.alist()] == [("bob",)]


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
        assert len(await subjects.alist()) == 2
    assert (await erasure.aerase("ann")).counts == {"threads": 1, "checkpoints": 1}
    assert await names(saver) == {"thread of bob", "nobody's"}


async def lose_index(saver: Any, mode: str) -> None:
    scope = saver._scope
    lost = [hint(scope, person, scope.key(f"thread of {person}"))._replace(body=None) for person in ("bob", "ann")]
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


@pytest.mark.parametrize("how", ["erase", "erase_many", "resume"])
async def test_ids_that_are_linked_meanwhile_go_too(how: str, async_database: Database) -> None:
    """An erasure was asked for, and then two more ids of the person became known, one of which is being erased too."""
    saver = await async_database.raw()
    await filled(saver, ("ann", "ann@old", "a-17", "bob"))
    erasure, eraser = erasure_of(saver), Erasure(saver)._eraser
    for asked in ("ann", "a-17"):
        await saver._arun(steps.request(saver._scope, eraser, asked, "keep", None, None))
    assert await subjects_of(saver).alink("ann", "ann@old", "a-17")
    if how == "erase":
        assert (await erasure.aerase("ann")).counts["threads"] == 3
        await erasure.aresume()
    elif how == "erase_many":
        assert (await erasure.aerase_many(["ann", "a-17"]))[0].counts["threads"] == 3
        await erasure.aresume()  # the other one may have been taken for both
    else:
        assert {done.counts.get("threads", 0) for done in await erasure.aresume()} == {0, 3}
    assert await erasure.aresume() == []
    assert await names(saver) == {"thread of bob", "nobody's"}
    for subject in ("ann", "ann@old", "a-17"):
        with pytest.raises(SubjectErasedError):
            await subjects_of(saver).alink(subject, "bob")
        assert await subjects_of(saver).aids(subject) == (subject,)


async def test_a_link_that_meets_a_tombstone_is_taken_back(
    async_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = await async_database.raw()
    await subjects_of(saver).alink("bob", "b-1")
    real = people.check_living
    monkeypatch.setattr(people, "check_living", lambda scope, tokens: real(scope, {}))
    linking = people.link(saver._scope, ["bob", "ann"])
    request = next(linking)
    while True:  # up to the write of the links, after the look at tombstones
        reply = await saver._driver.arun(_one_request(request))
        if await subjects_of(saver).aids("ann") != ("ann",):
            break
        request = linking.send(reply)
    monkeypatch.undo()
    await saver._arun(stones.close(saver._scope, [token(saver._scope, "ann")], "hers", 0))
    with pytest.raises(SubjectErasedError):
        await saver._arun(_rest(linking, reply))
    assert await subjects_of(saver).aids("ann") == ("ann",)
    assert set(await subjects_of(saver).aids("bob")) == {"bob", "b-1"}


def _one_request(request: Any) -> Any:
    return (yield request)


def _rest(op: Any, reply: Any) -> Any:
    request = op.send(reply)
    while True:
        try:
            request = op.send((yield request))
        except StopIteration as stop:
            return stop.value


async def test_ids_that_are_numbers_or_uuids_are_their_text(database: Database) -> None:
    saver, uuid = await database.saver(), UUID("01234567-89ab-cdef-0123-456789abcdef")
    for thread, who in (("1", 42), ("2", uuid), ("3", {"bob", 42}), ("4", Person.ANN), ("5", None), ("6", ["", None])):
        await put(saver, {"a": 1}, at=config(thread, user_id=who))
    found = {info.thread_id: set(info.subjects) for info in await saver.athreads()}
    assert found == {"1": {"42"}, "2": {str(uuid)}, "3": {"42", "bob"}, "4": {"ann"}, "5": set(), "6": set()}
    assert {thread.thread_id for thread in (await erasure_of(saver).aplan("42")).threads} == {"1", "3"}


async def test_what_can_be_nobodys_id_is_refused_and_nothing_is_stored_unattributed(database: Database) -> None:
    saver = await database.saver()
    for who in (b"ann", True, 1.5, {"id": "ann"}, ["ann", b"bob"], [["ann"]], object()):
        with pytest.raises(IdentifierError, match="user_id"):
            await put(saver, {"a": 1}, at=config(user_id=who))
        with pytest.raises(IdentifierError, match="user_id"):
            await saver.aput_writes(config("t", "", "1", user_id=who), [("a", 1)], "task")
    assert len(await saver.athreads()) == 0
    careless = await database.saver(subject_key=())
    await put(careless, {"a": 1}, at=config(user_id={"id": "ann"}))
    assert [info.subjects for info in await saver.athreads()] == [()]
    for slip in (5, "", [""], None):
        with pytest.raises(ConfigurationError, match="subject_key"):
            database.unprepared(subject_key=slip)
    with pytest.raises(ConfigurationError, match="require_subject"):
        database.unprepared(subject_key=(), require_subject=True)


async def test_limits_and_lists_of_a_wrong_kind_are_refused(database: Database) -> None:
    saver = await database.saver(ttl={"default_ttl": 5})
    await put(saver, {"a": 1}, at=config("a"))
    for verb in (
        lambda: saver.aapply_ttl(limit=-1),
        lambda: saver.athreads(limit=True),
        lambda: saver.athreads(limit=2**63),
        lambda: saver.asweep(limit=0),
        lambda: saver.aprune("a", strategy="delete"),
        lambda: saver.adelete_for_runs("a"),
    ):
        with pytest.raises(ConfigurationError, match="must be"):
            await verb()
    assert len(await saver.athreads(limit=sys.maxsize)) == 1

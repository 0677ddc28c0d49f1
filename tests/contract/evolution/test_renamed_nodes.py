"""A deploy renames nodes while a thread waits for a human: the question is still there, and nothing is done twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from langgraph.types import Command

from stepvault.errors import StateInvalidError
from tests.contract.evolution.deploying import DONE, SHAPES, Deploy
from tests.contract.matrix import Database


async def test_a_question_outlives_the_name_of_its_node(database: Database) -> None:
    for shape, (build, names, done) in SHAPES.items():
        for by in ("id", "value"):
            DONE.clear()
            old = await Deploy.of(database, build, thread=f"{shape} {by}")
            await old.invoke({"log": []})
            assert done == DONE

            new = await Deploy.of(database, partial(build, **names), thread=f"{shape} {by}", node_aliases=names)
            said = await answered(new, by, {*names.values(), "ask", "outer", "main"})

            assert "asked:yes:no" in said["log"], shape
            assert {name: DONE[name] for name in done} == done, shape
            assert not (await new.state()).next


async def answered(app: Deploy, by: str, nodes: set[str]) -> Any:
    """Answer both questions; what the app said last."""
    said = None
    for answer, asked in (("yes", "first"), ("no", "second")):
        state = await app.state()
        assert [one.value for one in state.interrupts] == [asked]
        assert set(state.next) <= nodes
        resume: Any = {state.interrupts[0].id: answer} if by == "id" else answer
        said = await app.invoke(Command(resume=resume))
    return said


async def test_work_that_cannot_be_followed_stops_the_run(database: Database) -> None:
    build, names, _ = SHAPES["a function"]
    old = await Deploy.of(database, build)
    await old.invoke({"log": []})
    names = {"main": names["main"]}
    new = await Deploy.of(database, partial(build, **names), node_aliases=names)

    with pytest.raises(StateInvalidError, match=r"unfinished work of the renamed node 'main'.*every @task"):
        await new.invoke(Command(resume="yes"))
    assert (await new.state()).interrupts


async def test_unknown_work_is_told_by_more_than_the_first_digits_of_its_id(database: Database) -> None:
    """One id in forty begins with eight digits, as do those of what DeltaChannels are rebuilt from."""
    build, names, _ = SHAPES["a function"]
    old = await Deploy.of(database, build)
    await old.invoke({"log": []})
    head = await old.head()
    new = await Deploy.of(database, partial(build, **names), node_aliases=names)
    path = "~__pregel_push, ~__pregel_pull, main, 0000000009, 0000000001"

    replayed = f"{head.metadata['step'] + 2:08d}-1111-2222-3333-444455556666"
    await old.call(old.saver, "put_writes", head.config, [("log", 1)], replayed, path)
    await new.invoke(Command(resume="yes"))
    await old.call(old.saver, "put_writes", head.config, [("log", 1)], "12345678-1111-2222-3333-444455556666", path)
    with pytest.raises(StateInvalidError, match="unfinished work of the renamed node 'main'"):
        await new.invoke(Command(resume="no"))


async def test_a_worker_with_the_older_code_can_still_finish(database: Database) -> None:
    build, names, done = SHAPES["both"]
    DONE.clear()
    old = await Deploy.of(database, build)
    await old.invoke({"log": []})
    new = await Deploy.of(database, partial(build, **names), node_aliases=names)
    await new.invoke(Command(resume="yes"))

    waiting = (await old.state()).interrupts
    assert [one.value for one in waiting] == ["second"]
    said = await old.invoke(Command(resume={waiting[0].id: "no"}))

    assert "asked:yes:no" in said["log"]
    assert {name: DONE[name] for name in done} == done

"""The functional API: entrypoints, tasks, what a thread returned before."""

from __future__ import annotations

import time
from typing import Any

from langgraph.func import entrypoint, task
from langgraph.types import Command, RetryPolicy, interrupt

from tests.graphs.comparing import Twins, answers


@task
def double(n: int) -> Any:
    return {"n": n * 2, "text": "x" * 400}


@task
def ask(question: str) -> Any:
    return interrupt(question)


async def test_what_was_returned_before(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def app(value: Any, *, previous: Any = None) -> Any:
            return {"value": value, "previous": previous and previous["value"]}

        return app

    await twins.start(build)
    for value in (1, {"a": [2]}, "three", [4]):
        await twins.invoke(value)
    assert (await twins.state()).values == {"value": [4], "previous": "three"}


async def test_saved_and_returned_apart(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def app(value: int, *, previous: Any = None) -> Any:
            return entrypoint.final(value=previous, save={"sum": value + (previous or {"sum": 0})["sum"]})

        return app

    await twins.start(build)
    for value in range(4):
        await twins.invoke(value)
    assert (await twins.state()).values == {"sum": 3}


async def test_tasks(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def app(count: int) -> Any:
            return [double(n).result()["n"] for n in range(count)]

        return app

    await twins.start(build)
    await twins.invoke(3, ordered=False)
    await twins.invoke(1, ordered=False)
    assert (await twins.state()).values == [0]


async def test_tasks_are_not_done_again_after_an_answer(twins: Twins) -> None:
    done: list[int] = []

    @task
    def once(n: int) -> int:
        done.append(n)
        return n

    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def app(value: int) -> Any:
            first = once(value).result()
            answer = ask("ok?").result()
            second = once(value + 1).result()
            return [first, answer, second, interrupt("sure?"), once(value + 2).result()]

        return app

    await twins.start(build)
    await twins.invoke(1, ordered=False)
    await twins.invoke(Command(resume="yes"), ordered=False)
    await twins.invoke(Command(resume="sure"), ordered=False)
    assert (await twins.state()).values == [1, "yes", 2, "sure", 3]
    assert sorted(done) == [1, 1, 2, 2, 3, 3], "once for each of the two apps"


async def test_questions_of_tasks_side_by_side(twins: Twins) -> None:
    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def app(questions: list[str]) -> Any:
            waiting = [ask(question) for question in questions]
            return [future.result() for future in waiting]

        return app

    await twins.start(build)
    await twins.invoke(["a?", "b?"], ordered=False)
    for _ in range(2):  # the first to be waited for is asked first
        await twins.invoke(answers(**{"a?": 1, "b?": 2}), ordered=False)
    assert (await twins.state()).values == [1, 2]


async def test_a_task_that_fails_and_is_tried_again(twins: Twins) -> None:
    tried: dict[Any, int] = {}

    def build(saver: Any) -> Any:
        @task(retry_policy=RetryPolicy(max_attempts=3, initial_interval=0.001, jitter=False, retry_on=ValueError))
        def shaky() -> int:
            tried[saver] = tried.get(saver, 0) + 1
            if tried[saver] < 3:
                raise ValueError("not yet")
            return tried[saver]

        @entrypoint(checkpointer=saver)
        def app(value: int) -> Any:
            return [double(value).result()["n"], shaky().result()]

        return app

    await twins.start(build)
    await twins.invoke(1, ordered=False)
    assert (await twins.state()).values == [2, 3]


async def test_an_entrypoint_that_fails_goes_on_where_it_was(twins: Twins) -> None:
    broken, done = [True], []

    @task
    def once(n: int) -> int:
        done.append(n)
        return n

    def build(saver: Any) -> Any:
        @entrypoint(checkpointer=saver)
        def app(value: int) -> Any:
            found = once(value).result()
            time.sleep(0.05)  # let the writes of the task come first
            if broken[0]:
                raise ValueError("broken")
            return found

        return app

    await twins.start(build)
    await twins.invoke(7, ordered=False)
    broken[0] = False
    await twins.invoke(None, ordered=False)
    assert (await twins.state()).values == 7
    if twins.durability != "exit":
        assert done == [7, 7], "once for each of the two apps"

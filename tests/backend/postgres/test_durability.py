"""What was acknowledged stays, whoever is killed; what must be durable is, whatever the role's setting."""

from __future__ import annotations

import multiprocessing
import random
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import pytest

from stepvault._core.plan import Batch, Op, Stmt
from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.checkpointers.postgres.making import make_driver, take_options
from tests.contract.building import checkpoint, config

_SETTING = Stmt("SELECT current_setting('synchronous_commit')")


def setting(*, durable: bool) -> Op[str]:
    (rows,) = yield Batch([_SETTING], durable=durable)
    return str(rows[0][0])


@pytest.mark.parametrize(("usual", "durable"), [("off", "on"), ("local", "on"), ("on", "on"), ("remote_apply",) * 2])
async def test_durable_batches_raise_the_setting_for_their_transaction(
    postgres_url: str, usual: str, durable: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = postgres_url.rsplit("/", 1)[1]
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = {usual}".encode())
    driver = make_driver(postgres_url, None, take_options({}, None))
    for wanted, expected in ((False, usual), (True, durable), (False, usual)):
        assert driver.run(setting(durable=wanted)) == expected
        assert await driver.arun(setting(durable=wanted)) == expected
    await driver.aclose()


def write_until_killed(url: str, told: Connection) -> None:
    """Write to a few threads and say each time what is stored."""
    saver = PostgresSaver.from_conn_string(url)
    words: list[str] = []
    for number in range(100_000):
        words.append(f"word {number} " * 50)
        at = config(f"t{number % 3}")
        at = saver.put(at, checkpoint({"words": list(words)}), {"step": number}, {"words": "00000001"})
        told.send((number % 3, number + 1))
        saver.put_writes(at, [("words", words[-1])], f"task {number}")


def test_killed_writers_lose_nothing_acknowledged(postgres_url: str) -> None:
    with PostgresSaver.from_conn_string(postgres_url) as saver:
        saver.setup()
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        dice = random.Random(1)
        for _ in range(20):
            here, there = context.Pipe(duplex=False)
            writer = context.Process(target=write_until_killed, args=(postgres_url, there))
            writer.start()
            there.close()
            acknowledged: dict[int, int] = {}
            for _ in range(dice.randrange(1, 40)):
                thread, count = here.recv()
                acknowledged[thread] = count
            writer.kill()
            writer.join()
            while here.poll():
                try:
                    thread, count = here.recv()
                except EOFError:
                    break
                acknowledged[thread] = count
            here.close()
            for thread, count in acknowledged.items():
                assert words_of(saver, thread) >= count
        with PostgresSaver.from_conn_string(postgres_url) as other:  # knows nothing: everything is read
            assert all(entry.checkpoint["channel_values"]["words"] for entry in other.list(None))


def words_of(saver: PostgresSaver, thread: int) -> int:
    found = saver.get_tuple(config(f"t{thread}"))
    assert found is not None
    words: list[Any] = found.checkpoint["channel_values"]["words"]
    assert words == [f"word {number} " * 50 for number in range(len(words))]
    return len(words)

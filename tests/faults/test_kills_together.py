"""Processes whose tasks commit together, killed at any time: each task finds what it was told is stored."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepvault.checkpointers.sqlite import SqliteSaver
from tests.contract.building import checkpoint, config, new_id

THREADS, TASKS = 10, 40


async def main(path: str, name: str) -> None:
    """Write in many tasks, and tell of each write when it is done, until the end."""
    saver = SqliteSaver.from_conn_string(path)

    async def task(number: int) -> None:
        thread, step = str(number % THREADS), 0
        while True:
            made = checkpoint({"x": [number, step] * 3, "y": "v" * 300}, id=f"{new_id()} {name} {number} {step}")
            stored = await saver.aput(config(thread), made, {"step": step}, made["channel_versions"])
            await saver.aput_writes(stored, [("x", [number, step])], f"task {number}")
            os.write(1, f"{thread}|{made['id']}|{number}|{step}\n".encode())
            step += 1

    await asyncio.gather(*(task(number) for number in range(TASKS)))


@pytest.mark.parametrize("told", [40, pytest.param(4000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("attempt", [0, *(pytest.param(n, marks=pytest.mark.soak) for n in range(1, 20))])
def test_each_task_finds_what_it_was_told(tmp_path: Path, told: int, attempt: int) -> None:
    path = str(tmp_path / "app.db")
    with SqliteSaver.from_conn_string(path) as saver:
        saver.setup()
    words = [sys.executable, "-m", "tests.faults.test_kills_together", path]
    workers = [subprocess.Popen([*words, str(number)], stdout=subprocess.PIPE, text=True) for number in range(2)]
    lines: list[str] = []
    for worker in workers:
        assert worker.stdout is not None
        lines += [worker.stdout.readline() for _ in range(told)]
    for worker in workers:
        worker.kill()
    for worker in workers:
        lines += worker.communicate()[0].splitlines(keepends=True)

    with SqliteSaver.from_conn_string(path) as saver:
        found: dict[tuple[str, str], Any] = {}
        for thread in range(THREADS):
            for entry in saver.list(config(str(thread))):
                found[(str(thread), entry.checkpoint["id"])] = entry
        whole = [line.split("|") for line in lines if line.endswith("\n")]
        assert len(whole) >= 2 * told
        for thread_id, checkpoint_id, number, step in whole:
            entry = found[(thread_id, checkpoint_id)]
            assert entry.checkpoint["channel_values"]["x"] == [int(number), int(step)] * 3
            assert entry.pending_writes == [(f"task {number}", "x", [int(number), int(step)])]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

"""Whoever reads in several calls comes to an end, however fast others write, and however they died."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from stepvault._core.rows import Hold
from stepvault.checkpointers._ops import transfer
from stepvault.checkpointers.redis import RedisSaver, reading
from stepvault.encryption import Keyring
from tests.backend.redis.building import config, ids, put

ITEMS = 16_000  # 250 pages


@pytest.fixture
def hammered(redis_url: str) -> Iterator[str]:
    """A thread with a large state in a namespace of its own, and a process that never lets it rest."""
    with RedisSaver(redis_url) as saver:
        put(saver, "busy", 1, ns="big", big=[f"{n:05}" * 52 for n in range(ITEMS)])
        put(saver, "still", 1, a=1)
    words = [sys.executable, "-m", "tests.backend.redis.hammering", redis_url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "at work\n"
        yield redis_url
        assert child.poll() is None
        child.kill()


def test_reads_of_a_thread_that_never_rests(hammered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_PAGES", "_ROWS"):
        monkeypatch.setattr(reading, name, 1)  # as many calls as a thread that is much larger takes
    for _ in range(2):
        with RedisSaver(hammered, retention={"keep_last": 1}) as saver:
            found = saver.get_tuple(config("busy", ns="big"))
            assert found is not None
            assert len(found.checkpoint["channel_values"]["big"]) == ITEMS
            assert len(list(saver.list(config("busy", ns="big")))) == 1
            assert saver.sweep(dry_run=True).threads == 0
            assert len(ids(saver, None, limit=2)) == 2
            assert "1f0b0001-0000-6000-8000-000000000000" in ids(saver, None)


@pytest.mark.parametrize("sealed", [False, True])
def test_a_copy_outwaits_a_holder_that_died(redis_url: str, sealed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "_PAUSE", 0.001)
    options: dict[str, Any] = {"keyring": Keyring.generate()} if sealed else {}
    with RedisSaver(redis_url, **options) as saver:
        put(saver, "t", 1, a=1)
        dead = Hold(saver._scope.key("t"), b"somebody", 0.5)
        assert saver._run(saver._core.dialect.hold(dead))
        saver.copy_thread("t", "copy")
        assert len(ids(saver, "copy")) == 1

"""Items of a store are whole whenever a sealing, rotation or unsealing is killed, and the app goes on meanwhile."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.matrix import DATABASES
from tests.faults.sealing_items import MARKER

CHECKOUT = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("kills", [3, pytest.param(200, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in ("sqlite", "postgres", "redis")]
)
def test_no_item_is_lost_or_shown(request: pytest.FixtureRequest, tmp_path: Any, name: str, kills: int) -> None:
    cls = next(cls for cls in DATABASES if cls.name == name)
    at = str(tmp_path / "app.db") if name == "sqlite" else request.getfixturevalue(f"{name}_url")
    url = f"sqlite:///{at}" if name == "sqlite" else at
    seed = os.environ.get("STEPVAULT_TEST_SEED", "7")
    argv = [sys.executable, "-m", "tests.faults.sealing_items", url, str(kills), seed]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=3500, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= kills
    if name == "sqlite":  # which leaves copies where it moved rows, see docs/encryption.md
        with contextlib.closing(sqlite3.connect(at)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert MARKER.encode() not in cls("async", at).content()

"""The benchmarks run; what they measure is read by people."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HITL = ("benchmarks.hitl", "--pending", "500", "--rounds", "1")
QUICK = ("benchmarks", "raw", "--quick", "--rounds", "1")


@pytest.mark.parametrize("words", [HITL, QUICK], ids=["hitl", "savers"])
def test_runs_to_its_end(words: tuple[str, ...]) -> None:
    words = (sys.executable, "-m", *words, "--backend", "sqlite")
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[1], timeout=110
    )
    assert done.returncode == 0, done.stderr
    assert "sqlite" in done.stdout.lower()

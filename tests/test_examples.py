"""Every example runs, in a process of its own, as a reader would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS_ARGUMENTS: dict[str, str] = {  # file name: what it needs, and the test that gives it
    "postgres_agent.py": "a server: tests/backend/postgres/test_example.py",
    "redis_agent.py": "a server: tests/backend/redis/test_example.py",
}


def run(name: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize("name", sorted({path.name for path in EXAMPLES.glob("*.py")} - NEEDS_ARGUMENTS.keys()))
def test_runs_to_its_end(name: str) -> None:
    assert run(name).stdout


def test_quickstart_keeps_the_file_it_is_given(tmp_path: Path) -> None:
    kept = tmp_path / "demo.db"
    told = run("quickstart.py", "--path", str(kept)).stdout
    assert "Refunded 89.00 EUR, approved by Ada" in told
    assert "Refused by Grace" in told
    assert "2 endings" in told
    assert kept.exists()
    again = run("quickstart.py", "--path", str(kept), check=False)
    assert again.returncode == 2
    assert "name a new file" in again.stderr

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg

EXAMPLE = Path(__file__).parents[3] / "examples" / "postgres_agent.py"


def test_the_example_runs_and_leaves_nothing(postgres_url: str) -> None:
    for words, url in (([postgres_url], ""), ([], postgres_url)):
        done = subprocess.run(
            [sys.executable, "-W", "error", str(EXAMPLE), *words],
            capture_output=True, text=True, timeout=100, check=True, env={"STEPVAULT_URL": url},
        )  # fmt: skip
        assert "You have told me 2 things, the first was 'I like tea'." in done.stdout
        assert "served at once: 20 guests" in done.stdout
        assert "threads: 21\nafter deletion: 0 checkpoints" in done.stdout
    with psycopg.connect(postgres_url) as connection:
        query = "SELECT 1 FROM pg_namespace WHERE nspname = 'stepvault_example'"
        assert connection.execute(query).fetchall() == []


def test_without_a_url_it_says_what_it_needs() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False, env={})
    assert done.returncode == 1
    assert "STEPVAULT_URL" in done.stderr

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import redis

EXAMPLE = Path(__file__).parents[3] / "examples" / "redis_agent.py"


def test_the_example_runs_and_leaves_nothing(any_server: Any) -> None:
    for words, url in (([any_server.url], ""), ([], any_server.url)):
        done = subprocess.run(
            [sys.executable, str(EXAMPLE), *words],
            capture_output=True, text=True, timeout=100, check=True, env={"STEPVAULT_URL": url},
        )  # fmt: skip
        assert "asks: Refund 89.00 EUR?\nwaits: refund-1001\nends: order 1001: 89.00 EUR, refunded" in done.stdout
    for node in getattr(any_server, "nodes", None) or [any_server]:
        with redis.Redis.from_url(node.url) as client:
            assert client.keys("*:ck:*") + client.keys("*:ix:*") == []


def test_without_a_url_it_says_what_it_needs() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=False, env={})
    assert done.returncode == 1
    assert "STEPVAULT_URL" in done.stderr

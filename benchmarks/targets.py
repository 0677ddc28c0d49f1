"""What each number is compared with, and what is promised.

A row is a measure of ours against a role: `ratio` is ours divided by theirs (for `higher` measures too).
With `against=None` the number itself is judged. `targets` says per backend at most (or at least) how much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    workload: str
    measure: str
    label: str
    against: str | None = None
    targets: Mapping[str, float] = field(default_factory=dict)
    at_least: bool = False
    role: str = "ours"
    unit: str = "ms"


def _all(limit: float) -> dict[str, float]:
    return {"sqlite": limit, "postgres": limit, "redis": limit}


def _backends(sqlite: float, postgres: float, redis: float) -> dict[str, float]:
    return {"sqlite": sqlite, "postgres": postgres, "redis": redis}


ROWS = [
    Row("chat", "growth", "bytes, 500 turns / 200 turns", targets=_all(2.7), unit="x"),
    Row("chat", "per_payload", "bytes / payload", None, _backends(1.7, 2.5, 1.7), unit="x"),
    Row("chat", "per_payload", "same, uncompressed", None, _backends(3, 3.5, 3), role="uncompressed", unit="x"),
    Row("chat", "per_packed", "bytes / payload zipped whole", unit="x"),
    Row("chat", "bytes@500", "bytes, 500 turns", "official", unit="MB"),
    Row("chat", "turn@50", "turn at 50 turns", "official"),
    Row("chat", "turn@200", "turn at 200 turns", "official"),
    Row("chat", "turn@500", "turn at 500 turns", "official", _backends(0.6, 0.4, 0.2)),
    Row("chat", "turn@500", "turn at 500 turns", "plain"),
    Row("chat", "turn@500", "turn at 500 turns", "memory", {"sqlite": 1.2}),
    Row("chat", "get_tuple", "get_tuple of the head", "official", _all(1)),
    Row("chat", "cold_get", "first get_tuple of a new saver", "official"),
    Row("chat", "get_state", "get_state", "official"),
    Row("chat", "history", "get_state_history(limit=10)", "official", _all(0.6)),
    Row("raw", "put", "put", "official", _backends(1.2, 1.2, 0.35)),
    Row("raw", "put", "put", "plain"),
    Row("raw", "put", "put", "default"),
    Row("raw", "put", "put", "limit"),
    Row("raw", "put_writes", "put_writes", "official", _backends(1.2, 1.2, 0.35)),
    Row("raw", "put_writes", "put_writes", "plain"),
    Row("raw", "put_writes", "put_writes", "default"),
    Row("raw", "put_writes", "put_writes", "limit"),
    Row("raw", "get_tuple", "get_tuple of the head", "official", _backends(2, 0.4, 0.3)),
    Row("raw", "get_tuple", "get_tuple of the head", "plain"),
    Row("raw", "get_tuple", "get_tuple of the head", "limit"),
    Row("raw", "list", "list(limit=10)", "official"),
    Row("raw", "bytes", "bytes", "official", unit="MB"),
    Row("async", "runs_per_s", "runs per second", "official", {"sqlite": 2, "redis": 2}, at_least=True, unit="/s"),
    Row("async", "runs_per_s", "runs per second", "plain", at_least=True, unit="/s"),
    Row("async", "runs_per_s", "runs per second", "default", at_least=True, unit="/s"),
    Row("async", "runs_per_s", "runs per second", "pool", {"postgres": 3}, at_least=True, unit="/s"),
    Row("async", "runs_per_s", "runs per second", "memory", at_least=True, unit="/s"),
    Row("async", "p99", "99th percentile of a run", "official"),
    Row("manage", "delete", "delete_thread, 500 checkpoints", "official", _all(1)),
    Row("manage", "delete", "delete_thread, 500 checkpoints", "plain"),
    Row("manage", "list@500", "list(limit=10), 500 checkpoints", "official"),
    Row("manage", "list_growth", "list(limit=10), 5000 / 50 checkpoints", targets=_all(1.5), unit="x"),
    Row("ttl", "put", "put with a ttl / without", targets=_all(1.05), unit="x"),
    Row("ttl", "get", "get_tuple with a ttl / without", targets=_all(1.05), unit="x"),
    Row("ttl", "threads_per_s", "threads swept per second", unit="/s"),
    Row("ttl", "per_delete", "sweep / one raw DELETE of the same rows", unit="x"),
    Row("erase", "threads_per_s", "threads of a person erased per second", unit="/s"),
    Row("erase", "per_delete", "erase / one raw DELETE of the same rows", targets=_all(3), unit="x"),
    Row("erase", "cpu_per_delete", "same, CPU of client and server", unit="x"),
    Row("erase", "peak", "memory an erasure takes at most", unit="MB"),
    Row("erase", "peak_growth", "same, 5000 / 1000 threads", targets=_all(1.5), unit="x"),
    Row("import", "stepvault", "import stepvault, after langgraph-checkpoint", targets={"memory": 30}, role="memory"),
    Row("import", "our_saver", "import our SqliteSaver", role="memory"),
    Row("import", "official_saver", "import the official SqliteSaver", role="memory"),
]  # fmt: skip

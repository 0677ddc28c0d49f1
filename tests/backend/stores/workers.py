"""Processes that write to a store, to be run beside others and to be killed.

    python -m tests.backend.stores.workers MODULE CLASS OPTIONS_JSON WORK NAME

`count` puts its keys one by one and prints each after it is acknowledged; `batches` puts batches of 50 that all
carry the same number, and prints the number.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from langgraph.store.base import PutOp

ROOT = Path(__file__).parents[3]
BATCH = 50


def start(store_class: type[Any], url: str, work: str, name: str, **options: Any) -> subprocess.Popen[str]:
    """Start a worker."""
    words = [store_class.__module__, store_class.__name__, json.dumps({"conn_string": url, **options}), work, name]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.backend.stores.workers", *words],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def killed_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """What a worker had acknowledged when it was killed, at least so many lines."""
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.readlines()
    process.wait()
    process.stdout.close()
    assert process.returncode == -signal.SIGKILL
    return [line.strip() for line in said if line.endswith("\n")]


def main(module: str, name: str, options: str, work: str, who: str) -> None:
    store = getattr(importlib.import_module(module), name).from_conn_string(**json.loads(options))
    for number in range(100_000):
        if work == "count":
            store.put(("count", who), f"k{number}", {"n": number})
        else:
            store.batch([PutOp(("batches", who), f"k{key}", {"n": number, "text": "word"}) for key in range(BATCH)])
        print(number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that does everything a saver can, at random, on threads that others use too. Prints what it was told."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from typing import Any

from stepvault.errors import ConflictError
from tests.contract.building import checkpoint, config, new_id
from tests.contract.matrix import saver_elsewhere


def main(name: str, url: str, number: str, rounds: str) -> None:
    lot = random.Random(int(number))
    told: dict[str, Any] = {"mine": [], "both": [], "pruned": []}
    done: Counter[str] = Counter()
    with saver_elsewhere(name, url) as saver:
        saver.setup()
        for _ in range(int(rounds)):
            kind = lot.choice(["put"] * 6 + ["prune", "delete", "copy", "runs", "get"])
            try:
                act(saver, kind, lot, f"mine {number}", told)
                done[kind] += 1
            except ConflictError:
                done["conflict"] += 1
        for thread in (f"mine {number}", "both", "pruned"):
            told[thread.split()[0]].append(put(saver, lot, thread))
    print(json.dumps({**told, "done": done}))


def act(saver: Any, kind: str, lot: random.Random, mine: str, told: dict[str, Any]) -> None:
    thread = lot.choice([mine, "both", "pruned", "deleted", "deleted", "copied"])
    if kind == "put":
        stored = put(saver, lot, thread)
        if (name := thread.split()[0]) in told:
            told[name].append(stored)
    elif kind == "prune":
        saver.prune([lot.choice(["pruned", "deleted", "copied"])])
    elif kind == "delete":
        saver.delete_thread(lot.choice(["deleted", "copied"]))
    elif kind == "copy":
        saver.copy_thread(lot.choice([mine, "both", "pruned", "deleted"]), "copied")
    elif kind == "runs":
        saver.delete_for_runs([lot.choice(["a", "b"])])
    else:
        list(saver.list(config(thread), limit=5))


def put(saver: Any, lot: random.Random, thread: str) -> str:
    """A checkpoint that shares most of its values with the newest one, and a write that shares with it."""
    newest = saver.get_tuple(config(thread))
    items = list(newest.checkpoint["channel_values"]["items"]) if newest else []
    for _ in range(lot.randint(1, 3)):
        items.insert(lot.randint(0, len(items)), lot.choice("abcdefgh") * lot.choice([3, 300, 700, 5000]))
    del items[lot.randint(10, 60) :]
    made = checkpoint({"items": items, "check": sum(map(len, items))}, id=new_id())
    run = {"run_id": lot.choice("ab")} if thread in ("deleted", "copied") else {}
    at = newest.config if newest else config(thread)
    stored = saver.put(at, made, {"source": "loop", **run}, made["channel_versions"])
    saver.put_writes(stored, [("items", lot.choice("xyz") * 1500), ("items", items[0])], "task")
    return made["id"]


if __name__ == "__main__":
    main(*sys.argv[1:])

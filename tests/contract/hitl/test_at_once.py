"""Two and eight processes on one thread: one effect, one decision, the others are told why."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from stepvault.checkpointers._inbox import Inbox
from tests.contract.hitl import children
from tests.contract.hitl.building import on_thread, one
from tests.contract.matrix import Database

WHY = {"EffectInDoubtError", "HeadMovedError", "LeaseHeldError"}


@pytest.mark.parametrize("processes", [2, 8])
async def test_processes_resuming_one_thread_pay_once(shared: Database, tmp_path: Path, processes: int) -> None:
    place, ledger = children.place_of(shared), str(tmp_path / "ledger")
    saver = await shared.raw()
    graph = children.paying(saver, ledger)
    for round_ in range(3 if processes == 2 else 1):
        thread = f"t{round_}"
        graph.invoke({"log": []}, on_thread(thread))
        told = Counter(children.at_once(children.pay_at_once, place, processes, ledger, thread))
        assert len(children.charges(ledger, thread)) == 1
        assert told["done"] >= 1
        assert told.keys() <= WHY | {"done"}
        assert graph.get_state(on_thread(thread)).values["log"][1] == 500


@pytest.mark.parametrize("processes", [2, 8])
async def test_processes_deciding_one_question(shared: Database, processes: int) -> None:
    saver = await shared.raw()
    (question,) = one(saver).invoke({"log": []}, on_thread("t"))["__interrupt__"]
    place = children.place_of(shared)
    told = dict(children.at_once(children.decide_at_once, place, processes, question.id, numbered=True))
    kept = Inbox(saver).get(question.id).decision
    assert kept is not None
    assert told == {"heard": kept.answer, "AlreadyDecidedError": kept.by}

"""What each run in this process started from: the thread generation it loaded, and its run id.

LangGraph hands one control object through a whole run, subgraphs included. It has no weak references, so a
bounded number of them is held; a run that fell out is simply not checked. This module is the only one that knows
where that object is (langgraph 1.2: `configurable["__pregel_runtime"].control`).
"""

from __future__ import annotations

import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stepvault._core.knowledge import ThreadKey

logger = logging.getLogger("stepvault")
_RUNS = 4096


class Former(NamedTuple):
    """What is stored of a task whose node was renamed since.

    Attributes:
        id: Its id then.
        path: Its path then.
        ns: The namespace of what ran inside it.
        present_ns: That namespace under present names.
        interrupts: Present ids of its interrupts, each with the stored one.
    """

    id: str
    path: str
    ns: str
    present_ns: str
    interrupts: dict[str, str]


@dataclass(slots=True)
class Run:
    """One run.

    `loaded` maps a thread to the generation it loaded, None where it found nothing; `heads` to the newest root
    checkpoint of a run when it loaded. `former` are tasks of renamed nodes by their present ids, `spaces` the
    namespaces below such nodes as they are stored.
    """

    control: Any
    run_id: str | None = None
    replays: bytes | None = None  # the older checkpoint that it named itself
    entered: set[bytes] = field(default_factory=set)  # namespaces of subgraphs in which a replay has begun
    loaded: dict[ThreadKey, bytes | None] = field(default_factory=dict)
    heads: dict[ThreadKey, bytes | None] = field(default_factory=dict)
    putting: dict[ThreadKey, bytes] = field(default_factory=dict)  # its newest put, which may be stored unheard of
    stands: dict[ThreadKey, bytes] = field(default_factory=dict)  # its newest root checkpoint, loaded or put

    def was_overtaken(self, key: ThreadKey, run_head: bytes | None) -> bool:
        """Whether the newest root checkpoint of a run is neither what this run started from nor its own."""
        return key in self.heads and run_head not in (self.heads[key], self.putting.get(key))

    former: dict[str, Former] = field(default_factory=dict)
    spaces: dict[str, str] = field(default_factory=dict)

    def note(self, key: ThreadKey, uid: bytes | None) -> None:
        """Remember the generation a run loaded or created; the first one counts."""
        if self.loaded.get(key) is None:
            self.loaded[key] = uid


def is_bound(configurable: Mapping[str, Any]) -> bool:
    """Whether LangGraph itself leads the subgraphs of a replay back to where they were (time travel without answer)."""
    return configurable.get("__pregel_replay_state") is not None


def control_of(configurable: Mapping[str, Any]) -> Any:
    """The control object of the run a call belongs to, or None."""
    runtime = configurable.get("__pregel_runtime")
    if runtime is not None and not hasattr(runtime, "control"):
        _say_what_is_off()
    return getattr(runtime, "control", None)


@functools.cache
def _say_what_is_off() -> None:
    logger.warning(
        "This LangGraph does not say which run a call belongs to (1.2 and newer do): threads that are deleted under a "
        "run, heads that another run has moved and used answers go unnoticed. Leases work."
    )


class Runs:
    """Runs by their control object, least recently used out first."""

    def __init__(self) -> None:
        self._runs: OrderedDict[int, Run] = OrderedDict()
        self._lock = threading.Lock()

    def renew(self) -> None:
        """Begin anew in a forked child: a thread that does not exist there may hold the lock."""
        self._lock = threading.Lock()

    def of(self, config: Mapping[str, Any]) -> Run | None:
        """The run of a call; None for direct calls and the state API."""
        control = control_of(config["configurable"])
        if control is None:
            return None
        with self._lock:
            run = self._runs.get(id(control))  # the id cannot be reused while the run holds its control
            if run is None:
                run = self._runs[id(control)] = Run(control)
                if len(self._runs) > _RUNS:
                    self._runs.popitem(last=False)
            else:
                self._runs.move_to_end(id(control))
        if run.run_id is None:
            # As in its checkpoints' metadata, where LangGraph puts what the caller said under these names.
            named = (config.get("metadata") or {}).get("run_id") or config.get("run_id")
            run.run_id = None if named is None else str(named)
        return run

    def standing_at(self, tenant: bytes, checkpoint: bytes) -> ThreadKey | None:
        """The thread of the run that was last at this root checkpoint; None: no run of this process was."""
        with self._lock:
            runs = list(reversed(self._runs.values()))
        threads = (key for run in runs for key, at in list(run.stands.items()) if at == checkpoint)
        return next((key for key in threads if key.tenant == tenant), None)

"""Ours against the official savers, memory and the raw limit, in one run, as ratios.

    python -m benchmarks                      every workload on every backend
    python -m benchmarks chat raw --quick     some workloads, small
    python -m benchmarks --backend sqlite --json results.json
    python -m benchmarks raw --backend postgres --latency 1

Contenders take turns, round after round, and each number is a median over the rounds: on a noisy machine trust the
ratios, not the times. Nothing is asserted; the targets are those of the README.
"""

from __future__ import annotations

import argparse
import json
import platform
import warnings
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from benchmarks.backends import Backends
from benchmarks.contenders import CONTENDERS, Contender
from benchmarks.report import lines, show
from benchmarks.workloads import WORKLOADS, Numbers, measure

BACKENDS = ("sqlite", "postgres", "redis")
Results = dict[tuple[str, str, str], list[Numbers]]

_LEGEND = """official: LangGraph's own saver, as durable as ours. default: as it is shipped (SQLite: synchronous=FULL).
pool: on a pool of 10. memory: InMemorySaver. limit: the same bytes through the database's client, no history.
plain: langgraph-checkpoint-plainredis, a saver without modules."""


def run_all(arguments: argparse.Namespace, console: Console) -> Results:
    results: Results = defaultdict(list)
    out: dict[str, str] = {}
    with Backends(arguments.latency) as backends, Progress(console=console, transient=True) as progress:
        for name in arguments.workloads or WORKLOADS:
            rounds = arguments.rounds or (1 if arguments.quick else WORKLOADS[name].rounds)
            chosen = _chosen(name, arguments.backend)
            bar = progress.add_task(name, total=rounds * len(chosen))
            for _ in range(rounds):
                for contender in chosen:
                    progress.update(bar, description=f"{name}: {contender.name}")
                    if contender.name not in out:
                        reason = _run_one(results, backends, name, contender, arguments.quick)
                        if reason:
                            out[contender.name] = reason
                    progress.advance(bar)
            progress.remove_task(bar)
    for contender_name, reason in out.items():
        console.print(f"[yellow]sits out:[/] {contender_name}: {reason}", highlight=False)
    return results


def _chosen(workload: str, backends: Sequence[str]) -> list[Contender]:
    if workload == "import":
        return CONTENDERS[:1]
    return [
        contender
        for contender in CONTENDERS
        if contender.backend in ("memory", *backends) and workload in contender.workloads
    ]


def _run_one(results: Results, backends: Backends, workload: str, contender: Contender, quick: bool) -> str | None:
    """Add a round to the results; or say why this contender cannot take part."""
    try:
        with backends.place(contender.backend) as place:
            numbers = measure(workload, contender, place, quick)
    except ImportError as exc:
        return str(exc)
    except Exception as exc:
        return f"{workload}: {type(exc).__name__}: {exc}"
    results[(workload, contender.backend, contender.role)].append(numbers)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="\n".join(f"{name:<8}{workload.about}" for name, workload in WORKLOADS.items()),
    )
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="may be given more than once")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--rounds", type=int, help="how often each contender takes its turn")
    parser.add_argument("--latency", type=float, default=0, metavar="MS", help="added round trip to servers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write table and single rounds there")
    arguments = parser.parse_args()
    for name in arguments.workloads:
        if name not in WORKLOADS:
            parser.error(f"no workload {name!r}; known are {', '.join(WORKLOADS)}")
    arguments.backend = arguments.backend or list(BACKENDS)
    warnings.simplefilter("ignore")
    console = Console(width=max(110, Console().width))
    results = run_all(arguments, console)
    table = lines(results, [*arguments.backend, "memory"])
    show(table, console)
    console.print(_LEGEND, highlight=False)
    if arguments.quick:
        console.print("Quick: one round of small sizes. The targets are meant for the whole run.")
    if arguments.json:
        rounds = [
            dict(zip(("workload", "backend", "role"), key, strict=True), rounds=found) for key, found in results.items()
        ]
        host = {"python": platform.python_version(), "machine": platform.machine(), "latency_ms": arguments.latency}
        arguments.json.write_text(json.dumps({"host": host, "table": table, "rounds": rounds}, indent=1))


if __name__ == "__main__":
    main()

"""One table: ours, theirs, the ratio, the target, and whether it is met."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.targets import ROWS, Row
from benchmarks.workloads import Numbers

Results = Mapping[tuple[str, str, str], list[Numbers]]  # workload, backend, role -> one per round
Line = dict[str, object]


def lines(results: Results, backends: list[str]) -> list[Line]:
    """The rows that were measured."""
    found = []
    for backend in backends:
        for row in ROWS:
            line = _line(results, backend, row)
            if line is not None:
                found.append(line)
    return found


def _line(results: Results, backend: str, row: Row) -> Line | None:
    ours = _numbers(results, row, backend, row.role)
    if not ours:
        return None
    line: Line = {"backend": backend, "workload": row.workload, "measure": row.label, "unit": row.unit}
    line["ours"] = statistics.median(ours)
    value = line["ours"]
    if row.against is not None:
        theirs = _numbers(results, row, "memory" if row.against == "memory" else backend, row.against)
        if not theirs or not all(theirs):
            return None
        line["against"], line["theirs"] = row.against, statistics.median(theirs)
        value = line["ratio"] = statistics.median(our / their for our, their in zip(ours, theirs, strict=False))
    target = row.targets.get(backend)
    if target is not None:
        line["target"] = f"{'>=' if row.at_least else '<='} {target:g}"
        line["met"] = bool(value >= target if row.at_least else value <= target)  # type: ignore[operator]
    return line


def _numbers(results: Results, row: Row, backend: str, role: str) -> list[float]:
    rounds = results.get((row.workload, backend, role), [])
    return [numbers[row.measure] for numbers in rounds if row.measure in numbers]


def show(found: list[Line], console: Console) -> None:
    """Print one table per backend."""
    for backend in dict.fromkeys(line["backend"] for line in found):
        title = "process" if backend == "memory" else str(backend)
        table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        for heading in ("", "measure", "ours", "against", "theirs", "ratio", "target", ""):
            right = heading in ("ours", "theirs", "ratio", "target")
            table.add_column(heading, justify="right" if right else "left", no_wrap=True)
        last = None
        for line in found:
            if line["backend"] == backend:
                if last not in (None, line["workload"]):
                    table.add_section()
                table.add_row(*_cells(line, last != line["workload"]))
                last = line["workload"]
        console.print(table)


def _cells(line: Line, first: bool) -> list[str]:
    mark = {True: "[green]met[/]", False: "[red]missed[/]", None: ""}[line.get("met")]  # type: ignore[index]
    show: Callable[[str], str] = lambda key: _number(line[key], str(line["unit"])) if key in line else ""  # noqa: E731
    ratio = f"{line['ratio']:.2f}" if "ratio" in line else ""
    return [
        str(line["workload"]) if first else "",
        str(line["measure"]),
        show("ours"),
        str(line.get("against", "")),
        show("theirs"),
        ratio,
        str(line.get("target", "")),
        mark,
    ]


def _number(value: object, unit: str) -> str:
    assert isinstance(value, (int, float))
    if unit == "MB":
        return f"{value / 1e6:.2f} MB"
    if unit == "x":
        return f"{value:.2f} x"
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"

"""Expired threads by the hundred thousand: swept with the memory of a few, and nothing of them stays.

STEPVAULT_SOAK_THREADS says how many the soak sweeps; eight rows each, so the default is more than a million rows.
"""

from __future__ import annotations

import os
import resource
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from stepvault.checkpointers.postgres import PostgresSaver
from stepvault.checkpointers.redis import RedisSaver
from stepvault.checkpointers.sqlite import SqliteSaver
from tests.contract.lifetime.building import later
from tests.contract.matrix import WANTED
from tests.faults.expired import fill, left, size

PLACES = {
    "sqlite": (SqliteSaver, "sqlite_file"),
    "postgres": (PostgresSaver, "postgres_clean_url"),
    "redis": (RedisSaver, "redis_url"),
}
Place = tuple[str, str, Any]


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.xdist_group(name) if name != "sqlite" else ())
        for name in PLACES
        if name in WANTED
    ]
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A backend, an empty database of it, and a saver there."""
    cls, fixture = PLACES[request.param]
    url = request.getfixturevalue(fixture)
    with cls.from_conn_string(url, ttl={"default_ttl": 60}) as saver:
        saver.setup()
        yield request.param, url, saver


def test_a_sweep_of_many_takes_the_memory_of_few(place: Place) -> None:
    backend, url, saver = place
    peaks = []
    for threads in (300, 1800):
        fill(saver, backend, url, threads)
        later(saver, 61)
        before = size(backend, url)
        tracemalloc.start()
        assert saver.sweep().threads == threads
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        saver.sweep()
        assert left(backend, url) == 0
    assert peaks[1] < 1.5 * peaks[0]
    if backend == "sqlite":
        assert size(backend, url) < before / 4  # the file shrinks


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_expired_rows_by_the_million(place: Place) -> None:
    backend, url, saver = place
    threads = int(os.environ.get("STEPVAULT_SOAK_THREADS", "170000"))
    empty = size(backend, url)
    fill(saver, backend, url, threads)
    later(saver, 61)
    rows, before = left(backend, url), size(backend, url)
    saver.sweep(limit=threads // 20)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.perf_counter(), time.process_time()
    report = saver.sweep()
    took, cpu = time.perf_counter() - began, time.process_time() - used
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    after = size(backend, url)
    print(f"{backend}: {rows} rows or keys, {report.threads} threads in {took:.0f} s, {cpu:.0f} s of own CPU;")
    print(f"{before} bytes before, {after} after; {grown} KB more memory")
    assert report.threads == threads - threads // 20
    saver.sweep()
    assert left(backend, url) == 0
    assert grown < 32 << 10
    if backend != "postgres":  # whose files shrink by VACUUM FULL alone
        assert after - empty < (before - empty) / 10

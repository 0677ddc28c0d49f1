"""What is known of a run under an older LangGraph."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from stepvault._core import runs


def test_a_langgraph_that_names_no_run_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    runs._say_what_is_off.cache_clear()
    known = runs.Runs()
    with caplog.at_level(logging.WARNING, "stepvault"):
        for runtime in (None, SimpleNamespace(control=None)):
            assert known.of({"configurable": {"__pregel_runtime": runtime}}) is None
        assert not caplog.records
        for _ in range(2):
            assert known.of({"configurable": {"__pregel_runtime": SimpleNamespace()}}) is None
    (line,) = caplog.records
    assert "1.2" in line.getMessage()

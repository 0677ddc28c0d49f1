from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from stepvault._core.plan import Batch, Op
from stepvault.checkpointers.redis import RedisSaver


@pytest.fixture
def client(valkey_server: Any) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_server.url) as client:
        yield client


@pytest.fixture
def saver(valkey_server: Any) -> Iterator[RedisSaver]:
    with RedisSaver(valkey_server.url) as saver:
        yield saver


@pytest.fixture(params=["valkey_server", "redis62_server", "redis_cluster"])
def any_server(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


class CrashError(BaseException):
    """The process ends here."""


class Crashing:
    """A driver whose process ends after some batches: `left` counts down."""

    def __init__(self, inner: Any, left: int) -> None:
        self.inner = inner
        self.left = left

    def run(self, op: Op[Any]) -> Any:
        reply, error = None, None
        while True:
            try:
                request = op.throw(error) if error else op.send(reply)
            except StopIteration as stop:
                return stop.value
            reply = error = None
            if isinstance(request, Batch):
                if not self.left:
                    raise CrashError
                self.left -= 1
            try:
                reply = self.inner.run(_one(request))
            except Exception as exc:
                error = exc

    def close(self) -> None:
        pass


def _one(request: Any) -> Op[Any]:
    return (yield request)

"""A long chat is one hash of few fields, for a field costs memory whatever it holds."""

from __future__ import annotations

import pytest
import redis
from langchain_core.messages import AIMessage, HumanMessage

from stepvault.checkpointers.redis import RedisSaver
from tests.backend.redis.building import put
from tests.servers import Valkey


@pytest.mark.parametrize(
    ("turns", "most"),
    [(500, 200), pytest.param(10_000, 2_000, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])],
    ids=["500", "10000"],
)
def test_a_chat_takes_few_fields(valkey_server: Valkey, turns: int, most: int) -> None:
    messages: list[HumanMessage | AIMessage] = []
    with RedisSaver(valkey_server.url) as saver, redis.Redis.from_url(valkey_server.url) as client:
        for n in range(1, turns + 1):
            messages = [*messages, HumanMessage(f"question {n}", id=f"h{n}"), AIMessage(f"answer {n}", id=f"a{n}")]
            put(saver, "t", n, messages=messages)
        (thread,) = client.scan_iter("stepvault:ck:*", count=1000, _type="hash")
        assert client.hlen(thread) <= most
        head = saver.get_tuple({"configurable": {"thread_id": "t"}})
        assert head is not None
        assert head.checkpoint["channel_values"]["messages"] == messages

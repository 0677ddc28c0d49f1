"""Records with bytes turned over: the server stays free, what is damaged is named, and everything else can be read."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import redis

from stepvault.checkpointers.redis import RedisSaver
from stepvault.encryption import Keyring
from stepvault.errors import KeyNotFoundError, PayloadError, PlaintextRejectedError, StepvaultError, StorageCorruptError
from tests.backend.redis.building import checkpoint_id, config, put

LAST = 4


@pytest.mark.parametrize("sealed", [False, True], ids=["raw", "sealed"])
@pytest.mark.parametrize("letter", [b"c", b"w"])
def test_any_damaged_byte_is_found_and_does_no_more(
    valkey_server: Any, client: redis.Redis, letter: bytes, sealed: bool
) -> None:
    options: dict[str, Any] = {"keyring": Keyring.generate()} if sealed else {}
    with RedisSaver(valkey_server.url, **options) as saver:
        for number in range(1, LAST + 1):
            at = put(saver, "t", number, a=f"{number} " * 40)
            saver.put_writes(at, [("b", "written " * 40)], "task")
        put(saver, "other", 1, a=1)
    key = max(client.keys("*:ck:*"), key=client.hlen)
    field = max(name for name in client.hkeys(key) if name.startswith(letter))
    sound = client.hget(key, field)
    assert sound is not None
    found = 0
    for at in [*range(40), *range(40, len(sound), 7)]:
        for bits in (0x01, 0xFF):
            client.hset(key, field, sound[:at] + bytes((sound[at] ^ bits,)) + sound[at + 1 :])
            with RedisSaver(valkey_server.url, **options) as saver:
                found += not is_readable(saver, sealed)
                assert len(saver.threads()) == 2
                for problem in saver.verify().problems:
                    assert (problem.thread_id, problem.nearest) == ("t", checkpoint_id(LAST - 1))
                assert saver.get_tuple(config("t", checkpoint_id(LAST - 1))) is not None
    assert found > 20
    client.hset(key, field, sound)


def is_readable(saver: RedisSaver, sealed: bool) -> bool:
    said = []
    # A page of sealed records is opened whole: who lists is told what, `get_tuple` and `verify` say where.
    for read in (saver.get_tuple,) if sealed else (saver.get_tuple, lambda at: list(saver.list(at))):
        try:
            read(config("t"))
        except (PlaintextRejectedError, KeyNotFoundError):  # the mark, the name of the key; `verify` names the place
            return False
        except PayloadError as exc:
            said.append(str(exc))
    assert all("'t'" in text and checkpoint_id(LAST) in text for text in said), said
    return not said


@pytest.mark.parametrize("name", ["v", "n", "m", "t", "x", "id"])
def test_a_damaged_header_has_an_error_with_a_name(valkey_server: Any, client: redis.Redis, name: str) -> None:
    with RedisSaver(valkey_server.url) as saver:
        put(saver, "t", 1, a=1)
        (key,) = client.keys("*:ck:*")
        client.hset(key, name, b"\xff\xff\xff")
    with RedisSaver(valkey_server.url) as saver:
        for read in (saver.threads, lambda: saver.get_tuple(config("t")), lambda: put(saver, "t", 2, a=2)):
            with contextlib.suppress(StepvaultError):
                read()
        client.delete(key)
        assert len(saver.threads()) == 0


def test_a_script_that_meets_damage_ends(valkey_server: Any, client: redis.Redis) -> None:
    with RedisSaver(valkey_server.url) as saver:
        at = put(saver, "t", 1, a=1)
        saver.put_writes(at, [("b", 1)], "task")
        (key,) = client.keys("*:ck:*")
        for name in client.hkeys(key):
            if name.startswith(b"w"):
                client.hset(key, name, bytes(64))
        with pytest.raises(StorageCorruptError, match="damaged"):
            saver.put_writes(at, [("b", 2)], "task")
        assert len(saver.threads()) == 1
        saver.delete_thread("t")
        put(saver, "t", 1, a=2)

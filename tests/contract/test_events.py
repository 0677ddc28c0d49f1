"""What `on_event=` is told, on every backend, by sync and async calls; and that it never stands in the way."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stepvault import Vault
from stepvault.errors import ConfigurationError, LeaseHeldError
from stepvault.events import Event
from tests.contract.building import checkpoint, config, id_of
from tests.contract.lifetime.building import later
from tests.contract.matrix import Database, InThreads, SqliteDatabase


def put(vault: Vault, thread: str, **more: Any) -> Any:
    made = checkpoint({"a": "a secret"})
    return vault.checkpointer.put(config(thread, **more), made, {}, made["channel_versions"])


async def live(database: Database, on_event: Any) -> None:
    prefix = "sqlite:///" if isinstance(database, SqliteDatabase) else ""
    options = {**database.options, "ttl": {"default_ttl": 60}}
    async with Vault.open(f"{prefix}{database.url}", on_event=on_event, **options) as vault:
        saver, erasure = vault.checkpointer, vault.erasure
        facade: Any = vault
        if database.mode == "sync":
            facade, erasure, saver = (InThreads(each) for each in (vault, vault.erasure, vault.checkpointer))
        stored = put(vault, "hers", user_id="ann")
        with vault.checkpointer.lease("hers"), pytest.raises(LeaseHeldError):
            vault.checkpointer.lease("hers").__enter__()
        await facade.arepair("hers", id_of(stored))
        await erasure.aerase("ann")
        put(vault, "old")
        later(vault.checkpointer, 100)
        await saver.asweep(dry_run=True)
        assert (await facade.asweep()).threads == 1


async def test_what_happened_is_told_with_ids_and_numbers(database: Database) -> None:
    events: list[Event] = []
    await live(database, events.append)
    assert [*dict.fromkeys((event.kind, event.detail, event.thread_id) for event in events)] == [
        ("conflict", "lease_held", "hers"),
        ("repaired", None, "hers"),
        *[("erasure", state, None) for state in ("received", "tombstoned")],
        *[("erasure", state, None) for state in ("deleted", "told", "purged", "verified", "receipted")],
        ("swept", None, None),
    ]
    assert events[-1].numbers["threads"] == 1
    assert events[-2].numbers == {"threads": 1, "checkpoints": 2}
    assert len({event.request_id for event in events[2:-1]}) == 1
    assert "ann" not in repr(events)
    assert "secret" not in repr(events)


async def test_one_that_raises_breaks_nothing(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    def raising(event: Event) -> None:
        raise ValueError(event.kind)

    with caplog.at_level(logging.ERROR, "stepvault"):
        await live(database, raising)
    assert len([line for line in caplog.records if "on_event raised" in line.message]) == 11


async def test_what_nobody_could_call_is_refused(database: Database) -> None:
    async def coroutine(event: Event) -> None: ...

    for wrong in (coroutine, "log", 5):
        with pytest.raises(ConfigurationError, match="on_event"):
            database.unprepared(on_event=wrong)

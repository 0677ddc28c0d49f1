"""Shortening the messages of a thread by a new checkpoint, in two steps: the summary is made between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, cast

from langchain_core.messages import BaseMessage, SystemMessage
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, CheckpointTuple

from stepvault._core.codec import unpack
from stepvault._core.ids import id_key, id_of, text_of
from stepvault._core.plan import Op
from stepvault._core.record import decode_record
from stepvault._core.state import State
from stepvault._core.versions import next_version
from stepvault.checkpointers._ops.context import Address, Scope, config_of, thread_of
from stepvault.checkpointers._ops.expiry import db_now
from stepvault.checkpointers._ops.load import get_tuple
from stepvault.checkpointers._ops.put import put
from stepvault.checkpointers._ops.repairing import after, as_stored
from stepvault.compaction import PROVENANCE, Compaction, CompactionReport, characters, is_summary, type_of
from stepvault.compaction import id_of as message_id
from stepvault.errors import ConfigurationError, ConflictError


@dataclass(frozen=True, slots=True)
class Draft:
    """What a compaction would do to the head of a thread."""

    asked: Compaction
    scope: Scope
    thread_id: str
    found: CheckpointTuple
    messages: Sequence[Any]
    kept: Sequence[Any]
    removed: list[Any]

    @property
    def provenance(self) -> dict[str, Any]:
        """Where a summary comes from."""
        return {"checkpoint_id": self.found.checkpoint["id"], "message_ids": [*map(message_id, self.removed)]}

    def report(self, made: str | None, summary: Any = None, *, dry_run: bool = False) -> CompactionReport:
        """What was done; `made` None: nothing."""
        changed = made is not None or dry_run
        after_it = self.messages if not changed else [*self.kept, *([] if summary is None else [summary])]
        count = self.asked.count_tokens
        return CompactionReport(
            thread_id=self.thread_id,
            checkpoint_id=made,
            compacted_from=self.found.checkpoint["id"],
            removed=tuple(map(message_id, self.removed)),
            kept=len(self.kept),
            summary_id=message_id(summary),
            characters_before=characters(self.messages),
            characters_after=characters(after_it),
            tokens_before=count(list(self.messages)) if count else None,
            tokens_after=count(list(after_it)) if count else None,
            dry_run=dry_run,
        )


def draft(scope: Scope, at: Address, asked: Compaction) -> Op[Draft]:
    """Look at the head of a thread, and choose which messages go.

    Raises:
        ConfigurationError: There is no such thread, or its channel does not hold a list of messages.
        ConflictError: Something is pending there: a question to a human, a pause, or a step that was not finished.
    """
    scope = yield from _as_stored(scope, at)
    found = yield from get_tuple(scope, at)
    thread = text_of(at.key.thread)
    if found is None:
        raise ConfigurationError(f"There is no thread {thread!r} to compact.")
    state = yield from _state(scope, at)
    if found.pending_writes or (state.paused and state.pending):
        raise ConflictError(
            f"Thread {thread!r} has a question to a human, a pause or an unfinished step at its head, which a new "
            "checkpoint would lose; nothing was changed. Let a run finish it, then compact."
        )
    key = asked.messages_key
    messages = found.checkpoint["channel_values"].get(key)
    if not isinstance(messages, list) or not all(type_of(message) for message in messages):
        raise ConfigurationError(
            f"Channel {key!r} of thread {thread!r} holds no list of messages; name the channel with messages_key=. "
            "A DeltaChannel cannot be compacted: its value is not stored."
        )
    going = asked.goes(messages)
    kept = [message for message, goes in zip(messages, going, strict=True) if not goes]
    return Draft(
        asked, scope, thread, found, messages, kept, [m for m, goes in zip(messages, going, strict=True) if goes]
    )


def _as_stored(scope: Scope, at: Address) -> Op[Scope]:
    loaded = yield from scope.core.dialect.load(at.key, b"", None, None)
    return as_stored(scope, decode_record(unpack(loaded.checkpoints[0].body))) if loaded.checkpoints else scope


def store(at: Address, made: Draft, summary: Any, fresh: str) -> Op[CompactionReport]:
    """Put a checkpoint with the shorter messages at the head. The caller holds the thread's lease."""
    scope, found, key = made.scope, made.found, made.asked.messages_key
    message = _message(made, summary, fresh)
    values = {**found.checkpoint["channel_values"], key: _placed(made, message)}
    head = (yield from _state(scope, at)).head
    checkpoint_id = fresh if head is None or id_key("checkpoint_id", fresh) > head else after(id_of(head))
    versions, updated = found.checkpoint["channel_versions"], found.checkpoint.get("updated_channels")
    old, new = versions.get(key), next_version(max(versions.values(), default=None))
    checkpoint = cast(
        Checkpoint,
        {
            **found.checkpoint,
            "id": checkpoint_id,
            "ts": datetime.fromtimestamp((yield from db_now(scope.core)) / 1000, timezone.utc).isoformat(),
            "channel_values": values,
            "channel_versions": {**versions, key: new},
            "versions_seen": {node: _seen(seen, key, old, new) for node, seen in _seen_of(found).items()},
            "updated_channels": updated if updated is None else sorted({*updated, key}),
        },
    )
    parent = replace(at, checkpoint=id_key("checkpoint_id", found.checkpoint["id"]))
    config = config_of(at.key, b"", found.checkpoint["id"])
    yield from put(scope, parent, config, checkpoint, _metadata(made, message), {key: new}, compacts=True)
    return made.report(checkpoint_id, message)


def _state(scope: Scope, at: Address) -> Op[State]:
    thread = yield from thread_of(scope, at.key)
    return State.unpack(thread.extents) if thread else State()


def _seen_of(found: CheckpointTuple) -> dict[str, Any]:
    return found.checkpoint["versions_seen"]


def _seen(seen: dict[str, Any], key: str, old: Any, new: Any) -> dict[str, Any]:
    """A node that has seen the long list has seen the short one: compacting sets nothing off."""
    return {**seen, key: new} if key in seen and seen[key] == old else seen


def _metadata(made: Draft, message: Any) -> CheckpointMetadata:
    before: dict[str, Any] = dict(made.found.metadata)
    before.pop("run_id", None)  # no run made it
    step = before.get("step")
    source = made.provenance if message is None else {**made.provenance, "summary_id": message_id(message)}
    told = {"compacted_from": made.found.checkpoint["id"], "compaction": source}
    step = step + 1 if type(step) is int else 0
    return cast(CheckpointMetadata, {**before, "source": "update", "step": step, **told})


def _message(made: Draft, summary: Any, fresh: str) -> Any:
    """The summary as a message of the kind the thread has, with what it was made from; None: there is none."""
    if summary is None or summary == "":
        return None
    if not isinstance(summary, (str, BaseMessage)):
        raise ConfigurationError(f"summarise must return a str or a message, not {type(summary).__name__}.")
    if isinstance(summary, str) and all(isinstance(message, dict) for message in made.messages):
        return {"role": "system", "content": summary, "id": f"summary-{fresh}"}
    message = SystemMessage(summary) if isinstance(summary, str) else summary
    told = {**message.response_metadata, PROVENANCE: made.provenance}
    return message.model_copy(update={"id": message.id or f"summary-{fresh}", "response_metadata": told})


def _placed(made: Draft, message: Any) -> list[Any]:
    """The summary stands before what is kept, but after the system messages that begin it."""
    kept = list(made.kept)
    if message is None:
        return kept
    first = next((n for n, item in enumerate(kept) if type_of(item) != "system" or is_summary(item)), len(kept))
    return [*kept[:first], message, *kept[first:]]

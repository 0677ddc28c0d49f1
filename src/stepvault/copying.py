"""Copying threads and store items between any two savers or stores, official ones included, in both directions."""

from __future__ import annotations

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.store.base import BaseStore

from stepvault.errors import ConfigurationError

_PAGE = 500


def copy_all(source: BaseCheckpointSaver[Any] | BaseStore, target: BaseCheckpointSaver[Any] | BaseStore) -> int:
    """Copy every thread of a saver to another saver, or every item of a store to another store.

    Checkpoint and interrupt ids are kept, so an interrupted thread resumes in its copy. Copying again is harmless.

    Returns:
        How many threads or items were copied.

    Raises:
        ConfigurationError: The two are not of one kind.
    """
    if isinstance(source, BaseCheckpointSaver) and isinstance(target, BaseCheckpointSaver):
        return _copy_threads(source, target)
    if isinstance(source, BaseStore) and isinstance(target, BaseStore):
        return _copy_items(source, target)
    raise ConfigurationError("copy_all takes two savers or two stores.")


def _copy_threads(source: BaseCheckpointSaver[Any], target: BaseCheckpointSaver[Any]) -> int:
    threads: dict[str, None] = {}
    for entry in source.list(None):
        threads.setdefault(str((entry.config.get("configurable") or {})["thread_id"]))
    for thread_id in threads:
        oldest_first = sorted(
            source.list({"configurable": {"thread_id": thread_id}}), key=lambda entry: entry.checkpoint["id"]
        )
        for entry in oldest_first:
            _copy_checkpoint(entry, target)
    return len(threads)


def _copy_checkpoint(entry: CheckpointTuple, target: BaseCheckpointSaver[Any]) -> None:
    named = entry.config.get("configurable") or {}
    parent = (entry.parent_config or {}).get("configurable", {}).get("checkpoint_id")
    base = {"thread_id": named["thread_id"], "checkpoint_ns": named.get("checkpoint_ns", "")}
    under: dict[str, Any] = {"configurable": {**base, **({"checkpoint_id": parent} if parent else {})}}
    versions = entry.checkpoint["channel_versions"]
    stored = target.put(under, entry.checkpoint, entry.metadata, versions)  # type: ignore[arg-type]
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in entry.pending_writes or ():
        tasks.setdefault(task, []).append((channel, value))
    for task, writes in tasks.items():
        target.put_writes(stored, writes, task)


def _copy_items(source: BaseStore, target: BaseStore) -> int:
    copied = offset = 0
    while True:
        page = source.list_namespaces(limit=_PAGE, offset=offset)
        for namespace in page:
            copied += _copy_namespace(source, target, tuple(namespace))
        offset += len(page)
        if len(page) < _PAGE:
            return copied


def _copy_namespace(source: BaseStore, target: BaseStore, namespace: tuple[str, ...]) -> int:
    copied = offset = 0
    while True:
        page = source.search(namespace, limit=_PAGE, offset=offset)
        for item in page:
            if tuple(item.namespace) == namespace:
                target.put(item.namespace, item.key, item.value)
                copied += 1
        offset += len(page)
        if len(page) < _PAGE:
            return copied

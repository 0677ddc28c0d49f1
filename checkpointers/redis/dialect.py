"""The storage primitives on Redis: one hash per thread, Lua for each write, no transactions and no locks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Batch, Command, Op
from stepvault.checkpointers.redis.copying import Copying
from stepvault.checkpointers.redis.documents import Documents
from stepvault.checkpointers.redis.keys import Keys
from stepvault.checkpointers.redis.listing import Listing
from stepvault.errors import ConfigurationError, StorageError

_log = logging.getLogger("stepvault")

_SAFE = "noeviction"


class RedisDialect(Listing, Copying, Documents):
    """See `Dialect`.

    Args:
        prefix: What every key begins with.
        allow_eviction: Only warn about a server that may evict threads.
        grace: Minutes after its deadline at which a thread goes by itself; None: it waits for a sweep.
    """

    automatic_setup = False
    locks = False

    def __init__(self, prefix: str, *, allow_eviction: bool = False, grace: float | None = None) -> None:
        super().__init__(grace)
        self.keys = Keys(prefix)
        self._allow_eviction = allow_eviction
        self._told = False

    def only_theirs(self) -> Op[bool]:
        return False  # theirs are documents of modules that a plain server does not have
        yield

    def setup(self) -> Op[None]:
        """Look at the server's settings; there is nothing to create.

        Raises:
            ConfigurationError: The server may evict threads when its memory is full.
        """
        try:
            settings = yield from self._settings()
        except (ConfigurationError, StorageError) as exc:
            yield Batch([Command(("PING",))])  # raises where more is wrong than that settings may not be read
            if not self._told:
                self._told = True
                _log.warning("CONFIG cannot be read (%s); make sure that maxmemory-policy is noeviction.", exc)
            return
        for node in settings:
            policy, bound = _policy(node)
            if bound and policy.startswith("allkeys") and not self._allow_eviction:
                raise ConfigurationError(f"{self._advice(policy)} allow_eviction=True accepts the loss.")
            if policy != _SAFE:
                _log.warning("%s", self._advice(policy))

    def warnings(self) -> Op[list[str]]:
        """See `Dialect`; nothing where settings cannot be read, `setup` has said so."""
        try:
            settings = yield from self._settings()
        except (ConfigurationError, StorageError):
            settings = []
        policies = dict.fromkeys(_policy(node)[0] for node in settings)
        found = [self._advice(policy) for policy in policies if policy != _SAFE]
        try:
            states = yield from self._of_each_node("INFO")
        except (ConfigurationError, StorageError):
            states = []
        return found + list(dict.fromkeys(trouble for state in states for trouble in _troubles(state)))

    def _settings(self) -> Op[list[dict[str, str]]]:
        """What memory each node may use, and what it does when that is full."""
        return (yield from self._of_each_node("CONFIG GET", "maxmemory*"))

    def _of_each_node(self, *command: str) -> Op[list[dict[str, Any]]]:
        (reply,) = yield Batch([Command(command)])
        return [reply] if isinstance(reply, dict) else list(reply)

    def _advice(self, policy: str) -> str:
        if self._grace is None or not policy.startswith("volatile"):
            return f"maxmemory-policy is {policy}: Redis may evict threads. Set it to {_SAFE}."
        return (
            f"maxmemory-policy is {policy}: Redis may evict threads with a time to live before it is over. Set it to "
            f"{_SAFE}, or give threads no expiry of Redis's own: ttl={{'native_grace_minutes': None, ...}}."
        )

    def lock(self, key: ThreadKey) -> Op[None]:
        return  # correctness comes from revisions alone
        yield


def _troubles(state: Mapping[str, Any]) -> Iterator[str]:
    """Why a node refuses writes, by its INFO."""
    if state.get("role") not in (None, "master"):
        yield "This server is a replica and takes no writes: connect to the primary."
    bound = int(state.get("maxmemory") or 0)
    if bound and state.get("maxmemory_policy") == _SAFE and int(state.get("used_memory") or 0) >= bound:
        yield "maxmemory is reached: writes are refused until memory is freed. Sweep, or raise it."
    if state.get("aof_last_write_status") == "err":
        yield "The append-only file cannot be written: writes are refused. Look at the disk and the server's log."


def _policy(settings: dict[str, str]) -> tuple[str, bool]:
    """What a node does when its memory is full, and whether it has a bound."""
    return settings.get("maxmemory-policy", _SAFE), settings.get("maxmemory", "0") != "0"

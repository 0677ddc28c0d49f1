"""The storage primitives on Redis: one hash per thread, Lua for each write, no transactions and no locks."""

from __future__ import annotations

import logging

from stepvault._core.knowledge import ThreadKey
from stepvault._core.plan import Batch, Command, Op
from stepvault.checkpointers.redis.copying import Copying
from stepvault.checkpointers.redis.documents import Documents
from stepvault.checkpointers.redis.keys import Keys
from stepvault.checkpointers.redis.listing import Listing
from stepvault.errors import ConfigurationError, StorageError

_log = logging.getLogger("stepvault")


class RedisDialect(Listing, Copying, Documents):
    """See `Dialect`.

    Args:
        prefix: What every key begins with.
        allow_eviction: Only warn about a server that may evict threads.
    """

    automatic_setup = False
    locks = False

    def __init__(self, prefix: str, *, allow_eviction: bool = False) -> None:
        super().__init__()
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
            (replies,) = yield Batch([Command(("CONFIG GET", "maxmemory*"))])
        except (ConfigurationError, StorageError) as exc:
            if not self._told:
                self._told = True
                _log.warning("CONFIG cannot be read (%s); make sure that maxmemory-policy is noeviction.", exc)
            return
        for reply in replies if isinstance(replies, list) or not isinstance(replies, dict) else [replies]:
            self._check(reply)

    def _check(self, settings: dict[str, str]) -> None:
        policy, bound = settings.get("maxmemory-policy", "noeviction"), settings.get("maxmemory", "0")
        if policy == "noeviction":
            return
        advice = f"maxmemory-policy is {policy}: Redis may evict threads. Set it to noeviction."
        if bound != "0" and policy.startswith("allkeys") and not self._allow_eviction:
            raise ConfigurationError(f"{advice} allow_eviction=True accepts the loss.")
        _log.warning("%s", advice)

    def lock(self, key: ThreadKey) -> Op[None]:
        return  # correctness comes from revisions alone
        yield

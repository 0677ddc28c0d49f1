"""What the sync and the async half of a Redis driver have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from stepvault._core.numbers import check_count, check_seconds
from stepvault._core.plan import Batch, Command, Script
from stepvault.errors import StorageUnavailableError

OF_EACH_NODE = ("CONFIG GET", "INFO")  # commands that a cluster answers with a list, a reply for each primary


class ScriptText(NamedTuple):
    """A Lua script: its source, the digest a server knows it by, and whether it writes."""

    source: str
    sha: str
    writes: bool


@dataclass(frozen=True, slots=True)
class Settings:
    """How commands are sent.

    Attributes:
        scripts: Scripts by name.
        where: What messages call the server.
        limit: Commands at work at a time; the others wait for their turn.
        wait_replicas: Replicas that must confirm each write.
        wait_timeout: Seconds they have for it.
    """

    scripts: Mapping[str, ScriptText]
    where: str
    limit: int
    wait_replicas: int = 0
    wait_timeout: float = 1.0

    def __post_init__(self) -> None:
        check_count("wait_replicas", self.wait_replicas, least=0)
        check_seconds("wait_timeout", self.wait_timeout, above=True)

    def words(self, statement: Any, *, text: bool = False) -> tuple[Any, ...]:
        """A statement as it is sent; a script by its digest, or by its text for a server that does not know it."""
        if isinstance(statement, Command):
            return statement.args
        assert isinstance(statement, Script)
        script = self.scripts[statement.name]
        call = ("EVAL", script.source) if text else ("EVALSHA", script.sha)
        return (*call, len(statement.keys), *statement.keys, *statement.args)

    def written(self, batch: Batch, node_of: Callable[[bytes], str]) -> list[bytes]:
        """Keys of a batch whose writes replicas must confirm, one on each node."""
        if not self.wait_replicas:
            return []
        scripts = [s for s in batch.statements if isinstance(s, Script) and self.scripts[s.name].writes]
        keys = [key for script in scripts for key in (script.keys if script.each else script.keys[:1])]
        return list({node_of(key): key for key in keys}.values())

    @property
    def wait(self) -> tuple[Any, ...]:
        """The command that waits for replicas."""
        return ("WAIT", self.wait_replicas, int(self.wait_timeout * 1000))

    def check(self, confirmed: int) -> None:
        """Compare how many replicas confirmed.

        Raises:
            StorageUnavailableError: Too few.
        """
        if confirmed < self.wait_replicas:
            raise StorageUnavailableError(
                f"{self.where}: {confirmed} of wait_replicas={self.wait_replicas} replicas confirmed a write within "
                f"{self.wait_timeout:g} s. The primary has it and a failover may lose it; repeating it is safe."
            )


def apart(statement: Any) -> list[Script] | None:
    """The calls that a statement is in a cluster, if it is several."""
    if not isinstance(statement, Script) or not statement.each:
        return None
    return [Script(statement.name, (key,), (arg,)) for key, arg in zip(statement.keys, statement.args, strict=True)]


def unknown_in(statements: Sequence[Any], replies: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Where a server asked for the texts of scripts: for each script first, and then again."""
    missing = [at for at, reply in enumerate(replies) if is_unknown_script(reply)]
    first = list({statements[at].name: at for at in reversed(missing)}.values())
    return first, [at for at in missing if at not in first]


def key_of(batch: Batch) -> bytes | None:
    """The key that a batch is about: that of its first statement."""
    first = batch.statements[0] if batch.statements else None
    if isinstance(first, Script):
        return first.keys[0]
    if isinstance(first, Command) and len(first.args) > 1 and isinstance(first.args[1], bytes):
        return first.args[1]
    return None


def is_unknown_script(reply: Any) -> bool:
    """Whether a server asked for the text of a script."""
    return isinstance(reply, NoScriptError) or (isinstance(reply, ResponseError) and "NOSCRIPT" in str(reply))


def scan_words(args: tuple[Any, ...], nodes: int) -> tuple[int, tuple[Any, ...]]:
    """SCAN over a cluster: which primary is next, and the command for it."""
    cursor, node = divmod(int(args[1]), nodes)
    return node, ("SCAN", cursor, *args[2:])


def scan_reply(reply: Any, node: int, nodes: int) -> tuple[int, Any]:
    """A SCAN reply with the cursor of the whole cluster."""
    at, keys = reply
    cursor = int(next(iter(at.values())) if isinstance(at, dict) else at)  # redis-py gives cursors by node
    if cursor:
        return cursor * nodes + node, keys
    return (node + 1 if node + 1 < nodes else 0), keys

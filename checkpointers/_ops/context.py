"""What every operation is given: the saver's parts, and the address a config names."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig

from stepvault._core.blind_index import Marks
from stepvault._core.codec import Codec
from stepvault._core.credentials import Credentials
from stepvault._core.evolution import Evolution
from stepvault._core.ids import id_key, text_key, text_of, thread_text
from stepvault._core.knowledge import Knowledge, ThreadKey
from stepvault._core.people import subjects_in
from stepvault._core.plan import Call, Op
from stepvault._core.ports import Port
from stepvault._core.reads import Reads
from stepvault._core.rows import ThreadRow
from stepvault._core.runs import Run, Runs, is_bound
from stepvault._core.values import Decoder
from stepvault._keystore.keys import Keys
from stepvault.checkpointers._dialect import Dialect
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError
from stepvault.events import Event, Kind, OnEvent, tell
from stepvault.ttl import Retention, ThreadTtl

T = TypeVar("T")

_MUCH = 256 << 10  # bytes, or items times 256: some milliseconds of work
LEASE_TOKEN = "__lease_token"  # in `configurable`; LangGraph hands such keys to every call and stores none


TTL_KEY = "stepvault_ttl"  # minutes, in `configurable`; None: this thread does not expire


@dataclass(frozen=True, slots=True)
class Lifetime:
    """What a config says about its thread's time to live."""

    minutes: Any


@dataclass(slots=True)
class Clock:
    """The database's time, as of this process: read once a minute, counted on with the monotonic clock."""

    base: int = 0
    at: float = float("-inf")


@dataclass(slots=True)
class Tables:
    """Whether the tables are known to be there, and since when they may be read: see `admission`."""

    ready: bool = False
    admitted: float = float("-inf")
    marks: Marks | None = None  # of a database that was unsealed


@dataclass(slots=True)
class Wired:
    """What a vault has put beside this saver, and what that has told it; see `reads`."""

    store: Any = None  # a `reads.Beside`
    reads: Reads = field(default_factory=Reads)
    unadopted: bytes | None = None  # the trace that taking over `adopt_from=` leaves, until it is seen


@dataclass(frozen=True, slots=True)
class Core:
    """The parts of a saver that its views and clones share."""

    dialect: Dialect
    knowledge: Knowledge
    runs: Runs
    codec: Codec
    credentials: Credentials
    random: Callable[[int], bytes]
    tables: Tables
    native: Port
    offload: Callable[[Callable[[], Any]], Callable[[], Awaitable[Any]]]
    monotonic: Callable[[], float]
    clock: Clock
    lost: OrderedDict[bytes, None]  # lease tokens of this process that were lost
    ttl: ThreadTtl
    retention: Retention | None = None
    subject_keys: Sequence[str] = ("user_id",)
    require_subject: bool = False
    on_conflict: str = "fork"
    interrupt_deadline: float | None = None  # minutes
    evolution: Evolution = field(default_factory=Evolution)
    keys: Keys | None = None  # of a sealed database
    keyring: Keyring | None = None
    wired: Wired = field(default_factory=Wired)
    on_event: OnEvent | None = None
    start_empty: bool = False

    def compute(self, work: Callable[[], T], size: int) -> Op[T]:
        """Do some encoding or decoding, off the event loop if it is much."""
        if size < _MUCH:
            return work()
        return (yield Call(work, self.offload(work)))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Scope:
    """A saver's view: the shared parts, its tenant and its serializer."""

    core: Core
    tenant: bytes
    port: Port

    def key(self, thread_id: Any) -> ThreadKey:
        return ThreadKey(self.tenant, text_key("thread_id", thread_text(thread_id)))

    def mark(self, data: bytes) -> bytes:
        """What stands for an id where it can be read: a token of it in a sealed database, else the id itself."""
        if self.core.keys is not None:
            return self.core.keys.mark(self.tenant, data)
        return data if self.core.tables.marks is None else self.core.tables.marks.mark(self.tenant, data)

    def tell(self, kind: Kind, detail: str | None = None, key: ThreadKey | None = None, **more: Any) -> None:
        """Hand an event to `on_event=`."""
        if self.core.on_event is not None:
            thread_id = text_of(key.thread) if key is not None else None
            tell(self.core.on_event, Event(kind, text_of(self.tenant), detail, thread_id, **more))

    @property
    def native(self) -> Port:
        """Our own serializer, with the types this view may revive."""
        return self.port if self.port.splits and not self.port.flag else self.core.native

    def decoder(self, elements: Mapping[int, bytes]) -> Decoder:
        return Decoder(self.port, self.native, elements)


@dataclass(slots=True)
class Address:
    """What a config names: a thread, a namespace, maybe a checkpoint, maybe the run that asks.

    Nothing changes one; see `plan` for why it is not frozen.
    """

    key: ThreadKey
    ns: bytes
    checkpoint: bytes | None
    run: Run | None
    lease: bytes | None = None
    addressed: bool = False  # the caller named the checkpoint itself
    bound: bool = False  # LangGraph says where subgraphs of a replay begin
    ttl: Lifetime | None = None  # what the config says, if it says something
    subjects: tuple[str, ...] = ()  # whose data a write of this config is
    parents: Mapping[str, str] = field(default_factory=dict)  # namespaces above, and their checkpoints

    def config(self, checkpoint_id: str) -> RunnableConfig:
        """The config of a checkpoint in this namespace."""
        return config_of(self.key, self.ns, checkpoint_id)


def thread_of(scope: Scope, key: ThreadKey) -> Op[ThreadRow | None]:
    """A thread as it stands, without anything in it."""
    ((thread, _),) = yield from scope.core.dialect.notes_at([(key, b"")])
    return thread


def address_of(scope: Scope, config: Mapping[str, Any] | None) -> Address:
    """Read a config.

    Raises:
        ConfigurationError: It names no thread.
        IdentifierError: An id is of a kind that cannot be stored.
    """
    configurable = (config or {}).get("configurable")
    if (type(configurable) is not dict and not isinstance(configurable, Mapping)) or "thread_id" not in configurable:
        raise ConfigurationError('The config names no thread; pass {"configurable": {"thread_id": ...}}.')
    assert config is not None
    checkpoint_id = configurable.get("checkpoint_id")
    return Address(
        key=scope.key(configurable["thread_id"]),
        ns=text_key("checkpoint_ns", ns) if (ns := configurable.get("checkpoint_ns")) else b"",
        checkpoint=id_key("checkpoint_id", checkpoint_id) if checkpoint_id else None,
        run=scope.core.runs.of(config),
        lease=lease.encode() if isinstance(lease := configurable.get(LEASE_TOKEN), str) else None,
        addressed="checkpoint_id" in (config.get("metadata") or {}),
        bound=is_bound(configurable),
        ttl=Lifetime(configurable[TTL_KEY]) if TTL_KEY in configurable else None,
        subjects=subjects_in(configurable, scope.core.subject_keys),
        parents=configurable.get("checkpoint_map") or {},
    )


def config_of(key: ThreadKey, ns: bytes, checkpoint_id: str) -> RunnableConfig:
    """The config of one checkpoint."""
    return {
        "configurable": {
            "thread_id": text_of(key.thread),
            "checkpoint_ns": text_of(ns),
            "checkpoint_id": checkpoint_id,
        }
    }

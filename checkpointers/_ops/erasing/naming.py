"""A thread that a person leaves: their name goes from its checkpoints' metadata too, where filters would find it.

Everything else stays as it is, and so does the thread's generation: the runs of those who stay go on.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from stepvault._core.codec import unpack
from stepvault._core.knowledge import ThreadKey
from stepvault._core.manifest import Extents
from stepvault._core.metadata import tokens
from stepvault._core.plan import Atomic, Op
from stepvault._core.record import decode_record, encode_record
from stepvault._core.rows import Elements, Guard, ThreadRow
from stepvault._core.serde.scrubbing import ERASED, Scrubber
from stepvault._core.values import Decoder
from stepvault.checkpointers._ops.context import Scope
from stepvault.checkpointers._ops.erasing.forms import Rewriter
from stepvault.checkpointers._ops.inbox.entries import lenient
from stepvault.checkpointers._ops.load import metadata_of


def unname(scope: Scope, key: ThreadKey, thread: ThreadRow, ids: Collection[str]) -> Op[bool]:
    """Take a person's ids out of the metadata; whether the thread is another than it was read, so or by somebody."""
    once = _once(scope, key, thread, set(ids) - {ERASED})  # which a name is replaced by, and cannot be
    changed = (yield Atomic(_locked(scope, key, once), "write")) if scope.core.dialect.locks else (yield from once)
    scope.core.knowledge.forget(key)
    return bool(changed)


def _locked(scope: Scope, key: ThreadKey, once: Op[bool]) -> Op[bool]:
    yield from scope.core.dialect.lock(key)
    return (yield from once)


def _once(scope: Scope, key: ThreadKey, thread: ThreadRow, ids: Collection[str]) -> Op[bool]:
    skeleton = yield from scope.core.dialect.skeleton(key)
    if skeleton is None or skeleton.thread.rev != thread.rev:
        return True
    decoder = Decoder(scope.port if scope.port.flag or not scope.port.splits else lenient(), lenient(), {})
    extents, changed = skeleton.thread.extents, False
    for row in skeleton.checkpoints:
        record = decode_record(unpack(row.body))
        fields = _naming(metadata_of(record, decoder), scope.core.subject_keys, ids)
        if not fields:
            continue
        scrubber = Scrubber((), {("metadata", name): scope.native.dumps(value) for name, value in fields.items()})
        rewriter = Rewriter(scrubber, scope.port, scope.native, {}, Extents())
        record.metadata = rewriter.form("metadata", ("metadata",), record.metadata)
        after = row._replace(body=scope.core.codec.pack(encode_record(record), record=True), refs=record.refs())
        guard = Guard(key, thread, thread.uid, scope.core.random(8), extents)
        if (yield from scope.core.dialect.put(guard, Elements(), after, tokens(metadata_of(record, decoder)))) is None:
            return True
        thread, changed = ThreadRow(thread.no, thread.uid, guard.rev, b""), True
    return changed


def _naming(metadata: Mapping[str, Any], keys: Collection[str], ids: Collection[str]) -> dict[str, Any]:
    """The fields that name a person, with what takes their place."""
    found: dict[str, Any] = {}
    for key in keys:
        value = metadata.get(key)
        if isinstance(value, (list, tuple)) and any(str(one) in ids for one in value):
            found[key] = [ERASED if str(one) in ids else one for one in value]
        elif isinstance(value, (str, int)) and str(value) in ids:
            found[key] = ERASED
    return found

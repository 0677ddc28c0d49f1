"""Where the keys of docs have marks (see `Scope.mark`): what changes in them when a database is sealed.

Every space of `spaces.space` is named here, so that none is left unsealed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from stepvault.checkpointers._ops.inbox import index

Span = tuple[int, int]  # offset, size

_WHOLE: Sequence[Span] = ((0, 16),)
_PAIR: Sequence[Span] = ((0, 16), (16, 16))
_INBOX: Mapping[bytes, Sequence[Span]] = {
    index.LISTS: ((10, 8),),
    index.SUBJECTS: ((1, 16), (26, 8)),
    index.NODES: ((1, 16), (26, 8)),
    index.DUE: ((9, 8),),
    index.IDS: ((17, 8),),
    index.REFERENCES: ((1, 16), (17, 8)),
}
_SPANS: Mapping[str, Sequence[Span]] = {
    "expiry": ((8, 8),),
    "effects": _WHOLE,
    "subjects": _PAIR,
    "deciders": _PAIR,
    "tombstones": _WHOLE,
    "links": _WHOLE,
    "holds": _WHOLE,
    "pins": _PAIR,
    "erasures": (),
    "receipts": (),
    "signing": (),
    "inbox": (),
    "sweeps": (),
}
SPACES = tuple(_SPANS)


def marked(name: str, key: bytes, mark: Callable[[bytes], bytes]) -> bytes:
    """The key of a doc with its marks made anew from what they were made of."""
    spans = _INBOX.get(key[:1], ()) if name == "inbox" else _SPANS[name]
    for start, size in spans:
        key = key[:start] + mark(key[start : start + size])[:size] + key[start + size :]
    return key

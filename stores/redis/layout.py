"""Names of keys, and the bytes of an item.

The items of a tenant lie in groups, by the first two labels of their namespace: one hash and two orders per group,
in one slot of a cluster. A registry per tenant knows its groups.

Groups share a few slots, spread over a cluster: each of these has a copy of the marks of people who were erased, for
the scripts that write there.
"""

from __future__ import annotations

import binascii
import hashlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

from stepvault.errors import ConfigurationError, TruncatedError
from stepvault.stores._dialect import ItemRow, NewItem

_HEADER = struct.Struct(">ddddd")
HEADER_BYTES = _HEADER.size
_NONE = 0xFFFF
_SHARDS = 32  # which is also how many nodes of a cluster can share the items


def _tags() -> Iterator[bytes]:
    """A hash tag for each shard, in slots that are equally far from one another, or almost."""
    width = 16384 // _SHARDS
    for shard in range(_SHARDS):
        number = 0
        while binascii.crc_hqx(b"%d.%d" % (shard, number), 0) % 16384 // width != shard:
            number += 1
        yield b"%d.%d" % (shard, number)


_TAGS = tuple(_tags())


class Group(NamedTuple):
    """A tenant's items below two labels; a namespace of one label is a group of its own."""

    tenant: bytes
    labels: bytes


class Keys:
    """The keys of one prefix."""

    def __init__(self, prefix: str) -> None:
        if not isinstance(prefix, str) or not prefix or set(prefix) & set("{}"):
            raise ConfigurationError(f"prefix must be a text without braces, not {prefix!r}.")
        self._prefix = prefix.encode("utf-8", "surrogatepass")

    def group(self, group: Group) -> tuple[bytes, bytes, bytes]:
        """Its hash, its ids by the order of writing, its ids by deadline."""
        framed = b"".join(len(part).to_bytes(4, "big") + part for part in group)
        name = hashlib.blake2b(framed, digest_size=16, person=b"stepvault").digest()
        stem = b"%b:st:{%b}:%b" % (self._prefix, _TAGS[name[0] % _SHARDS], name.hex().encode())
        return stem + b":h", stem + b":u", stem + b":e"

    def written(self, group: Group) -> tuple[bytes, bytes, bytes, bytes]:
        """The keys of a group, and who was erased, in its slot."""
        keys = self.group(group)
        return *keys, keys[0].rpartition(b"}")[0] + b"}:erased"

    def erased(self) -> list[bytes]:
        """Who was erased: the same set in each slot."""
        return [b"%b:st:{%b}:erased" % (self._prefix, tag) for tag in _TAGS]

    def registry(self, tenant: bytes) -> bytes:
        """The groups of a tenant."""
        return b"%b:st:groups:%b" % (self._prefix, tenant.hex().encode())

    def registries(self) -> bytes:
        """A glob for the registries of all tenants."""
        escaped = b"".join(b"\\" + bytes((c,)) if c in b"*?[]\\^-" else bytes((c,)) for c in self._prefix)
        return escaped + b":st:groups:*"

    def tenant_of(self, registry: bytes) -> bytes:
        """Whose registry a key is."""
        return bytes.fromhex(registry.rpartition(b":")[2].decode())

    @property
    def mortal(self) -> bytes:
        """The groups that have deadlines, of all tenants."""
        return self._prefix + b":st:mortal"

    @property
    def index(self) -> bytes:
        """What the vector index was made with."""
        return self._prefix + b":st:index"


def group_of(tenant: bytes, ns: bytes) -> Group:
    """The group of a namespace."""
    first = ns.find(b"\0") + 1
    second = ns.find(b"\0", first) + 1
    return Group(tenant, ns[: second or first])


def is_within_group(prefix: bytes) -> bool:
    """Whether all namespaces below a prefix are of one group."""
    return prefix.count(b"\0") >= 2


def pack_member(group: Group) -> bytes:
    """A group in the set of those with deadlines."""
    return len(group.tenant).to_bytes(2, "big") + group.tenant + group.labels


def unpack_member(member: bytes) -> Group:
    """Undo `pack_member`."""
    end = 2 + int.from_bytes(member[:2], "big")
    return Group(member[2:end], member[end:])


def item_id(ns: bytes, key: bytes) -> bytes:
    """The id of an item in its group."""
    return ns + b"\0" + key


def split_id(id_: bytes) -> tuple[bytes, bytes]:
    """Undo `item_id`."""
    end = id_.find(b"\0\0") + 1
    return id_[:end], id_[end + 1 :]


def pack_body(item: NewItem) -> bytes:
    """What follows the header the server writes: tokens, source, fields, the value."""
    fields = item.fields.encode() if item.fields is not None else None
    parts = [_sized(part) for part in (item.tokens, item.thread, item.checkpoint, fields)]
    return b"".join(parts) + item.body


def _sized(part: bytes | None) -> bytes:
    return _NONE.to_bytes(2, "big") if part is None else len(part).to_bytes(2, "big") + part


class Stored(NamedTuple):
    """A value of the hash, taken apart."""

    row: ItemRow
    fields: str | None


def unpack(id_: bytes, value: bytes) -> Stored:
    """The row of an id and its value.

    Raises:
        TruncatedError: It is damaged.
    """
    row, _, fields = _unpacked(id_, value)
    return Stored(row, fields)


def unpack_item(id_: bytes, value: bytes, vectors: bytes, words: str) -> tuple[int, NewItem]:
    """The `no` of an item, and what was stored."""
    row, tokens, fields = _unpacked(id_, value)
    named = (row.ns, row.key, row.ttl, row.thread, row.checkpoint)
    return row.no, NewItem(*named, tokens, fields, words, (vectors,) if vectors else (), row.body)


def _unpacked(id_: bytes, value: bytes) -> tuple[ItemRow, bytes | None, str | None]:
    try:
        no, created, updated, ttl, _ = _HEADER.unpack_from(value)
    except struct.error as exc:
        raise TruncatedError from exc
    at, parts = _HEADER.size, []
    for _ in range(4):
        size = int.from_bytes(value[at : at + 2], "big")
        at += 2
        parts.append(None if size == _NONE else value[at : at + size])
        at += 0 if size == _NONE else size
    tokens, thread, checkpoint, fields = parts
    ns, key = split_id(id_)
    row = ItemRow(
        int(no), ns, key, int(created), int(updated), None if ttl < 0 else ttl, thread, checkpoint, value[at:]
    )
    return row, tokens, fields.decode() if fields is not None else None


def version_of(row: ItemRow) -> bytes:
    """The `no` of a row as the server has it."""
    return struct.pack(">d", row.no)

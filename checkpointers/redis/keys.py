"""Names of keys. Ids of any kind are hashed into them: the real ids stand inside."""

from __future__ import annotations

import functools
import hashlib

from stepvault._core.knowledge import ThreadKey
from stepvault.errors import ConfigurationError

_SEGMENTS = 16  # keys that the thread index of a tenant is spread over


class Keys:
    """The keys of one prefix."""

    def __init__(self, prefix: str) -> None:
        if not isinstance(prefix, str) or not prefix or set(prefix) & set("{}"):
            raise ConfigurationError(f"prefix must be a text without braces, not {prefix!r}.")
        self.prefix = prefix.encode("utf-8", "surrogatepass")

    def thread(self, member: bytes) -> bytes:
        """The hash of a thread."""
        return b"%b:ck:{%b}" % (self.prefix, member.hex().encode())

    def leads(self, thread: bytes) -> bytes:
        """What led to a thread that goes by itself, by its hash: in the same slot."""
        return b"%b:led:%b" % (self.prefix, thread[len(self.prefix) + 4 :])

    def thread_pattern(self, *, leads: bool = False) -> bytes:
        """A glob for every thread; `leads`: and for what led to those that are gone."""
        escaped = b"".join(b"\\" + bytes((c,)) if c in b"*?[]\\^-" else bytes((c,)) for c in self.prefix)
        return escaped + (b":[cl][ke]*:{*}" if leads else b":ck:{*}")

    def member_of(self, address: bytes) -> bytes:
        """The index member of a thread's key, or of the list beside it."""
        return bytes.fromhex(address[address.index(b"{") + 1 : -1].decode())

    def indexes(self, tenant: bytes) -> list[bytes]:
        """The thread index of a tenant."""
        return [self._index(tenant, number) for number in range(_SEGMENTS)]

    def index(self, tenant: bytes, member: bytes) -> bytes:
        """The part of the thread index that a thread stands in."""
        return self._index(tenant, member[0] % _SEGMENTS)

    def _index(self, tenant: bytes, number: int) -> bytes:
        return b"%b:ix:thr:%b:%02x" % (self.prefix, _spelled(tenant), number)

    def run(self, tenant: bytes, run: bytes) -> bytes:
        """The threads of a run."""
        return b"%b:ix:run:%b" % (self.prefix, _digest(tenant, run).hex().encode())

    def tenants(self, name: bytes) -> bytes:
        """The tenants that have a space of this name."""
        return b"%b:ix:ten:%b" % (self.prefix, name)

    def space(self, space: bytes) -> bytes:
        """The docs of a space."""
        return b"%b:doc:%b" % (self.prefix, _digest(space).hex().encode())


def member_of(key: ThreadKey) -> bytes:
    """What stands for a thread in its key and in indexes."""
    return _digest(*key)


@functools.lru_cache(maxsize=256)
def _spelled(tenant: bytes) -> bytes:
    return _digest(tenant).hex().encode()


def _digest(*parts: bytes) -> bytes:
    framed = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hashlib.blake2b(framed, digest_size=16, person=b"stepvault").digest()

"""Tokens by which sealed rows are found: equal for equal values, meaningless without the root key.

They leak equality and frequency, and whoever gets the root key can try values. See `docs/encryption.md`.
"""

from __future__ import annotations

from stepvault._core.crypto import Mac, Secret, expand, frame

TOKEN_BYTES = 16
DOC = b"doc"  # what `mark` is asked for


class BlindIndex:
    """Tokens of one deployment."""

    __slots__ = (
        "_items",
        "_mark_key",
        "_marks",
        "_metadata",
        "_namespaces",
        "_owners",
        "_subjects",
        "_threads",
        "_windows",
        "deployment",
    )

    def __init__(self, root: Secret) -> None:
        self.deployment = expand(root, b"stepvault/deployment/1", 16)
        self._threads = _key(root, b"thread")
        self._subjects = _key(root, b"subject")
        self._owners = _key(root, b"owner")
        self._metadata = _key(root, b"metadata")
        self._items = _key(root, b"item")
        self._namespaces = _key(root, b"namespace")
        self._mark_key = _derived(root, b"mark")
        self._marks = Mac(self._mark_key)
        self._windows = _key(root, b"window")

    def thread(self, tenant: bytes, thread: bytes) -> bytes:
        """What stands in the thread column."""
        return self._threads.tag(frame((tenant, thread)), TOKEN_BYTES)

    def subject(self, tenant: bytes, subject: bytes) -> bytes:
        """What subject columns, links and tombstones hold."""
        return self._subjects.tag(frame((tenant, subject)), TOKEN_BYTES)

    def owner(self, tenant: bytes, subject: bytes) -> bytes:
        """The owner of a subject's store items in the key store; of `b""` those that belong to nobody."""
        return self._owners.tag(frame((tenant, subject)), TOKEN_BYTES)

    def metadata(self, tenant: bytes, token: bytes) -> bytes:
        """The keyed form of a token of `metadata.tokens`, with the same equalities."""
        return self._metadata.tag(frame((tenant, token)), TOKEN_BYTES)

    def item(self, tenant: bytes, token: bytes) -> bytes:
        """The keyed form of a token of a store item's value; eight bytes, as those are, for every hit is looked at."""
        return self._items.tag(frame((tenant, token)), 8)

    def label(self, tenant: bytes, table: bytes, above: tuple[bytes, ...], label: bytes) -> bytes:
        """A namespace label or key; equal labels under different parents have different tokens."""
        return self._namespaces.tag(frame((tenant, table, frame(above), label)), TOKEN_BYTES)

    def mark(self, purpose: bytes, data: bytes) -> bytes:
        """What stands for an id in the keys of docs and notes."""
        return self._marks.tag(frame((purpose, data)), TOKEN_BYTES)

    def window(self, purpose: bytes, data: bytes) -> bytes:
        """A tag that only this deployment makes, see `seal_marker`."""
        return self._windows.tag(frame((purpose, data)), TOKEN_BYTES)

    def given_away(self) -> bytes:
        """The key of `mark`, for a database that is left unsealed with its marks as they are."""
        return self._mark_key.value


class Marks:
    """`BlindIndex.mark` of docs, in a database that was unsealed."""

    __slots__ = ("_mac",)

    def __init__(self, key: bytes) -> None:
        self._mac = Mac(Secret(key))

    def mark(self, tenant: bytes, data: bytes) -> bytes:
        """What stands for an id in the key of a doc."""
        return self._mac.tag(frame((DOC, frame((tenant, data)))), TOKEN_BYTES)


def _key(root: Secret, name: bytes) -> Mac:
    return Mac(_derived(root, name))


def _derived(root: Secret, name: bytes) -> Secret:
    return Secret(expand(root, b"stepvault/index/1/" + name))

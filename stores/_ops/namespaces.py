"""Namespaces as bytes: every label ends in NUL, so a prefix of the bytes is a prefix of whole labels.

The order of the bytes is the order of the tuples, on every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from langgraph.store.base import InvalidNamespaceError, MatchCondition

from stepvault._core.ids import thread_text
from stepvault._core.labels import THREAD_ROOT
from stepvault.errors import ConfigurationError, IdentifierError

MAX_NAMESPACE = MAX_KEY = 1150  # both fit into one index row of every engine


def check_labels(namespace: Any) -> tuple[str, ...]:
    """A namespace or prefix as a tuple of valid labels, by LangGraph's rules.

    Raises:
        InvalidNamespaceError: A label is empty, no str, or has a period or a NUL in it.
    """
    if isinstance(namespace, (str, bytes)) or not isinstance(namespace, Iterable):
        raise InvalidNamespaceError(f"A namespace is a tuple of str labels, not {type(namespace).__name__}.")
    labels = tuple(namespace)
    for label in labels:
        if not isinstance(label, str):
            raise InvalidNamespaceError(f"Namespace labels must be str, not {type(label).__name__}: {labels!r}.")
        if not label or "." in label or "\0" in label:
            raise InvalidNamespaceError(
                f"Namespace label {label!r} of {labels!r} is empty or has a period or a NUL in it."
            )
    return labels


def check_target(namespace: Any) -> tuple[str, ...]:
    """A namespace that an item can be put in.

    Raises:
        InvalidNamespaceError: As `check_labels`, or it is empty or begins with "langgraph".
    """
    labels = check_labels(namespace)
    if not labels:
        raise InvalidNamespaceError("Namespace cannot be empty.")
    if labels[0] == "langgraph":
        raise InvalidNamespaceError('The root label of a namespace cannot be "langgraph".')
    return labels


def ns_key(labels: Sequence[str]) -> bytes:
    """The bytes of checked labels.

    Raises:
        IdentifierError: Too long to be indexed on every backend.
    """
    key = _bytes(labels)
    if len(key) > MAX_NAMESPACE:
        raise IdentifierError(f"A namespace of {len(key):,} bytes is too long; at most {MAX_NAMESPACE:,} are indexed.")
    return key


def _bytes(labels: Sequence[str]) -> bytes:
    return "".join(f"{label}\0" for label in labels).encode("utf-8", "surrogatepass")


def ns_of(key: bytes) -> tuple[str, ...]:
    """Decode `ns_key`."""
    return tuple(bytes(key).decode("utf-8", "surrogatepass").split("\0")[:-1])


def item_key(key: Any) -> bytes:
    """The bytes of an item's key; as in LangGraph, any key becomes its `str`.

    Raises:
        IdentifierError: Too long to be indexed on every backend.
    """
    text = str(key).encode("utf-8", "surrogatepass")
    if len(text) > MAX_KEY:
        raise IdentifierError(f"An item key of {len(text):,} bytes is too long; at most {MAX_KEY:,} are indexed.")
    return text


def thread_scope(thread_id: Any) -> tuple[str, str]:
    """The namespace of one thread's own memory; characters that labels may not have are percent-encoded.

    Raises:
        IdentifierError: No thread id, or one so long that no item could be stored there.
    """
    labels = _scope(thread_id)
    ns_key(labels)
    return labels


def scope_keys(thread_ids: Iterable[Any]) -> list[bytes]:
    """The bytes of `thread_scope` of threads, without those whose ids are too long: nothing can be stored there."""
    keys = dict.fromkeys(_bytes(_scope(thread_id)) for thread_id in thread_ids)
    return [key for key in keys if len(key) <= MAX_NAMESPACE]


def _scope(thread_id: Any) -> tuple[str, str]:
    text = thread_text(thread_id)
    safe = quote(text, safe="", errors="surrogatepass").replace(".", "%2E") or "%"
    return (THREAD_ROOT, safe)


def literal_prefix(conditions: Iterable[MatchCondition]) -> bytes:
    """The longest prefix without wildcards that every match has.

    Raises:
        ConfigurationError: A condition of an unknown kind.
    """
    longest: tuple[str, ...] = ()
    for condition in conditions:
        labels = check_labels(condition.path)
        if condition.match_type not in ("prefix", "suffix"):
            raise ConfigurationError(f"match_type must be 'prefix' or 'suffix', not {condition.match_type!r}.")
        if condition.match_type == "prefix":
            literal = labels[: labels.index("*")] if "*" in labels else labels
            longest = max(longest, literal, key=len)
    return ns_key(longest)


def matches(namespace: Sequence[str], conditions: Iterable[MatchCondition]) -> bool:
    """Whether a namespace fulfils every condition; `*` stands for one label."""
    return all(_matches(namespace, condition) for condition in conditions)


def _matches(namespace: Sequence[str], condition: MatchCondition) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))

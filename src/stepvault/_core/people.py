"""Whose data something is: what stands for a person, and which namespaces name them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from stepvault._core.ids import text_key
from stepvault._core.labels import owner_of
from stepvault.errors import ConfigurationError, IdentifierError

HOLE = "{subject}"


def subject_key(subject: Any) -> bytes:
    """A person's id as bytes.

    Raises:
        IdentifierError: It is no text, or an empty one, or too long.
    """
    key = text_key("subject", subject)
    if not key:
        raise IdentifierError("subject must not be empty: an empty text is nobody's id.")
    return key


def subjects_in(configurable: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    """The people a config names, under any of the subject keys; one id or several under each.

    Raises:
        IdentifierError: What stands there can be nobody's id. Passed over, the data would be found by no erasure.
    """
    found: dict[str, None] = {}
    for key in keys:
        value = configurable.get(key)
        for subject in value if isinstance(value, (list, tuple, set, frozenset)) else (value,):
            if subject is None or (name := _id_of(key, subject)) == "":
                continue  # nobody
            found.setdefault(name)
    return tuple(found)


def _id_of(key: str, subject: Any) -> str:
    if isinstance(subject, str):
        return str.__str__(subject)  # of an enum its value
    if isinstance(subject, (int, UUID)) and not isinstance(subject, bool):
        return str(subject)
    raise IdentifierError(
        f"configurable[{key!r}] names whose data this is: a str, an int or a UUID, or a list of them, not "
        f"{type(subject).__name__}. If it names nobody, open with another subject_key=."
    )


def checked_patterns(patterns: Any) -> Sequence[Sequence[str]] | None:
    """Patterns of namespaces as they were given, for one that fits nothing would leave people's memory unerased.

    Raises:
        ConfigurationError: One is no sequence of labels, or does not say where the person's id stands.
    """
    for pattern in () if patterns is None else [patterns] if isinstance(patterns, str) else patterns:
        labels = () if isinstance(pattern, str) else tuple(pattern)
        if not all(isinstance(label, str) for label in labels) or not any(HOLE in label for label in labels):
            raise ConfigurationError(
                f'subject_patterns is a list of tuples of labels such as [("users", "u-{HOLE}")]; {pattern!r} is none, '
                f"or has no {HOLE}."
            )
        if any(not label or "." in label or "\0" in label or label.count(HOLE) > 1 for label in labels):
            raise ConfigurationError(
                f"{pattern!r} of subject_patterns fits no namespace: a label is not empty, has no period and no NUL, "
                f"and {HOLE} once at most."
            )
    return patterns  # type: ignore[no-any-return]


def digest_of(tenant: bytes, subject: bytes) -> bytes:
    """Sixteen bytes that stand for a person of a tenant, before they are marked."""
    return hashlib.blake2b(subject, digest_size=16, key=_key_of(tenant)).digest()


@lru_cache(1024)
def _key_of(tenant: bytes) -> bytes:
    return hashlib.blake2b(tenant, digest_size=32).digest()


def named_by(pattern: Sequence[str], namespace: Sequence[str]) -> Iterator[str]:
    """The id that fills a pattern so that a namespace begins with it, if there is one."""
    if len(namespace) < len(pattern):
        return
    named: set[str] = set()
    for part, label in zip(pattern, namespace, strict=False):
        before, hole, after = part.partition(HOLE)
        if not hole:
            if part != label:
                return
        elif len(label) > len(before) + len(after) and label.startswith(before) and label.endswith(after):
            named.add(label[len(before) : len(label) - len(after)])
        else:
            return
    if len(named) == 1:
        yield named.pop()


def named_in(patterns: Sequence[Sequence[str]] | None, namespace: Sequence[str]) -> list[str]:
    """Every id that may be a person's in a namespace: without patterns, each label.

    Memories are their owner's, whatever the patterns say.
    """
    owner = owner_of(namespace)
    found = [] if owner is None else [owner]
    if patterns is None:
        found += namespace if owner is None else namespace[2:]
    else:
        found += [subject for pattern in patterns for subject in named_by(pattern, namespace)]
    return list(dict.fromkeys(found))

"""Labels of namespaces that are made of ids, so that any id can be one, and whose memory a namespace holds."""

from __future__ import annotations

from collections.abc import Sequence

THREAD_ROOT = "thread_scope"  # the memory of one thread
USER_ROOT = "memories_of"  # memories of one person, who is the next label
SHARED_ROOT = "shared_memories"

_CODES = (("%", "%25"), (".", "%2E"), ("\0", "%00"))  # what labels may not have; the mark of a code first


def label_of(text: str) -> str:
    """A text as a label."""
    for char, code in _CODES:
        text = text.replace(char, code)
    return text or "%"


def text_of_label(label: str) -> str:
    """Undo `label_of`."""
    if label == "%":
        return ""
    for char, code in reversed(_CODES):
        label = label.replace(code, char)
    return label


def owner_of(namespace: Sequence[str]) -> str | None:
    """The person whose memories a namespace holds; None if it holds nobody's, or is no namespace of memories."""
    return text_of_label(namespace[1]) if len(namespace) > 1 and namespace[0] == USER_ROOT else None

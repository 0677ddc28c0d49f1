"""The text in an item: what is embedded, and the words that text search knows."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langgraph.store.base import get_text_at_path

from stepvault.stores._ops.context import Path

_WORD = re.compile(r"[^\W_]+")
_BREAKS = {code: " " for code in range(128) if not chr(code).isalnum()}  # between the words of ASCII
MAX_WORD = 100  # characters; longer runs are no words anybody looks for, and no engine indexes them whole


def texts_at(value: dict[str, Any], paths: Sequence[Path]) -> list[str]:
    """The texts to embed, each once, in the order of the paths. `$` is the whole value as JSON."""
    found: dict[str, None] = {}
    for _, tokens in paths:
        try:
            texts = get_text_at_path(value, tokens)
        except (TypeError, ValueError):  # a datetime inside: JSON has none, its text will do
            texts = get_text_at_path(json.loads(json.dumps(value, default=str, skipkeys=True)), tokens)
        found.update((text, None) for text in texts if text)
    return list(found)


def words_at(value: dict[str, Any], paths: Sequence[Path]) -> str:
    """The words of the texts at these paths, separated by blanks. `$` is every text in the value."""
    found: list[str] = []
    for path, tokens in paths:
        texts = _leaves(value) if path == "$" else texts_at(value, [(path, tokens)])
        for text in texts:
            found += words_in(text)
    return " ".join(found)


def words_in(text: str) -> list[str]:
    """The words of a text, without case and accents, the same on every backend."""
    if text.isascii():  # most are, and this takes a tenth of the time
        words = text.lower().translate(_BREAKS).split()
    else:
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(char for char in decomposed if not unicodedata.combining(char)).casefold()
        words = _WORD.findall(text.lower())
    return words if max(map(len, words), default=0) <= MAX_WORD else [word[:MAX_WORD] for word in words]


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for field in value.values():
            yield from _leaves(field)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for field in value:
            yield from _leaves(field)

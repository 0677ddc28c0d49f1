"""Words: the quick way for ASCII finds what the other one does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepvault.stores._ops.texts import _WORD, MAX_WORD, words_in


@given(st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii(text: str) -> None:
    assert words_in(text) == _WORD.findall(text.lower())


def test_long_words_are_cut() -> None:
    assert words_in("a " + "b" * 200) == ["a", "b" * MAX_WORD]
    assert words_in("ä " + "b" * 200) == ["a", "b" * MAX_WORD]

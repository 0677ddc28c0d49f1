"""Pages are sequences of their rows."""

from __future__ import annotations

import dataclasses

import pytest

from stepvault._core.paging import Page
from stepvault.checkpointers._ops.overview import ThreadPage
from stepvault.erasure import SubjectPage
from stepvault.inbox import ChangePage, InboxPage


@pytest.mark.parametrize("kind", [ThreadPage, SubjectPage, InboxPage, ChangePage])
def test_a_page_is_walked_counted_and_indexed(kind: type[Page[str]]) -> None:
    rows = dataclasses.fields(kind)[0].name  # type: ignore[arg-type]
    page = kind(**{rows: ["a", "b", "c"], "cursor": "next"})
    assert [*page] == ["a", "b", "c"]
    assert len(page) == 3
    assert (page[0], page[-1]) == ("a", "c")
    assert page[1:] == ["b", "c"]
    assert not kind(**{rows: [], "cursor": "next"})
    with pytest.raises(IndexError):
        page[3]

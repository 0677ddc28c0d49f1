"""Pages of lists that may be long: each is a sequence of its rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar, overload

T = TypeVar("T")


class Page(Sequence[T]):
    """Rows, and in `cursor` where the next page starts."""

    __slots__ = ()

    @abstractmethod
    def _rows(self) -> list[T]: ...

    def __len__(self) -> int:
        return len(self._rows())

    @overload
    def __getitem__(self, at: int) -> T: ...

    @overload
    def __getitem__(self, at: slice) -> list[T]: ...

    def __getitem__(self, at: int | slice) -> T | list[T]:
        return self._rows()[at]

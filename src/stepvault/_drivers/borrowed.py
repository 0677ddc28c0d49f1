"""A driver that belongs to someone else: used, never closed."""

from __future__ import annotations

from typing import Protocol, TypeVar

from stepvault._core.plan import Op

T = TypeVar("T")


class Lender(Protocol):
    """A driver."""

    def run(self, op: Op[T]) -> T: ...
    async def arun(self, op: Op[T]) -> T: ...


class BorrowedDriver:
    """Runs operations on another's driver: so that a store shares the connections and settings of a saver."""

    def __init__(self, driver: Lender) -> None:
        self._driver = driver

    def run(self, op: Op[T]) -> T:
        """Drive an operation."""
        return self._driver.run(op)

    async def arun(self, op: Op[T]) -> T:
        """Drive an operation."""
        return await self._driver.arun(op)

    def close(self) -> None:
        """Nothing: the driver is its owner's to close."""

    async def aclose(self) -> None:
        """Nothing, either."""

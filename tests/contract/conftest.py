"""The matrix of backends and call modes, for the contract suite."""

from tests.contract.matrix import database, saver, sqlite_file

__all__ = ["database", "saver", "sqlite_file"]

"""The matrix of backends, for faults that all of them must bear."""

from tests.contract.matrix import database, saver, sqlite_file

__all__ = ["database", "saver", "sqlite_file"]

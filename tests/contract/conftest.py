"""The matrix of backends and call modes, for the contract suite."""

import pytest

from tests.contract.matrix import database, saver, sqlite_file

pytest.register_assert_rewrite("tests.contract.building")

__all__ = ["database", "saver", "sqlite_file"]

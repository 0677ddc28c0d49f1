"""A database for the Postgres tests of a module."""

from tests.contract.stores.matrix import postgres_database

__all__ = ["postgres_database"]

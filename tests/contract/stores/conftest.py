"""Fixtures of the store contract: a test takes `store`, or `stores` to open several on the same data."""

from tests.contract.stores.matrix import postgres_database, store, stores

__all__ = ["postgres_database", "store", "stores"]

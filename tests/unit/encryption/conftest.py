from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stepvault.encryption import Keyring
from tests.unit.encryption.making import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path / "keys.db")
    yield store
    store.close()


@pytest.fixture(scope="session")
def keyring() -> Keyring:
    return Keyring({"first": bytes(range(32))})

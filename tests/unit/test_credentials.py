"""Which `configurable` keys never reach metadata."""

from __future__ import annotations

from typing import Any

import pytest

from stepvault import Vault
from stepvault._core.credentials import Credentials
from stepvault.errors import ConfigurationError

known = Credentials.of((), ())


@pytest.mark.parametrize(
    "name",
    [
        "api_key",
        "API-KEY",
        "apiKey",
        "x-api-key",
        "refreshToken",
        "Authorization",
        "aws_secret_access_key",
        "AZURE_OPENAI_API_KEY",
    ],
)
def test_any_spelling_of_a_credential_is_one(name: str) -> None:
    assert name in known


@pytest.mark.parametrize(
    "name", ["user_id", "max_tokens", "my_token", "tokenizer", "author", "key", "thread", "", "schlüssel"]
)
def test_other_names_are_not(name: str) -> None:
    assert name not in known


def test_names_are_added_and_taken_away() -> None:
    chosen = Credentials.of(["tenantKey"], ["Token"])
    assert "tenant_key" in chosen
    assert "token" not in chosen
    assert "password" in chosen


@pytest.mark.parametrize(("more", "kept"), [("token", ()), ((), "token"), ([1], ()), (None, ()), (["a-b"], ["a_b"])])
def test_what_is_no_list_of_names_is_refused(more: Any, kept: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"credential_keys|metadata_keys"):
        Credentials.of(more, kept)


def test_a_vault_keeps_what_it_is_told_to_keep() -> None:
    with Vault.open("memory://", metadata_keys=["token"], credential_keys=["region"]) as vault:
        saver = vault.checkpointer
        at: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "token": "w1", "region": "x", "apiKey": "k"}}
        checkpoint: Any = {
            "v": 4,
            "id": "1",
            "ts": "2026-01-01T00:00:00+00:00",
            "channel_values": {},
            "channel_versions": {},
            "versions_seen": {},
        }
        saver.put(at, checkpoint, {"source": "loop", "step": 0, "parents": {}}, {})
        (found,) = saver.list(None, filter={"token": "w1"})
        assert set(found.metadata) == {"source", "step", "parents", "token"}

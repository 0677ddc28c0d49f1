"""Names of `configurable` keys that hold credentials: whole names, in any spelling."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from stepvault.errors import ConfigurationError

# fmt: off
_PROVIDERS: Final = (
    "anthropic", "aws", "azure", "azure_openai", "cohere", "deepseek", "fireworks", "gemini", "github", "gitlab",
    "google", "groq", "huggingface", "jira", "langchain", "langfuse", "langsmith", "mistral", "nvidia", "openai",
    "openrouter", "perplexity", "pinecone", "replicate", "serper", "slack", "stripe", "tavily", "together",
    "twilio", "voyage", "xai",
)
_KINDS: Final = ("api_key", "api_token", "access_token", "token", "secret", "secret_key")
_COMMON: Final = (
    "access_key", "access_token", "api_key", "api_secret", "api_token", "app_secret", "auth", "auth_header",
    "auth_token", "authorization", "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "bearer",
    "bearer_token", "bot_token", "client_secret", "connection_string", "cookie", "cookies", "credential",
    "credentials", "csrf_token", "database_url", "db_password", "encryption_key",
    "google_application_credentials", "hf_token", "id_token", "jwt", "jwt_token", "key_secret", "oauth_token",
    "pass", "passphrase", "passwd", "password", "pat", "personal_access_token", "private_key", "pwd",
    "refresh_token", "secret", "secret_access_key", "secret_key", "secret_token", "secrets",
    "service_account_key", "service_key", "session_token", "signing_key", "ssh_key", "token", "user_password",
    "webhook_secret", "x_api_key", "x_auth_token",
)
# fmt: on
NAMES: Final = (*_COMMON, *(f"{provider}_{kind}" for provider in _PROVIDERS for kind in _KINDS))


def _spelled(name: str) -> str:
    return name.lower().translate({ord(char): None for char in "_-. "})


@dataclass(frozen=True, slots=True)
class Credentials:
    """The names that never reach metadata; `name in credentials` is true for each spelling of one."""

    names: frozenset[str]

    @classmethod
    def of(cls, more: Any, kept: Any) -> Credentials:
        """The known names with some added and some taken away.

        Raises:
            ConfigurationError: Something else than lists of names.
        """
        added, taken = _names("credential_keys", more), _names("metadata_keys", kept)
        if both := sorted(added & taken):
            raise ConfigurationError(f"{both[0]!r} is in credential_keys and in metadata_keys; take it out of one.")
        return cls(frozenset((set(map(_spelled, NAMES)) - taken) | added))

    def __contains__(self, name: str) -> bool:
        return _spelled(name) in self.names


def _names(option: str, given: Iterable[Any]) -> set[str]:
    if isinstance(given, str) or not isinstance(given, Collection) or not all(isinstance(one, str) for one in given):
        raise ConfigurationError(f"{option} must be a list of names, not {given!r}.")
    return set(map(_spelled, given))

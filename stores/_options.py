"""Keyword options of the stores, checked and gathered once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, cast

from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.store.base import TTLConfig, ensure_embeddings, tokenize_path

from stepvault._core.codec import Codec
from stepvault._core.numbers import check_count, minutes_of
from stepvault._core.people import checked_patterns
from stepvault._keystore.keys import Keys
from stepvault._keystore.opening import checked, keys_at
from stepvault.encryption import Keyring
from stepvault.errors import ConfigurationError
from stepvault.stores._dialect import Dialect
from stepvault.stores._ops.context import Core, Distance, IndexSettings, Path
from stepvault.stores._sealed import SealedDialect
from stepvault.types import TypedSerializer

_DISTANCES: Mapping[str, Distance] = {"cosine": "cosine", "dot": "dot", "inner_product": "dot", "l2": "l2"}
_INDEX_KEYS = {"dims", "embed", "fields", "distance_type", "ann_index_config", "model", "plaintext_vectors"}
_TTL_KEYS = {"default_ttl", "refresh_on_read", "sweep_interval_minutes", "omit_expired"}


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How values are stored, and what text search finds.

    Attributes:
        text: What text search knows: every text of a value, or of the index's fields if there is an index (True);
            nothing (False); or the texts at these paths.
        compression: `"auto"` compresses what gets smaller; None stores raw.
        cache_bytes: Bound of the in-process cache of vectors, where the backend ranks them in the process.
        types: Application classes to register, see `TypedSerializer`; the next three are its options too.
        keyring: Seals everything that is stored, see docs/encryption.md; needs `stepvault[crypto]` and `keys_url`.
            `Vault.open(url, keyring=...).store` needs no `keys_url`: it has the keys of its saver.
        keys_url: The database of the wrapped data keys; any backend, another one than this store's.
        pseudonymise_ids: Store tokens for namespaces and keys too.
        keys: The keys themselves, as a vault passes them on.
        subject_patterns: Which namespaces are whose, as erasures are told: their keys are linked to these people, and
            what is put for one who was erased is refused.
    """

    text: bool | Sequence[str] = True
    compression: Literal["auto"] | None = "auto"
    cache_bytes: int = 64 << 20
    types: Sequence[type] = ()
    unknown_types: Literal["imported", "refuse", "raw"] | None = None
    fidelity: Literal["upstream", "strict"] = "upstream"
    secrets: Literal["refuse", "allow"] | None = None  # allowed with a keyring
    keyring: Keyring | None = None
    keys_url: str | None = None
    pseudonymise_ids: bool = False
    keys: Keys | None = None
    subject_patterns: Sequence[Sequence[str]] | None = None

    @classmethod
    def take(cls, options: dict[str, Any]) -> StoreOptions:
        """Build from keywords.

        Raises:
            ConfigurationError: An unknown option.
        """
        if options.pop("deserializer", None) is not None:
            raise ConfigurationError(
                "deserializer= reads the JSON of LangGraph's own stores; here values come back as they went in. "
                "Leave it out, or pass serde=."
            )
        known = {field.name for field in fields(cls)}
        unknown = sorted(options.keys() - known)
        if unknown:
            raise ConfigurationError(
                f"Unknown option {unknown[0]!r}; known to every store are {', '.join(sorted(known - {'keys'}))}. "
                "Those of one backend are in docs/stores.md."
            )
        if options.get("compression", "auto") not in ("auto", None):
            raise ConfigurationError(f'compression must be "auto" or None, not {options["compression"]!r}.')
        check_count("cache_bytes", options.get("cache_bytes", 0), least=0)
        return cls(**options)

    def serializer(self) -> SerializerProtocol:
        """The serializer these options describe."""
        return TypedSerializer(
            types=self.types,
            unknown_types=self.unknown_types,
            fidelity=self.fidelity,
            secrets=self.secrets or ("refuse" if self.keyring is None and self.keys is None else "allow"),
        )


def build_core(dialect: Dialect, options: StoreOptions, index: IndexSettings | None) -> Core:
    """The shared parts of a store."""
    patterns = checked_patterns(options.subject_patterns)
    if options.text is True:
        text: Sequence[Path] | None = index.paths if index else paths(["$"])
    else:
        text = paths(options.text) if options.text else None
    keys = options.keys or _own_keys(options)
    if keys is not None:
        plain = index is not None and index.plain
        dialect = SealedDialect(
            dialect,
            keys,
            hide_names=options.pseudonymise_ids,
            plain_vectors=plain,
            patterns=patterns,
        )
    own = keys if options.keys is None else None
    return Core(dialect, Codec(options.compression), index, text, own, patterns)


def _own_keys(options: StoreOptions) -> Keys | None:
    if options.keyring is None:
        if options.keys_url is not None or options.pseudonymise_ids:
            raise ConfigurationError("keys_url and pseudonymise_ids need a keyring=.")
        return None
    if options.keys_url is None:
        raise ConfigurationError(
            "A store of its own keeps its keys in another database: pass keys_url=, or use Vault.open(...).store."
        )
    return keys_at(options.keys_url, checked(options.keyring))


def index_settings(index: Mapping[str, Any] | None) -> IndexSettings | None:
    """Check an `index=` dict.

    Raises:
        ConfigurationError: A key is unknown, missing or wrong.
    """
    if not index:
        return None
    _check_dict("index", index)
    unknown = sorted(key for key in index.keys() - _INDEX_KEYS if not key.startswith("__"))
    if unknown:
        raise ConfigurationError(f"Unknown index key {unknown[0]!r}; known are {', '.join(sorted(_INDEX_KEYS))}.")
    dims, embed = index.get("dims"), index.get("embed")
    if type(dims) is not int or dims < 1:
        raise ConfigurationError(f'index["dims"] must be an int > 0, not {dims!r}.')
    distance = _DISTANCES.get(index.get("distance_type") or "cosine")
    if distance is None:
        known = ", ".join(_DISTANCES)
        raise ConfigurationError(f'index["distance_type"] must be one of {known}, not {index["distance_type"]!r}.')
    try:
        embeddings = ensure_embeddings(embed)
    except Exception as exc:
        raise ConfigurationError(f'index["embed"] cannot be used: {exc}') from exc
    return IndexSettings(
        dims,
        embeddings,
        paths(index.get("fields") or ["$"]),
        distance,
        model_of(embed, index.get("model")),
        plain=bool(index.get("plaintext_vectors")),
    )


def _check_dict(name: str, given: Any) -> None:
    if not isinstance(given, Mapping):
        raise ConfigurationError(f"{name} must be a dict, see docs/stores.md, not {type(given).__name__}.")


def paths(fields: Any) -> list[Path]:
    """Field paths, tokenized.

    Raises:
        ConfigurationError: They are no list of str.
    """
    listed = [fields] if isinstance(fields, str) else fields
    if not isinstance(listed, (list, tuple)) or not all(isinstance(path, str) and path for path in listed):
        raise ConfigurationError(f"Fields are a list of paths, not {fields!r}.")
    return [(path, "$" if path == "$" else tokenize_path(path)) for path in listed]


def model_of(embed: Any, name: Any) -> str:
    """The name under which an index remembers its embedder; "" if the embedder has none."""
    if name is None:
        name = embed if isinstance(embed, str) else getattr(embed, "model", None) or getattr(embed, "model_name", "")
    return name if isinstance(name, str) else ""


def ttl_settings(ttl: Mapping[str, Any] | None) -> TTLConfig | None:
    """Check a `ttl=` dict.

    Raises:
        ConfigurationError: A key is unknown, or a time is none.
    """
    if ttl is None:
        return None
    _check_dict("ttl", ttl)
    unknown = sorted(ttl.keys() - _TTL_KEYS)
    if unknown:
        raise ConfigurationError(f"Unknown ttl key {unknown[0]!r}; known are {', '.join(sorted(_TTL_KEYS))}.")
    for name in ("default_ttl", "sweep_interval_minutes"):
        minutes_of(name, ttl.get(name))
    return cast(TTLConfig, dict(ttl))

"""Values and types: what is stored, exactly how it comes back, and which classes may be revived.

See `docs/values.md`. Nothing here knows a database.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeVar

from langgraph.checkpoint.serde.base import CipherProtocol, SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from stepvault._core.serde import decode, encode, jsonplus, wire
from stepvault._core.serde.policy import Policy, UnknownTypes
from stepvault._core.serde.raw import RawValue
from stepvault._core.serde.registry import Registration, TypeRegistry, Upcaster
from stepvault.errors import ConfigurationError, PayloadError, UnsupportedFormatError

__all__ = [
    "RawValue",
    "Registration",
    "TypeRegistry",
    "TypedSerializer",
    "Upcaster",
    "base_form",
    "register_type",
]

T = TypeVar("T")

_REGISTRY: Final = TypeRegistry()
_STRICT_ENV: Final = "LANGGRAPH_STRICT_MSGPACK"


def register_type(
    cls: type[T],
    *,
    name: str | None = None,
    version: int = 1,
    aliases: Iterable[str] = (),
    upcasters: Mapping[int, Upcaster] | None = None,
) -> type[T]:
    """Register a class for every serializer of this process.

    Args:
        cls: A pydantic model, dataclass, attrs class, enum, named tuple, or a class whose constructor takes
            the attributes it keeps.
        name: The stored name; by default `module:QualName`. Give one, and the class can move freely.
        version: Raise it when stored objects no longer fit the class.
        aliases: Names under which it was stored before.
        upcasters: `{1: function}`: makes the fields of version 2 from a dict of the fields of version 1.

    Returns:
        The class itself.

    Raises:
        ConfigurationError: The name belongs to another class, or an argument is wrong.
    """
    return _REGISTRY.register(cls, name=name, version=version, aliases=aliases, upcasters=upcasters)


def base_form(value: Any) -> Any:
    """Return what the `__error__` channel stores: the repr of an exception, any other value itself."""
    return repr(value) if isinstance(value, BaseException) else value


class TypedSerializer(SerializerProtocol):
    """Serializes values exactly, and revives only the classes it may.

    Args:
        types: Classes to register for this serializer only.
        unknown_types: Classes nobody registered: revived if plain data of a module already imported
            (`"imported"`, the default), an error (`"refuse"`, also when LANGGRAPH_STRICT_MSGPACK is set), or
            kept as `RawValue` (`"raw"`).
        fidelity: `"strict"` also refuses the harmless base forms that LangGraph stores.
        secrets: `"allow"` stores pydantic's SecretStr and SecretBytes, in clear.
        registry: Where registered types are looked up; by default those of `register_type`.
        cipher: Reads payloads that an `EncryptedSerializer` wrote: that serializer, or its cipher.

    Raises:
        ConfigurationError: An argument is wrong.
    """

    splits: bool = True  # a list is the concatenation of its items: savers store them one by one
    flag: int = 0

    def __init__(
        self,
        *,
        types: Iterable[type] = (),
        unknown_types: UnknownTypes | None = None,
        fidelity: Literal["upstream", "strict"] = "upstream",
        secrets: Literal["refuse", "allow"] = "refuse",
        registry: TypeRegistry | None = None,
        cipher: CipherProtocol | EncryptedSerializer | None = None,
    ) -> None:
        _one_of("unknown_types", unknown_types, (None, "imported", "refuse", "raw"))
        _one_of("fidelity", fidelity, ("upstream", "strict"))
        _one_of("secrets", secrets, ("refuse", "allow"))
        own = TypeRegistry(_REGISTRY if registry is None else registry)
        if isinstance(types, (str, bytes)) or not isinstance(types, Iterable):
            raise ConfigurationError(f"types must be a list of classes, not {type(types).__name__}.")
        for cls in types:
            own.register(cls)
        self._cipher = cipher.cipher if isinstance(cipher, EncryptedSerializer) else cipher
        self._policy = Policy(
            own,
            unknown_types=_unknown_types(unknown_types),
            strict=fidelity == "strict",
            secrets=secrets == "allow",
        )

    def dumps(self, obj: Any) -> bytes:
        """Return the msgpack bytes of a value.

        The bytes of a list are an array header and the bytes of its items, those of a dict with plain keys a
        map header and the bytes of its keys and values. The same value gives the same bytes.

        Raises:
            ValueNotSerializableError: With `path` and `type_name` of what cannot be stored.
        """
        self._policy.refresh()
        return encode.dumps(self._policy, obj)

    def loads(self, data: bytes) -> Any:
        """Return the value of bytes made by `dumps`.

        Raises:
            UnknownTypeError: An object in it is of a type that may not be revived here.
            PayloadError: The bytes are damaged, or an object does not fit its class.
        """
        self._policy.refresh()
        return decode.loads(self._policy, data)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return a type tag and the bytes of a value."""
        if obj is None:
            return "null", b""
        if type(obj) is bytes:
            return "bytes", obj
        return wire.TAG, self.dumps(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of a tag and bytes, from this serializer or from `JsonPlusSerializer`.

        Raises:
            UnsupportedFormatError: The tag is unknown, is pickle, or is encrypted and there is no cipher.
        """
        tag, payload = data
        if tag == wire.TAG:
            return self.loads(payload)
        if tag == "null":
            return None
        if tag == "bytes":
            return payload
        if tag == "bytearray":
            return bytearray(payload)
        self._policy.refresh()
        if tag == "msgpack":
            return jsonplus.loads_msgpack(self._policy, payload)
        if tag == "json":
            return jsonplus.loads_json(self._policy, payload)
        if "+" in tag:
            return self.loads_typed(self._decrypted(tag, payload))
        if tag == "pickle":
            raise UnsupportedFormatError("a stored value is a pickle, which is never read")
        raise UnsupportedFormatError(f"a stored value has the type tag {str(tag)[:40]!r}, which is not known")

    def with_msgpack_allowlist(self, extra: Iterable[tuple[str, ...] | type]) -> TypedSerializer:
        """Return a serializer that also revives these classes, given as `(module, name)` or as classes."""
        extra = list(extra)
        names = frozenset(tuple(one) for one in extra if not isinstance(one, type))
        classes = [one for one in extra if isinstance(one, type) and not self._policy.knows(one)]
        if not classes and names <= self._policy.allowlist:
            return self
        clone = TypedSerializer.__new__(type(self))
        clone._cipher = self._cipher
        clone._policy = self._policy.allowing(names, classes)
        return clone

    def for_copies(self, source: EncryptedSerializer | None = None) -> TypedSerializer:
        """Return a serializer that revives no class of the application.

        Its objects come back as `RawValue` and are stored again as they were, so a copy needs no class and loses none.

        Args:
            source: Who wrote what is copied, if it was encrypted.
        """
        clone = TypedSerializer.__new__(TypedSerializer)
        clone._cipher = self._cipher if source is None else source.cipher
        clone._policy = self._policy.keeping()
        return clone

    def _decrypted(self, tag: str, payload: bytes) -> tuple[str, bytes]:
        inner, _, cipher_name = tag.partition("+")
        if self._cipher is None:
            raise UnsupportedFormatError(
                f"a stored value was encrypted by EncryptedSerializer ({cipher_name[:20]}); pass cipher="
            )
        try:
            return inner, self._cipher.decrypt(cipher_name, payload)
        except Exception as exc:
            raise PayloadError("an encrypted payload cannot be opened; the key is wrong or the row changed") from exc


def _one_of(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        raise ConfigurationError(f"{name} must be one of {', '.join(repr(a) for a in allowed if a)}, not {value!r}")


def _unknown_types(asked: UnknownTypes | None) -> UnknownTypes:
    # The switch is there to lock a deployment down, so it wins over the default wherever that is spelled out.
    locked = os.environ.get(_STRICT_ENV, "").lower() in ("1", "true", "yes")
    if asked in (None, "imported"):
        return "refuse" if locked else "imported"
    return asked or "imported"

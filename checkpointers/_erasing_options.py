"""Options and arguments of erasures, checked before anything is erased."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepvault.checkpointers._ops.erasing.anonymising import Fields
from stepvault.errors import ConfigurationError

Hooks = Mapping[str, Callable[[list[str]], Any]]


def checked_hooks(given: Any) -> Hooks:
    """Outside systems by their names.

    Raises:
        ConfigurationError: Something cannot be called, or would have to be awaited.
    """
    hooks = {} if given is None else given
    if not isinstance(hooks, Mapping) or not all(map(callable, hooks.values())) or not all(map(_is_clean, hooks)):
        raise ConfigurationError('hooks are functions by their names, such as {"crm": delete_contact}.')
    for name, hook in hooks.items():
        if inspect.iscoroutinefunction(hook):  # nobody would await it, and the receipt would say that it was told
            raise ConfigurationError(f"The hook {name!r} is a coroutine function; pass a plain one.")
    return hooks


def _is_clean(text: Any) -> bool:
    """Whether something is text that a receipt can say: in UTF-8, so without lone surrogates."""
    return isinstance(text, str) and text == text.encode("utf-8", "ignore").decode()


def checked_issuer(given: Any) -> str:
    """Who erases; a receipt with anything else could not be signed, and that only in the end.

    Raises:
        ConfigurationError: It is no text.
    """
    if not _is_clean(given):
        raise ConfigurationError(f"issuer is who erases, in words as UTF-8 has them, not {given!r}.")
    return str(given)


def checked_reason(given: Any) -> str:
    """Why data is held.

    Raises:
        ConfigurationError: It is no text, or an empty one.
    """
    if not isinstance(given, str) or not given:
        raise ConfigurationError(f"hold() takes the reason in words, not {given!r}; release() lifts a hold.")
    return given


def checked_fields(declared: Any) -> Fields:
    """Personal fields, each with what takes its place.

    Raises:
        ConfigurationError: They are no names.
    """
    listed = isinstance(declared, Iterable) and not isinstance(declared, (str, bytes))
    named: Mapping[Any, Any] = {}
    if listed:
        named = declared if isinstance(declared, Mapping) else dict.fromkeys(declared)
    if not listed or not all(isinstance(name, str) and all(name.split(".")) for name in named):
        raise ConfigurationError(f'personal_fields are names such as ["email", "customer.name"], not {declared!r}.')
    return Fields({tuple(name.split(".")): value for name, value in named.items()})


def check_file(file: Any) -> None:
    """Refuse to export to what nothing can be written to.

    Raises:
        ConfigurationError: It is no open file.
    """
    if not callable(getattr(file, "writelines", None)):
        raise ConfigurationError(f'export() writes to an open text file, such as open("ann.jsonl", "w"), not {file!r}.')

"""Numbers that callers give: one check for each kind, so that a slip is refused everywhere, and in the same words."""

from __future__ import annotations

from typing import Any, TypeGuard

from stepvault.errors import ConfigurationError

_MOST = 2**63 - 1  # what every database can count to
_LONGEST = 10**9  # seconds or minutes: beyond, times do not fit into clocks and columns


def check_count(name: str, value: Any, *, least: int = 1, optional: bool = False) -> None:
    """Refuse what is no number of things.

    Raises:
        ConfigurationError: It is no int, or too small, or more than any database can count.
    """
    if value is None and optional:
        return
    if type(value) is not int or not least <= value <= _MOST:
        most = " and below 2**63" if type(value) is int and value > _MOST else ""
        or_none = "None or " if optional else ""
        raise ConfigurationError(f"{name} must be {or_none}an int >= {least}{most}, not {value!r}.")


def check_minutes(name: str, minutes: Any) -> float | None:
    """Minutes as a number, or None.

    Raises:
        ConfigurationError: It is no number above 0.
    """
    if minutes is None:
        return None
    if not _is_number(minutes) or not 0 < minutes < _LONGEST:
        raise ConfigurationError(f"{name} is a number of minutes above 0, or None, not {minutes!r}.")
    return float(minutes)


def minutes_of(name: str, given: Any) -> float | None:
    """Minutes as LangGraph's stores take them: from 0 on, and texts that say a number.

    Raises:
        ConfigurationError: It is no such number.
    """
    if given is None:
        return None
    try:
        minutes = -1.0 if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        minutes = -1.0
    if not 0 <= minutes <= _LONGEST:
        raise ConfigurationError(f"{name} is None or a number of minutes from 0 to {_LONGEST:g}, not {given!r}.")
    return minutes


def check_number(name: str, value: Any) -> None:
    """Refuse what nothing can be compared with; None is no bound.

    Raises:
        ConfigurationError: It is no number.
    """
    if value is not None and (not _is_number(value) or value != value):
        raise ConfigurationError(f"{name} must be None or a number, not {value!r}.")


def check_seconds(name: str, seconds: Any, *, above: bool = False, optional: bool = False) -> None:
    """Refuse what is no time; `above`: it must be more than nothing.

    Raises:
        ConfigurationError: It is no number of seconds, or a negative one, or one that no clock can count.
    """
    if seconds is None and optional:
        return
    if not _is_number(seconds) or not 0 <= seconds < _LONGEST or (above and seconds == 0):
        least = "above 0" if above else "from 0 on"
        or_none = ", or None" if optional else ""
        raise ConfigurationError(f"{name} must be a number of seconds {least}{or_none}, not {seconds!r}.")


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False.

    Raises:
        ConfigurationError: It is something else, whose truth may be a surprise.
    """
    if not isinstance(value, bool):
        raise ConfigurationError(f"{name} must be True or False, not {value!r}.")

"""Dates, times and time zones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from pydantic_core import TzInfo

from stepvault._core.serde import wire
from stepvault._core.serde.wire import Reduced, Refused
from stepvault.errors import PayloadError

_EXACT_ZONES = (timezone, ZoneInfo, TzInfo)


def _split(value: timedelta) -> list[int]:
    return [value.days, value.seconds, value.microseconds]


def _timedelta(value: timedelta) -> Reduced:
    return wire.TIMEDELTA, _split(value), ("", "", "")


def _date(value: date) -> Reduced:
    return wire.DATE, [value.year, value.month, value.day], ("", "", "")


def _datetime(value: datetime) -> Reduced:
    parts = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
    return wire.DATETIME, [*parts, *_zone(value)], None


def _time(value: time) -> Reduced:
    return wire.TIME, [value.hour, value.minute, value.second, value.microsecond, *_zone(value)], None


def _zone(value: datetime | time) -> list[Any]:
    if value.fold:
        return [value.tzinfo, 1]
    return [] if value.tzinfo is None else [value.tzinfo]


def _timezone(value: timezone) -> Reduced:
    offset = value.utcoffset(None)
    name = value.tzname(None)
    return wire.TIMEZONE, _split(offset) + ([] if timezone(offset).tzname(None) == name else [name]), None


def _zoneinfo(value: ZoneInfo) -> Reduced:
    if value.key is None:
        raise Refused("it has no key; make it with ZoneInfo(key)")
    return wire.ZONEINFO, [value.key], ("",)


def _pydantic_tz(value: TzInfo) -> Reduced:
    offset = value.utcoffset(None)
    if offset is None:
        raise Refused("it has no fixed offset")
    return wire.PYDANTIC_TZ, [int(offset.total_seconds())], ("",)


REDUCERS: dict[type, Callable[[Any], Reduced]] = {
    timedelta: _timedelta,
    date: _date,
    datetime: _datetime,
    time: _time,
    timezone: _timezone,
    ZoneInfo: _zoneinfo,
    TzInfo: _pydantic_tz,
}


def fixed_offset(zone: tzinfo, moment: datetime | None) -> timezone:
    """Return the offset that a foreign time zone has at one moment, its base form."""
    offset = zone.utcoffset(moment)
    if offset is None:
        raise Refused("it has no offset; use zoneinfo.ZoneInfo or datetime.timezone")
    return timezone(offset)


def has_foreign_zone(value: Any) -> bool:
    """Tell whether a datetime or time has a zone of a class that is not stored exactly."""
    return value.tzinfo is not None and type(value.tzinfo) not in _EXACT_ZONES


def _checked_zone(parts: list[Any]) -> tuple[tzinfo | None, int]:
    zone, fold = (*parts, None, 0)[:2] if len(parts) < 2 else parts
    if zone is not None and not isinstance(zone, tzinfo):
        raise PayloadError("a stored time has something else than a time zone")
    return zone, fold or 0


def _build_datetime(parts: list[Any]) -> datetime:
    zone, fold = _checked_zone(parts[7:])
    year, month, day, hour, minute, second, microsecond = parts[:7]
    return datetime(year, month, day, hour, minute, second, microsecond, zone, fold=fold)


def _build_time(parts: list[Any]) -> time:
    zone, fold = _checked_zone(parts[4:])
    hour, minute, second, microsecond = parts[:4]
    return time(hour, minute, second, microsecond, zone, fold=fold)


def _build_timezone(parts: list[Any]) -> timezone:
    offset = timedelta(*parts[:3])
    return timezone(offset, *parts[3:])


BUILDERS: dict[int, Callable[[Any], Any]] = {
    wire.TIMEDELTA: lambda p: timedelta(*p),
    wire.DATE: lambda p: date(*p),
    wire.DATETIME: _build_datetime,
    wire.TIME: _build_time,
    wire.TIMEZONE: _build_timezone,
    wire.ZONEINFO: lambda p: ZoneInfo(p[0]),
    wire.PYDANTIC_TZ: lambda p: TzInfo(p[0]),
}

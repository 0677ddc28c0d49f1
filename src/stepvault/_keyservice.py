"""Calls to a key service: several at a time, off the event loop, with its failures as ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stepvault._core.crypto import KEY_BYTES, Secret
from stepvault._core.plan import Call
from stepvault._core.wrapping import Ask
from stepvault.errors import ConfigurationError, KeyUnavailableError, StepvaultError, WrongKeyError

_AT_ONCE = 8


def service_call(service: Any, asks: Sequence[Ask]) -> Call:
    """One request that asks a service all of this."""

    def sync() -> list[Any]:
        return _ask_all(service, asks)

    async def asynchronous() -> list[Any]:
        import asyncio

        if not hasattr(service, "awrap"):
            return await asyncio.to_thread(sync)
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(ask: Ask) -> Any:
            async with places:
                return await _aask(service, ask)

        return list(await asyncio.gather(*map(one, asks)))

    return Call(sync, asynchronous)


def _ask_all(service: Any, asks: Sequence[Ask]) -> list[Any]:
    if not hasattr(service, "wrap"):
        raise ConfigurationError(
            f"{type(service).__name__} has only the async half of a key service; sync methods and SQLite need "
            "wrap and unwrap."
        )
    if len(asks) == 1:
        return [_ask(service, asks[0])]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_AT_ONCE, len(asks))) as pool:
        return list(pool.map(lambda ask: _ask(service, ask), asks))


def _ask(service: Any, ask: Ask) -> Any:
    with _translated(ask):
        if isinstance(ask.data, Secret):
            return _wrapped(ask, Secret(service.wrap(ask.kek, ask.data.value, ask.context)))
        return _unwrapped(ask, Secret(service.unwrap(ask.kek, ask.data, ask.context)))


async def _aask(service: Any, ask: Ask) -> Any:
    with _translated(ask):
        if isinstance(ask.data, Secret):
            return _wrapped(ask, Secret(await service.awrap(ask.kek, ask.data.value, ask.context)))
        return _unwrapped(ask, Secret(await service.aunwrap(ask.kek, ask.data, ask.context)))


@contextmanager
def _translated(ask: Ask) -> Iterator[None]:
    """Whatever a service raises is worth a retry, unless it raises one of ours; never is a key taken for gone."""
    try:
        yield
    except StepvaultError:
        raise
    except Exception as exc:
        raise KeyUnavailableError(
            f"The key service failed for key {ask.kek!r} ({type(exc).__name__}); nothing was lost, retrying is safe."
        ) from exc


def _wrapped(ask: Ask, reply: Secret) -> bytes:
    """A service that wraps nothing would have us store the key as it is."""
    if not isinstance(reply.value, (bytes, bytearray)) or ask.data.value in reply.value:
        raise ConfigurationError(f"wrap of the key service returned no wrapped key for {ask.kek!r}.")
    return bytes(reply.value)


def _unwrapped(ask: Ask, reply: Secret) -> Secret:
    if not isinstance(reply.value, (bytes, bytearray)) or len(reply.value) != KEY_BYTES:
        raise WrongKeyError(f"The key service opened a data key with {ask.kek!r} to something that is none.")
    return Secret(bytes(reply.value))

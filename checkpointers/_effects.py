"""`vault.effects`: side effects that do not repeat, sync and async."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from langchain_core.runnables.config import var_child_runnable_config

from stepvault._core.plan import Op
from stepvault.checkpointers._ops import effects as ops
from stepvault.checkpointers._ops.context import Address, address_of
from stepvault.effects import EffectNotDone, EffectRecord
from stepvault.errors import ConfigurationError, EffectInDoubtError, EffectNotDurableError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver

P = ParamSpec("P")
T = TypeVar("T")

_UNSET: Any = object()
_BARRIER = 30.0  # seconds to wait for the run's checkpoint to be stored
_POLL = 0.01
_current: ContextVar[str | None] = ContextVar("stepvault_effect_key", default=None)


class Effects:
    """Runs side effects of nodes, tools and tasks once."""

    def __init__(self, saver: BaseSaver) -> None:
        self._saver = saver

    def once(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function once per task of a run; when the task runs again, return its recorded result.

        The record is committed durably before and after the call. Use it inside a node, a tool or a `@task`.

        Args:
            name: Names the effect; with `key` it tells effects of one task apart.
            fn: What to call.
            args: Its arguments.
            kwargs: Its keyword arguments; `key` is not passed on: a key of the effect (an order id, a tool call id),
                by default its place among the effects of this name in this attempt of the task.

        Raises:
            EffectInDoubtError: It started before and its end is not known, or it was called with other arguments.
                `effects.in_doubt()` lists it, `effects.resolve()` settles it.
            EffectNotDurableError: The checkpoint of the run is not stored (durability="exit").
            EffectNotDone: As the function raised it: nothing happened, it may be tried again.
        """
        call = _Call(self._saver, name, fn, cast(Mapping[str, Any], kwargs), args)
        self._wait_stored(call)
        effect = self._saver._run(call.begin())
        if call.settled(effect):
            return cast(T, effect.result)
        try:
            result = call.run()
        except EffectNotDone:
            self._saver._run(call.forget())
            raise
        self._saver._run(call.finish(result))
        return cast(T, result)

    async def aonce(self, name: str, fn: Callable[P, Awaitable[T] | T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Async version of `once`; `fn` may be a coroutine function."""
        call = _Call(self._saver, name, fn, cast(Mapping[str, Any], kwargs), args)
        await self._await_stored(call)
        effect = await self._saver._arun(call.begin())
        if call.settled(effect):
            return cast(T, effect.result)
        try:
            result = await call.arun()
        except EffectNotDone:
            await self._saver._arun(call.forget())
            raise
        await self._saver._arun(call.finish(result))
        return cast(T, result)

    @staticmethod
    def key() -> str:
        """Inside an effect's function: a key that stays the same when the effect is tried again.

        Pass it to outside services as idempotency key.
        """
        key = _current.get()
        if key is None:
            raise ConfigurationError("effects.key() is known inside a function that effects.once() calls.")
        return key

    def in_doubt(self) -> list[EffectRecord]:
        """Effects that started and whose end is not known, of all threads of this tenant."""
        return self._saver._run(ops.in_doubt(self._saver._scope))

    async def ain_doubt(self) -> list[EffectRecord]:
        """Async version of `in_doubt`."""
        return await self._saver._arun(ops.in_doubt(self._saver._scope))

    def resolve(self, effect_id: str, *, result: Any = _UNSET, retry: bool = False) -> None:
        """Settle an effect in doubt: `result=` says it happened, `retry=True` that it did not and may run again."""
        self._saver._run(self._resolve(effect_id, result, retry))

    async def aresolve(self, effect_id: str, *, result: Any = _UNSET, retry: bool = False) -> None:
        """Async version of `resolve`."""
        await self._saver._arun(self._resolve(effect_id, result, retry))

    def _resolve(self, effect_id: str, result: Any, retry: bool) -> Op[None]:
        if (result is _UNSET) != retry:
            raise ConfigurationError("resolve() takes either result= or retry=True.")
        return ops.resolve(self._saver._scope, effect_id, result, retry=retry)

    def _wait_stored(self, call: _Call) -> None:
        end = time.monotonic() + _BARRIER
        while not self._saver._run(call.stored()):
            if time.monotonic() > end:
                raise EffectNotDurableError
            time.sleep(_POLL)

    async def _await_stored(self, call: _Call) -> None:
        end = time.monotonic() + _BARRIER
        while not await self._saver._arun(call.stored()):
            if time.monotonic() > end:
                raise EffectNotDurableError
            await asyncio.sleep(_POLL)


class _Call:
    """One call of `once` inside a task."""

    def __init__(
        self, saver: BaseSaver, name: str, fn: Callable[..., Any], kwargs: Mapping[str, Any], args: tuple[Any, ...]
    ) -> None:
        config = var_child_runnable_config.get()
        configurable = (config or {}).get("configurable") or {}
        task_id = configurable.get("__pregel_task_id")
        if config is None or not isinstance(task_id, str):
            raise ConfigurationError("effects.once() is called inside a node, a tool or a @task of a running graph.")
        if configurable.get("__pregel_durability") == "exit":
            raise EffectNotDurableError
        given = dict(kwargs)
        key = given.pop("key", None)
        place = f"key:{key}" if key is not None else f"call:{_count(configurable, task_id, name)}"
        self.saver, self.fn, self.args, self.kwargs = saver, fn, args, given
        self.at: Address = address_of(saver._scope, config)
        self.checkpoints: Mapping[str, str] = configurable.get("checkpoint_map") or {}
        self.key = ops.effect_key(task_id, name, place)
        self.effect = ops.Effect(name, task_id, self._fingerprint(), os.urandom(16), "started", 0)

    def _fingerprint(self) -> bytes:
        payload = self.saver._scope.native.dumps([list(self.args), sorted(self.kwargs.items())])
        return hashlib.blake2b(payload, digest_size=16).digest()

    def stored(self) -> Op[bool]:
        return ops.stored_everywhere(self.saver._scope, self.at, self.checkpoints)

    def begin(self) -> Op[ops.Effect]:
        return ops.begin(self.saver._scope, self.at, self.key, self.effect)

    def settled(self, effect: ops.Effect) -> bool:
        """Whether the recorded effect stands for this call; False if this call began it and is to run it.

        Raises:
            EffectInDoubtError: Somebody began it and its end is not known.
        """
        if effect.arguments != self.effect.arguments:
            raise EffectInDoubtError(
                f"Effect {effect.name!r} of this task was called with other arguments before; give each its own key=."
            )
        if effect.state == "done":
            return True
        if effect.begun_by != self.effect.begun_by:
            raise EffectInDoubtError(
                f"Effect {effect.name!r} of task {effect.task} started before and its end is not known: a crash, an "
                "error or another worker stands in between. Look it up with effects.in_doubt() and settle it with "
                "effects.resolve(id, result=...) or resolve(id, retry=True)."
            )
        return False

    def run(self) -> Any:
        token = _current.set(self.idempotency_key())
        try:
            return self.fn(*self.args, **self.kwargs)
        finally:
            _current.reset(token)

    async def arun(self) -> Any:
        token = _current.set(self.idempotency_key())
        try:
            result = self.fn(*self.args, **self.kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            _current.reset(token)

    def idempotency_key(self) -> str:
        view = self.saver._core.knowledge.of(self.at.key).view
        return ops.idempotency_key(self.at.key, view.uid if view else b"", self.key)

    def finish(self, result: Any) -> Op[ops.Effect]:
        return ops.finish(self.saver._scope, self.at, self.key, result)

    def forget(self) -> Op[None]:
        return ops.forget(self.saver._scope, self.at, self.key)


_counts: OrderedDict[tuple[int, str, str], tuple[Any, int]] = OrderedDict()


def _count(configurable: Mapping[str, Any], task_id: str, name: str) -> int:
    """The place of a call among the effects of this name in this attempt of the task: a new attempt counts anew.

    LangGraph makes a new scratchpad for every attempt of a task; it is held here so that its id is not reused.
    """
    scratchpad = configurable.get("__pregel_scratchpad")
    place = (id(scratchpad), task_id, name)
    count: int = _counts.get(place, (scratchpad, 0))[1]
    _counts[place] = (scratchpad, count + 1)
    _counts.move_to_end(place)
    if len(_counts) > 4096:
        _counts.popitem(last=False)
    return count

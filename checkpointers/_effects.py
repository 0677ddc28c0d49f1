"""`vault.effects`: side effects that do not repeat, sync and async."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config

from stepvault._core.plan import Op
from stepvault.checkpointers._ops import effects as ops
from stepvault.checkpointers._ops.context import Address, address_of
from stepvault.checkpointers._ops.evolution import former_task
from stepvault.effects import EffectNotDone, EffectRecord
from stepvault.errors import ConfigurationError, EffectInDoubtError, EffectNotDurableError

if TYPE_CHECKING:
    from stepvault.checkpointers._saver import BaseSaver

P = ParamSpec("P")
T = TypeVar("T")

_UNSET: Any = object()
_BARRIER = 30.0  # seconds to wait for the run's checkpoint to be stored
_POLL = 0.01
_PLACES = 4096
_KEPT = 64 << 10  # bytes of arguments that are shown while an effect is in doubt
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
        if call.is_done(self._saver._run(call.begin())):
            return cast(T, call.result)
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
        if call.is_done(await self._saver._arun(call.begin())):
            return cast(T, call.result)
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
        place = f"key:{key}" if key is not None else f"call:{_places.next(config, task_id, name)}"
        self.scope, self.fn, self.args, self.kwargs = saver._scope, fn, args, given
        self.at: Address = address_of(saver._scope, config)
        task_id = former_task(self.at.run, task_id)
        self.checkpoints: Mapping[str, str] = configurable.get("checkpoint_map") or {}
        self.key = ops.effect_key(task_id, name, place)
        payload = self.scope.native.dumps([list(args), dict(sorted(given.items()))])
        kept = payload if len(payload) <= _KEPT else None
        self.effect = ops.Effect(name, task_id, self._fingerprint(), os.urandom(16), given=kept)
        self.idempotency_key = ""
        self.result: Any = None

    def _fingerprint(self) -> bytes:
        payload = self.scope.native.dumps([list(self.args), sorted(self.kwargs.items())])
        return hashlib.blake2b(payload, digest_size=16).digest()

    def stored(self) -> Op[bool]:
        return ops.stored_everywhere(self.scope, self.at, self.checkpoints)

    def begin(self) -> Op[ops.Recorded]:
        return ops.begin(self.scope, self.at, self.key, self.effect)

    def is_done(self, recorded: ops.Recorded) -> bool:
        """Whether the recorded effect stands for this call; False if this call began it and is to run it.

        Raises:
            EffectInDoubtError: Somebody began it and its end is not known.
        """
        effect, uid = recorded
        self.idempotency_key = ops.idempotency_key(self.at.key, uid, self.key)
        if effect.arguments != self.effect.arguments:
            raise EffectInDoubtError(
                f"Effect {effect.name!r} of task {effect.task} was called with other arguments before; nothing was "
                "done. Give each of its effects a key= of its own, and arguments that are the same when it runs again.",
                record=ops.record_of(self.scope, self.at.key, uid, self.key, effect),
            )
        if effect.state == "done":
            self.result = None if effect.result is None else self.scope.native.loads(effect.result)
            return True
        if effect.begun_by != self.effect.begun_by:
            raise EffectInDoubtError(
                f"Effect {effect.name!r} of task {effect.task} started before and its end is not known: a crash, an "
                "error or another worker stands in between. Look it up with effects.in_doubt() and settle it with "
                "effects.resolve(id, result=...) or resolve(id, retry=True).",
                record=ops.record_of(self.scope, self.at.key, uid, self.key, effect),
            )
        return False

    def run(self) -> Any:
        token = _current.set(self.idempotency_key)
        try:
            return self.fn(*self.args, **self.kwargs)
        finally:
            _current.reset(token)

    async def arun(self) -> Any:
        token = _current.set(self.idempotency_key)
        try:
            result = self.fn(*self.args, **self.kwargs)
            return await result if inspect.isawaitable(result) else result
        finally:
            _current.reset(token)

    def finish(self, result: Any) -> Op[ops.Recorded]:
        return ops.finish(self.scope, self.at, self.key, self.scope.native.dumps(result))

    def forget(self) -> Op[None]:
        return ops.forget(self.scope, self.at, self.key)


class _Places:
    """The place of a call among the effects of one name in one attempt of a task: a new attempt counts anew.

    LangGraph makes a new scratchpad for every attempt of a task; it is held here so that its id is not reused.
    Several tools of one task run side by side, in no order that would come again: their calls have no places.
    """

    def __init__(self) -> None:
        self._counts: OrderedDict[tuple[int, str, str], tuple[Any, int, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def next(self, config: RunnableConfig, task_id: str, name: str) -> int:
        scratchpad = config.get("configurable", {}).get("__pregel_scratchpad")
        caller = getattr(config.get("callbacks"), "parent_run_id", None)  # the node's run, or that of a tool in it
        place = (id(scratchpad), task_id, name)
        with self._lock:
            found: tuple[Any, int, Any] = self._counts.get(place, (None, 0, caller))
            count, first = found[1:]
            self._counts[place] = (scratchpad, count + 1, first)
            self._counts.move_to_end(place)
            if len(self._counts) > _PLACES:
                self._counts.popitem(last=False)
        if caller != first:
            raise ConfigurationError(
                f"Several tools of one task have effects named {name!r}: give each a key= of its own, such as the "
                "tool call id."
            )
        return count


_places = _Places()

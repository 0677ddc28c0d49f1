"""What comes before any operation: tables, where the backend makes them on first use, and the right to use them."""

from __future__ import annotations

import logging
from typing import TypeVar

from stepvault._core.plan import Op
from stepvault.checkpointers._ops import admission, traces
from stepvault.checkpointers._ops.context import Core
from stepvault.errors import MigrationRequiredError

logger = logging.getLogger("stepvault")

T = TypeVar("T")


def prepared(core: Core, op: Op[T]) -> Op[T]:
    """The operation, after what has to come before it."""
    return _after_check(core, op) if admission.is_due(core) or core.wired.unadopted else op


def setup(core: Core) -> Op[None]:
    """Create or migrate the tables; idempotent."""
    yield from core.dialect.setup()
    if core.keys is not None and core.keys.elsewhere is not None:
        yield from core.keys.at(core.keys.store.setup())
    core.tables.ready = True
    if not core.start_empty and (yield from core.dialect.only_theirs()):
        logger.warning(
            "This database has threads of LangGraph's own saver beside the empty tables of Stepvault, which does not "
            "read them: copy them with `stepvault adopt`, Vault.open(adopt_from=True) or `stepvault.copying.copy_all`, "
            "or say start_empty=True."
        )
    yield from admission.check(core)


def _after_check(core: Core, op: Op[T]) -> Op[T]:
    if core.dialect.automatic_setup and not core.tables.ready:
        yield from setup(core)
    else:
        yield from admission.check(core)
    if core.wired.unadopted is not None:
        yield from _check_adopted(core, core.wired.unadopted)
    return (yield from op)


def _check_adopted(core: Core, trace: bytes) -> Op[None]:
    if not (yield from traces.is_there(core.dialect, trace)):
        raise MigrationRequiredError(
            "What adopt_from= names was not taken over yet: call vault.setup() once, or await vault.asetup()."
        )
    core.wired.unadopted = None

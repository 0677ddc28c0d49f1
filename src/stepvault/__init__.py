"""Safer and smaller persistence for LangGraph.

The whole public surface in one page: `Vault` opens everything over one URL; the drop-in savers and stores live in
`stepvault.checkpointers` and `stepvault.stores`; errors are in `stepvault.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepvault import errors
from stepvault.errors import StepvaultError

if TYPE_CHECKING:
    from stepvault.encryption import Keyring
    from stepvault.steps import Run
    from stepvault.stores.memories import Memories
    from stepvault.types import TypedSerializer, register_type
    from stepvault.vault import Vault

__version__ = "0.1.0.dev0"

__all__ = [
    "Keyring",
    "Memories",
    "Run",
    "StepvaultError",
    "TypedSerializer",
    "Vault",
    "__version__",
    "errors",
    "register_type",
]

_HOMES = {
    "Keyring": "stepvault.encryption",
    "Memories": "stepvault.stores.memories",
    "Run": "stepvault.steps",
    "Vault": "stepvault.vault",
    "TypedSerializer": "stepvault.types",
    "register_type": "stepvault.types",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import stepvault` stays cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stepvault' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value

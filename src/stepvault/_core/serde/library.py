"""Classes of LangGraph and LangChain that LangGraph itself stores: always allowed, under their own names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

from stepvault._core.serde.plans import Plan, refuse_unknown
from stepvault._core.serde.records import BaseValuePlan

_TYPES: Final = "langgraph.types"
_STORE: Final = "langgraph.store.base"
_RUNNABLES: Final = "langchain_core.runnables.utils"

# Only these modules are ever imported to read a row, and only under these names.
TRUSTED: Final[dict[str, tuple[str, str]]] = {
    f"{module}:{name}": (module, name)
    for module, names in {
        _TYPES: ("Send", "TimeoutPolicy", "Interrupt", "Command", "StateSnapshot", "PregelTask", "Overwrite"),
        _STORE: ("Item", "SearchItem", "GetOp", "PutOp", "SearchOp", "ListNamespacesOp", "MatchCondition"),
        "langgraph.checkpoint.serde.types": ("_DeltaSnapshot",),
        _RUNNABLES: ("AddableDict",),
        "langchain_core.documents.base": ("Document",),
        "langchain_core.messages.ai": ("AIMessage", "AIMessageChunk"),
        "langchain_core.messages.base": ("BaseMessage", "BaseMessageChunk"),
        "langchain_core.messages.chat": ("ChatMessage", "ChatMessageChunk"),
        "langchain_core.messages.function": ("FunctionMessage", "FunctionMessageChunk"),
        "langchain_core.messages.human": ("HumanMessage", "HumanMessageChunk"),
        "langchain_core.messages.modifier": ("RemoveMessage",),
        "langchain_core.messages.system": ("SystemMessage", "SystemMessageChunk"),
        "langchain_core.messages.tool": ("ToolMessage", "ToolMessageChunk"),
    }.items()
    for name in names
}


def trusted_class(name: str) -> Any:
    """Return the library class with this stored name, None if the installed version has none."""
    module, attribute = TRUSTED[name]
    try:
        return getattr(importlib.import_module(module), attribute, None)
    except ImportError:
        return None


class LibraryPlan(Plan):
    """A library class with slots and a keyword constructor; fields that are None by default are left out."""

    kind = "l"

    def __init__(self, cls: type, name: str, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
        super().__init__(cls, name)
        self.names = names
        self.optional = optional

    def fields_of(self, value: Any) -> dict[str, Any]:
        found = {name: getattr(value, name) for name in self.names}
        found.update({n: v for n in self.optional if (v := getattr(value, n, None)) is not None})
        return found

    def build(self, fields: dict[str, Any], state: list[Any], same: bool) -> Any:
        refuse_unknown(self.label, fields, self.names + self.optional)
        return self.cls(**fields)


_ITEM: Final = ("value", "key", "namespace", "created_at", "updated_at")
SPECIAL: Final[dict[str, Callable[[type, str], Plan]]] = {
    f"{_TYPES}:Send": lambda cls, name: LibraryPlan(cls, name, ("node", "arg"), ("timeout",)),
    f"{_STORE}:Item": lambda cls, name: LibraryPlan(cls, name, _ITEM),
    f"{_STORE}:SearchItem": lambda cls, name: LibraryPlan(cls, name, _ITEM, ("score",)),
    f"{_RUNNABLES}:AddableDict": BaseValuePlan,
}

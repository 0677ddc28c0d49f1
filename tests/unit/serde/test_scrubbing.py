"""What is taken out of stored values with a person, and what steers a graph, which stays."""

from __future__ import annotations

import enum
from typing import Any
from uuid import UUID

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, ChatMessage, HumanMessage, ToolMessage
from langgraph.types import Interrupt, Send
from pydantic import BaseModel, ConfigDict, PrivateAttr

from stepvault import TypedSerializer
from stepvault._core.serde.scrubbing import ERASED, Scrubber

ID = UUID(int=7)
FIELDS: Any = {("email",): None, ("customer",): None, ("documents",): None, ("source",): None, ("id",): None}


class Customer(BaseModel):
    """With more than its fields."""

    model_config = ConfigDict(extra="allow")
    email: str
    _note: str = PrivateAttr("")


class Signed(HumanMessage):
    """A message with a field of its own."""

    email: str = ""


class Plan(str, enum.Enum):
    """Of an application; a person is called like one."""

    ann = "ann"


def without(value: Any, *path: str, ids: tuple[str, ...] = ("ann", str(ID))) -> Any:
    serializer = TypedSerializer()
    kind, packed = serializer.dumps_typed(value)
    return serializer.loads_typed((kind, Scrubber(ids, FIELDS, ["user_id"]).payload(packed, path)))


def customer() -> Customer:
    made = Customer(email="a@b.c", phone="555", ann="here")  # type: ignore[call-arg]
    made._note = "likes tea"
    return made


def test_all_of_a_declared_object_is_blank() -> None:
    found = without({"customer": customer(), "documents": [Document("hers", metadata={"at": "home"})]})
    assert found["customer"].model_dump() == {"email": ERASED, "phone": ERASED, ERASED: ERASED}
    assert (found["customer"].model_fields_set, found["customer"]._note) == ({"email", "phone", ERASED}, ERASED)
    assert found["documents"] == [Document(ERASED, metadata={"at": ERASED})]


def test_fields_beyond_those_of_a_class_are_looked_through() -> None:
    found = without(customer())
    assert found.model_dump() == {"email": ERASED, "phone": "555", ERASED: "here"}
    assert (found.email, without(Signed("hi", email="a@b.c"))) == (ERASED, Signed(ERASED, email=ERASED))


@pytest.mark.parametrize("name", ["content", "role", "args", "tool_calls", "id", "type"])
def test_an_id_that_is_called_like_a_part_of_messages(name: str) -> None:
    call = {"name": "mail", "args": {"to": "a@b.c"}, "id": "1", "type": "tool_call"}
    said = {"role": "assistant", "content": "hi", "tool_calls": [call], name + "s": "x", "note": f"of {name}"}
    found = without({"said": said}, ids=(name,))["said"]
    blank = {**call, "args": {"to": ERASED}}
    assert found == {**said, "content": ERASED, "tool_calls": [blank], "note": f"of {ERASED}"}
    document = Document("x", metadata={"a": 1})
    assert without(document, ids=("metadata", "page_content", "type")) == document


def test_who_said_it_goes_too() -> None:
    said = [AIMessage("hi", name="ann"), ChatMessage("hi", role="ann"), ToolMessage("hi", tool_call_id="1", name="x")]
    found = without(said, "messages")
    assert [message.name for message in found] == [None, None, "x"]
    assert [message.content for message in found] == [ERASED] * 3
    assert found[1].role == ERASED


def test_ids_that_are_no_text() -> None:
    found = without({"owner": ID, "others": [UUID(int=8)], "user_id": [7, 8], "n": 7}, ids=(str(ID), "7"))
    assert found == {"owner": UUID(int=0), "others": [UUID(int=8)], "user_id": [ERASED, 8], "n": 7}


def test_what_steers_a_graph_stays() -> None:
    asked = Interrupt({"of": "ann?"}, id="ann")
    assert without([asked], "__interrupt__") == [Interrupt({"of": f"{ERASED}?"}, id="ann")]
    assert without([Send("ann", {"who": "ann"})], "__pregel_tasks") == [Send("ann", {"who": ERASED})]
    assert without({"ann"}, "join:ann+bob:all") == {"ann"}
    assert without({"plan": Plan.ann}) == {"plan": Plan.ann}
    metadata = {"source": "ann", "step": 1, "parents": {"ann": "1"}, "user_id": "ann", "thread": {"source": "web"}}
    found = without(metadata, "metadata", ids=("ann", "step", "source"))
    assert found == {**metadata, "user_id": ERASED, "thread": {ERASED: ERASED}}


def test_a_schema_of_answers_stays_one() -> None:
    part = {"type": "string", "description": "what string says", "enum": ["string", "x"]}
    schema = {"type": "object", "properties": {"string": part, "x": {"$ref": "#/$defs/x"}}, "required": ["string"]}
    asked = without([Interrupt("?", id="1", response_schema=schema)], "__interrupt__", ids=("string", "object"))
    part = {"type": "string", "description": f"what {ERASED} says", "enum": [ERASED, "x"]}
    properties = {ERASED: part, "x": {"$ref": "#/$defs/x"}}
    assert asked[0].response_schema == {"type": "object", "properties": properties, "required": [ERASED]}

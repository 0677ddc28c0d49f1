"""Answers against JSON Schema: what fits, what does not, and that a refusal names the place and tells no answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from stepvault.checkpointers._ops.inbox.schema import check_answer
from stepvault.errors import AnswerInvalidError


@dataclass
class Point:
    x: int
    day: date


class Approve(BaseModel):
    kind: Literal["approve"]
    cents: Annotated[int, Field(ge=0, multiple_of=5)]


class Reject(BaseModel):
    kind: Literal["reject"]
    reasons: Annotated[list[str], Field(min_length=1, max_length=2)]
    replies: dict[str, Verdict] = {}


Verdict = Annotated[Approve | Reject, Field(discriminator="kind")]
Reject.model_rebuild(_types_namespace={"Verdict": Verdict})
VERDICT = TypeAdapter(Verdict).json_schema()

FITS: list[tuple[Any, Any]] = [
    (None, object()),
    (True, 1),
    ({}, {"anything": 1}),
    ({"type": "integer"}, 2.0),
    ({"type": ["string", "null"]}, None),
    ({"const": 1}, 1.0),
    ({"const": [True, {"a": 1}]}, (True, {"a": 1})),
    ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1, 2]),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}}, {"c": 1}),
    ({"not": {"type": "string"}}, 1),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "integer"}}}, 1),
    ({"properties": {"more": {"$ref": "#"}}, "required": ["x"]}, {"x": 1, "more": {"x": 2}}),
    (VERDICT, {"kind": "approve", "cents": 15}),
    (VERDICT, Approve(kind="approve", cents=5)),
    (TypeAdapter(list[Point]).json_schema(), [Point(1, date(2026, 1, 2)), {"x": 1, "day": "2026-01-02"}]),
    (VERDICT, {"kind": "reject", "reasons": ["no"], "replies": {"a": {"kind": "approve", "cents": 0}}}),
]
FAILS: list[tuple[Any, Any, str]] = [
    (False, 1, "answer is not expected"),
    ({"const": True}, 1, "answer must be True"),
    ({"enum": [0, 1]}, False, "answer must be one of 0, 1"),
    ({"type": "integer"}, True, "answer must be integer, not bool"),
    ({"type": "integer"}, 1.5, "integer"),
    ({"minimum": 0}, float("nan"), "between 0"),
    ({"multipleOf": 0.1}, 0.25, "multiple of 0.1"),
    ({"maxLength": 3}, "secret", "answer has a length"),
    ({"pattern": "^a"}, "secret", "answer does not match"),
    ({"minItems": 1}, [], "number of items"),
    ({"uniqueItems": True}, [1, True, 1], "twice"),
    ({"contains": {"const": 1}}, [2], "lacks"),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], r"answer\[1\] is not expected"),
    ({"additionalProperties": False}, {"secret": 1}, r"answer\.\* is not expected"),
    ({"additionalProperties": {"type": "string"}}, {"secret": 1}, r"answer\.\* must be string"),
    ({"patternProperties": {"^s": {"type": "string"}}}, {"secret": 1}, r"answer\.\* must be string"),
    ({"propertyNames": {"maxLength": 2}}, {"secret": 1}, "a name, has a length"),
    ({"minProperties": 1}, {}, "number of properties"),
    ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1, "or several"),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "secret", "none of the forms"),
    ({"not": {"type": "string"}}, "secret", "excludes"),
    ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, r"answer\.b is missing"),
    ({"properties": {"more": {"$ref": "#"}}, "required": ["x"]}, {"x": 1, "more": {}}, r"answer\.more\.x is missing"),
    (VERDICT, {"kind": "approve", "cents": 7}, "forms"),
    (VERDICT, {"kind": "reject", "reasons": []}, "forms"),
    (VERDICT, {"kind": "reject", "reasons": ["no"], "replies": {"a": {"kind": "secret"}}}, "forms"),
]


@pytest.mark.parametrize(("schema", "answer"), FITS, ids=range(len(FITS)))
def test_fits(schema: Any, answer: Any) -> None:
    check_answer(schema, answer)


@pytest.mark.parametrize(("schema", "answer", "told"), FAILS, ids=range(len(FAILS)))
def test_fails(schema: Any, answer: Any, told: str) -> None:
    with pytest.raises(AnswerInvalidError, match=told) as raised:
        check_answer(schema, answer)
    assert "secret" not in str(raised.value)

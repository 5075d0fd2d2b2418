"""Schemas from signatures and from users: completed, checked and inlined."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.tools import Tool
from streamtools.tools.schemas import complete, inline, snapshot
from tests.support.cases import together
from tests.support.signatures import SIGNATURES, TOOLS, Schema


@together(("tool", "schema"), [(tool, schema) for tool, (_, schema) in zip(TOOLS, SIGNATURES, strict=True)], ids=repr)
def test_a_signature_has_its_schema(tool: Tool, schema: Schema) -> None:
    """Each kind of parameter has its JSON schema, without titles that repeat its name."""
    assert schema == tool.parameters


ARRAY: Schema = {"type": "array"}
OF_ANY: Schema = {"type": "array", "items": {}}
TEXT: Schema = {"type": "string"}
VALUES: Schema = {"default": ARRAY, "enum": [ARRAY], "examples": [ARRAY]}
A: Schema = {"$ref": "#/$defs/A"}


@together(
    ("schema", "completed"),
    [
        (ARRAY, OF_ANY),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        (ARRAY | {"items": ARRAY}, ARRAY | {"items": OF_ANY}),
        ({"anyOf": [ARRAY, True]}, {"anyOf": [OF_ANY, True]}),
        ({"properties": {"items": ARRAY, "type": TEXT}}, {"properties": {"items": OF_ANY, "type": TEXT}}),
        (
            {"additionalProperties": ARRAY, "$defs": {"A": ARRAY}},
            {"additionalProperties": OF_ANY, "$defs": {"A": OF_ANY}},
        ),
        (VALUES, VALUES),
        ({"items": [ARRAY]}, {"items": [OF_ANY]}),
        ({"properties": True, "items": True}, {"properties": True, "items": True}),
    ],
)
def test_arrays_have_items(schema: Schema, completed: Schema) -> None:
    """`items: {}` is added in every schema position, and nowhere else, to a copy."""
    before = repr(schema)
    assert completed == complete(schema)
    assert before == repr(schema)


@together(
    ("schema", "reason"),
    [
        ({"type": "array"}, "must have the type 'object', got 'array'"),
        ({"type": "object", "anyOf": [{}]}, "has 'anyOf' at the top"),
        ({"oneOf": [{}]}, "has 'oneOf' at the top"),
        ({"default": object()}, "cannot be written as JSON"),
    ],
)
def test_a_schema_that_providers_refuse_is_refused(schema: Any, reason: str) -> None:
    """At definition, with the reason."""
    with pytest.raises(ValueError, match=reason):
        snapshot(schema)


def test_a_schema_is_copied() -> None:
    """Later changes of the original change no tool."""
    mine: Schema = {"properties": {"a": {}}}
    kept = snapshot(mine)
    mine["properties"]["b"] = {}
    assert kept == {"type": "object", "properties": {"a": {}}}


@pytest.mark.parametrize(
    ("schema", "written_out"),
    [
        ({"a": 1}, {"a": 1}),
        ({"items": A | {"description": "x"}, "$defs": {"A": TEXT}}, {"items": TEXT | {"description": "x"}}),
        (
            {
                "properties": {"a": {"$ref": "#/definitions/A"}},
                "definitions": {"A": {"items": {"$ref": "#/definitions/B"}}, "B": {"type": "null"}},
            },
            {"properties": {"a": {"items": {"type": "null"}}}},
        ),
        ({"items": A, "$defs": {"A": {"title": "A", "items": A}}}, {"items": {"title": "A", "items": {}}}),
        ({"items": {"$ref": "https://example.com"}}, {"items": {}}),
        ({"items": A, "$defs": {"A": True}}, {"items": {}}),
        ({"items": A | {"items": A}, "$defs": {"A": ARRAY}}, {"items": ARRAY | {"items": ARRAY}}),
    ],
)
def test_references_are_inlined(schema: Schema, written_out: Schema) -> None:
    """A recursive reference becomes `{}`."""
    assert written_out == inline(schema)


@together(
    "odd",
    [
        {"properties": []},
        {"properties": {"a": "string"}},
        {"required": [1]},
        {"$defs": 5},
        {"definitions": {"A": 5}},
        {"properties": {"a": {"anyOf": 5}}},
        {"properties": {"a": {"anyOf": [5]}}},
        {"properties": {"a": {"items": 5}}},
        {"properties": {"a": {"enum": 5}}},
        {"properties": {"a": {"type": [5]}}},
        {"properties": {"a": {"format": []}}},
        {"properties": {"a": {"required": 5}}},
        {"examples": 5},
        {"examples": [5]},
        {"$defs": {"A": {"$ref": 5}}},
    ],
)
def test_an_invalid_schema_is_refused(odd: Any) -> None:
    """At definition, not with each prompt."""
    with pytest.raises(ValueError, match=r"invalid value: Expected|the 'examples' of the schema"):
        snapshot(odd)


def test_a_schema_that_nests_too_deep_is_refused() -> None:
    """With the same limit as arguments."""
    deep: Schema = {}
    for _ in range(40):
        deep = {"properties": {"a": deep}}
    with pytest.raises(ValueError, match="nests deeper than 64"):
        snapshot(deep)


def test_references_that_fan_out_are_bounded() -> None:
    """Each definition refers twice to the next. After the limit, references become `{}`."""
    levels: Schema = {
        f"d{n}": {"type": "object", "properties": {key: {"$ref": f"#/$defs/d{n + 1}"} for key in "ab"}}
        for n in range(40)
    }
    chain: Schema = {f"d{n}": {"items": {"$ref": f"#/$defs/d{n + 1}"}} for n in range(1_000)}
    for definitions in (levels, chain):
        schema: Schema = {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
        written = str(inline(schema))
        assert "$ref" not in written
        assert len(written) < 5 * (8 * 1024 + 4 * len(str(schema)))

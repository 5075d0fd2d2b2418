"""Tests of `Declared`: the tools in all forms in which they are declared."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import ToolRegistry, tool
from streamtools.parsing.declared import Declared
from tests.support.cases import together

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}


@tool
def count(n: int) -> int:
    """Count."""
    return n


@together(
    "tools",
    [
        pytest.param([{"name": "count", "parameters": SCHEMA}], id="plain"),
        pytest.param([{"type": "function", "function": {"name": "count", "parameters": SCHEMA}}], id="OpenAI chat"),
        pytest.param([{"name": "count", "input_schema": SCHEMA}], id="Anthropic"),
        pytest.param([{"name": "count", "inputSchema": SCHEMA}], id="MCP"),
        pytest.param([{"functionDeclarations": [{"name": "count", "parameters": SCHEMA}]}], id="Gemini"),
        pytest.param({"name": "count", "parameters": SCHEMA}, id="one definition"),
        pytest.param([{"type": "web_search"}, {"name": "count", "parameters": SCHEMA}], id="beside a provider's own"),
        pytest.param([count], id="a tool"),
        pytest.param(count, id="one tool"),
        pytest.param([[], [ToolRegistry(count)]], id="several of several"),
        pytest.param(ToolRegistry(count), id="a registry"),
    ],
)
def test_declarations_of_all_providers_are_read(tools: Any) -> None:
    """The name, and the types of the parameters."""
    declared = Declared(tools)
    assert ("count",) == declared.names
    assert "count" in declared
    assert {"integer"} == declared.arguments("count").property("n").types


@pytest.mark.parametrize("tools", [None, [], {}, [{"name": ""}], [{"parameters": SCHEMA}], [{"googleSearch": {}}]])
def test_a_tool_without_a_name_is_ignored(tools: Any) -> None:
    """The provider runs such a tool itself."""
    declared = Declared(tools)
    assert () == declared.names
    assert frozenset() == declared.arguments("count").types


@together(
    "tools",
    [
        pytest.param(max, id="a function"),
        pytest.param([count, max], id="a function among tools"),
        pytest.param({"max": max}, id="a mapping of names to functions"),
        pytest.param([{"max": max}], id="such a mapping in a list"),
        pytest.param({"name": max}, id="a function for a name"),
        pytest.param({"count": SCHEMA}, id="a mapping of names to schemas"),
        pytest.param("count", id="a text"),
        pytest.param(["count"], id="a list of texts"),
        pytest.param(b"count", id="bytes"),
        pytest.param(3, id="a number"),
        pytest.param([{"functionDeclarations": "count"}], id="declarations that are none"),
    ],
)
def test_a_value_that_declares_no_tool_is_refused(tools: Any) -> None:
    """It is a mistake of the caller, and calls would become text."""
    with pytest.raises(TypeError, match=r"declares no tool; for a function, write `@tool` above") as raised:
        Declared(tools)
    assert "count" in str(raised.value) or "max" in str(raised.value) or "3" in str(raised.value)


@together(
    ("schema", "types"),
    [
        ({"type": "STRING"}, ["string"]),
        ({"type": ["integer", "null"]}, ["integer", "null"]),
        ({"type": "string", "nullable": True}, ["string", "null"]),
        ({"anyOf": [{"type": "number"}, {"oneOf": [{"type": "boolean"}]}]}, ["number", "boolean"]),
        ({"$ref": "#/$defs/a~1b"}, ["array"]),
        ({"$ref": "#/nowhere"}, []),
        ({"$ref": "#/$defs/loop"}, []),
        ({"enum": ["a", 1, None]}, ["string", "integer", "null"]),
        ({"const": None}, ["null"]),
        ({"type": "string", "enum": ["a", None]}, ["string"]),
        ({"const": True}, ["boolean"]),
        ({"properties": {}}, ["object"]),
        ({"items": {}}, ["array"]),
        (True, []),
    ],
    ids=str,
)
def test_the_types_of_a_schema(schema: Any, types: list[str]) -> None:
    """References and alternatives are followed up to a limit. An empty schema allows every type."""
    root = {
        "properties": {"x": schema},
        "$defs": {"a/b": {"items": {"type": "string"}}, "loop": {"$ref": "#/$defs/loop"}},
    }
    declared = Declared([{"name": "f", "parameters": root}])
    assert set(types) == declared.arguments("f").property("x").types


def test_the_schemas_of_items_and_properties() -> None:
    schema = Declared(
        [
            {
                "name": "f",
                "parameters": {
                    "properties": {"a": {"items": {"type": "integer"}}},
                    "additionalProperties": {"type": "number"},
                },
            }
        ]
    ).arguments("f")
    assert {"integer"} == schema.property("a").items.types
    assert {"number"} == schema.property("other").types

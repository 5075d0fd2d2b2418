"""Tool definitions in the format of each provider, and as parameter lists."""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

import pytest
from pydantic import BaseModel

from streamtools.parsing.declared import Declared
from streamtools.tools import Tool, ToolRegistry, tool
from streamtools.tools.definitions import DefinitionFormat
from streamtools.tools.schemas import parameters_of_schema, schema_of_parameters, single_type
from tests.support.cases import together
from tests.support.signatures import TOOLS


class Place(BaseModel):
    city: str


class Forecast(BaseModel):
    sky: str


@tool(examples=[{"place": {"city": "Bern"}}])
def weather(place: Place, unit: Literal["c", "f"] = "c") -> Forecast:
    """Tell the weather. At length."""
    return Forecast(sky=place.city)


def now() -> str:
    return "noon"


PLACE = {"type": "object", "title": "Place", "properties": {"city": {"type": "string"}}, "required": ["city"]}
UNIT = {"type": "string", "enum": ["c", "f"], "default": "c"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"place": {"$ref": "#/$defs/Place"}, "unit": UNIT},
    "required": ["place"],
    "additionalProperties": False,
    "$defs": {"Place": PLACE},
}
EXAMPLES = [{"place": {"city": "Bern"}}]
SHOWN = {**SCHEMA, "examples": EXAMPLES}
INLINE = {"type": "object", "properties": {"place": PLACE, "unit": UNIT}, "required": ["place"]}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
SAID = {"name": "weather", "description": "Tell the weather. At length."}

GEMINI = [{**SAID, "parametersJsonSchema": SCHEMA}, {"name": "now", "parametersJsonSchema": NOTHING}]
LISTED = [
    {"name": "place", "type": "object", "description": "", "isRequired": True, "schema": PLACE},
    {"name": "unit", "type": "string", "description": "", "isRequired": False, "schema": UNIT},
]
DEFINITIONS: dict[str, list[Any]] = {
    "openai": [
        {"type": "function", "function": {**SAID, "parameters": SHOWN}},
        {"type": "function", "function": {"name": "now", "parameters": NOTHING}},
    ],
    "responses": [
        {"type": "function", **SAID, "parameters": SHOWN, "strict": False},
        {"type": "function", "name": "now", "parameters": NOTHING, "strict": False},
    ],
    "anthropic": [
        {**SAID, "input_schema": SCHEMA, "input_examples": EXAMPLES},
        {"name": "now", "input_schema": NOTHING},
    ],
    "gemini": [{"functionDeclarations": GEMINI}],
    "ollama": [
        {"type": "function", "function": {**SAID, "parameters": INLINE}},
        {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}},
    ],
    "bedrock": [
        {"toolSpec": {**SAID, "inputSchema": {"json": SCHEMA}}},
        {"toolSpec": {"name": "now", "inputSchema": {"json": NOTHING}}},
    ],
    "tool_clients": [{**SAID, "parameters": LISTED}, {"name": "now", "description": "", "parameters": []}],
}


@together("format", DEFINITIONS)
def test_definitions_of_each_provider(format: Any) -> None:
    """In the order of registration, with a description only if there is one."""
    assert DEFINITIONS[format] == ToolRegistry(weather, now).definitions(format)


@together("format", get_args(DefinitionFormat))
def test_every_signature_in_every_format(format: Any) -> None:
    """The definitions are JSON, and a parser that gets them knows the same parameters."""
    registry = ToolRegistry(TOOLS)
    definitions = json.loads(json.dumps(registry.definitions(format)))
    assert definitions == registry.definitions(format)
    if format != "tool_clients":
        declared = Declared(definitions)
        assert {each.name: set(each.parameters["properties"]) for each in registry} == {
            name: set(declared.arguments(name).properties) for name in declared.names
        }


def test_a_parameter_name_that_anthropic_refuses() -> None:
    """Other providers accept any parameter name."""

    def measure(größe: int) -> None: ...

    registry = ToolRegistry(measure)
    assert "größe" in registry.definitions("openai")[0]["function"]["parameters"]["properties"]
    with pytest.raises(ValueError, match="tool 'measure': Anthropic refuses the parameter name 'größe'"):
        registry.definitions("anthropic")


SEED: list[dict[str, Any]] = [
    {"name": "city", "type": "string", "description": "Where.", "isRequired": True, "schema": {"$schema": "x"}},
    {"name": "tags", "type": "array", "description": "", "isRequired": False, "schema": {"type": "array"}},
    {"name": "unit", "type": "string", "isRequired": False, "schema": {"enum": ["c", "f"]}},
    {"name": "when"},
]


def test_a_parameter_list_becomes_a_schema() -> None:
    """The tool is listed in the same form again."""
    made = Tool(lambda arguments: arguments["city"], name="getWeather", description="Tell.", parameters=SEED)
    assert made.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "tags": {"type": "array", "items": {}},
            "unit": {"type": "string", "enum": ["c", "f"]},
            "when": {},
        },
        "required": ["city"],
    }
    listed = parameters_of_schema(made.parameters)
    assert [(each["name"], each["type"], each["isRequired"]) for each in listed] == [
        ("city", "string", True),
        ("tags", "array", False),
        ("unit", "string", False),
        ("when", "object", False),
    ]
    assert schema_of_parameters(listed[:3])["properties"] == {
        name: part for name, part in made.parameters["properties"].items() if name != "when"
    }


@pytest.mark.parametrize("parameters", [[{}], [{"name": ""}], [{"name": "a"}, {"name": "a"}], ["a"]])
def test_a_parameter_without_a_unique_name(parameters: Any) -> None:
    """It could not be a member of an object."""
    with pytest.raises(ValueError, match="each parameter must have a unique name"):
        schema_of_parameters(parameters)


@together(
    ("schema", "kind"),
    [
        ({"type": "string"}, "string"),
        ({"type": ["integer", "null"]}, "integer"),
        ({"type": ["integer", "string"]}, "object"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer"),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}]}, "object"),
        ({"anyOf": [{"type": "integer"}, True]}, "object"),
        ({"enum": ["a", "b"]}, "string"),
        ({"const": "a"}, "string"),
        ({"enum": [1]}, "object"),
        ({"type": "null"}, "object"),
        ({}, "object"),
    ],
)
def test_a_schema_has_one_type_or_is_an_object(schema: dict[str, Any], kind: str) -> None:
    """Null besides a type does not count."""
    assert kind == single_type(schema)

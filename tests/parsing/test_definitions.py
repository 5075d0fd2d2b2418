"""Tests of definitions of tools that a model repeats: they are no calls, although they hold a name and arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools.events import Call
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import feed
from tests.support.cases import together


def tool(name: str, **properties: object) -> dict[str, Any]:
    return {"name": name, "parameters": {"type": "object", "properties": properties}}


TEXT = {"type": "string"}
SCHEMA = {"type": "object", "properties": {"city": TEXT}, "required": ["city"]}
NOW, WEATHER, DEFINE = tool("now"), tool("weather", city=TEXT), tool("define", type=TEXT, properties={"type": "object"})
TOOLS = [NOW, WEATHER, DEFINE, {"name": "store", "parameters": {"type": "object"}}]


def called(text: str, dialect: str | None, tools: object = TOOLS) -> list[Any]:
    """Return the arguments of the calls in `text`. They are the same for every way to cut it."""
    dialects = None if dialect is None else [dialect]
    cuts = ([text], list(text), [text[at : at + 3] for at in range(0, len(text), 3)])
    whole, *others = (
        [event.call.arguments for event in feed(cut, dialects=dialects, tools=tools) if isinstance(event, Call)]
        for cut in cuts
    )
    assert all(each == whole for each in others)
    return whole


def definitions_that_run() -> list[str]:
    """Return the dialects in which arguments that are the schema of a tool are a call."""
    found = []
    for id, dialect in DIALECTS.items():
        for name, tools in (("weather", TOOLS), ("other", None)):
            ran = called(dialect.write_call(name, SCHEMA), id, tools)
            found += [id for arguments in ran if isinstance(arguments["properties"], dict)]  # no JSON: a string
    return found


def test_a_schema_as_arguments_is_no_call_in_any_dialect() -> None:
    assert [] == definitions_that_run()


def test_the_law_catches_a_definition_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Declared, "defines", lambda *_: False)

    assert len(definitions_that_run()) > 40


@pytest.mark.parametrize("name", ["define", "store"])
def test_a_tool_that_takes_a_schema_is_called_in_any_dialect(name: str) -> None:
    """It declares a parameter `properties`, or takes any object."""
    arguments = {"type": "object", "properties": {"city": TEXT}}
    for id, dialect in DIALECTS.items():
        assert 1 == len(called(dialect.write_call(name, arguments), id)), id


@together(
    "definition",
    [
        NOW,  # a schema without properties
        DEFINE,  # a schema of a tool that takes a schema
        {"type": "function", "function": NOW},  # in the form of Chat Completions
        {"type": "function", "function": {**WEATHER, "strict": True}},  # parameters
        {"name": "now", "description": "Returns the time.", "parameters": {}},  # a description, and no parameters
        {"name": "now", "input_schema": SCHEMA},  # in the form of Anthropic
        {"name": "now", "inputSchema": SCHEMA},  # in the form of MCP
        {"name": "weather", "parameters": {**SCHEMA, "type": "OBJECT"}},  # in the form of Gemini
        {"name": "weather", "parameters": {"properties": {"city": TEXT}}},  # no type
    ],
)
def test_a_definition_in_json_is_no_call(definition: dict[str, Any]) -> None:
    written = json.dumps(definition)
    for text, dialect in {
        f"<tool_call>\n{written}\n</tool_call>": "hermes_json",
        f"<tools>\n{written}\n</tools>": "qwen25_coder_tools",
        f"[TOOL_CALLS][{written}]": "mistral_list",
        f"###:{written}": "hash_marker",
        f"[{written}]": "json_array",
        written: "raw_json",
    }.items():
        for each in (dialect, None):
            assert [] == called(text, each), text


@together(
    ("call", "arguments"),
    {
        "empty arguments": ({"name": "now", "arguments": {}}, {}),
        "a description": ({"name": "now", "description": "Asks for the time.", "arguments": {}}, {}),
        "in the form of Chat Completions": ({"type": "function", "function": {"name": "now", "arguments": "{}"}}, {}),
        "other arguments": ({"name": "weather", "parameters": {"city": "Oslo"}}, {"city": "Oslo"}),
        "properties": ({"name": "update", "arguments": {"properties": {"a": {}}}}, {"properties": {"a": {}}}),
    },
)
def test_a_call_with_similar_fields_is_a_call(call: dict[str, Any], arguments: dict[str, Any]) -> None:
    assert [arguments] == called(f"<tool_call>\n{json.dumps(call)}\n</tool_call>", "hermes_json")

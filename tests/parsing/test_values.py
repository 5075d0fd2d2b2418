"""Tests of values that are written as plain text. The JSON schema of the tool gives them their types."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.events import CallDelta
from streamtools.limits import Limits
from streamtools.parsing import DIALECTS
from streamtools.testing.laws import feed, steps
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read

DIALECT = ["glm_xml"]


def tools(schema: object) -> list[dict[str, Any]]:
    """Return the tool f, whose parameter a has this schema."""
    return [{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}]


def written(value: str) -> str:
    """Return a call that writes `value` for a."""
    return f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>"


@together(
    ("types", "value", "expected"),
    {
        "zeros before an integer": ("integer", "007", 7),
        "a number as Python writes it": ("integer", "0x1f", 31),
        "an object as Python writes it": ("object", "{'x': [True, None,],}", {"x": [True, None]}),
        "an object as JSON": ("object", ' {"x": "\\u00e9"} ', {"x": "é"}),
        "an escaped quote in such a one": ("array", '[ {\\"x\\": \\"\\\\\\"\\"} ]', [{"x": '"'}]),
    },
)
def test_a_literal_of_an_allowed_type_is_converted(types: object, value: str, expected: object) -> None:
    """Other text is a string."""
    assert [call("f", a=expected)] == read(written(value), dialects=DIALECT, tools=tools({"type": types}))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param('{"x" 1}', error("invalid_arguments"), id="no colon"),
        pytest.param('{"x": 1, "x": 2}', error("duplicate_key"), id="a key twice"),
        pytest.param("[" * 64 + "]" * 64, error("too_deep"), id="nested too deeply"),
    ],
)
def test_a_malformed_container_is_an_error_if_no_string_is_allowed(value: str, expected: Brief) -> None:
    assert [expected] == read(written(value), dialects=DIALECT, tools=tools({"type": "object"}))


@pytest.mark.parametrize(
    ("said", "value", "expected"),
    [
        pytest.param("false", '[1, "x"]', call("f", a=[1, "x"]), id="an array"),
        pytest.param("false", "one", error("invalid_arguments"), id="not JSON"),
        pytest.param("false", "", error("invalid_arguments"), id="nothing"),
    ],
)
def test_a_type_in_the_text_replaces_the_schema(said: str, value: str, expected: Brief) -> None:
    """A value that does not match it is an error."""
    mark = "｜DSML｜"
    parameter = f'<{mark}parameter name="a" string="{said}">{value}</{mark}parameter>'
    text = f'<{mark}tool_calls><{mark}invoke name="f">{parameter}</{mark}invoke></{mark}tool_calls>'

    assert [expected] == read(text, dialects=["deepseek_dsml"], tools=tools({"type": "boolean"}))


def test_without_a_schema_each_value_is_a_string() -> None:
    assert [call("f", a="1")] == read(written("1"), dialects=DIALECT)
    assert [call("f", a="[1]")] == read(written("[1]"), dialects=DIALECT, tools=[{"name": "f", "parameters": None}])


def test_strings_and_containers_are_reported_while_they_arrive() -> None:
    """Numbers are reported when they end."""
    reported = {"string": '{"a":"ab\\n', "array": '{"a":[1,"b', "integer": '{"a":', "boolean": '{"a":"trx'}
    for kind, value in {"string": "ab\n", "array": '[1, "b', "integer": "12", "boolean": "trx"}.items():
        text = written(value).removesuffix("</arg_value></tool_call>")
        *_, last = steps(text, dialects=DIALECT, tools=tools({"type": kind}), call_deltas=True)
        assert reported[kind] == "".join(event.text for event in last.events if isinstance(event, CallDelta))


def test_pending_text_of_a_value_is_limited() -> None:
    """To 512 characters."""
    for value in ("1" * 513, " " * 513 + "{}", "1" + " " * 512):
        result = parse([written(value)], dialects=DIALECT, tools=tools({"type": ["integer", "object"]}))
        assert [{"a": value}] == [each.arguments for each in result.calls]
        assert [call("f", a=value)] == read(written(value), dialects=DIALECT, tools=tools({"type": "integer"}))


def test_over_a_limit_no_text_of_a_value_is_kept() -> None:
    events = feed(
        written("[" + "1, " * 100) + "x",
        dialects=DIALECT,
        tools=tools({"type": ["array", "string"]}),
        limits=Limits(call=100),
    )
    assert ["thinking", "call-start", "error", "thinking", "warning", "text"] == [event.type for event in events]


ONE_OF = {
    "n": {"kind": {"const": "n"}, "v": {"type": "integer"}},
    "s": {"kind": {"const": "s"}, "v": {"type": "string"}},
}
TOLD_APART = {
    "oneOf": {"oneOf": [{"properties": each} for each in ONE_OF.values()]},
    "reversed": {"oneOf": [{"properties": each} for each in [*ONE_OF.values()][::-1]]},
    "anyOf, enum": {
        "properties": {"kind": {"type": "string"}},
        "anyOf": [
            {"properties": {"kind": {"enum": ["n", "m"]}, "v": {"type": "integer"}}},
            {"properties": {"kind": {"enum": ["s"]}, "v": {"type": "string"}}},
        ],
    },
    "references": {
        "oneOf": [{"$ref": "#/$defs/n"}, {"$ref": "#/$defs/s"}],
        "$defs": {
            name: {"allOf": [{"properties": {key: value}} for key, value in each.items()]}
            for name, each in ONE_OF.items()
        },
    },
}
RAW_VALUES = ["qwen3_coder_xml", "glm_xml", "minimax_m2_xml", "anthropic_xml", "kimi_k3_xtml", "solar_open2"]


@together("dialect", RAW_VALUES)
@together("schema", [*TOLD_APART.values()])
def test_a_constant_tells_alternatives_of_the_arguments_apart(dialect: str, schema: dict[str, Any]) -> None:
    """Before the constant, the value has one of all types. If that is wrong, the call is an error."""

    def call_with(**arguments: str) -> list[Any]:
        text = DIALECTS[dialect].write_call("f", arguments).replace('type="string"', "")
        return read(text, dialects=[dialect], tools=[{"name": "f", "parameters": schema}])

    for kind, value, expected in [("n", "5", 5), ("s", "5", "5"), ("s", "x", "x"), ("z", "x", "x")]:
        assert [call("f", kind=kind, v=expected)] == call_with(kind=kind, v=value)
    assert [call("f", v=5, kind="n")] == call_with(v="5", kind="n")
    assert [call("f", v="x", kind="s")] == call_with(v="x", kind="s")
    assert [error("invalid_arguments")] == call_with(v="5", kind="s")


@together("dialect", RAW_VALUES[:4])
def test_a_listed_string_is_no_number(dialect: str) -> None:
    tools = [{"name": "f", "parameters": {"properties": {"a": {"enum": ["2", 3, "true", None]}}}}]
    for written, value in {"2": "2", "3": 3, "true": "true", "null": None, "b": "b"}.items():
        text = DIALECTS[dialect].write_call("f", {"a": written})
        assert [call("f", a=value)] == read(text, dialects=[dialect], tools=tools)

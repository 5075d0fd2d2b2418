"""Values that are written as plain text: what they are, says the JSON schema of the tool."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.events import CallDelta
from streamtools.limits import Limits
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
    [
        pytest.param("string", "", "", id="an empty string"),
        pytest.param("string", '"q" \\n\n\t<b>', '"q" \\n\n\t<b>', id="a string is what it is"),
        pytest.param("string", "1", "1", id="a string of digits"),
        pytest.param("string", " null ", " null ", id="white space belongs to a string"),
        pytest.param("any", "1", "1", id="of an unknown type all is a string"),
        pytest.param("integer", "1", 1, id="an integer"),
        pytest.param("integer", "\n-12 ", -12, id="white space around an integer"),
        pytest.param("integer", "1.5", 1.5, id="a number for an integer is for the validation to refuse"),
        pytest.param("integer", "one", "one", id="a word for an integer is for the validation to refuse"),
        pytest.param("integer", "1 2", "1 2", id="two numbers are none"),
        pytest.param("integer", "null", None, id="null for an integer is for the validation to refuse"),
        pytest.param("integer", "007", 7, id="zeros before an integer"),
        pytest.param("int", "1", 1, id="a type as people who write Python call it"),
        pytest.param("dict", "{'x': 1}", {"x": 1}, id="another one"),
        pytest.param("integer", "", "", id="nothing for an integer"),
        pytest.param("integer", "0x1f", 31, id="a number as Python writes it"),
        pytest.param("number", "1e5", 1e5, id="an exponent"),
        pytest.param("number", "-.5", -0.5, id="no digit before the point"),
        pytest.param("number", "-", "-", id="a sign alone"),
        pytest.param("number", "12:30", "12:30", id="a time is no number"),
        pytest.param("boolean", "true", True, id="true"),
        pytest.param("boolean", "False", False, id="False, as Python writes it"),
        pytest.param("boolean", "TRUE", "TRUE", id="no language writes it so"),
        pytest.param("boolean", "truely", "truely", id="a word that begins like one"),
        pytest.param("boolean", "true x", "true x", id="a word and more"),
        pytest.param(["string", "null"], "null", None, id="null where it is allowed"),
        pytest.param(["string", "null"], "None", None, id="None, as Python writes it"),
        pytest.param(["string", "null"], "nullable", "nullable", id="a word that begins like null"),
        pytest.param(["string", "integer"], "7", 7, id="a whole number, or a string"),
        pytest.param(["string", "integer"], "7.5", "7.5", id="no whole number, so a string"),
        pytest.param(["string", "integer"], "007", "007", id="no JSON, so a string"),
        pytest.param(["string", "number"], "7.5", 7.5, id="a number, or a string"),
        pytest.param("object", "{'x': [True, None,],}", {"x": [True, None]}, id="an object as Python writes it"),
        pytest.param("object", ' {"x": "\\u00e9"} ', {"x": "é"}, id="an object as JSON"),
        pytest.param("object", '{\\"x\\": [\\"a\\\\n\\"]}', {"x": ["a\n"]}, id="an object with escaped quotes"),
        pytest.param("object", '{\\n \\"x\\": [\\n1]\\n}', {"x": [1]}, id="escaped line feeds as well"),
        pytest.param("array", '[ {\\"x\\": \\"\\\\\\"\\"} ]', [{"x": '"'}], id="an escaped quote in such a one"),
        pytest.param(["array", "string"], '[\\"a\\"', '[\\"a\\"', id="one that is not closed, so a string"),
        pytest.param("object", "[1]", [1], id="the wrong container is for the validation to refuse"),
        pytest.param("object", "x: 1", "x: 1", id="no container at all"),
        pytest.param("array", '["a", "b"]', ["a", "b"], id="an array"),
        pytest.param("array", '[{"a": "[}"}, "\'"]', [{"a": "[}"}, "'"], id="brackets and quotes in strings"),
        pytest.param("array", "a, b", "a, b", id="a list without brackets"),
        pytest.param(["array", "null"], "null", None, id="null for an array"),
        pytest.param(["array", "string"], "[1, 2]", [1, 2], id="an array, or a string"),
        pytest.param(["array", "string"], "[a](b)", "[a](b)", id="a link, which is a string"),
        pytest.param(["array", "string"], "[1, 2", "[1, 2", id="an array that is not closed, so a string"),
        pytest.param(["array", "string"], "[1] and [2]", "[1] and [2]", id="an array and more, so a string"),
        pytest.param(["array", "string"], '{"x": 1}', '{"x": 1}', id="an object where none is allowed, so a string"),
        pytest.param(["object", "string"], "text", "text", id="a text that may be an object"),
    ],
)
def test_types(types: object, value: str, expected: object) -> None:
    """A literal of a type that is allowed is one; what is none is a string; nothing is guessed."""
    assert [call("f", a=expected)] == read(written(value), dialects=DIALECT, tools=tools({"type": types}))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param('{"x": 1', error("invalid_arguments"), id="not closed"),
        pytest.param('{"x": 1} x', error("invalid_arguments"), id="something behind it"),
        pytest.param('{"x" 1}', error("invalid_arguments"), id="no colon"),
        pytest.param('{"x": foo}', error("invalid_arguments"), id="a word that is no literal"),
        pytest.param('{"x": 1, "x": 2}', error("duplicate_key"), id="a key twice"),
        pytest.param('{"x": NaN}', error("not_a_number"), id="no number"),
        pytest.param("[" * 64 + "]" * 64, error("too_deep"), id="nested too deeply"),
    ],
)
def test_containers_that_do_not_read(value: str, expected: Brief) -> None:
    """Where only a container is allowed, what begins as one and is none makes the call an error."""
    assert [expected] == read(written(value), dialects=DIALECT, tools=tools({"type": "object"}))


@pytest.mark.parametrize(
    ("said", "value", "expected"),
    [
        pytest.param("true", "1", call("f", a="1"), id="a string, whatever it looks like"),
        pytest.param("false", "1", call("f", a=1), id="a number"),
        pytest.param("false", '"1"', call("f", a="1"), id="a string in quotes"),
        pytest.param("false", '[1, "x"]', call("f", a=[1, "x"]), id="an array"),
        pytest.param("false", "one", error("invalid_arguments"), id="what is not JSON"),
        pytest.param("false", "", error("invalid_arguments"), id="nothing"),
        pytest.param("false", '"x', error("invalid_arguments"), id="a string that is not closed"),
    ],
)
def test_a_type_that_the_text_says_itself(said: str, value: str, expected: Brief) -> None:
    """It counts more than the schema, and what does not read as it says is an error."""
    mark = "｜DSML｜"
    parameter = f'<{mark}parameter name="a" string="{said}">{value}</{mark}parameter>'
    text = f'<{mark}tool_calls><{mark}invoke name="f">{parameter}</{mark}invoke></{mark}tool_calls>'

    assert [expected] == read(text, dialects=["deepseek_dsml"], tools=tools({"type": "boolean"}))


def test_without_a_schema_all_is_a_string() -> None:
    """Of an unknown tool, and of a parameter that is not declared, every value is a string."""
    assert [call("f", a="1")] == read(written("1"), dialects=DIALECT)
    assert [call("f", a="[1]")] == read(written("[1]"), dialects=DIALECT, tools=[{"name": "f", "parameters": None}])


def test_strings_and_containers_arrive_while_they_are_written() -> None:
    """Each character of a string, or of an array, that is certain is told at once; a number is told when it ends."""
    told = {"string": '{"a":"ab\\n', "array": '{"a":[1,"b', "integer": '{"a":', "boolean": '{"a":"trx'}
    for kind, value in {"string": "ab\n", "array": '[1, "b', "integer": "12", "boolean": "trx"}.items():
        text = written(value).removesuffix("</arg_value></tool_call>")
        *_, last = steps(text, dialects=DIALECT, tools=tools({"type": kind}), call_deltas=True)
        assert told[kind] == "".join(event.text for event in last.events if isinstance(event, CallDelta))


def test_what_is_held_is_bounded() -> None:
    """More than 512 characters are no number, and no white space before a container."""
    for value in ("1" * 513, " " * 513 + "{}", "1" + " " * 512):
        result = parse([written(value)], dialects=DIALECT, tools=tools({"type": ["integer", "object"]}))
        assert [{"a": value}] == [each.arguments for each in result.calls]
        assert [call("f", a=value)] == read(written(value), dialects=DIALECT, tools=tools({"type": "integer"}))


def test_over_a_limit_nothing_is_kept() -> None:
    """A value that may be an array or a string goes nowhere where the call is too large."""
    events = feed(
        written("[" + "1, " * 100) + "x",
        dialects=DIALECT,
        tools=tools({"type": ["array", "string"]}),
        limits=Limits(call=100),
    )
    assert ["thinking", "call-start", "error", "thinking", "warning", "text"] == [event.type for event in events]

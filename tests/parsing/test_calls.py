"""Tests of `streamtools.calls` and `json_values`: envelopes, arguments, strict JSON and ids."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolCall, parse
from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS, ReadCall, new_call_id, read_arguments, read_envelope
from streamtools.json_values import Decoded, Rejected, decode_json
from streamtools.limits import DEFAULT_LIMITS, Limits
from tests.support.cases import together
from tests.support.reading import call, error, read

A = {"a": 1}


@together("name_field", NAME_FIELDS)
@together("arguments_field", ARGUMENT_FIELDS)
@together("written", [A, '{"a": 1}'], ids=["object", "string"])
def test_all_name_and_argument_fields_combine(name_field: str, arguments_field: str, written: Any) -> None:
    """In either order, with the arguments as an object or as a string."""
    for envelope in ({name_field: "f", arguments_field: written}, {arguments_field: written, name_field: "f"}):
        assert ReadCall("f", A, None) == read_envelope(envelope)
        assert [call("f", a=1)] == read("###:" + json.dumps(envelope))


@together(
    ("envelope", "expected"),
    [
        pytest.param({"type": "function", "function": {"name": "f", "arguments": A}}, ("f", A, None), id="OpenAI"),
        pytest.param({"id": "i", "function": {"name": "f", "arguments": "{}"}}, ("f", {}, "i"), id="with an id"),
        pytest.param({"type": "tool_use", "id": "i", "name": "f", "input": A}, ("f", A, "i"), id="Anthropic"),
        pytest.param({"name": "f"}, ("f", {}, None), id="no arguments"),
        pytest.param({"name": "f", "arguments": None}, ("f", {}, None), id="null for arguments"),
        pytest.param({"name": "f", "arguments": ""}, ("f", {}, None), id="an empty string for arguments"),
        pytest.param({"name": "f", "args": A, "note": 1, "x": [2]}, ("f", A, None), id="other keys are ignored"),
        pytest.param({"name": "f", "arguments": None, "args": A}, ("f", A, None), id="null gives way"),
        pytest.param({"name": None, "tool": "f"}, ("f", {}, None), id="a name of null gives way"),
        pytest.param({"name": "f", "tool": "f"}, ("f", {}, None), id="the same name twice"),
        pytest.param({"name": "f", "args": A, "input": '{"a":1}'}, ("f", A, None), id="the same arguments twice"),
        pytest.param({"name": "f", "args": "", "input": {}}, ("f", {}, None), id="nothing twice"),
        pytest.param({"name": "f", "function": {"name": "f", "arguments": A}}, ("f", A, None), id="the name at both"),
        pytest.param({"name": "f", "arguments": A, "function": {}}, ("f", A, None), id="an empty function"),
        pytest.param({"function": {"name": "f"}, "args": A}, ("f", A, None), id="name and arguments apart"),
        pytest.param({"type": "function", "function": "f", "args": A}, ("f", A, None), id="a function that is a name"),
        pytest.param({"name": "f", "function": "g"}, ("f", {}, None), id="a function that is a string beside a name"),
        pytest.param({"name": " f "}, (" f ", {}, None), id="a name is taken to the letter"),
        pytest.param({"name": "f", "id": 7}, ("f", {}, "7"), id="a number as id"),
        pytest.param({"name": "f", "id": ""}, ("f", {}, None), id="an empty id"),
        pytest.param({"name": "f", "id": None, "call_id": "c"}, ("f", {}, "c"), id="another name for the id"),
        pytest.param({"name": "f", "tool_call_id": "c"}, ("f", {}, "c"), id="a third"),
    ],
)
def test_an_envelope_is_read(envelope: dict[str, Any], expected: tuple[str, dict[str, Any], str | None]) -> None:
    assert ReadCall(*expected) == read_envelope(envelope)


@together(
    ("envelope", "code"),
    [
        pytest.param({}, "missing_tool_name", id="an empty object"),
        pytest.param({"name": " \n"}, "missing_tool_name", id="a blank name"),
        pytest.param({"name": 3}, "missing_tool_name", id="a number for a name"),
        pytest.param({"name": "f", "function": {"name": "g"}}, "conflicting_fields", id="two names on two levels"),
    ],
)
def test_each_fault_of_an_envelope_has_its_code(envelope: dict[str, Any], code: str) -> None:
    """No faulty argument becomes `{}`."""
    with pytest.raises(Rejected) as caught:
        read_envelope(envelope)

    assert code == caught.value.code
    assert [error(code)] == read("###:" + json.dumps(envelope)) or not envelope


@together(
    ("text", "code"),
    [
        pytest.param("{", "invalid_json", id="half an object"),
        pytest.param("{} {}", "invalid_json", id="two objects"),
        pytest.param('{"a":1,}', "invalid_json", id="a trailing comma"),
        pytest.param("{'a':1}", "invalid_json", id="single quotes"),
        pytest.param('{"a":True}', "invalid_json", id="a literal of Python"),
        pytest.param('{"a":01}', "invalid_json", id="a leading zero"),
        pytest.param('{"a":+1}', "invalid_json", id="a plus sign"),
        pytest.param('{"a":.5}', "invalid_json", id="no digit before the point"),
        pytest.param('{"a":"\\x"}', "invalid_json", id="an unknown escape"),
        pytest.param("\ufeff{}", "invalid_json", id="a byte order mark"),
        pytest.param('{"a":NaN}', "not_a_number", id="NaN"),
        pytest.param('{"a":Infinity}', "not_a_number", id="Infinity"),
        pytest.param('{"a":[-Infinity]}', "not_a_number", id="-Infinity"),
        pytest.param('{"a":1e999}', "not_a_number", id="an overflow"),
        pytest.param('{"a":-1e999}', "not_a_number", id="an overflow to the other side"),
        pytest.param('{"a":1,"a":1}', "duplicate_key", id="a key twice"),
        pytest.param('{"b":[{"a":1,"\\u0061":2}]}', "duplicate_key", id="a key twice, deeper, and written otherwise"),
        pytest.param('{"a":"\\u003a","a":"\\u003A"}', "duplicate_key", id="a key twice, and a colon that is escaped"),
        pytest.param('{"a:b":":","c":1,"a:b":":"}', "duplicate_key", id="a key twice, among other colons"),
        pytest.param('{"a":"\\ud83d"}', "lone_surrogate", id="half a pair"),
        pytest.param('{"a":"\\ude00\\ud83d"}', "lone_surrogate", id="a pair the wrong way round"),
        pytest.param('{"\\ud83d":1}', "lone_surrogate", id="half a pair in a key"),
        pytest.param('{"a":"\ud83d"}', "lone_surrogate", id="half a pair, not escaped"),
        pytest.param('{"a":' + "1" * 301 + "}", "number_too_long", id="301 digits"),
        pytest.param('{"a":-0.' + "1" * 300 + "}", "number_too_long", id="301 digits with a point"),
        pytest.param("[" * 65 + "]" * 65, "too_deep", id="65 levels"),
        pytest.param("[" * 100_000 + "]" * 100_000, "too_deep", id="more levels than Python has stack"),
    ],
)
def test_json_on_which_parsers_disagree_is_rejected(text: str, code: str) -> None:
    """RFC 8259 leaves these cases open. Each has its own code."""
    with pytest.raises(Rejected) as caught:
        decode_json(text)

    assert code == caught.value.code


@together(
    ("text", "value"),
    [
        pytest.param('{"a":"\\ud83d\\ude00"}', {"a": "😀"}, id="a whole pair"),
        pytest.param('{"a":"😀"}', {"a": "😀"}, id="a character beyond the first plane"),
        pytest.param('{"a":"\\\\ud83d"}', {"a": "\\ud83d"}, id="a back-slash, and letters that look like half a pair"),
        pytest.param('{"a":' + "1" * 300 + "}", {"a": int("1" * 300)}, id="300 digits"),
        pytest.param('{"a":1e-999}', {"a": 0.0}, id="an underflow"),
        pytest.param("[" * 63 + "{}" + "]" * 63, None, id="64 levels"),
        pytest.param('{"a":"' + "[" * 99 + '"}', {"a": "[" * 99}, id="brackets in a string"),
        pytest.param(" \r\n\t{} ", {}, id="white space around"),
        pytest.param('{"a":1,"b":{"a":1}}', {"a": 1, "b": {"a": 1}}, id="a key on two levels"),
    ],
)
def test_json_that_resembles_a_fault_is_accepted(text: str, value: Any) -> None:
    decoded = decode_json(text)

    assert not decoded.repaired
    assert decoded.value == (value if value is not None else json.loads(text))


def test_raw_control_characters_are_the_only_repair() -> None:
    """They are accepted and reported."""
    text = '{"a":"x\n\ty\x00"}'

    assert Decoded({"a": "x\n\ty\x00"}, True) == decode_json(text)
    assert Decoded({"a": "x\n"}, True) == read_arguments('{"a":"x\n"}')


@pytest.mark.parametrize("arguments", ['{"a": "x\ny"}', '"{\\"a\\": \\"x\ny\\"}"'], ids=["object", "string"])
def test_a_call_with_a_repair_is_marked(arguments: str) -> None:
    """The repair may be in any part of the call."""
    text = '###:{"name":"f","arguments":' + arguments + "}"
    plain = parse('###:{"name":"f"}').calls[0]
    repaired = parse(text).calls[0]

    assert (False, True) == (plain.repaired, repaired.repaired)
    assert {"a": "x\ny"} == repaired.arguments


STRINGS = ('"a"', '"a"', '"b"', '"\\u0061"', '"\\ud800"', '"\ud800"', '":"', '"\n"')
TOKENS = st.sampled_from([*STRINGS, *"{}[]:,{}:,", " ", "1", "-0", "1e999", "NaN", "01"])
MEMBERS = st.dictionaries(st.sampled_from(["a", "b", ":"]), st.none() | st.integers() | st.floats(), max_size=3)


@given(st.lists(TOKENS).map("".join) | st.lists(MEMBERS | TOKENS, max_size=4).map(lambda each: written(each)))
def test_white_space_after_json_changes_neither_value_nor_fault(text: str) -> None:
    assert verdict(text) == verdict(text + " " * DEFAULT_LIMITS.digits)


def written(values: list[Any]) -> str:
    """Return a JSON object with these members. Strings are already JSON."""
    texts = [each if isinstance(each, str) else json.dumps(each) for each in values]
    return "{" + ",".join(f'"{at}":{each}' for at, each in enumerate(texts)) + "}"


def verdict(text: str) -> str:
    """Return the result of decoding a text, such that 1 and true differ."""
    try:
        return repr(decode_json(text))
    except Rejected as error:
        return error.code


def test_limits_of_digits_and_depth_can_be_changed() -> None:
    """Limits below and above the defaults. Python's own limits never raise."""
    tight = Limits(depth=1, digits=2)
    wide = Limits(depth=100, digits=100_000)

    assert {"a": 12} == decode_json('{"a":12}', limits=tight).value
    for text, code in [('{"a":123}', "number_too_long"), ('{"a":[]}', "too_deep")]:
        with pytest.raises(Rejected) as caught:
            decode_json(text, limits=tight)
        assert code == caught.value.code
    assert 100 == json.dumps(decode_json("[" * 100 + "]" * 100, limits=wide).value).count("[")
    with pytest.raises(Rejected) as caught:
        decode_json("9" * 50_000, limits=wide)
    assert "number_too_long" == caught.value.code
    assert (2 * 1024 * 1024, 64, 300, 32) == (
        DEFAULT_LIMITS.call,
        DEFAULT_LIMITS.depth,
        DEFAULT_LIMITS.digits,
        DEFAULT_LIMITS.calls,
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_arguments_are_never_invented(value: Any) -> None:
    """Only missing arguments become `{}`. A value that is not an object is rejected."""
    if value is None or value == "":
        assert Decoded({}, False) == read_arguments(value)
    else:
        with pytest.raises(Rejected):
            read_arguments(value)


def test_ids_cannot_be_guessed_and_can_be_injected() -> None:
    """The id that the model writes is kept separately."""
    assert re.fullmatch(r"call_[\w-]{12}", new_call_id())
    assert new_call_id() != new_call_id()
    numbers = iter("123")
    made = parse('###:{"name":"f","id":"x"} ###:{"name":"f"}', new_id=lambda: f"call_{next(numbers)}").calls

    assert [("call_1", "x"), ("call_2", None)] == [(each.id, each.provider_id) for each in made]
    assert ["hash_marker", "hash_marker"] == [each.dialect for each in made]


def test_fingerprints_compare_name_and_arguments() -> None:
    """The order, the ids and the text do not matter. 50.0 equals 50."""

    def made(name: str, arguments: dict[str, Any], call_id: str = "1") -> str:
        return ToolCall(id=call_id, name=name, arguments=arguments, dialect="d", raw=call_id).fingerprint()

    assert made("f", {"a": 1, "b": {"c": 2, "d": 3}}) == made("f", {"b": {"d": 3, "c": 2}, "a": 1}, "2")
    assert (
        made("f", {"a": [50.0, {"b": -0.0}]}) == made("f", {"a": [50, {"b": 0}]}) != made("f", {"a": [50.5, {"b": 0}]})
    )
    assert 5 == len({made("f", {}), made("g", {}), made("f", {"a": 1}), made("f", {"a": "1"}), made("f", {"a": True})})

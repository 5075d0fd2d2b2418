"""Tests of `text_calls`: a custom function reads the text of a call."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

import pytest

from streamtools import Dialect, parse
from streamtools.limits import Limits
from streamtools.parsing import Opener, Span, text_calls
from streamtools.parsing.dialects.neutralizing import neutralize
from streamtools.parsing.reader import Word
from streamtools.testing import assert_laws
from streamtools.testing.laws import assert_chunk_invariant
from tests.support.cases import together
from tests.support.reading import brief, call, error
from tests.support.ways_to_cut import usual_ways


def value_in(text: str) -> Any:
    """Read JSON. Other text is a string."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def pairs_in(text: str) -> tuple[str, dict[str, Any]]:
    """Read lines with a key and a value. One key is the name of the tool."""
    given = dict(line.split(": ", 1) for line in text.strip().splitlines())
    return given.pop("name"), {key: value_in(each) for key, each in given.items()}


def _lines(arguments: dict[str, Any]) -> str:
    return "".join(f"{key}: {json.dumps(each)}\n" for key, each in arguments.items()).replace("<", "\\u003c")


LINES = Dialect(
    id="lines",
    openers=(Opener(("<invoke_tool>",), text_calls("</invoke_tool>", pairs_in)),),
    write_call=lambda name, arguments: f"<invoke_tool>\nname: {name}\n{_lines(arguments)}</invoke_tool>",
)
PAY = "<invoke_tool>\nname: pay\n</invoke_tool>"
REFUSED = error("unrecognised_tool_call")


@together(
    ("text", "expected"),
    [
        ("a <invoke_tool>\nname: f\nx: 1\n</invoke_tool> b", ["a ", call("f", x=1), " b"]),
        ("<invoke_tool>\nname: f\n</invoke_tool><invoke_tool>\nname: g\n</invoke_tool>", [call("f"), call("g")]),
        ("<invoke_tool>\nname\n</invoke_tool> b", [error("unrecognised_tool_call"), " b"]),
        ("<invoke_tool>\nx: 1\n</invoke_tool> b", [error("unrecognised_tool_call"), " b"]),
        ("<invoke_tool>\nname:  \nx: 1\n</invoke_tool> b", [error("missing_tool_name"), " b"]),
        ("<invoke_tool>\nname: f\n</invoke", [error("truncated")]),
        ("<invoke_tool name: f", ["<invoke_tool name: f"]),
        ("<invoke_tool>\nname: f\nx: <invoke_tool>\n</invoke_tool> b", [error("truncated"), " b"]),
        (f"<invoke_tool>\n</invoke_tool> {PAY}\n</invoke_tool> b", [REFUSED, " ", call("pay"), "\n", REFUSED, " b"]),
    ],
)
def test_text_calls_are_read_by_the_function(text: str, expected: list[Any]) -> None:
    """At each cut. A text that the function refuses is an error."""
    assert expected == brief(assert_chunk_invariant(text, usual_ways(text), dialects=[LINES]))


def test_string_arguments_get_their_types_from_the_schema() -> None:
    tools = [{"name": "f", "parameters": {"properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}}]
    numbers = replace(
        LINES, openers=(Opener(("@@",), text_calls("@@", lambda text: ("f", {"n": text, "s": text, "all": [1]}))),)
    )
    (found,) = parse("@@12@@", dialects=[numbers], tools=tools).calls

    assert {"n": 12, "s": "12", "all": [1]} == found.arguments


def test_text_over_the_limit_does_not_reach_the_function() -> None:
    """The text after the call is shown."""
    text = "<invoke_tool>\nname: f\nx: " + 500 * "x" + "\n</invoke_tool> b"
    answer = parse(text, dialects=[LINES], limits=Limits(call=100))

    assert ["too_large"] == [each.code for each in answer.errors]
    assert " b" == answer.content


def test_a_grammar_without_a_result_is_an_error() -> None:
    """The text is not lost."""

    def body(span: Span) -> Generator[None, None, None]:
        yield from span.word(Word("a-z"))

    silent = Dialect(id="silent", openers=(Opener(("@call ",), body),), write_call=LINES.write_call)
    (fault,) = (answer := parse("So @call now, b", dialects=[silent])).errors

    assert ("unrecognised_tool_call", "@call now", "So , b") == (fault.code, fault.raw, answer.content)


def test_the_laws_hold_for_text_calls() -> None:
    assert_laws(LINES, examples=10)


def test_a_quoted_call_belongs_to_the_value() -> None:
    """A value with only the closing tag makes all calls errors, even a call without arguments."""
    quoted = f"<invoke_tool>\nname: f\nx: {json.dumps(PAY)}\n</invoke_tool>"
    (found,) = parse(quoted, dialects=LINES).calls
    assert ("f", {"x": PAY}) == (found.name, found.arguments)
    for quote in ('"</invoke_tool> <', '1\n</invoke_tool> "<'):
        broken = quoted.replace('"<', quote)
        assert [] == parse(broken, dialects=LINES).calls, broken


def test_the_openers_are_reserved_by_default() -> None:
    """And the closing tag. Other texts are reserved instead if they are given."""
    assert ("<invoke_tool>", "</invoke_tool>") == LINES.reserved == replace(LINES, id="copy").reserved
    assert [] == parse(neutralize(PAY, [LINES]), dialects=LINES).calls
    with pytest.raises(AssertionError, match="law of neutralization: `reserved` leaves a call in"):
        assert_laws(replace(LINES, reserved=("<tool>",)), examples=20)


def raises(fault: Exception, part: str) -> Callable[[str], tuple[str, dict[str, Any]]]:
    def read(text: str) -> tuple[str, dict[str, Any]]:
        if part in text:
            raise fault
        return pairs_in(text)

    return read


def reading(read: Callable[[str], tuple[str, dict[str, Any]]]) -> Dialect:
    return replace(LINES, openers=(Opener(("<invoke_tool>",), text_calls("</invoke_tool>", read)),))


@pytest.mark.parametrize("fault", [ValueError("so"), AttributeError("so"), NameError("so"), RecursionError("so")])
def test_an_exception_of_the_function_is_logged(fault: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The text of a model raises nothing. The log holds the line, but no text."""
    (refused,) = parse(PAY, dialects=reading(raises(fault, "pay"))).errors
    (record,) = caplog.records

    assert ("unrecognised_tool_call", PAY) == (refused.code, refused.raw)
    assert f"call_refused error='{type(fault).__name__}' raised_at='{__file__}:" in record.getMessage()
    assert "so" not in record.getMessage().partition("raised_at")[0]
    with pytest.raises(AssertionError, match=rf"`read` of text_calls raised {type(fault).__name__}\('so'\)") as caught:
        assert_laws(reading(raises(fault, "name: f")), examples=20)
    assert fault is caught.value.__cause__.__cause__  # type: ignore[union-attr]


def test_the_laws_need_tags_in_values_to_be_escaped() -> None:
    unescaped = replace(LINES, write_call=lambda name, given: LINES.write_call(name, given).replace("\\u003c", "<"))
    with pytest.raises(AssertionError, match="law of round trip"):
        assert_laws(unescaped, examples=20)

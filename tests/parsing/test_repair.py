"""Tests of `repair=True`: malformed JSON of a complete call is repaired, and the call is marked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest

from streamtools import Code, Limits, Parser, ToolCall, coalesce, parse
from streamtools.machine.event_order import validate
from streamtools.parsing.dialects import Dialect, Opener
from streamtools.parsing.json_repair import MAX_IN_TURN, MAX_LENGTH, repair
from streamtools.parsing.json_scanner import ScanState
from streamtools.parsing.span import Span
from streamtools.testing.laws import assert_conserved, feed
from tests.support.cases import together
from tests.support.ways_to_cut import usual_ways

DIALECTS = ["hash_marker", "tilde_fence", "hermes_json"]

CALL = {"a": 1}
REPAIRED: dict[str, tuple[str, Any]] = {
    "a comma too many": ('###:{"name": "f", "arguments": {"a": 1,}}', CALL),
    "a bare name": ('###:{"name": f, "arguments": {"a": 1}}', CALL),
    "a comment": ('###:{"name": "f", "arguments": {"a": 1} // one\n}', CALL),
    "a brace too few": ('~~~tool_call\n{"name": "f", "arguments": {"a": 1}\n~~~', CALL),
    "a brace too few, in back-ticks": ('~~~tool_call\n```json\n{"name": "f", "arguments": {"a": 1}\n```\n~~~', CALL),
    "a brace too many": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}}\n</tool_call>', CALL),
    "a word after": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}} ok\n</tool_call>', CALL),
    "an open string": ('~~~tool_call\n{"name": "f", "arguments": {"a": "b}}\n~~~', {"a": "b"}),
    "a comma too many, without a closing tag": ('~~~tool_call\n{"name": "f", "arguments": {"a": 1},}', CALL),
}
"""By name, a text that holds nothing but a call of `f`, and its arguments."""

REFUSED: dict[str, tuple[str, Code]] = {
    "cut in a string": ('<tool_call>{"name": "f", "arguments": {"a": 1, "b": "', Code.TRUNCATED),
    "cut after a fault": ('<tool_call>{"name": "f", "arguments": {"a": x,', Code.INVALID_JSON),
    "another name than was reported": ('###:{"name": "f", "name": "g",}', Code.INVALID_JSON),
    "half a pair": ('###:{"name": "f", "arguments": {"a": "\\ud83d",}}', Code.INVALID_JSON),
    "arguments that are no object": ('###:{"name": "f", "arguments": 3}', Code.INVALID_ARGUMENTS),
}
"""By name, a text that is no call even so, and why."""


def read(text: str, **options: Any) -> list[ToolCall]:
    """Return the calls of a text, after checking the laws at every cut in two and character by character."""
    options = {"dialects": DIALECTS, "repair": True, "keep_markup": True, **options}
    events = feed([text], **options)
    assert_conserved(text, events)
    validate(events, run=False)
    expected = coalesce(events)
    for deltas in usual_ways(text) if len(text) < MAX_LENGTH else ():
        assert expected == coalesce(feed(deltas, **options))
    return parse(text, **options).calls


@together("name", REPAIRED)
def test_malformed_json_is_repaired(name: str) -> None:
    """The call keeps the text of the model, and is marked as repaired."""
    text, arguments = REPAIRED[name]
    (call,) = read(text)

    assert ("f", arguments) == (call.name, call.arguments)
    assert call.repaired
    assert text == call.raw


@together("name", REPAIRED)
def test_without_the_option_nothing_is_repaired(name: str) -> None:
    (error,) = parse(REPAIRED[name][0], dialects=DIALECTS).errors

    assert Code.INVALID_JSON is error.code


@together("name", REFUSED)
def test_some_faults_are_not_repaired(name: str) -> None:
    """Cut calls, faults outside of the JSON, and repairs that lose arguments."""
    text, code = REFUSED[name]

    assert [] == read(text)
    assert [code] == [error.code for error in parse(text, dialects=DIALECTS, repair=True).errors]


def test_only_the_malformed_call_is_repaired() -> None:
    text = 'a ###:{"name": "f"} b ###:{"name": "g",} c <tool_call>[{"name": "h"}, {"name": \'i\'}]</tool_call> d'
    calls = read(text)

    assert [("f", False), ("g", True), ("h", False), ("i", True)] == [(call.name, call.repaired) for call in calls]
    assert "a  b  c  d" == parse(text, dialects=DIALECTS, repair=True).content


def test_a_repaired_call_is_not_shown_as_text() -> None:
    answer = parse('###:{"name": "f",} ###:{"name": }', repair=True, on_malformed="text")

    assert ["f"] == [call.name for call in answer.calls]
    assert ' ###:{"name": }' == answer.content


def test_arguments_of_a_named_call_are_repaired() -> None:
    """A repair without arguments is rejected."""

    def body(span: Span) -> Generator[None, None, None]:
        span.set_name("f")
        state = yield from span.arguments()
        if state is ScanState.BROKEN:
            yield from span.recover()
        span.close(Code.INVALID_JSON if state is ScanState.BROKEN else None)

    house = Dialect(
        "house",
        (Opener(("@f",), body, ahead=("{",)),),
        lambda name, given: "@f" + json.dumps(given),
        lambda _, text: text,
    )

    assert [{"a": 1}, {}] == [call.arguments for call in read("@f{'a': 1} @f{}", dialects=[house])]
    assert [] == read('@f{"}\n\n', dialects=[house])


def test_repair_is_limited_for_each_turn() -> None:
    text = '###:{"name": "f", "arguments": {"a": "' + (MAX_LENGTH - 100) * "x" + '",}}'
    parser = Parser(repair=True)
    for _ in range(2):
        parser.feed(6 * text)
        parser.close()
        assert MAX_IN_TURN // len(text) == len(parser.calls)
        assert 6 - len(parser.calls) == len(parser.errors)
        parser.reset()


@pytest.mark.parametrize(
    "text", ["{" * MAX_LENGTH, '{"a":' + "[" * MAX_LENGTH, "", "{]", '["a"]', "\\", '{"a": (' + "(" * MAX_LENGTH]
)
def test_exceptions_of_the_library_are_caught(text: str) -> None:
    """A result that is not an object is ignored."""
    found = repair(text[:MAX_LENGTH], Limits())

    assert found is None or isinstance(found.value, dict)


def test_a_missing_library_is_named_at_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "json_repair", None)

    assert [] == Parser().feed("")
    with pytest.raises(ImportError, match=r"streamtools\[repair\]"):
        Parser(repair=True)


def test_the_library_is_imported_only_with_the_option() -> None:
    code = "import sys, streamtools; streamtools.parse('###:{\"name\": f}'); print('json_repair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert "False\n" == done.stdout

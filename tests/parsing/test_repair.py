"""`repair=True`: malformed JSON of a call that is complete is put right where that can be guessed, and says so."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from typing import Any

import pytest

from streamtools import Code, Limits, Parser, ToolCall, coalesce, parse
from streamtools.parsing.dialects import Dialect, Opener
from streamtools.parsing.json_repair import MAX_IN_TURN, MAX_LENGTH, repair
from streamtools.parsing.json_scanner import ScanState
from streamtools.parsing.span import Span
from streamtools.testing.laws import assert_conserved, assert_in_order, feed
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
    "a word behind": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}} ok\n</tool_call>', CALL),
    "an open string": ('~~~tool_call\n{"name": "f", "arguments": {"a": "b}}\n~~~', {"a": "b"}),
    "a comma too many, without a closing tag": ('~~~tool_call\n{"name": "f", "arguments": {"a": 1},}', CALL),
}
"""By name, a text that holds nothing but a call of `f`, and its arguments."""

REFUSED: dict[str, tuple[str, Code]] = {
    "cut in a string": ('<tool_call>{"name": "f", "arguments": {"a": 1, "b": "', Code.TRUNCATED),
    "cut behind a fault": ('<tool_call>{"name": "f", "arguments": {"a": x,', Code.INVALID_JSON),
    "another name than was told": ('###:{"name": "f", "name": "g",}', Code.INVALID_JSON),
    "half a pair": ('###:{"name": "f", "arguments": {"a": "\\ud83d",}}', Code.INVALID_JSON),
    "arguments that are no object": ('###:{"name": "f", "arguments": 3}', Code.INVALID_ARGUMENTS),
}
"""By name, a text that is no call even so, and why."""


def read(text: str, **options: Any) -> list[ToolCall]:
    """Return the calls of a text, after the laws were seen to hold at every cut in two and one by one."""
    options = {"dialects": DIALECTS, "repair": True, "keep_markup": True, **options}
    events = feed([text], **options)
    assert_conserved(text, events)
    assert_in_order(events, run=False)
    expected = coalesce(events)
    for deltas in usual_ways(text) if len(text) < MAX_LENGTH else ():
        assert expected == coalesce(feed(deltas, **options))
    return parse(text, **options).calls


@together("name", REPAIRED)
def test_what_was_meant_is_called(name: str) -> None:
    """However the text is cut; the call keeps the text that the model wrote and says that it was put right."""
    text, arguments = REPAIRED[name]
    (call,) = read(text)

    assert ("f", arguments) == (call.name, call.arguments)
    assert call.repaired
    assert text == call.raw


@together("name", REPAIRED)
def test_nothing_is_repaired_unasked(name: str) -> None:
    """Without the option each of these is an error."""
    (error,) = parse(REPAIRED[name][0], dialects=DIALECTS).errors

    assert Code.INVALID_JSON is error.code


@together("name", REFUSED)
def test_what_cannot_be_guessed_stays_an_error(name: str) -> None:
    """Calls that were cut off, faults that are not the JSON's, and answers that have lost something."""
    text, code = REFUSED[name]

    assert [] == read(text)
    assert [code] == [error.code for error in parse(text, dialects=DIALECTS, repair=True).errors]


def test_good_calls_and_the_text_around_stay_as_they_are() -> None:
    """Only the bad one of three is put right."""
    text = 'a ###:{"name": "f"} b ###:{"name": "g",} c <tool_call>[{"name": "h"}, {"name": \'i\'}]</tool_call> d'
    calls = read(text)

    assert [("f", False), ("g", True), ("h", False), ("i", True)] == [(call.name, call.repaired) for call in calls]
    assert "a  b  c  d" == parse(text, dialects=DIALECTS, repair=True).content


def test_a_repaired_call_is_no_text() -> None:
    """Malformed calls can be shown as text; this one no longer is one."""
    answer = parse('###:{"name": "f",} ###:{"name": }', repair=True, on_malformed="text")

    assert ["f"] == [call.name for call in answer.calls]
    assert ' ###:{"name": }' == answer.content


def test_arguments_of_a_call_that_is_named_outside() -> None:
    """Where the JSON is nothing but arguments, they are what is put right; none is not what was meant."""

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


def test_a_turn_has_a_bound() -> None:
    """Behind it, calls are what they are without the option; the next turn has its own."""
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
def test_the_library_never_raises_here(text: str) -> None:
    """Whatever it is given; and what it cannot put right, or makes something else of, is nothing."""
    found = repair(text[:MAX_LENGTH], Limits())

    assert found is None or isinstance(found.value, dict)


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """At construction, with the extra that brings it."""
    monkeypatch.setitem(sys.modules, "json_repair", None)

    assert [] == Parser().feed("")
    with pytest.raises(ImportError, match=r"streamtools\[repair\]"):
        Parser(repair=True)


def test_the_library_is_imported_only_when_it_is_asked_for() -> None:
    """A parser without the option never loads it."""
    code = "import sys, streamtools; streamtools.parse('###:{\"name\": f}'); print('json_repair' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert "False\n" == done.stdout

"""Tests of limits: text over a limit is reported once, skipped without being stored, and counted. Work is linear."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from streamtools import Parser, parse
from streamtools.errors import Code
from streamtools.events import Error, Thinking, Warning
from streamtools.limits import Limits
from tests.support.bounds import characters_handled, stored
from tests.support.cases import together
from tests.support.reading import Brief, call, error, raws, read, warning

F = '###:{"name":"f"}'
G = '###:{"name":"g"}'
BLOCK = '~~~tool_call\n{"name":"f"}\n~~~'
HERMES = '<tool_call>{"name":"f"}\n<tool_call>{'
THREE = '~~~tool_call\n[{"name":"f"},{"name":"g"},{"name":"f"}]\n~~~'
f, g = call("f"), call("g")
MANY = error("too_many_calls")


@together(
    ("text", "limit", "expected", "raw"),
    [
        pytest.param(F, len(F), [f], F, id="exactly as long as allowed"),
        pytest.param(BLOCK[:-3], len(BLOCK) - 4, [f, warning("skipped", 1)], BLOCK[:-4], id="and there is no close"),
        pytest.param('###:{"name": f} x', 15, [error("invalid_json"), " x"], '###:{"name": f}', id="broken in time"),
    ],
)
def test_the_limit_includes_the_markers(text: str, limit: int, expected: list[Brief], raw: str | None) -> None:
    """The error holds as many characters."""
    assert expected == read(text, limits=Limits(call=limit))
    assert (raw or text[:limit]) == raws(text, limits=Limits(call=limit))[0]


@pytest.mark.parametrize(
    ("dialect", "text", "limit", "expected"),
    [
        pytest.param("gemma4", "<|tool_call>call:f{}<|tool_call>", 21, [f, "|tool_call>"], id="met in the next text"),
        pytest.param("hermes_json", HERMES, 23, [f, warning("skipped", 1), error("truncated")], id="met before it"),
        pytest.param("hermes_json", HERMES, 30, [f, "call>{"], id="met in the next marker"),
    ],
)
def test_text_after_an_unclosed_call_is_read_again_at_a_limit(
    dialect: str, text: str, limit: int, expected: list[Brief]
) -> None:
    """Except text that was already reported."""
    assert expected == read(text, dialects=[dialect], limits=Limits(call=limit))


@pytest.mark.parametrize(
    ("rest", "count"),
    [
        pytest.param('a\\"}}"}} on', 8, id="an escaped quotation mark"),
        pytest.param('a", b: c}} on', 10, id="broken beyond the limit"),
        pytest.param('a", b: c\n\n on', 9, id="broken, and a blank line"),
    ],
)
def test_the_stream_continues_after_skipped_text(rest: str, count: int) -> None:
    """The end is the same as without a limit."""
    text = '###:{"name":"f","args":{"a":"' + rest
    expected: list[Brief] = [call("x"), error("too_large"), warning("skipped", count)]
    visible = text[29 + count :]
    if visible:
        expected.append(visible)

    assert expected == read('###:{"name":"x"}' + text, limits=Limits(call=29))


def test_the_error_is_reported_when_the_limit_is_reached() -> None:
    """It ends `thinking`. The count of the rest follows at the end."""
    parser = Parser(limits=Limits(call=20))
    first = parser.feed('###:{"name":"f","arg')
    second = parser.feed("s")
    third = [event for _ in range(1000) for event in parser.feed("s" * 100)]
    last = parser.close()

    assert ["Thinking", "CallStart"] == [type(event).__name__ for event in first]
    assert ["Error", "Thinking"] == [type(event).__name__ for event in second]
    assert [] == third
    assert [(Code.SKIPPED, 100_001)] == [(event.code, event.count) for event in last if isinstance(event, Warning)]


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        pytest.param(f"{F}{G}", 2, [f, g], id="as many as allowed"),
        pytest.param(f"`{F}` {F}", 1, [f"`{F}` ", f], id="nor do quoted ones"),
        pytest.param(f"{THREE} x", 2, [f, g, MANY, warning("skipped", 16), " x"], id="in an array"),
    ],
)
def test_calls_over_the_limit_of_a_turn_are_hidden_errors(text: str, limit: int, expected: list[Brief]) -> None:
    """The calls before them are valid."""
    assert expected == read(text, limits=Limits(calls=limit))


def test_a_new_turn_has_a_new_limit() -> None:
    parser = Parser(limits=Limits(calls=1))
    for _ in range(3):
        parser.feed(F)
        parser.close()
        assert [1, 0] == [len(parser.calls), len(parser.errors)]
        parser.reset()


@pytest.mark.parametrize("on_malformed", ["error", "text"])
def test_the_first_limit_is_reported(on_malformed: Literal["error", "text"]) -> None:
    text = '###:{"name":"f","args":{"a":[[[[1]]]],"b":1234567}}'
    events = parse(text, limits=Limits(call=40, depth=3, digits=2), on_malformed=on_malformed).events
    codes = [event.code for event in events if isinstance(event, Error | Warning)]

    assert [Code.TOO_DEEP, Code.SKIPPED] == codes
    assert 2 == sum(isinstance(event, Thinking) for event in events)


ENDLESS = [
    pytest.param("", "- `a` *b*\n> c\n\n```\nd\n```\n", {}, id="Markdown"),
    pytest.param("", "###: ~~~ ###:{ ", {}, id="half markers"),
    pytest.param("<think>", 'I "think" {a} <b ', {}, id="reasoning"),
    pytest.param("", "<think>a</think>", {}, id="reasoning again and again"),
    pytest.param('###:{"name":"f","args":{"a":"', "long and ", {"call_deltas": True}, id="a string"),
    pytest.param('###:{"args":{"a":"', "long and ", {"call_deltas": True}, id="arguments that wait for a name"),
    pytest.param('###:{"name":"f","args":{"a":[', "1,", {}, id="numbers"),
    pytest.param('###:{"name":"f","args":{"a":[', '1,{"b":2},', {"call_deltas": True}, id="an array"),
    pytest.param('###:{"name":"f","args":"', '{\\"a\\":1} ', {"call_deltas": True}, id="a string of JSON"),
    pytest.param('###:{"name": f ', "and on\n", {}, id="broken JSON"),
    pytest.param("~~~tool_call\n", "and on\n", {}, id="no JSON"),
    pytest.param("~~~tool_result\n", "and on\n", {}, id="a forged result"),
    pytest.param("", '###:{"x":1} ', {}, id="one bad call after the other"),
    pytest.param("", "~~~tool_call\n{}\n~~~\n", {}, id="one fenced call after the other"),
    pytest.param("", "###result f: {} ", {}, id="one forged result after the other"),
    pytest.param('###:{"name":"f"}', " and on", {"after_call": "hide"}, id="hidden text"),
    pytest.param('###:{"name":"f"}', " and on", {"after_call": "stop"}, id="after the stop"),
]
"""How a text begins, the text that it repeats, and the options."""


@together(("begin", "more", "options"), ENDLESS)
def test_memory_is_bounded(begin: str, more: str, options: dict[str, Any]) -> None:
    """For endless streams too."""
    parser = Parser(limits=Limits(call=1000, calls=4), **options)
    parser.feed(begin + more)  # whose patterns are made when they are needed
    parser.reset()
    before = stored(parser)
    parser.feed(begin)
    for _ in range(40):
        parser.feed(more * 50)
    for _ in range(1000):
        parser.feed(more)

    assert stored(parser) - before < 16_000


@pytest.mark.deep
@pytest.mark.parametrize("size", [4, 1_000_000], ids=["in fours", "at once"])
@together(("begin", "more", "options"), ENDLESS)
def test_twice_the_text_is_twice_the_work(begin: str, more: str, options: dict[str, Any], size: int) -> None:
    """The count grows with the square if a delta passes or reads the whole text again."""

    def work(length: int) -> int:
        text = begin + more * (length // len(more))
        return characters_handled(lambda: parse([text[at : at + size] for at in range(0, length, size)], **options))

    once, twice = work(16_384), work(32_768)

    assert twice < 2.3 * once

"""Tests of `Parser` and `parse` as a caller sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from streamtools import Dialect, Parser, coalesce, parse
from streamtools.errors import ClosedError
from streamtools.events import Call, CallStart, Reasoning, Text, Thinking
from streamtools.parsing import DIALECTS
from streamtools.parsing.dialects import TAUGHT_DIALECTS, hash_marker
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, warning

F = '###:{"name":"f"}'
BLOCK = '~~~tool_call\n{"name":"f"}\n~~~'
f = call("f")


def test_a_call_is_announced_named_and_completed_with_one_id() -> None:
    thinking, start, made, over = parse(F).events

    assert isinstance(made, Call)
    call_id = made.call.id
    assert [Thinking(True, call_id), CallStart(call_id, "f"), Thinking(False, call_id)] == [thinking, start, over]
    assert (F, "hash_marker", "f", {}, False, None) == (
        made.call.raw,
        made.call.dialect,
        made.call.name,
        made.call.arguments,
        made.call.repaired,
        made.call.provider_id,
    )


def test_an_id_is_created_at_the_commit_point() -> None:
    """Not for a candidate. In an array, for each call when it begins."""
    made: list[str] = []

    def number() -> str:
        made.append(f"call_{len(made) + 1}")
        return made[-1]

    parser = Parser(new_id=number)
    counts = []
    for delta in ("###:{", "x ###:{", '"', 'name":"f"} ~', '\n~~~tool_call\n[{"name":"g"}', ",", "{", "}]\n~~~"):
        parser.feed(delta)
        counts.append(len(made))

    assert [0, 0, 1, 1, 2, 2, 3, 3] == counts
    assert ["call_1", "call_2"] == [each.id for each in parser.calls]
    assert ["call_3"] == [each.call_id for each in parser.errors]


@pytest.mark.parametrize("tools", [None, [], [{"name": "g", "parameters": {}}]], ids=["not reported", "none", "others"])
def test_a_call_of_an_unknown_tool_is_reported(tools: Any) -> None:
    """The runner rejects it later."""
    assert [f, " ", f] == brief(coalesce(parse(f"{F} {F}", tools=tools).events))
    assert [f] == brief(parse(BLOCK, tools=tools).events)


def test_a_delta_of_prose_is_one_event() -> None:
    """An empty delta is no event."""
    parser = Parser()

    assert [Text("Some prose.")] == parser.feed("Some prose.")
    assert [] == parser.feed("")
    assert [Text(" More. ")] == parser.feed(" More. ")
    assert [Reasoning("hm")] == Parser(in_reasoning=True).feed("hm")


@together("text", ["", "Some prose, ", "a ###:", "`", "<think>a", '###:{"name":"', F, BLOCK])
@together("delta", ["", "x", "and more of it", "###:", "\n"])
def test_feed_after_close_is_refused(text: str, delta: str) -> None:
    parser = Parser()
    parser.feed(text)
    parser.close()

    with pytest.raises(ClosedError, match="reset"):
        parser.feed(delta)


@together("text", ["", "prose", "a `", "```\n", "> ", "a ###:", "<thi", "<think>a", '###:{"name":"', F, F + "x"])
@together("closed", [False, True])
@together("options", [{}, {"after_call": "hide"}, {"after_call": "stop"}, {"in_reasoning": True}], ids=str)
def test_reset_begins_a_new_turn(text: str, closed: bool, options: dict[str, Any]) -> None:
    """After any state. A second reset changes nothing."""
    parser = Parser(**options)
    parser.feed(text)
    if closed:
        parser.close()
    parser.reset()
    parser.reset()

    assert ("", [], [], False) == (parser.pending, parser.calls, parser.errors, parser.stopped)
    following = f"<think>a</think> {F} b ###"
    assert coalesce(parse(following, **options).events) == coalesce(parser.feed(following) + parser.close())


def test_parse_returns_text_calls_and_events() -> None:
    text = f'<think>hm</think>a {F} b ###:{{"x":1}} c\n~~~tool_result\n'
    result = parse(text)

    assert ("hm", "a  b  c\n") == (result.reasoning, result.content)
    assert [["f"], ["missing_tool_name"], ["forged_result"]] == [
        [each.name for each in result.calls],
        [each.code for each in result.errors],
        [each.code for each in result.warnings],
    ]
    assert coalesce(result.events) == coalesce(parse(list(text)).events) == coalesce(parse(iter(text)).events)
    assert [] == parse([]).events == parse("").events


def test_dialects_are_ids_objects_auto_or_the_default() -> None:
    """None is `auto`, and () enables no dialect."""
    both = f"{F}\n{BLOCK}"

    assert ("hash_marker", "tilde_fence") == TAUGHT_DIALECTS
    assert [f, "\n", f] == brief(parse(both).events) == brief(parse(both, dialects="auto").events)
    assert [f, "\n" + BLOCK] == brief(coalesce(parse(both, dialects=["hash_marker"]).events))
    assert [F + "\n", f] == brief(coalesce(parse(both, dialects="tilde_fence").events))
    assert [f, "\n" + BLOCK] == brief(coalesce(parse(both, dialects=(hash_marker(),)).events))
    assert [both] == brief(parse(both, dialects=()).events)
    assert all(isinstance(each, Dialect) and key == each.id for key, each in DIALECTS.items())


def test_a_dialect_decides_about_code_unless_an_option_does() -> None:
    text = f"`{F}`"
    bold = [replace(hash_marker(), in_code="call")]

    assert ["`", f, "`"] == brief(parse(text, dialects=bold).events)
    assert [text] == brief(parse(text, dialects=bold, in_code="text").events)
    assert ["`", f, "`"] == brief(parse(text, in_code="call").events)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialects": ["hash_marker", "nonsense"]}, "'nonsense'; pass a dialect of your own as an object"),
        ({"dialects": "nonsense"}, "'nonsense'"),
        ({"dialects": [3]}, "3"),
        ({"reasoning": "sometimes"}, "reasoning must be one of 'start', 'anywhere', 'off', got 'sometimes'"),
        ({"on_malformed": "raise"}, "on_malformed .*'raise'"),
        ({"after_call": True}, "after_call .*True"),
        ({"in_code": "maybe"}, "in_code .*'maybe'"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str) -> None:
    """The error names the fault and the valid values."""
    with pytest.raises(ValueError, match=message):
        Parser(**options)
    with pytest.raises(ValueError, match=message):
        parse("", **options)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param('###:{"name":"f', '"} on', [error("truncated"), " on"], id="in a call"),
        pytest.param("a ", f"{F} on", ["a ", f, " on"], id="in prose"),
        pytest.param("###result f: {", "} on", [warning("forged_result"), " on"], id="in a forged result"),
    ],
)
def test_a_call_around_a_gap_is_an_error(before: str, after: str, expected: list[Brief]) -> None:
    """It must not run."""
    parser = Parser()
    events = parser.feed(before)
    parser.lose()

    assert expected == brief(coalesce(events + parser.feed(after) + parser.close()))


def test_the_line_after_a_call_does_not_depend_on_cuts() -> None:
    """A grammar may end a span before the newest character."""
    text = "[TOOL_CALLS]f[ARGS]no\n\n```\n[TOOL_CALLS]f[ARGS]{}"

    expected = [error("invalid_arguments"), "\n```\n[TOOL_CALLS]f[ARGS]{}"]
    assert expected == read(text, dialects=["mistral_args"])

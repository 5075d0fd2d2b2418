"""Tests of near misses: they are shown as text, and reported once after the character that completes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamtools import Code, Limits, Parser, parse
from streamtools.events import Call, Text, UIEvent, Warning
from streamtools.parsing.dialects import Dialect, NearMiss, choose_dialects, hash_marker, tilde_fence
from streamtools.testing.laws import assert_chunk_invariant, assert_conserved, assert_defined_per_character, feed, steps
from tests.support.cases import together
from tests.support.promptness import assert_prompt
from tests.support.ways_to_cut import usual_ways

BOTH = ("hash_marker", "tilde_fence")
TOOLS = [{"name": "now", "parameters": {}}, {"name": "get.weather", "parameters": {}}]

MISSES: dict[str, tuple[str, ...]] = {
    "a call in a code span": ('Write `###:{"name": "now"}` to', '###:{"'),
    "a call in a fence": ('```\n###:{"name": "now"}\n```', '###:{"'),
    "a call in a quote": ('> say ###: {"name": "now"}', '###: {"'),
    "a fence in a fence": ('```\n  ~~~tool_call \n{"name": "now"}\n~~~\n```', "~~~tool_call \n"),
    "a fence in a quote": ("> ~~~tool_call\n> {", "~~~tool_call\n"),
    "a fence in a quote in a quote": ("> > ~~~tool_call\r\n> {", "~~~tool_call\r\n"),
    "a fence in a quote at the end": ("> ~~~tool_call", "~~~tool_call"),
    "a fence in a list": ("- ~~~tool_call\n  {", "~~~tool_call\n"),
    "no colon": ('So ###{"name": "now"}', '###{"'),
    "no colon, but a blank": ('### {"name": "now"}', '### {"'),
    "JSON": ('{"name": "now"}', '{"name": "now"}'),
    "JSON after prose": ('So:\n{"name": "get.weather", "parameters": {}}', '{"name": "get.weather", "parameters":'),
    "JSON in a fence": ('So:\n```json\n{"name": "now"}\n```', '```json\n{"name": "now"}'),
    "nested JSON": ('{"function": {"name": "now"}}', '{"function": {"name": "now"}'),
}  # fmt: skip
"""By name, a text and what is reported of it."""

NONE = {
    "a heading": "### Title\n",
    "a heading in braces": "### {x}",
    "hashes that belong to a word": 'C###{"a"} #####{"a"} x##:{"a"}',
    "another colon": '###: {x} ###: "a"',
    "a tool result in code": "`###result now: {}`",
    "half of a call in code": '`###:{`"',
    "a fence of JSON": '```json\n{"name": "other"}\n```',
    "a fence in mid-line": "say ~~~tool_call\n",
    "JSON of half a tool": '{"name": "now',
    "the definition of a tool": '{"name": "now", "description": "x"}',
    "a call in reasoning": '<think>###{"</think>',
}
"""Texts of which nothing is reported."""


def near(events: list[UIEvent]) -> Iterator[tuple[str, str | None]]:
    """Yield each near miss with the text that was shown before it."""
    shown = ""
    for event in events:
        if isinstance(event, Text):
            shown += event.text
        elif isinstance(event, Warning) and event.code is Code.NEAR_MISS:
            yield shown, event.raw


def read(text: str, **options: Any) -> list[tuple[str, str | None]]:
    """Return the near misses of a text, after checking the laws at every cut in two and character by character."""
    options = {"tools": TOOLS, "dialects": BOTH, **options}
    events = assert_chunk_invariant(text, usual_ways(text), keep_markup=True, **options)
    assert_conserved(text, events)
    assert_defined_per_character(list(text), **options)
    assert_defined_per_character([text[:7], text[7:]], **options)
    if "tools" not in options or not options["tools"]:
        assert_prompt(text, **options)
    return list(near(events))


@together("name", MISSES)
def test_a_near_miss_is_reported_after_its_last_character(name: str) -> None:
    """The warning repeats the text, which was shown before it."""
    text, *expected = MISSES[name]
    found = read(text)

    assert expected == [raw for _, raw in found]
    assert all(shown.endswith(raw or "?") for shown, raw in found)


@together("name", NONE)
def test_other_text_is_not_reported(name: str) -> None:
    """Headings, other JSON, and text that would never be a call."""
    assert [] == read(NONE[name])


def test_the_marker_of_a_disabled_dialect_is_a_near_miss() -> None:
    """The warning names the dialect. If no dialect is enabled, nothing is reported."""
    for dialect in [each for each in choose_dialects("auto") if each.auto is True]:
        text = f"So:\n\n{dialect.write_call('now', {})}\nand so on."
        result = parse(text, dialects="raw_json", tools=TOOLS)
        (first, *others) = result.warnings

        assert (text, [], []) == (result.content, result.calls, result.errors)
        assert {Code.NEAR_MISS} == {first.code, *(each.code for each in others)}
        assert first.message.startswith("the dialect is not enabled: the text is not a call of the dialect ")
        assert 1 == len(parse(text, dialects=first.message.split()[-1], tools=TOOLS).calls), dialect.id
        assert [] == parse(text, dialects=(), tools=TOOLS).warnings


@together("text", [text for text, *_ in MISSES.values()])
def test_near_misses_delay_no_text(text: str) -> None:

    def bare(dialect: Dialect) -> Dialect:
        return Dialect(dialect.id, dialect.openers, dialect.write_call, dialect.write_result)

    mute = {"dialects": [bare(hash_marker()), bare(tilde_fence())], "limits": Limits(calls=32)}
    watched = [
        (step.pending, "".join(e.text for e in step.new if isinstance(e, Text)))
        for step in steps(text, tools=TOOLS, dialects=BOTH)
    ]

    assert watched == [
        (step.pending, "".join(e.text for e in step.new if isinstance(e, Text))) for step in steps(text, **mute)
    ]


def test_a_call_in_code_is_no_near_miss_if_it_is_read() -> None:
    assert [] == read('`###:{"name": "now"}`', in_code="call")


def test_json_without_a_marker_is_reported_only_for_declared_tools() -> None:
    assert [] == read('{"name": "now"}', tools=None)


def test_the_limit_of_calls_limits_near_misses() -> None:
    """For each turn."""
    parser = Parser(limits=Limits(calls=2))
    for _ in range(2):
        events = parser.feed('###{"' * 5) + parser.close()
        assert 2 == len(list(near(events)))
        parser.reset()


@pytest.mark.parametrize("policy", ["hide", "stop"])
def test_hidden_text_is_no_near_miss(policy: str) -> None:
    text = '###{" ###:{"name": "now"}\n###{"'

    assert ['###{"'] == [raw for _, raw in near(parse(text, after_call=policy).events)]  # type: ignore[arg-type]  # of the table


def test_a_candidate_that_a_call_interrupts_is_not_reported() -> None:
    odd = NearMiss(("#~", "\n###:{"), "it is odd")
    dialect = hash_marker()
    text = '#~\n###:{"name": "now"}'
    made = Dialect("odd", dialect.openers, dialect.write_call, dialect.write_result, near=(odd,))
    for deltas in usual_ways(text):
        events = feed(deltas, dialects=[made])

        assert [] == list(near(events))
        assert 1 == len([event for event in events if isinstance(event, Call)])


def test_the_message_names_the_fault_without_quoting_the_text() -> None:
    """Messages go to logs."""
    (one,) = parse('### {"secret": 1}').warnings

    assert "`###` lacks its colon: the text is not a call of the dialect hash_marker" == one.message

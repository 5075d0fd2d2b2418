"""Near misses: text that is shown as text, and reported once after the character that decides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streamtools import Code, Limits, Parser, coalesce, parse
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
    "a call in reasoning": '<think>###{"</think>',
}
"""Texts of which nothing is reported."""


def near(events: list[UIEvent]) -> Iterator[tuple[str, str | None]]:
    """Yield each near miss, with the text that has been shown when it comes."""
    shown = ""
    for event in events:
        if isinstance(event, Text):
            shown += event.text
        elif isinstance(event, Warning) and event.code is Code.NEAR_MISS:
            yield shown, event.raw


def read(text: str, **options: Any) -> list[tuple[str, str | None]]:
    """Return the near misses of a text, after the laws were seen to hold at every cut in two and one by one."""
    options = {"tools": TOOLS, "dialects": BOTH, **options}
    events = assert_chunk_invariant(text, usual_ways(text), keep_markup=True, **options)
    assert_conserved(text, events)
    assert_defined_per_character(list(text), **options)
    assert_defined_per_character([text[:7], text[7:]], **options)
    if "tools" not in options or not options["tools"]:
        assert_prompt(text, **options)
    return list(near(events))


@together("name", MISSES)
def test_what_comes_near_is_reported_after_what_decides_it(name: str) -> None:
    """The warning repeats the text that has just been shown, and nothing of that text is hidden."""
    text, *expected = MISSES[name]
    found = read(text)

    assert expected == [raw for _, raw in found]
    assert all(shown.endswith(raw or "?") for shown, raw in found)


@together("name", NONE)
def test_what_does_not_come_near_is_not_reported(name: str) -> None:
    """Nothing is said of headings, of other JSON, or of what would never be a call."""
    assert [] == read(NONE[name])


def test_the_marker_of_a_dialect_that_is_not_named_is_one_that_names_it() -> None:
    """Of each that marks all its calls; the text is shown, and where no dialect at all is named, nothing is said."""
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
def test_nothing_is_held_back_for_it(text: str) -> None:
    """What is shown, and when, is the same without any near miss to look for."""

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


def test_a_call_in_code_that_counts_is_none() -> None:
    """Where calls count in code, they are calls."""
    assert [] == read('`###:{"name": "now"}`', in_code="call")


def test_json_of_a_tool_needs_declared_tools() -> None:
    """Without them, JSON at the start is the answer."""
    assert [] == read('{"name": "now"}', tools=None)


def test_no_more_are_reported_than_a_turn_may_hold_calls() -> None:
    """The limit is one for each turn."""
    parser = Parser(limits=Limits(calls=2))
    for _ in range(2):
        events = parser.feed('###{"' * 5) + parser.close()
        assert 2 == len(list(near(events)))
        parser.reset()


@pytest.mark.parametrize("policy", ["hide", "stop"])
def test_text_that_is_hidden_is_none(policy: str) -> None:
    """Behind a call, text may be hidden; what is not shown is not said to be."""
    text = '###{" ###:{"name": "now"}\n###{"'

    assert ['###{"'] == [raw for _, raw in near(parse(text, after_call=policy).events)]  # type: ignore[arg-type]  # of the table


def test_trimmed_white_space_comes_after_it() -> None:
    """Where white space waits for what follows, a near miss does not wait for it."""
    for deltas in usual_ways("- ~~~tool_call\n{"):
        events = coalesce(feed(deltas, trim=True))

        assert ["- ~~~tool_call", "\n{"] == [event.text for event in events if isinstance(event, Text)]
        assert isinstance(events[1], Warning)


def test_what_a_call_cuts_short_is_none() -> None:
    """A candidate that a call interrupts was no text."""
    odd = NearMiss(("#~", "\n###:{"), "it is odd")
    dialect = hash_marker()
    text = '#~\n###:{"name": "now"}'
    made = Dialect("odd", dialect.openers, dialect.write_call, dialect.write_result, near=(odd,))
    for deltas in usual_ways(text):
        events = feed(deltas, dialects=[made])

        assert [] == list(near(events))
        assert 1 == len([event for event in events if isinstance(event, Call)])


def test_a_message_names_what_is_wrong_and_repeats_nothing() -> None:
    """It goes to logs."""
    (one,) = parse('### {"secret": 1}').warnings

    assert "`###` lacks its colon: the text is not a call of the dialect hash_marker" == one.message

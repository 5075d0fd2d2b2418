"""Tests of the reasoning tags of dialects, and of calls that end reasoning."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from streamtools.parsing.dialects import DIALECTS, Dialect, Opener, Tag
from streamtools.parsing.markers import LINE_END, SPACES, Some
from streamtools.parsing.span import Span
from streamtools.testing.laws import assert_chunk_invariant, assert_conserved, feed
from tests.families import MARKERS
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, markup, read, thought, warning
from tests.support.reference import begins_with
from tests.support.ways_to_cut import usual_ways

ALIKE = warning("call_in_reasoning")
f = call("f")
WRITTEN = {each: DIALECTS[each].write_call("f", {}) for each in DIALECTS if each in MARKERS}


@together(
    ("dialect", "opening", "closing"),
    [
        ("harmony", "<|channel|>analysis<|message|>", "<|end|>"),
        ("cohere_action_json", "<|START_THINKING|>", "<|END_THINKING|>"),
        ("kimi_k3_xtml", "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        ("gemma4", "<|channel>thought\n", "<channel|>"),
        ("seed_oss_xml", "<seed:think>", "</seed:think>"),
        ("mistral_args", "[THINK]", "[/THINK]"),
        ("longcat_json", "<longcat_think>", "</longcat_think>"),
        ("apertus_list", "<|inner_prefix|>", "<|inner_suffix|>"),
        ("inkling", "<|message_model|><|content_thinking|>", "<|end_message|>"),
    ],
)
def test_dialects_add_reasoning_tags(dialect: str, opening: str, closing: str) -> None:
    options: dict[str, Any] = {"dialects": (dialect,)}

    assert [thought("a"), "b"] == read(f"{opening}a{closing}b", **options)
    assert ["\n", thought("a"), "b"] == read(f"\n\n{opening}a{closing}b", **options)
    assert [thought("a" + closing[:-1])] == read(f"{opening}a{closing[:-1]}", **options)
    assert [thought("a"), "b"] == read("<think>a</think>b", **options)
    assert [thought("a"), "b"] == read(f"a{closing}b", in_reasoning=True, **options)
    assert [thought("a"), "b"] == read("a</think>b", in_reasoning=True, **options)
    assert [thought("a"), "b"] == read(f"a{closing}b", in_reasoning=True, reasoning="off", **options)
    assert [markup(opening), thought("a"), markup(closing + "\n\n"), "\nb"] == read(
        f"{opening}a{closing}\n\n\nb", keep_markup=True, **options
    )


def test_any_closing_tag_ends_reasoning_that_the_prompt_opened() -> None:
    for closing in ("<|END_THINKING|>", "</seed:think>", "[/THINK]", "<|end|>"):
        options: dict[str, Any] = {"dialects": ("cohere_action_json", "seed_oss_xml", "harmony"), "in_reasoning": True}

        assert [thought("a"), "b"] == read(f"a{closing}b", **options)
    assert [thought("a<|END_THINKING|>b")] == read("a<|END_THINKING|>b", dialects=("seed_oss_xml",), in_reasoning=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(" \n<seed:think>a</seed:think>b", [" ", thought("a"), "b"], id="after white space"),
        pytest.param("x <seed:think>a", ["x <seed:think>a"], id="after a word it is text"),
        pytest.param("</seed:think>a", ["a"], id="a closing tag alone is hidden"),
    ],
)
def test_ambiguous_tags_count_at_the_start_and_after_a_call(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=("seed_oss_xml",))


AT_LINE_START = frozenset(
    each
    for each, text in WRITTEN.items()
    if not any(marker.where == "anywhere" and begins_with(text, marker.parts) for marker in MARKERS[each])
)
"""Dialects whose calls count at the start of a line of reasoning. Those without a marker count only there."""


@together("dialect", WRITTEN)
def test_a_call_at_the_end_of_a_message_ends_reasoning(dialect: str) -> None:
    """In each dialect, because models forget the closing tag before a call."""
    text, line = WRITTEN[dialect], "\n" if dialect in AT_LINE_START else ""
    options: dict[str, Any] = {"dialects": (dialect,), "tools": [{"name": "f"}]}

    assert [thought(f"I will.{line}"), f] == read(f"<think>I will.{line}{text}", **options)
    assert [thought(f"I will.\n{text}b"), ALIKE] == read(f"<think>I will.\n{text}b", **options)
    assert [thought(f"I will.\n{text}b"), ALIKE, "c"] == read(f"<think>I will.\n{text}b</think>c", **options)
    assert [thought(f"I will.{line}"), f] == read(f"I will.{line}{text}", in_reasoning=True, **options)
    assert [thought("a"), f] == read(f"<think>a</think>{text}", **options)
    assert [f] == read(f"<think>{text}", **options)
    if any(marker.where == "line_start" for marker in MARKERS[dialect]):  # the call may be indented
        assert [thought("I will.\n\t "), f] == read(f"<think>I will.\n\t {text}", **options)
        assert [thought(f"I will.\n\t {text}b"), ALIKE] == read(f"<think>I will.\n\t {text}b", **options)
    if line:
        assert [thought(f"I will.{text}")] == [
            each for each in read(f"<think>I will.{text}", **options) if each != ALIKE
        ]


def read_anew(text: str, **options: Any) -> list[Brief]:
    """Return what a custom dialect reads in `text`. The reference for promptness does not know it."""
    events = assert_chunk_invariant(text, usual_ways(text), **options)
    assert_conserved(text, feed([text], keep_markup=True, **options))
    return brief(events)


def house(**options: Any) -> Dialect:
    """Return a custom dialect with openers that do not count everywhere."""
    return Dialect(
        id="house",
        openers=(
            Opener(("@call", SPACES), _name, ahead=(":",), not_after="[a-z]"),
            Opener(("@@", Some("a-z", 1, 8), LINE_END), _name, where="line_start"),
        ),
        write_call=lambda name, arguments: f"@call:{name};",
        write_result=lambda name, text: text,
        **options,
    )


def _name(span: Span) -> Generator[None, None, None]:
    begin = span.place
    while ";" not in span.text[span.at :] and not span.ended:
        yield
    span.set_name(span.text[span.at :].lstrip(":").partition(";")[0])
    span.at = span.text.index(";") + 1
    span.convert()
    span.write("{}")
    span.end_call()
    assert span.place > begin
    span.close()


@together(
    ("text", "expected"),
    {
        "a call ends it": ("a @call:f;", [thought("a "), f]),
        "a call that is followed by more does not": ("a @call:f;b", [thought("a @call:f;b"), ALIKE]),
        "with white space before the commit point": ("a @call \n:f;", [thought("a "), f]),
    },
)
def test_only_openers_that_count_anywhere_end_reasoning(text: str, expected: list[Brief]) -> None:
    options: dict[str, Any] = {"dialects": (house(),)}

    assert expected == read_anew(f"<think>{text}", **options)
    assert expected == read_anew(text, in_reasoning=True, **options)


def test_a_long_marker_in_reasoning_is_reported() -> None:
    """At each cut."""
    text = f"<|channel|>commentary to=functions.{'f' * 80} <|constrain|>json{' ' * 12}<|message|>"

    assert [thought(text + "{}"), ALIKE, "b"] == read(f"<think>{text}{{}}</think>b", dialects=("harmony",))


PROSE = Dialect(
    id="prose",
    openers=(),
    write_call=lambda name, arguments: "",
    write_result=lambda name, text: text,
    tags=(
        Tag(("Here is my thought process:",), closings=("Here is my response:",), where="start"),
        Tag(("Here are my reasoning steps:",), closings=("[BEGIN FINAL RESPONSE]",), where="start"),
        Tag(("[END FINAL RESPONSE]",)),
    ),
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Here is my thought process: a Here is my response: b", [thought(" a "), " b"], id="Granite 3.2"),
        pytest.param("Here is my thoughtful", ["Here is my thoughtful"], id="it was something else"),
        pytest.param("So: Here is my thought process: a", ["So: Here is my thought process: a"], id="not at the start"),
    ],
)
def test_sentences_can_be_reasoning_tags(text: str, expected: list[Brief]) -> None:
    """Granite 3.2 and Apriel write them."""
    assert expected == read_anew(text, dialects=(PROSE,))


GRANITE = "Here is my thought process:\na\nHere is my response:\nb"
APRIEL = "Here are my reasoning steps:\na\n[BEGIN FINAL RESPONSE]\nb\n[END FINAL RESPONSE]\n"
APRIEL_CALL = WRITTEN["tool_calls_list"] + "\n[BEGIN FINAL RESPONSE]\nb"


@together(
    ("dialect", "text", "expected"),
    [
        ("granite_list", GRANITE, [thought("a"), "b"]),
        ("tool_calls_list", APRIEL, [thought("a"), "b\n"]),
        ("tool_calls_list", APRIEL_CALL, [f, "\n\nb"]),
    ],
)
def test_sentence_tags_need_the_dialect_of_the_model(dialect: str, text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=[dialect])
    if text.startswith("Here"):
        assert [text] == read(text, dialects="auto")


def test_sentence_tags_close_reasoning_of_the_prompt() -> None:
    assert [thought("a"), "b"] == read("a\n[BEGIN FINAL RESPONSE]\nb", dialects=["tool_calls_list"], in_reasoning=True)

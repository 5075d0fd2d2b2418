"""Tests of the dialects of XML calls with tag names as parameter names."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Parser
from streamtools.limits import Limits
from streamtools.machine.event_order import validate
from streamtools.testing.laws import assert_chunk_invariant, assert_conserved, feed
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, warning
from tests.support.ways_to_cut import usual_ways

STEPS = {"type": "object", "properties": {"step": {"type": "string"}, "done": {"type": "boolean"}}}
TOOLS = [
    {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "n": {"type": "integer"},
                "o": {"type": "object", "properties": {"n": {"type": "integer"}, "o": {"type": "object"}}},
                "l": {"type": "array", "items": {"type": "string"}},
                "m": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                "steps": {"type": "array", "items": STEPS},
                "text": {"type": ["string", "array", "object"], "properties": {"k": {"type": "integer"}}},
                "any": {},
                "maybe": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            },
        },
    },
    {"name": "g"},
    {"name": "###", "parameters": {}},
    {"name": "h", "parameters": {"properties": {"###": {}}}},
]

BROKEN = error("unrecognised_tool_call")
CUT = error("truncated")
TOKEN = "]<]minimax[>["

VALUES = [
    pytest.param("<a>x</a><n>3</n>", {"a": "x", "n": 3}, id="text and a number"),
    pytest.param("<o/><l/><steps> </steps><n/>", {"o": {}, "l": [], "steps": [], "n": ""}, id="nothing of each type"),
    pytest.param('<o> {"n": [1, null]} </o>', {"o": {"n": [1, None]}}, id="an object in JSON"),
    pytest.param("<o>so</o>", {"o": "so"}, id="text where an object should be is for the tool to judge"),
    pytest.param(
        "<steps><step>a</step><done>true</done></steps><steps><step>b</step></steps>",
        {"steps": [{"step": "a", "done": True}, {"step": "b"}]},
        id="objects that follow one another",
    ),
    pytest.param("<text>so</text>", {"text": "so"}, id="of several types, text"),
]


def read_morph(text: str, **options: Any) -> list[Brief]:
    """Return what `morph_xml` reads in `text`. The declared tools define its markers."""
    options = {"dialects": ["morph_xml"], "tools": TOOLS} | options
    events = assert_chunk_invariant(text, usual_ways(text), **options)
    validate(events, run=False)
    assert_conserved(text, feed(list(text), **options, keep_markup=True))
    return brief(events)


def with_token(text: str) -> str:
    """Return `text` with the token before each tag."""
    return text.replace("<", f"{TOKEN}<")


def minimax(text: str) -> str:
    """Return `text` as the arguments of a call."""
    return with_token(f'<tool_call>\n<invoke name="f">{text}</invoke>\n</tool_call>')


@together(("text", "arguments"), VALUES)
def test_schema_or_content_gives_an_element_its_type(text: str, arguments: dict[str, object] | None) -> None:
    """In both dialects."""
    expected = {"a": "<n>1</n>"} if arguments is None else arguments

    assert [call("f", **expected), " b"] == read_morph(f"<f>{text}</f> b")

    expected = {"a": with_token("<n>1</n>")} if arguments is None else arguments
    text = minimax(text)

    assert ["a ", call("f", **expected), " b"] == read(f"a {text} b", dialects=["minimax_m3_xml"], tools=TOOLS)


@together(
    ("text", "expected"),
    {
        "an array in two places": ("<l>x</l><n>1</n><l>y</l>", error("duplicate_key")),
        "an array in JSON, and another": ("<l>[]</l><l>y</l>", error("duplicate_key")),
        "two names in an array": ("<l><item>a</item><word>b</word></l>", BROKEN),
        "a tag that is none": ("<a b=>x</a>", BROKEN),
        "broken JSON": ("<o>{1}</o>", error("invalid_arguments")),
    },
)
def test_a_malformed_call_ends_at_its_closing_tag(text: str, expected: Brief) -> None:
    """Nothing is guessed, and the text after the tag is shown."""
    assert [expected, " b"] == read_morph(f"<f>{text}</f> b")


@together(
    ("text", "expected"),
    {
        "one tag": ("<f/><g />< g/>", [call("f"), call("g"), "< g/>"]),
        "JSON": ('<f>{"a": "</f>"}</f>', [call("f", a="</f>")]),
        "JSON alone": ('<f>{"a": "x"}', [call("f", a="x"), warning("missing_close")]),
        "JSON and half an end": ('<f>{"a": "x"}</', [call("f", a="x"), warning("missing_close")]),
        "JSON and text": ('<f>{"a": "x"} b</f> b', [BROKEN, " b"]),
        "broken JSON": ('<f>{"a": x}</f> b', [error("invalid_json"), " b"]),
        "entities and sections": ("<f><a>&lt;<![CDATA[</a>&lt;]]></a></f>", [call("f", a="<</a>&lt;")]),
        "another tag after a section": ("<f><a><![CDATA[x]]></b>y</a></f>", [call("f", a="x</b>y")]),
        "and after text and a section": ("<f><a>x<![CDATA[y]]></b></a></f>", [call("f", a="xy</b>")]),
        "cut in a value": ("<f><a>x", [CUT]),
        "cut in an attribute": ("<f><a b", [CUT]),
        "no parameter that can be a tag": ("<h><a>x</a></h><h></h>", ["<h><a>x</a></h>", call("h")]),
    },
)
def test_only_tags_of_declared_tools_begin_calls(text: str, expected: list[Brief]) -> None:
    """A declared parameter must come first."""
    assert expected == read_morph(text)


def test_a_parameter_may_have_the_name_of_its_tool() -> None:
    tools = [{"name": "s", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}]

    assert [call("s", s="1", n=2)] == read_morph("<s><s>1</s><n>2</n></s>", tools=tools)


def test_null_must_be_the_whole_element() -> None:
    """An element after another tag belongs to the array that may be null."""
    assert [call("f", maybe=["null</b>"])] == read_morph("<f><maybe>null</b></maybe></f>")


def test_without_tools_there_is_no_call() -> None:
    assert ["<f/>"] == read_morph("<f/>", tools=None)


@together(
    ("text", "expected"),
    {
        "one tag": ('<tool_call><invoke name="f"/></tool_call>b', [call("f"), "b"]),
        "no end before another": (
            '<tool_call><invoke name="f"><a>x</a><invoke name="g"></invoke></tool_call>b',
            [call("f", a="x"), warning("missing_close"), call("g"), "b"],
        ),
        "the end of something": ('<tool_call><invoke name="f"><a>x</a></o></tool_call>b', [BROKEN, "b"]),
        "JSON": ('<tool_call><invoke name="f">{"a":"x"}</invoke></tool_call>', [call("f", a="x")]),
        "cut": ('<tool_call><invoke name="f"><a>x</a>', [CUT]),
        "nothing in the wrapper": ("<tool_call></tool_call>b", [BROKEN, "b"]),
        "an end of the wrapper alone": ("a</tool_call>b", ["ab"]),
    },
)
def test_minimax_m3_tags_need_their_token(text: str, expected: list[Brief]) -> None:
    assert expected == read(with_token(text), dialects=["minimax_m3_xml"], tools=TOOLS)


def test_elements_nest_up_to_the_limit_of_json() -> None:
    """A hundred thousand tags are one error, and the text continues."""
    text = "<f>" + "<o>" * 4
    limits = Limits(depth=4)
    good = "<f><o><o><o>1</o></o></o></f>"

    assert [call("f", o={"o": {"o": "1"}})] == read_morph(good, limits=limits)
    assert [error("too_deep"), warning("skipped", 20), "b"] == read_morph(text + "<x>1</x></o></o></f>b", limits=limits)
    parser = Parser(["morph_xml"], TOOLS)
    events = parser.feed("<f>" + "<o>" * 100_000) + parser.close()
    assert ["too_deep"] == [event.code for event in events if event.type == "error"]

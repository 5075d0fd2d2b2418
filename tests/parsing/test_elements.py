"""Calls in XML whose tags are the names: what the schema makes of an element, and which tags are a call at all."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import Parser, parse
from streamtools.limits import Limits
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.dialects.neutralising import restore
from streamtools.testing.laws import assert_chunk_invariant, assert_conserved, assert_in_order, feed
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
    pytest.param("\n <a> x\n</a>\n", {"a": " x\n"}, id="white space in a value is kept, around it is not"),
    pytest.param("<a></a>", {"a": ""}, id="no text"),
    pytest.param("<a/>", {"a": ""}, id="no text, in one tag"),
    pytest.param("<o/><l/><steps> </steps><n/>", {"o": {}, "l": [], "steps": [], "n": ""}, id="nothing of each type"),
    pytest.param("<a><n>1</n></a>", None, id="what is text holds tags"),
    pytest.param("<o><n>1</n></o>", {"o": {"n": 1}}, id="an object"),
    pytest.param("<o>\n<o>\n<x>1</x>\n</o>\n</o>", {"o": {"o": {"x": "1"}}}, id="objects in objects"),
    pytest.param('<o> {"n": [1, null]} </o>', {"o": {"n": [1, None]}}, id="an object in JSON"),
    pytest.param("<o>so</o>", {"o": "so"}, id="text where an object should be is for the tool to judge"),
    pytest.param("<l><item>a</item><item/><item>b</item></l>", {"l": ["a", "", "b"]}, id="an array"),
    pytest.param("<l><word>a</word><word>b</word></l>", {"l": ["a", "b"]}, id="an array, with a name of its own"),
    pytest.param("<l><0>a</0><1>b</1></l>", {"l": ["a", "b"]}, id="an array, with indices"),
    pytest.param('<l> ["a", "b"] </l>', {"l": ["a", "b"]}, id="an array in JSON"),
    pytest.param("<l>a</l>", {"l": ["a"]}, id="an array with one element"),
    pytest.param("<maybe>\nnull </maybe>", {"maybe": None}, id="null where there may be an array"),
    pytest.param("<maybe>null and void</maybe>", {"maybe": ["null and void"]}, id="an element that begins like null"),
    pytest.param("<l>a</l><l/><l>b</l><n>1</n>", {"l": ["a", "", "b"], "n": 1}, id="an array of tags that follow"),
    pytest.param("<l>a</l>\n<l>b</l>", {"l": ["a", "b"]}, id="an array of tags at the end"),
    pytest.param("<m><item><item>1</item></item><item>[2]</item></m>", {"m": [[1], [2]]}, id="arrays in an array"),
    pytest.param(
        "<steps><item><step>a</step></item><item><done>true</done></item></steps>",
        {"steps": [{"step": "a"}, {"done": True}]},
        id="an array of objects",
    ),
    pytest.param(
        "<steps><step>a</step><done>true</done></steps><steps><step>b</step></steps>",
        {"steps": [{"step": "a", "done": True}, {"step": "b"}]},
        id="objects that follow one another",
    ),
    pytest.param("<any>1</any><x>2</x>", {"any": "1", "x": "2"}, id="what no schema knows is text"),
    pytest.param("<any><k>1</k></any>", {"any": {"k": "1"}}, id="or an object"),
    pytest.param("<any><item>1</item></any>", {"any": ["1"]}, id="or an array"),
    pytest.param("<any> </any>", {"any": " "}, id="white space where anything may be"),
    pytest.param("<text>so</text>", {"text": "so"}, id="of several types, text"),
    pytest.param("<text> <k>1</k></text>", {"text": {"k": 1}}, id="of several types, an object"),
    pytest.param("<text><item>1</item></text>", {"text": ["1"]}, id="of several types, an array"),
    pytest.param("<text></text>", {"text": ""}, id="of several types, nothing"),
]


def read_morph(text: str, **options: Any) -> list[Brief]:
    """Return what is read in `text`, whose markers are made of the declared tools."""
    options = {"dialects": ["morph_xml"], "tools": TOOLS} | options
    events = assert_chunk_invariant(text, usual_ways(text), **options)
    assert_in_order(events, run=False)
    assert_conserved(text, feed(list(text), **options, keep_markup=True))
    return brief(events)


def with_token(text: str) -> str:
    """Return `text` with the token before each tag."""
    return text.replace("<", f"{TOKEN}<")


def minimax(text: str) -> str:
    """Return `text` as the arguments of a call."""
    return with_token(f'<tool_call>\n<invoke name="f">{text}</invoke>\n</tool_call>')


@together(("text", "arguments"), VALUES)
def test_values(text: str, arguments: dict[str, object] | None) -> None:
    """What an element is, its schema says, else what comes first in it; in both dialects."""
    expected = {"a": "<n>1</n>"} if arguments is None else arguments

    assert [call("f", **expected), " b"] == read_morph(f"<f>{text}</f> b")

    expected = {"a": with_token("<n>1</n>")} if arguments is None else arguments
    text = minimax(text)

    assert ["a ", call("f", **expected), " b"] == read(f"a {text} b", dialects=["minimax_m3_xml"], tools=TOOLS)


@together(
    ("text", "expected"),
    {
        "a key twice": ("<a>x</a><a>y</a>", error("duplicate_key")),
        "an array in two places": ("<l>x</l><n>1</n><l>y</l>", error("duplicate_key")),
        "an array in JSON, and another": ("<l>[]</l><l>y</l>", error("duplicate_key")),
        "two names in an array": ("<l><item>a</item><word>b</word></l>", BROKEN),
        "text in an array": ("<l><item>a</item>b</l>", BROKEN),
        "text in an object": ("<o><n>1</n>b</o>", BROKEN),
        "text between arguments": ("<a>x</a>b", BROKEN),
        "the end of something else": ("<o><n>1</n></l>", BROKEN),
        "the end of the call in a value": ("<a>x", BROKEN),
        "a tag that is none": ("<a b=>x</a>", BROKEN),
        "broken JSON": ("<o>{1}</o>", error("invalid_arguments")),
    },
)
def test_what_is_broken(text: str, expected: Brief) -> None:
    """Nothing is guessed, and the text continues after the closing tag of the call."""
    assert [expected, " b"] == read_morph(f"<f>{text}</f> b")


@together(
    ("text", "expected"),
    {
        "no arguments": ("a <f></f> b", ["a ", call("f"), " b"]),
        "one tag": ("<f/><g />< g/>", [call("f"), call("g"), "< g/>"]),
        "white space in tags": ("<f >\n</ f >", [call("f")]),
        "JSON": ('<f>{"a": "</f>"}</f>', [call("f", a="</f>")]),
        "JSON alone": ('<f>{"a": "x"}', [call("f", a="x"), warning("missing_close")]),
        "JSON and half an end": ('<f>{"a": "x"}</', [call("f", a="x"), warning("missing_close")]),
        "JSON and text": ('<f>{"a": "x"} b</f> b', [BROKEN, " b"]),
        "broken JSON": ('<f>{"a": x}</f> b', [error("invalid_json"), " b"]),
        "cut in JSON": ('<f>{"a": "x', [CUT]),
        "attributes mean nothing": ('<f><a b="1" c=2>x</a></f>', [call("f", a="x")]),
        "entities and sections": ("<f><a>&lt;<![CDATA[</a>&lt;]]></a></f>", [call("f", a="<</a>&lt;")]),
        "another tag after a section": ("<f><a><![CDATA[x]]></b>y</a></f>", [call("f", a="x</b>y")]),
        "and after text and a section": ("<f><a>x<![CDATA[y]]></b></a></f>", [call("f", a="xy</b>")]),
        "JSON in a section": ('<f><l><![CDATA[["<"]]]></l></f>', [call("f", l=["<"])]),
        "cut after an argument": ("<f><a>x</a>", [CUT]),
        "cut in a value": ("<f><a>x", [CUT]),
        "cut in a tag": ("<f><a>x</a><n", [CUT]),
        "cut in an attribute": ("<f><a b", [CUT]),
        "text, and no end": ("<f><a>x</a> b", [BROKEN]),
        "a tool that declares no parameters": ("<g><b>x</b></g>", [call("g", b="x")]),
        "the first is declared": ("<f>\n<a>x</a><b>y</b></f>", [call("f", a="x", b="y")]),
        "the first is not": ("<f><b>y</b></f>", ["<f><b>y</b></f>"]),
        "the first only begins so": ("<f><ab>y</ab></f>", ["<f><ab>y</ab></f>"]),
        "text, and no tool": ("<f>so</f><i/>", ["<f>so</f><i/>"]),
        "no parameter that can be a tag": ("<h><a>x</a></h><h></h>", ["<h><a>x</a></h>", call("h")]),
    },
)
def test_morph(text: str, expected: list[Brief]) -> None:
    """Only tags of declared tools count, and only if what comes first in them is a declared parameter."""
    assert expected == read_morph(text)


def test_a_parameter_that_is_called_as_its_tool() -> None:
    """A tag inside that has the name of the call is an argument, if the tool has one."""
    tools = [{"name": "s", "parameters": {"properties": {"s": {"type": "string"}, "n": {"type": "integer"}}}}]

    assert [call("s", s="1", n=2)] == read_morph("<s><s>1</s><n>2</n></s>", tools=tools)


def test_null_is_all_of_an_element() -> None:
    """What continues after another tag is an element of the array that may be null."""
    assert [call("f", maybe=["null</b>"])] == read_morph("<f><maybe>null</b></maybe></f>")


def test_without_tools_nothing_is_a_call() -> None:
    """The openers are made of declared names."""
    assert ["<f/>"] == read_morph("<f/>", tools=None)


@together(
    ("text", "expected"),
    {
        "one tag": ('<tool_call><invoke name="f"/></tool_call>b', [call("f"), "b"]),
        "two calls": (
            '<tool_call><invoke name="f"><a>x</a></invoke><invoke name="g"></invoke></tool_call>',
            [call("f", a="x"), call("g")],
        ),
        "no end before another": (
            '<tool_call><invoke name="f"><a>x</a><invoke name="g"></invoke></tool_call>b',
            [call("f", a="x"), warning("missing_close"), call("g"), "b"],
        ),
        "no end before the end of the wrapper": (
            '<tool_call><invoke name="f"><l>x</l></tool_call>b',
            [call("f", l=["x"]), warning("missing_close"), "b"],
        ),
        "the end of something": ('<tool_call><invoke name="f"><a>x</a></o></tool_call>b', [BROKEN, "b"]),
        "no end of a value": (
            '<tool_call><invoke name="f"><a>x</invoke><invoke name="g"></invoke></tool_call>b',
            [BROKEN, call("g"), "b"],
        ),
        "JSON": ('<tool_call><invoke name="f">{"a":"x"}</invoke></tool_call>', [call("f", a="x")]),
        "cut": ('<tool_call><invoke name="f"><a>x</a>', [CUT]),
        "nothing in the wrapper": ("<tool_call></tool_call>b", [BROKEN, "b"]),
        "an end of the wrapper alone": ("a</tool_call>b", ["ab"]),
    },
)
def test_minimax(text: str, expected: list[Brief]) -> None:
    """A token before each tag reports tags from text."""
    assert expected == read(with_token(text), dialects=["minimax_m3_xml"], tools=TOOLS)


def test_depth() -> None:
    """Elements nest as deeply as JSON may: a hundred thousand tags are one error, and the text continues."""
    text = "<f>" + "<o>" * 4
    limits = Limits(depth=4)
    good = "<f><o><o><o>1</o></o></o></f>"

    assert [call("f", o={"o": {"o": "1"}})] == read_morph(good, limits=limits)
    assert [error("too_deep"), warning("skipped", 20), "b"] == read_morph(text + "<x>1</x></o></o></f>b", limits=limits)
    parser = Parser(["morph_xml"], TOOLS)
    events = parser.feed("<f>" + "<o>" * 100_000) + parser.close()
    assert ["too_deep"] == [event.code for event in events if event.type == "error"]


@pytest.mark.parametrize("dialect", ["minimax_m3_xml", "morph_xml"])
def test_what_is_written_is_read(dialect: str) -> None:
    """Tags, tokens and sections in values come back."""
    form = DIALECTS[dialect]
    given = {"a": "</a></f>]]>&lt;" + TOKEN, "n": 3, "l": ["</l>", TOKEN], "o": {"n": 1}, "steps": [{"step": "<"}]}

    found = parse([form.write_call("f", given)], dialects=[dialect], tools=TOOLS)

    assert [("f", given)] == [(each.name, restore(each.arguments, [form])) for each in found.calls]
    assert "" == found.content
    assert "7" in form.write_result("f", "7")

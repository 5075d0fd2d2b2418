"""Calls as the Gemma models write them: keys without quotes, and strings between tokens of their own."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.limits import Limits
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import feed
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, read, thought, warning

GEMMA = {"dialects": ["gemma4"]}
FUNCTION_GEMMA = {"dialects": ["functiongemma"]}
f = call("f")
UNREADABLE = error("unrecognised_tool_call")


def gemma(inner: str) -> str:
    """Return a call of Gemma 4, in which a tilde stands for the mark around strings."""
    return f"<|tool_call>call:{inner}<tool_call|>".replace("~", '<|"|>')


@together(
    ("inner", "expected"),
    [
        pytest.param("f{}", f, id="no arguments"),
        pytest.param("f{a:~x~}", call("f", a="x"), id="a string"),
        pytest.param("f{a:~~}", call("f", a=""), id="an empty string"),
        pytest.param("f{a:1,b:-2.5,c:true,d:null}", call("f", a=1, b=-2.5, c=True, d=None), id="bare values"),
        pytest.param("f{a:Paris,b:[x y,z ]}", call("f", a="Paris", b=["x y", "z"]), id="strings without marks"),
        pytest.param("f{a:2024-05-01,b:10:30 (a)\n}", call("f", a="2024-05-01", b="10:30 (a)"), id="a date and a time"),
        pytest.param("f{a:True,b:False,c:None}", call("f", a=True, b=False, c=None), id="words of Python"),
        pytest.param("f{a:nan,b:it's}", call("f", a="nan", b="it's"), id="words of no language"),
        pytest.param("f{a: 1 , b : 2}", call("f", a=1, b=2), id="white space"),
        pytest.param("f{a:[~x~,~y, z~],b:{c:{d:[]}}}", call("f", a=["x", "y, z"], b={"c": {"d": []}}), id="nested"),
        pytest.param("f{a:[\n  {b:~x\n~},\n]\n}", call("f", a=[{"b": "x\n"}]), id="on several lines"),
        pytest.param('f{a:~say "x", \\"y\\"\\n~}', call("f", a='say "x", \\"y\\"\\n'), id="quotes and back-slashes"),
        pytest.param("f{a:~C:\\users~}", call("f", a="C:\\users"), id="a path"),
        pytest.param("f{a:~}{][,:~}", call("f", a="}{][,:"), id="brackets in a string"),
        pytest.param('f{a:~<|" <| <~}', call("f", a='<|" <| <'), id="beginnings of the mark in a string"),
        pytest.param('f{a:"x\\n",b:~y~}', call("f", a="x\n", b="y"), id="a string in plain quotes"),
        pytest.param("f{~a~:1,a b:2}", call("f", **{"a": 1, "a b": 2}), id="a key in quotes, a key with a space"),
        pytest.param("f{a:~x~,}", call("f", a="x"), id="a trailing comma"),
        pytest.param("a.b-c{}", call("a.b-c"), id="a name with a dot"),
        pytest.param("f{a:~日本~}", call("f", a="日本"), id="other letters"),
    ],
)
def test_calls(inner: str, expected: Brief) -> None:
    """One call between two tags, with text around it; both models' ways."""
    text = gemma(inner)
    assert [expected] == read(text, **GEMMA)
    assert ["So ", expected, expected, " and ", expected, "!"] == brief(feed([f"So {text}{text} and {text}!"], **GEMMA))
    other = text.replace("<|tool_call>", "<start_function_call>").replace("<tool_call|>", "<end_function_call>")
    if '<|" ' not in text:
        assert [expected] == read(other.replace('<|"|>', "<escape>"), **FUNCTION_GEMMA)


def test_the_closing_tag_in_a_string_is_text() -> None:
    """A string ends at its mark."""
    assert [call("f", a="<tool_call|>")] == read(gemma("f{a:~<tool_call|>~}"), **GEMMA)


@together(
    ("inner", "expected"),
    [
        pytest.param(f"f{{a:{'x' * 4096}}}", error("invalid_arguments"), id="a text without a mark that is too long"),
        pytest.param('f{a:5" x}', UNREADABLE, id="a quote in a text without a mark"),
        pytest.param("f{a:Paris~}", UNREADABLE, id="no mark at the beginning of a string"),
        pytest.param("f{a:x, y}", UNREADABLE, id="a comma in a text without a mark"),
        pytest.param("f{a:NaN}", error("not_a_number"), id="not a number"),
        pytest.param("f{a:1,a:2}", error("duplicate_key"), id="the same key twice"),
        pytest.param("f{a:}", UNREADABLE, id="no value"),
        pytest.param("f{a:1", UNREADABLE, id="no closing brace"),
        pytest.param("f{a:1}}", UNREADABLE, id="two closing braces"),
        pytest.param("f{a:(1,2)}", UNREADABLE, id="a tuple"),
        pytest.param("f{a:<|x~}", UNREADABLE, id="half of a mark"),
        pytest.param("f{a:[~x~ ~y~]}", UNREADABLE, id="no comma"),
        pytest.param("f{a:~x}", error("truncated"), id="no mark at the end of a string"),
        pytest.param("f{} call:g{}", UNREADABLE, id="text behind the call"),
    ],
)
def test_malformed_calls(inner: str, expected: Brief) -> None:
    """They are hidden up to the tag, and each has its code."""
    assert [expected, "so"][: 1 + (expected != error("truncated"))] == read(gemma(inner) + "so", **GEMMA)


@together(
    ("text", "expected"),
    [
        pytest.param("<|tool_call>call:f{}", [f, warning("missing_close")], id="no closing tag"),
        pytest.param("<|tool_call>call:f{}\n<tool_", [f, warning("missing_close")], id="half of the closing tag"),
        pytest.param("<|tool_call>call:f{", [error("truncated")], id="no closing brace"),
        pytest.param("<|tool_call>call:f{a:<", [error("truncated")], id="cut in a mark"),
        pytest.param(
            "<|tool_call>call:f{} " + gemma("f{}"), [f, warning("missing_close"), f], id="another opening tag"
        ),
        pytest.param("<|tool_call>call:f", [error("truncated")], id="cut before the brace"),
        pytest.param("<|tool_call>call:f()", ["<|tool_call>call:f()"], id="a parenthesis"),
        pytest.param("<|tool_call>{}", ["<|tool_call>{}"], id="JSON"),
        pytest.param("<|tool_call>call:{", ["<|tool_call>call:{"], id="no name"),
        pytest.param("call:f{}", ["call:f{}"], id="no tag"),
    ],
)
def test_what_is_cut_and_what_is_text(text: str, expected: list[Brief]) -> None:
    """A call that lacks only its tag is a call; without name and brace nothing is one."""
    assert expected == read(text, **GEMMA)


@together(
    ("text", "expected"),
    [
        pytest.param("<|channel>thought\nHm.<channel|>So.", [thought("Hm."), "So."], id="a thought"),
        pytest.param("<|channel>Hm.<channel|>So.", [thought("Hm."), "So."], id="a channel without a name"),
        pytest.param("<|channel>thoughts<channel|>", [thought("thoughts")], id="a word that begins like the name"),
        pytest.param("<|channel>tho", [thought("tho")], id="cut in the name"),
        pytest.param("So. <|channel>Hm.", ["So. ", thought("Hm.")], id="in the middle, unclosed"),
        pytest.param("<|channel>a<channel|><|channel>b<channel|>c", [thought("ab"), "c"], id="two"),
        pytest.param(gemma("f{}") + "<tool_call|>So.", [f, "So."], id="a second closing tag"),
        pytest.param(gemma("f{}") + "<|tool_response>", [f], id="the tag that opens a result"),
        pytest.param("`<tool_call|>`", ["`<tool_call|>`"], id="a tag in code"),
    ],
)
def test_the_templates_tags(text: str, expected: list[Brief]) -> None:
    """They are hidden; what the model thinks is told apart."""
    assert expected == read(text, **GEMMA)


def test_limits() -> None:
    """One error with its name, and the rest is skipped up to the tag."""
    text = gemma("f{a:[[1]]}") + "so"
    assert [error("too_deep"), warning("skipped", 17), "so"] == read(text, limits=Limits(depth=2), **GEMMA)


@together("dialect", ["gemma4", "functiongemma"])
@together(
    "arguments",
    [
        {},
        {"a": 'x\n"\\', "b": [None, True, 1.5e-9, {"c": []}], "d": {"e": 10**20, "é": ""}},
        {"a b": 1, "": "x", "a:b": 2, '"': 3, "9": 4},
        {"a": '<|"|>', "b": "<escape>", "c": "<escape", "d": "<tool_call|><end_function_call>"},
    ],
)
def test_what_is_written_is_read(dialect: str, arguments: dict[str, Any]) -> None:
    """Any arguments: what the notation has no room for is written as JSON."""
    text = DIALECTS[dialect].write_call("get_weather", arguments)
    assert [call("get_weather", **arguments)] == brief(feed([text], dialects=[dialect]))


def test_results() -> None:
    """They are written in the notation of calls; what is no object has a key of its own."""
    write = DIALECTS["gemma4"].write_result
    assert '<|tool_response>response:f{a:<|"|>x<|"|>}<tool_response|>' == write("f", '{"a":"x"}')
    assert '<|tool_response>response:f{value:<|"|>x<|"|>}<tool_response|>' == write("f", "x")
    assert "<|tool_response>response:f{value:[1]}<tool_response|>" == write("f", "[1]")

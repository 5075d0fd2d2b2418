"""A name and pairs of tags: GLM's XML, and its kin."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from streamtools.parsing.dialects import DIALECTS
from tests.support.cases import together
from tests.support.reading import Brief, call, error, raws, read, thought, warning

TOOLS: list[dict[str, Any]] = [
    {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
    {"name": "g", "parameters": {"properties": {}}},
]
A = "<arg_key>a</arg_key><arg_value>x</arg_value>"
B = "<arg_key>b</arg_key>\n<arg_value>2</arg_value>\n"
f, g, both = call("f", a="x"), call("g"), call("f", a="x", b=2)
F, G = f"<tool_call>f{A}</tool_call>", "<tool_call>g</tool_call>"
unclosed = warning("missing_close")
broken, cut = error("unrecognised_tool_call"), error("truncated")


@together(
    ("text", "expected"),
    [
        pytest.param(F, [f], id="without line feeds"),
        pytest.param(f"<tool_call>f\n{A}\n{B}</tool_call>", [both], id="with line feeds"),
        pytest.param(f"<tool_call> f \n {A} \t {B} </tool_call>", [both], id="with more white space"),
        pytest.param(f"a\n\n{F}\n{F} b", ["a\n", f, f, " b"], id="one line feed before it is the template's"),
        pytest.param(G, [g], id="no arguments"),
        pytest.param("<tool_call>g\n</tool_call>", [g], id="no arguments, on two lines"),
        pytest.param("<tool_call>a.b-c:é/1</tool_call>", [call("a.b-c:é/1")], id="whatever stands in a name"),
        pytest.param(F.replace("y>a<", "y> a\n<"), [f], id="white space around a key"),
        pytest.param(f"<tool_call>f{A}{A}</tool_call>", [error("duplicate_key")], id="a key twice"),
        pytest.param("a <tool_call> b c</tool_call>", ["a <tool_call> b c</tool_call>"], id="the tag in prose"),
        pytest.param(f"<tool_call>x {F}", ["<tool_call>x ", f], id="the tag in prose before a call"),
        pytest.param(f"`{F}`", [f"`{F}`"], id="in code"),
        pytest.param(f"<think>a {F}", [thought("a "), f], id="in open reasoning"),
    ],
)
def test_calls(text: str, expected: list[Brief]) -> None:
    """White space between the tags means nothing, and what is no call is text."""
    assert expected == read(text, dialects=["glm_xml"], tools=TOOLS)


@together("value", ["", "\n", " x\n", "</arg_key>", "<arg_key>", "</tool_call>", "&lt;", '"\\', "</arg_valu"])
def test_values(value: str) -> None:
    """A value is all that stands up to its closing tag."""
    text = f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>"

    assert [call("f", a=value)] == read(text, dialects=["glm_xml"], tools=TOOLS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"<tool_call>f{A}x</tool_call>y", [cut, "y"], id="text behind a value, which is a part of it"),
        pytest.param(
            "<tool_call>f<arg_key>a<arg_value>x</arg_value></tool_call>y", [broken, "y"], id="a key not closed"
        ),
        pytest.param("<tool_call>f<arg_key>a</arg_key>x</tool_call>y", [broken, "y"], id="a key without a value"),
        pytest.param(f"<tool_call>f{A}{F}", [f, unclosed, f], id="another call instead of the closing tag"),
    ],
)
def test_what_is_broken(text: str, expected: list[Brief]) -> None:
    """What has no place between the tags is an error, up to the end of the call."""
    assert expected == read(text, dialects=["glm_xml"], tools=TOOLS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<tool_call>f<arg_key>", id="before a key"),
        pytest.param("<tool_call>f<arg_key>a", id="in a key"),
        pytest.param("<tool_call>f<arg_key>a</arg_key", id="in the end of a key"),
        pytest.param("<tool_call>f<arg_key>a</arg_key>\n<arg_v", id="before a value"),
        pytest.param("<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_", id="in a value"),
        pytest.param(f"<tool_call>f{A}\n", id="behind a value"),
        pytest.param(f"<tool_call>f{A}</tool_", id="in the end of the call"),
    ],
)
def test_what_is_cut(text: str) -> None:
    """A call that the stream ends in is truncated, and nothing of it is text."""
    assert [cut] == read(text, dialects=["glm_xml"], tools=TOOLS)
    assert [text] == raws(text, dialects=["glm_xml"], tools=TOOLS)


def test_poolside() -> None:
    """Laguna writes JSON between the same tags, too."""
    text = f'{F}<tool_call>{{"name": "g"}}</tool_call>'

    assert [f, g] == read(text, dialects=["poolside_xml"], tools=TOOLS)


def _hunyuan(*calls: str) -> str:
    return f"<tool_calls>\n{''.join(calls)}</tool_calls>"


H = f"<tool_call>f<tool_sep>{A}</tool_call>"


@together(
    ("text", "expected"),
    [
        pytest.param(f"a{_hunyuan(H, H)}b", ["a", f, f, "b"], id="two calls"),
        pytest.param(_hunyuan("<tool_call>g<tool_sep>\n</tool_call>\n"), [g], id="no arguments"),
        pytest.param(
            _hunyuan(H).replace(">", ":opensource>").replace(":opensource>\n", ":opensource>"), [f], id="suffixes"
        ),
        pytest.param(_hunyuan("<tool_call>f</tool_call>", H) + "b", [broken, f, "b"], id="no separator"),
        pytest.param(_hunyuan(H, "x", H), [f, broken, f], id="text between the calls"),
        pytest.param(_hunyuan(f"<tool_call>f<tool_sep>{A}"), [f, unclosed], id="no end of the call"),
        pytest.param(f"<tool_calls>{H}", [f, unclosed], id="no end of the wrapper"),
        pytest.param(f"<tool_calls>{H}</tool_", [f, unclosed], id="the end of the wrapper is cut"),
        pytest.param(f"<tool_calls>{H}<tool_call>f<tool_sep>", [f, cut], id="the second call is cut"),
        pytest.param("<tool_calls><tool_call>f<tool", [cut], id="cut in the first one"),
        pytest.param("<tool_calls>[x", ["<tool_calls>[x"], id="a wrapper of something else"),
    ],
)
def test_hunyuan(text: str, expected: list[Brief]) -> None:
    """A wrapper around calls, and tags that may end with a suffix."""
    assert expected == read(text, dialects=["hunyuan_xml"], tools=TOOLS)


def test_the_thoughts_of_hunyuan() -> None:
    """Their tags have the suffix that all tags have; they may be the template's, and not seen."""
    read_hunyuan = partial(read, dialects=["hunyuan_xml"], tools=TOOLS)
    text = "Hm.</think:opensource>" + _hunyuan(H) + "b"

    assert [thought("Hm."), f, "b"] == read_hunyuan("<think:opensource>" + text)
    assert [thought("Hm."), f, "b"] == read_hunyuan(text, in_reasoning=True)


def test_step_with_line_feeds() -> None:
    """White space may stand between the tokens of a call and its tags."""
    text = (
        "<｜tool_call_begin｜>\nfunction<｜tool_sep｜>\n"
        '<steptml:invoke name="f">\n<steptml:parameter name="a">x</steptml:parameter>\n</steptml:invoke>'
        "<｜tool_call_end｜>"
    )
    assert [f] == read(text, dialects=["step3_xml"], tools=TOOLS)


def test_step() -> None:
    """The tokens around a call of Step 3 are hidden."""
    text = "a" + DIALECTS["step3_xml"].write_call("f", {"a": "x", "b": 2}) + "b"

    assert text.startswith(
        'a<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">'
    )
    assert ["a", both, "b"] == read(text, dialects=["step3_xml"], tools=TOOLS)

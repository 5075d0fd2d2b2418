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
f, g, both = call("f", a="x"), call("g"), call("f", a="x", b=2)
F = f"<tool_call>f{A}</tool_call>"
unclosed = warning("missing_close")
broken, cut = error("unrecognised_tool_call"), error("truncated")


@together(
    ("text", "expected"),
    {
        "without line feeds": (F, [f]),
        "one line feed before it is the template's": (f"a\n\n{F}\n{F} b", ["a\n", f, f, " b"]),
        "a key twice": (f"<tool_call>f{A}{A}</tool_call>", [error("duplicate_key")]),
        "the tag in prose": ("a <tool_call> b c</tool_call>", ["a <tool_call> b c</tool_call>"]),
        "the tag in prose before a call": (f"<tool_call>x {F}", ["<tool_call>x ", f]),
        "in code": (f"`{F}`", [f"`{F}`"]),
        "in open reasoning": (f"<think>a {F}", [thought("a "), f]),
    },
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
        pytest.param(f"<tool_call>f{A}x</tool_call>y", [cut, "y"], id="text after a value, which is a part of it"),
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
        pytest.param(f"<tool_call>f{A}\n", id="after a value"),
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
    {
        "two calls": (f"a{_hunyuan(H, H)}b", ["a", f, f, "b"]),
        "no separator": (_hunyuan("<tool_call>f</tool_call>", H) + "b", [broken, f, "b"]),
        "the end of the wrapper is cut": (f"<tool_calls>{H}</tool_", [f, unclosed]),
        "the second call is cut": (f"<tool_calls>{H}<tool_call>f<tool_sep>", [f, cut]),
    },
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

"""Tests of calls that consist of a name and pairs of tags, as GLM writes them."""

from __future__ import annotations

from functools import partial

from streamtools.parsing.dialects import DIALECTS
from tests.parsing.test_parameters import TOOLS
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought, warning

A = "<arg_key>a</arg_key><arg_value>x</arg_value>"
f, g, both = call("f", a="x"), call("g"), call("f", a="x", b=2)
F = f"<tool_call>f{A}</tool_call>"
unclosed = warning("missing_close")
broken, cut = error("unrecognised_tool_call"), error("truncated")


@together("value", ["", "\n", " x\n", "</arg_key>", "<arg_key>", "</tool_call>", "&lt;", '"\\', "</arg_valu"])
def test_a_value_ends_at_its_closing_tag(value: str) -> None:
    text = f"<tool_call>f<arg_key>a</arg_key><arg_value>{value}</arg_value></tool_call>"

    assert [call("f", a=value)] == read(text, dialects=["glm_xml"], tools=TOOLS)


@together(
    ("text", "expected"),
    {
        # White space between pairs is ignored.
        "without line feeds": (F, [f]),
        "one line feed before it is the template's": (f"a\n\n{F}\n{F} b", ["a\n", f, f, " b"]),
        "a key twice": (f"<tool_call>f{A}{A}</tool_call>", [error("duplicate_key")]),
        "the tag in prose": ("a <tool_call> b c</tool_call>", ["a <tool_call> b c</tool_call>"]),
        "the tag in prose before a call": (f"<tool_call>x {F}", ["<tool_call>x ", f]),
        "in code": (f"`{F}`", [f"`{F}`"]),
        "in open reasoning": (f"<think>a {F}", [thought("a "), f]),
        # Other text is an error.
        "text after a value, which is a part of it": (f"<tool_call>f{A}x</tool_call>y", [cut, "y"]),
        "a key not closed": ("<tool_call>f<arg_key>a<arg_value>x</arg_value></tool_call>y", [broken, "y"]),
        "a key without a value": ("<tool_call>f<arg_key>a</arg_key>x</tool_call>y", [broken, "y"]),
        "another call instead of the closing tag": (f"<tool_call>f{A}{F}", [f, unclosed, f]),
    },
)
def test_other_text_between_the_tags_is_an_error(text: str, expected: list[Brief]) -> None:
    """Up to the end of the call. Text that is not a call is shown."""
    assert expected == read(text, dialects=["glm_xml"], tools=TOOLS)


def test_poolside_accepts_json_between_the_same_tags() -> None:
    text = f'{F}<tool_call>{{"name": "g"}}</tool_call>'

    assert [f, g] == read(text, dialects=["poolside_xml"], tools=TOOLS)


def _hunyuan(*calls: str) -> str:
    return f"<tool_calls>\n{''.join(calls)}</tool_calls>"


H = f"<tool_call>f<tool_sep>{A}</tool_call>"


@together(
    ("text", "expected"),
    {
        "two calls": (f"a{_hunyuan(H, H)}b", ["a", f, f, "b"]),
        "no separator": (_hunyuan(f"<tool_call>f{A}</tool_call>", H) + "b", [f, f, "b"]),
        "text after the name": (_hunyuan("<tool_call>f x</tool_call>", H) + "b", [broken, f, "b"]),
        "the end of the wrapper is cut": (f"<tool_calls>{H}</tool_", [f, unclosed]),
        "the second call is cut": (f"<tool_calls>{H}<tool_call>f<tool_sep>", [f, cut]),
    },
)
def test_hunyuan_has_a_wrapper_and_suffixes(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["hunyuan_xml"], tools=TOOLS)


def test_hunyuan_reasoning_tags_have_the_suffix() -> None:
    """The template may have written the opening tag."""
    read_hunyuan = partial(read, dialects=["hunyuan_xml"], tools=TOOLS)
    text = "Hm.</think:opensource>" + _hunyuan(H) + "b"

    assert [thought("Hm."), f, "b"] == read_hunyuan("<think:opensource>" + text)
    assert [thought("Hm."), f, "b"] == read_hunyuan(text, in_reasoning=True)


def test_white_space_may_stand_between_the_tokens_of_step3() -> None:
    text = (
        "<｜tool_call_begin｜>\nfunction<｜tool_sep｜>\n"
        '<steptml:invoke name="f">\n<steptml:parameter name="a">x</steptml:parameter>\n</steptml:invoke>'
        "<｜tool_call_end｜>"
    )
    assert [f] == read(text, dialects=["step3_xml"], tools=TOOLS)


def test_tokens_around_a_step3_call_are_hidden() -> None:
    text = "a" + DIALECTS["step3_xml"].write_call("f", {"a": "x", "b": 2}) + "b"

    assert text.startswith(
        'a<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="f">'
    )
    assert ["a", both, "b"] == read(text, dialects=["step3_xml"], tools=TOOLS)

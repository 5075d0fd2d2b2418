"""Tests of the dialects of XML calls with names in attributes."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from tests.support.cases import together
from tests.support.reading import Brief, call, error, raws, read, thought, warning

TYPES = {"a": "string", "n": "integer", "on": "boolean", "l": "array", "o": "object"}
TOOLS = [{"name": "f", "parameters": {"properties": {name: {"type": type} for name, type in TYPES.items()}}}]

A = '<parameter name="a">x</parameter>'
N = '<parameter name="n">3</parameter>'
F = f'<invoke name="f">{A}</invoke>'
G = '<invoke name="g"></invoke>'
f, g = call("f", a="x"), call("g")
UNCLOSED = warning("missing_close")
BROKEN = error("unrecognised_tool_call")
CUT = error("truncated")


def in_wrapper(text: str) -> str:
    """Return `text` in the wrapper that models imitate."""
    return f"<function_calls>{text}</function_calls>"


def read_anthropic(text: str, **options: Any) -> list[Brief]:
    """Return what `anthropic_xml` reads in `text`, with its tools declared."""
    return read(text, dialects=["anthropic_xml"], tools=TOOLS, **options)


@together(
    ("text", "expected"),
    {
        # Names may be quoted, and values end at their closing tag.
        "nothing else": (in_wrapper(F), [f]),
        "no text, in one tag": (in_wrapper('<invoke name="f"><parameter name="a"/></invoke>'), [call("f", a="")]),
        "an array": (in_wrapper(F.replace('name="a">x', 'name="l">["a", "b"]')), [call("f", l=["a", "b"])]),
        "a word of the schema": (in_wrapper(F.replace('name="a">x', 'name="on">true')), [call("f", on=True)]),
        "no end of the call in a wrapper": (in_wrapper(f'<invoke name="f">{A}') + " so", [f, UNCLOSED, " so"]),
        "the JSON alone": ('<function_calls><invoke name="f">{"a":"x"}', [f, UNCLOSED]),
        "half an end of a call in JSON": ('<invoke name="f">{"a":"x"}</inv', [f, UNCLOSED]),
        # Good calls survive malformed siblings.
        "no value in a tag": (in_wrapper(f"<invoke name=>{A}</invoke>{G}"), [BROKEN, g]),
        "no value in the tag of an argument": (
            in_wrapper(f'<invoke name="f"><parameter name="a" b>x</parameter></invoke>{G}'),
            [BROKEN, g],
        ),
        "no name": (in_wrapper(f"<invoke id=1>{A}</invoke>{G}"), [error("missing_tool_name"), g]),
        "no name of an argument": (
            in_wrapper(f'<invoke name="f"><parameter id="a">x</parameter></invoke>{G}'),
            [error("invalid_arguments"), g],
        ),
        "a key twice": (in_wrapper(f'<invoke name="f">{A}{A}</invoke>{G}'), [error("duplicate_key"), g]),
        "bad JSON": (in_wrapper(f'<invoke name="f">{{"a":x}}</invoke>{G}'), [error("invalid_json"), g]),
        "text after JSON": (in_wrapper(f'<invoke name="f">{{"a":1}} so</invoke>{G}'), [BROKEN, g]),
        "text in a call without wrapper": (f'<invoke name="f">{A}so</invoke> so', [CUT, " so"]),
    },
)
def test_calls_of_anthropic(text: str, expected: list[Brief]) -> None:
    """No call is made of text that is cut off or in the wrong position."""
    assert expected == read_anthropic(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("<function_calls> are", id="the wrapper alone"),
        pytest.param("<function_calls>\nget_weather()", id="another dialect's call in the wrapper"),
        pytest.param(f"`{F}`", id="in code"),
    ],
)
def test_text_before_the_commit_point_is_shown(text: str) -> None:
    assert [text] == [each for each in read_anthropic(text) if each != warning("near_miss")]


def test_the_first_call_of_a_wrapper_holds_the_opening_tag() -> None:
    """The tags between calls are markup."""
    text = f"<function_calls>\n{F}\n{G}\n</function_calls>"

    assert [f"<function_calls>\n{F}", G] == raws(text, dialects=["anthropic_xml"])


MARK = "｜DSML｜"
"""Full-width bars."""


def dsml(wrapper: str, parameters: dict[str, tuple[bool, str]]) -> str:
    """Return a call whose parameters state whether they are strings."""
    lines = [
        f'<｜parameter name="{name}" string="{str(is_text).lower()}">{value}</｜parameter>'
        for name, (is_text, value) in parameters.items()
    ]
    return "\n".join([f"<｜{wrapper}>", '<｜invoke name="f">', *lines, "</｜invoke>", f"</｜{wrapper}>"])


@together(
    ("text", "expected"),
    {
        "what is said beats the schema": (
            "\n\n" + dsml("function_calls", {"n": (True, "3"), "a": (False, "3")}),
            [call("f", n="3", a=3)],
        ),
        "JSON": (
            dsml("tool_calls", {"b": (False, '{"x": [1, "y"]}'), "c": (False, ' "z\\n" ')}),
            [call("f", b={"x": [1, "y"]}, c="z\n")],
        ),
        "no JSON": (dsml("tool_calls", {"b": (False, "x")}), [error("invalid_arguments")]),
        "no wrapper": ('a\n\n<｜invoke name="f"/>b', ["a", call("f"), "b"]),
        "something else in the wrapper": ("<｜tool_calls><x", [BROKEN]),
        "cut at the commit point": ("<｜tool_calls><", [CUT]),
        "nothing in the wrapper": ("<｜tool_calls></｜tool_calls>b", [BROKEN, "b"]),
    },
)
def test_dsml_arguments_state_their_type(text: str, expected: list[Brief]) -> None:
    """Two line feeds before the wrapper belong to the template."""
    text = text.replace("<｜", f"<{MARK}").replace("</｜", f"</{MARK}")

    assert expected == read(text, dialects=["deepseek_dsml"], tools=TOOLS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"a\n<minimax:tool_call>\n{F}\n{G}\n</minimax:tool_call>b", ["a", f, g, "b"], id="two calls"),
        pytest.param(
            "<think>so</think>\n<minimax:tool_call>" + F + "</minimax:tool_call>",
            [thought("so"), f],
            id="after reasoning",
        ),
        pytest.param("<minimax:tool_call> no", ["<minimax:tool_call> no"], id="the wrapper alone"),
    ],
)
def test_minimax_calls_end_with_the_wrapper(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["minimax_m2_xml"], tools=TOOLS)


def test_atem_headers_name_the_recipient() -> None:
    """The recipient is the model itself, the user, or a tool."""
    text = (
        "to=self<|message|>so<|eom|><|start|>assistant to=user<|message|>Hi.<|eom|><|start|>assistant to=f<|message|>"
        f"<function_calls>\n{F}\n</function_calls><|eot|>"
    )
    for tag in ("function_calls", "invoke", "parameter"):
        text = text.replace(f"<{tag}", f"<atem:{tag}").replace(f"</{tag}", f"</atem:{tag}")

    assert [thought("so"), "Hi.", f] == read(text, dialects=["atem_xml"], tools=TOOLS)


@together(
    ("inside", "value"),
    {
        "text": ("x", "x"),
        "tags and entities": ("<a href='x'>&lt;y&gt;&unknown;</a>", "<a href='x'><y>&unknown;</a>"),
        "text after a section": ("<![CDATA[<b>]]>c<![CDATA[d]]>", "<b>cd"),
    },
)
def test_minicpm5_decodes_entities_and_cdata_sections(inside: str, value: str) -> None:
    text = f'a <function name="f"><param name="a">{inside}</param></function> b'

    assert ["a ", call("f", a=value), " b"] == read(text, dialects=["minicpm5_xml"], tools=TOOLS)


def test_arguments_are_reported_while_they_arrive() -> None:
    """Only text that may become the closing tag is pending."""
    text = F.replace("x", 'one "two" </p three').replace("</invoke>", f"{N}</invoke>")
    events = parse(list(text), dialects=["anthropic_xml"], tools=TOOLS, call_deltas=True).events
    reported = [event.text for event in events if event.type == "call-delta"]

    assert '{"a":"one \\"two\\" </p three","n":3}' == "".join(reported)
    assert len(reported) > 20


@pytest.mark.parametrize(
    "text",
    [
        'Call <invoke name="x"> to begin, then <b>text</b>.\n\nMore.',
        '<invoke name="x"> begins',
        "<function name='f'> defines it.",
    ],
)
def test_a_tag_that_is_only_mentioned_is_text(text: str) -> None:
    """Without a wrapper, only an argument, a JSON body or the end of the call commits to a call."""
    assert [text] == read(text, dialects=["anthropic_xml", "minicpm5_xml"])

"""Tests of functions and parameters as tags: Qwen3-Coder, Seed, and Llama 3.1."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.parsing.dialects import DIALECTS
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought, warning

TOOLS: list[dict[str, Any]] = [
    {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
    {"name": "g", "parameters": {"properties": {}}},
]
A = "<parameter=a>\nx\n</parameter>"
B = "<parameter=b>\n2\n</parameter>"
F = f"<function=f>\n{A}\n</function>"
f, g, both = call("f", a="x"), call("g"), call("f", a="x", b=2)
unclosed = warning("missing_close")
broken, cut = error("unrecognised_tool_call"), error("truncated")


def wrapped(body: str) -> str:
    """Return a body in the wrapper of Qwen."""
    return f"<tool_call>\n{body}\n</tool_call>"


def value(text: str) -> str:
    """Return a call with this text after the tag of a parameter."""
    return f"<tool_call><function=f><parameter=a>{text}"


END = "</parameter></function></tool_call>"


@together(
    ("written", "expected"),
    {"nothing": ("", ""), "a line feed is that of the tag": ("\n", ""), "two are one of each tag": ("\n\n", "")},
)
def test_a_value_ends_at_its_closing_tag(written: str, expected: str) -> None:
    """One line feed at each end belongs to the tags."""
    assert [call("f", a=expected)] == read(value(written) + END, dialects=["qwen3_coder_xml"], tools=TOOLS)


def test_any_new_parameter_of_an_unknown_tool_ends_a_value() -> None:
    text = "<function=h><parameter=a>1<parameter=b>2<parameter=a>3</parameter></function>"

    assert [call("h", a="1", b="2<parameter=a>3")] == read(text, dialects=["qwen3_coder_xml"])


@together(
    ("text", "expected"),
    {
        # Complete functions.
        "two line feeds before it are the template's": (f"a\n\n\n{wrapped(F)}\nb", ["a\n", f, "\nb"]),
        "without line feeds between the tags": (wrapped(f"<function=f>{A}{B}</function>"), [both]),
        "no parameters and no closing tag": (wrapped("<function=g/>"), [g]),
        "a parameter after a slash": (wrapped(f"<function=f/>\n{A}</function>"), [f]),
        "the closing tag after a slash": (wrapped("<function=g/></function>\n<function=g/>"), [g, g]),
        "without a wrapper": (f"<function=g/></function><function=f/>{A}</function>\nb", [g, f, "\nb"]),
        "cut off without a wrapper": ("<function=g/><parameter=", [error("truncated")]),
        "an empty parameter": (wrapped("<function=f><parameter=a/></function>"), [call("f", a="")]),
        "only the end of the wrapper, and a blank line": (f"{F}\n\n</tool_call>", [f, "\n"]),
        "no name": (wrapped("<function=></function>"), [error("missing_tool_name")]),
        "no function in the wrapper": ("<tool_call>\nx", ["<tool_call>\nx"]),
        "a function in prose": ("`<function=f>` <function=f> x", ["`<function=f>` <function=f> x"]),
        "in a fence": (f"```\n{F}\n```", [f"```\n{F}\n```"]),
        "in open reasoning": (f"<think>a {wrapped(F)}", [thought("a "), f]),
        # Missing closing tags are accepted before another tag.
        "a value at the end of the function": (value("x</function></tool_call>"), [f]),
        "a function at the end of the wrapper": (wrapped(f"<function=f>{A}"), [f, unclosed]),
        "a wrapper at another": (f"<tool_call>{F}\n<tool_call>{F}</tool_call>", [f, unclosed, f]),
        # Other text between the tags is an error, up to the next tag. Other calls survive.
        "no tag after the name": (wrapped(f"<function=f>x{F}"), [broken, f]),
        "no bracket": (wrapped("<function=f\n<parameter=a>x</parameter></function>"), [broken]),
        "none for a value": (wrapped("<function=f><parameter=a\nx</parameter></function>"), [broken]),
        "the end of the wrapper before prose": (wrapped(f"<function=f>{A}x") + " y", [cut, " y"]),
        "text after a function": (wrapped(f"{F}oops"), [f, broken]),
        "prose in a wrapper": (f"<tool_call>{F}\nIt is\n\nwarm", [f, broken, "\nwarm"]),
        "text at the end of the stream": (f"<tool_call>{F}It", [f, broken]),
    },
)
def test_functions_are_read_with_and_without_their_wrapper(text: str, expected: list[Brief]) -> None:
    """In all layouts."""
    assert expected == read(text, dialects=["qwen3_coder_xml"], tools=TOOLS)


def test_a_complete_function_runs_if_the_next_is_cut_off() -> None:
    text = f"<tool_call>{F}<func"

    assert [f, cut] == read(text, dialects=["qwen3_coder_xml"], tools=TOOLS)


def test_seed_has_a_wrapper_and_a_reasoning_tag() -> None:
    text = f"<seed:think>hm</seed:think>\n\na<seed:tool_call>{F}</seed:tool_call>b"

    assert [thought("hm"), "a", f, "b"] == read(text, dialects=["seed_oss_xml"], tools=TOOLS)
    assert "<parameter=a>x</parameter>" in DIALECTS["seed_oss_xml"].write_call("f", {"a": "x"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('<function=f>{"a" 1}</function> b', [error("invalid_json"), " b"], id="broken JSON"),
        pytest.param('<function=f>{"a": 1}', [call("f", a=1), unclosed], id="no closing tag"),
        pytest.param('<function=f>{"a": 1', [cut], id="cut"),
        pytest.param(F, [F], id="parameters"),
    ],
)
def test_llama_functions_hold_json(text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=["llama31_function_tag"], tools=TOOLS)


def test_forms_with_the_same_tag_can_be_enabled_together() -> None:
    text = f'{F}<function=g>{{}}</function><tool_call>{{"name": "g"}}</tool_call><tool_call>g</tool_call>{wrapped(F)}'
    dialects = ["hermes_json", "qwen3_coder_xml", "llama31_function_tag", "glm_xml"]

    assert [f, g, g, g, f] == read(text, dialects=dialects, tools=TOOLS)
    found = [each.dialect for each in parse([text], dialects=dialects, tools=TOOLS).calls]
    assert ["qwen3_coder_xml", "llama31_function_tag", "hermes_json", "glm_xml", "qwen3_coder_xml"] == found


def test_tags_that_would_end_an_argument_are_broken_up() -> None:
    """A word joiner in text, an escaped bracket in JSON. Other tags are written unchanged."""
    write, end = DIALECTS["qwen3_coder_xml"].write_call, "</parameter></function></tool_call>"
    text = write("f", {"a": end, "o": [end]})

    assert "\n<\u2060/parameter><\u2060/function><\u2060/tool_call>\n" in text
    assert '["\\u003c/parameter>\\u003c/function>\\u003c/tool_call>"]' in text
    assert "\n</parameter>\n" in write("f", {"a": "</parameter>"})

"""Tests of calls in which a tag or the name is missing, as public reports of 2026 show them."""

from __future__ import annotations

import re

import pytest

from streamtools.parsing.dialects.table import DIALECTS
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read

TOOLS = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}]
broken, f = error("unrecognised_tool_call"), call("f", a="x")
WITH_KEYS = {
    "qwen3_coder_xml": "<parameter=", "k_exaone2_xml": "<parameter=", "seed_oss_xml": "<parameter=",
    "zaya_xml": "<parameter=", "glm_xml": "<arg_key>", "poolside_xml": "<arg_key>", "iquest_q1": "<arg_key>",
    "iquest_coder2": "<arg_key>", "longcat_xml": "<longcat_arg_key>", "telechat4_xml": "<param_key>",
    "solar_open2": "<|tool_arg:start|>", "anthropic_xml": "<parameter ", "minimax_m2_xml": "<parameter ",
    "dots_xml": "<parameter ", "deepseek_dsml": "<｜DSML｜parameter ", "gigachat35": "<｜GCML｜parameter ",
}  # fmt: skip
"""The beginning of the opening tag of an argument, by the id of the dialect."""


@pytest.mark.parametrize("dialect", WITH_KEYS)
def test_an_argument_without_the_name_of_a_tool_is_an_error(dialect: str) -> None:
    """The opening tag of the call is complete, so the text is no prose. None of it is shown."""
    written = DIALECTS[dialect].write_call("f", {"a": "x"})
    opening = re.match("<[^<>]+>", written)
    assert opening is not None
    arguments = written[written.index(WITH_KEYS[dialect]) :]
    for text in (f"{opening[0]}\n{arguments}", f"Yes.\n{opening[0]}{arguments}"):
        events = read(text, dialects=[dialect], tools=TOOLS)
        assert error("missing_tool_name") in events or broken in events, (text, events)
        assert not any(isinstance(each, str) and "<" in each for each in events), (text, events)
        assert call("f", a="x") not in events


@together(
    ("dialect", "text", "expected"),
    [
        pytest.param(
            "minimax_m2_xml",
            '<minimax:tool_call>\ninvoke name="f">\n<parameter name="a">x</parameter>\n</invoke>\n'
            "</minimax:tool_call>",
            [broken], id="MiniMax M2, no bracket before the tag of the call",
        ),
        pytest.param(
            "qwen3_coder_xml",
            "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</function>\n"
            "</function_invocation>\n</tool_call>", [broken], id="Qwen 3.6, two more closing tags",
        ),
        pytest.param(
            "qwen3_coder_xml", "Yes.\n\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>",
            ["Yes.", f], id="Qwen 3 Coder, only the end of the wrapper",
        ),
    ],
)  # fmt: skip
def test_calls_with_damaged_tags(dialect: str, text: str, expected: list[Brief]) -> None:
    assert read(text, dialects=[dialect], tools=TOOLS) == expected


def test_a_broken_call_of_deepseek_before_another_call_is_an_error() -> None:
    """Also if another dialect with the same tokens is enabled."""
    begin, separator, end = (f"<｜tool▁{each}｜>" for each in ("call▁begin", "sep", "call▁end"))
    text = f'{begin}function{separator}g{begin}function{separator}f\n```json\n{{"a": "x"}}\n```{end}'
    for dialects in (["deepseek_v3"], ["deepseek_v3", "deepseek_v31"], "auto"):
        assert read(text, dialects=dialects, tools=TOOLS) == [error("invalid_arguments"), f], dialects


RAW = {
    name: found.groups()
    for name, dialect in DIALECTS.items()
    if name != "morph_xml"  # its tags have the names of the arguments, so a value may hold any tag
    and (
        found := re.fullmatch(
            r"(?s)(.*?)((?:<[^<>]*>|<\|open\|>argument[^<]*<\|sep\|>)\s*)x"
            r"(\s*(?:</[^<>]*>|<\|close\|>argument<\|sep\|>|<\|tool_arg:end\|>))(.*)",
            dialect.write_call("f", {"a": "x"}),
        )
    )
}
"""The text of a call before its value: up to the opening tag, and this tag. Then the closing tag, and the rest."""


@pytest.mark.parametrize("dialect", RAW)
def test_a_call_with_a_doubled_or_a_wrong_tag_of_a_value_never_runs(dialect: str) -> None:
    """The tag would become a part of the value, or a value would be empty. None of the text is shown."""
    before, opening, close, after = RAW[dialect]
    tools = [{"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}}]
    other = re.sub(r"\ba\b", "b", opening)
    damaged = {
        "doubled close": opening + "x" + close + close.strip(),
        "doubled close in the next line": opening + "x" + close + "\n" + close.strip(),
        "doubled opening": opening + opening + "x" + close,
        "another argument in a value": opening + other + "x" + close + close.strip(),
        "another argument without an end before it": opening + other + "x" + close,
        "close of another tag": opening + "x</arg_key>",
        "close with a short name": opening + "x\n</parametre>",
        "close with other characters": opening + "x</ifm|arg_key>",
    }
    for case, value in damaged.items():
        for text in (before + value + after, f"Yes.\n{before}{value}{after}"):
            events = read(text, dialects=[dialect], tools=tools)
            assert [each for each in events if not isinstance(each, str)] == [broken], (case, events)
            assert not any("<" in each for each in events if isinstance(each, str)), (case, events)


@pytest.mark.parametrize("dialect", [name for name in RAW if 'name="a"' in RAW[name][1]])
def test_a_tag_in_the_name_of_an_argument_is_an_error(dialect: str) -> None:
    """The tool does not declare such an argument. The name of a tool with a tag is an error too."""
    text = "".join([RAW[dialect][0], RAW[dialect][1].replace('"a"', '"a<|message|>b"'), "x", *RAW[dialect][2:]])
    assert read(text, dialects=[dialect], tools=TOOLS) == [error("invalid_arguments")]


@pytest.mark.parametrize("dialect", [name for name in RAW if "<function=" in RAW[name][0]])
def test_a_wrapper_tag_that_is_written_twice_is_hidden(dialect: str) -> None:
    """White space between the tags may be shown."""
    written = DIALECTS[dialect].write_call("f", {"a": "x"})
    opening = written[: written.index(">") + 1]
    for text in (opening + written, f"{opening}\n{written}", f"Yes.\n{opening}\n{written}\nNo."):
        for dialects in ([dialect], "auto"):
            events = read(text, dialects=dialects, tools=TOOLS)
            shown = "".join(each for each in events if isinstance(each, str)).split()
            assert [each for each in events if not isinstance(each, str)] == [f], (text, events)
            assert shown == (["Yes.", "No."] if "Yes" in text else []), (text, events)


def test_a_closing_tag_belongs_to_the_value_if_an_opening_tag_in_it_fits() -> None:
    """The opening tag may be in the form of another dialect. So the closing tag is not doubled."""
    value = "<parameter name=b>x</parameter>"
    for dialect in ("qwen3_coder_xml", "seed_oss_xml", "zaya_xml"):
        before, opening, close, after = RAW[dialect]
        text = before + opening + value + close + after
        assert read(text, dialects=[dialect], tools=TOOLS) == [call("f", a=value)]

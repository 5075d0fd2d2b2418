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

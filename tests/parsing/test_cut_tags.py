"""Tests of a complete tag at the end of the stream: its call was cut off, and its text is hidden."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.parsing.dialects import DIALECTS
from tests.support.cases import together
from tests.support.reading import Brief, error, raws, read

CUT = error("truncated")
TOOLS = [{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}]

TAGS = {
    "hermes_json": ("<tool_call>", "<tool_call>\n"),
    "qwen3_coder_xml": (
        *("<tool_call>", "<tool_call>\n<func", "<function=f>", "<function=f>\n<par"),
        *("<tool_call><function=", "<tool_call><function=f", "<tool_call><function=f><parameter=a>x\n</par"),
    ),
    "glm_xml": (
        *("<tool_call>", "<tool_call>f", "<tool_call>f\n<arg_k", "<tool_call>f<arg_key>", "<tool_call>f<arg_key>a"),
        "<tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value>\n",
    ),
    "harmony": ("<|channel|>commentary to=functions.f", "<|start|>assistant to=f<|channel|>commentary"),
    "mistral_list": ("[TOOL_CALLS]", "[TOOL_CALLS] "),
    "mistral_args": ("[TOOL_CALLS]", "[TOOL_CALLS]f", "[TOOL_CALLS]f[ARGS"),
    "deepseek_v3": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>function"),
    "deepseek_dsml": ("<｜DSML｜tool_calls>",),
    "kimi_k2": ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_begin|>functions.f:0"),
    "minimax_m3_xml": ("]<]minimax[>[<tool_call>",),
    "anthropic_xml": ("<function_calls>", '<invoke name="f">'),
    "llama3_json": ("<|python_tag|>",),
    "llama31_function_tag": ("<function=f>",),
    "gigachat3": ("<|function_call|>", "<|message_sep|>function call<|role_sep|>"),
    "inkling": ("<|content_invoke_tool_json|>",),
    "poolside_xml": ("<tool_call>",),
    "morph_xml": ("<f>", "<f>\n<"),
    "json_begin_end": ("JSON_BEGIN\n",),
    "gigachat35": ("<｜GCML｜tool_calls>",),
    "dots_xml": ("<dots_function_call>", "<dots_function_call>\n<inv"),
    "iquest_coder2": ("<iquestcoder_tool_call>",),
    "longcat_xml": ("<longcat_tool_call>", "<longcat_tool_call>f\n<longcat_arg_k"),
    "telechat4_xml": ("<tool_call>", "<tool_call>f", "<tool_call>f {"),
    "step_audio2": ("<tool_call>", "<tool_call>function\nf"),
    "zaya_xml": ("<zyphra_tool_call>", "<zyphra_tool_call>\n<func"),
    "pangu_list": ("[unused11]",),
    "sarashina_list": ("<|tool_calls|>", "<|tool_calls|>["),
    "iquest_q1": ("<iquest_tool_call>", "<iquest_tool_call>f\n<arg_k"),
    "k2_horizon": ("<ifm|tool_calls>", "<ifm|tool_call>", "<ifm|tool_calls><ifm|tool_call>f"),
    "solar_open": ("<|tool_calls|>", "<|tool_call:begin|>", "<|tool_call:begin|>x<|tool_call:name|>f"),
    "solar_open2": ("<|tool_call:start|>", "<|tool_call:start|>f"),
    "plamo3": ("<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_tool_request:plamo|>"),
    "hyperclovax_think": ("<|im_start|>assistant -> tool/function_call\n",),
    "minicpm4_python": ("<|tool_call_start|>", "<|tool_call_start|>\n```python\nf"),
    "step3_xml": ("<｜tool_calls_begin｜>", "<｜tool_calls_begin｜>\n", "<｜tool_call_begin｜>function<｜tool_sep｜>"),
    "kimi_k3_xtml": ("<|open|>tools<|sep|>",),
    "cwm_tool": ("<tool: f>", "<tool: f>\n"),
    "gemma4": ("<|tool_call>", "<|tool_call>call:f"),
}
"""What a stream may end with, by the dialect."""


@together(("dialect", "tag"), [(each, tag) for each, tags in TAGS.items() for tag in tags])
def test_a_complete_tag_at_the_end_is_a_truncated_call(dialect: str, tag: str) -> None:
    """With any part of the marker after the tag. In code, in a quote, and before more prose, the tag is text."""
    before = "Let me check." if dialect != "json_begin_end" else "Let me check.\n"
    assert [before, CUT] == read(before + tag, **_enabled(dialect))
    assert [tag] == raws(before + tag, **_enabled(dialect))
    if DIALECTS[dialect].in_code == "text":
        for code in (f"Say `{tag.rstrip()}", f"> {tag.strip()}"):
            assert [code] == read(code, **_enabled(dialect))


@together(
    ("dialect", "text"),
    [
        ("hermes_json", "<tool_call"),
        ("hermes_json", "<tool_call> is"),
        ("mistral_list", "[TOOL_CALLS"),
        ("qwen3_coder_xml", "<function=f"),
        ("hash_marker", "###:{"),
        ("functools_list", "functools["),
        ("cohere_legacy_action", "Action:\n```json"),
        ("anthropic_xml", "<function_results>"),
        ("raw_json", '{"name": "f"'),
        ("tool_code", "```tool_code\nf"),
        ("granite_lines", "f("),
        ("pythonic", "[f"),
    ],
)
def test_an_incomplete_tag_at_the_end_is_text(dialect: str, text: str) -> None:
    """The same is true without a tag, for a tag that begins no call, and with other text after the tag."""
    assert [text] == read(text, **_enabled(dialect))


def test_a_tag_that_dialects_share_begins_one_call() -> None:
    expected: list[Brief] = ["Hm.", CUT]
    assert expected == read("Hm.<tool_call>", dialects="auto")
    assert expected == read("Hm.[TOOL_CALLS]", dialects="auto")


@pytest.mark.parametrize(
    ("dialect", "header"),
    [
        ("harmony", "<|channel|>final"),
        ("harmony", "<|start|>assistant"),
        ("gigachat3", "<|message_sep|>\n\nfunction c"),
        ("hyperclovax_think", "<|im_start|>assistant -> tool"),
        ("inkling", "<|message_model|>f"),
        ("kimi_k3_xtml", "<|open|>tools"),
    ],
)
def test_a_header_that_is_cut_is_hidden(dialect: str, header: str) -> None:
    """It is not certain what follows. In code, it is text if a call there is text."""
    assert ["Bye"] == read("Bye" + header, **_enabled(dialect))
    if DIALECTS[dialect].in_code == "text":
        assert [f"Say `{header.strip()}"] == read(f"Say `{header.strip()}", **_enabled(dialect))


def _enabled(dialect: str) -> dict[str, Any]:
    return {"dialects": [dialect], "tools": TOOLS}

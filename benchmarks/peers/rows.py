"""The rows of the tables: a parser, its format, and its properties."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Group = Literal["floor", "ours", "peer", "json"]


@dataclass(frozen=True)
class Row:
    """One parser that reads one format. `kind` is the module that knows it, and `choice` what that calls it."""

    name: str
    kind: str
    choice: str
    format: str
    group: Group = "peer"
    markers: tuple[str, ...] = ()  # that it may rightly wait for; none: that of the format
    tells_text: bool = True
    on_node: bool = False


_TAGS = ("<tool_call>", "</tool_call>")
_XML = (*_TAGS, "<function=", "</function>", "<parameter=", "</parameter>", "<think>", "</think>")
_THINK = ("<think>", "<thinking>", "<reasoning>", "[THINK]")

ROWS = (
    Row("floor: list.append in a method", "floor", "append", "hermes", "floor", tells_text=False),
    Row("streamtools hermes_json", "ours", "hermes_json", "hermes", "ours", ("\n<tool_call>", *_TAGS, *_THINK)),
    Row("streamtools qwen3_coder_xml", "ours", "qwen3_coder_xml", "qwen3_coder", "ours", ("\n<tool_call>", *_XML)),
    Row("streamtools mistral_list", "ours", "mistral_list", "mistral", "ours", ("[TOOL_CALLS]", *_THINK)),
    Row("streamtools mistral_args", "ours", "mistral_args", "mistral_args", "ours", ("[TOOL_CALLS]", *_THINK)),
    Row("streamtools granite_list", "ours", "granite_list", "granite", "ours", ("<|tool_call|>", *_TAGS, *_THINK)),
    Row(
        "streamtools pythonic",
        "ours",
        "pythonic",
        "pythonic",
        "ours",
        ("[", "<|python_start|>", "<|python_end|>", *_THINK),
    ),
    Row("streamtools llama3_json", "ours", "llama3_json", "llama3", "ours", ("<|python_tag|>", "{", *_THINK)),
    Row(
        "streamtools, two dialects",
        "ours",
        "hash_marker,tilde_fence",
        "hash_marker",
        "ours",
        ('###: {"', "~~~tool_call", *_THINK),
    ),
    Row(
        "streamtools, two dialects",
        "ours",
        "hash_marker,tilde_fence",
        "tilde_fence",
        "ours",
        ('###: {"', "~~~tool_call", *_THINK),
    ),
    Row("SGLang Hermes", "sglang", "hermes", "hermes", markers=_TAGS),
    Row("SGLang Qwen25", "sglang", "qwen25", "hermes", markers=_TAGS),
    Row("vLLM Hermes", "vllm", "hermes", "hermes"),
    Row("SGLang Qwen3Coder", "sglang", "qwen3_coder", "qwen3_coder", markers=_XML),
    Row("vLLM Qwen3 engine", "vllm", "qwen3", "qwen3_coder", markers=_XML),
    Row("SGLang Mistral", "sglang", "mistral", "mistral"),
    Row("SGLang Mistral", "sglang", "mistral", "mistral_args"),
    Row("vLLM Granite engine", "vllm", "granite", "granite", markers=("<|tool_call|>", "<tool_call>")),
    Row("SGLang Pythonic", "sglang", "pythonic", "pythonic", markers=("[", "<|python_start|>", "<|python_end|>")),
    Row("vLLM Pythonic", "vllm", "pythonic", "pythonic"),
    Row("SGLang Llama32", "sglang", "llama32", "llama3", markers=("<|python_tag|>", "{")),
    Row("agent-tool-parser, once at the end", "whole_text", "at the end", "hermes", tells_text=False),
    Row("agent-tool-parser, on each delta", "whole_text", "each delta", "hermes", tells_text=False),
    Row("Node: identity TransformStream", "node", "identity", "hermes", "floor", tells_text=False, on_node=True),
    Row("@ai-sdk-tool/parser hermes", "node", "hermes", "hermes", on_node=True),
    Row("@ai-sdk-tool/parser qwen3Coder", "node", "qwen3Coder", "qwen3_coder", on_node=True),
    Row("one parse at the end (json.loads)", "growing", "json", "json", "json", tells_text=False),
    Row("jiter, each delta", "growing", "jiter", "json", "json", tells_text=False),
    Row("jiter, each 1/8 of growth", "growing", "jiter 1/8", "json", "json", tells_text=False),
    Row("pydantic_core, each delta", "growing", "pydantic_core", "json", "json", tells_text=False),
    Row("partial-json-parser, each delta", "growing", "partial_json_parser", "json", "json", tells_text=False),
    Row("json-repair, each delta", "growing", "json_repair", "json", "json", tells_text=False),
)
"""All rows, in the order of the tables."""

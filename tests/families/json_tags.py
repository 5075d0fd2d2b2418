"""The dialects of JSON between other tags, or after one tag."""

from __future__ import annotations

from tests.families.base import SPACES, Either, Family, Marker, Part, Tag, after_call


def _begun(*parts: Part, firsts: str = "{[", line_feeds: int = 0) -> tuple[Marker, ...]:
    return tuple(Marker((*parts, SPACES, first), line_feeds=line_feeds) for first in firsts)


_INTERN = (
    "<|action_start|>", "<|action_start|><|plugin|>", "<|action_start|> <|plugin|>\n{", "<|plugin|>",
    "<|action_end|>", "<|action", "<|action_end", "<|action_start|><|interpreter|>",
)  # fmt: skip


def _on_lines(opening: str, close: str) -> tuple[Tag, ...]:
    """Return the tags around an answer, with their line feeds."""
    return Tag((opening, Either(("\n", "")))), Tag((close, Either(("\n", ""))), line_feeds=1)


_HERMES = _begun("<tool_call>", line_feeds=1)

FAMILY = Family(
    markup={
        "granite_list": (
            "<|tool_call|>", "<|tool_call|>[", "<|tool_call|> {", "<response>",
            "Here is my response:", "<|tool_call>", "<|tool", "<tool_call>[", "]",
            '[{"name":"f"},{"name":"f"}]',
        ),
        "granite20b_function_call": ("<function_call>", "<function_call> {", "<function_calls>", "<function_", "\n\n"),
        "internlm2": _INTERN,
        "interns1": _INTERN,
        "tool_calls_list": (
            "<tool_calls>", "<tool_calls>[", "<tool_calls>\n{", "</tool_calls>", "</tool_", "<tool_calls><tool_call>",
            "<|end|>", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "[BEGIN",
            '<tool_calls>[{"name":"f"}]<tool_calls>',
        ),
        "toolcall_list": (
            "<TOOLCALL>", "<TOOLCALL>[", "<TOOLCALL> {", "</TOOLCALL>", "</TOOL", "<TOOLCALL>[]", "<tool",
        ),
        "functools_list": ("functools", "functools[", "\nfunctools[{", "functools[ ", "functools.partial", "func", "]"),
        "cohere_legacy_action": (
            "Action:", "Action:\n```json\n", "\nAction: ```json\n[", "Action:\n```\n", "Action:\n```json\n{", "]\n```",
            "Act",
        ),
        "hunyuan_a13b_list": (
            "<tool_calls>", "<tool_calls>[", "</tool_calls>", "<answer>", "</answer>", "<ans", "</answer>\n",
        ),
        "ernie45_json": (
            "<tool_call>\n", "\n<tool_call>{", "</tool_call>", "<response>", "\n</response>", "<resp", "</re",
        ),
        "longcat_json": (
            "<longcat_tool_call>", "<longcat_tool_call>\n{", "</longcat_tool_call>", "</longcat_", "<longcat_think>",
            "</longcat_think>", "<longcat_", "</longcat_s>",
        ),
        "lm_studio": (
            "[TOOL_REQUEST]", "[TOOL_REQUEST]{", "[TOOL_REQUEST]\n[", "[END_TOOL_REQUEST]", "[END_", "[TOOL_",
            "[TOOL_CALLS]",
        ),
        "apertus_list": (
            "<|tools_prefix|>", "<|tools_prefix|>[", '<|tools_prefix|>[{"f":{}', '{"f":', '{"f":{}},',
            '{"f":{},"f":{}}',
            "<|tools_suffix|>", "<|inner_prefix|>", "<|inner_suffix|>", "<|tools_", "<|inner", "[]", "}]",
            '<|tools_prefix|>[{"f":3},{}]<|tools_suffix|>', '<|tools_prefix|>[{"f":{"a":1,"a":2}},{"":{}}]',
        ),
        "hyperclovax_think": (
            "-> tool/function_call\n[", " -> tool/function_call\n", "<|im_start|>assistant", "<|im_end|>", "/think\n",
            "<|im_start|>assistant -> tool/function_call\n[", "<|im_start|>assistant/think\n", "<|im_end|>\n", "[", "]",
            "<|im_start|>assistant\n", "-> tool", "<|im_start|>assistant -> tool/func", "/thi", "<|stop|>",
            '<|im_start|>assistant -> tool/function_call\n[{"name":"f"}]', "->",
        ),
        "pangu_list": (
            "[unused11]", "[unused11][", "[unused11]\n{", "[unused12]", "[unused1", "[unused16]", "[unused17]", "[un",
            '[unused11][{"name":"f"},{"name":"f"}][unused12]', "[unused10]", "][unused12]", "[unused11][unused11]",
        ),
        "pangu2_list": (
            "<|tool_call_start|>", "<|tool_call_start|>[", "<|tool_call_start|>\n{", "<|tool_call_end|>",
            "<|tool_call_",
            '<|tool_call_start|>[{"name":"f"}]<|tool_call_end|>', "]<|tool_call_end|>", "<|tool_call_start|>f(", "<|",
        ),
        "qwen25_coder_tools": (
            "<tools>", "<tools>\n{", "<tools>[", "</tools>", "\n</tools>", "</too", "<tool", "<tool_call>{",
            "<|im_end|>",
            '<tools>{"name":"f"}</tools>', '<tools>{"name":"f"}<tools>', "</tool_call>", "<tools>f", "\n<tool_call>\n",
        ),
        "rwkv_fence": (
            "**Tool Call:**", "**Tool Call:**\n```json\n{", "**Tool Call:** ```json\n[", "**Tool Call:**\n```\n{",
            "```",
            '**Tool Call:**\n\n```json\n{"name":"f"}\n```', "**Tool", "**", "\n```", "<tool_call>\n{", "</tool_call>",
        ),
        "json_begin_end": (
            "JSON_BEGIN", "\nJSON_BEGIN\n{", "JSON_BEGIN\n[", "JSON_END", "JSON_", '{"tools":[', '{"tools":', "]}",
            '{"tools":[{"tool":"f"},{"tool":"f"}]}', '{"tools":[]}', '"tools"',
        ),
    },
    markers={
        "granite_list": (*_begun("<|tool_call|>"), *_begun("<tool_call>", firsts="[")),
        "granite20b_function_call": _begun("<function_call>", firsts="{"),
        "internlm2": _begun("<|action_start|>", SPACES, "<|plugin|>", firsts="{"),
        "interns1": _begun("<|action_start|>", SPACES, "<|plugin|>", firsts="{"),
        "tool_calls_list": _begun("<tool_calls>"),
        "toolcall_list": _begun("<TOOLCALL>"),
        "functools_list": (Marker(("functools[", SPACES, "{")),),
        "cohere_legacy_action": (Marker(("Action:", SPACES, "```json", SPACES, "["), where="line_start"),),
        "hunyuan_a13b_list": _begun("<tool_calls>"),
        "ernie45_json": _begun("<tool_call>", line_feeds=1),
        "longcat_json": _begun("<longcat_tool_call>"),
        "lm_studio": _begun("[TOOL_REQUEST]"),
        "apertus_list": (Marker(("<|tools_prefix|>", SPACES, "[")),),
        "hyperclovax_think": (
            Marker(("<|im_start|>assistant -> tool/function_call\n[",)),
            Marker(("-> tool/function_call\n[",), where="start"),
        ),
        "pangu_list": _begun("[unused11]"),
        "pangu2_list": _begun("<|tool_call_start|>"),
        "qwen25_coder_tools": (*_begun("<tools>"), *_HERMES),
        "rwkv_fence": (*_begun("**Tool Call:**", SPACES, "```json"), *_HERMES),
        "json_begin_end": (Marker(("JSON_BEGIN", SPACES, "{"), where="line_start"),),
    },
    tags={
        "granite_list": (
            Tag(
                ("Here", Either((" is", "'s")), " my thought process:"),
                closings=("Here is my response:", "Here's my response:"),
                where="start",
            ),
            Tag(("<|/tool_call|>",)), Tag(("<response>",)), Tag(("</response>",)),
        ),
        "tool_calls_list": (
            Tag(("Here are my reasoning steps:",), closings=("[BEGIN FINAL RESPONSE]",), where="start"),
            Tag(("[BEGIN FINAL RESPONSE]",)), Tag(("[END FINAL RESPONSE]",), line_feeds=1),
        ),
        "hunyuan_a13b_list": _on_lines("<answer>", "</answer>"),
        "pangu_list": (Tag(("[unused16]",), closings=("[unused17]",)), Tag(("[unused10]",))),
        "qwen25_coder_tools": after_call("</tool_call>"),
        "ernie45_json": (
            *_on_lines("<response>", "</response>"), Tag(("<|role_end|>",)),
        ),
        "hyperclovax_think": (
            Tag(("/think\n",), closings=("<|im_end|>",), where="start"),
            Tag(("<|im_start|>assistant/think\n",), closings=("<|im_end|>",)),
            Tag(("<|im_start|>assistant\n",)),
            Tag(("<|im_end|>",)),
        ),
        "longcat_json": (Tag(("<longcat_think>",), closings=("</longcat_think>",)),),
        "apertus_list": (
            Tag(("<|inner_prefix|>",), closings=("<|inner_suffix|>",)), Tag(("<|inner_suffix|>",)),
        ),
    },
    envelopes=frozenset(
        {
            "granite_list", "granite20b_function_call", "internlm2", "interns1", "tool_calls_list", "toolcall_list",
            "functools_list", "cohere_legacy_action", "hunyuan_a13b_list", "ernie45_json", "longcat_json",
            "json_begin_end", "hyperclovax_think", "lm_studio",
        }
    ),
)  # fmt: skip

"""Tests of the tokens that end a message. A server may not remove them."""

from __future__ import annotations

from typing import Any

from streamtools.parsing.dialects import DIALECTS
from tests.support.cases import together
from tests.support.reading import call, error, read, warning

f = call("f")
BROKEN, UNCLOSED = error("invalid_json"), warning("missing_close")

CLOSED = {
    "hermes_json": ("</tool_call>", "<|im_end|>"),
    "ernie45_json": ("</tool_call>", "</s>"),
    "internlm2": ("<|action_end|>", "<|im_end|>"),
    "longcat_json": ("</longcat_tool_call>", "</longcat_s>"),
    "tool_calls_list": ("</tool_calls>", "<|end|>"),
    "toolcall_list": ("</TOOLCALL>", "<SPECIAL_12>"),
    "hunyuan_a13b_list": ("</tool_calls>", "<|eos|>"),
    "apertus_list": ("<|tools_suffix|>", "<|assistant_end|>"),
}
"""Dialects whose calls are JSON: the tag that closes them, and the token of their templates."""
OTHERS = {
    "granite_list": "<|end_of_text|>",
    "granite20b_function_call": "<|endoftext|>",
    "functools_list": "<|end|>",
    "cohere_legacy_action": "<|END_OF_TURN_TOKEN|>",
    "llama3_json": "<|eom_id|>",
    "llama31_function_tag": "<|eot_id|>",
    "mistral_list": "</s>",
    "mistral_args": "</s>",
    "kimi_k2": "<|im_end|>",
    "functionary_v32": "<|eot_id|>",
    "gigachat3": "</s>",
    "xlam_json": "<|eot_id|>",
    "qwen3_coder_xml": "<|im_end|>",
    "k_exaone2_xml": "<|endoftext|>",
    "seed_oss_xml": "<seed:eos>",
    "glm_xml": "<|observation|>",
    "step3_xml": "<|EOT|>",
    "deepseek_dsml": "<｜end▁of▁sentence｜>",
    "minimax_m2_xml": "[e~[",
    "minimax_m3_xml": "[e~[",
    "minicpm5_xml": "<|im_end|>",
    "pythonic": "<|eom_id|>",
    "pythonic_llama4": "<|eot|>",
    "olmo3_pythonic": "<|endoftext|>",
    "lfm2_pythonic": "<|im_end|>",
    "gemma4": "<turn|>",
    "functiongemma": "<end_of_turn>",
}


@together(("dialect", "token"), [*((dialect, token) for dialect, (_, token) in CLOSED.items()), *OTHERS.items()])
def test_an_end_token_after_a_call_is_hidden(dialect: str, token: str) -> None:
    """Only white space may precede it. Elsewhere it is text."""
    options: dict[str, Any] = {"dialects": [dialect], "tools": [{"name": "f"}]}
    text = DIALECTS[dialect].write_call("f", {})

    assert [f] == read(text + token, **options)
    assert [f, "\n a"] == read(f"{text}\n{token} a", **options)
    assert [f, f" a{token}"] == read(f"{text} a{token}", **options)
    assert [f"a{token}"] == read(f"a{token}", **options)


@together(("dialect", "tokens"), CLOSED.items())
def test_an_end_token_may_replace_the_closing_tag(dialect: str, tokens: tuple[str, str]) -> None:
    """A call with malformed JSON is still an error."""
    closing, token = tokens
    text = DIALECTS[dialect].write_call("f", {}).removesuffix(closing)

    assert [f, UNCLOSED] == read(text + token, dialects=[dialect])
    assert [f, UNCLOSED] == read(f"{text}\n{token}", dialects=[dialect])
    assert [BROKEN] == read(text.rstrip("\n]}") + token, dialects=[dialect])

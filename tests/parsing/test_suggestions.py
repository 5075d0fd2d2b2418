"""`dialects_for`: which dialects a model writes, from the names that people, hubs and servers give to it."""

from __future__ import annotations

import re

import pytest

import streamtools
from streamtools.parsing import DIALECTS, dialects_for

BEST = {
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3_coder_xml",
    "qwen3-coder:480b-cloud": "qwen3_coder_xml",
    "Qwen/Qwen3.5-35B-A3B": "qwen3_coder_xml",
    "qwen3:8b": "hermes_json",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "hermes_json",
    "Qwen/Qwen2.5-7B-Instruct-GGUF": "hermes_json",
    "qwen2.5-coder:32b": "hermes_json",
    "Qwen/QwQ-32B": "hermes_json",
    "NousResearch/Hermes-3-Llama-3.1-8B": "hermes_json",
    "hermes3:70b": "hermes_json",
    "ibm-granite/granite-4.0-h-small": "hermes_json",
    "granite3.3:8b": "granite_list",
    "ibm-granite/granite-20b-functioncalling": "granite20b_function_call",
    "deepseek-ai/DeepSeek-V3.1": "deepseek_v31",
    "accounts/fireworks/models/deepseek-v3p1-terminus": "deepseek_v31",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek_v3",
    "deepseek-r1:671b": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3.2": "deepseek_dsml",
    "gpt-oss-20b": "harmony",
    "openai/gpt-oss-120b": "harmony",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_json",
    "llama3.3:70b": "llama3_json",
    "accounts/fireworks/models/llama-v3p1-70b-instruct": "llama3_json",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "pythonic_llama4",
    "Team-ACE/ToolACE-2-Llama-3.1-8B": "pythonic",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral_list",
    "mistral-nemo:12b": "mistral_list",
    "mistralai/Mistral-Small-24B-Instruct-2501": "mistral_list",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral_args",
    "mistralai/Devstral-Small-2507": "mistral_args",
    "mistralai/Magistral-Small-2509": "mistral_args",
    "zai-org/GLM-4.5-Air": "glm_xml",
    "glm-4.7-flash": "glm_xml",
    "moonshotai/Kimi-K2-Instruct-0905": "kimi_k2",
    "moonshotai/Kimi-K3": "kimi_k3_xtml",
    "MiniMaxAI/MiniMax-M2.1": "minimax_m2_xml",
    "ByteDance-Seed/Seed-OSS-36B-Instruct": "seed_oss_xml",
    "LGAI-EXAONE/K-EXAONE-2": "k_exaone2_xml",
    "google/gemma-4-31b-it": "gemma4",
    "google/functiongemma-270m-it": "functiongemma",
    "internlm/internlm2_5-7b-chat": "internlm2",
    "ai21labs/AI21-Jamba-1.5-Mini": "tool_calls_list",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "toolcall_list",
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B": "qwen3_coder_xml",
    "CohereLabs/c4ai-command-r7b-12-2024": "cohere_action_json",
    "CohereLabs/command-a-03-2025": "cohere_action_json",
    "LiquidAI/LFM2.5-1.2B-Instruct": "lfm2_pythonic",
    "allenai/OLMo-3-32B-Think": "olmo3_pythonic",
    "meituan-longcat/LongCat-Flash-Chat": "longcat_json",
    "microsoft/Phi-4-mini-instruct": "functools_list",
    "tencent/Hunyuan-A13B-Instruct": "hunyuan_a13b_list",
    "swiss-ai/Apertus-8B-Instruct-2509": "apertus_list",
    "claude-sonnet-4-5": "anthropic_xml",
}
"""By the name of a model, the dialect that it writes."""

UNKNOWN = (
    "",
    "gpt-4o",
    "meta-llama/Llama-2-7b-chat-hf",
    "some-llama-33b",
    "my-own-model",
    "deepseek",
    "notqwen3",
    "qwen-32b",
)


@pytest.mark.parametrize("name", BEST)
def test_the_best_comes_first(name: str) -> None:
    """In whatever case the name is written, and with other marks between its words."""
    assert BEST[name] == dialects_for(name)[0]
    assert dialects_for(name) == dialects_for(name.upper()) == dialects_for(name.replace("-", "_"))


@pytest.mark.parametrize("name", UNKNOWN)
def test_nothing_is_said_of_other_models(name: str) -> None:
    """A wrong dialect hides text; none costs nothing."""
    assert () == dialects_for(name)


def test_several_are_told_from_the_best_to_the_rest() -> None:
    """A name says what a model is, and behind it what it is made of."""
    assert ("qwen3_coder_xml", "hermes_json") == dialects_for("qwen3-coder")
    assert ("hermes_json", "llama3_json") == dialects_for("Hermes-3-Llama-3.1-8B")


def test_they_can_be_armed() -> None:
    """What is suggested is what a parser takes."""
    text = '<tool_call>{"name": "now"}</tool_call>'

    assert ["now"] == [
        call.name for call in streamtools.parse(text, dialects=streamtools.dialects_for("qwen3:8b")).calls
    ]


def test_patterns_are_of_lower_case() -> None:
    """Each is a pattern, matches something, and no name holds the marks that are written alike."""
    for dialect in DIALECTS.values():
        for pattern in dialect.models:
            assert re.compile(pattern)
            assert pattern == pattern.lower()
            assert not re.fullmatch(pattern, "")

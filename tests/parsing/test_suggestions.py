"""Tests of `dialects_for` and `families_for`: the dialects of a model, by its name."""

from __future__ import annotations

import re

import streamtools
from streamtools.parsing import DIALECTS, ModelFamily, dialects_for, families_for
from streamtools.parsing.dialects import MODELS
from tests.support.cases import together

BEST = {
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3_coder_xml",
    "qwen3:8b": "hermes_json",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "hermes_json",
    "Qwen/QwQ-32B": "hermes_json",
    "ibm-granite/granite-4.0-h-small": "hermes_json",
    "granite3.3:8b": "granite_list",
    "ibm-granite/granite-20b-functioncalling": "granite20b_function_call",
    "deepseek-ai/DeepSeek-V3.1": "deepseek_v31",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek_v3",
    "deepseek-ai/DeepSeek-V3.2": "deepseek_dsml",
    "gpt-oss-20b": "harmony",
    "openai/gpt-oss-120b": "harmony",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_json",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "pythonic_llama4",
    "Team-ACE/ToolACE-2-Llama-3.1-8B": "pythonic",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral_list",
    "mistral-nemo:12b": "mistral_list",
    "mistralai/Mistral-Small-3.2-24B-Instruct-2506": "mistral_args",
    "mistralai/Magistral-Small-2509": "mistral_args",
    "zai-org/GLM-4.5-Air": "glm_xml",
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
    "CohereLabs/c4ai-command-r7b-12-2024": "cohere_action_json",
    "CohereLabs/command-a-03-2025": "cohere_action_json",
    "LiquidAI/LFM2.5-1.2B-Instruct": "lfm2_pythonic",
    "allenai/OLMo-3-32B-Think": "olmo3_pythonic",
    "meituan-longcat/LongCat-Flash-Chat": "longcat_json",
    "microsoft/Phi-4-mini-instruct": "functools_list",
    "tencent/Hunyuan-A13B-Instruct": "hunyuan_a13b_list",
    "swiss-ai/Apertus-8B-Instruct-2509": "apertus_list",
    "claude-sonnet-4-5": "anthropic_xml",
    "mistralai/Ministral-8B-Instruct-2410": "mistral_list",
    "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16": "qwen3_coder_xml",
    "stepfun-ai/step3": "step3_xml",
    "arcee-ai/Trinity-Mini": "hermes_json",
    "MiniMaxAI/MiniMax-M1-80k": "tool_calls_list",
    "inclusionAI/Ring-2.6-1T": "glm_xml",
    "LGAI-EXAONE/EXAONE-4.0.1-32B": "hermes_json",
    "internlm/Intern-S1-Pro": "internlm2",
    "tencent/Hy3-preview": "hunyuan_xml",
    "CohereLabs/command-a-plus-05-2026-bf16": "cohere_action_json",
    "ai-sage/GigaChat3.5-432B-A28B": "gigachat35",
    "IFM/K2-Horizon-MoVA-36B-A4B": "k2_horizon",
    "IFM/Jais-3-32B": "k2_horizon",
    "upstage/Solar-Open-100B": "solar_open",
    "upstage/Solar-Open2-250B": "solar_open2",
    "naver-hyperclovax/HyperCLOVAX-SEED-Think-14B": "hyperclovax_think",
    "pfnet/plamo-3-nict-31b-base": "plamo3",
    "rednote-hilab/dots.llm1.inst": "dots_xml",
    "IQuestLab/IQuest-Q1": "iquest_q1",
    "Qwen/Qwen2.5-Coder-32B-Instruct": "qwen25_coder_tools",
    "THUDM/GLM-4-9B-0414": "glm4_lines",
    "mlx-community/GLM-4-32B-0414-4bit": "glm4_lines",
    "tencent/Hy4": "hunyuan4_xml",
    "meituan-longcat/LongCat-Flash-Thinking-2601": "longcat_xml",
    "mlx-community/LongCat-Flash-Lite-4bit": "longcat_xml",
    "meituan-longcat/LongCat-2.0": "longcat_xml",
    "meituan-longcat/LongCat-Flash-Thinking-2509": "longcat_json",
    "stepfun-ai/Step-Audio-2-mini": "step_audio2",
    "Tele-AI/TeleChat4-100B": "telechat4_xml",
    "XingChen4-36B": "telechat4_xml",
    "Xing4.0-100B": "telechat4_xml",
    "iflytek/Spark3-Chat": "glm_xml",
    "upstage/Solar-Pro-4": "solar_open2",
    "IQuestLab/IQuest-Coder-V1-40B-Loop-Thinking": "qwen3_coder_xml",
    "IQuestLab/IQuest-Coder-V2-40B": "iquest_coder2",
    "Zyphra/ZAYA1-8B": "zaya_xml",
    "sbintuitions/sarashina2.2-3b-instruct-v0.1": "sarashina_list",
    "FreedomIntelligence/openPangu-Embedded-7B-V1.1": "pangu_list",
    "openPangu-2.0-Flash": "pangu2_list",
    "openPangu-R-72B-V2": "pangu2_list",
    "BlinkDL/rwkv7-g1": "rwkv_fence",
    "Kolibri-1-30B": "qwen3_coder_xml",
    "BerryLM-8B": "qwen3_coder_xml",
    "openbmb/MiniCPM4-8B": "minicpm4_python",
    "openbmb/MiniCPM5-1B": "minicpm5_xml",
    "google/gemma-3-27b-it": "tool_code",
    # of hubs, servers and files
    "unsloth/Qwen2.5-7B-Instruct-bnb-4bit": "hermes_json",
    "Meta-Llama-3.1-8B-Instruct-IQ2_M.gguf": "llama3_json",
    "deepseek.r1-v1:0": "deepseek_v3",
    "library/mistral-small3.2:24b": "mistral_args",
    "hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M": "hermes_json",
    "deepseek/deepseek-chat-v3.1:free": "deepseek_v31",
    "Tele-AI/TeleChat2-7B": "hermes_json",
    "watt-ai/watt-tool-8B": "pythonic",
    "Mistral-Small-3.1-24B-Instruct-2503-Q4_K_M.gguf": "mistral_list",
    "z-ai/glm-4.5-air:free": "glm_xml",
    "xiaomi/mimo-v2-flash:free": "qwen3_coder_xml",
    "gemma3:12b-it-qat": "tool_code",
    # fine-tunes that no one lists
    "acme/support-agent-qwen2_5-7b-lora": "hermes_json",
}
"""By the name of a model, the dialect that it writes."""

UNKNOWN = (
    *("", "gpt-4o", "meta-llama/Llama-2-7b-chat-hf", "some-llama-33b", "my-own-model", "deepseek", "notqwen3"),
    *("qwen-32b", "tencent/Hunyuan-7B-Instruct", "internlm/internlm3-8b-instruct", "THUDM/glm-4-9b-chat"),
    *("chatglm3-6b", "gemini-2.5-pro", "o3-mini"),
)


@together("name", BEST)
def test_dialects_are_found_for_all_spellings_of_a_name(name: str) -> None:
    """The best comes first."""
    assert BEST[name] == dialects_for(name)[0]
    assert dialects_for(name) == dialects_for(name.upper()) == dialects_for(name.replace("-", "_"))


@together("name", UNKNOWN)
def test_unknown_models_have_no_dialects(name: str) -> None:
    """A wrong dialect hides text."""
    assert () == dialects_for(name)


def test_several_families_are_ordered_best_first() -> None:
    """A name holds the model, and after it the base model."""
    assert ("qwen3_coder_xml", "hermes_json") == dialects_for("qwen3-coder")
    assert ("hermes_json", "llama3_json") == dialects_for("Hermes-3-Llama-3.1-8B")


def test_a_parser_accepts_all_suggestions() -> None:
    text = '<tool_call>{"name": "now"}</tool_call>'

    assert ["now"] == [
        call.name for call in streamtools.parse(text, dialects=streamtools.dialects_for("qwen3:8b")).calls
    ]


@together("family", MODELS, ids=lambda family: family.name)
def test_each_family_matches_its_name_and_has_a_source(family: ModelFamily) -> None:
    """Its dialects exist, and its pattern is in lower case."""
    assert set(family.dialects) <= set(DIALECTS)
    assert bool(family.dialects) or family.native
    assert family.source
    assert "://" not in family.source
    assert family.pattern == family.pattern.lower()
    assert not re.fullmatch(family.pattern, "")


def test_the_table_covers_many_models_without_duplicates() -> None:
    assert len(MODELS) == len({family.name for family in MODELS}) == len({family.pattern for family in MODELS}) >= 120


@together(
    ("name", "family", "inside"),
    [
        ("Qwen/Qwen3.5-4B", "Qwen 3.5", True),
        ("qwen3:8b", "Qwen 3", False),
        ("Qwen/Qwen3-4B-Thinking-2507", "Qwen 3 Thinking 2507", True),
        ("Qwen/Qwen3-4B-Instruct-2507", "Qwen 3 Instruct 2507", False),
        ("deepseek-ai/DeepSeek-V3.1", "DeepSeek V3.1", None),
        ("unsloth/GLM-4.7-Flash-GGUF", "GLM 4.7 Flash", True),
        ("moonshotai/Kimi-K2.6", "Kimi K2.5", True),
        ("gpt-5-mini", "GPT", False),
        ("chatgpt-4o-latest", "GPT", False),
        ("qwen3-max", "Qwen Max, Plus, Turbo", False),
    ],
)
def test_a_family_knows_if_answers_begin_in_reasoning(name: str, family: str, inside: bool | None) -> None:
    assert (family, inside) == (families_for(name)[0].name, families_for(name)[0].in_reasoning)


def test_models_of_an_api_call_natively() -> None:
    """Only a dialect that prompts teach is suggested for them."""
    assert {"GPT", "Gemini", "Claude", "Grok"} <= {family.name for family in MODELS if family.native}
    assert not families_for("qwen3:8b")[0].native

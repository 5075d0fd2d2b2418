"""Finds the dialects that a model writes, by the name of the model. The table lists model families and their sources.

Model names have many spellings: `Qwen/Qwen3-8B`, `qwen3:8b`, `accounts/fireworks/models/qwen3-8b`, `llama-v3p1-8b`,
`unsloth/Qwen3-8B-bnb-4bit`, `Qwen3-8B-Q4_K_M.gguf`. A name may contain two families: first the model, and after it the
model on which it is based. So the family whose match begins first in the name is the best. Of two matches that begin
at the same character, the longer one is better. A fine-tuned model that is not listed is found by the base model in its
name.

The source of a family is one of these:

- a chat template in llama.cpp;
- a parser in the registries of vLLM 0.33 or SGLang 0.5.23, or the options in their recipes and cookbooks;
- the tables of Dynamo, prime-rl and smg;
- a publication of the maker of the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Final, NamedTuple, TypeAlias

THINK: Final = "<think>"

_Find: TypeAlias = "Callable[[str], re.Match[str] | None]"


class ModelFamily(NamedTuple):
    """Models that write calls and reasoning in the same way."""

    name: str
    pattern: str
    """A regular expression for the model names in lower case, with dashes instead of underscores and spaces."""
    dialects: tuple[str, ...]
    """The ids of the dialects that the models write, best first. () if the models write no calls in text."""
    reasoning: str
    """The tag that opens reasoning. "" if the models write no reasoning."""
    in_reasoning: bool | None
    """True if an answer begins inside reasoning, without an opening tag. This is the option `in_reasoning` of a parser.

    None if this depends on the request, which can turn reasoning on or off.
    """
    source: str

    @property
    def native(self) -> bool:
        """True if the models are available only from the API of their maker. All their calls are then native."""
        return self.source.endswith(" API")


_ROWS: tuple[tuple[str, str, str, str, bool | None, str], ...] = (
    # Qwen
    ("Qwen 2.5", r"qwen-?2[.-]?5", "hermes_json", "", False, "@Qwen-Qwen2.5-7B-Instruct"),
    ("Qwen 2.5 Coder", r"qwen-?2[.-]?5-coder", "qwen25_coder_tools hermes_json", "", False, "vLLM pull request 33083"),
    ("QwQ", "qwq", "hermes_json", THINK, True, "@Qwen-QwQ-32B"),
    ("Qwen 3", "qwen-?3", "hermes_json", THINK, False, "@Qwen-Qwen3-0.6B"),
    ("Qwen 3 Instruct 2507", r"qwen-?3-\d.*instruct", "hermes_json", "", False, "prime-rl table: hermes"),
    ("Qwen 3 Thinking 2507", "qwen-?3-.*thinking", "hermes_json", THINK, True, "prime-rl table: hermes"),
    ("Qwen 3 Next, VL", "qwen-?3-(?:next|vl)", "hermes_json", THINK, None, "SGLang docs: parser qwen"),
    ("Qwen 3 Coder", "qwen-?3[-.]?coder", "qwen3_coder_xml", "", False, "@Qwen3-Coder"),
    ("Qwen 3.5", r"qwen-?3\.5", "qwen3_coder_xml", THINK, True, "@Qwen3.5-4B"),
    ("Qwen 3.6, 3.8", r"qwen-?3\.[6-9]", "qwen3_coder_xml", THINK, True, "smg model mapping: qwen_xml"),
    ("Qwen Max, Plus, Turbo", r"qwen-?(?:3(?:\.\d)?-)?(?:max|plus|turbo)", "", "", False, "Model Studio API"),
    # DeepSeek
    ("DeepSeek V3", r"deepseek-(?:chat-)?v3(?!\.\d)", "deepseek_v3", "", False, "vLLM parser deepseek_v3"),
    ("DeepSeek R1", "(?:deepseek[-.](?:tng-)?|mai-ds-)r1", "deepseek_v3", THINK, True, "vLLM parser deepseek_v3"),
    ("DeepSeek R1 Distill", "deepseek-r1-distill", "deepseek_v3", THINK, True,
     "@deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
    ("DeepSeek V3.1", r"deepseek.*v3\.1", "deepseek_v31", THINK, None, "@deepseek-ai-DeepSeek-V3.1"),
    ("DeepSeek V3.2 Exp", r"deepseek.*v3\.2-exp", "deepseek_v31 deepseek_dsml", THINK, None,
     "SGLang docs: parser deepseekv31"),
    ("DeepSeek V3.2", r"deepseek.*v3\.2", "deepseek_dsml", THINK, None, "@deepseek-ai-DeepSeek-V3.2"),
    ("DeepSeek V4", "deepseek.*v4", "deepseek_dsml", THINK, None, "@deepseek-ai-DeepSeek-V4"),
    ("DeepSeek V4.1", r"deepseek.*v4\.1", "deepseek_dsml", THINK, None, "vLLM parser deepseek_v41"),
    ("TNG R1T2 Chimera", "(?:deepseek-)?(?:tng-)?r1t2", "hermes_json deepseek_v3", THINK, True,
     "vLLM pull request 21456: hermes"),
    ("DeepSeek's own names", "deepseek-(?:chat|reasoner)(?!-v)", "", "", False, "DeepSeek API"),
    ("Cogito", "cogito", "deepseek_v3", THINK, None, "Ollama parser cogito"),
    # Llama, and models based on it
    ("Llama 3.1", "llama-?v?3[.-]1", "llama3_json", "", False, "@meta-llama-Llama-3.1-8B-Instruct"),
    ("Llama 3.2", "llama-?v?3[.-]2", "llama3_json pythonic", "", False, "@meta-llama-Llama-3.2-3B-Instruct"),
    ("Llama 3.3", "llama-?v?3[.-]3", "llama3_json pythonic", "", False, "@meta-llama-Llama-3.3-70B-Instruct"),
    ("Llama 4", "llama-?v?4", "pythonic_llama4 llama3_json", "", False, "vLLM parser llama4_pythonic"),
    ("watt-tool", "watt-?tool", "pythonic", "", False, "model card of watt-tool-8B"),
    ("ToolACE, Ultravox ToolACE", "(?:ultravox.*)?toolace", "pythonic", "", False, "vLLM docs: parser pythonic"),
    ("xLAM 2", "(?:llama-?|qwen-?)?xlam", "xlam_json", "", False, "vLLM parser xlam"),
    ("FireFunction 2", "(?:llama-3-)?firefunction", "functools_list", "", False,
     "@fireworks-ai-llama-3-firefunction-v2"),
    ("Functionary 3.1", "functionary.*3[.-]?1", "llama31_function_tag", "", False, "@meetkai-functionary-medium-v3.1"),
    ("Functionary 3.2", "functionary.*3[.-]2", "functionary_v32", "", False, "@meetkai-functionary-medium-v3.2"),
    ("Hermes", "(?:deep-?)?hermes(?!-agent)", "hermes_json", THINK, False, "vLLM parser hermes"),
    ("Hermes 2 Pro, 2 Theta, 3", "hermes-?(?:2-pro|2-theta|3)", "hermes_json", "", False, "vLLM docs: parser hermes"),
    # Nemotron
    ("Llama Nemotron Nano, Ultra, Super 1.5", r"llama-?3[.-]1-nemotron-(?:nano|ultra)|nemotron-super-.*v1\.?5",
     "toolcall_list", THINK, None, "Dynamo table: nemotron_deci"),
    ("Llama Nemotron Super", "llama-?3[.-]3-nemotron-super", "toolcall_list", THINK, None,
     "@nvidia-Llama-3_3-Nemotron-Super-49B-v1_5"),
    ("Nemotron Nano 2", "nemotron-nano-.*v2", "toolcall_list", THINK, True, "@NVIDIA-Nemotron-Nano-v2"),
    ("Nemotron 3 Nano", "nemotron-?3-nano", "qwen3_coder_xml", THINK, True, "@NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"),
    ("Nemotron 3 Nano Omni", "nemotron-?3-nano-omni", "qwen3_coder_xml", THINK, None, "smg model mapping: nemotron-3"),
    ("Nemotron 3, Super, Ultra", "nemotron-?3", "qwen3_coder_xml", THINK, True, "smg model mapping: nemotron-3"),
    ("Nemotron 3.5 Lightning", r"nemotron-?3\.5", "qwen3_coder_xml", THINK, True, "vLLM recipe: qwen3_xml"),
    # Mistral
    ("Mistral, Mistral 7B", "mistral(?![a-z])(?:-?7b)?", "mistral_list", "", False, "vLLM docs: parser mistral"),
    ("Mistral, latest", "mi(?:ni)?stral-(?:small|medium|large|\\d+b)-latest", "mistral_args", "", False,
     "mistral-common tokenizer v13"),
    ("Mixtral", "mixtral", "mistral_list", "", False, "smg model mapping: mistral"),
    ("Mathstral, Pixtral", "mathstral|pixtral", "mistral_list", "", False, "mistral-common tokenizer v3"),
    ("Mistral Nemo", "mistral-?nemo", "mistral_list", "", False, "@mistralai-Mistral-Nemo-Instruct-2407"),
    ("Mistral Small 3.1", r"mistral-small-?3\.1", "mistral_list", "", False,
     "@mistralai-Mistral-Small-3.1-24B-Instruct-2503"),
    ("Mistral Small 3.2", r"mistral-small-?(?:3\.2|2506)", "mistral_args", "", False,
     "@Mistral-Small-3.2-24B-Instruct-2506"),
    ("Mistral Small 4", "mistral-small-?(?:4|26\\d\\d)", "mistral_args", "[THINK]", False, "vLLM recipe: mistral"),
    ("Mistral Medium 3", "mistral-medium-?(?:3|25\\d\\d)", "mistral_args", "", False, "mistral-common tokenizer v11"),
    ("Mistral Medium 3.5", r"mistral-medium-?3\.5", "mistral_args", "[THINK]", False, "SGLang cookbook: mistral"),
    ("Mistral Large 3", "mistral-large-?(?:3|2512)", "mistral_args", "", False, "vLLM recipe: mistral"),
    ("Ministral 8B", "ministral", "mistral_list", "", False, "mistral-common tokenizer v3"),
    ("Ministral 3", "ministral-?(?:3(?!b)|.*2512)", "mistral_args", "[THINK]", False,
     "@mistralai-Ministral-3-14B-Reasoning-2512"),
    ("Devstral", "devstral", "mistral_args", "", False, "@unsloth-mistral-Devstral-Small-2507"),
    ("Devstral 2", "devstral-(?:small-)?2(?!5)", "mistral_args", "", False, "SGLang cookbook: mistral"),
    ("Magistral", "magistral", "mistral_args", "[THINK]", False, "Dynamo table: mistral"),
    # GLM
    ("GLM 4 0414", "glm-?(?:4|z1)-.*0414", "glm4_lines", "", False, "mlx-swift-lm issue 491"),
    ("GLM 4.5, Air, V", r"glm-?4\.5", "glm_xml", THINK, None, "vLLM docs: parser glm45"),
    ("GLM 4.6", r"glm-?4\.6", "glm_xml", THINK, None, "@GLM-4.6"),
    ("GLM 4.7", r"glm-?4\.[7-9]", "glm_xml", THINK, True, "vLLM docs: parser glm47"),
    ("GLM 4.7 Flash", r"glm-?4\.7-flash", "glm_xml", THINK, True, "@GLM-4.7-Flash"),
    ("GLM 5, 5.1, 5.3", "glm-?[5-9](?!b)", "glm_xml", THINK, True, "prime-rl table: glm47"),
    ("INTELLECT 3", "intellect-?3", "hermes_json", THINK, None, "prime-rl table: hermes"),
    # Kimi
    ("Kimi K2", "kimi-?k2", "kimi_k2", "", False, "@moonshotai-Kimi-K2"),
    ("Kimi K2 Thinking", "kimi-?k2-thinking", "kimi_k2", THINK, False, "@Kimi-K2-Thinking"),
    ("Kimi K2.5", r"kimi-?k2\.[5-9]", "kimi_k2", THINK, True, "Dynamo table: kimi_k25"),
    ("Kimi Linear", "kimi-?linear", "kimi_k2", "", False, "SGLang cookbook: kimi_k2"),
    ("Kimi K3", "kimi-?k3", "kimi_k3_xtml", "<|open|>think<|sep|>", True, "@Kimi-K3"),
    ("Moonshot", "moonshot-v1|kimi-latest", "", "", False, "Moonshot API"),
    # MiniMax
    ("MiniMax M1", "minimax-?m1", "tool_calls_list", THINK, False, "@MiniMax-M1"),
    ("MiniMax M2, M2.1, M2.5", "(?:minimax|mm)[-.]?m2", "minimax_m2_xml", THINK, True, "@MiniMax-M2"),
    ("MiniMax M3", "(?:minimax|mm)[-.]?m3", "minimax_m3_xml", "<mm:think>", False, "@MiniMax-M3"),
    # OpenAI and Google
    ("gpt-oss, safeguard", "gpt-?oss", "harmony", "<|channel|>analysis", False, "@openai-gpt-oss-120b"),
    ("GPT", r"(?:chat)?gpt-(?:3\.5|4|4o|5)", "", "", False, "OpenAI API"),
    ("OpenAI o", "o[134](?:-mini|-pro)?(?![a-z0-9.])", "", "", False, "OpenAI API"),
    ("Gemma 4", "gemma-?4", "gemma4", "<|channel>thought", False, "@google-gemma-4-31B-it"),
    ("Gemma 3", "gemma-?3", "tool_code", "", False, "Google's guide to function calling with Gemma"),
    ("FunctionGemma", "function-?gemma", "functiongemma", "", False, "vLLM docs: parser functiongemma"),
    ("Gemini", "gemini", "", "", False, "Gemini API"),
    # Anthropic, xAI, Amazon
    ("Claude", "claude", "anthropic_xml", "", False, "Anthropic API"),
    ("Grok", "grok", "", "", False, "xAI API"),
    ("Nova", "nova-(?:micro|lite|pro|premier)", "", "", False, "Bedrock API"),
    # IBM
    ("Granite 20B", "granite-20b", "granite20b_function_call", "", False, "vLLM parser granite-20b-fc"),
    ("Granite 3.0, 3.1", r"granite-?3(?:\.[01])?", "granite_list", "", False, "vLLM docs: parser granite"),
    ("Granite 3.2", r"granite-?3\.2", "granite_list", "Here is my thought process:", None,
     "vLLM reasoning parser granite"),
    ("Granite 3.3", r"granite-?3\.3", "granite_list granite_lines", THINK, None,
     "@ibm-granite-granite-3.3-2B-Instruct"),
    ("Granite 4.0", r"granite-?4(?!\.[1-9])(?:\.0)?", "hermes_json granite_lines", "", False,
     "@ibm-granite-granite-4.0"),
    ("Granite 4.1", r"granite-?4\.1", "hermes_json", "", False, "@ibm-granite-granite-4.1"),
    ("Granite 4.2", r"granite-?4\.2", "qwen3_coder_xml", THINK, True, "vLLM reasoning parser granite_thinking_parser"),
    # Cohere
    ("Command R", "command-?r(?!7b)", "cohere_legacy_action", "", False, "@CohereForAI-c4ai-command-r-plus-tool_use"),
    ("Command R7B", "command-?r7b", "cohere_action_json", "<|START_THINKING|>", False,
     "@CohereForAI-c4ai-command-r7b-12-2024-tool_use"),
    ("Command A", "command-?a(?![a-z])", "cohere_action_json", "", False, "vLLM parser cohere_command3"),
    ("Command A Reasoning", "command-?a-reasoning", "cohere_action_json", "<|START_THINKING|>", None,
     "vLLM docs: parser cohere_command3"),
    ("Command A Plus", "command-?a-plus", "cohere_action_json", "<|START_THINKING|>", None,
     "vLLM docs: parser cohere_command4"),
    ("Cohere 2 MoE", "cohere-?2", "cohere_action_json", "<|START_THINKING|>", True, "@Cohere2MoE"),
    ("North Mini Code", "north-mini", "cohere_action_json", "<|START_THINKING|>", True, "vLLM recipe: cohere_command4"),
    # AI21, ServiceNow, Liquid, AllenAI, Swiss AI
    ("Jamba", "jamba", "tool_calls_list", "", False, "vLLM docs: parser jamba"),
    ("Apriel 1.5", "apriel", "tool_calls_list", "Here are my reasoning steps:", False, "@unsloth-Apriel-1.5"),
    ("Apriel 1.6", r"apriel-?1\.6", "tool_calls_list", "Here are my reasoning steps:", True,
     "@Apriel-1.6-15b-Thinker-fixed"),
    ("LFM 2, LFM 2.5", "lfm-?2", "lfm2_pythonic", "", False, "@LFM2-8B-A1B"),
    ("LFM 2.5 Thinking", r"lfm-?2\.5-.*(?:thinking|8b-a1b)", "lfm2_pythonic", THINK, False, "@LFM2.5-8B-A1B"),
    ("OLMo 3", r"olmo-?3(?:\.1)?", "olmo3_pythonic", "", False, "vLLM docs: parser olmo3"),
    ("OLMo 3 Think", r"olmo-?3.*think", "olmo3_pythonic", THINK, True, "vLLM reasoning parser olmo3"),
    ("Apertus", "apertus", "apertus_list", "<|inner_prefix|>", False, "@Apertus-8B-Instruct"),
    # Microsoft, Arcee, JetBrains, Hugging Face, Reka, SpeakLeash, Poolside, Thinking Machines, Meta
    ("Phi 4 mini", "phi-?4-mini", "functools_list granite_list", "", False, "vLLM parser phi4_mini_json"),
    ("Trinity", "trinity-(?:nano|mini|large)", "hermes_json qwen3_coder_xml", THINK, False, "SGLang parser trinity"),
    ("Trinity Large Thinking", "trinity-large-thinking", "qwen3_coder_xml hermes_json", THINK, None,
     "vLLM recipe: qwen3_coder"),
    ("Mellum 2", "mellum-?2", "hermes_json", "", False, "vLLM recipe: hermes"),
    ("Mellum 2 Thinking", "mellum-?2.*thinking", "hermes_json", THINK, False, "vLLM recipe: hermes"),
    ("SmolLM 3", "smollm-?3", "hermes_json", THINK, False, "@HuggingFaceTB-SmolLM3-3B"),
    ("Reka", "reka", "hermes_json", THINK, None, "@Reka-Edge"),
    ("Bielik 3", "bielik.*v3", "hermes_json", THINK, None, "@Bielik-11B-v3.0-Instruct"),
    ("Laguna S", "laguna", "poolside_xml", THINK, True, "@poolside-Laguna-S-2.1"),
    ("Laguna XS", "laguna-xs", "poolside_xml", THINK, None, "@poolside-Laguna-XS-2.1"),
    ("Laguna M", r"laguna-m\.?1", "poolside_xml", THINK, None, "SGLang cookbook: poolside_v1"),
    ("CWM", "cwm|code-world-model", "cwm_tool", THINK, None, "prompting guide of facebookresearch/cwm"),
    ("Inkling", "inkling", "inkling", "<|content_thinking|>", False, "vLLM parser inkling"),
    ("Muse Glimmer", "muse-?glimmer", "atem_xml", "to=self<|message|>", False, "@muse-glimmer"),
    ("Muse Spark", "muse-?spark", "atem_xml", "to=self<|message|>", False, "vLLM parser muse"),
    # InternLM, Tencent, ByteDance, Baidu, Meituan, Xiaomi, StepFun, OpenBMB, inclusionAI, Nanbeige, iFlytek
    ("InternLM 2", "internlm-?2", "internlm2", "", False, "vLLM docs: parser internlm"),
    ("Intern S1", "intern-?s1", "internlm2", THINK, None, "SGLang parser interns1"),
    ("Intern S2", "intern-?s2", "qwen3_coder_xml", THINK, True, "vLLM recipe: qwen3_coder"),
    ("Hunyuan A13B", "hunyuan-?a13b", "hunyuan_a13b_list", THINK, False, "vLLM docs: parser hunyuan_a13b"),
    ("Hy 3", "(?:hunyuan|hy)-?(?:v-?)?3(?!b)", "hunyuan_xml", "<think:opensource>", None, "@tencent-Hy3"),
    ("Hy 4", "(?:hunyuan|hy)-?(?:v-?)?4(?!b)", "hunyuan4_xml", "<think:6124c78e>", None, "vLLM parser hy_v4"),
    ("Seed OSS", "seed-?oss", "seed_oss_xml", "<seed:think>", False, "@ByteDance-Seed-OSS"),
    ("ERNIE 4.5", r"ernie-?4\.5", "ernie45_json", THINK, None, "vLLM parser ernie45"),
    ("LongCat Flash", "longcat", "longcat_json longcat_xml", "<longcat_think>", None, "vLLM docs: parser longcat"),
    ("LongCat 2601, Lite, 2.0", r"longcat.*(?:-26\d\d|lite|zigzag|-v?2(?!\d))", "longcat_xml longcat_json",
     "<longcat_think>", None, "mlx-lm pull request 810"),
    ("MiMo VL", "mimo-vl", "hermes_json", THINK, False, "@MiMo-VL"),
    ("MiMo V2 Flash, V2.5", "mimo-?v2", "qwen3_coder_xml", THINK, None, "vLLM parser mimo"),
    ("Step 3", "step-?3(?![.0-9]|-?vl)", "step3_xml", THINK, True, "vLLM parser step3"),
    ("Step 3 VL", "step-?3-?vl", "hermes_json", THINK, True, "SGLang cookbook: hermes"),
    ("Step 3.5, 3.7", r"step-?3\.[57]", "qwen3_coder_xml", THINK, True, "@StepFun3.5-Flash"),
    ("Step Audio 2", "step-audio-?2", "step_audio2", THINK, False, "vLLM parser step_audio_2"),
    ("Step 5", "step-?5", "qwen3_coder_xml", THINK, True, "vLLM parser step5"),
    ("MiniCPM 3", "minicpm-?3", "minicpm4_python", "<|thought_start|>", False, "chat template of MiniCPM3-4B"),
    ("MiniCPM 4", "minicpm-?4", "minicpm4_python", "<|thought_start|>", False, "guide of MiniCPM4-MCP"),
    ("MiniCPM 5", "minicpm-?5", "minicpm5_xml", THINK, False, "@openbmb-MiniCPM5-1B"),
    ("MiniCPM-V 4.6", r"minicpm-?v-?4[.-]6", "qwen3_coder_xml", THINK, None, "vLLM recipe: qwen3_coder"),
    ("Ling 2.5", r"ling-(?:1t|2\.[56])", "hermes_json", "", False, "SGLang cookbook: qwen"),
    ("Ring 2.5", r"ring-(?:1t|2\.5)", "hermes_json", THINK, True, "SGLang cookbook: qwen"),
    ("Ring 2.6", r"ring-2\.6", "glm_xml", THINK, True, "SGLang cookbook: glm"),
    ("Ling 3", r"ling-?3(?:\.0)?", "glm_xml", THINK, True, "@inclusionai-ling-3.0-flash"),
    ("Nanbeige 4", "nanbeige-?4?", "qwen3_coder_xml", THINK, None, "SGLang parser nanbeige"),
    ("TeleChat 2", r"telechat-?2(?:\.5)?", "hermes_json", "", False, "chat template of TeleChat2-7B"),
    ("TeleChat 4, Xing 4", "(?:telechat|xing(?:-?chen)?)-?4", "telechat4_xml", THINK, None, "vLLM parser telechat4"),
    ("Spark 3", "spark-?3", "glm_xml", THINK, None, "vLLM parser spark3"),
    ("Spark 2.5", r"spark-?2\.5", "glm_xml", THINK, True, "@Spark2.5"),
    # LG, Sber
    ("EXAONE 4", r"exaone-?4", "hermes_json", THINK, None, "vLLM pull request 22617: hermes"),
    ("K-EXAONE", "k-?exaone(?!-?2(?!\\d))", "hermes_json", THINK, None, "model card of K-EXAONE-236B-A23B"),
    ("K-EXAONE 2", "k-?exaone-?2", "k_exaone2_xml", THINK, None, "AI SDK tool parser: k-exaone-2"),
    ("GigaChat 3, 3.1", "gigachat-?3", "gigachat3", "", False, "@GigaChat3.1-10B-A1.8B"),
    ("GigaChat 3.5", r"gigachat-?3\.5", "gigachat35", THINK, None, "SGLang parser gigachat35"),
    # IFM, Upstage, Naver, Preferred Networks, rednote, IQuest
    ("K2 Horizon, Jais 3", "k2-?horizon|jais-?3", "k2_horizon", "<ifm|think>", True, "vLLM parser k2_horizon"),
    ("Solar Open", "solar-?open(?!-?2)", "solar_open", "<|think|>", False, "@upstage-Solar-Open-100B"),
    ("Solar Open 2", "solar-?(?:open-?2|pro-?4)", "solar_open2", "<|think:start|>", None,
     "vLLM docs: parser solar_open2"),
    ("HyperCLOVA X SEED Think 32B", "hyperclova-?x-seed-think", "glm_xml", THINK, True, "vLLM pull request 42366"),
    ("HyperCLOVA X SEED Think 14B", "hyperclova-?x-seed-think-14b", "hyperclovax_think", "/think", None,
     "vLLM pull request 44171"),
    ("PLaMo 3", "plamo-?3", "plamo3", "<|plamo:begin_think:plamo|>", True, "vLLM parser plamo3"),
    ("dots", r"dots[.-]?(?:llm|vlm|\d)", "dots_xml", THINK, None, "vLLM parser dots"),
    ("IQuest Q1", "iquest-q1", "iquest_q1", THINK, True, "SGLang parser iquest_q1"),
    ("IQuest Coder V1", "iquest-coder(?!-?v?2)", "qwen3_coder_xml hermes_json", THINK, None, "vLLM: iquest_coder"),
    ("IQuest Coder V2", "iquest-coder-?v?2", "iquest_coder2", THINK, None, "vLLM parser iquest_coder_v2"),
    # Zyphra, SB Intuitions, Huawei, RWKV, others
    ("ZAYA 1", "zaya-?1?", "zaya_xml", THINK, None, "vLLM pull request 42286"),
    ("Sarashina", "sarashina", "sarashina_list", "", False, "smg model mapping: sarashina"),
    ("openPangu Embedded", "(?:open-?)?pangu", "pangu_list", "[unused16]", None, "vLLM parser pangu"),
    ("openPangu V2", "(?:open-?)?pangu(?:.*-v2|-?2)", "pangu2_list", THINK, None, "vLLM parser openpangu_v2"),
    ("RWKV", "rwkv", "rwkv_fence", THINK, None, "vLLM parser rwkv"),
    ("Kolibri 1, BerryLM", "kolibri|berry-?lm", "qwen3_coder_xml", THINK, None, "vLLM parsers kolibri1, berrylm"),
)  # fmt: skip
"""The fields of each `ModelFamily`, with all dialects in one string. A source `@NAME` is a llama.cpp chat template."""

MODELS: Final = tuple(
    ModelFamily(name, pattern, tuple(dialects.split()), reasoning, inside, source.replace("@", "llama.cpp template "))
    for name, pattern, dialects, reasoning, inside, source in _ROWS
)
"""All known model families, grouped by vendor."""

# "3p1" in "llama-v3p1-8b" means "3.1".
_point = re.compile(r"(?<=\d)p(?=\d)")


@lru_cache(maxsize=16)  # a search takes 40 µs; small, because a client of a gateway may send any names
def families_for(model_name: str) -> tuple[ModelFamily, ...]:
    """Return the families that match a model name, best first. Returns () for an unknown name.

    >>> families_for("unsloth/Qwen3.5-4B-GGUF")[0].in_reasoning
    True
    """
    name = _point.sub(".", model_name.lower()).replace("_", "-").replace(" ", "-")
    matches = [((found.start(), -len(found[0])), family) for find, family in _finders() if (found := find(name))]
    return tuple(family for _, family in sorted(matches, key=lambda match: match[0]))


def dialects_for(model_name: str) -> tuple[str, ...]:
    """Return the ids of the dialects that a model of this name writes, best first. Returns () for an unknown name.

    >>> dialects_for("Qwen/Qwen3-8B")
    ('hermes_json',)
    """
    return tuple(dict.fromkeys(id for family in families_for(model_name) for id in family.dialects))


@cache
def _finders() -> list[tuple[_Find, ModelFamily]]:
    """Return the search function of each family. A match begins at the start of a word and does not split a number."""
    return [(re.compile(rf"(?<![a-z0-9])(?:{family.pattern})(?:(?<!\d)|(?!\d))").search, family) for family in MODELS]

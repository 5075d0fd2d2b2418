"""Adapts peers to the conformance suite: the parser for each dialect, and a program that runs it.

`python -m benchmarks.peers.conforming PEER PARTS`, run by the interpreter of the peers' environment, is what
`conformance run --command` starts: a line of JSON for a text, a line back.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.peers import sglang, vllm, whole_text
from benchmarks.peers.adapting import Peer
from benchmarks.peers.judging import Told

SGLANG = {
    "hermes_json": "hermes_detector HermesDetector",
    "qwen3_coder_xml": "qwen3_coder_detector Qwen3CoderDetector",
    "harmony": "gpt_oss_detector GptOssDetector",
    "kimi_k2": "kimik2_detector KimiK2Detector",
    "kimi_k3_xtml": "kimik3_detector KimiK3Detector",
    "cohere_action_json": "cohere_command4_detector CohereCommand4Detector",
    "llama3_json": "llama32_detector Llama32Detector",
    "mistral_list": "mistral_detector MistralDetector",
    "mistral_args": "mistral_detector MistralDetector",
    "deepseek_v3": "deepseekv3_detector DeepSeekV3Detector",
    "deepseek_v31": "deepseekv31_detector DeepSeekV31Detector",
    "deepseek_dsml": "deepseekv4_detector DeepSeekV4Detector",
    "glm_xml": "glm4_moe_detector Glm4MoeDetector",
    "pythonic": "pythonic_detector PythonicDetector",
    "pythonic_llama4": "pythonic_detector PythonicDetector",
    "lfm2_pythonic": "lfm2_detector Lfm2Detector",
    "gemma4": "gemma4_detector Gemma4Detector",
    "minimax_m2_xml": "minimax_m2 MinimaxM2Detector",
    "minimax_m3_xml": "minimax_m3 MinimaxM3Detector",
    "interns1": "internlm_detector InternlmDetector",
    "hunyuan_xml": "hunyuan_detector HunyuanDetector",
    "step3_xml": "step3_detector Step3Detector",
    "poolside_xml": "poolside_v1_detector PoolsideV1Detector",
    "minicpm5_xml": "minicpm5_detector MiniCPM5Detector",
    "gigachat3": "gigachat3_detector GigaChat3Detector",
    "gigachat35": "gigachat35_detector GigaChat35Detector",
    "apertus_list": "apertus2509_detector Apertus2509Detector",
    "inkling": "inkling_detector InklingDetector",
    "atem_xml": "muse_glimmer_detector MuseGlimmerDetector",
    "dots_xml": "dots_detector DotsToolDetector",
    "iquest_q1": "iquest_q1_detector IQuestQ1Detector",
    "k2_horizon": "k2_v3_detector K2V3Detector",
}
"""The detectors by our dialects; each is said as `sglang.load` takes it."""

_TOOL, _ENGINE = "vllm.tool_parsers.", "vllm.parser."
VLLM = {
    "hermes_json": "hermes",
    "qwen3_coder_xml": "qwen3",
    "granite_list": "granite",
    "pythonic": "pythonic",
    "kimi_k2": f"{_ENGINE}kimi_k2 KimiK2Parser",
    "glm_xml": f"{_ENGINE}glm47_moe Glm47MoeParser",
    "gemma4": f"{_ENGINE}gemma4 Gemma4Parser",
    "minimax_m2_xml": f"{_ENGINE}minimax_m2 MinimaxM2Parser",
    "minimax_m3_xml": f"{_ENGINE}minimax_m3 MinimaxM3Parser",
    "deepseek_dsml": f"{_ENGINE}deepseek_v4 DeepSeekV4Parser",
    "seed_oss_xml": f"{_ENGINE}seed_oss SeedOssParser",
    "inkling": f"{_ENGINE}inkling InklingParser",
    "plamo3": f"{_ENGINE}plamo3 Plamo3Parser",
    "llama3_json": f"{_TOOL}llama_tool_parser Llama3JsonToolParser",
    "pythonic_llama4": f"{_TOOL}llama4_pythonic_tool_parser Llama4PythonicToolParser",
    "olmo3_pythonic": f"{_TOOL}olmo3_tool_parser Olmo3PythonicToolParser",
    "lfm2_pythonic": f"{_TOOL}lfm2_tool_parser Lfm2ToolParser",
    "granite20b_function_call": f"{_TOOL}granite_20b_fc_tool_parser Granite20bFCToolParser",
    "internlm2": f"{_TOOL}internlm2_tool_parser Internlm2ToolParser",
    "functiongemma": f"{_TOOL}functiongemma_tool_parser FunctionGemmaToolParser",
    "hunyuan_a13b_list": f"{_TOOL}hunyuan_a13b_tool_parser HunyuanA13BToolParser",
    "longcat_json": f"{_TOOL}longcat_tool_parser LongcatFlashToolParser",
    "xlam_json": f"{_TOOL}xlam_tool_parser xLAMToolParser",
    "tool_calls_list": f"{_TOOL}jamba_tool_parser JambaToolParser",
    "functools_list": f"{_TOOL}phi4mini_tool_parser Phi4MiniJsonToolParser",
    "apertus_list": f"{_TOOL}apertus_tool_parser ApertusToolParser",
    "ernie45_json": f"{_TOOL}ernie45_tool_parser Ernie45ToolParser",
    "deepseek_v3": f"{_TOOL}deepseekv3_tool_parser DeepSeekV3ToolParser",
    "deepseek_v31": f"{_TOOL}deepseekv31_tool_parser DeepSeekV31ToolParser",
    "step3_xml": f"{_TOOL}step3_tool_parser Step3ToolParser",
    "poolside_xml": f"{_TOOL}poolside_v1_tool_parser PoolsideV1ToolParser",
    "minicpm5_xml": f"{_TOOL}minicpm5xml_tool_parser MiniCPM5XMLToolParser",
    "gigachat3": f"{_TOOL}gigachat3_tool_parser GigaChat3ToolParser",
    "dots_xml": f"{_TOOL}dots_tool_parser DotsToolParser",
    "k2_horizon": f"{_TOOL}k2_horizon_tool_parser K2HorizonToolParser",
    "kimi_k3_xtml": f"{_TOOL}kimi_k3_tool_parser KimiK3ToolParser",
    "atem_xml": f"{_TOOL}muse_glimmer_tool_parser MuseGlimmerToolParser",
}
"""The parsers by our dialects; each is said as `vllm.load` takes it."""

WHOLE_TEXT = ("hermes_json", "deepseek_dsml", "anthropic_xml", "pythonic", "llama3_json", "raw_json")
"""What agent-tool-parser says that it reads."""


@cache
def _peer(kind: str, parts: Path, dialect: str, tools: str) -> Peer | None:
    declared = json.loads(tools)
    match kind:
        case "sglang" if dialect in SGLANG:
            return sglang.load(SGLANG[dialect], parts, declared)
        case "vllm" if dialect in VLLM:
            return vllm.load(VLLM[dialect], parts, declared)
        case "agent-tool-parser" if dialect in WHOLE_TEXT:
            return whole_text.load("at the end", declared)
    return None


def answer(peer: Peer, deltas: list[str], *, tells_text: bool = True) -> dict[str, Any]:
    """Return the result of a parser for a text, in the format of the suite."""
    feed, finish = peer.make()
    outputs = [feed(delta) for delta in deltas]
    told: list[Told] = [each for output in [*outputs, *finish()] for each in peer.read(output)]
    calls: dict[str, dict[str, str]] = {}
    made: list[dict[str, str]] = []
    for kind, key, *rest in told:
        if kind == "text":
            continue
        if kind == "call" or key not in calls:  # an index that is used again begins another call
            calls[key] = {"name": "", "arguments": ""}
            made.append(calls[key])
        if kind == "args":
            calls[key]["arguments"] += rest[0]
        else:
            calls[key].update(zip(("name", "arguments"), rest, strict=False))
    text = "".join(each[1] for each in told if each[0] == "text")
    return {"calls": made, **({"text": text} if tells_text else {})}


def main() -> None:
    kind, parts = sys.argv[1], Path(sys.argv[2])
    replies, sys.stdout = sys.stdout, sys.stderr  # what a parser prints is not an answer
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            peer = _peer(kind, parts, asked["dialect"], json.dumps(asked["tools"]))
            reply = peer and answer(peer, asked["deltas"], tells_text=kind != "agent-tool-parser")
        except Exception as error:
            reply = {"raised": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()

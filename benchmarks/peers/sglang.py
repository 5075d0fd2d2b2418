"""Runs the detectors of SGLang as its chat endpoint does.

An increment for each delta; at the end `finish`, and what of the last call's arguments was parsed but not told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.adapting import Feed, Finish, Peer, function_tools
from benchmarks.peers.streams import TOOLS
from benchmarks.peers.stubs import stand_in

_CLASSES = {
    "hermes": ("hermes_detector", "HermesDetector"),
    "qwen25": ("qwen25_detector", "Qwen25Detector"),
    "qwen3_coder": ("qwen3_coder_detector", "Qwen3CoderDetector"),
    "mistral": ("mistral_detector", "MistralDetector"),
    "pythonic": ("pythonic_detector", "PythonicDetector"),
    "llama32": ("llama32_detector", "Llama32Detector"),
}


def load(choice: str, parts: Path, declared: Sequence[dict[str, Any]] = TOOLS) -> Peer:
    """Return a detector with the `declared` tools: one of the table, or `module Class`."""
    tool = _tool(parts)
    module, name = _CLASSES.get(choice) or choice.split()
    detector_class = getattr(import_module(f"sglang.srt.function_call.{module}"), name)
    types = import_module("sglang.srt.function_call.core_types")
    tools = [tool(**each) for each in function_tools(declared)]

    def make() -> tuple[Feed, Finish]:
        detector = detector_class()

        def finish() -> list[Any]:
            outputs = [detector.finish(tools)]
            if rest := _unstreamed(detector):
                item = types.ToolCallItem(tool_index=rest[0], parameters=rest[1])
                outputs.append(types.StreamingParseResult(calls=[item]))
            return outputs

        return partial(detector.parse_streaming_increment, tools=tools), finish

    return Peer((parts / "sglang.version").read_text(encoding="utf-8"), make, _read)


@cache
def _tool(parts: Path) -> Any:
    """Replace the rest of the engine. Returns the class of a tool definition."""
    pydantic = import_module("pydantic")
    function = pydantic.create_model(
        "Function",
        name=(str | None, None),
        description=(str | None, None),
        parameters=(Any, None),
        strict=(bool, False),
    )
    tool = pydantic.create_model("Tool", type=(str, "function"), function=(function, ...))
    stand_in(parts, ("sglang", "xgrammar"), {"sglang.srt.entrypoints.openai.protocol": {"Tool": tool}})
    return tool


def _unstreamed(detector: Any) -> tuple[int, str] | None:
    last = len(detector.prev_tool_call_arr) - 1
    if not 0 <= last < len(detector.streamed_args_for_tool):
        return None
    arguments = detector.prev_tool_call_arr[last].get("arguments", {})
    expected = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    told = detector.streamed_args_for_tool[last]
    return (last, expected[len(told) :]) if expected.startswith(told) and expected != told else None


def _read(result: Any) -> Iterable[list[Any]]:
    if result.normal_text:
        yield ["text", result.normal_text]
    for item in result.calls:
        if item.name:
            yield ["call", str(item.tool_index), item.name]
        if item.parameters:
            yield ["args", str(item.tool_index), item.parameters]

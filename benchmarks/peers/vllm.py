"""The parsers of vLLM, on text alone: real servers also give them the ids of tokens.

A `ToolParser` gets the text so far and the text before, which vLLM joins anew for each delta, and so does this. A
parser engine gets the delta.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.peers.adapting import Feed, Finish, Peer, function_tools
from benchmarks.peers.stubs import Bare, logger, new_id, stand_in

_PACKAGES = ("vllm", "openai", "xgrammar", "transformers", "torch", "prometheus_client")


class _Tokenizer:
    """A tokenizer without special tokens: markers are found in the text."""

    def get_vocab(self) -> dict[str, int]:
        return {"<tool_call>": 1, "</tool_call>": 2}


def load(choice: str, parts: Path) -> Peer:
    """Return a parser."""
    pydantic = import_module("pydantic")
    function = pydantic.create_model(
        "FunctionDefinition", name=(str, ...), description=(str | None, None), parameters=(dict[str, Any] | None, None)
    )
    declared = pydantic.create_model("ChatCompletionToolsParam", type=(str, "function"), function=(function, ...))
    answers: dict[str, dict[str, object]] = {
        "vllm.logger": {"init_logger": logger},
        "vllm.renderers.chat_utils": {"make_tool_call_id": new_id},
        "vllm.utils.mistral": {"is_mistral_tokenizer": lambda _: False},
        "vllm.entrypoints.openai.chat_completion.protocol": {"ChatCompletionToolsParam": declared},
    }
    stand_in(parts, _PACKAGES, answers)
    tools = [declared(**each) for each in function_tools()]
    request = Bare(tools=tools, tool_choice="auto", parallel_tool_calls=True, include_reasoning=True, messages=[])
    make = _MAKES[choice](tools, request)
    return Peer((parts / "vllm.version").read_text(encoding="utf-8"), make, _read)


def _tool_parser(module: str, name: str) -> Any:
    def maker(tools: list[Any], request: Bare) -> Any:
        parser_class = getattr(import_module(module), name)
        protocol = import_module("vllm.entrypoints.generate.base.protocol")

        def make() -> tuple[Feed, Finish]:
            parser = parser_class(_Tokenizer(), tools)
            parse = parser.extract_tool_calls_streaming
            text = ""

            def feed(delta: str) -> Any:
                nonlocal text
                before, text = text, text + delta
                return parse(before, text, delta, (), (), (), request)

            def finish() -> list[Any]:
                rest = parser.get_remaining_unstreamed_args()
                if not rest or rest == "{}":
                    return []
                index = len(parser.prev_tool_call_arr) - 1
                call = protocol.DeltaToolCall(index=index, function=protocol.DeltaFunctionCall(arguments=rest))
                return [protocol.DeltaMessage(tool_calls=[call])]

            return feed, finish

        return make

    return maker


def _engine(module: str, name: str, **options: Any) -> Any:
    def maker(tools: list[Any], request: Bare) -> Any:
        engine_class = getattr(import_module(module), name)

        def make() -> tuple[Feed, Finish]:
            parse = engine_class(_Tokenizer(), tools, **options).parse_delta

            def feed(delta: str) -> Any:
                return parse(delta, [], request, finished=False)

            return feed, lambda: [parse("", [], request, finished=True)]

        return make

    return maker


_MAKES: dict[str, Any] = {
    "hermes": _tool_parser("vllm.tool_parsers.hermes_tool_parser", "Hermes2ProToolParser"),
    "pythonic": _tool_parser("vllm.tool_parsers.pythonic_tool_parser", "PythonicToolParser"),
    "qwen3": _engine("vllm.parser.qwen3", "Qwen3Parser", chat_template_kwargs={"enable_thinking": False}),
    "granite": _engine("vllm.parser.granite", "GraniteParser"),
}


def _read(message: Any) -> Iterable[list[Any]]:
    if message is None:
        return
    if message.content:
        yield ["text", message.content]
    for call in message.tool_calls or []:
        function = call.function
        if function is None:
            continue
        name, arguments = (
            (function.get("name"), function.get("arguments"))
            if isinstance(function, dict)
            else (function.name, function.arguments)
        )
        if name:
            yield ["call", str(call.index), name]
        if arguments:
            yield ["args", str(call.index), arguments]

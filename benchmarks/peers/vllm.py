"""Runs the parsers of vLLM on text alone. Real servers also pass the ids of tokens.

A `ToolParser` gets the text so far and the text before, which vLLM joins again for each delta, and so does this
module. A parser engine gets the delta.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

from benchmarks.peers.adapting import Feed, Finish, Peer, function_tools
from benchmarks.peers.streams import TOOLS
from benchmarks.peers.stubs import Bare, logger, new_id, stand_in

_PACKAGES = ("vllm", "openai", "xgrammar", "transformers", "torch", "prometheus_client")


class _Tokenizer:
    """A tokenizer without special tokens: markers are found in the text."""

    def get_vocab(self) -> dict[str, int]:
        return {"<tool_call>": 1, "</tool_call>": 2}


class _Vocabulary(dict[str, int]):
    """A vocabulary that contains every word."""

    def __missing__(self, word: str) -> int:
        return crc32(word.encode())

    def __contains__(self, word: object) -> bool:
        return True

    def get(self, word: str, default: Any = None) -> int:
        return self[word]


class _WithTokens(_Tokenizer):
    """A tokenizer in which every tag is a special token; other words have no ids."""

    def get_vocab(self) -> dict[str, int]:
        return _Vocabulary()

    def encode(self, text: str, **_: Any) -> list[int]:
        return [crc32(tag.encode()) for tag in re.findall(r"<[^<>\s]+>|\[[A-Z_]+\]", text)]


def load(choice: str, parts: Path, given: Sequence[dict[str, Any]] = TOOLS) -> Peer:
    """Return a parser with the `given` tools: one of the table, or `module Class`."""
    declared = _tool(parts)
    tools = [declared(**each) for each in function_tools(given)]
    request = Bare(
        tools=tools,
        tool_choice="auto",
        parallel_tool_calls=True,
        include_reasoning=True,
        messages=[],
        chat_template_kwargs=None,
    )
    if (maker := _MAKES.get(choice)) is None:
        module, name = choice.split()
        if module.startswith("vllm.parser."):
            maker = _engine(module, name, chat_template_kwargs={"enable_thinking": False})
        else:
            maker = _tool_parser(module, name, ids=True)
    make = maker(tools, request)
    return Peer((parts / "vllm.version").read_text(encoding="utf-8"), make, _read)


@cache
def _tool(parts: Path) -> Any:
    """Replace the rest of the engine. Returns the class of a tool definition."""
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
    vars(import_module("vllm.utils"))["random_uuid"] = new_id  # a folder without an `__init__`
    return declared


def _tool_parser(module: str, name: str, *, ids: bool = False) -> Any:
    def maker(tools: list[Any], request: Bare) -> Any:
        parser_class = getattr(import_module(module), name)
        protocol = import_module("vllm.entrypoints.generate.base.protocol")

        def make() -> tuple[Feed, Finish]:
            tokenizer = _WithTokens() if ids else _Tokenizer()
            parser = parser_class(tokenizer, tools)
            parse = parser.extract_tool_calls_streaming
            text = ""

            def feed(delta: str) -> Any:
                nonlocal text
                before, text = text, text + delta
                return parse(before, text, delta, (), (), (), request)

            def feed_with_ids(delta: str) -> Any:
                nonlocal text
                before, text = text, text + delta
                old, new = (_WithTokens().encode(each) for each in (before, text))
                return parse(before, text, delta, old, new, new[len(old) :], request)

            def finish() -> list[Any]:
                rest = parser.get_remaining_unstreamed_args()
                if not rest or rest == "{}":
                    return []
                index = len(parser.prev_tool_call_arr) - 1
                call = protocol.DeltaToolCall(index=index, function=protocol.DeltaFunctionCall(arguments=rest))
                return [protocol.DeltaMessage(tool_calls=[call])]

            return (feed_with_ids if ids else feed), finish

        return make

    return maker


def _engine(module: str, name: str, **options: Any) -> Any:
    def maker(tools: list[Any], request: Bare) -> Any:
        engine_class = getattr(import_module(module), name)

        def make() -> tuple[Feed, Finish]:
            parse = engine_class(_WithTokens() if options else _Tokenizer(), tools, **options).parse_delta

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

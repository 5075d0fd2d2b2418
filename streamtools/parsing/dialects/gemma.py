"""`<|tool_call>call:get_weather{city:<|"|>Paris<|"|>,days:3}<tool_call|>`

Gemma 4 puts its strings between tokens of their own, and its thoughts between `<|channel>thought` and `<channel|>`.
FunctionGemma writes `<start_function_call>call:get_weather{city:<escape>Paris<escape>}<end_function_call>`. Both end
with the tag that opens a result, for the backend to go on from. Sources: the chat templates of google/gemma-4 and
google/functiongemma-270m-it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.gemma_calls import NAME, gemma_call
from streamtools.parsing.bodies.syntax import FUNCTION_GEMMA, GEMMA, Syntax
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.dialects.writing import as_object
from streamtools.parsing.markers import SPACES, OneOf

_plain_key = re.compile(r"[^\W\d][\w.-]*").fullmatch


def gemma4() -> Dialect:
    """Return the dialect of Gemma 4."""
    return _dialect(
        "gemma4",
        GEMMA,
        ("<|tool_call>", "<tool_call|>"),
        ("<|tool_response>", "<tool_response|>"),
        Tag(("<|channel>", OneOf(("thought\n", ""))), closings=("<channel|>",)),
        *ends_of_turn("<turn|>"),
        models=("gemma-?4",),
    )


def functiongemma() -> Dialect:
    """Return the dialect of FunctionGemma."""
    return _dialect(
        "functiongemma",
        FUNCTION_GEMMA,
        ("<start_function_call>", "<end_function_call>"),
        ("<start_function_response>", "<end_function_response>"),
        *ends_of_turn("<end_of_turn>"),
        models=("function-?gemma",),
    )


def _dialect(
    dialect: str,
    syntax: Syntax,
    call: tuple[str, str],
    result: tuple[str, str],
    *tags: Tag,
    models: tuple[str, ...],
) -> Dialect:
    opening, close = call
    literal = _writer(syntax.quotes[0].mark)

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        return f"{opening}call:{name}{literal(arguments)}{close}"

    def write_result(name: str, text: str) -> str:
        return f"{result[0]}response:{name}{literal(as_object(text, 'value'))}{result[1]}"

    return Dialect(
        id=dialect,
        openers=(
            Opener(
                (opening, SPACES, "call:"),
                gemma_call(syntax, opening, close),
                ahead=(NAME, "{"),
            ),
        ),
        write_call=write_call,
        write_result=write_result,
        reserved=(*call, *result, syntax.quotes[0].mark),
        tags=(Tag((close,)), Tag((result[0],)), *tags),
        models=models,
        notes=f"Strings stand between two {syntax.quotes[0].mark}, keys without quotes.",
    )


def _writer(mark: str) -> Callable[[Any], str]:
    """Return what writes values with strings between two marks; what the form has no room for is written as JSON."""

    def key(name: str) -> str:
        return name if _plain_key(name) else compact(name)

    def write(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ",".join(f"{key(name)}:{write(each)}" for name, each in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(write, value)) + "]"
        if isinstance(value, str) and mark not in value + mark[:-1]:
            return mark + value + mark
        return compact(value)

    return write

"""A section of calls, whose names stand in their ids:

    <|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}
    <|tool_call_end|><|tool_calls_section_end|>

(without the line end). The id is `functions.`, which some leave out, the name, and the number of the call. Source: the
chat template of moonshotai/Kimi-K2-Instruct, and its guide to tool calls, for the ids; the singular spelling of the
section comes from models that were seen to write it.
"""

from __future__ import annotations

import re
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.named_json import GAP, NAME, Enclosed, Identity, NamedCall
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.markers import OneOf

_SECTION = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_END_OF_SECTION = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_CALL, _ARGUMENTS, _END_OF_CALL = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
_BEGIN, _END = (("<|tool_call", OneOf(("s_", "_")), f"section_{which}|>") for which in ("begin", "end"))

_id = re.compile(r"(?:functions\.)?(.+):[0-9]+").fullmatch


def kimi_k2() -> Dialect:
    """Return the dialect."""
    named = NamedCall(_ARGUMENTS, identify=_identify)
    wrapped = Enclosed(named, _CALL, _END_OF_CALL, around=(_SECTION, _END_OF_SECTION))
    alone = Enclosed(named, _CALL, _END_OF_CALL)
    return Dialect(
        id="kimi_k2",
        openers=(
            Opener((*_BEGIN, GAP, _CALL), wrapped),
            Opener((_CALL,), alone, ahead=(GAP, NAME, GAP, _ARGUMENTS)),
        ),
        write_call=_write_call,
        write_result=_write_result,
        in_reasoning="call",
        reserved=("<|tool_call",),
        tags=(Tag(_END), Tag((*_BEGIN, GAP, *_END)), *ends_of_turn("<|im_end|>")),
        models=("kimi-k2",),
    )


def _identify(word: str, declared: Declared) -> Identity | None:
    """Return the name that stands in an id, and the id.

    One without a number names a call if the tool is declared; otherwise it is the id of something else.
    """
    found = _id(word)
    if found is not None:
        return Identity(found[1], word)
    name = word.removeprefix("functions.")
    return Identity(name, word) if name in declared else None


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    call = f"{_CALL}functions.{name}:0{_ARGUMENTS}{compact(arguments)}{_END_OF_CALL}"
    return f"{_SECTION[0]}{call}{_END_OF_SECTION[0]}"


def _write_result(name: str, text: str) -> str:
    return f"## Return of functions.{name}:0\n{text}"

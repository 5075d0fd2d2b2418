"""`[get_weather(city="Paris"), get_time()]`

Calls as Python writes them. Without a tag, as Llama 3.2 and ToolACE answer, only a list at the start of a message that
begins with a declared name is one. The tags of Llama 4 and LFM 2 are tokens, which the model forgets, or a tokenizer
drops: there such a list is read as well. Sources: the model cards of meta-llama/Llama-3.2 and Llama-4, the chat
templates of allenai/Olmo-3 and LiquidAI/LFM2.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.forged_results import forged_result
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.bodies.pythonic import NAME, pythonic_calls, readable
from streamtools.parsing.dialects.base import Dialect, Opener, ends_of_turn
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.markers import SPACES, OneOf

_NOTES = "Arguments are literals and always have names."


def pythonic() -> Dialect:
    """Return the dialect without a tag; peers read the tags of Llama 4 under this name as well."""
    return replace(
        pythonic_llama4(),
        id="pythonic",
        write_call=lambda name, arguments: f"[{_write_python(name, arguments)}]",
        auto=False,
        models=("llama-?v?3[.-]2", "toolace"),
    )


def pythonic_llama4() -> Dialect:
    """Return the dialect of Llama 4."""
    ends = ("<|eot|>", "<|eom|>", "<|eot_id|>", "<|eom_id|>")
    return _tagged("pythonic_llama4", "<|python_start|>", "<|python_end|>", models=("llama-?4",), ends=ends)


def olmo3_pythonic() -> Dialect:
    """Return the dialect of OLMo 3, with one call on each line, and JSON's words in the place of Python's."""
    opening, close = "<function_calls>", "</function_calls>"
    return Dialect(
        id="olmo3_pythonic",
        openers=_openers(opening, close),
        write_call=lambda name, arguments: f"{opening}{_write(name, arguments, compact)}{close}",
        write_result=write_response,
        tags=ends_of_turn("<|im_end|>", "<|endoftext|>"),
        reserved=("<function_calls", "</function_calls"),
        models=("olmo-?3",),
        notes=_NOTES,
    )


def lfm2_pythonic() -> Dialect:
    """Return the dialect of LFM 2, which writes JSON between its tags as well."""
    opening, close = "<|tool_call_start|>", "<|tool_call_end|>"
    json_body = json_calls(close)
    begin, end = "<|tool_response_start|>", "<|tool_response_end|>"
    return _tagged(
        "lfm2_pythonic",
        opening,
        close,
        Opener((opening, SPACES), json_body, ahead=("{",)),
        Opener((opening, SPACES), json_body, ahead=("[", SPACES, "{")),
        Opener((begin,), forged_result(end), kind="result"),
        models=("lfm-?2",),
        ends=("<|im_end|>",),
        write_result=lambda name, text: f"{begin}{text}{end}",
        reserved=(begin, end),
    )


def _tagged(
    dialect: str,
    opening: str,
    close: str,
    *openers: Opener,
    models: tuple[str, ...],
    ends: tuple[str, ...],
    write_result: Callable[[str, str], str] = write_response,
    reserved: tuple[str, ...] = (),
) -> Dialect:
    """Return a dialect with a list of calls, or calls without one, between two tags, or a list without tags."""
    return Dialect(
        id=dialect,
        openers=(*_openers(opening, close), *openers),
        openers_for=_list_of,
        write_call=lambda name, arguments: f"{opening}[{_write_python(name, arguments)}]{close}",
        write_result=write_result,
        reserved=(opening, close, *reserved),
        tags=ends_of_turn(*ends),
        models=models,
        notes=_NOTES,
    )


def _openers(opening: str, close: str) -> tuple[Opener, ...]:
    """Return the openers for calls between two tags: in a list or one by one."""
    body = pythonic_calls(opening, close)
    return (
        Opener((opening, SPACES), body, ahead=(NAME, "(")),
        Opener((opening, SPACES), body, ahead=("[", SPACES, NAME, "(")),
    )


def _list_of(names: tuple[str, ...]) -> tuple[Opener, ...]:
    known = OneOf(tuple(filter(readable, names)))
    return (Opener(("[",), pythonic_calls(), ahead=(SPACES, known, "("), where="start"),) if known.words else ()


def _write(name: str, arguments: dict[str, Any], literal: Callable[[Any], str]) -> str:
    if all(map(readable, arguments)):
        return f"{name}({', '.join(f'{key}={literal(value)}' for key, value in arguments.items())})"
    return f"{name}(**{literal(arguments)})"  # no other form has room for such a name


def _write_python(name: str, arguments: dict[str, Any]) -> str:
    return _write(name, arguments, python)


def python(value: Any) -> str:
    """Return a JSON value as Python writes it, with strings in double quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{python(key)}: {python(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(python, value)) + "]"
    if value is None or isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False)

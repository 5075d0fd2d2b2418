"""Functions and parameters as tags that hold a name behind an equals sign:

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

Sources: the chat templates of Qwen/Qwen3-Coder, nvidia/Nemotron-3-Nano and ByteDance-Seed/Seed-OSS, and the prompt
format of Llama 3.1 for custom tools, where JSON stands in the tag of the function. Qwen3-Coder often forgets the
wrapper, and then closes it all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.named_json import NAME, Enclosed, NamedCall
from streamtools.parsing.bodies.parameters import Functions
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.dialects.writing import write_value
from streamtools.parsing.markers import SPACES, OneOf, Some

_NAME = Some(r"^<>{}\r\n", 1, 96)
_FIRST = OneOf(("<parameter=", "</function>"))
_CLOSE = ("</parameter", "<parameter=", "</function")
_RESERVED = ("<function=", "</function", "<parameter=", "</parameter")


def qwen3_coder_xml() -> Dialect:
    """Return the dialect."""
    functions = Functions()
    return Dialect(
        id="qwen3_coder_xml",
        openers=(
            Opener(("<tool_call>", SPACES), functions.wrapped, ahead=("<function=",), line_feeds=1),
            Opener(("<function=",), functions.alone, ahead=(_NAME, ">", SPACES, _FIRST), line_feeds=1),
        ),
        tags=(Tag(("</tool_call>",), where="behind_call"), *ends_of_turn("<|im_end|>", "<|endoftext|>")),
        write_call=_writer("<tool_call>", "</tool_call>", lambda value: f"\n{value}\n"),
        write_result=write_response,
        in_reasoning="call",
        reserved=("<tool_call", "</tool_call", "<tool_response", "</tool_response", *_RESERVED),
        models=("qwen-?3[-_. ]?coder", r"qwen-?3\.[5-9]", "nemotron-?3", "step-?3\\.5", "mimo-?v2", "nanbeige"),
    )


def k_exaone2_xml() -> Dialect:
    """Return the dialect of K-EXAONE 2, which is that of Qwen3-Coder."""
    return replace(qwen3_coder_xml(), id="k_exaone2_xml", auto=False, models=("k-?exaone-?2",))


def seed_oss_xml() -> Dialect:
    """Return the dialect."""
    return Dialect(
        id="seed_oss_xml",
        openers=(Opener(("<seed:tool_call>", SPACES), Functions("seed:tool_call").wrapped, ahead=("<function=",)),),
        tags=(Tag(("<seed:think>",), closings=("</seed:think>",), where="start"), *ends_of_turn("<seed:eos>")),
        write_call=_writer("<seed:tool_call>", "</seed:tool_call>", _apart),
        write_result=write_response,
        reserved=("<seed:tool_call", "</seed:tool_call", *_RESERVED),
        models=("seed-?oss",),
    )


def llama31_function_tag() -> Dialect:
    """Return the dialect."""
    body = Enclosed(NamedCall(">"), "<function=", "</function>")
    return Dialect(
        id="llama31_function_tag",
        openers=(Opener(("<function=",), body, ahead=(NAME, ">", SPACES, "{")),),
        write_call=lambda name, arguments: f"<function={name}>{compact(arguments)}</function>",
        write_result=write_response,
        reserved=("<function=", "</function"),
        tags=ends_of_turn("<|eom_id|>", "<|eot_id|>"),
        models=("functionary.*3[._-]?1",),
    )


def _apart(value: str) -> str:
    """Return a value, apart from its tags if a line feed of its own would be taken for theirs."""
    return f"\n{value}\n" if value.startswith("\n") or value.endswith("\n") else value


def _writer(opening: str, end: str, lay_out: Callable[[str], str]) -> Callable[[str, dict[str, Any]], str]:
    def write_call(name: str, arguments: dict[str, Any]) -> str:
        parameters = [
            f"<parameter={key}>{lay_out(write_value(value, *_CLOSE))}</parameter>" for key, value in arguments.items()
        ]
        return "\n".join((opening, f"<function={name}>", *parameters, "</function>", end))

    return write_call

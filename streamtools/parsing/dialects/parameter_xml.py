"""Calls in tags that hold names, behind an equals sign, or between which names stand.

    <tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>
    <tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>

Values are text, which the tool's JSON schema gives its type.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.named_json import NAME, Enclosed, NamedCall
from streamtools.parsing.bodies.parameters import Functions, Pairs
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, both_tags, ends_of_turn, write_value
from streamtools.parsing.markers import SPACES, OneOf, Part, Some

# `reserved` of Qwen3-Coder and its kin.
_FUNCTION_TAGS = ("<function=", "</function", "<parameter=", "</parameter")


def qwen3_coder_xml() -> Dialect:
    """Return the dialect of Qwen/Qwen3-Coder and nvidia/Nemotron-3-Nano, by their chat templates.

    Qwen3-Coder often forgets the wrapper, and then closes it all the same.
    """
    functions = Functions()
    alone: tuple[Part, ...] = (Some(r"^<>{}\r\n", 1, 96), ">", SPACES, OneOf(("<parameter=", "</function>")))
    return Dialect(
        id="qwen3_coder_xml",
        openers=(
            Opener(("<tool_call>", SPACES), functions.wrapped, ahead=("<function=",), line_feeds=1),
            Opener(("<function=",), functions.alone, ahead=alone, line_feeds=1),
        ),
        write_call=_writer("<tool_call>", "</tool_call>", lambda value: f"\n{value}\n"),
        in_reasoning="call",
        reserved=(*both_tags("tool_call", "tool_response"), *_FUNCTION_TAGS),
        tags=(Tag(("</tool_call>",), where="behind_call"), *ends_of_turn("<|im_end|>", "<|endoftext|>")),
    )


def k_exaone2_xml() -> Dialect:
    """Return the dialect of K-EXAONE 2, which is that of Qwen3-Coder."""
    return replace(qwen3_coder_xml(), id="k_exaone2_xml", auto=False)


def seed_oss_xml() -> Dialect:
    """Return the dialect of ByteDance-Seed/Seed-OSS, by its chat template."""
    return Dialect(
        id="seed_oss_xml",
        openers=(Opener(("<seed:tool_call>", SPACES), Functions("seed:tool_call").wrapped, ahead=("<function=",)),),
        write_call=_writer(
            "<seed:tool_call>",
            "</seed:tool_call>",
            # A line feed of its own would be taken for one of the tags.
            lambda value: f"\n{value}\n" if value.startswith("\n") or value.endswith("\n") else value,
        ),
        reserved=(*both_tags("seed:tool_call"), *_FUNCTION_TAGS),
        tags=(Tag(("<seed:think>",), closings=("</seed:think>",), where="start"), *ends_of_turn("<seed:eos>")),
    )


def llama31_function_tag() -> Dialect:
    """Return the dialect of Llama 3.1's prompt format for custom tools: JSON stands in the tag of the function."""
    body = Enclosed(NamedCall(">"), "<function=", "</function>")
    return Dialect(
        id="llama31_function_tag",
        openers=(Opener(("<function=",), body, ahead=(NAME, ">", SPACES, "{")),),
        write_call=lambda name, arguments: f"<function={name}>{compact(arguments)}</function>",
        reserved=("<function=", "</function"),
        tags=ends_of_turn("<|eom_id|>", "<|eot_id|>"),
    )


def _writer(opening: str, end: str, lay_out: Callable[[str], str]) -> Callable[[str, dict[str, Any]], str]:
    closes = ("</parameter", "<parameter=", "</function")

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        values = {key: lay_out(write_value(value, *closes)) for key, value in arguments.items()}
        parameters = [f"<parameter={key}>{text}</parameter>" for key, text in values.items()]
        return "\n".join((opening, f"<function={name}>", *parameters, "</function>", end))

    return write_call


# The tag of pairs is that of other dialects, too: a name, and what may stand behind one, tells them apart.

_PAIR_TAGS = (*both_tags("tool_call", "tool_response"), "<arg_", "</arg_")


def glm_xml() -> Dialect:
    """Return the dialect of zai-org/GLM-4.5 and GLM-4.7 (without line feeds), by their chat templates."""
    pairs = Pairs()
    name: tuple[Part, ...] = (Some(r"^<>{}\[\]\s", 1, 1), Some(r"^<>\s", 0, 95))  # JSON is no name
    return Dialect(
        id="glm_xml",
        openers=tuple(
            Opener(("<tool_call>",), pairs.single, ahead=(SPACES, *name, SPACES, *behind), line_feeds=1)
            for behind in pairs.first
        ),
        write_call=lambda name, arguments: f"<tool_call>{name}\n{_write_pairs(arguments)}</tool_call>",
        in_reasoning="call",
        reserved=_PAIR_TAGS,
        tags=ends_of_turn("<|observation|>", "<|user|>", "<|endoftext|>"),
    )


def poolside_xml() -> Dialect:
    """Return the dialect of poolside/Laguna, by its chat template: glm_xml, and JSON between the same tags."""
    glm, body = glm_xml(), json_calls("</tool_call>")
    return replace(
        glm,
        id="poolside_xml",
        openers=(
            *glm.openers,
            *(Opener(("<tool_call>", SPACES), body, ahead=(first,), line_feeds=1) for first in "{["),
        ),
        in_reasoning="text",
        tags=(),
        auto=False,
    )


def hunyuan_xml() -> Dialect:
    """Return the dialect of tencent/Hunyuan 3, by its chat template.

    In its published vocabulary all tags end with `:opensource`, those of its thoughts as well.
    """
    pairs = Pairs(separator="tool_sep", wrapper="tool_calls", suffixed=True)
    return Dialect(
        id="hunyuan_xml",
        openers=(Opener((*pairs.wrapper, SPACES), pairs.wrapped, ahead=pairs.opening),),
        write_call=lambda name, arguments: (
            f"<tool_calls>\n<tool_call>{name}<tool_sep>\n{_write_pairs(arguments)}</tool_call>\n</tool_calls>"
        ),
        reserved=(*both_tags("tool_calls"), "<tool_sep", *_PAIR_TAGS),
        tags=(Tag(("<think:opensource>",), closings=("</think:opensource>",), where="start"),),
    )


def _write_pairs(arguments: dict[str, Any]) -> str:
    values = {key: write_value(value, "</arg_value") for key, value in arguments.items()}
    return "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{text}</arg_value>\n" for key, text in values.items())

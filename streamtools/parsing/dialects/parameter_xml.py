"""Calls in tags that hold names, behind an equals sign, or between which names stand.

    <tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>
    <tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>

Values are text, which the tool's JSON schema gives its type.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.named_json import NAME, PROSE, WORD_FIRST, Enclosed, NamedCall
from streamtools.parsing.bodies.parameters import Functions, Named, Pairs
from streamtools.parsing.dialects.base import (
    ROLE_END,
    Dialect,
    Opener,
    Tag,
    both_tags,
    closed_again,
    ends_of_turn,
    write_value,
)
from streamtools.parsing.markers import SPACES, OneOf, Part, Some
from streamtools.parsing.span import Span

# `reserved` of Qwen3-Coder and its kin.
_FUNCTION_TAGS = ("<function=", "</function", "<parameter=", "</parameter")


def qwen3_coder_xml() -> Dialect:
    """Return the dialect of Qwen/Qwen3-Coder and nvidia/Nemotron-3-Nano, by their chat templates.

    Qwen3-Coder often forgets the wrapper, and then closes it all the same.
    """
    ends = ("<|im_end|>", "<|endoftext|>")
    functions = Functions(ends=ends)
    alone: tuple[Part, ...] = (Some(r"^<>{}\r\n", 1, 96), ">", SPACES, OneOf(("<parameter=", "</function>")))
    return Dialect(
        id="qwen3_coder_xml",
        openers=(
            Opener(("<tool_call>", SPACES), functions.wrapped, ahead=("<function=",), line_feeds=2),
            Opener(("<function=",), functions.alone, ahead=alone, line_feeds=2),
        ),
        write_call=_writer("<tool_call>", "</tool_call>", lambda value: f"\n{value}\n"),
        in_reasoning="call",
        reserved=(*both_tags("tool_call", "tool_response"), *_FUNCTION_TAGS),
        tags=(Tag(("</tool_call>",), where="behind_call", line_feeds=1), *ends_of_turn(*ends)),
    )


def k_exaone2_xml() -> Dialect:
    """Return the dialect of K-EXAONE 2, which is that of Qwen3-Coder."""
    return replace(qwen3_coder_xml(), id="k_exaone2_xml", auto=False)


def seed_oss_xml() -> Dialect:
    """Return the dialect of ByteDance-Seed/Seed-OSS, by its chat template, which puts no line feeds around values."""
    end = "<seed:eos>"
    functions = Functions("seed:tool_call", ends=(end,), verbatim=True)
    return Dialect(
        id="seed_oss_xml",
        openers=(Opener(("<seed:tool_call>", SPACES), functions.wrapped, ahead=("<function=",)),),
        write_call=_writer(
            "<seed:tool_call>",
            "</seed:tool_call>",
            # A line feed of its own would be taken for one of the tags.
            lambda value: f"\n{value}\n" if value.startswith("\n") or value.endswith("\n") else value,
        ),
        reserved=(*both_tags("seed:tool_call"), *_FUNCTION_TAGS),
        tags=(
            Tag(("<seed:think>",), closings=("</seed:think>",), where="start"),
            *closed_again("</seed:tool_call>"),
            *ends_of_turn(end),
        ),
    )


def llama31_function_tag() -> Dialect:
    """Return the dialect of Llama 3.1's prompt format for custom tools: JSON stands in the tag of the function."""
    body = Enclosed(NamedCall(">"), "<function=", "</function>")
    return Dialect(
        id="llama31_function_tag",
        openers=(Opener(("<function=",), body, ahead=(*WORD_FIRST, ">", SPACES, "{")),),
        write_call=lambda name, arguments: f"<function={name}>{compact(arguments)}</function>",
        reserved=("<function=", "</function"),
        tags=(*closed_again("</function>"), *ends_of_turn("<|eom_id|>", "<|eot_id|>")),
    )


def _writer(opening: str, end: str, lay_out: Callable[[str], str]) -> Callable[[str, dict[str, Any]], str]:
    closes = ("</parameter", "<parameter=", "</function", end[:-1])

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        values = {key: lay_out(write_value(value, *closes)) for key, value in arguments.items()}
        parameters = [f"<parameter={key}>{text}</parameter>" for key, text in values.items()]
        return "\n".join((opening, f"<function={name}>", *parameters, "</function>", end))

    return write_call


# The tag of pairs is that of other dialects, too: a name, and what may stand behind one, tells them apart.

_PAIR_TAGS = (*both_tags("tool_call", "tool_response"), "<arg_", "</arg_")


def _name_and(behind: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return a name and what follows it; JSON is none, and so is `...`."""
    return (SPACES, Some(rf"^<>{{}}\[\]\s{PROSE}", 1, 1), Some(r"^<>\s", 0, 95), SPACES, *behind)


def glm_xml() -> Dialect:
    """Return the dialect of zai-org/GLM-4.5 and GLM-4.7 (without line feeds), by their chat templates."""
    ends = ("<|observation|>", "<|user|>", "<|endoftext|>")
    pairs = Pairs(ends=ends)
    return Dialect(
        id="glm_xml",
        openers=tuple(
            Opener(("<tool_call>",), pairs.single, ahead=_name_and(each), line_feeds=1) for each in pairs.first
        ),
        write_call=lambda name, arguments: f"<tool_call>{name}\n{_write_pairs(arguments)}</tool_call>",
        in_reasoning="call",
        reserved=_PAIR_TAGS,
        tags=(ROLE_END, *closed_again("</tool_call>"), *ends_of_turn(*ends)),
    )


def poolside_xml() -> Dialect:
    """Return the dialect of poolside/Laguna, by its chat template: glm_xml, and JSON between the same tags."""
    body, pairs = json_calls("</tool_call>"), Pairs()

    def read(span: Span) -> Generator[None, None, None]:
        char = yield from span.peek()
        yield from (body if char and char in "{[" else pairs.single)(span)

    return replace(
        glm_xml(),
        id="poolside_xml",
        openers=(Opener(("<tool_call>",), read, line_feeds=1),),
        in_reasoning="text",
        tags=closed_again("</tool_call>"),
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
        tags=(
            Tag(("<think:opensource>",), closings=("</think:opensource>",), where="start"),
            Tag(pairs.close, where="behind_call"),
            Tag(pairs.unwrap, where="behind_call"),
        ),
    )


def iquest_q1() -> Dialect:
    """Return the dialect of IQuest Q1, by what SGLang reads: glm_xml, with a name of its own for the call."""
    opening, close = "<iquest_tool_call>", "</iquest_tool_call>"
    spelled = {"tool_call": opening, "/tool_call": close}
    pairs = Pairs(spelled=spelled)
    return Dialect(
        id="iquest_q1",
        openers=tuple(Opener((opening,), pairs.single, ahead=_name_and(each)) for each in pairs.first),
        write_call=lambda name, arguments: f"{opening}{name}\n{_write_pairs(arguments, spelled)}{close}",
        reserved=(*both_tags("iquest_tool_call", "tool_response"), "<arg_", "</arg_"),
        tags=closed_again(close),
    )


def k2_horizon() -> Dialect:
    """Return the dialect of K2 Horizon and Jais 3, by what vLLM and SGLang read.

    A tag may tell the type of a value, and JSON with the name in it may stand in the place of name and pairs.
    """
    tags = ("tool_calls", "tool_call", "arg_key", "arg_type", "arg_value")
    spelled = {slash + each: f"<{slash}ifm|{each}>" for each in tags for slash in ("", "/")}
    wrap, opening, close = (spelled[each] for each in ("tool_calls", "tool_call", "/tool_call"))
    pairs, body = Pairs(wrapper="tool_calls", spelled=spelled), json_calls(close)
    return Dialect(
        id="k2_horizon",
        openers=(
            *(Opener((wrap, SPACES), pairs.wrapped, ahead=(opening, *_name_and(each))) for each in pairs.first),
            *(Opener((opening,), pairs.single, ahead=_name_and(each)) for each in pairs.first),
            *(Opener((wrap, SPACES, opening, SPACES), body, ahead=(first,)) for first in "{["),
            *(Opener((opening, SPACES), body, ahead=(first,)) for first in "{["),
        ),
        write_call=lambda name, arguments: (
            f"{wrap}\n{opening}{name}\n{_write_pairs(arguments, spelled)}{close}\n{spelled['/tool_calls']}"
        ),
        reserved=("<ifm|", "</ifm|", *both_tags("tool_response")),
        tags=(
            Tag((spelled["/tool_calls"],)),
            *(
                Tag((f"<ifm|{each}>",), closings=(f"</ifm|{each}>",), where="start")
                for each in ("think", "think_fast", "think_faster")
            ),
        ),
    )


def solar_open2() -> Dialect:
    """Return the dialect of upstage/Solar-Open2, by what vLLM reads: tokens in the place of tags."""
    begin, end, key, behind, end_value = (
        f"<|tool_{each}|>" for each in ("call:start", "call:end", "arg:start", "arg:value", "arg:end")
    )
    pairs = Pairs(
        spelled={
            "tool_call": begin,
            "/tool_call": end,
            "arg_key": key,
            "/arg_key": behind,
            "arg_value": "",
            "/arg_value": end_value,
        }
    )

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        values = {each: write_value(value, end_value, end) for each, value in arguments.items()}
        return f"{begin}{name}\n" + "".join(f"{key}{each}{behind}{values[each]}{end_value}\n" for each in values) + end

    return Dialect(
        id="solar_open2",
        openers=tuple(Opener((begin,), pairs.single, ahead=_name_and(each)) for each in pairs.first),
        write_call=write_call,
        reserved=("<|tool_call:", "<|tool_arg:", *both_tags("tool_response")),
        tags=closed_again(end),
    )


def cwm_tool() -> Dialect:
    """Return the dialect of facebook/cwm, by its prompting guide: a tag with the name, around text or JSON.

    `<tool: bash>`, a line end, `ls`, a line end and `</tool>`. Text can only be the argument of a tool that has one.
    """
    opening, close, end = "<tool: ", "</tool>", "<|eot_id|>"
    return Dialect(
        id="cwm_tool",
        openers=(Opener((opening, NAME, ">"), Named(opening, close)),),
        write_call=lambda name, arguments: f"{opening}{name}>\n{compact(arguments)}\n{close}",
        reserved=(opening.rstrip(), close, *both_tags("tool_response")),
        tags=(*closed_again(close), *ends_of_turn(end)),
        auto=False,  # people write it as a name for a tool
        notes="Between the tags stands one JSON object, the arguments.",
    )


def _write_pairs(arguments: dict[str, Any], spelled: Mapping[str, str] = MappingProxyType({})) -> str:
    tags = ("arg_key", "/arg_key", "arg_value", "/arg_value", "/tool_call")
    tag = {each: spelled.get(each, f"<{each}>") for each in tags}
    closes = tag["/arg_value"][:-1], tag["/tool_call"][:-1]
    values = {key: write_value(value, *closes) for key, value in arguments.items()}
    return "".join(
        f"{tag['arg_key']}{key}{tag['/arg_key']}\n{tag['arg_value']}{text}{tag['/arg_value']}\n"
        for key, text in values.items()
    )

"""Dialects whose calls are JSON between tags of their own, or behind one: each is an entry of a table.

    <longcat_tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</longcat_tool_call>
    <|tools_prefix|>[{"get_weather": {"city": "Paris"}}]<|tools_suffix|>
    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]

Sources: the chat templates of the models that are named with each. Where one reads the tag of another dialect too, that
opener, or all of the dialect, is `auto=False`: the other one reads it where all are armed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.json_calls import json_calls
from streamtools.parsing.bodies.json_holders import CallsInContainer, CallsUnderNames
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.dialects.hermes import ENDS, hermes_openers, write_call, write_response
from streamtools.parsing.dialects.markerless import arrays
from streamtools.parsing.markers import SPACES, OneOf, Part

_CHATML, _LONGCAT, _APRIEL, _NEMOTRON, _HUNYUAN, _APERTUS = (
    ("<|im_end|>",), ("</longcat_s>",), ("<|end|>",), ("<SPECIAL_12>",), ("<|eos|>",), ("<|assistant_end|>",),
)  # fmt: skip
"""What ends a message in their templates."""
_GRANITE_THOUGHTS = (  # of 3.2, and what stands around the answers of 3.3
    Tag(
        ("Here", OneOf((" is", "'s")), " my thought process:"),
        closings=("Here is my response:", "Here's my response:"),
        where="start",
        auto=False,
    ),
    *(Tag((each,), auto=False) for each in ("<response>", "</response>")),
)
_APRIEL_THOUGHTS = (
    Tag(("Here are my reasoning steps:",), closings=("[BEGIN FINAL RESPONSE]",), where="start", auto=False),
    *(Tag((f"[{which} FINAL RESPONSE]",), auto=False) for which in ("BEGIN", "END")),
)

_WriteCall = Callable[[str, dict[str, Any]], str]


def json_tag_dialects() -> dict[str, Dialect]:
    """Return them by their ids."""
    dialects = {dialect.id: dialect for dialect in (*_objects(), *_arrays(), *_others())}
    interns1 = replace(dialects["internlm2"], id="interns1", models=(), auto=False)
    return {**dialects, "interns1": interns1}  # the same form under the name that Intern-S1 has in other tables


def _objects() -> tuple[Dialect, ...]:
    return (
        Dialect(
            id="granite20b_function_call",  # ibm-granite/granite-20b-functioncalling
            openers=_openers("<function_call>", firsts="{"),
            tags=ends_of_turn("<|endoftext|>"),
            write_call=_between("<function_call> "),
            write_result=write_response,
            reserved=("<function_call>",),
            models=("granite-20b",),
        ),
        Dialect(
            id="internlm2",  # internlm/internlm2_5-7b-chat, internlm/Intern-S1
            openers=_openers(
                *("<|action_start|>", SPACES, "<|plugin|>"), firsts="{", close="<|action_end|>", ends=_CHATML
            ),
            tags=ends_of_turn(*_CHATML),
            write_call=_between("<|action_start|><|plugin|>\n", "<|action_end|>", arguments_key="parameters"),
            write_result=write_response,
            reserved=("<|action_start|>", "<|action_end|>"),
            models=("internlm-?2", "internlm-?3", "intern-?s1"),
        ),
        Dialect(
            id="longcat_json",  # meituan-longcat/LongCat-Flash-Chat
            openers=_openers("<longcat_tool_call>", close="</longcat_tool_call>", ends=_LONGCAT),
            write_call=_between("<longcat_tool_call>\n", "\n</longcat_tool_call>"),
            write_result=write_response,
            reserved=("<longcat_tool_call", "</longcat_tool_call"),
            tags=(Tag(("<longcat_think>",), closings=("</longcat_think>",)), *ends_of_turn(*_LONGCAT)),
            models=("longcat",),
        ),
        Dialect(
            id="ernie45_json",  # baidu/ERNIE-4.5-21B-A3B-Thinking
            openers=hermes_openers(auto=False),
            write_call=write_call,
            write_result=write_response,
            reserved=("<tool_call", "</tool_call", "<tool_response", "</tool_response"),
            tags=(Tag(("<response>",)), Tag(("</response>",)), *ends_of_turn(*ENDS)),
            auto=False,
            models=(r"ernie-?4\.5",),
        ),
    )


def _arrays() -> tuple[Dialect, ...]:
    return (
        Dialect(
            id="granite_list",  # ibm-granite/granite-3.0-8b-instruct; with the tag of Hermes, 3.1 to 3.3
            openers=(
                *_openers("<|tool_call|>"),
                Opener(("<tool_call>", SPACES), json_calls(), ahead=("[",), auto=False),
            ),
            write_call=_between("<|tool_call|>[", "]"),
            tags=(*_GRANITE_THOUGHTS, *ends_of_turn("<|end_of_text|>")),
            write_result=write_response,
            reserved=("<|tool_call|>", "<tool_call"),
            models=("granite-?3",),
        ),
        Dialect(
            id="tool_calls_list",  # ai21labs/AI21-Jamba, ServiceNow-AI/Apriel
            openers=_openers("<tool_calls>", close="</tool_calls>", ends=_APRIEL),
            tags=(*_APRIEL_THOUGHTS, *ends_of_turn(*_APRIEL)),
            write_call=_between("<tool_calls>[", "]</tool_calls>"),
            write_result=write_response,
            reserved=("<tool_calls", "</tool_calls"),
            models=("jamba", "apriel"),
        ),
        Dialect(
            id="toolcall_list",  # nvidia/NVIDIA-Nemotron-Nano-9B-v2
            openers=_openers("<TOOLCALL>", close="</TOOLCALL>", ends=_NEMOTRON),
            tags=ends_of_turn(*_NEMOTRON),
            write_call=_between("<TOOLCALL>[", "]</TOOLCALL>"),
            write_result=lambda name, text: f"<TOOL_RESPONSE>[{text}]</TOOL_RESPONSE>",
            reserved=("<TOOLCALL", "</TOOLCALL", "<TOOL_RESPONSE", "</TOOL_RESPONSE"),
            models=("nemotron-nano-.*v2",),
        ),
        Dialect(
            id="functools_list",  # microsoft/Phi-4-mini-instruct, fireworks-ai/llama-3-firefunction-v2
            openers=(Opener(("functools",), json_calls(), ahead=("[", SPACES, "{"), auto="line_start"),),
            tags=ends_of_turn("<|end|>", "<|endoftext|>", "<|eot_id|>"),
            write_call=_between("functools[", "]"),
            write_result=write_response,
            reserved=("functools[",),
            models=("phi-?4-mini", "firefunction"),
        ),
        Dialect(
            id="hunyuan_a13b_list",  # tencent/Hunyuan-A13B-Instruct
            openers=_openers("<tool_calls>", close="</tool_calls>", ends=_HUNYUAN, auto=False),
            write_call=_between("<tool_calls>[", "]</tool_calls>"),
            write_result=write_response,
            reserved=("<tool_calls", "</tool_calls"),
            tags=(Tag(("<answer>",)), Tag(("</answer>",)), *ends_of_turn(*_HUNYUAN)),
            auto=False,
            models=("hunyuan-?a13b",),
        ),
        Dialect(
            id="cohere_legacy_action",  # CohereForAI/c4ai-command-r-v01
            openers=(
                Opener(("Action:", SPACES, "```json", SPACES), json_calls("```"), ahead=("[",), where="line_start"),
            ),
            tags=ends_of_turn("<|END_OF_TURN_TOKEN|>"),
            write_call=_between("Action:\n```json\n[\n", "\n]\n```", name_key="tool_name", arguments_key="parameters"),
            write_result=write_response,
            reserved=("Action:",),
            auto=False,  # a word that other forms of agents write before their JSON, too
            models=("command-?r(?!7b)",),
        ),
    )


def _others() -> tuple[Dialect, ...]:
    return (
        Dialect(
            id="apertus_list",  # swiss-ai/Apertus-8B-Instruct; calls may stand inside its thoughts
            openers=(
                Opener(
                    ("<|tools_prefix|>", SPACES),
                    json_calls("<|tools_suffix|>", ends=_APERTUS, envelope=CallsUnderNames),
                    ahead=("[",),
                ),
            ),
            write_call=lambda name, given: f"<|tools_prefix|>[{compact({name: given})}]<|tools_suffix|>",
            write_result=write_response,
            in_reasoning="call",
            reserved=("<|tools_prefix|>", "<|tools_suffix|>"),
            tags=(
                Tag(("<|inner_prefix|>",), closings=("<|inner_suffix|>",)),
                Tag(("<|inner_suffix|>",)),
                *ends_of_turn(*_APERTUS),
            ),
            models=("apertus",),
        ),
        Dialect(
            id="xlam_json",  # Salesforce/Llama-xLAM-2-8b-fc-r
            openers=(
                Opener(("[TOOL_CALLS]", SPACES), json_calls(), ahead=("[",), auto=False),
                *hermes_openers(auto=False),
            ),
            openers_for=arrays,
            tags=ends_of_turn("<|eot_id|>", "<|im_end|>"),
            write_call=lambda name, given: compact([{"name": name, "arguments": given}]),
            write_result=write_response,
            reserved=("<tool_call", "</tool_call", "[TOOL_CALLS]"),
            auto=False,
            models=("xlam",),
            notes="A call is the whole answer: nothing comes before it.",
        ),
        Dialect(
            id="json_begin_end",  # taught by a prompt
            openers=(
                Opener(
                    ("JSON_BEGIN", SPACES),
                    json_calls("JSON_END", envelope=CallsInContainer),
                    ahead=("{",),
                    where="line_start",
                ),
            ),
            write_call=lambda name, given: (
                f"JSON_BEGIN\n{compact({'tools': [{'tool': name, 'arguments': given}]})}\nJSON_END"
            ),
            write_result=write_response,
            reserved=("JSON_BEGIN", "JSON_END"),
        ),
    )


def _openers(
    *parts: Part, firsts: str = "{[", close: str = "", ends: Sequence[str] = (), auto: bool = True
) -> tuple[Opener, ...]:
    body = json_calls(close, ends=ends)
    return tuple(Opener((*parts, SPACES), body, ahead=(first,), auto=auto) for first in firsts)


def _between(opener: str, close: str = "", *, name_key: str = "name", arguments_key: str = "arguments") -> _WriteCall:
    def write(name: str, arguments: dict[str, Any]) -> str:
        return opener + compact({name_key: name, arguments_key: arguments}) + close

    return write

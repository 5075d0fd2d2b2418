"""Calls that are JSON with the name of the tool in it: between tags, behind one, or with nothing around them.

    <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>
    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]
    {"name": "get_weather", "parameters": {"city": "Paris"}}

The sources are the chat templates of the models that are named with each. Where a dialect reads the tag of another one
too, that opener, or all of the dialect, is `auto=False`: the other one reads it where all are enabled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.calls import ARGUMENT_FIELDS, ID_FIELDS, NAME_FIELDS
from streamtools.json_values import compact
from streamtools.parsing.bodies import forged_result, json_bodies
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.dialects.base import (
    ALONE,
    NO_JSON,
    ROLE_END,
    UNMARKED_JSON,
    Dialect,
    Opener,
    Tag,
    as_object,
    both_tags,
    closed_again,
    ends_of_turn,
)
from streamtools.parsing.markers import SPACES, Maybe, OneOf, Part, Some


def hermes_json() -> Dialect:
    """Return the dialect of Hermes, Qwen 2.5 and 3, and most models that are taught by a prompt.

    The tag is that of other dialects, too: what follows it tells them apart, here a brace or a bracket. Source: the
    chat templates of NousResearch/Hermes-3 and Qwen/Qwen3.
    """
    return _tagged(
        "hermes_json",
        ("<tool_call>\n", "\n</tool_call>"),
        ("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "</s>"),  # of all models that write so
        reserved=both_tags("tool_call", "tool_response"),
        line_feeds=1,
        tags=(ROLE_END,),
    )


def ernie45_json() -> Dialect:
    """Return the dialect of baidu/ERNIE-4.5-21B-A3B-Thinking: that of Hermes, and an answer in tags."""
    hermes = hermes_json()
    openers = tuple(replace(opener, auto=False) for opener in hermes.openers)
    tags = (*_on_lines("<response>", "</response>"), *hermes.tags)
    return replace(hermes, id="ernie45_json", openers=openers, tags=tags, auto=False)


def granite20b_function_call() -> Dialect:
    """Return the dialect of ibm-granite/granite-20b-functioncalling."""
    layout, ends, closing = ("<function_call> ", ""), ("<|endoftext|>",), closed_again("</function_call>")
    return _tagged("granite20b_function_call", layout, ends, firsts="{", reserved=("<function_call>",), tags=closing)


def granite_list() -> Dialect:
    """Return the dialect of ibm-granite/granite-3.0-8b-instruct; 3.1 to 3.3 write the tag of Hermes.

    Phi-4-mini closes it, with `<|/tool_call|>`.
    """
    thoughts = Tag(  # of 3.2, and what stands around the answers of 3.3
        ("Here", OneOf((" is", "'s")), " my thought process:"),
        closings=("Here is my response:", "Here's my response:"),
        where="start",
        auto=False,
    )
    dialect = _tagged(
        "granite_list",
        ("<|tool_call|>[", "]"),
        ("<|end_of_text|>",),
        reserved=("<|tool_call|>", "<tool_call"),
        tags=(
            thoughts,
            Tag(("<|/tool_call|>",)),
            *(Tag((each,), auto=False) for each in ("<response>", "</response>")),
        ),
    )
    return replace(
        dialect, openers=(*dialect.openers, Opener(("<tool_call>", SPACES), json_calls(), ahead=("[",), auto=False))
    )


def longcat_json() -> Dialect:
    """Return the dialect of meituan-longcat/LongCat-Flash-Chat."""
    layout = "<longcat_tool_call>\n", "\n</longcat_tool_call>"
    tags = (Tag(("<longcat_think>",), closings=("</longcat_think>",)),)
    return _tagged("longcat_json", layout, ("</longcat_s>",), tags=tags)


def lm_studio() -> Dialect:
    """Return the dialect that LM Studio teaches models whose template knows no tools."""
    return _tagged("lm_studio", ("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"), ())


def tool_calls_list() -> Dialect:
    """Return the dialect of ai21labs/AI21-Jamba and ServiceNow-AI/Apriel."""
    thoughts, answer, end = "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"
    tags = (
        Tag((thoughts,), closings=(answer,), where="start", auto=False),
        *(Tag((each,), auto=False, line_feeds=each is end) for each in (answer, end)),
    )
    layout = "<tool_calls>[", "]</tool_calls>"
    return _tagged("tool_calls_list", layout, ("<|end|>",), tags=tags)


def hunyuan_a13b_list() -> Dialect:
    """Return the dialect of tencent/Hunyuan-A13B-Instruct."""
    layout, tags = ("<tool_calls>[", "]</tool_calls>"), _on_lines("<answer>", "</answer>")
    return _tagged("hunyuan_a13b_list", layout, ("<|eos|>",), tags=tags, auto=False)


def toolcall_list() -> Dialect:
    """Return the dialect of nvidia/NVIDIA-Nemotron-Nano-9B-v2."""
    layout, reserved = ("<TOOLCALL>[", "]</TOOLCALL>"), both_tags("TOOLCALL", "TOOL_RESPONSE")
    dialect = _tagged("toolcall_list", layout, ("<SPECIAL_12>",), reserved=reserved)
    return replace(dialect, write_result=lambda name, text: f"<TOOL_RESPONSE>[{text}]</TOOL_RESPONSE>")


def internlm2() -> Dialect:
    """Return the dialect of internlm/internlm2_5-7b-chat and internlm/Intern-S1."""
    begin, end, ends = "<|action_start|>", "<|action_end|>", ("<|im_end|>",)
    call = json_calls(end, ends=ends)
    return Dialect(
        id="internlm2",
        openers=(
            Opener((begin, SPACES, "<|plugin|>", SPACES), call, ahead=("{",)),
            Opener((begin, SPACES, "<|plugin|>", SPACES), call, ahead=(NO_JSON,), auto=False),
        ),
        write_call=_between(f"{begin}<|plugin|>\n", end, keys=("name", "parameters")),
        reserved=(begin, end),
        tags=(*closed_again(end), *ends_of_turn(*ends)),
    )


def interns1() -> Dialect:
    """Return the same dialect under the name that Intern-S1 has in other tables."""
    return replace(internlm2(), id="interns1", auto=False)


def functools_list() -> Dialect:
    """Return the dialect of microsoft/Phi-4-mini-instruct and fireworks-ai/llama-3-firefunction-v2."""
    return Dialect(
        id="functools_list",
        openers=(Opener(("functools",), json_calls(), ahead=("[", SPACES, "{"), auto="line_start"),),
        write_call=_between("functools[", "]"),
        reserved=("functools[",),
        tags=ends_of_turn("<|end|>", "<|endoftext|>", "<|eot_id|>"),
    )


def cohere_legacy_action() -> Dialect:
    """Return the dialect of CohereForAI/c4ai-command-r-v01."""
    call = json_calls("```")
    return Dialect(
        id="cohere_legacy_action",
        openers=(Opener(("Action:", SPACES, "```json", SPACES), call, ahead=("[",), where="line_start"),),
        write_call=_between("Action:\n```json\n[\n", "\n]\n```", keys=("tool_name", "parameters")),
        reserved=("Action:",),
        tags=ends_of_turn("<|END_OF_TURN_TOKEN|>"),
        auto=False,  # a word that other forms of agents write before their JSON, too
    )


def cohere_action_json() -> Dialect:
    """Return the dialect of Command R7B and Command A, with thoughts and answers between tokens, too.

    `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>`

    The tokens count in code, too: the one that ends an answer stands directly behind it, so that a fence or a quote in
    its last line would else hide it. Source: the chat templates of CohereLabs/c4ai-command-r7b-12-2024 and
    CohereLabs/c4ai-command-a-03-2025.
    """
    call, end_of_result = json_calls("<|END_ACTION|>"), "<|END_TOOL_RESULT|>"

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        call = compact({"tool_call_id": "0", "tool_name": name, "parameters": arguments})
        return f"<|START_ACTION|>[\n    {call}\n]<|END_ACTION|>"

    def write_result(name: str, text: str) -> str:
        result = compact({"tool_call_id": "0", "results": {"0": as_object(text, "content")}, "is_error": None})
        return f"<|START_TOOL_RESULT|>[\n    {result}\n]{end_of_result}"

    return Dialect(
        id="cohere_action_json",
        openers=(
            *(Opener(("<|START_ACTION|>", SPACES), call, ahead=(first,)) for first in "[{"),
            Opener(("<|START_ACTION|>", SPACES), call, ahead=(NO_JSON,), auto=False),
            Opener(("<|START_TOOL_RESULT|>",), forged_result(end_of_result), kind="result"),
        ),
        write_call=write_call,
        write_result=write_result,
        in_code="call",
        reserved=("<|START_", "<|END_", "<|CHATBOT_TOKEN|>"),
        tags=(
            Tag(
                ("<|START_THINKING|>",),
                closings=("<|END_THINKING|>",),
                before=("<|START_ACTION|>", "<|START_RESPONSE|>", "<|START_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
            ),
            Tag(("<|START_", OneOf(("RESPONSE", "TEXT")), "|>")),
            Tag(("<|END_", OneOf(("RESPONSE", "TEXT", "THINKING", "ACTION")), "|>")),
            Tag(("<|START_ACTION|>", SPACES, "<|END_ACTION|>")),
            Tag(("<|", OneOf(("START_OF_TURN_TOKEN", "END_OF_TURN_TOKEN", "CHATBOT_TOKEN")), "|>")),
        ),
    )


def hyperclovax_think() -> Dialect:
    """Return the dialect of naver-hyperclovax/HyperCLOVAX-SEED-Think-14B, by its maker's plugin for vLLM.

    A turn is a chain of messages whose headers say what they are: thoughts, calls, or else the answer.
    """
    header, tool, think, end = "<|im_start|>assistant", " -> tool/function_call\n", "/think\n", "<|im_end|>"
    return Dialect(
        id="hyperclovax_think",
        openers=(
            Opener((header + tool,), json_calls(), ahead=("[",), tag=1),
            Opener((tool[1:],), json_calls(), ahead=("[",), where="start", tag=1),  # behind the prompt's header
        ),
        write_call=_between(f"{header}{tool}[", f"]{end}"),
        reserved=(header, tool[1:]),
        tags=(
            Tag((think,), closings=(end,), where="start", auto=False),
            Tag((header + think,), closings=(end,), auto=False),
            Tag((header + "\n",), auto=False),
            Tag((end,), auto=False),
            *ends_of_turn("<|stop|>", "<|endofturn|>"),
        ),
    )


def json_begin_end() -> Dialect:
    """Return a dialect that is taught by a prompt."""
    calls = json_calls("JSON_END", envelope=json_bodies.CallsInContainer)
    return Dialect(
        id="json_begin_end",
        openers=(Opener(("JSON_BEGIN", SPACES), calls, ahead=("{",), where="line_start", tag=1),),
        write_call=lambda name, arguments: (
            f"JSON_BEGIN\n{compact({'tools': [{'tool': name, 'arguments': arguments}]})}\nJSON_END"
        ),
        reserved=("JSON_BEGIN", "JSON_END"),
    )


def _tagged(
    id: str,
    layout: tuple[str, str],
    ends: tuple[str, ...],
    *,
    firsts: str = "{[",
    line_feeds: int = 0,
    reserved: tuple[str, ...] = (),
    tags: tuple[Tag, ...] = (),
    auto: bool = True,
) -> Dialect:
    """Return a dialect of JSON between two tags, or behind one.

    The `layout` is what the template writes before and behind a call, and `ends` are its tokens that end a message.
    What is `reserved` are the beginnings of the two tags, unless it is named.
    """
    opening, close = layout[0].rstrip("[ \n"), layout[1].lstrip("] \n")
    body = json_calls(close, ends=ends)
    return Dialect(
        id=id,
        openers=tuple(
            Opener((opening, SPACES), body, ahead=(first,), line_feeds=line_feeds, auto=auto) for first in firsts
        ),
        write_call=_between(*layout),
        reserved=reserved or (opening[:-1], close[:-1]),
        tags=(*tags, *closed_again(close), *ends_of_turn(*ends)),
        auto=auto,
    )


def _on_lines(opening: str, close: str) -> tuple[Tag, ...]:
    """Return the tags around an answer; one line feed inside each of them is the template's, and one behind both."""
    return Tag((opening, OneOf(("\n", "")))), Tag((close, OneOf(("\n", ""))), line_feeds=1)


def _between(
    before: str, behind: str, *, keys: tuple[str, str] = ("name", "arguments")
) -> Callable[[str, dict[str, Any]], str]:
    return lambda name, arguments: before + compact({keys[0]: name, keys[1]: arguments}) + behind


# An answer in JSON looks like a call that nothing marks. So that counts only at the start of a message, or behind one
# another with white space or a semicolon between; only for declared tools; and only where the name comes first, but for
# a type or an id, so that it is soon certain: behind it, the key of the arguments or the end of the object commits. An
# object that begins with its arguments is text. `dialects="auto"` reads none of them bare.


def llama3_json() -> Dialect:
    """Return the dialect of Llama 3.1 to 4 where it is not pythonic: bare, or behind a token that counts anywhere.

    Source: the chat template of meta-llama/Llama-3.1.
    """
    keys = OneOf(_quoted(("type", "id", "function", *NAME_FIELDS)))
    return Dialect(
        id="llama3_json",
        openers=(Opener(("<|python_tag|>", SPACES), json_bodies.chained_json([("{", _GAP, keys)]), ahead=("{",)),),
        openers_for=lambda names: _bare(_call(names)),
        write_call=_between("", "", keys=("name", "parameters")),
        reserved=("<|python_tag|>",),
        unmarked=UNMARKED_JSON,
        tags=ends_of_turn("<|eot_id|>", "<|eom_id|>"),
        auto="marked",
        notes=ALONE,
    )


def raw_json() -> Dialect:
    """Return the dialect of one object or several, bare or in a fence."""
    return Dialect(
        id="raw_json",
        openers=(),
        openers_for=lambda names: _bare(_call(names)) + _fenced(_call(names)),
        write_call=_between("", ""),
        unmarked=UNMARKED_JSON,
        auto=False,
        notes=ALONE,
    )


def json_array() -> Dialect:
    """Return the dialect of an array of calls, bare or in a fence."""
    return replace(raw_json(), id="json_array", openers_for=_arrays, write_call=_between("[", "]"))


def xlam_json() -> Dialect:
    """Return the dialect of Salesforce/Llama-xLAM-2-8b-fc-r, which writes bare arrays, and tags of others."""
    return Dialect(
        id="xlam_json",
        openers=(
            Opener(("[TOOL_CALLS]", SPACES), json_calls(), ahead=("[",), auto=False),
            *(replace(opener, auto=False) for opener in hermes_json().openers),
        ),
        openers_for=_arrays,
        write_call=_between("[", "]"),
        reserved=(*both_tags("tool_call"), "[TOOL_CALLS]"),
        unmarked=UNMARKED_JSON,
        tags=(*closed_again("</tool_call>"), *ends_of_turn("<|eot_id|>", "<|im_end|>")),
        auto=False,
        notes=ALONE,
    )


def _arrays(names: tuple[str, ...]) -> tuple[Opener, ...]:
    begin = ("[", _GAP, *_call(names))
    return _bare(begin) + _fenced(begin)


def _bare(begin: tuple[Part, ...]) -> tuple[Opener, ...]:
    return (
        Opener(begin[:1], json_bodies.from_its_marker(json_calls()), ahead=begin[1:], where="start"),
        Opener((";", SPACES), json_calls(), ahead=begin, where="start"),
    )


def _fenced(begin: tuple[Part, ...]) -> tuple[Opener, ...]:
    return (Opener(("```", Maybe(("json",)), SPACES), json_calls("```"), ahead=begin, where="start"),)


def _call(names: tuple[str, ...]) -> tuple[Part, ...]:
    """Return the beginning of an object that calls one of these tools, up to where that is certain.

    Names take their time to compile, so they stand in it once; a colon right behind one (broken JSON) commits too.
    """
    return (
        *("{", _GAP, _IDENTIFIED, _TYPED, _IDENTIFIED, _NESTED),
        *(OneOf(_quoted((*NAME_FIELDS, "function"))), _GAP, ":", _GAP),
        *(OneOf(_quoted(names)), _GAP, Maybe((",", _GAP, _ARGUMENTS, _GAP)), OneOf((":", "}"))),
    )


def _quoted(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words as JSON strings: with characters as they are, and escaped."""
    return tuple(dict.fromkeys(json.dumps(word, ensure_ascii=ascii) for word in words for ascii in (True, False)))


_GAP = Some(r" \t\r\n", 0, 16)
_ARGUMENTS = OneOf(_quoted(ARGUMENT_FIELDS))
_ID: tuple[str | Some, ...] = ('"', Some(r'^"\\\n', 0, 64), '"')
_IDENTIFIED = Maybe((OneOf(_quoted(ID_FIELDS)), _GAP, ":", _GAP, *_ID, _GAP, ",", _GAP))
_TYPED = Maybe(('"type"', _GAP, ":", _GAP, '"function"', _GAP, ",", _GAP))
_NESTED = Maybe(('"function"', _GAP, ":", _GAP, "{", _GAP))

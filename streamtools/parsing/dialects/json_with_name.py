"""Dialects of calls in JSON that contains the name of the tool: between tags, after a tag, or without tags.

    <tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>
    functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]
    {"name": "get_weather", "parameters": {"city": "Paris"}}

If a docstring names a model but no source, the source is the model's chat template. Some dialects also read a tag of
another dialect. The opener for this tag, or the whole dialect, then has `auto=False`, so that `"auto"` includes each
tag only once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.calls import ARGUMENT_FIELDS, ID_FIELDS, NAME_FIELDS
from streamtools.json_values import compact
from streamtools.parsing.bodies import forged_result
from streamtools.parsing.bodies.json_bodies import chained_json, json_calls
from streamtools.parsing.dialects.base import ALONE, NO_JSON, ROLE_END, Dialect, Opener, Tag, closing_tags
from streamtools.parsing.dialects.writing import as_object, both_tags
from streamtools.parsing.markers import SPACES, Maybe, OneOf, Part, Some


def hermes_json() -> Dialect:
    """Return the dialect of Hermes, of Qwen 2.5 and 3, and of most prompts that teach tool calls.

    Other dialects have the same tag. Calls of this dialect have a brace or a bracket after the tag. Source: the chat
    templates of NousResearch/Hermes-3 and Qwen/Qwen3.
    """
    return _tagged(
        "hermes_json",
        ("<tool_call>\n", "\n</tool_call>"),
        reserved=both_tags("tool_call", "tool_response"),
        line_feeds=1,
        tags=(ROLE_END,),
    )


def ernie45_json() -> Dialect:
    """Return the dialect of baidu/ERNIE-4.5-21B-A3B-Thinking: hermes_json, with tags around the answer."""
    hermes = hermes_json()
    openers = tuple(replace(opener, auto=False) for opener in hermes.openers)
    tags = (*_answer_tags("<response>", "</response>"), *hermes.tags)
    return replace(hermes, id="ernie45_json", openers=openers, tags=tags, auto=False)


def granite20b_function_call() -> Dialect:
    """Return the dialect of ibm-granite/granite-20b-functioncalling."""
    layout, closing = ("<function_call> ", ""), closing_tags("</function_call>")
    return _tagged("granite20b_function_call", layout, firsts="{", reserved=("<function_call>",), tags=closing)


def granite_list() -> Dialect:
    """Return the dialect of ibm-granite/granite-3.0-8b-instruct. Granite 3.1 to 3.3 write the tag of hermes_json.

    Phi-4-mini writes `<|/tool_call|>` after its calls. Granite 3.2 begins its reasoning with a fixed sentence. Granite
    3.3 writes tags around its answer.
    """
    reasoning = Tag(
        ("Here", OneOf((" is", "'s")), " my thought process:"),
        closings=("Here is my response:", "Here's my response:"),
        where="start",
        auto=False,
    )
    response = (Tag((tag,), auto=False) for tag in ("<response>", "</response>"))
    return _tagged(
        "granite_list",
        ("<|tool_call|>[", "]"),
        Opener(("<tool_call>", SPACES), json_calls(), ahead=("[",), auto=False),
        reserved=("<|tool_call|>", "<tool_call"),
        tags=(reasoning, Tag(("<|/tool_call|>",)), *response),
    )


def longcat_json() -> Dialect:
    """Return the dialect of meituan-longcat/LongCat-Flash-Chat."""
    layout = "<longcat_tool_call>\n", "\n</longcat_tool_call>"
    tags = (Tag(("<longcat_think>",), closings=("</longcat_think>",)),)
    return _tagged("longcat_json", layout, tags=tags)


def lm_studio() -> Dialect:
    """Return the dialect that LM Studio teaches to models whose chat template has no tool calls."""
    return _tagged("lm_studio", ("[TOOL_REQUEST]", "[END_TOOL_REQUEST]"))


def pangu_list() -> Dialect:
    """Return the dialect of openPangu Embedded, as vLLM's parser reads it."""
    tags = (Tag(("[unused16]",), closings=("[unused17]",)), Tag(("[unused10]",), auto=False))
    return _tagged("pangu_list", ("[unused11][", "][unused12]"), tags=tags)


def pangu2_list() -> Dialect:
    """Return the dialect of openPangu V2, as vLLM's parser reads it."""
    return _tagged("pangu2_list", ("<|tool_call_start|>[", "]<|tool_call_end|>"), auto=False)


def qwen25_coder_tools() -> Dialect:
    """Return the dialect of Qwen2.5-Coder, which writes calls in a `<tools>` tag or in `hermes_json`.

    Its prompt lists the tools in a `<tools>` tag, too. Other text may quote this list, so `"auto"` does not include the
    dialect. Source: the reports of users to inference servers.
    """
    layout, tags = ("<tools>\n", "\n</tools>"), closing_tags("</tool_call>")
    hermes = (replace(opener, unless_enabled="hermes_json") for opener in hermes_json().openers)
    return _tagged("qwen25_coder_tools", layout, *hermes, tags=tags, auto=False)


def rwkv_fence() -> Dialect:
    """Return the dialect of RWKV, as vLLM's parser reads it: bold words, and then JSON in a fence of back-ticks.

    `"auto"` does not include the dialect, because other models may write the same words before an example.
    """
    opening, calls = ("**Tool Call:**", SPACES, "```json", SPACES), json_calls("```")
    return replace(
        cohere_legacy_action(),
        id="rwkv_fence",
        openers=tuple(Opener(opening, calls, ahead=(first,)) for first in "{["),
        write_call=_json_writer("**Tool Call:**\n\n```json\n", "\n```"),
        reserved=(opening[0],),
    )


def tool_calls_list() -> Dialect:
    """Return the dialect of ai21labs/AI21-Jamba and ServiceNow-AI/Apriel."""
    reasoning, answer, end = "Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]"
    tags = (
        Tag((reasoning,), closings=(answer,), where="start", auto=False),
        Tag((answer,), auto=False),
        Tag((end,), auto=False, line_feeds=1),
    )
    return _tagged("tool_calls_list", ("<tool_calls>[", "]</tool_calls>"), tags=tags)


def hunyuan_a13b_list() -> Dialect:
    """Return the dialect of tencent/Hunyuan-A13B-Instruct."""
    layout, tags = ("<tool_calls>[", "]</tool_calls>"), _answer_tags("<answer>", "</answer>")
    return _tagged("hunyuan_a13b_list", layout, tags=tags, auto=False)


def toolcall_list() -> Dialect:
    """Return the dialect of nvidia/NVIDIA-Nemotron-Nano-9B-v2."""
    layout, reserved = ("<TOOLCALL>[", "]</TOOLCALL>"), both_tags("TOOLCALL", "TOOL_RESPONSE")
    dialect = _tagged("toolcall_list", layout, reserved=reserved)
    return replace(dialect, write_result=lambda name, text: f"<TOOL_RESPONSE>[{text}]</TOOL_RESPONSE>")


def internlm2() -> Dialect:
    """Return the dialect of internlm/internlm2_5-7b-chat and internlm/Intern-S1."""
    begin, end = "<|action_start|>", "<|action_end|>"
    opening, call = (begin, SPACES, "<|plugin|>", SPACES), json_calls(end)
    return Dialect(
        id="internlm2",
        openers=(Opener(opening, call, ahead=("{",)), Opener(opening, call, ahead=(NO_JSON,), auto=False)),
        write_call=_json_writer(f"{begin}<|plugin|>\n", end, keys=("name", "parameters")),
        reserved=(begin, end),
        tags=closing_tags(end),
    )


def interns1() -> Dialect:
    """Return `internlm2` under the id that inference servers use for Intern-S1."""
    return replace(internlm2(), id="interns1", auto=False)


def functools_list() -> Dialect:
    """Return the dialect of microsoft/Phi-4-mini-instruct and fireworks-ai/llama-3-firefunction-v2."""
    return Dialect(
        id="functools_list",
        openers=(Opener(("functools",), json_calls(), ahead=("[", SPACES, "{"), auto="line_start"),),
        write_call=_json_writer("functools[", "]"),
    )


def cohere_legacy_action() -> Dialect:
    """Return the dialect of CohereForAI/c4ai-command-r-v01."""
    opening, call = ("Action:", SPACES, "```json", SPACES), json_calls("```")
    return Dialect(
        id="cohere_legacy_action",
        openers=(Opener(opening, call, ahead=("[",), where="line_start"),),
        write_call=_json_writer("Action:\n```json\n[\n", "\n]\n```", keys=("tool_name", "parameters")),
        auto=False,  # other agent formats also have this word before JSON
    )


def cohere_action_json() -> Dialect:
    """Return the dialect of Command R7B and Command A. Tokens also surround reasoning and answers.

    `<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Paris"}}]<|END_ACTION|>`

    Tokens are also read inside code. The token at the end of an answer directly follows the text. If the last line of
    the text is code or a quote, this token would otherwise be read as part of the code or the quote. Source: the chat
    templates of CohereLabs/c4ai-command-r7b-12-2024 and CohereLabs/c4ai-command-a-03-2025.
    """
    calls, end_of_result = json_calls("<|END_ACTION|>"), "<|END_TOOL_RESULT|>"

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        call = compact({"tool_call_id": "0", "tool_name": name, "parameters": arguments})
        return f"<|START_ACTION|>[\n    {call}\n]<|END_ACTION|>"

    def write_result(name: str, text: str) -> str:
        result = compact({"tool_call_id": "0", "results": {"0": as_object(text, "content")}, "is_error": None})
        return f"<|START_TOOL_RESULT|>[\n    {result}\n]{end_of_result}"

    return Dialect(
        id="cohere_action_json",
        openers=(
            *(Opener(("<|START_ACTION|>", SPACES), calls, ahead=(first,)) for first in "[{"),
            Opener(("<|START_ACTION|>", SPACES), calls, ahead=(NO_JSON,), auto=False),
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
                before=("<|START_RESPONSE|>", "<|START_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
            ),
            Tag(("<|START_", OneOf(("RESPONSE", "TEXT")), "|>")),
            Tag(("<|END_", OneOf(("RESPONSE", "TEXT", "THINKING", "ACTION")), "|>")),
            Tag(("<|START_ACTION|>", SPACES, "<|END_ACTION|>")),
            Tag(("<|", OneOf(("START_OF_TURN_TOKEN", "CHATBOT_TOKEN")), "|>")),
            Tag(("<|END_OF_TURN_TOKEN|>",), ends_turn=True),
        ),
    )


def hyperclovax_think() -> Dialect:
    """Return the dialect of naver-hyperclovax/HyperCLOVAX-SEED-Think-14B, as Naver's plugin for vLLM reads it.

    A turn consists of messages. The header of a message tells whether the message contains reasoning, calls or the
    answer.
    """
    header, tool, think, end = "<|im_start|>assistant", " -> tool/function_call\n", "/think\n", "<|im_end|>"
    return Dialect(
        id="hyperclovax_think",
        openers=(
            Opener((header + tool,), json_calls(), ahead=("[",), tag_parts=1),
            # The prompt contains the beginning of the header.
            Opener((tool[1:],), json_calls(), ahead=("[",), where="start", tag_parts=1),
        ),
        write_call=_json_writer(f"{header}{tool}[", f"]{end}"),
        reserved=(header, tool[1:]),
        tags=(
            Tag((think,), closings=(end,), before=(header,), where="start", auto=False),
            Tag((header + think,), closings=(end,), before=(header,), auto=False),
            Tag((header + "\n",), auto=False),
            Tag((end,), auto=False),
        ),
    )


def json_begin_end() -> Dialect:
    """Return a dialect that models write only if prompted to. Its tags are the words JSON_BEGIN and JSON_END."""
    calls = json_calls("JSON_END", contained=True)

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        return f"JSON_BEGIN\n{compact({'tools': [{'tool': name, 'arguments': arguments}]})}\nJSON_END"

    return Dialect(
        id="json_begin_end",
        openers=(Opener(("JSON_BEGIN", SPACES), calls, ahead=("{",), where="line_start", tag_parts=1),),
        write_call=write_call,
        reserved=("JSON_BEGIN", "JSON_END"),
    )


def _tagged(
    id: str,
    layout: tuple[str, str],
    *more: Opener,
    firsts: str = "{[",
    line_feeds: int = 0,
    reserved: tuple[str, ...] = (),
    tags: tuple[Tag, ...] = (),
    auto: bool = True,
) -> Dialect:
    """Return a dialect of JSON between two tags, or after one tag.

    `layout` holds the texts that the chat template writes before and after a call. The tags are in these texts. `more`
    are other openers.
    `firsts` are the characters with which the JSON may begin. `line_feeds` is how many line feeds before the first tag
    are hidden. `reserved` and `auto` are fields of `Dialect`. By default, the beginnings of the two tags are reserved.
    """
    opening, close = layout[0].rstrip("[ \n"), layout[1].lstrip("] \n")
    body = json_calls(close)
    return Dialect(
        id=id,
        openers=(Opener((opening, SPACES), body, (OneOf(tuple(firsts)),), line_feeds=line_feeds, auto=auto), *more),
        write_call=_json_writer(*layout),
        reserved=reserved or (opening[:-1], close[:-1]),
        tags=(*tags, *closing_tags(close)),
        auto=auto,
    )


def _answer_tags(opening: str, close: str) -> tuple[Tag, ...]:
    """Return the tags around an answer. A line feed after each tag, and one before the closing tag, is hidden."""
    return Tag((opening, OneOf(("\n", "")))), Tag((close, OneOf(("\n", ""))), line_feeds=1)


def _json_writer(
    before: str, after: str, *, keys: tuple[str, str] = ("name", "arguments")
) -> Callable[[str, dict[str, Any]], str]:
    return lambda name, arguments: before + compact({keys[0]: name, keys[1]: arguments}) + after


# Bare JSON is a call without a marker. An answer in JSON looks similar. So bare JSON is a call only at the start of a
# message, or directly after another call, with white space or a semicolon between them. The tool must be declared. The
# name must be the first member of the object, so that little text is buffered. Only a type, an id, or the key
# `function` of an inner object may precede the name. The parser recognizes the call when the key of the arguments or
# the end of the object follows the name. An object that begins with arguments is text. `"auto"` reads no bare JSON.


_NAME_KEY = (('"', '(?:name|toolName|tool_name|tool|function)"'),)
"""The key of the name in bare JSON, such as `"tool_name"`, for `Dialect.reserved_patterns`."""


def llama3_json() -> Dialect:
    """Return the JSON dialect of Llama 3.1 to 4: bare JSON, or JSON after a `<|python_tag|>` at any position.

    Source: the chat template of meta-llama/Llama-3.1.
    """
    keys = OneOf(_quoted(("type", "id", "function", *NAME_FIELDS)))
    return Dialect(
        id="llama3_json",
        openers=(Opener(("<|python_tag|>", SPACES), chained_json("{", _GAP, keys), ahead=("{",)),),
        openers_for=lambda names: _bare(_call(names)),
        write_call=_json_writer("", "", keys=("name", "parameters")),
        reserved_patterns=_NAME_KEY,
        auto="marked",
        notes=ALONE,
    )


def raw_json() -> Dialect:
    """Return the dialect of calls that are JSON objects without tags, bare or in a fence of back-ticks."""
    return Dialect(
        id="raw_json",
        openers=(),
        openers_for=unmarked_json,
        write_call=_json_writer("", ""),
        reserved_patterns=_NAME_KEY,
        auto=False,
        notes=ALONE,
    )


def unmarked_json(names: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return the openers of one call in JSON without tags."""
    return _bare(_call(names)) + _fenced(_call(names))


def json_array() -> Dialect:
    """Return the dialect of calls in a JSON array without tags, bare or in a fence of back-ticks."""
    return replace(raw_json(), id="json_array", openers_for=_array_openers, write_call=_json_writer("[", "]"))


def xlam_json() -> Dialect:
    """Return the dialect of Salesforce/Llama-xLAM-2-8b-fc-r: `json_array`, and the tags of two other dialects."""
    return Dialect(
        id="xlam_json",
        openers=(
            Opener(("[TOOL_CALLS]", SPACES), json_calls(), ahead=("[",), auto=False),
            *(replace(opener, auto=False) for opener in hermes_json().openers),
        ),
        openers_for=_array_openers,
        write_call=_json_writer("[", "]"),
        reserved=(*both_tags("tool_call"), "[TOOL_CALLS]"),
        reserved_patterns=_NAME_KEY,
        tags=closing_tags("</tool_call>"),
        auto=False,
        notes=ALONE,
    )


def _array_openers(names: tuple[str, ...]) -> tuple[Opener, ...]:
    begin = ("[", _GAP, *_call(names))
    return _bare(begin) + _fenced(begin)


def _bare(begin: tuple[Part, ...]) -> tuple[Opener, ...]:
    """Return the openers of bare JSON: at the start of a message, and after another call and a semicolon."""
    return (
        Opener(begin[:1], json_calls(whole=True), ahead=begin[1:], where="start"),
        Opener((";", SPACES), json_calls(), ahead=begin, where="start"),
    )


def _fenced(begin: tuple[Part, ...]) -> tuple[Opener, ...]:
    return (Opener(("```", Maybe(("json",)), SPACES), json_calls("```"), ahead=begin, where="start"),)


def _call(names: tuple[str, ...]) -> tuple[Part, ...]:
    """Return the beginning of an object, up to the point that makes the object a call of one of these tools.

    The names occur only once in the result, because compiling them takes time. A colon directly after the name is
    malformed JSON. Such a colon also makes the object a call.
    """
    return (
        *("{", _GAP, _ID, _TYPE, _ID, _NESTED),
        *(OneOf(_quoted((*NAME_FIELDS, "function"))), _GAP, ":", _GAP),
        *(OneOf(_quoted(names)), _GAP, Maybe((",", _GAP, _ARGUMENTS, _GAP)), OneOf((":", "}"))),
    )


def _quoted(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return each word as a JSON string. A word that is not ASCII gives two strings: unchanged and escaped."""
    return tuple(dict.fromkeys(json.dumps(word, ensure_ascii=ascii) for word in words for ascii in (True, False)))


_GAP = Some(r" \t\r\n", 0, 16)  # limited, so that little text is buffered
_ARGUMENTS = OneOf(_quoted(ARGUMENT_FIELDS))
# '"id": "call_1", ', then '"type": "function", ' and '"function": {'
_ID_VALUE: tuple[str | Some, ...] = ('"', Some(r'^"\\\n', 0, 64), '"')
_ID = Maybe((OneOf(_quoted(ID_FIELDS)), _GAP, ":", _GAP, *_ID_VALUE, _GAP, ",", _GAP))
_TYPE = Maybe(('"type"', _GAP, ":", _GAP, '"function"', _GAP, ",", _GAP))
_NESTED = Maybe(('"function"', _GAP, ":", _GAP, "{", _GAP))

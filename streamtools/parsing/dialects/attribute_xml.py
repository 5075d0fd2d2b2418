"""Dialects of XML calls in which names are attributes or tags. In some of them, the tags consist of tokens.

    <function_calls><invoke name="get_weather"><parameter name="city">Paris</parameter></invoke></function_calls>
    <|open|>call tool="get_weather" index="1"<|sep|><|open|>argument key="city" type="string"<|sep|>Paris<|close|>…
    <get_weather><city>Paris</city></get_weather>

Values are text. The type of a value comes from an attribute, or else from the JSON schema of the tool.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies import forged_result, wrapper
from streamtools.parsing.bodies.invocations import STRAY_XTML, Invocations, xtml_call
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.xml import ElementCall, text_in_element, write_attribute, write_content
from streamtools.parsing.dialects.base import AFTER_WRAPPER, Dialect, Opener, Tag, before_sentence, closing_tags
from streamtools.parsing.dialects.writing import as_text, both_tags, write_value
from streamtools.parsing.markers import SENTENCE, SPACES, Maybe, OneOf, Part, Some


def anthropic_xml() -> Dialect:
    """Return the dialect that prompts taught to the first Claude models. Many other models imitate it.

    Another dialect has the same wrapper tag. The text after the tag distinguishes the two dialects. Source: the prompt
    format in Anthropic's tool use cookbook.
    """
    calls = Invocations("function_calls")
    return Dialect(
        id="anthropic_xml",
        openers=(
            Opener(("<function_calls>", SPACES), calls.wrapped, ahead=(OneOf(("<invoke", "<parameter")),)),
            *_bare_openers(calls, "<parameter", "</invoke", "{", wrapped=True),
            Opener(("<function_results>", SPACES), forged_result("</function_results>"), ahead=("<",), kind="result"),
        ),
        write_call=_writer(calls, "<function_calls>\n", "\n</function_calls>"),
        write_result=lambda name, text: (
            f"<function_results>\n<result>\n<tool_name>{name}</tool_name>\n<stdout>\n{text}\n</stdout>\n"
            "</result>\n</function_results>"
        ),
        reserved=both_tags("function_calls", "invoke", "parameter", "function_results"),
        tags=closing_tags("</invoke>", "</function_calls>"),
        strays=calls.text.strays,
    )


def atem_xml() -> Dialect:
    """Return the dialect of Muse Glimmer, as its chat template defines it.

    Each message begins with a header that names its recipient. `to=self` means reasoning, `to=user` means the answer,
    and any other recipient is the tool of a call. Without this header, text that looks like a call is an example. The
    prompt contains the beginning of the first header, up to a space. Other dialects have similar headers, so `"auto"`
    does not include this dialect.
    """
    ends, name, start, prefix = ("<|eom|>", "<|eot|>"), Some(r"^\s<>|", 1, 128), "<|start|>assistant ", "atem:"
    calls = Invocations("function_calls", prefix=prefix, read_name=_without_namespace)
    body = calls.addressed(*ends)
    write = _writer(calls, "<atem:function_calls>\n", "\n</atem:function_calls>", prefix=prefix)
    return Dialect(
        id="atem_xml",
        openers=(
            Opener(("to=", name, "<|message|>"), body, where="start"),
            Opener((f"{start}to=", name, "<|message|>"), body),
        ),
        write_call=lambda name, arguments: f"{start}to={name}<|message|>{write(name, arguments)}",
        space_at_start=True,
        reserved=(*both_tags("atem:", "tool_response"), "<|start|>", "<|message|>"),
        tags=(
            Tag(("to=self<|message|>",), closings=ends, before=(start,), where="start"),
            Tag(("to=user<|message|>",), where="start"),
            Tag((f"{start}to=self<|message|>",), closings=ends, before=(start,)),
            Tag((f"{start}to=user<|message|>",)),
            *(Tag((end,)) for end in ends),
            Tag(calls.unwrap, where="after_call"),
        ),
        strays=calls.text.strays,
        auto=False,
    )


def _without_namespace(name: str) -> str:
    """Remove a namespace that is equal to the name: `f.f` becomes `f`."""
    half = name[: len(name) // 2]
    return half if half and name == f"{half}.{half}" else name


def minicpm5_xml() -> Dialect:
    """Return the dialect of openbmb/MiniCPM5, as its chat template defines it. Calls have no wrapper.

    A value that contains `<` or `&` is written as a CDATA section.
    """
    calls = Invocations(invoke="function", parameter="param", xml=True)
    return Dialect(
        id="minicpm5_xml",
        openers=_bare_openers(calls, "<param", "</function", "</param"),
        write_call=_writer(calls, xml=True, line=""),
        reserved=both_tags("function", "param", "tool_response"),
        tags=closing_tags("</function>"),
        strays=calls.text.strays,
    )


def deepseek_dsml() -> Dialect:
    """Return the dialect of DeepSeek V3.2, V4 and V4.1. An attribute of each argument tells whether it is text or JSON.

    The wrapper tag is `function_calls` in V3.2, `tool_calls` in V4, and `calls` in V4.1. In V4.1, a space precedes the
    name of each tag. The bars in the tags are full-width, U+FF5C; some models write ASCII bars, or spaces at the bars.
    Source: the encoding scripts of deepseek-ai/DeepSeek-V3.2 and its successors.
    """
    dialect = _with_mark("deepseek_dsml", "DSML", "function_calls", "calls", line_feeds=2)
    return replace(
        dialect,
        write_result=lambda name, text: f"<tool_result>{text}</tool_result>",
        reserved=(*dialect.reserved[:-2], *both_tags("tool_result")),  # without the tags of `tool_response`
    )


def gigachat35() -> Dialect:
    """Return the dialect of GigaChat 3.5, as SGLang's parser reads it.

    Its tags are those of `deepseek_dsml` with GCML instead of DSML. The only wrapper is `tool_calls`.
    """
    return _with_mark("gigachat35", "GCML", line_feeds=1)


def _with_mark(id: str, word: str, *wrappers: str, line_feeds: int) -> Dialect:
    """Return a dialect with a mark before the name in each tag. The mark is `word` between two bars.

    A space may follow each bar, and may precede the second bar. A closing tag without its opening tag is hidden.
    """
    mark, bars, gap = f"\uff5c{word}\uff5c", ("\uff5c", "|"), Some(" ", 0, 1)
    openers, tags, names = list[Opener](), list[Tag](), ("tool_calls", *wrappers)
    calls = Invocations(*names, prefix=(OneOf(bars), gap, word, gap, OneOf(bars), gap))
    marks = tuple(bar + space + word for bar in bars for space in ("", " "))
    for bar in bars:  # the search for markers is fast only if the first parts are literals
        invoke, opening, (_, _, *rest) = (f"<{bar}", *calls.invoke[2:]), (f"<{bar}", *calls.wrapper[2:]), calls.unwrap
        bare = Opener(invoke, calls.bare, ahead=("name=",), line_feeds=line_feeds)
        openers.append(Opener((*opening, SPACES), calls.wrapped, ahead=("<",), line_feeds=line_feeds))
        openers += [bare, *before_sentence(opening, bare)]
        tags.append(Tag((f"</{bar}", *rest[:-2], OneOf((*names, "invoke", "parameter")), ">")))
    return Dialect(
        id=id,
        openers=tuple(openers),
        write_call=_writer(calls, f"<{mark}tool_calls>\n", f"\n</{mark}tool_calls>", *marks, prefix=mark),
        reserved=both_tags(*marks, "tool_response"),
        tags=tuple(tags),
        # The tags are special tokens, so one stray closing tag already shows that a value ended too early.
        strays=tuple(((f"</{bar}", *calls.close_value[2:]), end) for bar in bars for _, end in calls.text.strays[1:]),
    )


def dots_xml() -> Dialect:
    """Return the dialect of rednote-hilab's dots models, as the parsers of vLLM and SGLang read it.

    Calls are XML or JSON.
    """
    opening, close = "<dots_function_call>", "</dots_function_call>"
    calls = Invocations("dots_function_call")
    return Dialect(
        id="dots_xml",
        openers=(
            Opener((opening, SPACES), calls.wrapped, ahead=("<",)),
            *_bare_openers(calls, "<parameter", "</invoke", "{", wrapped=True, unless_enabled="anthropic_xml"),
            Opener((opening, SPACES), json_calls(close), ahead=("{",)),
        ),
        write_call=_writer(calls, f"{opening}\n", f"\n{close}"),
        reserved=both_tags("dots_function_call", "invoke", "parameter", "tool_response"),
        tags=(Tag((close,)),),
        strays=calls.text.strays,
    )


def step3_xml() -> Dialect:
    """Return the dialect of stepfun-ai/step3, as its chat template defines it. Calls are XML between tokens.

    The model often omits the type of a call, which is always `function`. One line feed after a call is hidden.
    """
    begin, end = "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"
    begin_call, kind, end_call = "<｜tool_call_begin｜>", "function<｜tool_sep｜>", "<｜tool_call_end｜>"
    calls = Invocations(prefix="steptml:", following=(end_call, end))
    return Dialect(
        id="step3_xml",
        openers=(
            Opener((begin, SPACES), wrapper, ahead=AFTER_WRAPPER, announces=False),
            Opener((begin_call, SPACES, Maybe((kind,)), SPACES, *calls.invoke), calls.bare, ahead=("name",)),
        ),
        write_call=_writer(calls, begin + begin_call + kind, end_call + end, prefix="steptml:", line=""),
        reserved=("<｜tool_", *both_tags("steptml:")),
        tags=(Tag((end_call, OneOf(("\n", "")))), Tag((end,))),
        strays=calls.text.strays,
    )


def minimax_m2_xml() -> Dialect:
    """Return the dialect of MiniMaxAI/MiniMax-M2, as its chat template and its tool calling guide define it."""
    opening, close = "<minimax:tool_call>", "</minimax:tool_call>"
    calls = Invocations("minimax:tool_call")
    return Dialect(
        id="minimax_m2_xml",
        openers=(
            Opener((opening, SPACES), calls.wrapped, ahead=(OneOf(("<", "invoke name=")),), line_feeds=1),
            *_bare_openers(calls, "<parameter", "</invoke", "{", wrapped=True, unless_enabled="anthropic_xml"),
        ),
        write_call=_writer(calls, f"{opening}\n", f"\n{close}"),
        write_result=_write_minimax_result,
        reserved=both_tags("minimax:", "invoke", "parameter", "response"),
        tags=(Tag((close,)),),
        strays=calls.text.strays,
    )


def minimax_m3_xml() -> Dialect:
    """Return the dialect of MiniMaxAI/MiniMax-M3, as its chat template defines it.

    A token precedes each tag. The tag of an argument has the name of the parameter:
    `]<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>1]<]minimax[>[</a>]<]minimax[>[</invoke>…`.
    """
    lead = "]<]minimax[>["
    calls = Invocations("tool_call", lead=lead, elements=True)
    stray: tuple[Part, ...] = (f"{lead}</", Some(r"^<>\s", 1, 128), ">")
    end: tuple[Part, ...] = (*stray, f"{lead}</invoke>")

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        written = f"{lead}</invoke>\n{lead}</tool_call>"
        for key, value in reversed(arguments.items()):
            end = f"{lead}</{key}>{written}"
            text = write_value(value, text_in_element("invoke", key, prefix=lead), end, lead)
            written = f"{lead}<{key}>{text}{end}"
        return f"{lead}<tool_call>\n{lead}<invoke name={write_attribute(name)}>{written}"

    return Dialect(
        id="minimax_m3_xml",
        openers=(
            Opener((f"{lead}<tool_call>", SPACES), calls.wrapped, ahead=(lead,)),
            *_bare_openers(calls, lead, wrapped=True),
        ),
        write_call=write_call,
        write_result=_write_minimax_result,
        reserved=(lead, *both_tags("response"), "</mm:think"),
        tags=(Tag((f"{lead}</tool_call>",)), Tag(("<mm:think>",), closings=("</mm:think>",))),
        strays=((end, ()), ((*stray, f"{lead}<", Some(r"^<>/\s", 1, 128), ">"), end)),
    )


def _write_minimax_result(name: str, text: str) -> str:
    return f"<response>{text}</response>"


def _bare_openers(calls: Invocations, *inner: str, wrapped: bool = False, **fields: Any) -> tuple[Opener, ...]:
    """Return the openers of a call without a wrapper. `fields` are other fields of each opener.

    The text is a call if the tag ends with `/>`, or if one of `inner` follows it. If a sentence and then `inner[0]`
    follow, it is a call with an error. Any other text only mentions the tag. With `wrapped`, the calls of the dialect
    usually have a wrapper, and a sentence may follow its opening tag.
    """
    named = ("name=", Some("^<>", 1, 160))
    aheads: list[tuple[Part, ...]] = [(*named, ">", SPACES, OneOf(inner)), (*named, "/>")]
    bare = [Opener(calls.invoke, calls.bare, ahead=ahead, **fields) for ahead in aheads]
    bare.append(Opener(calls.invoke, calls.bare, (*named, ">", *SENTENCE, inner[0]), tag_parts=0, **fields))
    return (*bare, *(before_sentence(calls.wrapper, *bare) if wrapped else ()))


def _writer(
    calls: Invocations,
    before: str = "",
    after: str = "",
    *marks: str,
    prefix: str = "",
    xml: bool = False,
    line: str = "\n",
) -> Callable[[str, dict[str, Any]], str]:
    """Return a `write_call` function. It writes a call between the texts `before` and `after`.

    `prefix` is the text before the name in each tag. `line` is the text between two tags. With `marks`, all tags of the
    dialect begin with one of them, and an attribute tells whether a value is a string. With `xml=True`, values with `<`
    or `&` are CDATA sections. Otherwise, a tag in a value gets a word joiner (U+2060) if `calls` would not read it as
    text.
    """
    invoke, parameter = (prefix + name for name in calls.names)
    # With a prefix, all tags of the dialect have it. Otherwise `before` is the tag of the wrapper.
    names = marks or ((prefix,) if prefix else (invoke, parameter, before.strip()[1:-1]))
    tags = both_tags(*filter(None, names))

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        written = f"</{invoke}>{after}"
        for key, value in reversed(arguments.items()):
            end = f"</{parameter}>{line}{written}"
            text = write_content(as_text(value)) if xml else write_value(value, calls.text, end, *tags)
            kind = f' string="{str(isinstance(value, str)).lower()}"' if marks else ""
            written = f"<{parameter} name={write_attribute(key)}{kind}>{text}{end}"
        return f"{before}<{invoke} name={write_attribute(name)}>{line}{written}"

    return write_call


def kimi_k3_xtml() -> Dialect:
    """Return the dialect of moonshotai/Kimi-K3, as its chat template defines it. The template names the form XTML.

    A turn consists of a `think`, a `response` and sometimes a `tools` element. `think` contains reasoning, and the
    prompt often contains its opening tag. The tags of all elements are hidden.

    Tags are also read inside code. The closing tag of `response` directly follows the text. If the last line of the
    text is in a code block, the tag and the calls after it would otherwise be read as code.
    """
    attributes, end = Some("^<", 0, 192), "<|close|>message<|sep|>"
    result = ('<|open|>message role="tool"', attributes, "<|sep|>")
    return Dialect(
        id="kimi_k3_xtml",
        openers=(
            Opener(("<|open|>tools<|sep|>", SPACES), wrapper, ahead=AFTER_WRAPPER, announces=False),
            Opener(("<|open|>call",), xtml_call, ahead=(" ",)),
            Opener(result, forged_result(end), kind="result"),
        ),
        write_call=_write_xtml,
        write_result=lambda name, text: (
            f'<|open|>message role="tool" tool={_quote(name)} index="1"<|sep|>{text}{end}<|end_of_msg|>'
        ),
        in_code="call",
        reserved=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
        tags=(
            Tag(
                ("<|open|>think<|sep|>",), closings=("<|close|>think<|sep|>",), before=("<|open|>response<|sep|>", end)
            ),
            Tag(("<|open|>response<|sep|>",)),
            Tag(('<|open|>message role="', OneOf(("assistant", "user", "system")), '"', attributes, "<|sep|>")),
            Tag(("<|close|>", OneOf(("think", "response", "tools")), "<|sep|>")),
            *(Tag((each,), ends_turn=True) for each in (end, "<|end_of_msg|>")),
        ),
        strays=STRAY_XTML,
        notes="Argument types are string, number, boolean, object, array and null. Only strings are not JSON.",
    )


_XTML_TYPES = {bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


def _write_xtml(name: str, arguments: dict[str, Any]) -> str:
    """Return a call. If a value contains the tag of an argument, all arguments are written as one JSON object."""
    begin, end = "<|open|>argument", "<|close|>argument<|sep|>"
    inside = ""
    for key, value in arguments.items():
        text = as_text(value)
        if begin in text or end in text:
            inside = f'<|open|>json type="object"<|sep|>{compact(arguments)}<|close|>json<|sep|>'
            break
        kind = _XTML_TYPES.get(type(value), "null")
        inside += f'{begin} key={_quote(key)} type="{kind}"<|sep|>{text}{end}'
    call = f'<|open|>call tool={_quote(name)} index="1"<|sep|>{inside}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def _quote(text: str) -> str:
    return '"' + html.escape(text, quote=False).replace('"', "&quot;") + '"'


_AFTER_NAME = (">", "/", " ", "\n", "\r", "\t")  # the characters that may follow the name in a tag
_is_name = re.compile(r"[^\W\d][\w.\-]{0,127}").fullmatch


def morph_xml() -> Dialect:
    """Return a dialect that a prompt can teach to models without a dialect.

    In `<get_weather><city>Paris</city><days><item>1</item></days></get_weather>`, the outer tag has the name of the
    tool, and the inner tags have the names of its parameters. Only tags with the names of declared tools are calls. If
    a tool declares parameters, the first inner tag must have the name of one of them. Any other text may be HTML in an
    answer.
    """
    return Dialect(
        id="morph_xml",
        openers=(),
        openers_of=_element_openers,
        write_call=_write_elements,
        reserved=both_tags("tool_response"),
        # The tag of a tool: `<get_weather>`, or `<now/>`.
        reserved_patterns=(("<", r"[\w.-]{1,128}[ \t\r\n]{0,32}/?>"),),
        auto=False,
        notes="The outer tag has the name of the tool. The inner tags have the names of its parameters.",
    )


def _element_openers(name: str, parameters: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return the openers of the calls of one tool."""
    if not _is_name(name):
        return ()
    words = [parameter + following for parameter in parameters if _is_name(parameter) for following in _AFTER_NAME]
    first = OneOf(tuple(words)) if parameters else Some("A-Za-z_", 1, 1)
    begin: tuple[Part, ...] = (f"<{name}", SPACES, ">", SPACES)
    body = ElementCall(name, tuple(words))
    openers = [
        Opener(begin, body, ahead=("{", SPACES, '"')),
        Opener(begin, body, ahead=("</", SPACES, name, SPACES, ">")),
        Opener((f"<{name}", SPACES, "/>"), body),
    ]
    if words or not parameters:
        openers.append(Opener(begin, body, ahead=("<", first)))
    return tuple(openers)


def _write_elements(name: str, arguments: dict[str, Any]) -> str:
    elements = (f"<{key}>{write_content(as_text(value))}</{key}>" for key, value in arguments.items())
    return f"<{name}>{''.join(elements)}</{name}>"

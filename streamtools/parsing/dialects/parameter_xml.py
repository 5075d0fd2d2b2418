"""Dialects of calls in tags like `<function=NAME>`, or of a name followed by tags for keys and values.

    <tool_call><function=get_weather><parameter=city>Paris</parameter></function></tool_call>
    <function=get_weather>{"city": "Paris"}</function>
    <tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>
    <tool: get_weather>{"city": "Paris"}</tool>

Values in tags are text, and their types come from the JSON schema of the tool. In the other forms, the arguments are
JSON. The last form may also contain the text of a single value.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any

from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.bodies.named_json import GAP, NAME, PROSE, WORD_FIRST, Enclosed, NamedCall
from streamtools.parsing.bodies.parameter_tags import SUFFIX, ArgumentPairs, FunctionTags, NamedTag
from streamtools.parsing.dialects.base import (
    ROLE_END,
    Dialect,
    Opener,
    Tag,
    before_sentence,
    closing_tags,
    parts_of_token,
)
from streamtools.parsing.dialects.json_with_name import longcat_json
from streamtools.parsing.dialects.writing import as_text, both_tags, name_and_json, write_value
from streamtools.parsing.markers import SENTENCE, SPACES, OneOf, Part, Some
from streamtools.parsing.span import Span

_FUNCTION_TAGS = ("<function=", "</function", "<parameter=", "</parameter")
_FIRST_TAG = (OneOf(("<function=", "<parameter=")),)
"""The first tag in a wrapper. A parameter without a function is an error."""
_ALONE = (Some(r"^<>{}\r\n", 1, 96), ">", SPACES, OneOf(("<parameter=", "</function>")))
"""The text after `<function=` in a call without a wrapper."""


def qwen3_coder_xml() -> Dialect:
    """Return the dialect of Qwen/Qwen3-Coder and nvidia/Nemotron-3-Nano, as their chat templates define it.

    Qwen3-Coder often forgets the opening tag of the wrapper, but writes its closing tag. It also writes a sentence
    between the opening tag and the function. The sentence is shown.
    """
    functions = FunctionTags()
    return Dialect(
        id="qwen3_coder_xml",
        openers=_function_openers(functions, "<tool_call>", line_feeds=2, unless_enabled=""),
        write_call=_function_writer(functions, "<tool_call>", "</tool_call>"),
        reserved=(*both_tags("tool_call", "tool_response"), *_FUNCTION_TAGS),
        tags=(Tag(("</tool_call>",), where="after_call", line_feeds=1),),
        strays=functions.text.strays,
    )


def k_exaone2_xml() -> Dialect:
    """Return the dialect of K-EXAONE 2. It is `qwen3_coder_xml` under an id that `"auto"` does not enable."""
    return replace(qwen3_coder_xml(), id="k_exaone2_xml", auto=False)


def seed_oss_xml() -> Dialect:
    """Return the dialect of ByteDance-Seed/Seed-OSS, as its chat template defines it.

    There are no line feeds around values.
    """
    functions = FunctionTags("seed:tool_call", verbatim=True)
    return Dialect(
        id="seed_oss_xml",
        openers=_function_openers(functions, "<seed:tool_call>"),
        write_call=_function_writer(functions, "<seed:tool_call>", "</seed:tool_call>", verbatim=True),
        reserved=(*both_tags("seed:tool_call"), *_FUNCTION_TAGS),
        tags=(Tag(("<seed:think>",), closings=("</seed:think>",), where="start"), *closing_tags("</seed:tool_call>")),
        strays=functions.text.strays,
    )


def zaya_xml() -> Dialect:
    """Return the dialect of Zyphra/ZAYA1, as inference servers read it. It is `qwen3_coder_xml` with another wrapper.

    The model also writes the name of the tool, and the keys and values, as the content of tags.
    """
    opening, close = "<zyphra_tool_call>", "</zyphra_tool_call>"
    key: tuple[tuple[Part, ...], ...] = (("<parameter>", SPACES, "<name>"), ("</name>",))
    value: tuple[tuple[Part, ...], ...] = (("<value>",), ("</value>", SPACES, "</parameter>"))
    tags = ((opening, SPACES, "<function>"), (close,), *key, *value)
    pairs = ArgumentPairs(separator="/function", spelled=dict(zip(_TAGS, tags, strict=True)))
    functions = FunctionTags("zyphra_tool_call")
    return Dialect(
        id="zaya_xml",
        openers=(*_function_openers(functions, opening), Opener(pairs.opening, pairs.single)),
        write_call=_function_writer(functions, opening, close),
        write_result=lambda name, text: f"<zyphra_tool_response>\n{text}\n</zyphra_tool_response>",
        reserved=(*both_tags("zyphra_tool_call", "zyphra_tool_response"), *_FUNCTION_TAGS),
        tags=closing_tags(close),
        strays=functions.text.strays,
    )


_TAGS = ("tool_call", "/tool_call", "arg_key", "/arg_key", "arg_value", "/arg_value")


def llama31_function_tag() -> Dialect:
    """Return the dialect of Llama 3.1's prompt format for custom tools: JSON between `<function=NAME>` tags."""
    body = Enclosed(NamedCall(">"), "<function=", "</function>")
    return Dialect(
        id="llama31_function_tag",
        openers=(Opener(("<function=",), body, ahead=(*WORD_FIRST, ">", SPACES, "{")),),
        write_call=name_and_json("<function=", ">", "</function>"),
        reserved=("<function=", "</function"),
        tags=closing_tags("</function>"),
    )


def _function_openers(
    functions: FunctionTags, opening: str, *, line_feeds: int = 0, unless_enabled: str = "qwen3_coder_xml"
) -> tuple[Opener, ...]:
    """Return the openers of functions. The tag `opening` of a wrapper, and then a sentence, may precede them.

    `line_feeds` is a field of each opener, and `unless_enabled` one of the opener without a wrapper.
    """
    alone = Opener(("<function=",), functions.alone, _ALONE, line_feeds=line_feeds, unless_enabled=unless_enabled)
    wrapped = Opener(functions.opening, functions.wrapped, _FIRST_TAG, line_feeds=line_feeds)
    return (wrapped, alone, *before_sentence((opening,), alone))


def _function_writer(
    functions: FunctionTags, opening: str, close: str, *, verbatim: bool = False
) -> Callable[[str, dict[str, Any]], str]:
    """Return a `write_call` function. It writes `<function=…>` between the tags `opening` and `close`.

    Line feeds surround each value. With `verbatim=True`, they surround only values that begin or end with a line feed.
    """
    tags = (*_FUNCTION_TAGS, opening, close[:-1])

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        written = f"</function>\n{close}"
        for key, value in reversed(arguments.items()):
            line_feed = "" if verbatim and as_text(value).strip("\n") == as_text(value) else "\n"
            end = f"{line_feed}</parameter>\n{written}"
            text = write_value(value, functions.text, end, *tags, line_feed=line_feed != "")
            written = f"<parameter={key}>{line_feed}{text}{end}"
        return f"{opening}\n<function={name}>\n{written}"

    return write_call


# Tags for keys and values. Other dialects also have the tag `<tool_call>`. Here, a name and another tag follow it.

_PAIR_TAGS = (*both_tags("tool_call", "tool_response"), "<arg_", "</arg_")


def _name_and(following: Part) -> tuple[Part, ...]:
    """Return the parts of a name, and then `following`. JSON and `...` do not match as a name."""
    return (SPACES, Some(rf"^<>{{}}\[\]\s{PROSE}", 1, 1), Some(r"^<>{\s", 0, 95), SPACES, following)


def _pair_openers(pairs: ArgumentPairs, **fields: Any) -> tuple[Opener, ...]:
    """Return the openers of one call. `fields` are other fields of each opener.

    If no name precedes a key, or if text stands between the name and the key, the call is an error.
    """
    aheads = (_name_and(pairs.after_name), (SPACES, *pairs.begin_key))
    calls = [Opener(pairs.opening, pairs.single, ahead=ahead, **fields) for ahead in aheads]
    fields["tag_parts"] = parts_of_token(pairs.opening)
    return (*calls, Opener(pairs.opening, pairs.single, (*SENTENCE, *pairs.begin_key), **fields))


def _pairs_writer(
    pairs: ArgumentPairs, before: str, between: str, after: str, line: str = "\n"
) -> Callable[[str, dict[str, Any]], str]:
    """Return a `write_call` function. It writes `before`, the name, `between`, the pairs of tags, and `after`.

    `line` follows each key and each value.
    """
    names = ("arg_key", "/arg_key", "arg_value", "/arg_value", "tool_call", "/tool_call", "tool_calls", "/tool_calls")
    key_tag, end_key, value_tag, end_value, *outer = map(pairs.tag_text, names)
    between_pair = end_key + (line + value_tag if value_tag else "")
    # `write_value` searches a value for these tags. A tag may have a suffix, as in `</arg_value:opensource>`, so `>` is
    # removed. In a dialect without a value tag, the tags are special tokens, which have no suffix.
    tags = [key_tag, end_value, value_tag or end_key, *(tag for tag in outer if tag in before + after)]
    tags = [tag[:-1] for tag in tags] if value_tag else tags

    def write_call(name: str, arguments: dict[str, Any]) -> str:
        written = after
        for key, value in reversed(arguments.items()):
            end = f"{end_value}{line}{written}"
            text = write_value(value, pairs.text, end, *tags)
            written = f"{key_tag}{key}{between_pair}{text}{end}"
        return f"{before}{name}{between}{written}"

    return write_call


def glm_xml() -> Dialect:
    """Return the dialect of zai-org/GLM-4.5 and GLM-4.7, as their chat templates define it.

    GLM-4.7 writes no line feeds.
    """
    pairs = ArgumentPairs()
    return Dialect(
        id="glm_xml",
        openers=_pair_openers(pairs, line_feeds=1),
        write_call=_pairs_writer(pairs, "<tool_call>", "\n", "</tool_call>"),
        reserved=_PAIR_TAGS,
        tags=(ROLE_END, *closing_tags("</tool_call>", "</tool_calls>")),
        strays=pairs.text.strays,
    )


def poolside_xml() -> Dialect:
    """Return the dialect of poolside/Laguna, as its chat template defines it.

    A call is a call of `glm_xml`, or JSON between the same tags.
    """
    json_body, pairs = json_calls("</tool_call>"), ArgumentPairs()

    def body(span: Span) -> Generator[None, None, None]:
        yield from (json_body if (yield from span.peek()) in ("{", "[") else pairs.single)(span)

    return replace(
        glm_xml(),
        id="poolside_xml",
        openers=(Opener(("<tool_call>",), body, line_feeds=1),),
        tags=closing_tags("</tool_call>", "</tool_calls>"),
        auto=False,
    )


def hunyuan_xml() -> Dialect:
    """Return the dialect of tencent/Hunyuan 3, as its chat template defines it.

    In the published vocabulary, all tags have the suffix `:opensource`, including the tags of reasoning. Other
    vocabularies have other suffixes, such as `:6124c78e`.
    """
    pairs = ArgumentPairs(separator="tool_sep", wrapper="tool_calls", suffixed=True)
    calls = _pair_openers(pairs)
    return Dialect(
        id="hunyuan_xml",
        openers=(
            Opener((*pairs.wrapper, SPACES), pairs.wrapped, ahead=pairs.opening),
            *before_sentence(pairs.wrapper, *calls),
            *(replace(call, parts=("<tool_call", *SUFFIX, ">")) for call in calls),
            *(replace(call, body=pairs.single, unless_enabled="glm_xml") for call in glm_xml().openers),
            Opener(("<tool_call>",), pairs.single, ahead=_name_and("<tool_sep>")),
        ),
        write_call=_pairs_writer(pairs, "<tool_calls>\n<tool_call>", "<tool_sep>\n", "</tool_call>\n</tool_calls>"),
        reserved=(*both_tags("tool_calls"), "<tool_sep", *_PAIR_TAGS),
        tags=(
            Tag(("<think:opensource>",), closings=("</think:opensource>",), where="start"),
            Tag(("<think", *SUFFIX, ">"), ("</think>",), ("</think", *SUFFIX, ">"), where="start"),
            Tag(pairs.close, where="after_call"),
            Tag(pairs.unwrap, where="after_call"),
        ),
        strays=pairs.text.strays,
    )


def hunyuan4_xml() -> Dialect:
    """Return the dialect of Tencent Hy 4, as vLLM's parser reads it: `hunyuan_xml` without the tag after the name."""
    pairs = ArgumentPairs(separator="tool_sep", wrapper="tool_calls", suffixed=True)
    write_call = _pairs_writer(pairs, "<tool_calls><tool_call>", "", "</tool_call></tool_calls>", line="")
    return replace(hunyuan_xml(), id="hunyuan4_xml", write_call=write_call, auto=False)


def _other_tags(id: str, call: str, key: str = "arg_key", value: str = "arg_value") -> Dialect:
    """Return a dialect like `glm_xml` with other tags. `call`, `key` and `value` are the names of the tags."""
    tags = [f"{tag}>" for tag in both_tags(call, key, value)]
    spelled, (opening, close, *_) = dict(zip(_TAGS, tags, strict=True)), tags
    pairs = ArgumentPairs(spelled=spelled)
    return Dialect(
        id=id,
        openers=_pair_openers(pairs),
        write_call=_pairs_writer(pairs, opening, "\n", close),
        reserved=both_tags(call, "tool_response", key, value),
        tags=closing_tags(close),
        strays=pairs.text.strays,
    )


def iquest_q1() -> Dialect:
    """Return the dialect of IQuest Q1, as SGLang's parser reads it."""
    return _other_tags("iquest_q1", "iquest_tool_call")


def iquest_coder2() -> Dialect:
    """Return the dialect of IQuest Coder V2, as vLLM's parser reads it."""
    return _other_tags("iquest_coder2", "iquestcoder_tool_call")


def longcat_xml() -> Dialect:
    """Return the dialect of LongCat 2601, Lite and 2.0, as the parser of mlx-lm reads it.

    Older models write JSON between the same tags. This dialect also reads such JSON.
    """
    dialect, old = _other_tags("longcat_xml", *(f"longcat_{tag}" for tag in _TAGS[::2])), longcat_json()
    json_openers = (replace(opener, unless_enabled=old.id) for opener in old.openers)
    return replace(dialect, openers=(*dialect.openers, *json_openers), tags=old.tags)


def telechat4_xml() -> Dialect:
    """Return the dialect of TeleChat 4, XingChen 4 and Xing 4.0, as vLLM's parsers read it.

    Instead of the pairs, JSON of the arguments may follow the name. A call may also be JSON with the name in it.
    """
    opening, close = "<tool_call>", "</tool_call>"
    dialect = _other_tags("telechat4_xml", "tool_call", "param_key", "param_value")
    pairs, glm = dialect.openers[0], glm_xml().openers[0]  # `glm_xml` also reads a name without arguments
    tags = OneOf(tuple(f"{tag}>" for tag in both_tags("param_key", "param_value")))
    named, white = Enclosed(NamedCall(type_word="function"), opening, close), Some(r" \t\r\n", 1, 4)
    return replace(
        dialect,
        openers=(
            replace(pairs, ahead=_name_and(tags)),
            *dialect.openers[1:],
            replace(glm, body=pairs.body, auto=False, unless_enabled="glm_xml"),
            Opener((opening,), named, ahead=(GAP, *WORD_FIRST, GAP, "{", GAP, OneOf(('"', "}")))),
            Opener((opening,), named, ahead=(GAP, "function", white, *WORD_FIRST, GAP, OneOf(("{", close)))),
            *(Opener((opening, SPACES), json_calls(close), ahead=(first,), auto=False) for first in "{["),
        ),
    )


def step_audio2() -> Dialect:
    """Return the dialect of stepfun-ai/Step-Audio-2, as vLLM's parser reads it.

    This dialect reads the calls of `telechat4_xml`, and writes the type `function`, the name and JSON.
    """
    write_call = name_and_json("<tool_call>function\n", "\n", "</tool_call>")
    return replace(telechat4_xml(), id="step_audio2", write_call=write_call, auto=False)


def k2_horizon() -> Dialect:
    """Return the dialect of K2 Horizon and Jais 3, as the parsers of vLLM and SGLang read it.

    A value may have a type tag before it. Instead of the name and the pairs, a call may be JSON with the name in it.
    """
    names = ("tool_calls", "tool_call", "arg_key", "arg_type", "arg_value")
    spelled = {slash + name: f"<{slash}ifm|{name}>" for name in names for slash in ("", "/")}
    wrap, unwrap, opening, close = (spelled[name] for name in ("tool_calls", "/tool_calls", "tool_call", "/tool_call"))
    pairs, json_body = ArgumentPairs(wrapper="tool_calls", spelled=spelled), json_calls(close)
    calls = _pair_openers(pairs)
    return Dialect(
        id="k2_horizon",
        openers=(
            Opener((wrap, SPACES), pairs.wrapped, ahead=(opening, *_name_and(pairs.after_name))),
            *calls,
            *before_sentence((wrap,), *calls),
            *(Opener((wrap, SPACES, opening, SPACES), json_body, ahead=(first,)) for first in "{["),
            *(Opener((opening, SPACES), json_body, ahead=(first,)) for first in "{["),
        ),
        write_call=_pairs_writer(pairs, f"{wrap}\n{opening}", "\n", f"{close}\n{unwrap}"),
        reserved=("<ifm|", "</ifm|", *both_tags("tool_response")),
        tags=(
            Tag((unwrap,)),
            *(
                Tag((f"<ifm|{name}>",), closings=(f"</ifm|{name}>",), where="start")
                for name in ("think", "think_fast", "think_faster")
            ),
        ),
        strays=pairs.text.strays,
    )


def solar_open2() -> Dialect:
    """Return the dialect of upstage/Solar-Open2, as vLLM's parser reads it. It is like glm_xml, with tokens as tags."""
    names = ("tool_call", "/tool_call", "arg_key", "/arg_key", "/arg_value")
    tokens = ("call:start", "call:end", "arg:start", "arg:value", "arg:end")
    spelled = {name: f"<|tool_{token}|>" for name, token in zip(names, tokens, strict=True)} | {"arg_value": ""}
    pairs, begin, end = ArgumentPairs(spelled=spelled), spelled["tool_call"], spelled["/tool_call"]
    return Dialect(
        id="solar_open2",
        openers=_pair_openers(pairs),
        write_call=_pairs_writer(pairs, begin, "\n", end),
        write_result=lambda name, text: f"<|tool_response:start|>{text}<|tool_response:end|>",
        reserved=("<|tool_call:", "<|tool_arg:", "<|tool_response:"),
        tags=(Tag(("<|think:start|>",), closings=("<|think:end|>",), where="start"), *closing_tags(end)),
        strays=pairs.text.strays,
    )


def cwm_tool() -> Dialect:
    """Return the dialect of facebook/cwm, as its prompting guide describes it.

    A call is text or JSON between two tags. The first tag holds the name. For example, a call consists of
    `<tool: bash>`, a line end, `ls`, a line end and `</tool>`. The content may be text only if the tool has one
    parameter.
    """
    opening, close = "<tool: ", "</tool>"
    return Dialect(
        id="cwm_tool",
        openers=(Opener((opening, NAME, ">"), NamedTag(opening, close)),),
        write_call=name_and_json(opening, ">\n", f"\n{close}"),
        reserved=(opening.rstrip(), close, *both_tags("tool_response")),
        tags=closing_tags(close),
        auto=False,  # in prose, people write `<tool: NAME>` to mention a tool
        notes="The text between the tags is one JSON object with the arguments.",
    )

"""The dialects with values as plain text, and names after an equals sign or before all tags."""

from __future__ import annotations

import re

from tests.families.base import (
    AFTER_WRAPPER,
    PROSE,
    SENTENCE,
    SPACES,
    WHITE,
    WORD,
    Either,
    Family,
    Marker,
    Part,
    Run,
    Tag,
    after_call,
    or_wrapped,
)

_ANY_NAME = Run("<>{}\r\n", 1, 96, others=True)
_WORD_NAME = Run(' \t\r\n<>{}[]"`', 1, 96, others=True)
_NAMED: tuple[Part, ...] = (Run("<>{}[]" + PROSE + WHITE, 1, 1, others=True), Run("<>{" + WHITE, 0, 95, others=True))
GAP = Run(" \t\r\n", 0, 4)
_WORD_FIRST = Run(' \t\r\n<>{}[]"`' + PROSE, 1, 1, others=True), Run(' \t\r\n<>{}[]"`', 0, 95, others=True)
_SUFFIXES = ((">",), (":", Run(WORD, 1, 32), ">"))

_FUNCTIONS = (
    "<function=f>", "<function=f>\n", '<function="f">', "<function=", "<function=f", "<func", "</function>", "</func",
    "</function >", "<function=f/>", "<parameter=a>", "<parameter=a>\n", "<parameter=count>\n1\n", "<parameter=words>[",
    "<parameter=", "<parameter=a/>", "<param", "</parameter>", "\n</parameter>\n", "</parameter>x", "</par", "\n</par",
    "<function=f><parameter=a>", "<function=g></function>", "<parameter=city>x</parameter>", "\n", "\n\n", "<",
    "<function=f>{", '<function=f>{"a":1}</function>', "</function>\n<function=f>", "<parameter=place>{'x': 'y'}",
)  # fmt: skip

_PAIRS = (
    "<arg_key>a</arg_key>", "<arg_key>count</arg_key>\n", "<arg_key>", "<arg_k", "</arg_key>", "<arg_value>",
    "</arg_value>", "<arg_value>1</arg_value>", "<arg_value>x</arg_value>\n", "</arg_val", "<arg_value>[", "<", "</",
    "<tool_call>f", "<tool_call>f\n", "\n<tool_call>f\n<arg_key>", "<tool_call>f</tool_call>", "<tool_call>", "\n\n",
    "<tool_call>\n", "</tool_call>", "</tool_", "<tool_call>f x", "<tool_call>{", "<tool_call", "x</tool_call>",
    "<tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_value><tool_call>f<arg_key>",
)  # fmt: skip


_IFM = tuple(
    each.replace("<tool_", "<ifm|tool_")
    .replace("</tool_", "</ifm|tool_")
    .replace("<arg_", "<ifm|arg_")
    .replace("</arg_", "</ifm|arg_")
    for each in _PAIRS
)
_K2_CALL, _K2_WRAP = "<ifm|tool_call>", "<ifm|tool_calls>"
_K2_THOUGHTS = ("think", "think_fast", "think_faster")
_ZAYA = "<zyphra_tool_call><function>"
_SOLAR_CALL = "<|tool_call:start|>"
_SOLAR_TAGS = ("<|tool_arg:start|>", "<|tool_call:end|>", "<|tool_arg:value|>", "<|tool_arg:end|>")

_STEP_TOKENS = ("<｜tool_calls_begin｜>", "<｜tool_call_end｜>", "<｜tool_calls_end｜>")
_STEP_CALL = "<｜tool_call_begin｜>function<｜tool_sep｜>"


def _wrapped(name: str) -> tuple[str, ...]:
    """Return fragments of a wrapper of functions."""
    return (
        f"<{name}>", f"\n<{name}>\n", f"</{name}>", f"</{name}>\n", f"<{name}", f"</{name[:4]}",
        f"\n\n<{name}><function=f>",
        f"<{name}>\n<function=f>\n<parameter=a>\n", f"</function>\n</{name}>", f"</parameter></{name}>",
        f"</function></{name}", f"<{name}>f", f"</function>\n<{name}>\n", f"</function></{name}> x",
    )  # fmt: skip


def _pairs(call: str, *names: str) -> tuple[Part, ...]:
    """Return the tag `call`, a name, and one of the tags that may follow the name: the end, or a tag of `names`."""
    after_name = (f"</{call}>", *(f"<{slash}{name}>" for name in names for slash in ("", "/")))
    return (f"<{call}>", SPACES, *_NAMED, SPACES, Either(after_name))


def _markers(call: str, key: str, value: str, *, line_feeds: int = 0) -> tuple[Marker, ...]:
    """Return the markers of a call with these tags: a name and a tag, a key without a name, or text before a key."""
    opening, begin_key = f"<{call}>", f"<{key}>"
    begins = _pairs(call, key, value), (opening, SPACES, begin_key), (opening, *SENTENCE, begin_key)
    return tuple(Marker(parts, line_feeds=line_feeds) for parts in begins)


def _renamed(call: str, key: str = "arg_key", value: str = "arg_value") -> tuple[str, ...]:
    """Return the fragments of pairs, with other names of tags."""
    names = {"tool_call": call, "arg_key": key, "arg_value": value}
    return tuple(
        re.sub("|".join(names), lambda found: names[found[0]], each) for each in (*_PAIRS, f"<{call[:5]}", f"</{call}")
    )


_PARAMETER_TAGS = ("<param_key>", "</param_key>", "<param_value>", "</param_value>")
_K2_MARKERS = _markers("ifm|tool_call", "ifm|arg_key", "ifm|arg_value")
_GLM = _markers("tool_call", "arg_key", "arg_value", line_feeds=1)
_FIRST_TAG = Either(("<function=", "<parameter="))
_LONGCAT = ("longcat_tool_call", "longcat_arg_key", "longcat_arg_value")
_NAME_AND_JSON = (GAP, *_WORD_FIRST, GAP)
_FUNCTION = Marker(("<function=", _ANY_NAME, ">", SPACES, Either(("<parameter=", "</function>"))))


def _of_functions(opening: str, line_feeds: int = 0) -> tuple[Marker, ...]:
    """Return the markers of a function in a wrapper. Models also write the tag of the wrapper twice."""
    tag = (opening, SPACES)
    return tuple(Marker((*tags, _FIRST_TAG), line_feeds=line_feeds) for tags in (tag, tag + tag))


_QWEN = (*_of_functions("<tool_call>", 2), *or_wrapped(("<tool_call>",), _FUNCTION._replace(line_feeds=2)))
_TELECHAT = (
    Marker(("<tool_call>", SPACES, *_NAMED, SPACES, Either(_PARAMETER_TAGS))),
    Marker(("<tool_call>", SPACES, "<param_key>")),
    Marker(("<tool_call>", *SENTENCE, "<param_key>")),
    Marker(("<tool_call>", *_NAME_AND_JSON, "{", GAP, Either(('"', "}")))),
    Marker(("<tool_call>", GAP, "function", Run(" \t\r\n", 1, 4), *_WORD_FIRST, GAP, Either(("{", "</tool_call>")))),
    *(Marker(("<tool_call>", SPACES, first)) for first in "{["),
    *_GLM,
)
_QWEN_TAGS = (Tag(("</tool_call>",), where="after_call", line_feeds=1),)


def _hunyuan_calls(suffix: tuple[Part, ...]) -> tuple[Marker, ...]:
    """Return the markers of calls without a wrapper. `suffix` is the end of the tag."""
    after_name = Either(("</tool_call", "<arg_key", "</arg_key", "<arg_value", "</arg_value", "<tool_sep"))
    keys = ((*before, "<arg_key", *each) for before in ((SPACES,), SENTENCE) for each in _SUFFIXES)
    return tuple(Marker(("<tool_call", *suffix, *parts)) for parts in ((SPACES, *_NAMED, SPACES, after_name), *keys))


_HUNYUAN = (
    *(
        marker
        for outer in _SUFFIXES
        for inner in _SUFFIXES
        for marker in (
            Marker(("<tool_calls", *outer, SPACES, "<tool_call", *inner)),
            *or_wrapped(("<tool_calls", *outer), *_hunyuan_calls(inner))[5:],
        )
    ),
    *_hunyuan_calls(_SUFFIXES[1]),
    *_GLM,
    Marker(("<tool_call>", SPACES, *_NAMED, SPACES, "<tool_sep>")),
)
_HUNYUAN_TAGS = (
    Tag(("<think:opensource>",), closings=("</think:opensource>",), where="start"),
    Tag(
        ("<think", *_SUFFIXES[1]),
        closings=("</think>", Marker(("</think", *_SUFFIXES[1]), line_feeds=1)),
        where="start",
    ),
    *after_call("</tool_call>", "</tool_calls>"),
    *(Tag((end, *_SUFFIXES[1]), where="after_call") for end in ("</tool_call", "</tool_calls")),
)

FAMILY = Family(
    markup={
        "cwm_tool": (
            "<tool: f>", "<tool: f>\n", "<tool: g>\nls\n</tool>", "<tool: ", "<tool:", "<tool: f>{", "\n</tool>",
            "</tool", '<tool: f>\n{"a":"x"}\n</tool>', "<tool: f>\n\n", '<tool: f>{"a":1,"a":2}</tool>',
            '<tool: f>{"a"',
        ),
        "qwen3_coder_xml": (
            *_FUNCTIONS, *_wrapped("tool_call"), "<tool_call>So: ", "<tool_call>\nSo.\n<function=f>\n<parameter=a>",
            "So: ",
        ),
        "k_exaone2_xml": (*_FUNCTIONS, *_wrapped("tool_call")),
        "zaya_xml": (
            *_FUNCTIONS, *_wrapped("zyphra_tool_call"), f"{_ZAYA}f</function>", f"{_ZAYA}f\n<parameter>\n<name>a",
            "</name>", "<parameter><name>", "<value>", "<name>count</name><value>1</value></parameter>", "</value>",
            "</value></parameter>", f"{_ZAYA}f<parameter><name>a</name><value>", "<parameter>", f"{_ZAYA}f x",
            _ZAYA[:-3],
            f"{_ZAYA}f</function></zyphra_tool_call>", "</value>\n</parameter>\n</function>\n</zyphra_tool_call>",
        ),
        "seed_oss_xml": (*_FUNCTIONS, *_wrapped("seed:tool_call"), "<seed:think>", "</seed:think>", "</seed:th"),
        "llama31_function_tag": (
            *_FUNCTIONS, '{"a":', '"}</function>', "<function=f>\n{", '<function=f>{"a":1,"a":2}</function>',
            '<function=f>{"a":[NaN]}</function>', '<function=f>{"a":1}x',
        ),
        "glm_xml": _PAIRS,
        "iquest_q1": (*(each.replace("tool_call", "iquest_tool_call") for each in _PAIRS), "<iquest_", "</iquest"),
        "iquest_coder2": _renamed("iquestcoder_tool_call"),
        "longcat_xml": (
            *_renamed(*_LONGCAT), "<longcat_tool_call>{", '<longcat_tool_call>[{"name":"f"}]', "<longcat_think>",
        ),
        "telechat4_xml": (
            *_renamed("tool_call", "param_key", "param_value"), '<tool_call>f{"a":"b"}</tool_call>', "<tool_call>f{",
            '<tool_call>f\n{"', "<tool_call>f{}", '<tool_call>{"name":"f"}</tool_call>', '<tool_call>f{"a":1,"a":2}',
        ),
        "step_audio2": (
            "<tool_call>function\nf\n{}</tool_call>", "<tool_call>function\n", "<tool_call>function\nf\n{", "<tool",
            '<tool_call>function\nf{"a":x}</tool_call>', "<tool_call>function\nf\n</tool_call>", "<tool_call>func",
            '<tool_call>function\nf\n{"a":1,"a":2}</tool_call>', "</tool_", "function\n", "<tool_call>", "</tool_call>",
            '<tool_call>function\nf\n{"a":1}x', '{"a":"b"}', "<tool_call>function\nfunction\n{}</tool_call>",
        ),
        "k2_horizon": (
            *_IFM, "<ifm|", "</ifm|tool_calls>", "\n</ifm|tool_calls>\n", _K2_WRAP, f"{_K2_WRAP}\n{_K2_CALL}f",
            f"{_K2_WRAP}{_K2_CALL}f<ifm|arg_key>", "<ifm|arg_type>integer</ifm|arg_type>", "<ifm|arg_type>",
            "</ifm|arg_type>", f'{_K2_WRAP}{_K2_CALL}{{"name":"f"}}', f'{_K2_CALL}{{"name":"f"}}</ifm|tool_call>',
            f"{_K2_CALL}[", '{"name":"f"}', "<ifm|think>", "</ifm|think>", "<ifm|think_fast>", "</ifm|think_fas",
            f"{_K2_WRAP}{_K2_CALL}f</ifm|tool_call>{_K2_CALL}f</ifm|tool_call>", "<ifm|tool_cal",
        ),
        "solar_open2": (
            _SOLAR_CALL, f"{_SOLAR_CALL}f\n", f"{_SOLAR_CALL}f\n<|tool_arg:start|>", "<|tool_call:end|>", "<|tool_",
            "<|tool_arg:start|>a<|tool_arg:value|>", "<|tool_arg:start|>count<|tool_arg:value|>1<|tool_arg:end|>\n",
            "<|tool_arg:start|>", "<|tool_arg:value|>", "<|tool_arg:end|>", "<|tool_arg:end", "<|tool_arg:val", "\n",
            f"{_SOLAR_CALL}f<|tool_call:end|>", f"{_SOLAR_CALL}f x", f"{_SOLAR_CALL}{{", "x<|tool_call:end|>", "<|",
            f"{_SOLAR_CALL}f\n<|tool_arg:start|>a<|tool_arg:value|>", "<|tool_call:st", "x", "<",
            f"<|tool_arg:end|>{_SOLAR_CALL}f<|tool_call:end|>",
            f"{_SOLAR_CALL}f\n<|tool_arg:start|>a<|tool_arg:value|>x<|tool_arg:end|>x<|tool_call:end|>",
            f"{_SOLAR_CALL}f\n<|tool_arg:start|>a<|tool_arg:end|>x<|tool_call:end|>",
        ),
        "poolside_xml": (*_PAIRS, '<tool_call>{"name":"f"}', '{"name":"f"}'),
        "hunyuan4_xml": (
            *_PAIRS, "<tool_calls>", "<tool_calls><tool_call>f<arg_key>", "</tool_calls>", "</tool_call></tool_calls>",
            "<tool_calls:6124c78e><tool_call:6124c78e>f", "<think:6124c78e>", "</think:6124c78e>", "<think:",
        ),
        "hunyuan_xml": (
            *_PAIRS, "<tool_calls>", "<tool_calls>\n<tool_call>", "</tool_calls>", "<tool_sep>", "<tool_calls",
            "<tool_calls:opensource><tool_call:opensource>f<tool_sep:opensource>", "</tool_call:opensource>",
            "<arg_key:opensource>a</arg_key:opensource>", "</arg_value:opensource>", "<arg_value:opensource>1",
            "<tool_calls><tool_call>f<tool_sep>", "</tool_calls:opensource>", "</tool_call></tool_calls>",
            "</tool_calls:",
        ),
        "step3_xml": (
            *_STEP_TOKENS, _STEP_CALL, '<steptml:invoke name="f">', "<steptml:invoke ", "</steptml:invoke>", "<｜tool_",
            '<steptml:parameter name="a">', "<steptml:parameter name='count'>1", "</steptml:parameter>", "</steptml:p",
            f'{_STEP_CALL}<steptml:invoke name="f">', f"</steptml:invoke>{_STEP_TOKENS[1]}", "<",
            f'{_STEP_CALL}\n<steptml:invoke name="f"><steptml:parameter name="a">',
        ),
    },
    markers={
        "qwen3_coder_xml": _QWEN,
        "k_exaone2_xml": _QWEN,
        "zaya_xml": (
            *_of_functions("<zyphra_tool_call>"), Marker(("<zyphra_tool_call>", SPACES, "<function>")),
            *or_wrapped(("<zyphra_tool_call>",), _FUNCTION),
        ),
        "seed_oss_xml": (*_of_functions("<seed:tool_call>"), *or_wrapped(("<seed:tool_call>",), _FUNCTION)),
        "llama31_function_tag": (Marker(("<function=", *_WORD_FIRST, ">", SPACES, "{")),),
        "cwm_tool": (Marker(("<tool: ", _WORD_NAME, ">")),),
        "glm_xml": _GLM,
        "iquest_q1": _markers("iquest_tool_call", "arg_key", "arg_value"),
        "iquest_coder2": _markers("iquestcoder_tool_call", "arg_key", "arg_value"),
        "longcat_xml": (
            *_markers(*_LONGCAT), *(Marker(("<longcat_tool_call>", SPACES, first)) for first in "{["),
        ),
        "telechat4_xml": _TELECHAT,
        "step_audio2": _TELECHAT,
        "k2_horizon": (
            Marker((_K2_WRAP, SPACES, *_K2_MARKERS[0].parts)),
            *or_wrapped((_K2_WRAP,), *_K2_MARKERS),
            *(Marker((*outer, _K2_CALL, SPACES, first)) for outer in ((_K2_WRAP, SPACES), ()) for first in "{["),
        ),
        "solar_open2": (
            Marker((_SOLAR_CALL, SPACES, *_NAMED, SPACES, Either(_SOLAR_TAGS))),
            *(Marker((_SOLAR_CALL, *before, _SOLAR_TAGS[0])) for before in ((SPACES,), SENTENCE)),
        ),
        "poolside_xml": (Marker(("<tool_call>",), line_feeds=1),),
        "step3_xml": (
            Marker(("<｜tool_calls_begin｜>", *AFTER_WRAPPER), wraps=True),
            Marker((
                "<｜tool_call_begin｜>", SPACES, Either(("function<｜tool_sep｜>", "")), SPACES,
                "<steptml:invoke", Run(" \t\r\n", 1, 32), "name",
            )),
        ),
        "hunyuan_xml": _HUNYUAN,
        "hunyuan4_xml": _HUNYUAN,
    },
    tags={
        "step3_xml": (
            Tag((_STEP_TOKENS[1], Either(("\n", "")))), Tag((_STEP_TOKENS[2],)),
        ),
        "k2_horizon": (
            Tag(("</ifm|tool_calls>",)),
            *(Tag((f"<ifm|{each}>",), closings=(f"</ifm|{each}>",), where="start") for each in _K2_THOUGHTS),
        ),
        "glm_xml": (Tag(("<|role_end|>",)),),
        "hunyuan_xml": _HUNYUAN_TAGS,
        "hunyuan4_xml": _HUNYUAN_TAGS,
        "longcat_xml": (Tag(("<longcat_think>",), closings=("</longcat_think>",)),),
        "solar_open2": (Tag(("<|think:start|>",), closings=("<|think:end|>",), where="start"),),
        "qwen3_coder_xml": _QWEN_TAGS,
        "k_exaone2_xml": _QWEN_TAGS,
        "seed_oss_xml": (Tag(("<seed:think>",), closings=("</seed:think>",), where="start"),),
    },
    without_braces=frozenset({
        "glm_xml", "iquest_q1", "iquest_coder2", "longcat_xml", "telechat4_xml", "k2_horizon", "solar_open2",
    }),
    plain=frozenset({"llama31_function_tag", "cwm_tool", "step_audio2"}),
)  # fmt: skip

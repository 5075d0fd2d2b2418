"""Tests of the models of 2026, by their names and with the default dialects."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools import parse
from streamtools.parsing import DIALECTS
from streamtools.parsing.dialects import dialects_for, families_for
from tests.parsing.test_dialects import TEXT_VALUES
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought, warning

TOOLS: list[dict[str, Any]] = [
    {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}},
    {"name": "tool_12", "parameters": {}},
]
bern, both, none = call("get_weather", city="Bern"), call("get_weather", city="Bern", days=3), call("get_weather")
broken, cut, unclosed = error("unrecognised_tool_call"), error("truncated"), warning("missing_close")


def pairs(call: str, key: str, value: str, line: str = "") -> str:
    """Return a call in pairs of tags with these names. `line` follows each tag that closes."""
    return (
        f"<{call}>get_weather{line}<{key}>city</{key}>{line}<{value}>Bern</{value}>{line}"
        f"<{key}>days</{key}>{line}<{value}>3</{value}>{line}</{call}>"
    )


def hy4(inner: str, suffix: str) -> str:
    """Return a call of Hy 4, with the suffix on every tag."""
    return f"<tool_calls><tool_call>{inner}</tool_call></tool_calls>".replace(">", f"{suffix}>")


HY4 = "get_weather<arg_key>city</arg_key><arg_value>Bern</arg_value>"
NESTED = "<parameter><name>city</name><value>Bern</value></parameter>"
ZAYA = "<zyphra_tool_call>{}</zyphra_tool_call>".format
JSON = '{"city": "Bern"}'
ENVELOPE = '{"name": "get_weather", "arguments": {"city": "Bern"}}'
SOLAR = (
    "<|tool_call:start|>get_weather\n<|tool_arg:start|>city<|tool_arg:value|>Bern<|tool_arg:end|>\n<|tool_call:end|>"
)
LONGCAT = ("longcat_tool_call", "longcat_arg_key", "longcat_arg_value")
QWEN = "<tool_call>\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n</tool_call>"
QUOTED = "{'name': 'get_weather', 'arguments': {'city': 'Bern'}}"

READ: dict[str, tuple[str, str, list[Brief]]] = {
    **{
        f"Hy 4, {suffix or 'no suffix'}": (
            "tencent/Hy4", f"<think{suffix}>hm</think{suffix}>{hy4(HY4, suffix)}{hy4('get_weather', suffix)}A",
            [thought("hm"), bern, none, "A"],
        )
        for suffix in ("", ":opensource", ":6124c78e")
    },
    "Hy 3 without its separator": ("tencent/Hy3", hy4(HY4, ""), [bern]),
    "LongCat 2601": (
        "meituan-longcat/LongCat-Flash-Thinking-2601",
        "<longcat_think>hm</longcat_think>" + pairs(*LONGCAT, "\n"),
        [thought("hm"), both],
    ),
    "LongCat 2.0, no arguments": (
        "LongCat-2.0", "a<longcat_tool_call>get_weather</longcat_tool_call>b", ["a", none, "b"],
    ),
    "LongCat 2.0 in JSON": ("LongCat-2.0", f"<longcat_tool_call>{ENVELOPE}</longcat_tool_call>", [bern]),
    "LongCat Flash Chat in pairs": (
        "meituan-longcat/LongCat-Flash-Chat", pairs(*LONGCAT), [both],
    ),
    "Solar Open 2": (
        "upstage/Solar-Open2-250B", f"<|think:start|>hm<|think:end|>A{SOLAR}<|im:end|>", [thought("hm"), "A", bern],
    ),
    "TeleChat 4": ("TeleChat4-100B", pairs("tool_call", "param_key", "param_value"), [both]),
    "XingChen 4, on lines": ("XingChen4-36B", pairs("tool_call", "param_key", "param_value", "\n") + "b", [both, "b"]),
    "Xing 4, JSON after the name": ("Xing4.0-100B", f"<tool_call>get_weather{JSON}</tool_call>b", [bern, "b"]),
    "TeleChat 4, empty JSON": ("TeleChat4-100B", "<tool_call>get_weather\n{}\n</tool_call>", [none]),
    "TeleChat 4, only JSON": ("TeleChat4-100B", f"<tool_call>{ENVELOPE}</tool_call>", [bern]),
    "TeleChat 4, no arguments": ("TeleChat4-100B", "<tool_call>get_weather</tool_call>", [none]),
    "TeleChat 4, cut": ("TeleChat4-100B", pairs("tool_call", "param_key", "param_value")[:70], [cut]),
    "IQuest Coder 2": ("IQuest-Coder-V2-40B", pairs("iquestcoder_tool_call", "arg_key", "arg_value", "\n"), [both]),
    "ZAYA 1": (
        "Zyphra/ZAYA1-8B",
        ZAYA("\n<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n") + "b", [bern, "b"],
    ),
    "ZAYA 1, the name as content": (
        "Zyphra/ZAYA1-8B", ZAYA(f"<function>get_weather</function>{NESTED}") + "b", [bern, "b"],
    ),
    "ZAYA 1, parameters in the function": (
        "Zyphra/ZAYA1-8B", ZAYA(f"\n<function>get_weather\n{NESTED}\n</function>\n") + "b", [bern, "b"],
    ),
    "ZAYA 1, on lines": (
        "Zyphra/ZAYA1-8B", ZAYA("<function>get_weather\n" + NESTED.replace("><", ">\n<") + "\n</function>"), [bern],
    ),
    "ZAYA 1, no arguments": ("Zyphra/ZAYA1-8B", ZAYA("<function>get_weather</function>"), [none]),
    "Sarashina": ("sarashina2.2-3b-instruct", f"<|tool_calls|>[{QUOTED}, {QUOTED}]b", [bern, bern, "b"]),
    "Sarashina, the arguments first": (
        "sarashina2.2-3b-instruct", "<|tool_calls|>[{'arguments': {'city': \"O'Bern\"}, 'name': 'get_weather'}]",
        [call("get_weather", city="O'Bern")],
    ),
    "Sarashina, not closed": ("sarashina2.2-3b-instruct", f"<|tool_calls|>[{QUOTED}", [bern, unclosed]),
    "Sarashina, cut": ("sarashina2.2-3b-instruct", f"<|tool_calls|>[{QUOTED[:-4]}", [cut]),
    "Sarashina, no name": (
        "sarashina2.2-3b-instruct", "<|tool_calls|>[{'arguments': {}}]", [error("missing_tool_name")],
    ),
    "openPangu Embedded": (
        "openPangu-Embedded-7B", f"[unused16]hm[unused17]A[unused11][{ENVELOPE}, {ENVELOPE}][unused12][unused10]",
        [thought("hm"), "A", bern, bern],
    ),
    "openPangu V2": ("openPangu-2.0-Flash", f"<|tool_call_start|>\n[{ENVELOPE}]\n<|tool_call_end|>b", [bern, "b"]),
    "Step-Audio 2": ("stepfun-ai/Step-Audio-2-mini", f"<tool_call>function\nget_weather\n{JSON}</tool_call>", [bern]),
    "Step-Audio 2, no arguments": (
        "stepfun-ai/Step-Audio-2-mini", "<tool_call>function\nget_weather\n</tool_call>b", [none, "b"],
    ),
    "Kolibri 1": ("Kolibri-1", QWEN, [bern]),
    "BerryLM": ("BerryLM-8B", QWEN, [bern]),
    "IQuest Coder 1": ("IQuest-Coder-V1-7B-Instruct", QWEN, [bern]),
    "Spark 3": ("iflytek/Spark3", pairs("tool_call", "arg_key", "arg_value"), [both]),
}  # fmt: skip
"""The name of a model, its answer, and the events. The default dialects read the same."""

BY_NAME: dict[str, tuple[str, str, list[Brief]]] = {
    "Sarashina without its token": ("sarashina2.2-3b-instruct", f"[{QUOTED}]b", [bern, "b"]),
    "Qwen 2.5 Coder": ("Qwen2.5-Coder-7B", f"So:\n<tools>\n{ENVELOPE}\n</tools>b", ["So:\n", bern, "b"]),
    "Qwen 2.5 Coder, a list": ("Qwen2.5-Coder-7B", f"<tools>[{ENVELOPE},{ENVELOPE}]</tools>", [bern, bern]),
    "RWKV": ("rwkv7-g1", f"So:\n**Tool Call:**\n```json\n{ENVELOPE}\n```b", ["So:\n", bern, "b"]),
    "GLM 4 0414": ("GLM-4-9B-0414", f"get_weather\n{JSON}", [bern]),
    "GLM 4 0414, after text": (
        "GLM-4-9B-0414", f"So:\nget_weather\n{JSON}\nget_weather\n{{}}<|observation|>", ["So:\n", bern, "\n", none],
    ),
}  # fmt: skip
"""The same for forms that look like prose. The default dialects read them as text."""


@together(("model", "text", "expected"), READ | BY_NAME)
def test_the_dialects_of_a_model_read_its_calls(model: str, text: str, expected: list[Brief]) -> None:
    assert expected == read(text, dialects=dialects_for(model), tools=TOOLS)


@pytest.mark.deep
@together(("model", "text", "expected"), READ)
def test_the_default_dialects_read_the_same(model: str, text: str, expected: list[Brief]) -> None:
    assert expected == read(text, tools=TOOLS)


@together("dialect", ["telechat4_xml", "step_audio2"])
@together(
    ("body", "expected"),
    {
        "the type on a line": (f"function\nget_weather\n{JSON}", bern),
        "the type on the same line": (f"function get_weather\n{JSON}", bern),
        "all on a line": (f"function get_weather {JSON}", bern),
        "no name": (f"function\n{JSON}", error("missing_tool_name")),
        "no name on the same line": (f"function {JSON}", error("missing_tool_name")),
    },
)
def test_the_name_follows_the_type_of_a_tool(dialect: str, body: str, expected: Brief) -> None:
    """`function` is a name only if the caller declares it."""
    text = f"<tool_call>{body}</tool_call>b"
    assert [expected, "b"] == read(text, dialects=[dialect], tools=TOOLS)
    declared = [call("function", city="Bern")] if expected != bern else [bern]
    assert [*declared, "b"] == read(text, dialects=[dialect], tools=[*TOOLS, {"name": "function"}])


@together(("model", "text", "expected"), BY_NAME)
def test_a_form_that_looks_like_prose_needs_the_name_of_the_model(model: str, text: str, expected: list[Brief]) -> None:
    assert [text] == read(text, tools=TOOLS)
    assert [] == parse(text, dialects="auto", tools=TOOLS).calls


@together(
    "text",
    {
        "a name in prose": "I use get_weather\n{}",
        "no declared tool": "nothing\n{}",
        "a heading": "get_weather\nis a tool",
        "a quote": "> get_weather\n> {}",
    }.values(),
)
def test_a_name_without_its_json_is_text(text: str) -> None:
    assert [text] == read(text, dialects=["glm4_lines"], tools=TOOLS)


def test_the_end_of_reasoning_may_have_another_suffix() -> None:
    """The template may have written the beginning."""
    for dialects in (None, ["hunyuan_xml"], ["hunyuan4_xml"]):
        assert [thought("hm"), "A"] == read("hm</think:6124c78e>A", dialects=dialects, in_reasoning=True)
        assert [thought("hm</think:>"), "A"] == read("<think:x>hm</think:></think>A", dialects=dialects)


@together("name", ["Hy 4", "Solar Open 2", "LongCat 2601, Lite, 2.0", "openPangu Embedded"])
def test_the_table_names_the_tag_of_reasoning(name: str) -> None:
    """The dialects of the family read it."""
    family = next(family for family in families_for(name) if family.name == name)
    assert [thought("hm")] == read(f"{family.reasoning}hm", dialects=family.dialects)


@together(
    ("dialect", "text"),
    [
        ("glm_xml", "<tool_call>tool_12</arg_value></tool_call>"),
        ("glm_xml", "<tool_call>tool_12\n<arg_value>x</arg_value></tool_call>"),
        ("iquest_q1", "<iquest_tool_call>tool_12</arg_key></iquest_tool_call>"),
        ("telechat4_xml", "<tool_call>tool_12</param_value></tool_call>"),
        ("longcat_xml", "<longcat_tool_call>tool_12</longcat_arg_value></longcat_tool_call>"),
        ("k2_horizon", "<ifm|tool_call>tool_12</ifm|arg_value></ifm|tool_call>"),
        ("solar_open2", "<|tool_call:start|>tool_12<|tool_arg:end|><|tool_call:end|>"),
        ("hunyuan_xml", "<tool_calls><tool_call>tool_12</arg_value></tool_call></tool_calls>"),
        ("zaya_xml", "<zyphra_tool_call><function>tool_12</value></zyphra_tool_call>"),
    ],
    ids=str,
)
def test_a_stray_tag_after_the_name_is_an_error(dialect: str, text: str) -> None:
    for dialects in (None, [dialect]):
        assert ["a", broken, "b"] == read(f"a{text}b", dialects=dialects, tools=TOOLS)


CHOICES = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
K2 = (
    "<ifm|tool_call>f<ifm|arg_key>a</ifm|arg_key><ifm|arg_type>{}</ifm|arg_type><ifm|arg_value>{}</ifm|arg_value>"
    "</ifm|tool_call>"
).format


@together(
    ("schema", "mark", "value", "expected"),
    [
        pytest.param(CHOICES, "string", "3", "3", id="both allowed, marked as a string"),
        pytest.param(CHOICES, "integer", "3", 3, id="both allowed, marked as an integer"),
        pytest.param({"type": ["string", "null"]}, "string", "null", "null", id="the string null"),
        pytest.param({"type": ["string", "null"]}, "null", "null", None, id="null"),
        pytest.param({"type": "integer"}, "string", "3", 3, id="the schema does not allow the mark"),
        pytest.param({}, "integer", "3", 3, id="no schema"),
        pytest.param({"type": "string"}, "nothing", "3", "3", id="an unknown mark"),
    ],
)
def test_the_type_beside_a_value_counts_if_the_schema_allows_it(
    schema: Any, mark: str, value: str, expected: object
) -> None:
    tools = [{"name": "f", "parameters": {"properties": {"a": schema}}}]
    assert [call("f", a=expected)] == read(K2(mark, value), dialects=["k2_horizon"], tools=tools)


@together("id", sorted(TEXT_VALUES))
def test_null_in_an_enumeration_is_a_type(id: str) -> None:
    """In every dialect in which only the schema tells the types."""
    for schema, expected in (({"enum": ["ok", None]}, None), ({"const": None}, None), ({"enum": ["ok"]}, "null")):
        tools = [{"name": "f", "parameters": {"properties": {"a": schema}}}]
        calls = parse(DIALECTS[id].write_call("f", {"a": None}), dialects=[id], tools=tools).calls
        assert [{"a": expected}] == [made.arguments for made in calls]


def dsml(mark: str, wrapper: str) -> str:
    """Return a call with this mark in its tags."""
    return (
        f'<{mark}{wrapper}><{mark}invoke name="get_weather"><{mark}parameter name="city" string="true">Bern'
        f"</{mark}parameter></{mark}invoke></{mark}{wrapper}>"
    )


@together(("dialect", "word"), [("deepseek_dsml", "DSML"), ("gigachat35", "GCML")])
def test_marks_with_other_bars_and_stray_closing_tags(dialect: str, word: str) -> None:
    for mark in (f"｜{word}｜", f"|{word}|"):
        text = dsml(mark, "tool_calls")
        stray = f"</{mark}parameter></{mark}invoke></{mark}tool_calls>"
        for dialects in (None, [dialect]):
            assert ["a", bern, bern, "b"] == read(f"a{text}{text}b", dialects=dialects, tools=TOOLS)
            # The stray tags may be the end of its value.
            assert ["a", bern, broken, "b"] == read(f"a{text}{stray}b", dialects=dialects, tools=TOOLS)
            assert ["a b"] == read(f"a {stray}b", dialects=dialects, tools=TOOLS)
            assert [f"`{stray}`"] == read(f"`{stray}`", dialects=dialects, tools=TOOLS)


@together("dialect", ["qwen3_coder_xml", "k_exaone2_xml"])
def test_a_sentence_between_the_wrapper_and_the_function_is_shown(dialect: str) -> None:
    function = "<function=get_weather>\n<parameter=city>\nBern\n</parameter>\n</function>"
    for dialects in (None, [dialect]):
        for before, shown in (("Let me check.", "Let me check."), ("\nLet me check.\n", "\nLet me check.")):
            text = f"<tool_call>{before}{function}\n</tool_call>b"
            assert [shown, bern, "b"] == read(text, dialects=dialects, tools=TOOLS)
        for text in ("Use <tool_call> for calls.", f"A <tool_call> {'x' * 200}", "<tool_call>a<b>c"):
            assert [text] == read(text, dialects=dialects, tools=TOOLS)


@together("dialects", [None, "auto", ["harmony"], ["atem_xml"]])
@together("start", ["<|start|>assistant ", ""])
def test_reasoning_of_muse_is_reasoning_in_all_dialects(dialects: Any, start: str) -> None:
    answer = "<|start|>assistant to=user<|message|>A"
    assert [thought("hm"), "A"] == read(f"{start}to=self<|message|>hm<|eom|>{answer}", dialects=dialects)
    assert [thought("hm"), "A"] == read(f"{start}to=self<|message|>hm{answer}", dialects=dialects)


IN_WRAPPER = {
    "deepseek_v3": "<｜tool▁call▁begin",
    "deepseek_v31": "<｜tool▁call▁begin",
    "kimi_k2": "<|tool_call_begin",
    "plamo3": "<|plamo:begin_tool_request:",
    "qwen3_coder_xml": "<function=",
    "k_exaone2_xml": "<function=",
    "seed_oss_xml": "<function=",
    "zaya_xml": "<function=",
    "hunyuan_xml": "<tool_call>",
    "hunyuan4_xml": "<tool_call>",
    "k2_horizon": "<ifm|tool_call>",
    "deepseek_dsml": "<｜DSML｜invoke",
    "gigachat35": "<｜GCML｜invoke",
    "minimax_m2_xml": "<invoke",
    "minimax_m3_xml": "]<]minimax[>[<invoke",
    "anthropic_xml": "<invoke",
    "dots_xml": "<invoke",
    "solar_open": "<|tool_call:begin",
    "step3_xml": "<｜tool_call_begin",
    "kimi_k3_xtml": "<|open|>call",
}
"""The dialects whose calls have a wrapper, and the beginning of a call in it."""


@together(("dialect", "begin"), [*IN_WRAPPER.items()])
@together("sentence", ["Let me look that up. ", "\nI will call get_weather (Bern):\n", "Sure!"])
def test_a_sentence_before_the_first_call_of_a_wrapper_is_shown(dialect: str, begin: str, sentence: str) -> None:
    """Without a call after it, the tag is a part of the text."""
    written = DIALECTS[dialect].write_call("get_weather", {"city": "Bern"})
    wrapper, begun, rest = written.partition(begin)
    found = read(wrapper + sentence + begun + rest, dialects=[dialect], tools=TOOLS)
    shown = "".join(each for each in found if isinstance(each, str))
    assert [bern] == [each for each in found if not isinstance(each, str)]
    assert (sentence.strip(), "<" in shown) == (shown.strip(), False)
    mention = read(wrapper + sentence, dialects=[dialect], tools=TOOLS)
    assert mention[-1] in (f"{wrapper}{sentence}", sentence, sentence.lstrip(), cut, broken)


HIDDEN_JUNK = {
    "glm_xml": ("<tool_call>", "<arg_key>", "</tool_call>"),
    "iquest_q1": ("<iquest_tool_call>", "<arg_key>", "</iquest_tool_call>"),
    "iquest_coder2": ("<iquestcoder_tool_call>", "<arg_key>", "</iquestcoder_tool_call>"),
    "longcat_xml": ("<longcat_tool_call>", "<longcat_arg_key>", "</longcat_tool_call>"),
    "telechat4_xml": ("<tool_call>", "<param_key>", "</tool_call>"),
    "step_audio2": ("<tool_call>", "<param_key>", "</tool_call>"),
    "hunyuan4_xml": ("<tool_call>", "<arg_key>", "</tool_call>"),
    "k2_horizon": ("<ifm|tool_call>", "<ifm|arg_key>", "</ifm|tool_call>"),
    "solar_open2": ("<|tool_call:start|>", "<|tool_arg:start|>", "<|tool_call:end|>"),
    "minicpm5_xml": ('<function name="get_weather">', "<param ", "</function>"),
}


@together(("dialect", "tags"), [*HIDDEN_JUNK.items()])
@together("junk", ["get_weather\njunk", "get_weather is what I need. ", "get_weather junk\n"])
def test_text_between_the_name_and_the_arguments_is_an_error(
    dialect: str, tags: tuple[str, str, str], junk: str
) -> None:
    begin, key, close = tags
    assert [broken, "b"] == read(f"{begin}{junk}{key}x{close}b", dialects=[dialect], tools=TOOLS)
    mentioned = [f"{begin}{junk}"] if begin[1] != "|" else [cut]
    assert mentioned == read(f"{begin}{junk}", dialects=[dialect], tools=TOOLS)


@together("dialect", ["hunyuan_xml", "hunyuan4_xml"])
@together("suffix", ["", ":opensource", ":6124c78e"])
def test_the_wrapper_of_hunyuan_may_be_missing(dialect: str, suffix: str) -> None:
    for separator in ("", "<tool_sep>"):
        text = f"A{HY4.replace('<arg_key', separator + '<arg_key', 1)}".replace("Aget", "A<tool_call>get")
        text = f"{text}</tool_call>b".replace(">", f"{suffix}>")
        for dialects in ([dialect], None):
            assert ["A", bern, "b"] == read(text, dialects=dialects, tools=TOOLS)


@together("mark", ["|{}|", "| {} |", "｜{}|", "|{}｜", "｜ {} ｜", "| {} | "])
@together(("dialect", "word"), [("deepseek_dsml", "DSML"), ("gigachat35", "GCML")])
def test_bars_and_spaces_of_a_mark_may_differ(dialect: str, word: str, mark: str) -> None:
    text, own = DIALECTS[dialect].write_call("get_weather", {"city": "Bern"}), f"｜{word}｜"
    whole, first = text.replace(own, mark.format(word)), text.replace(own, mark.format(word), 2)
    for written in (whole, first, text.replace(f"</{own}", f"</{mark.format(word)}")):
        for dialects in ([dialect], None):
            assert [bern, "b"] == read(written + "b", dialects=dialects, tools=TOOLS)


@together(
    ("text", "expected"),
    {
        "one dict": (QUOTED, [bern]),
        "text after it": (f"{QUOTED} b", [bern, " b"]),
        "a cut dict": (QUOTED[:-4], [cut]),
        "text": ("So.\n\nb", [broken, "\nb"]),
    },
)
def test_sarashina_may_omit_the_list(text: str, expected: list[Brief]) -> None:
    assert expected == read(f"<|tool_calls|>{text}", dialects=["sarashina_list"], tools=TOOLS)

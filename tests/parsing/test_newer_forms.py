"""Forms that few models write: tags, tokens and fences of their own around what other dialects hold as well."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamtools import parse
from streamtools.recording import read_recording, shipped
from tests.parsing.test_markdown_corpus import DOCUMENTS
from tests.parsing.test_markdown_corpus import read as read_document
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought, warning
from tests.support.readme import ROOT, read_blocks

TOOLS: list[dict[str, Any]] = [
    {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}},
    {"name": "g", "parameters": {"properties": {}}},
    {"name": "one", "parameters": {"properties": {"a": {"type": "string"}}}},
    {"name": "get_weather", "parameters": {"properties": {}}},
]
f, g, both = call("f", a="x"), call("g"), call("f", a="x", b=2)
broken, invalid = error("unrecognised_tool_call"), error("invalid_arguments")
cut, unclosed = error("truncated"), warning("missing_close")

GCML, GCML_END = "<｜GCML｜{}>".format, "</｜GCML｜tool_calls>"
GIGA = '<｜GCML｜invoke name="f"><｜GCML｜parameter name="a" string="true">x</｜GCML｜parameter></｜GCML｜invoke>'
GIGA_2 = GIGA.replace(
    "</｜GCML｜invoke>", '<｜GCML｜parameter name="b" string="false">2</｜GCML｜parameter></｜GCML｜invoke>'
)
DOTS = '<dots_function_call>\n<invoke name="f"><parameter name="a">x</parameter></invoke>\n</dots_function_call>'
IQUEST = "<iquest_tool_call>f<arg_key>a</arg_key><arg_value>x</arg_value></iquest_tool_call>"
K2 = "<ifm|tool_call>f\n<ifm|arg_key>a</ifm|arg_key>\n<ifm|arg_value>x</ifm|arg_value>\n</ifm|tool_call>"
K2_TYPED = (
    "<ifm|tool_call>f<ifm|arg_key>{}</ifm|arg_key><ifm|arg_type>{}</ifm|arg_type><ifm|arg_value>3</ifm|arg_value>"
    "</ifm|tool_call>"
).format
SOLAR_2 = "<|tool_call:start|>f\n<|tool_arg:start|>a<|tool_arg:value|>x<|tool_arg:end|>\n<|tool_call:end|>"
SOLAR = '<|tool_call:begin|>id1<|tool_call:name|>f<|tool_call:args|>{"a": "x"}<|tool_call:end|>'
PLAMO = (
    "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>f<|plamo:end_tool_name:plamo|>"
    '<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>{"a": "x"}'
    "<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>"
)
PLAMO_ALL = "<|plamo:begin_tool_requests:plamo|>{}<|plamo:end_tool_requests:plamo|>".format
HYPER = '-> tool/function_call\n[{"name": "f", "arguments": {"a": "x"}}]'
F = 'f(a="x")'
MINICPM = "<|tool_call_start|>\n```python\n{}\n```\n<|tool_call_end|>".format
CODE = "```tool_code\n{}\n```".format


@together(
    ("dialect", "text", "expected"),
    [
        pytest.param("gigachat35", f"a{GCML('tool_calls')}{GIGA}{GIGA_2}{GCML_END}", ["a", f, both], id="GCML"),
        pytest.param("gigachat35", f"a\n{GIGA}b", ["a", f, "b"], id="GCML without its wrapper"),
        pytest.param("gigachat35", f"{GCML('tool_calls')}{GIGA}", [f, unclosed], id="GCML, the wrapper not closed"),
        pytest.param("gigachat35", "a <｜GCML｜tool_calls> b", ["a <｜GCML｜tool_calls> b"], id="GCML's tag in prose"),
        pytest.param("dots_xml", f"a {DOTS} b", ["a ", f, " b"], id="dots"),
        pytest.param(
            "dots_xml", '<dots_function_call>{"name": "g"}</dots_function_call>', [g], id="dots, in JSON"
        ),
        pytest.param("dots_xml", DOTS[:-21], [f, unclosed], id="dots, the wrapper not closed"),
        pytest.param("iquest_q1", f"a {IQUEST} b", ["a ", f, " b"], id="IQuest"),
        pytest.param("iquest_q1", "<iquest_tool_call>g</iquest_tool_call>", [g], id="IQuest, no arguments"),
        pytest.param("iquest_q1", IQUEST[:-19], [cut], id="IQuest, not closed"),
        pytest.param("k2_horizon", f"<ifm|tool_calls>\n{K2}\n{K2}\n</ifm|tool_calls>", [f, f], id="K2 Horizon"),
        pytest.param("k2_horizon", f"a {K2} b", ["a ", f, " b"], id="K2 Horizon without its wrapper"),
        pytest.param(
            "k2_horizon", '<ifm|tool_calls><ifm|tool_call>{"name": "g"}</ifm|tool_call></ifm|tool_calls>', [g],
            id="K2 Horizon, in JSON",
        ),
        pytest.param(
            "k2_horizon", '<ifm|tool_call>[{"name": "g"}, {"name": "g"}]</ifm|tool_call>', [g, g],
            id="K2 Horizon, a list in JSON",
        ),
        pytest.param("k2_horizon", K2_TYPED("c", "integer"), [call("f", c=3)], id="a type beside a value"),
        pytest.param("k2_horizon", K2_TYPED("c", "any"), [call("f", c="3")], id="a type that says nothing"),
        pytest.param(
            "k2_horizon", K2_TYPED("a", "integer"), [call("f", a="3")], id="the schema knows a type better"
        ),
        pytest.param("k2_horizon", K2.replace("<ifm|arg_value>", "<ifm|arg_type>x"), [broken], id="an open type"),
        pytest.param("k2_horizon", f"<ifm|think_fast>hm</ifm|think_fast>{K2}", [thought("hm"), f], id="K2 reasoning"),
        pytest.param("solar_open2", f"a {SOLAR_2}\n{SOLAR_2} b", ["a ", f, "\n", f, " b"], id="Solar Open 2"),
        pytest.param("solar_open2", "<|tool_call:start|>g\n<|tool_call:end|>", [g], id="Solar Open 2, no arguments"),
        pytest.param("solar_open2", SOLAR_2.replace(">x<", "> x\n<"), [call("f", a=" x\n")], id="a value as it is"),
        pytest.param("solar_open2", SOLAR_2[:60], [cut], id="Solar Open 2, cut"),
        pytest.param("solar_open2", f"{SOLAR_2[:-17]}{SOLAR_2}", [f, unclosed, f], id="Solar Open 2, not closed"),
        pytest.param(
            "solar_open", f"<|think|>hm<|end|><|begin|>assistant<|tool_calls|>{SOLAR}<|calls|>", [thought("hm"), f],
            id="Solar Open",
        ),
        pytest.param("solar_open", "<|content|>a<|end|>", ["a"], id="an answer of Solar Open"),
        pytest.param("solar_open", SOLAR[:-17], [f, unclosed], id="Solar Open, not closed"),
        pytest.param("plamo3", f"a {PLAMO_ALL(PLAMO + PLAMO)}<|plamo:tag|>", ["a ", f, f], id="PLaMo"),
        pytest.param("plamo3", f"a {PLAMO} b", ["a ", f, " b"], id="PLaMo without its wrapper"),
        pytest.param(
            "plamo3", f"<|plamo:begin_think:plamo|>hm<|plamo:end_think:plamo|>{PLAMO_ALL(PLAMO)}", [thought("hm"), f],
            id="reasoning of PLaMo",
        ),
        pytest.param(
            "plamo3", f"<|plamo:begin_think:plamo|>hm{PLAMO_ALL(PLAMO)}", [thought("hm"), f], id="a call ends them"
        ),
        pytest.param("hyperclovax_think", HYPER + "<|im_end|>", [f], id="HyperCLOVA X, after the prompt's header"),
        pytest.param(
            "hyperclovax_think", f"a<|im_end|>\n<|im_start|>assistant {HYPER}<|im_end|>", ["a\n", f],
            id="HyperCLOVA X, after an answer",
        ),
        pytest.param(
            "hyperclovax_think", f"/think\nhm<|im_end|>\n<|im_start|>assistant {HYPER}", [thought("hm"), f],
            id="HyperCLOVA X, after reasoning",
        ),
        pytest.param("hyperclovax_think", f"a {HYPER}", [f"a {HYPER}"], id="its header in prose"),
        pytest.param("minicpm4_python", f"a {MINICPM(F)} b", ["a ", f, " b"], id="MiniCPM"),
        pytest.param("minicpm4_python", MINICPM("f(a='x', b=2)\ng()"), [both, g], id="MiniCPM, two calls"),
        pytest.param(
            "minicpm4_python", "<|tool_call_start|>```g()```<|tool_call_end|>a", [g, "a"], id="MiniCPM on one line"
        ),
        pytest.param(
            "minicpm4_python", f"<|tool_call_start|>\n{F}\ng()\n<|tool_call_end|>a", [f, g, "a"],
            id="MiniCPM without its fence",
        ),
        pytest.param("minicpm4_python", MINICPM("f(a=x)") + "a", [invalid, "a"], id="MiniCPM, no literal"),
        pytest.param("minicpm4_python", MINICPM("g()")[:-17], [g, unclosed], id="MiniCPM, not closed"),
        pytest.param(
            "minicpm4_python", f"<|thought_start|>hm<|thought_end|>{MINICPM('g()')}", [thought("hm"), g],
            id="reasoning of MiniCPM",
        ),
        pytest.param("tool_code", f"So:\n{CODE(F)}\n", ["So:\n", f, "\n"], id="a fence of tool_code"),
        pytest.param("tool_code", CODE("f(a='x', b=2)\ng()"), [both, g], id="a fence of tool_code, two calls"),
        pytest.param("tool_code", CODE("h(a='x')"), [CODE("h(a='x')")], id="a fence of tool_code, no one's tool"),
        pytest.param("tool_code", CODE("import f"), [CODE("import f")], id="a fence of tool_code that is code"),
        pytest.param("tool_code", f"`{CODE('g()')}", [f"`{CODE('g()')}"], id="not on a line of its own"),
        pytest.param("tool_code", "```python\ng()\n```", ["```python\ng()\n```"], id="a fence of Python"),
        pytest.param("cwm_tool", 'a\n<tool: f>\n{"a": "x", "b": 2}\n</tool>b', ["a\n", both, "b"], id="CWM, in JSON"),
        pytest.param("cwm_tool", "<tool: one>\nls\n\ncat {}\n</tool>", [call("one", a="ls\n\ncat {}")], id="CWM"),
        pytest.param("cwm_tool", "<tool: one>\n  { ls; }</tool>", [call("one", a="  { ls; }")], id="CWM, a brace"),
        pytest.param("cwm_tool", "<tool: one>\n</tool>", [call("one", a="")], id="CWM, no text"),
        pytest.param("cwm_tool", "<tool: g>\n</tool>", [g], id="CWM, no arguments"),
        pytest.param("cwm_tool", "<tool: f>\nls\n</tool>a", [invalid, "a"], id="CWM, text for two arguments"),
        pytest.param("cwm_tool", "<tool: h>\nls\n</tool>", [call("h", content="ls")], id="CWM, no one's tool"),
        pytest.param("cwm_tool", "<tool: one>\nls", [cut], id="CWM, cut"),
        pytest.param("cwm_tool", '<tool: g>\n{}\n</to', [g, unclosed], id="CWM, cut in its end"),
        pytest.param("cwm_tool", '<tool: g>{"a": x}</tool>a', [error("invalid_json"), "a"], id="CWM, broken JSON"),
        pytest.param("cwm_tool", "<tool: g>{} x</tool>a", [broken, "a"], id="CWM, text after JSON"),
        pytest.param("cwm_tool", "<tool:f> <tool: > <tools: f>", ["<tool:f> <tool: > <tools: f>"], id="CWM, others"),
        pytest.param("granite_lines", 'f(a="x", b=2)\nget_weather()', [both, call("get_weather")], id="lines of calls"),
        pytest.param("granite_lines", f"{F}\nSo it is.", [f, "So it is."], id="a line of a call, and an answer"),
        pytest.param("granite_lines", 'So:\nf(a="x")', ['So:\nf(a="x")'], id="a line of a call after an answer"),
        pytest.param("granite_lines", "f() is a tool.", ["f() is a tool."], id="a sentence about a tool"),
        pytest.param("granite_lines", "f(a) is one.", ["f(a) is one."], id="a sentence about a tool and its argument"),
        pytest.param("granite_lines", "h(a='x')", ["h(a='x')"], id="a line that calls no one's tool"),
        pytest.param("granite_lines", "f(a='x') + 1\n\nSo", [broken, "\nSo"], id="a line that is code"),
        pytest.param("granite_lines", "f(a='x", [cut], id="a line that is cut"),
        pytest.param("granite_lines", "f(a=x)\n\nSo", [invalid, "\nSo"], id="a line with no literal"),
    ],
)  # fmt: skip
def test_forms(dialect: str, text: str, expected: list[Brief]) -> None:
    """Calls, what they lack, and what only looks like one."""
    assert expected == read(text, dialects=[dialect], tools=TOOLS)


ENABLED = ("tool_code", "granite_lines", "pythonic", "minicpm4_python", "hyperclovax_think", "solar_open", "k2_horizon")
_called = re.compile(r"\b([A-Za-z_]\w{2,40})\(").findall


def told(path: Path) -> str:
    """Return what the model of a recording says."""
    lines = b"".join(chunk.data for chunk in read_recording(path).chunks).decode().splitlines()
    frames = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(each["delta"].get("content") or "" for frame in frames for each in frame["choices"])


@pytest.mark.deep
def test_answers_with_code_hold_no_calls() -> None:
    """Nor do recordings, pages, their code, and modules: not even where every function that they call is declared."""
    pages = [page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))]
    code = [f"```{block.language}\n{block.text}```" for page in pages for block in read_blocks(page)]
    modules = [f"```python\n{path.read_text(encoding='utf-8')}```" for path in (ROOT / "streamtools").rglob("*.py")]
    texts = [*map(read_document, DOCUMENTS), *map(told, shipped().values()), *pages, *code, *modules]
    names = sorted({name for text in texts for name in _called(text)})
    tools = [{"name": name, "parameters": {}} for name in names]
    assert len(names) > 500
    assert len(texts) > 500
    for text in texts:
        assert [] == parse(text, dialects=ENABLED, tools=tools).calls

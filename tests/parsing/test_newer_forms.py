"""Tests of forms that few models write."""

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
        pytest.param("iquest_q1", IQUEST[:-19], [cut], id="IQuest, not closed"),
        pytest.param("k2_horizon", f"<ifm|tool_calls>\n{K2}\n{K2}\n</ifm|tool_calls>", [f, f], id="K2 Horizon"),
        pytest.param(
            "k2_horizon", '<ifm|tool_call>[{"name": "g"}, {"name": "g"}]</ifm|tool_call>', [g, g],
            id="K2 Horizon, a list in JSON",
        ),
        pytest.param("k2_horizon", K2_TYPED("c", "integer"), [call("f", c=3)], id="a type beside a value"),
        pytest.param("k2_horizon", K2.replace("<ifm|arg_value>", "<ifm|arg_type>x"), [broken], id="an open type"),
        pytest.param("solar_open2", f"{SOLAR_2[:-17]}{SOLAR_2}", [f, unclosed, f], id="Solar Open 2, not closed"),
        pytest.param(
            "solar_open", f"<|think|>hm<|end|><|begin|>assistant<|tool_calls|>{SOLAR}<|calls|>", [thought("hm"), f],
            id="Solar Open",
        ),
        pytest.param("solar_open", SOLAR[:-17], [f, unclosed], id="Solar Open, not closed"),
        pytest.param("plamo3", f"a {PLAMO_ALL(PLAMO + PLAMO)}<|plamo:tag|>", ["a ", f, f], id="PLaMo"),
        pytest.param(
            "plamo3", f"<|plamo:begin_think:plamo|>hm<|plamo:end_think:plamo|>{PLAMO_ALL(PLAMO)}", [thought("hm"), f],
            id="reasoning of PLaMo",
        ),
        pytest.param(
            "plamo3", f"<|plamo:begin_think:plamo|>hm{PLAMO_ALL(PLAMO)}", [thought("hm"), f], id="a call ends them"
        ),
        pytest.param(
            "hyperclovax_think", f"/think\nhm<|im_end|>\n<|im_start|>assistant {HYPER}", [thought("hm"), f],
            id="HyperCLOVA X, after reasoning",
        ),
        pytest.param("hyperclovax_think", f"a {HYPER}", [f"a {HYPER}"], id="its header in prose"),
        pytest.param("minicpm4_python", MINICPM("f(a='x', b=2)\ng()"), [both, g], id="MiniCPM, two calls"),
        pytest.param("minicpm4_python", MINICPM("f(a=x)") + "a", [invalid, "a"], id="MiniCPM, no literal"),
        pytest.param("minicpm4_python", MINICPM("g()")[:-17], [g, unclosed], id="MiniCPM, not closed"),
        pytest.param("tool_code", f"So:\n{CODE(F)}\n", ["So:\n", f, "\n"], id="a fence of tool_code"),
        pytest.param("tool_code", CODE("h(a='x')"), [CODE("h(a='x')")], id="a fence of tool_code, no one's tool"),
        pytest.param("tool_code", f"`{CODE('g()')}", [f"`{CODE('g()')}"], id="not on a line of its own"),
        pytest.param("cwm_tool", 'a\n<tool: f>\n{"a": "x", "b": 2}\n</tool>b', ["a\n", both, "b"], id="CWM, in JSON"),
        pytest.param("cwm_tool", "<tool: one>\nls\n\ncat {}\n</tool>", [call("one", a="ls\n\ncat {}")], id="CWM"),
        pytest.param("cwm_tool", "<tool: g>\n</tool>", [g], id="CWM, no arguments"),
        pytest.param("cwm_tool", "<tool: f>\nls\n</tool>a", [invalid, "a"], id="CWM, text for two arguments"),
        pytest.param("cwm_tool", "<tool: one>\nls", [cut], id="CWM, cut"),
        pytest.param("cwm_tool", '<tool: g>\n{}\n</to', [g, unclosed], id="CWM, cut in its end"),
        pytest.param("cwm_tool", '<tool: g>{"a": x}</tool>a', [error("invalid_json"), "a"], id="CWM, broken JSON"),
        pytest.param("cwm_tool", "<tool: g>{} x</tool>a", [broken, "a"], id="CWM, text after JSON"),
        pytest.param("cwm_tool", "<tool:f> <tool: > <tools: f>", ["<tool:f> <tool: > <tools: f>"], id="CWM, others"),
        pytest.param("granite_lines", 'f(a="x", b=2)\nget_weather()', [both, call("get_weather")], id="lines of calls"),
        pytest.param("granite_lines", "f(a='x') + 1\n\nSo", [broken, "\nSo"], id="a line that is code"),
        pytest.param("granite_lines", "f(a='x", [cut], id="a line that is cut"),
        pytest.param("granite_lines", "f()<|im_end|>", [call("f")], id="a line before an end token"),
    ],
)  # fmt: skip
def test_rare_forms_of_calls(dialect: str, text: str, expected: list[Brief]) -> None:
    """Complete calls, calls with missing parts, and text that resembles a call."""
    assert expected == read(text, dialects=[dialect], tools=TOOLS)


ENABLED = ("tool_code", "granite_lines", "pythonic", "minicpm4_python", "hyperclovax_think", "solar_open", "k2_horizon")
_called = re.compile(r"\b([A-Za-z_]\w{2,40})\(").findall


def reported(path: Path) -> str:
    """Return what the model of a recording says."""
    lines = b"".join(chunk.data for chunk in read_recording(path).chunks).decode().splitlines()
    frames = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(each["delta"].get("content") or "" for frame in frames for each in frame["choices"])


@pytest.mark.deep
def test_answers_with_code_hold_no_calls() -> None:
    """The same is true for recordings, pages and modules, even if all functions in them are declared."""
    pages = [page.read_text(encoding="utf-8") for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))]
    code = [f"```{block.language}\n{block.text}```" for page in pages for block in read_blocks(page)]
    modules = [f"```python\n{path.read_text(encoding='utf-8')}```" for path in (ROOT / "streamtools").rglob("*.py")]
    texts = [*map(read_document, DOCUMENTS), *map(reported, shipped().values()), *pages, *code, *modules]
    names = sorted({name for text in texts for name in _called(text)})
    tools = [{"name": name, "parameters": {}} for name in names]
    assert len(names) > 500
    assert len(texts) > 500
    for text in texts:
        assert [] == parse(text, dialects=ENABLED, tools=tools).calls

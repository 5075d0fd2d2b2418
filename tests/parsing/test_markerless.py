"""Tests of bare JSON: a call at the start of a message if it names a declared tool in time, otherwise text."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.parsing.dialects import choose_dialects
from streamtools.parsing.dialects.neutralizing import neutralize
from streamtools.testing.laws import assert_chunk_invariant, steps
from tests.support.cases import together
from tests.support.reading import Brief, brief, call, error, raws, thought, warning
from tests.support.reading import read as read_with

TOOLS = [{"name": name} for name in ("f", "get_weather", "météo", 'a"b')]
F, G = '{"name":"f","parameters":{"a":1}}', '{"name": "get_weather", "parameters": {}}'
f, g = call("f", a=1), call("get_weather")
BROKEN, CUT, UNCLOSED = error("invalid_json"), error("truncated"), warning("missing_close")


def read(dialect: str, text: str, **options: Any) -> list[Brief]:
    """Return what a dialect reads in `text`, without near misses, after checking all laws."""
    found = read_with(text, dialects=[dialect], **{"tools": TOOLS} | options)
    return [each for each in found if each != warning("near_miss")]


@together("dialect", ["llama3_json", "raw_json"])
@together(
    ("text", "expected"),
    {
        "nothing else": (F, [f]),
        "after reasoning": (f"<think>t</think> {F}", [thought("t"), " ", f]),
        "the function is the name": ('{"type": "function", "function": "f", "parameters": {"a":1}}', [f]),
        "the form of OpenAI": ('{"function":{"name":"f","arguments":"{\\"a\\":1}"}}', [f]),
        "broken JSON": ('{"name":"f","args":{"a":x}}\n\nb', [BROKEN, "\n\nb"]),
        "bad arguments": ('{"name":"f","args":3}', [error("invalid_arguments")]),
        "a second name": ('{"name":"f","args":{},"name":"rm"}', [error("duplicate_key")]),
    },
)
def test_a_message_of_bare_objects_is_calls(dialect: str, text: str, expected: list[Brief]) -> None:
    """Only white space and semicolons may stand between them."""
    assert expected == read(dialect, text)


@together("dialect", ["llama3_json", "raw_json", "json_array"])
@together(
    "text",
    [
        pytest.param('{"name":"f","arguments"', id="no colon after their key"),
        pytest.param(f"- {F}", id="in a list"),
        pytest.param(f"~~~\n{F}\n~~~", id="in a fence of tildes"),
        pytest.param(f"```python\n{F}\n```", id="in a fence of another language"),
    ],
)
def test_an_answer_in_json_is_text(dialect: str, text: str) -> None:
    assert [text] == read(dialect, text)


def test_names_are_compared_as_json_strings() -> None:
    text = '{"name":"a\\"b","args":{}}'

    assert [call('a"b')] == brief(
        assert_chunk_invariant(text, [[text], list(text)], dialects=["raw_json"], tools=TOOLS)
    )


def test_without_declared_tools_there_are_no_calls() -> None:
    for dialect, text in [("llama3_json", F), ("raw_json", F), ("json_array", f"[{F}]"), ("xlam_json", f"[{F}]")]:
        assert [text] == read(dialect, text, tools=None)


@together(
    ("text", "expected"),
    {
        "two on two lines": (f"<|python_tag|>{F}\n{G}\nb", [f, g, "\nb"]),
        "the second one cut off": (f'<|python_tag|>{F};{{"name":', [f, CUT]),
        "the second one cut off before it is certain": (f'<|python_tag|>{F};{{"na', [f, ';{"na']),
    },
)
def test_after_the_python_tag_any_tool_may_be_called(text: str, expected: list[Brief]) -> None:
    """In any position."""
    assert expected == read("llama3_json", text)


@pytest.mark.parametrize("dialect", ["raw_json", "json_array"])
@pytest.mark.parametrize("label", ["json", ""])
def test_a_fence_around_the_whole_call_is_hidden(dialect: str, label: str) -> None:
    """Another fence is text."""
    one, two = (F, G) if dialect == "raw_json" else (f"[{F}]", f"[{G}]")
    for text, expected in [
        (f"```{label}\n{one}\n```\nb", [f, "\nb"]),
        (f"```{label}\n{one}\n{two}\n```", [f, g]),
        (f"```{label}\n{one}\n```\n```{label}\n{two}\n```", [f, "\n", g]),
        (f"{one}\n```{label}\n{two}\n```", [f, "\n", g]),
        (f"```{label}\n{one}", [f, UNCLOSED]),
        (f"```{label}\n{one[:-1]}x\n```b", [BROKEN, "b"] if dialect == "raw_json" else [f, BROKEN, "b"]),
        (f'```{label}\n{{"x":1}}\n```', [f'```{label}\n{{"x":1}}\n```']),
        (f"a\n```{label}\n{one}\n```", [f"a\n```{label}\n{one}\n```"]),
    ]:
        assert expected == read(dialect, text)


@together(
    ("text", "expected"),
    {
        "white space": (f"[\n {F} ]\nb", [f, "\nb"]),
        "no bracket at the end": (f"[{F}", [f, UNCLOSED]),
        "broken JSON": (f"[{F},x]\n\nb", [f, BROKEN, "\n\nb"]),
    },
)
def test_the_first_call_of_an_array_names_a_declared_tool(text: str, expected: list[Brief]) -> None:
    """The others may name any tool."""
    assert expected == read("json_array", text)


def test_the_five_forms_of_xlam() -> None:
    """Bare, in a fence, after reasoning, after the token of Mistral, and in the tag of Hermes."""
    for text in [
        *(f"[{F}]", f"```json\n[{F}]\n```", f"<think>t</think>\n[{F}]", f"[TOOL_CALLS][{F}]"),
        f"<tool_call>[{F}]</tool_call>",
    ]:
        assert [f] == [each for each in read("xlam_json", text) if each != thought("t")]


def test_bare_json_is_pending_up_to_the_key_of_the_arguments() -> None:
    """After that it is reported while it arrives."""
    text = '{"name": "f", "parameters": {"a": 1}}'
    options: dict[str, Any] = {"dialects": ["raw_json"], "tools": TOOLS}
    commits = [step.fed for step in steps(text, **options) if step.new]
    refused = [step.fed for step in steps('{"name": "fg"', **options) if step.new]

    assert '{"name": "f", "parameters":' == commits[0]
    assert '{"name": "fg' == refused[0]
    assert [text] == raws(text, **options)


def test_auto_reads_json_after_the_python_tag() -> None:
    """The same JSON without the tag is text, and a result with such JSON is not changed."""
    assert ["a ", f, " b"] == read_with(f"a <|python_tag|>{F} b", dialects="auto", tools=TOOLS)
    assert [F] == read_with(F, dialects="auto", tools=TOOLS)
    assert ["<|python_tag|>f.call(a=1)"] == read_with("<|python_tag|>f.call(a=1)", dialects="auto", tools=TOOLS)
    assert F == neutralize(F, choose_dialects("auto"))

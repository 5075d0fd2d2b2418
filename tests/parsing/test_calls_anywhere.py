"""Tests of the option `calls_at="anywhere"`, for calls without a marker after prose."""

from __future__ import annotations

import pytest

from streamtools import Parser
from tests.support.cases import together
from tests.support.reading import Brief, call, error, read, thought

TOOLS = [{"name": name, "parameters": {"type": "object"}} for name in ("f", "get_weather")]
f = call("f")
F = '{"name":"f"}'


@together(
    ("dialect", "text", "expected"),
    [
        pytest.param("raw_json", f"So:\n```json\n{F}\n```\nok", ["So:\n", f, "\nok"], id="in a fence of its own"),
        pytest.param("raw_json", f"`{F}` and\n> {F}", [f"`{F}` and\n> {F}"], id="in code and in a quote"),
        pytest.param("raw_json", f"```py\n{F}\n```", [f"```py\n{F}\n```"], id="in a fence of code"),
        pytest.param("raw_json", 'So {"name":"f","arg', ['So {"name":"f","arg'], id="cut before it is certain"),
        pytest.param("raw_json", 'So {"name":"f","arguments":{', ["So ", error("truncated")], id="cut after that"),
        pytest.param("json_array", f"So [{F},{F}].", ["So ", f, f, "."], id="an array"),
        pytest.param("xlam_json", f"So [{F}].", ["So ", f, "."], id="that of xLAM"),
        pytest.param("llama3_json", f"So {F}", ["So ", f], id="Llama's object"),
        pytest.param("pythonic", "So [f()] and [f](x)", ["So ", f, " and [f](x)"], id="a list in Python, and a link"),
        pytest.param("granite_lines", "So f()\nf(a=1)\nok", ["So f()\n", call("f", a=1), "ok"], id="a line of Python"),
        pytest.param("functionary_v32", "So f\n{}", ["So f\n{}"], id="a name alone is prose"),
    ],
)
def test_calls_of_declared_tools_are_read_after_prose(dialect: str, text: str, expected: list[Brief]) -> None:
    """Not in code."""
    assert expected == read(text, dialects=[dialect], tools=TOOLS, calls_at="anywhere")


@together(
    ("dialect", "text"), [("granite_lines", "f(a=1)\n"), ("raw_json", '```json\n{"name":"f","arguments":{"a":1}}\n```')]
)
def test_a_call_at_the_end_of_reasoning_may_be_indented(dialect: str, text: str) -> None:
    """The indentation is pending, because it shows that a call may follow."""
    read_in_reasoning = read(f"So\n  {text}", dialects=[dialect], tools=TOOLS, in_reasoning=True, calls_at="anywhere")
    assert [thought("So\n  "), call("f", a=1)] == read_in_reasoning


def test_without_the_option_only_the_start_counts() -> None:
    """Without tools, there is no call."""
    assert [f"So {F}"] == read(f"So {F}", dialects=["raw_json"], tools=TOOLS)
    assert [f"So {F}"] == read(f"So {F}", dialects=["raw_json"], calls_at="anywhere")


def test_an_unknown_value_of_the_option_is_refused() -> None:
    with pytest.raises(ValueError, match="calls_at must be one of 'start', 'anywhere'"):
        Parser(calls_at="everywhere")  # type: ignore[arg-type]

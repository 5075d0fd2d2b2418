"""The tool choice: its spellings, impossible choices, and calls that violate it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from streamtools.calls import ChoiceViolation, ToolCall
from streamtools.tools import ToolChoice, ToolRegistry
from streamtools.tools.tool_choice import check_choice, parse_choice
from tests.support.cases import together

AUTO, NONE, REQUIRED = ToolChoice("auto"), ToolChoice("none"), ToolChoice("required")
WEATHER = ToolChoice("tool", "weather")


def weather(city: str) -> str:
    """Tell the weather."""
    return city


def call(name: str) -> ToolCall:
    """A call of `name`."""
    return ToolCall(id=f"call_{name}", name=name, arguments={}, dialect="hash_marker")


@together(
    ("value", "choice"),
    [
        (None, AUTO),
        (WEATHER, WEATHER),
        ("auto", AUTO),
        ("none", NONE),
        ("required", REQUIRED),
        ("any", REQUIRED),
        ("weather", WEATHER),
        ({"type": "function", "function": {"name": "weather"}}, WEATHER),
        ({"function": {"name": "weather"}}, WEATHER),
        ({"function": "weather"}, WEATHER),
        ({"type": "function", "name": "weather"}, WEATHER),
        ({"type": "auto", "disable_parallel_tool_use": True}, AUTO),
        ({"type": "any"}, REQUIRED),
        ({"type": "none"}, NONE),
        ({"type": "tool", "name": "weather"}, WEATHER),
        ({"type": "tool", "name": "auto"}, ToolChoice("tool", "auto")),
    ],
)
def test_every_spelling_has_one_meaning(value: Any, choice: ToolChoice) -> None:
    """OpenAI, Responses and Anthropic write the same four choices."""
    assert choice == parse_choice(value)


@together(
    "value",
    [
        "",
        {},
        {"type": "function"},
        {"type": "tool", "name": ""},
        {"type": "tool", "name": 3},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        {"mode": "AUTO"},
        3,
    ],
)
def test_an_unknown_choice_is_refused(value: Any) -> None:
    """An unknown choice is an error of the caller, never `auto`."""
    with pytest.raises(ValueError, match="tool_choice must be auto, none, required or the name of a tool"):
        parse_choice(value)


@pytest.mark.parametrize(
    ("choice", "tools", "eager", "reason"),
    [
        (WEATHER, [], False, "tool_choice names 'weather', but the tools are none"),
        (ToolChoice("tool", "wether"), [weather], False, "tool_choice names 'wether', but the tools are weather"),
        (REQUIRED, [], False, "tool_choice requires a call, but there are no tools"),
        (REQUIRED, [weather], True, "it is enforced on a complete turn"),
        (WEATHER, [weather], True, "it is enforced on a complete turn"),
    ],
)
def test_an_impossible_choice_is_refused(choice: ToolChoice, tools: list[Any], eager: bool, reason: str) -> None:
    """No response can satisfy it, or it cannot be enforced with eager execution."""
    with pytest.raises(ValueError, match=reason):
        check_choice(choice, ToolRegistry(tools).names, eager=eager)
    for fine in (AUTO, NONE):
        check_choice(fine, [], eager=True)
    check_choice(WEATHER, ["weather"])


@pytest.mark.parametrize(
    ("choice", "names", "message", "fatal"),
    [
        (AUTO, ["weather", "time"], None, False),
        (NONE, [], None, False),
        (NONE, ["weather", "time"], "`tool_choice` forbids tool calls", False),
        (REQUIRED, ["weather", "time"], None, False),
        (REQUIRED, [], "`tool_choice` requires a tool call, and the model made none", True),
        (WEATHER, ["weather"], None, False),
        (WEATHER, [], "`tool_choice` requires one call of weather; called: none", True),
        (WEATHER, ["time"], "`tool_choice` requires one call of weather; called: time", True),
        (WEATHER, ["weather", "weather"], "`tool_choice` requires one call of weather; called: weather, weather", True),
    ],
)
def test_violations_of_a_choice(choice: ToolChoice, names: Sequence[str], message: str | None, fatal: bool) -> None:
    """None of the calls runs. The run fails, unless the choice was `none`."""
    expected = None if message is None else ChoiceViolation(message, fatal)
    assert expected == choice.find_violation([call(name) for name in names])

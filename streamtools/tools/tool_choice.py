"""Parses the `tool_choice` of a request in the format of any provider, and checks that the tools can satisfy it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from streamtools.calls import ToolChoice

Mode: TypeAlias = Literal["auto", "none", "required", "tool"]

_MODES: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}


def parse_choice(value: ToolChoice | str | Mapping[str, Any] | None) -> ToolChoice:
    """Parse a `tool_choice` in the format of OpenAI (chat completions and Responses) or Anthropic.

    None means `auto`. A string that is not the name of a mode is the name of a tool. Raises ValueError for any other
    value, and TypeError if its `type` is not hashable.

    >>> parse_choice("any")
    ToolChoice(mode='required', name=None)
    >>> parse_choice({"type": "function", "function": {"name": "weather"}})
    ToolChoice(mode='tool', name='weather')
    """
    if value is None:
        return ToolChoice()
    if isinstance(value, ToolChoice):
        return value
    if isinstance(value, str) and value:
        return ToolChoice(_MODES[value]) if value in _MODES else ToolChoice("tool", value)
    if isinstance(value, Mapping) and (choice := _parse_typed(value)) is not None:
        return choice
    raise ValueError(f"tool_choice must be auto, none, required or the name of a tool, got {value!r}")


def check_choice(choice: ToolChoice, names: Collection[str], *, eager: bool = False) -> None:
    """Raise ValueError for a choice that no response can satisfy with the tools `names`, or that cannot be enforced.

    `eager` is True if calls run before the response is complete. A required call cannot be enforced then.
    """
    if choice.mode in ("auto", "none"):
        return
    if choice.mode == "tool" and choice.name not in names:
        raise ValueError(f"tool_choice names {choice.name!r}, but the tools are {', '.join(names) or 'none'}")
    if not names:
        raise ValueError("tool_choice requires a call, but there are no tools; pass `tools`")
    if eager:
        raise ValueError('tool_choice must be auto or none with execute="eager": it is enforced on a complete turn')


def _parse_typed(value: Mapping[str, Any]) -> ToolChoice | None:
    """Parse the formats of OpenAI and Anthropic: `{"type": …}`, or `{"function": …}` without a type."""
    function = value.get("function")
    kind = value.get("type", "function" if function else None)
    if kind not in ("function", "tool"):
        return ToolChoice(_MODES[kind]) if kind in _MODES else None
    name = function.get("name") if isinstance(function, Mapping) else (function or value.get("name"))
    return ToolChoice("tool", name) if isinstance(name, str) and name else None

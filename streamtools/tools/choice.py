"""Which tools a request lets the model call, in one spelling, and whether an answer kept to it.

Providers write the same four wishes in their own ways; a user may pass any of them. Because text dialects and emulation
know no provider that would enforce the wish, it is checked here, for all calls alike, before the first one runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from streamtools.calls import ToolCall
from streamtools.tools.registry import ToolRegistry

Mode: TypeAlias = Literal["auto", "none", "required", "tool"]

_MODES: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_GEMINI_MODES: dict[str, Mode] = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}


class ToolChoice(NamedTuple):
    """`auto` (as the model likes), `none`, `required` (at least one call), or `tool`: exactly one call, of `name`."""

    mode: Mode = "auto"
    name: str | None = None


class Violation(NamedTuple):
    """Calls that must not run, with the reason for model and reader; `fatal` if the run has failed with them."""

    calls: tuple[ToolCall, ...]
    message: str
    fatal: bool


def parse(value: ToolChoice | str | Mapping[str, Any] | None) -> ToolChoice:
    """Return what a `tool_choice` means, in the spelling of OpenAI (chat and Responses), Anthropic or Gemini.

    A word that is no mode is the name of a tool. Raises ValueError for what has no meaning here.

    >>> parse("any")
    ToolChoice(mode='required', name=None)
    >>> parse({"type": "function", "function": {"name": "weather"}})
    ToolChoice(mode='tool', name='weather')
    """
    if value is None:
        return ToolChoice()
    if isinstance(value, ToolChoice):
        return value
    if isinstance(value, str) and value:
        return ToolChoice(_MODES[value]) if value in _MODES else ToolChoice("tool", value)
    if isinstance(value, Mapping):
        for key in ("toolConfig", "tool_config", "functionCallingConfig", "function_calling_config"):
            if isinstance(value.get(key), Mapping):
                return parse(value[key])
        choice = _gemini(value) if "mode" in value and "type" not in value else _typed(value)
        if choice is not None:
            return choice
    raise ValueError(f"tool_choice is auto, none, required or a tool's name, and not {value!r}")


def check(choice: ToolChoice, registry: ToolRegistry, *, eager: bool = False) -> None:
    """Raise ValueError for a choice that no answer could keep to, or that we could not enforce.

    `eager`: calls run before the answer is complete, when nobody knows yet how many there will be.
    """
    if choice.mode in ("auto", "none"):
        return
    if choice.mode == "tool" and choice.name not in registry:
        raise ValueError(f"tool_choice names {choice.name!r}; there are {', '.join(registry.names) or 'no tools'}")
    if not len(registry):
        raise ValueError("tool_choice requires a call, and there are no tools")
    if eager:
        raise ValueError('tool_choice can only be enforced on a complete turn: with execute="eager" it is auto or none')


def violations(choice: ToolChoice, calls: Sequence[ToolCall]) -> Violation | None:
    """Return how the calls of a complete turn break the choice, or None. If they do, none of them may run."""
    if choice.mode == "none":
        return Violation(tuple(calls), "no tool was to be called", fatal=False) if calls else None
    if choice.mode == "required" and not calls:
        return Violation((), "a tool was to be called, and none was", fatal=True)
    if choice.mode == "tool" and [call.name for call in calls] != [choice.name]:
        called = ", ".join(call.name[:64] for call in calls) or "none"
        return Violation(tuple(calls), f"{choice.name} was to be called, once; called: {called}", fatal=True)
    return None


def _typed(value: Mapping[str, Any]) -> ToolChoice | None:
    """Read `{"type": …}` of OpenAI and Anthropic; a bare `function` counts too."""
    function = value.get("function")
    kind = value.get("type", "function" if function else None)
    if kind in _MODES:
        return ToolChoice(_MODES[kind])
    if kind not in ("function", "tool"):
        return None
    name = function.get("name") if isinstance(function, Mapping) else function or value.get("name")
    return ToolChoice("tool", name) if isinstance(name, str) and name else None


def _gemini(value: Mapping[str, Any]) -> ToolChoice | None:
    """Read a `functionCallingConfig`. One allowed name with ANY is a named tool; a longer list is no choice of ours."""
    mode = _GEMINI_MODES.get(str(value["mode"]).upper())
    allowed = value.get("allowedFunctionNames") or value.get("allowed_function_names") or []
    if mode is None or not allowed:
        return None if mode is None else ToolChoice(mode)
    return ToolChoice("tool", allowed[0]) if mode == "required" and len(allowed) == 1 else None

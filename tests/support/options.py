"""Groups flat options of `ToolStream`, `chat` and `replay` into option objects."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from streamtools import ApprovalOptions, OutputOptions, ParserOptions, RunnerOptions, TextOptions
from streamtools.conversation import RequestOptions
from streamtools.stream.options import HOLDERS

_KINDS: dict[str, Any] = {
    "parser": ParserOptions,
    "runner": RunnerOptions,
    "approvals": ApprovalOptions,
    "text": TextOptions,
    "request": RequestOptions,
    "output": OutputOptions,
}
PLACES = {field.name: (parameter, field.name) for parameter, kind in HOLDERS.items() for field in fields(kind)}
PLACES |= {f"tool_{name}": ("runner", name) for name in ("timeout", "state")}
PLACES |= {f"on_tool_{name}": ("runner", f"on_{name}") for name in ("result", "error")}
PLACES |= {"text_rules": ("text", "rules"), "text_judge": ("text", "judge")}
PLACES |= {"decision_timeout": ("approvals", "timeout")}
PLACES |= {name: ("request", name) for name in ("teach", "emulation")}
PLACES |= {"output_retries": ("output", "retries"), "review": ("follow_up", "")}


def grouped(**options: Any) -> Any:
    """Return keyword arguments in which each flat option is a field of its option object."""
    kept: dict[str, Any] = {}
    grouped_fields: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        parameter, field = PLACES.get(name, (name, ""))
        if field:
            grouped_fields.setdefault(parameter, {})[field] = value
        else:
            kept[parameter] = value
    for parameter, values in grouped_fields.items():
        given = kept.pop(parameter, None)
        if parameter == "request":
            values["body"] = given or {}
        elif parameter == "output":
            values["type"] = given
        kept[parameter] = _KINDS[parameter](**values)
    return kept

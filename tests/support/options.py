"""Groups flat options of `ToolStream`, `chat` and `replay` into option objects."""

from __future__ import annotations

from typing import Any

from streamtools import ApprovalOptions, OutputOptions, ParserOptions, RunnerOptions, TextOptions
from streamtools.conversation import RequestOptions
from streamtools.stream.options import MOVED

_KINDS: dict[str, Any] = {
    "parser": ParserOptions,
    "runner": RunnerOptions,
    "approvals": ApprovalOptions,
    "text": TextOptions,
    "request": RequestOptions,
    "output": OutputOptions,
}
_PLACES = {name: (parameter, field) for name, (parameter, _, field) in MOVED.items()}
_PLACES |= {name: ("request", name) for name in ("teach", "few_shot", "emulation")}
_PLACES |= {"output_retries": ("output", "retries"), "review": ("follow_up", "")}


def grouped(**options: Any) -> Any:
    """Return keyword arguments in which each flat option is a field of its option object."""
    kept: dict[str, Any] = {}
    fields: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        parameter, field = _PLACES.get(name, (name, ""))
        if field:
            fields.setdefault(parameter, {})[field] = value
        else:
            kept[parameter] = value
    for parameter, values in fields.items():
        given = kept.pop(parameter, None)
        if parameter == "request":
            values["body"] = given or {}
        elif parameter == "output":
            values["type"] = given
        kept[parameter] = _KINDS[parameter](**values)
    return kept

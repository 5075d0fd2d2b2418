"""Writes the measured formats without any parser, so that the expected result is known.

Written as the models' templates do it, from their documentation; the package's own writers are not asked, because they
are part of what is judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Call: TypeAlias = "tuple[str, dict[str, Any]]"


@dataclass(frozen=True)
class Format:
    """A way to write calls. The fields tell if text may stand before, between and after them."""

    id: str
    write: Callable[[Sequence[Call]], str]
    marker: str
    tokens: tuple[str, ...]
    among: bool = False
    behind: bool = False
    closing: str = ""  # what stands behind a call and may also stand in a string; empty: nothing, or not unambiguously
    before: bool = True
    only_json: bool = False


def as_json(value: object) -> str:
    """Return JSON with spaces, like chat templates."""
    return json.dumps(value, ensure_ascii=False)


def _hermes(calls: Sequence[Call]) -> str:
    objects = (as_json({"name": name, "arguments": arguments}) for name, arguments in calls)
    return "\n".join(f"<tool_call>\n{text}\n</tool_call>" for text in objects)


def _qwen3_coder(calls: Sequence[Call]) -> str:
    return "\n".join(
        f"<tool_call>\n<function={name}>\n{_parameters(given)}</function>\n</tool_call>" for name, given in calls
    )


def _parameters(arguments: dict[str, Any]) -> str:
    values = {key: value if isinstance(value, str) else as_json(value) for key, value in arguments.items()}
    return "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())


def _array(marker: str) -> Callable[[Sequence[Call]], str]:
    return lambda calls: marker + as_json([{"name": name, "arguments": arguments} for name, arguments in calls])


def _mistral_args(calls: Sequence[Call]) -> str:
    return "".join(f"[TOOL_CALLS]{name}[ARGS]{as_json(arguments)}" for name, arguments in calls)


def _pythonic(calls: Sequence[Call]) -> str:
    def literals(arguments: dict[str, Any]) -> str:
        return ", ".join(f"{key}={value!r}" for key, value in arguments.items())

    return "[" + ", ".join(f"{name}({literals(arguments)})" for name, arguments in calls) + "]"


def _llama3(calls: Sequence[Call]) -> str:
    return "<|python_tag|>" + ";".join(as_json({"name": name, "parameters": given}) for name, given in calls)


def _hash_marker(calls: Sequence[Call]) -> str:
    return "\n".join(f"###:{as_json({'toolName': name, 'parameters': given})}" for name, given in calls)


def _tilde_fence(calls: Sequence[Call]) -> str:
    objects = (as_json({"name": name, "arguments": arguments}) for name, arguments in calls)
    return "\n".join(f"~~~tool_call\n{text}\n~~~" for text in objects)


def _only_json(calls: Sequence[Call]) -> str:
    (call,) = calls
    return as_json(call[1])


FORMATS = {
    each.id: each
    for each in (
        Format(
            "hermes",
            _hermes,
            "<tool_call>",
            ("<tool_call>", "</tool_call>"),
            among=True,
            behind=True,
            closing="</tool_call>",
        ),
        Format("qwen3_coder", _qwen3_coder, "<tool_call>", ("<tool_call>", "</tool_call>"), among=True, behind=True),
        Format("mistral", _array("[TOOL_CALLS] "), "[TOOL_CALLS]", ("[TOOL_CALLS]",), closing="[TOOL_CALLS] ["),
        Format("mistral_args", _mistral_args, "[TOOL_CALLS]", ("[TOOL_CALLS]", "[ARGS]"), closing="[ARGS]"),
        Format("granite", _array("<|tool_call|>"), "<|tool_call|>", ("<|tool_call|>",), closing="<|tool_call|>["),
        Format("pythonic", _pythonic, "[", (), closing=")]", before=False),
        Format("llama3", _llama3, "<|python_tag|>", ("<|python_tag|>",), closing="<|python_tag|>"),
        Format("hash_marker", _hash_marker, "###:", (), among=True, behind=True, closing="###:{"),
        Format("tilde_fence", _tilde_fence, "~~~tool_call", (), among=True, behind=True, closing="~~~"),
        Format("json", _only_json, "", (), before=False, only_json=True),
    )
}
"""The formats by their ids; `json` is the arguments of one call, for libraries that read nothing else."""

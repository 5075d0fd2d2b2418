"""Streaming middleware between a language model and a user interface: parses, executes and reports tool calls.

Importing the package loads nothing else. Each name is imported on first use.
"""

# ruff: noqa: I001, RUF022  # the names are in the order of the pipeline

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.loading import load_later

if TYPE_CHECKING:
    from streamtools import conversation, events, outputs, rules, sources
    from streamtools import gateway as gateway, history as history, recording as recording, runs as runs
    from streamtools import telemetry as telemetry, testing as testing
    from streamtools.calls import ToolCall
    from streamtools.conversation import augment_system_prompt, chat
    from streamtools.errors import Code, StreamToolsError
    from streamtools.events import coalesce
    from streamtools.limits import Limits
    from streamtools.machine import StreamMachine
    from streamtools.outputs.ui_texts import UiTexts
    from streamtools.parsing import Dialect, Parser, dialects_for, parse
    from streamtools.parsing.options import ParserOptions
    from streamtools.recording.event_replay import replay
    from streamtools.stream import (
        ApprovalOptions, InvalidItem, OutputOptions, RunnerOptions, StreamOptions, TextOptions, ToolStream, TurnResult,
        extract_tool_calls,
    )  # fmt: skip
    from streamtools.stream.text_judge import TextJudge
    from streamtools.tools import (
        Answer, Approve, Deny, Guards, Tool, ToolContext, ToolError, ToolOutcome, ToolRegistry, ToolResult,
    )  # fmt: skip
    from streamtools.tools.tool import tool  # mypy takes `streamtools.tools.tool` for the module

__all__ = [
    "events", "Code", "StreamToolsError", "Limits", "ToolCall", "rules", "sources", "Dialect", "dialects_for", "Parser",
    "parse", "StreamMachine", "extract_tool_calls", "tool", "Tool", "ToolRegistry", "ToolOutcome", "ToolResult",
    "ToolError", "ToolContext", "Guards", "ToolStream", "ParserOptions", "RunnerOptions",
    "ApprovalOptions", "Approve", "Deny", "Answer", "TextOptions", "OutputOptions", "InvalidItem", "TextJudge",
    "StreamOptions", "TurnResult", "conversation", "augment_system_prompt", "chat", "UiTexts", "outputs",
    "replay", "coalesce",
]  # fmt: skip

__version__ = "0.1.0"

_NAMES = {
    **{name: name for name in ("gateway", "history", "recording", "rules", "runs", "sources", "telemetry", "testing")},
    "calls": "ToolCall",
    "conversation": "augment_system_prompt chat conversation",
    "errors": "Code StreamToolsError errors",
    "events": "coalesce events",
    "limits": "Limits",
    "machine": "StreamMachine",
    "outputs": "outputs",
    "outputs.ui_texts": "UiTexts",
    "parsing": "Dialect Parser dialects_for parse parsing",
    "parsing.options": "ParserOptions",
    "recording.event_replay": "replay",
    "stream": "ApprovalOptions InvalidItem OutputOptions RunnerOptions StreamOptions TextOptions ToolStream TurnResult "
    "extract_tool_calls",
    "stream.text_judge": "TextJudge",
    "tools": "Answer Approve Deny Guards Tool ToolContext ToolError ToolOutcome ToolRegistry ToolResult tool tools",
}
"""The public names of each module. If a name equals its module, it stands for the module itself."""

load_later(
    globals(), {name: module for module, names in _NAMES.items() for name in names.split()}, telemetry="opentelemetry"
)

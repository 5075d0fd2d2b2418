"""Streaming middleware between a language model and a user interface: parses, executes and reports tool calls.

Importing the package loads only the modules that a stream requires. Other names are imported on first use.
"""

# ruff: noqa: I001, RUF022  # the names are in the order of the pipeline

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools import events
from streamtools.events import coalesce
from streamtools.errors import Code, StreamToolsError
from streamtools.loading import load_later
from streamtools.calls import ToolCall
from streamtools.limits import Limits
from streamtools import sources
from streamtools.parsing import Dialect, Parser, dialects_for, parse
from streamtools.machine import StreamMachine
from streamtools.tools import Answer, Approve, Deny
from streamtools.tools import Guards, Tool, ToolContext, ToolError, ToolOutcome, ToolRegistry, ToolResult, tool
from streamtools.parsing.options import ParserOptions
from streamtools.stream import (
    ApprovalOptions,
    InvalidItem,
    OutputOptions,
    RunnerOptions,
    StreamOptions,
    TextOptions,
    ToolStream,
    TurnResult,
    extract_tool_calls,
)

if TYPE_CHECKING:
    from streamtools import conversation, outputs, rules
    from streamtools.conversation import Emulation, augment_system_prompt, chat
    from streamtools.outputs.ui_texts import UiTexts
    from streamtools.recording.event_replay import replay
    from streamtools.stream.text_judge import TextJudge

__all__ = [
    "events", "Code", "StreamToolsError", "Limits", "ToolCall", "rules", "sources", "Dialect", "dialects_for", "Parser",
    "parse", "StreamMachine", "extract_tool_calls", "tool", "Tool", "ToolRegistry", "ToolOutcome", "ToolResult",
    "ToolError", "ToolContext", "Guards", "ToolStream", "ParserOptions", "RunnerOptions",
    "ApprovalOptions", "Approve", "Deny", "Answer", "TextOptions", "OutputOptions", "InvalidItem", "TextJudge",
    "StreamOptions", "TurnResult", "conversation", "augment_system_prompt", "Emulation", "chat", "UiTexts", "outputs",
    "replay", "coalesce",
]  # fmt: skip

__version__ = "0.1.0"

_LAZY = {
    **{name: name for name in ("errors", "gateway", "history", "outputs", "parsing", "recording", "rules", "runs")},
    **{name: name for name in ("conversation", "telemetry", "testing", "tools")},
    **dict.fromkeys(("augment_system_prompt", "Emulation", "chat"), "conversation"),
    "UiTexts": "outputs.ui_texts",
    "replay": "recording.event_replay",
    "TextJudge": "stream.text_judge",
}
"""Maps each name that is imported on first use to its module."""

load_later(globals(), _LAZY, telemetry="opentelemetry")

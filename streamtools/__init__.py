"""Streaming event-processing middleware between a language model's answer and the user interface.

The names below stand in the order in which data flows. Importing them needs only the core dependencies.
"""

from __future__ import annotations

from streamtools import events, sources
from streamtools.calls import Limits, ToolCall
from streamtools.coalescing import coalesce
from streamtools.errors import Code, StreamToolsError
from streamtools.machine import StreamMachine
from streamtools.parsing import Dialect, Parser, parse
from streamtools.replaying import replay
from streamtools.result import TurnResult
from streamtools.stream import ToolStream
from streamtools.texts import UiTexts
from streamtools.tools import Tool, ToolError, ToolOutcome, ToolRegistry, ToolResult, tool

__all__ = [
    "Code",
    "Dialect",
    "Limits",
    "Parser",
    "StreamMachine",
    "StreamToolsError",
    "Tool",
    "ToolCall",
    "ToolError",
    "ToolOutcome",
    "ToolRegistry",
    "ToolResult",
    "ToolStream",
    "TurnResult",
    "UiTexts",
    "coalesce",
    "events",
    "parse",
    "replay",
    "sources",
    "tool",
]

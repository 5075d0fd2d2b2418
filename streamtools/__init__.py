"""Streaming event-processing middleware between a language model's answer and the user interface.

The public names stand in the order in which data flows. Importing them needs only the core dependencies.
"""

# ruff: noqa: I001, RUF022  # the order is the pipeline's, not the alphabet's

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from streamtools import events
from streamtools.errors import Code, StreamToolsError
from streamtools.calls import ToolCall
from streamtools.limits import Limits
from streamtools import sources
from streamtools.parsing import Dialect, Parser, dialects_for, parse
from streamtools.machine import StreamMachine
from streamtools.extracting import extract_tool_calls
from streamtools.tools import Guards, Tool, ToolContext, ToolError, ToolOutcome, ToolRegistry, ToolResult, tool
from streamtools.stream import ToolStream
from streamtools.options import StreamOptions
from streamtools.result import TurnResult
from streamtools import conversation
from streamtools.conversation.prompts import augment_system_prompt
from streamtools.conversation.emulation import Emulation
from streamtools.conversation.chatting import chat
from streamtools.texts import UiTexts
from streamtools.replaying import replay
from streamtools.coalescing import coalesce

if TYPE_CHECKING:  # loaded when it is used, as not everybody writes to a wire
    from streamtools import outputs

__all__ = [
    "events",
    "Code",
    "StreamToolsError",
    "Limits",
    "ToolCall",
    "sources",
    "Dialect",
    "dialects_for",
    "Parser",
    "parse",
    "StreamMachine",
    "extract_tool_calls",
    "tool",
    "Tool",
    "ToolRegistry",
    "ToolOutcome",
    "ToolResult",
    "ToolError",
    "ToolContext",
    "Guards",
    "ToolStream",
    "StreamOptions",
    "TurnResult",
    "conversation",
    "augment_system_prompt",
    "Emulation",
    "chat",
    "UiTexts",
    "outputs",
    "replay",
    "coalesce",
]

if not TYPE_CHECKING:  # to a type checker it would say that every name is there

    def __getattr__(name: str) -> Any:
        if name == "outputs":
            return import_module("streamtools.outputs")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

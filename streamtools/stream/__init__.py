"""Connects a source, the machine and the tools to one asynchronous iterator of events."""

from streamtools.stream.extraction import extract_tool_calls
from streamtools.stream.options import ApprovalOptions, OutputOptions, StreamOptions, TextOptions
from streamtools.stream.result import TurnResult
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools.runner import RunnerOptions
from streamtools.typed import InvalidItem

__all__ = [
    "ApprovalOptions",
    "InvalidItem",
    "OutputOptions",
    "RunnerOptions",
    "StreamOptions",
    "TextOptions",
    "ToolStream",
    "TurnResult",
    "extract_tool_calls",
]

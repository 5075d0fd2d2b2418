"""Streaming event-processing middleware between a language model's answer and the user interface."""

from __future__ import annotations

from streamtools.calls import ToolCall
from streamtools.events import coalesce
from streamtools.parsing import Dialect, Parser, parse

__all__ = ["Dialect", "Parser", "ToolCall", "coalesce", "parse"]

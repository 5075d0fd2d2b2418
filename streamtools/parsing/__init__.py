"""Text to visible text, reasoning and calls. Sans-IO: nothing here awaits, reads a clock, or logs what it reads."""

from __future__ import annotations

from streamtools.parsing.dialects import DIALECTS, Dialect
from streamtools.parsing.parser import Parser
from streamtools.parsing.result import ParseResult, parse

__all__ = ["DIALECTS", "Dialect", "ParseResult", "Parser", "parse"]

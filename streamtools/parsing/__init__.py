"""Text to visible text, reasoning and calls. Sans-IO: nothing here awaits, reads a clock, or logs what it reads."""

from __future__ import annotations

from streamtools.parsing.bodies import text_calls
from streamtools.parsing.bodies.json_bodies import json_calls
from streamtools.parsing.dialects import (
    DIALECTS,
    Dialect,
    Dialects,
    ModelFamily,
    NearMiss,
    Opener,
    Tag,
    dialects_for,
    families_for,
)
from streamtools.parsing.json_text import BROKEN, ENDED
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf, Some
from streamtools.parsing.parser import Parser
from streamtools.parsing.span import Body, Span
from streamtools.parsing.whole_text import ParseResult, parse

__all__ = [
    "BLANKS", "BROKEN", "DIALECTS", "ENDED", "LINE_END", "SPACES", "Body", "Dialect", "Dialects", "ModelFamily",
    "NearMiss", "OneOf", "Opener", "ParseResult", "Parser", "Some", "Span", "Tag", "dialects_for", "families_for",
    "json_calls", "parse", "text_calls",
]  # fmt: skip

"""Parses the text of a model into visible text, reasoning and calls.

The package is sans-IO: it does not await, read a clock, or log the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from streamtools.calls import ToolCall
from streamtools.events import Error, Reasoning, Text, UIEvent, Warning
from streamtools.loading import load_later
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
    named_json,
)
from streamtools.parsing.json_scanner import BROKEN, ENDED, OPEN
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, Maybe, OneOf, Pattern, Some
from streamtools.parsing.options import ParserKeywords
from streamtools.parsing.parser import HOW_TO_GET_TEXT, Parser
from streamtools.parsing.reader import Closing, Word
from streamtools.parsing.span import Body, Span

__all__ = [
    "BLANKS", "BROKEN", "DIALECTS", "ENDED", "LINE_END", "OPEN", "SPACES", "Body", "Closing", "Dialect", "Dialects",
    "Maybe", "ModelFamily", "NearMiss", "OneOf", "Opener", "ParseResult", "Parser", "Pattern", "Some", "Span", "Tag",
    "Word", "dialects_for", "families_for", "json_calls", "named_json", "parse", "text_calls",
]  # fmt: skip

load_later(globals(), {"dialects": "dialects"})


@dataclass(frozen=True)
class ParseResult:
    """The result of `parse`: all events in order, and the text, reasoning, calls, errors and warnings in them."""

    content: str
    reasoning: str
    calls: list[ToolCall]
    errors: list[Error]
    warnings: list[Warning]
    events: list[UIEvent]


def parse(
    deltas: str | Iterable[str], *, dialects: Dialects = None, tools: Any = None, **options: Unpack[ParserKeywords]
) -> ParseResult:
    """Parse a complete text, or the deltas of one text. The other parameters are those of `Parser`.

    Raises the errors of `Parser`, and TypeError if `deltas` is not a str or iterable. `###:` begins a call by default.

    >>> parse('Look: ###:{"name": "now"}').calls[0].name
    'now'
    """
    if not isinstance(deltas, Iterable) or isinstance(deltas, bytes | bytearray | memoryview | Mapping):
        raise TypeError(
            f"a text must be a str or an iterable of deltas, got {type(deltas).__name__}: {HOW_TO_GET_TEXT}"
        )
    parser = Parser(dialects, tools, **options)
    pieces = [deltas] if isinstance(deltas, str) else deltas
    events = [event for delta in pieces for event in parser.feed(delta)] + parser.close()
    return ParseResult(
        content="".join(event.text for event in events if isinstance(event, Text)),
        reasoning="".join(event.text for event in events if isinstance(event, Reasoning)),
        calls=parser.calls,
        errors=[event for event in events if isinstance(event, Error)],
        warnings=[event for event in events if isinstance(event, Warning)],
        events=events,
    )

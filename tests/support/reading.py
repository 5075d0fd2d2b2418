"""Tables of texts and what is read in them: short to write, and each row is held to all laws at every cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from streamtools import Parser
from streamtools.errors import Code
from streamtools.events import Call, Error, Markup, Reasoning, Text, UIEvent, Warning
from streamtools.testing.laws import assert_chunk_invariant, assert_conserved, assert_in_order, feed
from tests.support.promptness import assert_prompt
from tests.support.ways_to_cut import usual_ways

Brief: TypeAlias = "str | tuple[object, ...]"
"""An event in a table: visible text is itself, everything else is a tuple of what it is and says."""


def call(tool: str, /, **arguments: Any) -> Brief:
    """A good call."""
    return ("call", tool, arguments)


def error(code: str) -> Brief:
    """A malformed call."""
    return ("error", Code(code))


def warning(code: str, count: int | None = None) -> Brief:
    """A warning; `count` is what was skipped."""
    return ("warning", Code(code), count)


def thought(text: str) -> Brief:
    """Reasoning."""
    return ("reasoning", text)


def markup(text: str) -> Brief:
    """Tags, or white space that belongs to them."""
    return ("markup", text)


def brief(events: Iterable[UIEvent]) -> list[Brief]:
    """Return what a table says of `events`. What surrounds a call is left out: the laws know where it belongs.

    So are near misses, which repeat what is text; they have a table of their own.
    """
    found: list[Brief] = []
    joins = False
    for event in events:
        match event:
            case Text(text=text) if joins:
                found.append(f"{found.pop()}{text}")
            case Warning(code=Code.NEAR_MISS):
                joins = True
                continue
            case Text(text=text):
                found.append(text)
            case Reasoning(text=text):
                found.append(thought(text))
            case Markup(text=text):
                found.append(markup(text))
            case Call(call=made):
                found.append(call(made.name, **made.arguments))
            case Error(code=code):
                found.append(error(code))
            case Warning(code=code, count=count):
                found.append(warning(code, count))
            case _:
                pass
        joins = False
    return found


def read(text: str, **options: Any) -> list[Brief]:
    """Return what is read in `text`, in brief, after all laws were seen to hold at every cut in two and one by one."""
    events = assert_chunk_invariant(text, usual_ways(text), **options)
    assert_prompt(text, **options)
    assert_in_order(events, run=False)
    parser = Parser(**options | {"keep_markup": True})
    whole = parser.feed(text) + parser.close()
    assert_conserved(text, whole, stopped=parser.stopped)
    return brief(events)


def raws(text: str, **options: Any) -> list[str | None]:
    """Return what calls, errors and warnings say that they were written as."""
    events = feed([text], **options)
    return [
        event.call.raw if isinstance(event, Call) else event.raw
        for event in events
        if isinstance(event, Call | Error | Warning)
    ]

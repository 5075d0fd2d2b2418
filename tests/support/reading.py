"""Short tables of texts and their events. All laws are checked for each row at every cut."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from streamtools import Parser
from streamtools.errors import Code
from streamtools.events import Call, Error, Markup, Reasoning, Text, UIEvent, Warning
from streamtools.machine.event_order import validate
from streamtools.testing.laws import assert_chunk_invariant, assert_conserved, feed
from tests.support.promptness import assert_prompt
from tests.support.ways_to_cut import usual_ways

Brief: TypeAlias = "str | tuple[object, ...]"
"""An event in a table. Visible text is a string, and any other event a tuple of its kind and fields."""


def call(tool: str, /, **arguments: Any) -> Brief:
    """A complete call."""
    return ("call", tool, arguments)


def error(code: str) -> Brief:
    """A malformed call."""
    return ("error", Code(code))


def warning(code: str, count: int | None = None) -> Brief:
    """A warning. `count` is the number of skipped characters."""
    return ("warning", Code(code), count)


def thought(text: str) -> Brief:
    """Reasoning."""
    return ("reasoning", text)


def markup(text: str) -> Brief:
    """Tags, or white space that belongs to them."""
    return ("markup", text)


def brief(events: Iterable[UIEvent]) -> list[Brief]:
    """Return the events in the form of a table.

    Events around a call and near misses are omitted. The laws check the former, and another table the latter.
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
    """Return the events of `text` as a table, after the laws were checked for all cuts in two and for characters."""
    events = assert_chunk_invariant(text, usual_ways(text), **options)
    assert_prompt(text, **options)
    validate(events, run=False)
    parser = Parser(**options | {"keep_markup": True})
    whole = parser.feed(text) + parser.close()
    assert_conserved(text, whole, stopped=parser.stopped)
    return brief(events)


def raws(text: str, **options: Any) -> list[str | None]:
    """Return the raw text of calls, errors and warnings."""
    events = feed([text], **options)
    return [
        event.call.raw if isinstance(event, Call) else event.raw
        for event in events
        if isinstance(event, Call | Error | Warning)
    ]

"""The law of promptness: what is held back after each feed can still become a marker where it stands.

`tests.laws` says what has become of the text so far, `tests.reference` what may be held back behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from streamtools.calls import DEFAULT_LIMITS
from streamtools.errors import Code
from streamtools.events import Call, Error, Text, Thinking, UIEvent, Warning
from streamtools.parsing.dialects import DEFAULT_DIALECTS, DIALECTS
from tests.feeding import Step, steps
from tests.laws import LIMITS, Kind, Piece, pieces
from tests.reference import MARKERS, TAGS, Marker, begins_with, may_become, place_behind

LONGEST_MARKER = 256
"""No marker has as many characters."""


def assert_prompt(deltas: Iterable[str], **options: Any) -> None:
    """What is held back after each feed can still become a marker where it stands; all else has been said."""
    options["keep_markup"] = True
    transparent = options.get("after_call", "show") == "show" and not options.get("trim")
    announced = options.get("on_malformed", "error") == "error"
    found: list[Piece] = []
    said = 0
    for step in steps(deltas, **options):
        new = pieces(step.fed[said:], step.new, found[-1].kind if found else None)
        found += new
        said += sum(len(piece.text) for piece in new)
        behind = step.fed[said:]
        pending = behind.removesuffix(step.held)
        assert behind == pending + step.held
        assert len(step.held) < LONGEST_MARKER
        if step.held:
            assert _may_be_held(step.held, found, pending, options), f"held for nothing: {step.held!r}"
        elif pending and transparent:
            assert _is_hidden(pending, step.events, options), f"neither shown nor held: {pending!r}"
        if len(step.delta) == 1 and announced:
            assert not _is_late(step), f"a call was reported behind its last character: {step.new}"


def _may_be_held(held: str, found: list[Piece], pending: str, options: dict[str, Any]) -> bool:
    before = since = ""  # the text that Markdown sees, and its part behind the last call or reasoning
    closings = tuple(TAGS.values()) if options.get("in_reasoning") else ()
    called = False
    for kind, text in [*found, Piece("text", pending)]:
        if kind in ("text", "space"):
            before, since = before + text, since + text
        elif kind == "tag":
            closings = (TAGS[text],) if text in TAGS else ()
            before = since = ""
        elif kind != "reasoning":
            called = called or kind == "call"
            before, since = before + _in_place_of(kind, text), ""
    if closings:
        return any(closing.startswith(held) and closing != held for closing in closings)
    refuses = called and options.get("after_call") == "stop"
    place = place_behind(before)
    for marker in _markers(options):
        counts = not place.in_code or options.get("in_code") == "call"
        counts = counts and (place.line_start or not marker.line_start) and not (refuses and marker.kind == "result")
        counts = counts and not (marker.apart and (place.after.isalnum() or place.after == "#"))
        if counts and may_become(held, marker.parts):
            return True
    reasoning = options.get("reasoning", "start")
    counts = not since.strip(" \t\r\n") or (reasoning == "anywhere" and not place.in_code)
    return reasoning != "off" and counts and not refuses and any(tag.startswith(held) and tag != held for tag in TAGS)


def _in_place_of(kind: Kind, text: str) -> str:
    """Return what Markdown sees of a call: that it is there, and whether the line is another one behind it."""
    if kind == "skipped" or "\n" in text:
        return "}\n" if text.endswith("\n") else "}\n}"
    return "}"


def _is_hidden(pending: str, events: list[UIEvent], options: dict[str, Any]) -> bool:
    """Whether `pending` is the beginning of a call or a result, or the rest of one that is over a limit."""
    thinking = [event.active for event in events if isinstance(event, Thinking)]
    if thinking and thinking[-1]:
        return True
    reports = [event for event in events if not isinstance(event, Thinking)]
    over = any(isinstance(event, Error | Warning) and event.code in LIMITS for event in reports[-2:])
    forged = any(isinstance(event, Warning) and event.code is Code.FORGED_RESULT for event in reports[-1:])
    if over or (forged and "limits" in options):
        return True
    ended = itertools.takewhile(lambda event: isinstance(event, Call | Error), reversed(reports))
    if sum(len(_raw(event)) for event in ended) >= options.get("limits", DEFAULT_LIMITS).call:
        return True  # it was complete when the limit was met, and is not closed
    return any(marker.kind == "result" and begins_with(pending, marker) for marker in _markers(options))


def _raw(event: UIEvent) -> str:
    return event.call.raw if isinstance(event, Call) else getattr(event, "raw", None) or ""


def _is_late(step: Step) -> bool:
    kinds = [type(event) for event in step.new]
    return Call in kinds and Text in kinds[kinds.index(Call) :]


def _markers(options: dict[str, Any]) -> list[Marker]:
    dialects = options.get("dialects")
    ids = DEFAULT_DIALECTS if dialects is None else DIALECTS if dialects == "auto" else dialects
    return [marker for each in ids for marker in MARKERS[each]]

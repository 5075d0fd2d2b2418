"""The laws that hold for every text, every dialect and every cut: one function for each, which fails where it does not.

What a parser or a machine says is taken from its events alone (and from what the parser calls `held`). `pieces` puts
events back together to the text that was read; promptness then asks `tests.reference` what may be held back there.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from streamtools import coalesce
from streamtools.calls import DEFAULT_LIMITS
from streamtools.errors import Code
from streamtools.events import (
    ApprovalRequested,
    Call,
    CallDelta,
    CallStart,
    Done,
    Error,
    Executed,
    Executing,
    Markup,
    Progress,
    Reasoning,
    Text,
    Thinking,
    UIEvent,
    Warning,
)
from streamtools.parsing.dialects import DEFAULT_DIALECTS, DIALECTS
from tests.feeding import Step, feed, steps
from tests.reference import MARKERS, TAGS, Marker, begins_with, may_become, place_behind

LIMITS = (Code.TOO_LARGE, Code.TOO_DEEP, Code.TOO_MANY_CALLS)
"""What is reported while the call that it is about goes on."""

MALFORMED = {
    Code.INVALID_JSON,
    Code.MISSING_TOOL_NAME,
    Code.INVALID_ARGUMENTS,
    Code.CONFLICTING_FIELDS,
    Code.UNRECOGNISED_TOOL_CALL,
    Code.TRUNCATED,
    Code.DUPLICATE_KEY,
    Code.NOT_A_NUMBER,
    Code.NUMBER_TOO_LONG,
    Code.LONE_SURROGATE,
    *LIMITS,
}
"""What is wrong with a call that a model wrote badly."""

LONGEST_MARKER = 256
"""No marker has as many characters."""


# 1. Chunk invariance.


def assert_chunk_invariant(text: str, ways: Iterable[Sequence[str]], **options: Any) -> list[UIEvent]:
    """However `text` is cut, the coalesced events are the same. Returns them."""
    expected = coalesce(feed([text], **options))
    for deltas in ways:
        assert expected == coalesce(feed(deltas, **options)), f"cut as {deltas!r}"
    return expected


def assert_defined_per_character(deltas: Sequence[str], **options: Any) -> None:
    """At each cut the same has been said, and is held, as if every character had been fed alone."""
    alone = steps("".join(deltas), **options)
    for step in steps(deltas, **options):
        if step.delta:
            single = next(each for each in alone if each.fed == step.fed)
            assert coalesce(single.events) == coalesce(step.events), f"behind {step.fed!r}"
            assert single.held == step.held


# 2. Conservation.

Kind: TypeAlias = Literal["text", "reasoning", "tag", "space", "call", "refused", "result", "skipped"]


class Piece(NamedTuple):
    """A stretch of the input, and what became of it."""

    kind: Kind
    text: str


def pieces(text: str, events: Iterable[UIEvent], before: Kind | None = None) -> list[Piece]:
    """Return the beginning of `text` as the pieces that `events` hold; fails where they hold anything else.

    `before` is the kind of the piece that comes before `text`.
    """
    found: list[Piece] = []
    at = 0
    refused = False  # a malformed call comes as text
    for event in events:
        kind: Kind
        match event:
            case Text(text=piece) | Warning(code=Code.HIDDEN_AFTER_CALL, raw=str(piece)):
                kind = "refused" if refused else "text"
            case Reasoning(text=piece):
                kind = "reasoning"
            case Markup(text=piece):
                kind = "tag" if piece.strip() else "space"
            case Call(call=call):
                kind, piece = "call", call.raw
            case Error(raw=str(piece)):
                kind = "call"
            case Warning(code=Code.FORGED_RESULT, raw=str(piece)):
                kind = "result"
            case Warning(code=Code.SKIPPED, count=int(count)):
                kind = "text" if before == "text" else "skipped"
                piece = text[at : at + count]
                assert count == len(piece), f"{count} characters skipped, and there are {len(piece)}"
            case Warning(code=code) if code in MALFORMED:
                refused = True
                continue
            case _:
                continue
        assert piece == text[at : at + len(piece)], f"at {at}: {event}"
        at += len(piece)
        refused = False
        before = kind
        found.append(Piece(kind, piece))
    return found


def assert_conserved(text: str, events: Iterable[UIEvent], *, stopped: bool = False) -> None:
    """Every character of `text` is in exactly one event, in order. Needs `keep_markup`.

    A parser that `stopped` has left unread what stands behind a call and is more than white space.
    """
    found = pieces(text, events)
    rest = text[sum(len(piece.text) for piece in found) :]
    if stopped:
        assert rest.strip(" \t\r\n"), "stopped for nothing"
        assert any(piece.kind == "call" for piece in found), "stopped before any call"
    else:
        assert not rest, f"in no event: {rest!r}"


# 3. Promptness.


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


# 7. The lifecycle of calls.

_LETTERS: dict[type[Any], str] = {
    CallStart: "s",
    CallDelta: "d",
    Call: "C",
    Error: "E",
    ApprovalRequested: "a",
    Executing: "x",
    Progress: "p",
    Executed: "R",
}
_LIFE = re.compile(r"T(?:sd*)?(?:Et|Ct(?:a?(?:xp*)?[RE])?)")
_REFUSED_LIFE = re.compile(r"Tt")


def assert_paired(events: Sequence[UIEvent], *, refused: bool = False) -> None:
    """Each call has one life, in the order of section 6, and `done`, if there is one, tells which calls are pending.

    With `refused` (of `on_malformed="text"`) a call may also turn out to be none before it is announced.
    """
    lives: dict[str, str] = defaultdict(str)
    for event in events:
        if isinstance(event, Thinking):
            lives[event.call_id or ""] += "T" if event.active else "t"
        elif type(event) in _LETTERS and (call_id := _call_id(event)):
            lives[call_id] += _LETTERS[type(event)]
    for call_id, life in lives.items():
        assert _LIFE.fullmatch(life) or (refused and _REFUSED_LIFE.fullmatch(life)), f"{call_id}: {life}"
    ends = [event for event in events if isinstance(event, Done)]
    if ends:
        assert events[-1:] == ends, "one `done`, and nothing behind it"
        pending = [call_id for call_id, life in lives.items() if life.endswith("Ct")]
        assert sorted(pending) == sorted(call.id for call in ends[0].pending)


def _call_id(event: Any) -> str | None:
    call = getattr(event, "call", None)
    call_id: str | None = call.id if call is not None else event.call_id
    return call_id


def assert_deltas_tell_the_arguments(events: Iterable[UIEvent]) -> None:
    """With `call_deltas`, the pieces of a good call's arguments are together the JSON of its arguments."""
    told: dict[str, str] = defaultdict(str)
    for event in events:
        if isinstance(event, CallDelta):
            told[event.call_id] += event.text
        elif isinstance(event, Call):
            text = told[event.call.id]
            assert event.call.arguments == (json.loads(text, strict=False) if text else {})

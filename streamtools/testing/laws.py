"""The laws that hold for every text, every dialect and every cut: one function for each, which fails where it does not.

What a parser or a machine says is taken from its events alone; `pieces` puts them back together to the text that was
read. The law of promptness has a module of its own.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from streamtools.coalescing import coalesce
from streamtools.errors import Code, EventOrderError
from streamtools.events import (
    Call,
    CallDelta,
    Error,
    Markup,
    Reasoning,
    Text,
    UIEvent,
    Warning,
)
from streamtools.grammar import validate
from streamtools.testing.feeding import feed, steps

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


def assert_in_order(events: Iterable[UIEvent], *, run: bool = True) -> None:
    """These are the events of one whole run, by the grammar of events; with `run=False`, those of a parser."""
    try:
        validate(events, run=run)
    except EventOrderError as error:
        raise AssertionError(str(error)) from None


def assert_deltas_tell_the_arguments(events: Iterable[UIEvent]) -> None:
    """With `call_deltas`, the pieces of a good call's arguments are together the JSON of its arguments."""
    told: dict[str, str] = defaultdict(str)
    for event in events:
        if isinstance(event, CallDelta):
            told[event.call_id] += event.text
        elif isinstance(event, Call):
            text = told[event.call.id]
            assert event.call.arguments == (json.loads(text, strict=False) if text else {})

"""The law of promptness: what is held back after each feed can still become a marker where it stands.

`streamtools.testing.laws` says what has become of the text so far, `tests.support.reference` what may be held back
behind it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from streamtools.errors import Code
from streamtools.events import Call, CallStart, Error, Markup, Text, Thinking, UIEvent, Warning
from streamtools.limits import DEFAULT_LIMITS
from streamtools.parsing.dialects import DIALECTS
from streamtools.testing.laws import LIMITS, MALFORMED, FeedStep, InputSection, Kind, sections, steps
from tests.families import MARKERS, TEMPLATE_TAGS
from tests.families.base import SPACE_AT_START, Marker, Tag
from tests.support.reference import TAGS, Place, begins_with, is_whole, may_become, place_behind
from tests.support.variants import KNOWN

LONGEST_MARKER = 256
"""No marker has as many characters."""


def assert_prompt(deltas: Iterable[str], **options: Any) -> None:
    """What is held back after each feed can still become a marker where it stands; all else has been said."""
    assert_steps_prompt(steps(deltas, **options | {"keep_markup": True}), **options)


def assert_steps_prompt(read: Iterable[FeedStep], **options: Any) -> None:
    """The same of a text that has been read with these options and `keep_markup`."""
    transparent = options.get("after_call", "show") == "show" and not options.get("trim")
    announced = options.get("on_malformed", "error") == "error"
    found: list[InputSection] = []
    said = 0
    for step in read:
        new = sections(step.fed[said:], step.new, found[-1].kind if found else None)
        found += new
        said += sum(len(piece.text) for piece in new)
        behind = step.fed[said:]
        pending = behind.removesuffix(step.pending)
        assert behind == pending + step.pending
        assert len(step.pending) < LONGEST_MARKER
        if step.pending:
            assert _may_be_held(step.pending, found, pending, options), f"held for nothing: {step.pending!r}"
        elif pending and transparent:
            assert _is_hidden(pending, step.events, options), f"neither shown nor held: {pending!r}"
        if len(step.delta) == 1 and announced:
            assert not _is_late(step), f"a call was reported behind its last character: {step.new}"


class Behind(NamedTuple):
    """What has come so far, as far as it decides what may follow."""

    before: str
    """The text that Markdown sees."""
    since: str
    """The part of it behind the last call or reasoning."""
    start: bool
    """No call has come but such as count only at the start of a message."""
    called: bool
    behind_call: bool
    """The last thing that was no text was a call."""
    ends: tuple[str | Marker, ...]
    """What may end the reasoning that is open."""


def _read(found: Iterable[InputSection], options: dict[str, Any], *, strays: bool) -> Behind:
    """Return what has come; a tag behind a call may belong to that call or, with `strays`, is hidden on its own."""
    before = since = ""
    start, called, behind_call = True, False, False
    markers, tags = _markers(options), _tags(options)
    at_start = any(marker.where == "start" for marker in markers)
    enders = tuple(marker for marker in markers if marker.ends_reasoning)
    prefilled = [each for tag in tags for each in (*tag.closings, *tag.before)]
    ends: tuple[str | Marker, ...] = ()
    opened = False  # a line feed belongs to the opening tag
    if options.get("in_reasoning"):
        ends = (*TAGS.values(), *prefilled, *enders)
    for index, (kind, text) in enumerate(found):
        if not index and ends and kind == "tag" and text in _openings(tags):
            opened = True
            continue
        if kind == "reasoning" or (kind == "space" and ends and opened):
            opened = False
            continue
        opened = False
        if ends:  # the reasoning is over: with a tag that is hidden, or before something that is not
            ends, before, since, start, behind_call = (), "", "", True, False
            if kind == "tag" and any(is_whole(text.removeprefix("\n"), (each,)) for each in _closings(tags)):
                continue
        tag = _tag(text, tags) if kind == "tag" else None
        if tag is not None and tag.where == "behind_call" and not strays:
            tag = None
        if kind in ("text", "space"):
            before, since = before + text, since + text
        elif kind == "tag" and text in TAGS:
            ends, opened = (TAGS[text], *enders), True
        elif kind == "tag" and text in TAGS.values():
            before, since, start, behind_call = "", "", True, False
        elif tag is not None:
            ends = (*tag.closings, *tag.before, *enders) if tag.closings or tag.before else ()
            opened = bool(ends)
        else:
            called, behind_call = called or kind == "call", True
            before, since = before + _in_place_of(kind, text), ""
            begun = [marker for marker in markers if begins_with(text, marker.parts)] if at_start else []
            start = start and (not begun or any(marker.where == "start" for marker in begun))
    return Behind(before, since, start, called, behind_call, ends)


def _openings(tags: Iterable[Tag]) -> list[str]:
    """Return the tags that go away where the template has opened the reasoning already."""
    return [*TAGS, *(str(tag.parts[0]) for tag in tags if tag.closings and len(tag.parts) == 1)]


def _closings(tags: Iterable[Tag]) -> list[str]:
    return [*TAGS.values(), *(closing for tag in tags for closing in tag.closings)]


def _tag(text: str, tags: Iterable[Tag]) -> Tag | None:
    return next((tag for tag in tags if is_whole(text, tag.parts)), None)


def _may_be_held(held: str, found: list[InputSection], pending: str, options: dict[str, Any]) -> bool:
    all_of_it = [*found, InputSection("text", pending)] if pending else found
    openings = _openings(_tags(options)) if options.get("in_reasoning") and not all_of_it else []
    if any(may_become(held, (opening,)) for opening in openings):
        return True
    return any(_may_follow(_read(all_of_it, options, strays=strays), held, options) for strays in (True, False))


def _may_follow(behind: Behind, held: str, options: dict[str, Any]) -> bool:
    if behind.ends:
        ends = [(each,) if isinstance(each, str) else each.parts for each in behind.ends]
        ends += [(f"\n{each}",) for each in behind.ends if isinstance(each, str)]
        markers = [each for each in behind.ends if isinstance(each, Marker)]
        ends += [("\n" * count, *each.parts) for each in markers for count in range(1, each.line_feeds + 1)]
        if any(may_become(held, parts) for parts in ends):
            return True
        if not any(isinstance(each, str) and held.removeprefix("\n").startswith(each) for each in behind.ends):
            return False
        behind = Behind("", "", True, behind.called, False, ())  # it has ended before what is held
    refuses = behind.called and options.get("after_call") == "stop"
    fresh = not behind.since.strip(" \t\r\n")
    at_start = (fresh and behind.start) or options.get("calls_at") == "anywhere"
    here, behind_line = place_behind(behind.before), place_behind(behind.before + "\n")
    for dialect in _ids(options):
        even_in_code = _even_in_code(dialect, options)
        for marker in MARKERS[dialect]:
            for count in range(marker.line_feeds + 1):
                place = behind_line if count else here
                counts = (even_in_code or not place.in_code) and (marker.kind == "call" or not refuses)
                counts = counts and _counts(marker, place, at_start=at_start, behind_call=fresh and behind.behind_call)
                if counts and may_become(held, ("\n" * count, *marker.parts) if count else marker.parts):
                    return True
            if at_start and dialect in SPACE_AT_START and may_become(held, (" ", *marker.parts)):
                return True
        for tag in _tags_of(dialect, options):
            if tag.closings and tag.where == "start":
                continue  # it counts where `<think>` does
            spaces = ["", *("\n" * count for count in range(1, tag.line_feeds + 1))]
            spaces += ["\n"] * (at_start and tag.closings != ()) + [" "] * (at_start and dialect in SPACE_AT_START)
            for space in spaces:
                place = behind_line if "\n" in space else here
                counts = (even_in_code or not place.in_code) and not refuses and (not tag.closings or _reasons(options))
                counts = counts and _counts(tag, place, at_start=at_start, behind_call=fresh and behind.behind_call)
                if counts and may_become(held, (space, *tag.parts) if space else tag.parts):
                    return True
    counts = fresh or (options.get("reasoning") == "anywhere" and not here.in_code)
    thoughts = [(tag,) for tag in TAGS] + [tag.parts for tag in _tags(options) if tag.closings and tag.where == "start"]
    thoughts += [(closing,) for closing in TAGS.values()] if fresh else []
    thoughts += [("\n", *parts) for parts in thoughts] if fresh and behind.start else []
    return _reasons(options) and counts and not refuses and any(may_become(held, parts) for parts in thoughts)


def _counts(marker: Marker | Tag, place: Place, *, at_start: bool, behind_call: bool) -> bool:
    if isinstance(marker, Marker) and marker.apart and (place.after.isalnum() or place.after == "#"):
        return False
    places = {"anywhere": True, "line_start": place.line_start, "start": at_start, "behind_call": behind_call}
    return places[marker.where]


def _reasons(options: dict[str, Any]) -> bool:
    return bool(options.get("reasoning", "start") != "off")


def _in_place_of(kind: Kind, text: str) -> str:
    """Return what Markdown sees of a call: that it is there, and whether the line is another one behind it."""
    last = "x" if text[-1:].isalnum() else "}"
    if kind == "skipped" or "\n" in text:
        return "}\n" if text.endswith("\n") else "}\n" + last
    return last


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
    if sum(map(len, _settled(reports))) >= options.get("limits", DEFAULT_LIMITS).call:
        return True  # it was complete when the limit was met, and is not closed
    if any(
        (marker.kind == "result" or marker.wraps) and begins_with(pending, marker.parts) for marker in _markers(options)
    ):
        return True
    begun = pending.lstrip("\n")
    if any(marker.ends_reasoning and begins_with(begun, marker.parts[:1]) for marker in _markers(options)):
        return True  # what follows it says whether it is a part of the reasoning
    told = [event for event in reports if not isinstance(event, Markup)]
    if options.get("on_malformed") == "text" and told and isinstance(told[-1], Text):
        told.pop()  # what a malformed call was written as
    if any(isinstance(event, Call | Error) or _refuses(event) for event in told[-1:]):
        inside = pending.strip()[:1]  # of a wrapper, between its calls
        return not inside.isalnum()
    return False


def _settled(reports: Iterable[UIEvent]) -> Iterator[str]:
    """Yield what the calls were written as that were settled last: good ones, errors, and what became text."""
    settled = [event for event in reports if not isinstance(event, CallStart)]
    reverse: list[UIEvent | None] = [*reversed(settled), None]
    for event, before in itertools.pairwise(reverse):
        match event:
            case Call(call=call):
                yield call.raw
            case Error(raw=str(raw)):
                yield raw
            case Text(text=text) if _refuses(before):
                yield text
            case _ if not _refuses(event):
                return


def _refuses(event: UIEvent | None) -> bool:
    return isinstance(event, Warning) and event.code in MALFORMED


def _is_late(step: FeedStep) -> bool:
    """Whether a call and text behind it came at once, and not because both were taken for a part of a broken call.

    Nor because another call seemed to begin before this one was closed, with a tag that is none where it stands.
    """
    kinds = [type(event) for event in step.new]
    if Call not in kinds or Error in kinds[: kinds.index(Call)]:
        return False
    behind = step.new[kinds.index(Call) :]
    unclosed = any(isinstance(event, Warning) and event.code is Code.MISSING_CLOSE for event in behind)
    return any(
        isinstance(event, Text) and event.text.strip() and not (unclosed and event.text.lstrip()[:1] in "<")
        for event in behind
    )


def _ids(options: dict[str, Any]) -> Iterable[str]:
    dialects = options.get("dialects")
    if dialects in (None, "auto"):
        return [dialect.id for dialect in DIALECTS.values() if dialect.auto]
    return [each if isinstance(each, str) else each.id for each in dialects]


def _even_in_code(dialect: str, options: dict[str, Any]) -> bool:
    """Whether calls of a dialect count in code; of those that are enabled by one word none does."""
    own = "text" if options.get("dialects") in (None, "auto") else KNOWN[dialect].in_code
    return (options.get("in_code") or own) == "call"


def _markers(options: dict[str, Any]) -> list[Marker]:
    return [marker for each in _ids(options) for marker in MARKERS[each]]


def _tags_of(dialect: str, options: dict[str, Any]) -> list[Tag]:
    """Return a dialect's tags; where many dialects are enabled by one word, reasoning begins where it usually does."""
    tags = TEMPLATE_TAGS.get(dialect, ())
    if options.get("dialects") not in (None, "auto"):
        return list(tags)
    return [tag._replace(where="start") if tag.closings and not tag.before else tag for tag in tags]


def _tags(options: dict[str, Any]) -> list[Tag]:
    return [tag for each in _ids(options) for tag in _tags_of(each, options)]

"""The law of promptness: after each feed, the pending text can still become a marker at its position.

`streamtools.testing.laws` reconstructs the text from the events. `tests.support.reference` decides which text may be
pending.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

from streamtools.errors import Code
from streamtools.events import Call, CallStart, Error, Markup, Reasoning, Text, Thinking, UIEvent, Warning
from streamtools.limits import DEFAULT_LIMITS
from streamtools.parsing.dialects import DIALECTS
from streamtools.parsing.markers import Pattern
from streamtools.testing.laws import LIMITS, MALFORMED, FeedStep, InputSection, Kind, sections, steps
from tests.families import MARKERS, TEMPLATE_TAGS
from tests.families.base import BLANKS, SPACE_AT_START, Marker, Part, Tag
from tests.support.reference import TAGS, Place, begins_with, is_whole, may_become, place_after
from tests.support.variants import KNOWN

LONGEST_MARKER = 256
"""An upper limit for the length of a marker."""


def assert_prompt(deltas: Iterable[str], **options: Any) -> None:
    """Check that after each feed the pending text can still become a marker, and that the other text was reported."""
    assert_steps_prompt(steps(deltas, **options | {"keep_markup": True}), **options)


def assert_steps_prompt(read: Iterable[FeedStep], **options: Any) -> None:
    """Check the same for a text that was read with these options and `keep_markup`."""
    transparent = options.get("after_call", "show") == "show"
    announced = options.get("on_malformed", "error") == "error"
    found: list[InputSection] = []
    said = 0
    for step in read:
        new = sections(step.fed[said:], step.new, found[-1].kind if found else None)
        found += new
        said += sum(len(piece.text) for piece in new)
        rest = step.fed[said:]
        hidden = rest.removesuffix(step.pending)
        assert rest == hidden + step.pending
        assert len(step.pending) < LONGEST_MARKER
        if step.pending:
            assert _may_be_pending(step.pending, found, hidden, options), f"pending, but no marker: {step.pending!r}"
        elif hidden and transparent:
            assert _is_hidden(hidden, step.events, options), f"neither shown nor pending: {hidden!r}"
        if len(step.delta) == 1 and announced:
            assert not _is_late(step), f"a call was reported after its last character: {step.new}"


class Context(NamedTuple):
    """The text so far, as far as it decides which text may follow."""

    before: str
    """The text that Markdown sees."""
    since: str
    """The part of `before` after the last call or reasoning."""
    start: bool
    """True if all calls so far are calls that count only at the start of a message."""
    called: bool
    begun: bool
    """True if a call has begun, also one that is refused or exceeds a limit."""
    after_call: bool
    """True if the last section that is not text is a call."""
    ends: tuple[str | Marker, ...]
    """The tags and markers that may end the open reasoning."""


def _read(found: Iterable[InputSection], options: dict[str, Any], *, strays: bool) -> Context:
    """Return the context. A tag after a call may belong to this call. With `strays`, it is hidden separately."""
    before = since = ""
    start, called, begun, after_call = True, False, False, False
    enabled = _enabled(options)
    tags = _tags(enabled)
    ends: tuple[str | Marker, ...] = ()
    opened = False  # True after an opening tag, to which a line feed may belong
    if options.get("in_reasoning"):
        ends = (*TAGS.values(), *(each for tag in tags for each in (*tag.closings, *tag.before)), *_enders(enabled))
    for index, (kind, text) in enumerate(found):
        if not index and ends and kind == "tag" and text in _openings(tags):
            opened = True
            continue
        if kind == "reasoning" or (kind == "space" and ends and opened):
            opened = False
            continue
        opened = False
        begun = begun or kind in ("call", "refused", "skipped")
        if ends:  # the reasoning has ended, with or without a closing tag
            ends, before, since, start, after_call = (), "", "", True, False
            if kind == "tag" and any(is_whole(text.removeprefix("\n"), each) for each in _closings(tags)):
                continue
        tag = _tag(text, enabled) if kind == "tag" else None
        if tag is not None and tag.where == "after_call" and not strays:
            tag = None
        if kind in ("text", "space"):
            before, since = before + text, since + text
        elif kind == "tag" and text in TAGS:
            ends, opened = (TAGS[text], *_enders(enabled)), True
        elif kind == "tag" and text in TAGS.values():
            before, since, start, after_call = "", "", True, False
        elif tag is not None:
            ends = (*tag.closings, *tag.before, *_enders(enabled)) if tag.closings or tag.before else ()
            opened = bool(ends)
        else:
            called, after_call = called or kind == "call", True
            before, since = before + _in_place_of(kind, text), ""
            start = start and _may_be_at_start(text, enabled)
    return Context(before, since, start, called, begun, after_call, ends)


def _openings(tags: Iterable[Tag]) -> list[str]:
    """Return the tags that are removed if the template has opened the reasoning."""
    return [*TAGS, *(str(tag.parts[0]) for tag in tags if tag.closings and len(tag.parts) == 1)]


def _closings(tags: Iterable[Tag]) -> list[tuple[Part, ...]]:
    closings = [*TAGS.values(), *(closing for tag in tags for closing in tag.closings)]
    return [closing.parts if isinstance(closing, Marker) else (closing,) for closing in closings]


@lru_cache(maxsize=10_000)
def _tag(text: str, enabled: Enabled) -> Tag | None:
    return next((tag for tag in _tags(enabled) if is_whole(text, tag.parts)), None)


@cache
def _enders(enabled: Enabled) -> Sequence[Marker]:
    return [marker for marker in _markers(enabled) if marker.kind == "call"]


@lru_cache(maxsize=10_000)
def _may_be_at_start(text: str, enabled: Enabled) -> bool:
    """Return True if a call may be one that counts only at the start of a message, or if there is no such marker."""
    markers = _markers(enabled)
    if not any(marker.where == "start" for marker in markers):
        return True
    openers = [marker for marker in markers if begins_with(text, marker.parts)]
    return not openers or any(marker.where == "start" for marker in openers)


def _may_be_pending(pending: str, found: list[InputSection], hidden: str, options: dict[str, Any]) -> bool:
    found = [*found, InputSection("text", hidden)] if hidden else found
    openings = _openings(_tags(_enabled(options))) if options.get("in_reasoning") and not found else []
    if any(may_become(pending, (opening,)) for opening in openings):
        return True
    ways = (True, False) if any(each.kind == "tag" for each in found) else (True,)
    return any(_may_follow(_read(found, options, strays=strays), pending, options) for strays in ways)


def _may_follow(context: Context, pending: str, options: dict[str, Any]) -> bool:
    if context.ends:
        ends = [(each,) if isinstance(each, str) else each.parts for each in context.ends]
        ends += [(f"\n{each}",) for each in context.ends if isinstance(each, str)]
        markers = [each for each in context.ends if isinstance(each, Marker)]
        ends += [("\n" * count, *each.parts) for each in markers for count in range(1, each.line_feeds + 1)]
        ends += [("\n", BLANKS, *each.parts) for each in markers if _may_be_indented(each, options)]
        if any(may_become(pending, parts) for parts in ends):
            return True
        if not any(isinstance(each, str) and pending.removeprefix("\n").startswith(each) for each in context.ends):
            return False
        # The reasoning ends before the pending text.
        context = Context("", "", True, context.called, context.begun, False, ())
    refuses = context.called and options.get("after_call") == "stop"
    fresh = not context.since.strip(" \t\r\n")
    at_start = (fresh and context.start) or options.get("calls_at") == "anywhere"
    here, after_line = place_after(context.before), place_after(context.before + "\n")
    enabled = _enabled(options)
    for dialect, marker, space in _beginnings(pending, enabled):
        if (space == " " or len(space) > marker.line_feeds) and not at_start:
            continue
        if isinstance(marker, Tag):
            counts = not refuses and (not marker.closings or _reasons(options))
        elif space == " ":
            return True
        else:
            counts = marker.kind == "call" or not refuses
        place = after_line if "\n" in space else here
        counts = counts and (not place.in_code or _even_in_code(dialect, options))
        if counts and _counts(marker, place, at_start=at_start, after_call=fresh and context.after_call):
            return True
    for dialect in enabled.ids if context.begun else ():
        counts = not here.in_code or _even_in_code(dialect, options)
        if counts and any(pattern.startswith(pending) for pattern, _ in _strays(dialect)):
            return True
    counts = fresh or (options.get("reasoning") == "anywhere" and not here.in_code)
    thoughts = [(tag,) for tag in TAGS] + [tag.parts for tag in _tags(enabled) if tag.closings and tag.where == "start"]
    thoughts += [(closing,) for closing in TAGS.values()] if fresh else []
    thoughts += [("\n", *parts) for parts in thoughts] if fresh and context.start else []
    return _reasons(options) and counts and not refuses and any(may_become(pending, parts) for parts in thoughts)


Beginning: TypeAlias = tuple[str, Marker | Tag, str]
"""A dialect, its marker or tag that a pending text may become, and the white space before that."""


@lru_cache(maxsize=10_000)
def _beginnings(pending: str, enabled: Enabled) -> Sequence[Beginning]:
    """Return all markers and tags that `pending` may become, at any position.

    The first four characters exclude most markers. Only a `Free` part could match a longer text but not its beginning,
    and no marker has such a part so early.
    """
    if len(pending) > 1:
        all_of_them = _beginnings(pending[: min(4, len(pending) - 1)], enabled)
    else:
        all_of_them = _all_beginnings(enabled)
    return [each for each in all_of_them if may_become(pending, (each[2], *each[1].parts))]


@cache
def _all_beginnings(enabled: Enabled) -> Sequence[Beginning]:
    found = list[Beginning]()
    for dialect in enabled.ids:
        markers: list[Marker | Tag] = [*MARKERS[dialect], *_tags_of(dialect, enabled)]
        for marker in markers:
            if isinstance(marker, Tag) and marker.closings and marker.where == "start":
                continue  # such a tag counts at the same positions as `<think>`
            line_feeds = max(marker.line_feeds, int(isinstance(marker, Tag) and marker.closings != ()))
            spaces = ["\n" * count for count in range(line_feeds + 1)] + [" "] * (dialect in SPACE_AT_START)
            found += [(dialect, marker, space) for space in spaces]
    return found


def _counts(marker: Marker | Tag, place: Place, *, at_start: bool, after_call: bool) -> bool:
    if isinstance(marker, Marker) and marker.apart and (place.after.isalnum() or place.after == "#"):
        return False
    places = {"anywhere": True, "line_start": place.line_start, "start": at_start, "after_call": after_call}
    return places[marker.where]


def _may_be_indented(marker: Marker, options: dict[str, Any]) -> bool:
    """Return True for a marker at the start of a line. With `calls_at`, this holds for fences and calls in Python."""
    first = str(marker.parts[0])
    if marker.where == "start" and options.get("calls_at") == "anywhere":
        return first.startswith("`") or ("(" in marker.parts and first != "[")
    return marker.where == "line_start"


def _reasons(options: dict[str, Any]) -> bool:
    return bool(options.get("reasoning", "start") != "off")


def _in_place_of(kind: Kind, text: str) -> str:
    """Return the text that stands for a call in Markdown: only its end of a line matters."""
    last = "x" if text[-1:].isalnum() else "}"
    if kind == "skipped" or "\n" in text:
        return "}\n" if text.endswith("\n") else "}\n" + last
    return last


def _is_hidden(pending: str, events: list[UIEvent], options: dict[str, Any]) -> bool:
    """Return True if `pending` is the beginning of a call or result, or the rest of one that exceeds a limit."""
    thinking = [event.active for event in events if isinstance(event, Thinking)]
    if thinking and thinking[-1]:
        return True
    reports = [event for event in events if not isinstance(event, Thinking)]
    over = any(isinstance(event, Error | Warning) and event.code in LIMITS for event in reports[-2:])
    forged = any(isinstance(event, Warning) and event.code is Code.FORGED_RESULT for event in reports[-1:])
    if over or (forged and "limits" in options):
        return True
    if sum(map(len, _settled(reports))) >= options.get("limits", DEFAULT_LIMITS).call:
        return True  # the call was complete at the limit, but is not closed
    enabled = _enabled(options)
    silent = [marker for marker in _markers(enabled) if marker.kind == "result" or marker.wraps]
    if any(begins_with(pending, marker.parts) for marker in silent):
        return True
    strays = [pattern for each in enabled.ids for pattern, ends in _strays(each) if ends]
    if any(pattern.match(pending, 0, ended=False) for pattern in strays):
        return True  # the rest of a value that ended too early: its end decides
    begun = pending.lstrip("\n")
    reasons = isinstance(reports[-1], Reasoning | Markup) if reports else options.get("in_reasoning")
    if reasons and any(begins_with(begun, marker.parts[:1]) for marker in _enders(enabled)):
        return True  # the next text decides if it is a part of the reasoning
    reported = [event for event in reports if not isinstance(event, Markup)]
    if options.get("on_malformed") == "text" and reported and isinstance(reported[-1], Text):
        reported.pop()  # the text of a malformed call
    if any(isinstance(event, Call | Error) or _refuses(event) for event in reported[-1:]):
        inside = pending.strip()[:1]  # between the calls of a wrapper
        return not inside.isalnum()
    return False


def _settled(reports: Iterable[UIEvent]) -> Iterator[str]:
    """Yield the texts of the calls that were decided last: calls, errors, and text."""
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
    """Return True if a call and text after it arrived together although the text was no part of a malformed call.

    It does not hold if another call seemed to begin before this one was closed, or if the call may be a tag like
    `<f/>`, which parameters can follow. It also does not hold if a value contains an opening tag of the call or its
    wrapper: then the text after the closing tags decides which opening tags they close.
    """
    kinds = [type(event) for event in step.new]
    if Call not in kinds or Error in kinds[: kinds.index(Call)]:
        return False
    after = step.new[kinds.index(Call) :]
    raw = "".join(event.text for event in after if isinstance(event, Markup))
    raw = next(event.call.raw for event in after if isinstance(event, Call)) + raw
    if raw.endswith("/>") or any(
        raw.count(f"<{tag}") > raw.count(f"</{tag}") for tag in re.findall(r"</([\w:]+)", raw)
    ):
        return False
    unclosed = any(isinstance(event, Warning) and event.code is Code.MISSING_CLOSE for event in after)
    return any(
        isinstance(event, Text) and event.text.strip() and not (unclosed and event.text.lstrip()[:1] in "<")
        for event in after
    )


class Enabled(NamedTuple):
    """The ids of the enabled dialects."""

    ids: tuple[str, ...]
    by_word: bool
    """True if one word enables them. Then only the common reasoning tags count."""


_BY_WORD = Enabled(tuple(dialect.id for dialect in DIALECTS.values() if dialect.auto), by_word=True)


def _enabled(options: dict[str, Any]) -> Enabled:
    dialects = options.get("dialects")
    if dialects in (None, "auto"):
        return _BY_WORD
    return Enabled(tuple(each if isinstance(each, str) else each.id for each in dialects), by_word=False)


def _even_in_code(dialect: str, options: dict[str, Any]) -> bool:
    """Return True if calls of a dialect count in code. With dialects that are enabled by one word, they do not."""
    default = "text" if options.get("dialects") in (None, "auto") else KNOWN[dialect].in_code
    return (options.get("in_code") or default) == "call"


@cache
def _markers(enabled: Enabled) -> Sequence[Marker]:
    return [marker for each in enabled.ids for marker in MARKERS[each]]


def _tags_of(dialect: str, enabled: Enabled) -> Sequence[Tag]:
    tags = TEMPLATE_TAGS.get(dialect, ())
    if not enabled.by_word:
        return tags
    return [tag._replace(where="start") if tag.closings and not tag.before else tag for tag in tags]


@cache
def _tags(enabled: Enabled) -> Sequence[Tag]:
    return [tag for each in enabled.ids for tag in _tags_of(each, enabled)]


@cache
def _strays(dialect: str) -> Sequence[tuple[Pattern, bool]]:
    """Return the patterns of the rest of a value that ended too early, and whether its end decides."""
    return [(Pattern(*parts), bool(end)) for parts, end in DIALECTS[dialect].strays] if dialect in DIALECTS else []

"""Compares events with the expected events of a test, and shows the differences.

Only the fields that are set in the expected event are compared. So call ids, the run id, times and `seq`, which differ
in each run, are ignored unless the test sets them.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from itertools import zip_longest
from types import EllipsisType, UnionType
from typing import Any, NamedTuple, TypeAlias

import msgspec

from streamtools.errors import check_kind, check_methods
from streamtools.events import Error, Event, UIEvent, coalesce, read_ui_event
from streamtools.recording.matching import MISSING, Difference, common_prefix_length, compare
from streamtools.sources.adapter import Frame, LineDecoder, SSEDecoder

Expected: TypeAlias = "Event | type[Event] | UnionType | Mapping[str, Any] | EllipsisType"
"""The type of an item in the list of expected events. `assert_events` describes the kinds of items."""

_field_definitions = cache(msgspec.structs.fields)  # cached, because it takes longer than the rest of a comparison
_CONTEXT = 20  # number of equal characters that are shown before the first difference of two texts


def matches(expected: Any, actual: Any) -> bool:
    """Return True if an event has no difference from the expected event."""
    return difference(expected, actual) is None


def difference(expected: Any, actual: Any) -> Difference | None:
    """Return the first difference between two events or other values. Returns None if they match."""
    return next(compare(expected, actual, read=_read), None)


def _read(expected: Any, actual: Any) -> tuple[Any, Any]:
    """Return the values to compare. An event is replaced by the fields that `expected` sets, in both values."""
    if isinstance(actual, Event) and isinstance(expected, type | UnionType):
        return (actual, actual) if isinstance(actual, expected) else (expected, actual)
    if isinstance(expected, msgspec.Struct) and type(expected) is type(actual):
        expected = _non_default_fields(expected)
    if isinstance(expected, Mapping) and isinstance(actual, msgspec.Struct):
        actual = {name: value for name, value in _field_values(actual).items() if name in expected}
    return expected, actual


def _field_values(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {"type": struct.type, **fields} if isinstance(struct, Event) else fields


def _non_default_fields(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of an event whose values differ from the defaults."""
    return {
        field.name: value
        for field in _field_definitions(type(struct))
        if (value := getattr(struct, field.name)) is not field.default
        and (field.default is msgspec.NODEFAULT or value != field.default or value.__class__ != field.default.__class__)
    }


def show(value: object, width: int = 100) -> str:
    """Return a repr of at most about `width` characters, shortened in the middle."""
    if value is MISSING:
        return "nothing"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, UnionType):
        return " | ".join(map(show, value.__args__))
    text = repr(value)
    return text if len(text) <= width else f"{text[: width - width // 3]} … {text[len(text) - width // 3 + 3 :]}"


_SEARCH_WINDOW = 200  # number of events that are searched for an expected event, so that the time stays linear
_MAX_EXCERPT = 200  # number of characters of an invalid body that a message shows
_CONTEXT_LINES = 3  # number of equal lines that are shown before and after a difference


def assert_events(events: Iterable[UIEvent], expected: Sequence[Expected], *, coalesced: bool = True) -> None:
    """Raise AssertionError if the events differ from the expected events.

    An item of `expected` is one of these:

    - An event. Its fields that differ from their defaults are compared.
    - A dict of fields by their JSON names, such as `{"type": "text"}`. All these fields are compared.
    - A class or a union of classes. The event must be an instance.
    - `...` for any number of events, including none.

    An event or a value can also be `unittest.mock.ANY` or another object that compares equal. With `coalesced=True`,
    the events are first passed to `coalesce`, which joins adjacent texts and replaces ids with names such as `run_1`.
    The message shows the differences line by line, with `-` for expected and `+` for actual events. Raises TypeError if
    `events` contains other objects, or is the text of a response.
    """
    __tracebackhide__ = True
    check_methods("events", events, "a list of the events of a stream", "__iter__")
    check_methods("expected", expected, "a list, such as [..., Text, ...]", "index")
    actual = list(events)
    if others := [event for event in actual if not isinstance(event, Event)]:
        raise TypeError(f"`events` must be a list of events, got {others[0]!r}; `read_events` reads those of a text")
    actual = coalesce(actual) if coalesced else actual
    rows = _align(expected, actual)
    if not all(row.is_equal for row in rows):
        raise AssertionError("\n".join(["the events are not as expected: - expected, + actual", *_write(rows)]))


def read_events(body: str | bytes) -> list[UIEvent]:
    """Parse the UI events in the body of a response of a backend.

    The body consists of server-sent events in the native format, or of one JSON event per line. Raises ValueError for a
    body without UI events, and for a body with other data.
    """
    data = body.encode() if isinstance(body, str) else body
    check_kind("the body, such as response.content,", data, bytes)
    decoder = LineDecoder() if data.lstrip()[:1] == b"{" else SSEDecoder()
    frames = [frame for frame in decoder.feed(data) + decoder.close() if isinstance(frame, Frame) and frame.data]
    events: list[UIEvent] = []
    for frame in frames:
        try:
            events.append(read_ui_event(frame.data))
        except ValueError as error:
            raise ValueError(f"not an event in the native format: {_beginning(frame.data)} ({error})") from None
    if not events and any(line and not line.startswith(b":") for line in data.splitlines()):
        raise ValueError(f"not an event in the native format: {_beginning(data)}")
    return events


def _beginning(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= _MAX_EXCERPT else f"{text[:_MAX_EXCERPT]}…"


class _Row(NamedTuple):
    """A row of the comparison: an expected and an actual event, of which one may be missing.

    If `expected` is `...`, `actual` holds the events that it matches.
    """

    is_equal: bool
    expected: Any
    actual: Any


def _align(expected: Sequence[Any], actual: Sequence[Event]) -> list[_Row]:
    """Align the expected events with the actual events.

    The expected events between two `...` are aligned with the first actual events that match them.
    """
    gaps = [index for index, item in enumerate(expected) if item is ...]
    if not gaps:
        return _compare(expected, actual)
    rows = _compare(expected[: gaps[0]], actual[: gaps[0]])
    at = min(gaps[0], len(actual))
    for gap, end in itertools.pairwise([*gaps, len(expected)]):
        found = _find(expected[gap + 1 : end], actual, at, last=end == len(expected))
        rows += [_Row(True, ..., actual[at : found.start]), *_compare(expected[gap + 1 : end], actual[found])]
        at = found.stop
    return rows


def _find(part: Sequence[Any], actual: Sequence[Event], at: int, *, last: bool) -> slice:
    """Return the first slice of `actual` from the index `at` that matches `part`, or else the most similar slice.

    With `last=True`, the slice must be at the end of `actual`.
    """
    end = max(at, len(actual) - len(part))
    places = [slice(begin, begin + len(part)) for begin in range(end if last else at, end + 1)]
    for place in places:
        if all(map(matches, part, actual[place])):
            return place

    def similarity(place: slice) -> int:
        """Return 1 point for each event that matches, and 1 point for each event with the expected type."""
        pairs = zip(part[:_SEARCH_WINDOW], actual[place], strict=False)
        return sum(matches(one, other) + (_kind(one) == other.type) for one, other in pairs)

    return max(places, key=similarity)


def _compare(expected: Sequence[Any], actual: Sequence[Event]) -> list[_Row]:
    """Assign to each expected event the first unassigned event that it matches. Then align both lists with difflib."""
    unassigned = dict(enumerate(actual))
    assigned: list[int | None] = []
    for item in expected:
        ahead = itertools.islice(unassigned.items(), _SEARCH_WINDOW)
        assigned.append(next((at for at, event in ahead if matches(item, event)), None))
        unassigned.pop(assigned[-1], None)  # type: ignore[arg-type]  # None is not a key
    rows: list[_Row] = []
    for _, begin, end, first, last in SequenceMatcher(None, assigned, range(len(actual)), False).get_opcodes():
        pairs = zip_longest(expected[begin:end], actual[first:last], fillvalue=MISSING)
        rows += (_Row(matches(one, other), one, other) for one, other in pairs)
    return rows


def _write(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield the rows as lines of text. Equal rows far from a difference are replaced by a line with their count."""
    differ = [at for at, row in enumerate(rows) if not row.is_equal]
    near = {at + step for at in differ for step in range(-_CONTEXT_LINES, _CONTEXT_LINES + 1)}
    for shown, group in itertools.groupby(enumerate(rows), lambda item: item[0] in near):
        members = [row for _, row in group]
        if shown:
            yield from itertools.chain.from_iterable(map(_write_row, members))
        else:
            yield f"  [{len(members)} as expected]"


def _write_row(row: _Row) -> Iterator[str]:
    """Yield a row as lines of text. For two events of the same type, the last line shows the first difference."""
    if row.expected is ...:
        names = Counter(map(_name, row.actual)).items()
        matched = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names)
        yield f"  ... [{matched or 'nothing'}]"
    elif row.is_equal:
        yield f"  {show(row.actual)}"
    else:
        sides = (("-", row.expected), ("+", row.actual))
        yield from (f"{mark} {show(side)}" for mark, side in sides if side is not MISSING)
        found = difference(row.expected, row.actual)
        if found is not None and found.path and _kind(row.expected) == _kind(row.actual):
            path, one, other = found
            start = 0
            if isinstance(one, str) and isinstance(other, str):
                start = max(0, common_prefix_length(one, other) - _CONTEXT)
            yield f"    {path}: expected {_show_from(one, start)}, actual {_show_from(other, start)}"


def _show_from(value: object, start: int) -> str:
    """Return a repr of a value. If `start` is not near the beginning of a text, the text is shown from this index."""
    return f"…{show(value[start:])}" if isinstance(value, str) and start >= _CONTEXT else show(value)


def _name(event: Event) -> str:
    """Return the type of an event. For an error, add its message, which may explain why other events are missing."""
    if not isinstance(event, Error):
        return event.type
    return f"error({event.code}: {event.message}{'' if event.status is None else f', {event.status}'})"


def _kind(value: Any) -> object:
    return value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)

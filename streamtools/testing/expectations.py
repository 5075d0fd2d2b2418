"""Compare events with those that a test expects, and show the differences.

Only the fields that a test states are compared. Call ids, the run id, times and `seq` differ from run to run, so they
are compared only if they are stated.
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

from streamtools.events import Error, Event, UIEvent, read_ui_event
from streamtools.events.coalescing import coalesce
from streamtools.recording.matching import common_prefix_length
from streamtools.sources.frames import Frame, LineDecoder, SSEDecoder

Expected: TypeAlias = "Event | type[Event] | UnionType | Mapping[str, Any] | EllipsisType"
"""An item in the list of expected events."""

_MISSING = object()
_fields_of = cache(msgspec.structs.fields)  # slower than the rest of a comparison
_CONTEXT = 20  # common characters that are shown before the first difference of two texts


class EventDifference(NamedTuple):
    """The path to a value that differs in two events, and both values."""

    path: str
    expected: object
    actual: object

    def show(self, side: object) -> str:
        """Return a short repr of one of the values. Texts start a little before their first difference."""
        if isinstance(self.expected, str) and isinstance(self.actual, str) and isinstance(side, str):
            common = common_prefix_length(self.expected, self.actual)
            return show(side) if common < 2 * _CONTEXT else "…" + show(side[common - _CONTEXT :])
        return show(side)


def matches(expected: Any, actual: Any) -> bool:
    """Return whether an event is as expected."""
    return difference(expected, actual) is None


def difference(expected: Any, actual: Any, path: str = "") -> EventDifference | None:
    """Return the first difference, or None."""
    if expected is _MISSING or actual is _MISSING:  # not equal even to `ANY`
        return EventDifference(path, expected, actual)
    if isinstance(expected, type | UnionType) and isinstance(actual, Event):
        return None if isinstance(actual, expected) else EventDifference(path, expected, actual)
    if isinstance(expected, msgspec.Struct) and isinstance(actual, msgspec.Struct):
        if type(expected) is not type(actual):
            return EventDifference(path, expected, actual)
        return _first(_stated(expected), _fields(actual), path)
    if isinstance(expected, Mapping) and isinstance(actual, msgspec.Struct):
        return _first(expected, _fields(actual), path)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return _first({**dict.fromkeys(actual, _MISSING), **expected}, actual, path)
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        pairs = enumerate(zip_longest(expected, actual, fillvalue=_MISSING))
        found = (difference(one, other, f"{path}[{at}]") for at, (one, other) in pairs)
        return next(filter(None, found), None)
    return None if expected == actual else EventDifference(path, expected, actual)


def _first(expected: Mapping[str, Any], actual: Mapping[str, Any], path: str) -> EventDifference | None:
    path = path and f"{path}."
    found = (difference(value, actual.get(key, _MISSING), f"{path}{key}") for key, value in expected.items())
    return next(filter(None, found), None)


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {"type": struct.type, **fields} if isinstance(struct, Event) else fields


def _stated(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that do not have their default value."""
    return {
        field.name: value
        for field in _fields_of(type(struct))
        if (value := getattr(struct, field.name)) is not field.default
        and (field.default is msgspec.NODEFAULT or value != field.default or value.__class__ != field.default.__class__)
    }


def show(value: object, width: int = 100) -> str:
    """Return a short repr: an event without fields that have their default, long texts cut in the middle."""
    if value is _MISSING:
        return "nothing"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, UnionType):
        return " | ".join(map(show, value.__args__))
    text = _show_struct(value) if isinstance(value, msgspec.Struct) else repr(value)
    return text if len(text) <= width else f"{text[: width - width // 3]} … {text[len(text) - width // 3 + 3 :]}"


def _show_struct(struct: msgspec.Struct) -> str:
    fields = (
        f"{name}={_show_struct(value) if isinstance(value, msgspec.Struct) else repr(value)}"
        for name, value in _stated(struct).items()
    )
    return f"{type(struct).__name__}({', '.join(fields)})"


_SEARCH_WINDOW = 200  # events in which an expected event is searched for, so that the cost stays linear
_MAX_EXCERPT = 200  # characters of an invalid body in a message
_CONTEXT_LINES = 3  # equal lines that are shown around a difference


def assert_events(events: Iterable[UIEvent], expected: Sequence[Expected], *, coalesced: bool = True) -> None:
    """Fail unless the events are as expected, in order.

    An item of `expected` is an event, of which the fields without a default value are compared; a dict of fields by
    their JSON names, of which all are compared: `{"type": "text"}`; a class or a union of classes; or `...` for any
    number of events, including none. `unittest.mock.ANY`, and any object that compares equal, can stand for an event
    or a value. With `coalesced`, the events are compared as `coalesce` returns them: neighbouring texts are joined,
    and ids are numbered in order. The message shows the differences line by line, `-` for expected and `+` for actual.
    Raises TypeError for anything but events, such as the text of a response.
    """
    __tracebackhide__ = True
    if isinstance(events, str | bytes):  # type: ignore[unreachable] # callers may not check types
        raise TypeError("`events` is a text: use `read_events` to read the events in it")
    actual = list(events)
    if others := [event for event in actual if not isinstance(event, Event)]:
        raise TypeError(f"`events` must be a list of events, got {others[0]!r}")
    actual = coalesce(actual) if coalesced else actual
    rows = _align(expected, actual)
    if not all(row.is_equal for row in rows):
        raise AssertionError("\n".join(["the events are not as expected: - expected, + actual", *_write(rows)]))


def read_events(body: str | bytes) -> list[UIEvent]:
    """Return the UI events in the body that a backend sent: native server-sent events, or one JSON event per line.

    Raises ValueError for a body without UI events, or with anything else.
    """
    data = body.encode() if isinstance(body, str) else body
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
    """An expected and an actual event, of which one may be missing; or `...` and the events that it matches."""

    is_equal: bool
    expected: Any
    actual: Any


def _align(expected: Sequence[Any], actual: Sequence[Event]) -> list[_Row]:
    """Return both side by side. The part between two `...` is aligned with the first events that match it."""
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
    """Return where `part` matches from an index on, or the most similar place. The `last` part must be at the end."""
    end = max(at, len(actual) - len(part))
    places = [slice(begin, begin + len(part)) for begin in range(end if last else at, end + 1)]
    for place in places:
        if all(map(matches, part, actual[place])):
            return place

    def similarity(place: slice) -> int:
        return sum(map(_similarity, part[:_SEARCH_WINDOW], actual[place]))

    best = max(places, key=similarity)
    if any(_similarity(one, other) for one in part for other in actual[best]):
        return best
    return slice(len(actual), len(actual)) if last else slice(at, at)


def _similarity(expected: Any, actual: Event) -> int:
    return matches(expected, actual) + (_kind(expected) == actual.type)


def _compare(expected: Sequence[Any], actual: Sequence[Event]) -> list[_Row]:
    """Return both side by side, as difflib aligns them. Each expected event is assigned the first event it matches."""
    left = dict(enumerate(actual))
    assigned: list[int | None] = []
    for item in expected:
        ahead = itertools.islice(left.items(), _SEARCH_WINDOW)
        assigned.append(next((at for at, event in ahead if matches(item, event)), None))
        left.pop(assigned[-1], None)  # type: ignore[arg-type]  # None is not a key
    rows: list[_Row] = []
    for _, begin, end, first, last in SequenceMatcher(None, assigned, range(len(actual)), False).get_opcodes():
        pairs = zip_longest(expected[begin:end], actual[first:last], fillvalue=_MISSING)
        rows += (_Row(matches(one, other), one, other) for one, other in pairs)
    return rows


def _write(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield the rows as text. Equal rows are shown only next to a difference."""
    differ = [at for at, row in enumerate(rows) if not row.is_equal]
    near = {at + step for at in differ for step in range(-_CONTEXT_LINES, _CONTEXT_LINES + 1)}
    for shown, group in itertools.groupby(enumerate(rows), lambda item: item[0] in near):
        members = [row for _, row in group]
        if shown:
            yield from itertools.chain.from_iterable(map(_write_row, members))
        else:
            yield f"  [{len(members)} as expected]"


def _write_row(row: _Row) -> Iterator[str]:
    """Yield a row as text. After two events of one type, yield where they differ."""
    if row.expected is ...:
        names = Counter(map(_name, row.actual)).items()
        matched = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names)
        yield f"  ... [{matched or 'nothing'}]"
    elif row.is_equal:
        yield f"  {show(row.actual)}"
    else:
        sides = (("-", row.expected), ("+", row.actual))
        yield from (f"{mark} {show(side)}" for mark, side in sides if side is not _MISSING)
        found = difference(row.expected, row.actual)
        if found is not None and found.path and _kind(row.expected) == _kind(row.actual):
            yield f"    {found.path}: expected {found.show(found.expected)}, actual {found.show(found.actual)}"


def _name(event: Event) -> str:
    """Return the type of an event. An error comes with its message, which may explain why other events are missing."""
    if not isinstance(event, Error):
        return event.type
    return f"error({event.code}: {event.message}{'' if event.status is None else f', {event.status}'})"


def _kind(value: Any) -> object:
    return value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)

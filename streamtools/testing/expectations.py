"""Compare events with those that a test expects, and show the differences.

Only the fields that a test states are compared. Ids of calls and of the run, times and `seq` differ from run to run, so
they are compared only if they are stated.
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
from streamtools.recording.exchanges import in_common
from streamtools.sources.frames import Frame, LineDecoder, SSEDecoder

Expected: TypeAlias = "Event | type[Event] | UnionType | Mapping[str, Any] | EllipsisType"
"""An entry in the list of a test."""

_MISSING = object()
_fields_of = cache(msgspec.structs.fields)  # takes longer than the rest of a comparison
_BEFORE = 20  # characters that two texts share, shown before the place where they part


class EventDifference(NamedTuple):
    """Where an event is another than expected: the way to a value in it, and the two values."""

    where: str
    expected: object
    came: object

    def show(self, side: object) -> str:
        """Return a short repr of one of the values: of texts from a little before the place where they part."""
        if isinstance(self.expected, str) and isinstance(self.came, str) and isinstance(side, str):
            parted = in_common(self.expected, self.came)
            return show(side) if parted < 2 * _BEFORE else "…" + show(side[parted - _BEFORE :])
        return show(side)


def matches(expected: Any, came: Any) -> bool:
    """Tell whether `came` is what a test expects."""
    return difference(expected, came) is None


def difference(expected: Any, came: Any, where: str = "") -> EventDifference | None:
    """Return the first difference that counts, or None."""
    if expected is _MISSING or came is _MISSING:  # which is not even `ANY`
        return EventDifference(where, expected, came)
    if isinstance(expected, type | UnionType) and isinstance(came, Event):
        return None if isinstance(came, expected) else EventDifference(where, expected, came)
    if isinstance(expected, msgspec.Struct) and isinstance(came, msgspec.Struct):
        if type(expected) is not type(came):
            return EventDifference(where, expected, came)
        return _first(_stated(expected), _fields(came), where)
    if isinstance(expected, Mapping) and isinstance(came, msgspec.Struct):
        return _first(expected, _fields(came), where)
    if isinstance(expected, Mapping) and isinstance(came, Mapping):
        return _first({**dict.fromkeys(came, _MISSING), **expected}, came, where)
    if isinstance(expected, list | tuple) and isinstance(came, list | tuple):
        pairs = enumerate(zip_longest(expected, came, fillvalue=_MISSING))
        found = (difference(one, other, f"{where}[{at}]") for at, (one, other) in pairs)
        return next(filter(None, found), None)
    return None if expected == came else EventDifference(where, expected, came)


def _first(expected: Mapping[str, Any], came: Mapping[str, Any], where: str) -> EventDifference | None:
    where = where and f"{where}."
    found = (difference(value, came.get(key, _MISSING), f"{where}{key}") for key, value in expected.items())
    return next(filter(None, found), None)


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__}
    return {"type": struct.type, **fields} if isinstance(struct, Event) else fields


def _stated(struct: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that hold something else than their default."""
    return {
        field.name: value
        for field in _fields_of(type(struct))
        if (value := getattr(struct, field.name)) is not field.default
        and (field.default is msgspec.NODEFAULT or value != field.default or value.__class__ != field.default.__class__)
    }


def show(value: object, width: int = 100) -> str:
    """Return a short repr: an event without the fields that hold their defaults, long texts cut in the middle."""
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


_AHEAD = 200  # events among which one that is expected is looked for, so that long runs cost no square of their length
_LONGEST_SHOWN = 200  # characters of a body that is none of ours
_AROUND = 3  # lines as expected that are shown on either side of one that is not


def assert_events(events: Iterable[UIEvent], expected: Sequence[Expected], *, coalesced: bool = True) -> None:
    """Fail unless the events are those that are expected, in their order.

    What may stand in `expected`: an event, whose fields count where they are no defaults; a dict of the fields that
    count, by their names in JSON, defaults included: `{"type": "text"}`; a class or a union of classes, `Text`; `...`
    for any number of events, none too. A value in them may be anything that is equal to what came, and so may an event:
    `unittest.mock.ANY` is. With `coalesced`, the events are compared as `coalesce` returns them,
    which joins what the network cut and numbers ids by their appearance; without, as they came.
    The message shows a difference line by line, `-` for what was expected and `+` for what came. Raises TypeError for
    what are no events, such as the text of a response.
    """
    __tracebackhide__ = True
    if isinstance(events, str | bytes):  # type: ignore[unreachable] # of those who check no types
        raise TypeError("these are no events but a text: `read_events` reads the events in it")
    came = list(events)
    if strange := [each for each in came if not isinstance(each, Event)]:
        raise TypeError(f"{strange[0]!r} is no event")
    came = coalesce(came) if coalesced else came
    rows = _align(expected, came)
    if not all(row.same for row in rows):
        raise AssertionError("\n".join(["other events than expected: - expected, + came", *_write(rows)]))


def read_events(body: str | bytes) -> list[UIEvent]:
    """Return the UI events in what a backend sent: server-sent events in the native form, or JSON, one event a line.

    Raises ValueError for what holds no UI event, or something else than those, with its beginning.
    """
    data = body.encode() if isinstance(body, str) else body
    decoder = LineDecoder() if data.lstrip()[:1] == b"{" else SSEDecoder()
    frames = [frame for frame in decoder.feed(data) + decoder.close() if isinstance(frame, Frame) and frame.data]
    events: list[UIEvent] = []
    for frame in frames:
        try:
            events.append(read_ui_event(frame.data))
        except ValueError as error:
            raise ValueError(f"no native event: {_beginning(frame.data)} ({error})") from None
    if not events and any(line and not line.startswith(b":") for line in data.splitlines()):
        raise ValueError(f"no native event: {_beginning(data)}")
    return events


def _beginning(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


class _Row(NamedTuple):
    """What was expected and what came there, of which one may be missing; or `...` and all that it stands for."""

    same: bool
    expected: Any
    came: Any


def _align(expected: Sequence[Any], came: Sequence[Event]) -> list[_Row]:
    """Return the two side by side: what stands between two `...` beside the first events that are the same."""
    gaps = [at for at, each in enumerate(expected) if each is ...]
    if not gaps:
        return _compare(expected, came)
    rows = _compare(expected[: gaps[0]], came[: gaps[0]])
    at = min(gaps[0], len(came))
    for gap, end in itertools.pairwise([*gaps, len(expected)]):
        found = _find(expected[gap + 1 : end], came, at, last=end == len(expected))
        rows += [_Row(True, ..., came[at : found.start]), *_compare(expected[gap + 1 : end], came[found])]
        at = found.stop
    return rows


def _find(part: Sequence[Any], came: Sequence[Event], at: int, *, last: bool) -> slice:
    """Return where `part` stands from a place on, or what is most like it; the `last` one can only stand at the end."""
    end = max(at, len(came) - len(part))
    places = [slice(begin, begin + len(part)) for begin in range(end if last else at, end + 1)]
    for place in places:
        if all(map(matches, part, came[place])):
            return place

    def likeness(place: slice) -> int:
        return sum(map(_likeness, part[:_AHEAD], came[place]))

    best = max(places, key=likeness)
    if any(_likeness(one, other) for one in part for other in came[best]):
        return best
    return slice(len(came), len(came)) if last else slice(at, at)


def _likeness(expected: Any, came: Event) -> int:
    return matches(expected, came) + (_kind(expected) == came.type)


def _compare(expected: Sequence[Any], came: Sequence[Event]) -> list[_Row]:
    """Return the two side by side, by what difflib makes of the first event that each of those expected fits."""
    left = dict(enumerate(came))
    fitting: list[int | None] = []
    for wanted in expected:
        ahead = itertools.islice(left.items(), _AHEAD)
        fitting.append(next((at for at, event in ahead if matches(wanted, event)), None))
        left.pop(fitting[-1], None)  # type: ignore[arg-type]  # None is no place
    rows: list[_Row] = []
    for _, begin, end, first, behind in SequenceMatcher(None, fitting, range(len(came)), False).get_opcodes():
        pairs = zip_longest(expected[begin:end], came[first:behind], fillvalue=_MISSING)
        rows += (_Row(matches(one, other), one, other) for one, other in pairs)
    return rows


def _write(rows: Sequence[_Row]) -> Iterator[str]:
    """Yield the difference as text: what is as expected only near to what is not."""
    differ = [at for at, row in enumerate(rows) if not row.same]
    near = {at + step for at in differ for step in range(-_AROUND, _AROUND + 1)}
    for shown, group in itertools.groupby(enumerate(rows), lambda each: each[0] in near):
        members = [row for _, row in group]
        if shown:
            yield from itertools.chain.from_iterable(map(_write_row, members))
        else:
            yield f"  [{len(members)} as expected]"


def _write_row(row: _Row) -> Iterator[str]:
    """Yield what stands in a row, and behind two events of one kind where they differ."""
    if row.expected is ...:
        names = Counter(map(_name, row.came)).items()
        passed = ", ".join(f"{count} {name}" if count > 1 else name for name, count in names)
        yield f"  ... [{passed or 'nothing'}]"
    elif row.same:
        yield f"  {show(row.came)}"
    else:
        sides = (("-", row.expected), ("+", row.came))
        yield from (f"{mark} {show(side)}" for mark, side in sides if side is not _MISSING)
        found = difference(row.expected, row.came)
        if found is not None and found.where and _kind(row.expected) == _kind(row.came):
            yield f"    {found.where}: expected {found.show(found.expected)}, came {found.show(found.came)}"


def _name(event: Event) -> str:
    """Return what an event that is passed over is called: an error with what it says, which may be why others miss."""
    if not isinstance(event, Error):
        return event.type
    return f"error({event.code}: {event.message}{'' if event.status is None else f', {event.status}'})"


def _kind(value: Any) -> object:
    return value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)

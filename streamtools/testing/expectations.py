"""Say which events a test expects, and see at a glance which came instead."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from streamtools.coalescing import coalesce
from streamtools.events import Error, Event, UIEvent, read_ui_event
from streamtools.sources.frames import Frame, LineDecoder, SSEDecoder
from streamtools.testing.matching import Expected, difference, matcher, matches, show

_ALONE, _ALIKE = 2, 1  # costs of an event that only one side has, and of two of one kind that differ
_TABLE = 1_000_000  # pairs of events that are compared, a second or two; where there are more, the first differ enough
_TOLD = 200  # characters of a body that is none of ours
_AROUND = 3  # lines as expected that are shown on either side of one that is not


def assert_events(events: Iterable[UIEvent], expected: Sequence[Expected], *, coalesced: bool = True) -> None:
    """Fail unless the events are those that are expected, in their order.

    What may stand in `expected`: an event, whose fields count where they are no defaults; a dict of the fields that
    count, `{"type": "text"}`; a class, `Text`; `...` for any number of events. A value in them may be anything that is
    equal to what came: `unittest.mock.ANY` is. With `coalesced`, the events are compared as `coalesce` returns them,
    which joins what the network cut and numbers ids by their appearance; without, as they came.
    The message shows a difference line by line, `-` for what was expected and `+` for what came. Raises TypeError for
    what are no events, such as the text of a response.
    """
    __tracebackhide__ = True
    events = _only_events(events)
    came = coalesce(events) if coalesced else events
    lines, left = _align(expected, came)
    if any(line.mark != " " for line in lines):
        raise AssertionError("\n".join(["other events than expected: - expected, + came", *_write(lines), *left]))


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


def _only_events(events: Any) -> list[UIEvent]:
    if isinstance(events, str | bytes):
        raise TypeError("these are no events but a text: `read_events` reads the events in it")
    found = list(events)
    if strange := [each for each in found if not isinstance(each, Event)]:
        raise TypeError(f"{strange[0]!r} is no event")
    return found


def _beginning(data: bytes) -> str:
    text = data.decode(errors="replace")
    return text if len(text) <= _TOLD else f"{text[:_TOLD]}…"


class _Line(NamedTuple):
    """A line of the difference: what is on it, and on which side."""

    mark: str
    value: Any
    passed: Sequence[Event] = ()
    """The events that `...` stands for."""


def _align(expected: Sequence[Any], came: Sequence[Event]) -> tuple[list[_Line], list[str]]:
    """Return expected and came as the lines of a difference, the cheapest that there is, and what is not compared."""
    shorter = min(len(expected), len(came))
    ahead = 0  # what is equal from the start costs no table
    while ahead < shorter and _fits(expected[ahead], came[ahead]):
        ahead += 1
    behind = 0  # and so does what is equal up to the end
    while ahead + behind < shorter and _fits(expected[-1 - behind], came[-1 - behind]):
        behind += 1
    rest, others = expected[ahead : len(expected) - behind], came[ahead : len(came) - behind]
    lines = [_Line(" ", each) for each in came[:ahead]]
    if len(rest) * len(others) <= _TABLE or any(each is ... for each in rest):
        ends = [_Line(" ", each) for each in came[len(came) - behind :]]
        return [*lines, *_compare(rest, others), *ends], []
    # What comes first differs, so whatever comes behind, these are other events than expected.
    columns = min(len(others), _TABLE // min(len(rest), math.isqrt(_TABLE)))
    rows = min(len(rest), _TABLE // columns)
    left = f"  [not compared: {len(rest) - rows} more expected, {len(others) - columns} more came]"
    return [*lines, *_compare(rest[:rows], others[:columns])], [left]


def _compare(rest: Sequence[Any], others: Sequence[Event]) -> list[_Line]:
    lines: list[_Line] = []
    costs = _costs(rest, others)
    row = column = begun = 0
    while row < len(rest) or column < len(others):
        cost = costs[row][column]
        if row < len(rest) and rest[row] is ...:
            if costs[row + 1][column] == cost:
                lines.append(_Line(" ", ..., others[begun:column]))
                row += 1
            else:
                column += 1
            continue
        one, other = rest[row : row + 1], others[column : column + 1]
        if one and other and costs[row + 1][column + 1] + _price(one[0], other[0]) == cost:
            same = _fits(one[0], other[0])
            lines += [_Line(" ", other[0])] if same else [_Line("-", one[0]), _Line("+", other[0])]
            row, column = row + 1, column + 1
        elif one and costs[row + 1][column] + _ALONE == cost:
            lines.append(_Line("-", one[0]))
            row += 1
        else:
            lines.append(_Line("+", other[0]))
            column += 1
        begun = column
    return lines


def _price(expected: Any, came: Event) -> float:
    """Return what it costs to set an event beside the one that was expected: less than both alone if they are alike."""
    return _prices(expected)(came)


def _prices(expected: Any) -> Callable[[Event], float]:
    fits, kind = matcher(expected), _kind(expected)
    return lambda came: 0 if fits(came) else _ALIKE if kind == came.type else math.inf


def _fits(expected: Any, came: Event) -> bool:
    return expected is not ... and matches(expected, came)


def _costs(expected: Sequence[Any], came: Sequence[Event]) -> list[list[float]]:
    """Return what the difference of what is left of both costs, at the least, for each two places."""
    below: list[float] = [_ALONE * left for left in range(len(came), -1, -1)]
    rows = [below]
    for wanted in reversed(expected):
        alone = 0 if wanted is ... else _ALONE
        price = _prices(wanted)
        row = [0.0] * len(came) + [below[-1] + alone]
        for at in range(len(came) - 1, -1, -1):
            row[at] = min(below[at] + alone, row[at + 1] + alone)
            if wanted is not ...:
                row[at] = min(row[at], below[at + 1] + price(came[at]))
        rows.append(row)
        below = row
    return rows[::-1]


def _write(lines: Sequence[_Line]) -> Iterator[str]:
    """Yield the difference as text: what is as expected only near to what is not."""
    marked = [at for at, line in enumerate(lines) if line.mark != " "]
    near = {at + step for at in marked for step in range(-_AROUND, _AROUND + 1)}
    for shown, group in itertools.groupby(enumerate(lines), lambda each: each[0] in near):
        members = [line for _, line in group]
        if shown:
            for same, run in itertools.groupby(members, lambda line: line.mark == " "):
                lines_of_run = list(run)
                yield from map(_write_line, lines_of_run) if same else _write_run(lines_of_run)
        else:
            yield f"  [{len(members)} as expected]"


def _write_run(run: Sequence[_Line]) -> Iterator[str]:
    """Yield what differs, and behind two events of one kind where they do."""
    removed = [line for line in run if line.mark == "-"]
    added = [line for line in run if line.mark == "+"]
    for one, other in itertools.zip_longest(removed, added):
        yield from (_write_line(line) for line in (one, other) if line is not None)
        if one is not None and other is not None:
            found = difference(one.value, other.value)
            if found is not None and found.where and _kind(one.value) == _kind(other.value):
                yield f"    {found.where}: expected {found.show(found.expected)}, came {found.show(found.came)}"


def _write_line(line: _Line) -> str:
    if line.value is ...:
        passed = Counter(map(_name, line.passed))
        names = (f"{count} {name}" if count > 1 else name for name, count in passed.items())
        return f"  ... [{', '.join(names) or 'nothing'}]"
    return f"{line.mark} {show(line.value)}"


def _name(event: Event) -> str:
    """Return what an event that is passed over is called: an error with what it says, which may be why others miss."""
    if not isinstance(event, Error):
        return event.type
    return f"error({event.code}: {event.message}{'' if event.status is None else f', {event.status}'})"


def _kind(value: Any) -> object:
    return value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)

"""Sources: the adapter of each format, with any bytes.

No bytes raise an error. Cuts do not change the events. Each event survives JSON. A stream ends once, well or with
one error, and no event follows. The machine's events are in order. Stored data stays within the limits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from streamtools.events import ChainCompleted, ProviderCompleted, SourceError, SourceEvent, read_source_event
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.outputs import validate
from streamtools.sources import ADAPTERS, Adapter, FrameAdapter, Undecided
from tests.fuzz.target import Input, Target, pieces, seeds
from tests.machine.test_machine_laws import run
from tests.support.bounds import characters_handled, stored
from tests.support.cuts import cut
from tests.support.provider_streams import BY_NAME, PROVIDERS, Provider

Make: TypeAlias = Callable[[Limits], Adapter]

OTHERS: dict[str, Make] = {"detect": lambda limits: Undecided("", limits)}
"""Adapters that have no name of their own."""

_CHOICES: dict[str, Sequence[Any]] = {
    "limits": (
        DEFAULT_LIMITS,
        Limits(frame=120),
        Limits(call=40, depth=3, digits=4, calls=2, text=50),
        Limits(frame=1500, call=40, depth=3, digits=4, calls=2, text=50),
    ),
    "cause": (None, "reset"),
}
_SATURATED = 8_000  # bytes after which an adapter with small limits stores its maximum
_UNDECIDED = 65_000  # bytes after which format detection has chosen
_KEPT = 6_000  # characters and bytes that may be kept of three times as many more
_WORK = 150  # times as many characters and bytes are handled as a stream has


def read(make: Make, limits: Limits, chunks: Sequence[bytes], cause: str | None) -> list[SourceEvent]:
    """Return the events of a whole stream, after checking that it ends once."""
    adapter = make(limits)
    events = [event for chunk in chunks for event in adapter.take(chunk)]
    ended = adapter.ended
    events += adapter.close(cause)
    assert adapter.ended or not ended, "an ended stream continues"
    assert adapter.close(cause) == [], "the end comes twice"
    return events


def check(make: Make, given: Input) -> Iterator[object]:
    """Check the laws for one stream."""
    how = given.choose_all(_CHOICES)
    limits, cause = how["limits"], how["cause"]
    stream = given.body
    events = read(make, limits, [stream], cause)
    for chunks in (pieces(stream, 1), cut(stream, given.places(len(stream)))):
        again = read(make, limits, chunks, cause)
        assert events == again, f"cut as {chunks!r}: {again}"
    for event in events:
        assert type(event) is type(read_source_event(event.to_json()))
    _ends_once(events, cause)
    told = run(events, limits=limits)
    validate(told)
    if given.wants(0) and stream:
        _keeps_little(make, stream)
    if given.wants(1) and stream:
        _works_in_proportion(make, stream)
    yield cause, limits.frame
    kinds = [(type(event), getattr(event, "code", None), getattr(event, "finish_reason", 0)) for event in events]
    yield from itertools.pairwise(kinds)


def _ends_once(events: list[SourceEvent], cause: str | None) -> None:
    faults = [each for each in events if isinstance(each, SourceError)]
    assert len(faults) <= 1, faults
    assert faults == [] or events[-1] is faults[0], "something follows an error"
    well = [each for each in events if isinstance(each, ChainCompleted | ProviderCompleted) and _is_end(each)]
    assert cause is None or faults or well, "a stream that broke off has no end"


def _is_end(event: SourceEvent) -> bool:
    return isinstance(event, ChainCompleted) or (isinstance(event, ProviderCompleted) and event.ends_run)


def _keeps_little(make: Make, stream: bytes) -> None:
    """Check that the limits bound the stored data of an endless stream."""
    adapter = make(Limits(frame=2000, call=200, calls=4, text=200, depth=8))
    count = (_SATURATED if isinstance(adapter, FrameAdapter) else _UNDECIDED) // len(stream) + 1
    for chunk in pieces(stream * count, 50):
        adapter.take(chunk)
    before = stored(adapter)
    for chunk in pieces(stream * (3 * count), 50):
        adapter.take(chunk)
    kept = stored(adapter) - before
    assert kept < _KEPT, f"{kept} characters and bytes are kept of {3 * count * len(stream)}"


def _works_in_proportion(make: Make, stream: bytes) -> None:
    """Check that the work is proportional to the bytes, in pieces of sixteen."""
    pumped = stream * 8
    handled = characters_handled(lambda: read(make, DEFAULT_LIMITS, pieces(pumped, 16), None))
    assert handled <= _WORK * len(pumped) + 4000, f"{handled} are handled for {len(pumped)} bytes"


def _bodies(provider: Provider) -> list[bytes]:
    frames = provider.frames
    return [
        provider.body,
        provider.broken,
        *(b"".join(frames[:count]) for count in range(1, len(frames), 3)),
        b"".join(frames[::2]),
        b"".join([*frames[:3], *frames[-2:]]),
        b"".join([*frames, *frames]),
        provider.body.replace(b"\n", b"\r\n"),
        b'{"error": {"message": "no"}}',
        b"<html>Bad gateway</html>",
        *frames,
        *(each for frame in frames for each in (frame.replace(b'"', b"", 1), frame.replace(b"{", b"[", 1))),
    ]


def _words(provider: Provider) -> list[bytes]:
    """Return the names and values of the format."""
    found = {part for frame in provider.frames for part in frame.replace(b":", b",").split(b",") if 2 < len(part) < 40}
    common = [
        *(b"data: ", b"event: ", b"\n\n", b"null", b"{}", b"[]", b'""', b"-1", b"1e999", b"true", b'"\\ud83d"'),
        b'"a"',
    ]
    return [*common, b"data: [DONE]\n\n", b'"error":', b'"error":{"message":"no"}', *sorted(found)]


def make(name: str) -> Target:
    """Return the target of one format, or of the detection of formats."""
    reader: Make = OTHERS[name] if name in OTHERS else ADAPTERS[name]
    providers = [BY_NAME[name]] if name in BY_NAME else list(PROVIDERS)
    few = len(_bodies(providers[0])) if len(providers) == 1 else 9
    bodies = [body for provider in providers for body in _bodies(provider)[:few]]
    words = list(dict.fromkeys(word for provider in providers for word in _words(provider)))
    return Target(
        f"source:{name}", lambda given: check(reader, given), lambda: list(seeds(bodies, _CHOICES, laws=2)), words
    )

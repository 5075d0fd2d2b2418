"""Frames: the decoders of SSE and NDJSON return the frames of the whole stream, at any cuts and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamtools.events import SourceWarning
from streamtools.limits import DEFAULT_LIMITS
from streamtools.sources.adapter import Frame, Framed, LineDecoder, SSEDecoder, skipped
from tests.fuzz.target import Input, Target, pieces, seeds
from tests.sources.test_frames import CASES, LINES, frames, reference
from tests.support.bounds import characters_handled, stored
from tests.support.cuts import cut
from tests.support.provider_streams import PROVIDERS

_CHOICES = {"limit": (DEFAULT_LIMITS.frame, 1, 8, 40, 200), "lines": (False, True)}
_WORK = 40  # times as many bytes as there are in a stream are passed to functions while it is read in pieces
_BOM = b"\xef\xbb\xbf"
_PUMPED = 20_000  # bytes of a long stream


def check(given: Input) -> Iterator[object]:
    """Compare with the reference, at other cuts and with limits."""
    how = given.choose_all(_CHOICES)
    limit: int = how["limit"]
    make = LineDecoder if how["lines"] else SSEDecoder
    stream = given.body
    whole = frames(make(limit), [stream])
    for chunks in (pieces(stream, 1), cut(stream, given.places(len(stream)))):
        assert whole == frames(make(limit), chunks), f"cut as {chunks!r}"
    if how["lines"]:
        assert whole == _read_lines(stream, limit)
    elif limit == DEFAULT_LIMITS.frame:
        assert whole == reference(stream)
    else:
        assert [each for each in whole if isinstance(each, SourceWarning)] == _skipped(stream, limit)
    if given.wants(0) and limit <= 200 and stream:
        _keeps_little(make(limit), stream, limit)
    if given.wants(1) and len(stream) > 8:
        handled = characters_handled(lambda: frames(make(DEFAULT_LIMITS.frame), pieces(stream, 4)))
        assert handled <= _WORK * len(stream), f"{handled} bytes are handled for {len(stream)}"
    yield how["lines"], limit
    for each in whole:
        yield type(each)
        if isinstance(each, Frame):
            yield each.event[:8], each.data[:6], min(each.data.count(b"\n"), 3)


def _blocks(stream: bytes, end: bytes) -> list[bytes]:
    return re.sub(rb"\r\n?", b"\n", stream).split(end)


def _read_lines(stream: bytes, limit: int) -> list[Framed]:
    """Read the lines of the whole text."""
    lines = _blocks(stream, b"\n")
    over = [skipped(len(line), limit) if len(line) > limit else Frame(line.removeprefix(_BOM)) for line in lines]
    return [each for each in over if not isinstance(each, Frame) or each.data.strip()]


def _skipped(stream: bytes, limit: int) -> list[SourceWarning]:
    """Return the warnings about data over the limit, from the whole text."""
    blocks = _blocks(stream, b"\n\n")
    blocks[-1] = blocks[-1].removesuffix(b"\n")
    return [skipped(len(block), limit) for block in blocks if len(block) > limit]


def _keeps_little(decoder: SSEDecoder | LineDecoder, stream: bytes, limit: int) -> None:
    """Check that only a frame and the last name are stored."""
    before = stored(decoder)
    for chunk in pieces(stream * (_PUMPED // len(stream) + 1), 50):
        decoder.feed(chunk)
    kept = stored(decoder) - before
    assert kept <= 4 * limit + 64, f"{kept} bytes are kept, where a frame has {limit}"


def make() -> Target:
    """Return the target."""
    bodies = [stream for stream, _ in CASES.values()] + [stream for stream, _ in LINES.values()]
    bodies += [provider.body[:2000] for provider in PROVIDERS]
    words = [b"data", b"data: ", b"event: ", b"id: ", b"retry: ", b"\n\n", b"\r", b"\r\n", b"\r\n\r\n", b":", b"\xff"]
    words += [b"\xef\xbb\xbf", b"{", b"[{", b"}\n", b"data: {}\n\n", b"event: a\ndata: 1\nid: 7\n\n", b"\0", b"id: 7"]
    return Target("frames", check, lambda: list(seeds(bodies, _CHOICES, laws=2)), words)

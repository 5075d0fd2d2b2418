"""Frames: the decoders agree with a naive reference over every cut, keep to the limit, and lose nothing at the end."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.events import SourceWarning
from streamtools.sources.adapter import Frame, Framed, LineDecoder, SSEDecoder, skipped
from tests.support.cases import together
from tests.support.cuts import cut, places, usual_cuts


def frames(decoder: SSEDecoder | LineDecoder, chunks: Iterable[bytes]) -> list[Framed]:
    found = [frame for chunk in chunks for frame in decoder.feed(chunk)]
    return found + decoder.close()


def reference(stream: bytes) -> list[Frame]:
    """The standard's algorithm, line by line, with the differences that `SSEDecoder` declares."""
    found, data, bare, event, begins = [], list[bytes](), list[bytes](), "", True
    for line in [*re.split(rb"\r\n|\r|\n", stream), b""]:
        if begins and line:
            line = line.removeprefix(b"\xef\xbb\xbf")
            begins = False
            if not line:
                continue
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if not line:
            if data or event or bare:
                found.append(Frame(b"\n".join(data or bare), event or "message"))
            data, bare, event, begins = [], [], "", True
        elif name == b"data":
            data.append(value)
        elif name == b"event":
            event = value.decode(errors="replace")
        elif name not in (b"id", b"retry") and (bare or line.startswith(b"{") or line.rstrip() in (b"[", b"[{")):
            bare.append(line)
        elif re.search(rb"[^\t -~]", name):
            data.append(line)
    return found


CASES = {
    "one event of one line": (b"data: one\n\n", [Frame(b"one")]),
    "several events": (b"data: one\n\ndata: two\n\n", [Frame(b"one"), Frame(b"two")]),
    "CR ends lines": (b"data: one\r\rdata: two\r\r", [Frame(b"one"), Frame(b"two")]),
    "CRLF ends lines": (b"data: one\r\n\r\ndata: two\r\n\r\n", [Frame(b"one"), Frame(b"two")]),
    "three line ends in one stream": (
        b"data: one\r\n\ndata: two\n\r\ndata: three\r\n\r",
        [Frame(b"one"), Frame(b"two"), Frame(b"three")],
    ),
    "LF after CR is one end, LF after LF is two": (b"data: a\r\ndata: b\n\r\n", [Frame(b"a\nb")]),
    "more blank lines than needed": (b"\n\ndata: one\n\n\n\n\ndata: two\n\n\n", [Frame(b"one"), Frame(b"two")]),
    "data of several lines": (b"data: one\ndata:\ndata: three\n\n", [Frame(b"one\n\nthree")]),
    "one space after the colon is syntax, two are one": (b"data:one\ndata:  two\n\n", [Frame(b"one\n two")]),
    "a field without a colon is empty": (b"data\n\ndata\ndata\n\n", [Frame(b""), Frame(b"\n")]),
    "comments": (b": KEEP-ALIVE\n\n:\n: more\ndata: one\n: between\n\n", [Frame(b"one")]),
    "unknown fields": (b"retry: 10\nfoo: bar\ndata: one\ndatum: two\n data: three\n\n", [Frame(b"one")]),
    "retry alone dispatches nothing": (b"retry: 10\n\n", []),
    "a name": (b"event: add\ndata: 1\n\ndata: 2\n\n", [Frame(b"1", "add"), Frame(b"2")]),
    "a name without data is delivered": (b"event: ping\n\n", [Frame(b"", "ping")]),
    "an empty name is none": (b"event:\ndata: 1\n\n", [Frame(b"1")]),
    "an id is ignored": (b"id: a\0b\ndata: 1\n\nid: 7\n\nevent: a\ndata: 2\nid\n\n", [Frame(b"1"), Frame(b"2", "a")]),
    "a byte order mark": (b"\xef\xbb\xbfdata: one\n\n", [Frame(b"one")]),
    "the beginning of a byte order mark": (
        b"\xef\xbbdata: one\n\ndata: two\n\n",
        [Frame(b"\xef\xbbdata: one"), Frame(b"two")],
    ),
    "a second byte order mark is a part of the name": (
        b"\xef\xbb\xbf\xef\xbb\xbfdata: 1\n\ndata: 2\n\n",
        [Frame(b"\xef\xbb\xbfdata: 1"), Frame(b"2")],
    ),
    "a damaged line beside data": (b"data: 1\nda\0ta: 2\n\n: \0\n\n", [Frame(b"1\nda\0ta: 2")]),
    "a byte order mark before each event": (
        b"\xef\xbb\xbfdata: 1\n\n\n\xef\xbb\xbfdata: 2\n\n",
        [Frame(b"1"), Frame(b"2")],
    ),
    "a byte order mark alone": (b"\xef\xbb\xbf", []),
    "half of a byte order mark alone": (b"\xef\xbb", [Frame(b"\xef\xbb")]),
    "characters of several bytes": ("data: Zürich 🏔\n\n".encode(), [Frame("Zürich 🏔".encode())]),
    "only CR and LF end lines": (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\n\n".encode(),
        [Frame("a\u2028b\u2029c\x85d\x0be\x0cf\x1cg".encode())],
    ),
    "bytes that are no UTF-8": (b"event: \xff\ndata: \xff\n\n", [Frame(b"\xff", "\ufffd")]),
    "the last event without its blank line": (b"data: one\n\ndata: two\n", [Frame(b"one"), Frame(b"two")]),
    "the last event without any line end": (b"event: end\ndata: two", [Frame(b"two", "end")]),
    "a last comment without its line end": (b": bye", []),
    # Gemini's errors: JSON over several lines that are no fields; it begins an event of its own.
    "bare JSON": (
        b'data: 1\n\n{\n  "error": {\n    "code": 503\n  }\n}\n\ndata: 2\n\n',
        [Frame(b"1"), Frame(b'{\n  "error": {\n    "code": 503\n  }\n}'), Frame(b"2")],
    ),
    "bare JSON in one line, and a list": (
        b'{"a":1}\n\n[{\n}\n]\n\n[\n]\n\n[ \n]',
        [Frame(b'{"a":1}'), Frame(b"[{\n}\n]"), Frame(b"[\n]"), Frame(b"[ \n]")],
    ),
    "bare JSON beside a field": (b"event: error\n{\nid: 1\n}\n\n", [Frame(b"{\n}", "error")]),
    "data comes before bare JSON": (b"{}\ndata: 1\n{\n\n", [Frame(b"1")]),
    "lines that begin neither": (b' {}\n"a"\n[1]\n}\n\n', []),
    "nothing": (b"", []),
}


@together(("stream", "expected"), CASES.values(), ids=CASES)
def test_cases_of_the_standard_give_the_same_frames_at_every_cut(stream: bytes, expected: list[Frame]) -> None:
    """The frames equal the expected frames and those of the reference."""
    assert expected == reference(stream)
    for chunks in usual_cuts(stream):
        assert expected == frames(SSEDecoder(), chunks), chunks


_PIECES = [b"data", b"event", b"id", b"retry", b":", b": ", b" ", b"\n", b"\n\n", b"\r", b"\r\n", b"x", b"\0", b"\xff"]
_PIECES += [
    *(b"data: {}\n\n", b"data: {}\r\n\r\n", b"event: a\ndata: b\n\n", b"event: a\ndata: 1\nid: 7\n\n", b": c\n\n"),
    *(b"\xef\xbb\xbf", b"{", b"[", b'{\n  "a": 1\n}', "é\u2028".encode()),
]
_streams = st.lists(st.sampled_from(_PIECES), max_size=30).map(b"".join)


@given(_streams, places)
def test_any_stream_gives_the_frames_of_the_reference_at_any_cut(stream: bytes, where: list[int]) -> None:
    """The decoder is the reference, for streams that are made to be hard."""
    assert reference(stream) == frames(SSEDecoder(), cut(stream, where))


@given(_streams, places, st.integers(1, 20))
def test_the_limit_skips_the_same_frames_at_any_cut(stream: bytes, where: list[int], limit: int) -> None:
    """Only the size of a frame decides. Other frames are unaffected."""
    lines = re.sub(rb"\r\n?", b"\n", stream)
    blocks = lines.split(b"\n\n")
    blocks[-1] = blocks[-1].removesuffix(b"\n")
    expected = [skipped(len(block), limit) for block in blocks if len(block) > limit]
    found = frames(SSEDecoder(limit), cut(stream, where))
    assert expected == [frame for frame in found if isinstance(frame, SourceWarning)]
    assert found == frames(SSEDecoder(limit), [stream])


def test_a_frame_of_exactly_the_limit_passes_at_every_cut() -> None:
    """The limit counts the lines of a frame, and not the blank line that ends it."""
    stream = b"data: 123456\n\ndata: 1234567\n\nevent: x\ndata: 1\n\ndata: 2"
    expected = [Frame(b"123456"), skipped(13, 12), skipped(16, 12), Frame(b"2")]
    for chunks in usual_cuts(stream):
        assert expected == frames(SSEDecoder(12), chunks), chunks


def test_a_skipped_frame_at_the_end_of_the_stream_is_reported() -> None:
    """A frame that is over the limit and never ends is reported once, at the end, with the bytes it had."""
    for chunks in usual_cuts(b"data: 1\n\ndata: 23456789\n"):
        assert [Frame(b"1"), skipped(14, 10)] == frames(SSEDecoder(10), chunks)


@pytest.mark.parametrize(("make", "end"), [(SSEDecoder, b"\n\n"), (LineDecoder, b"\n")], ids=["SSE", "NDJSON"])
def test_an_endless_line_takes_no_memory(make: type[SSEDecoder | LineDecoder], end: bytes) -> None:
    """Fifty megabytes in one line are counted and not stored. The next frame is read."""
    decoder = make(1024 * 1024)
    chunk = b"x" * 65536
    tracemalloc.start()
    found = [frame for _ in range(800) for frame in decoder.feed(chunk)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    found += decoder.feed(end + b"data: 1" + end)
    value = b"1" if make is SSEDecoder else b"data: 1"
    assert [skipped(800 * 65536, 1024 * 1024), Frame(value)] == found
    assert peak < 4 * 1024 * 1024


def test_a_long_frame_that_arrives_in_small_chunks_is_one_frame() -> None:
    """A megabyte that arrives in pieces of seven bytes is joined once."""
    value = b"0123456789" * 100_000
    stream = b"data: " + value + b"\n\n"
    assert [Frame(value)] == frames(SSEDecoder(), [stream[at : at + 7] for at in range(0, len(stream), 7)])


LINES = {
    "lines": (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
    "CRLF and CR": (b"1\r\n2\r3\n", [b"1", b"2", b"3"]),
    "empty and blank lines": (b"\n1\n\n  \n2\n", [b"1", b"2"]),
    "the last line without its end": (b"1\n2", [b"1", b"2"]),
    "a byte order mark": (b"\xef\xbb\xbf1\n", [b"1"]),
    "a separator that is no line end": ('"a\u2028b"\n'.encode(), ['"a\u2028b"'.encode()]),
}


@pytest.mark.parametrize(("stream", "expected"), LINES.values(), ids=LINES)
def test_lines_of_ndjson_at_every_cut(stream: bytes, expected: list[bytes]) -> None:
    """One frame a line, whatever ends it."""
    for chunks in usual_cuts(stream):
        assert [Frame(line) for line in expected] == frames(LineDecoder(), chunks), chunks


def test_a_line_over_the_limit_is_skipped_at_every_cut() -> None:
    """The limit counts the line without its end."""
    for chunks in usual_cuts(b"1234\n12345\n123\n"):
        assert [Frame(b"1234"), skipped(5, 4), Frame(b"123")] == frames(LineDecoder(4), chunks), chunks

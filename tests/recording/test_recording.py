"""The files of recordings: what is written can be read again, and invalid files are reported."""

from __future__ import annotations

import io
import itertools
import json
import tempfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamtools.errors import RecordingError
from streamtools.recording import ExchangeHead, RecordedRequest, Recording, read_recording, read_recordings, shipped
from streamtools.recording import files as lines_module
from streamtools.recording.files import RecordingWriter, open_exchange
from streamtools.recording.format import Chunk, EndKind, RecordedResponse, StreamEnd

HEAD = ExchangeHead(
    source="openai",
    title="A greeting",
    recorded="2026-01-02T03:04:05Z",
    request=RecordedRequest(
        method="POST", url="http://127.0.0.1/v1/chat/completions", body={"stream": True, "n": [1, None]}
    ),
    response=RecordedResponse(status=200, headers={"content-type": "text/event-stream"}),
)
MARK = '{"streamtools":"recording","version":1,"source":"openai"}\n'

times = st.floats(min_value=0, max_value=1e9)
pieces = st.one_of(
    st.binary(max_size=40),
    st.text(max_size=20).map(str.encode),
    st.sampled_from(
        [b"", b"\xef\xbb\xbf", b"\r\n\r\n", b"\xe2\x82", b"\xac", b"\xf0\x9f\x98", b"\x80\x80\x80\x80", b"\xff\xfe"]
    ),
)


def write(recording: Recording, file: BinaryIO) -> None:
    """Write a recording to a file."""
    writer = RecordingWriter(file, recording.head)
    for at, data in recording.chunks:
        writer.chunk(data, at)
    writer.end(*recording.end)


def saved(folder: Path, *chunks: Chunk, end: StreamEnd) -> Path:
    """Write a recording to a file in `folder`, and return its path."""
    with (folder / "a.jsonl").open("wb") as file:
        write(Recording(HEAD, chunks, end), file)
    return folder / "a.jsonl"


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the JSON of each line of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@given(
    st.lists(st.tuples(times, pieces)),
    st.sampled_from(["end", "reset", "timeout"]),
    st.sampled_from(["", "ReadError"]),
    times,
)
def test_a_recording_is_read_as_it_was_written(
    chunks: list[tuple[float, bytes]], kind: EndKind, error: str, at: float
) -> None:
    """Times are rounded to microseconds."""
    first, second = io.BytesIO(), io.BytesIO()
    write(Recording(HEAD, tuple(Chunk(*chunk) for chunk in chunks), StreamEnd(kind, at, error)), first)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.jsonl")
        path.write_bytes(first.getvalue())
        read = read_recording(path)
        with open_exchange(path, 1) as opened:
            lazily = tuple(opened)
    write(read, second)

    assert read.head == HEAD
    assert [data for _, data in chunks] == [data for _, data in read.chunks]
    assert [round(at, 3) for at, _ in chunks] == [at for at, _ in read.chunks]
    assert StreamEnd(kind, round(at, 3), error) == read.end
    assert b"".join(data for _, data in chunks) == read.data
    assert read.chunks == lazily
    assert read.end == opened.end
    assert first.getvalue() == second.getvalue()


@given(st.text(min_size=1).map(str.encode), st.lists(st.integers(min_value=0)))
@example("né\u20ac\U0001f600".encode(), [2, 4, 5, 7, 8, 9])
def test_text_is_never_base64(text: bytes, places: list[int]) -> None:
    """Not even if a chunk boundary splits a character."""
    file = io.BytesIO()
    cuts = sorted({0, len(text), *(place % len(text) for place in places)})
    writer = RecordingWriter(file, HEAD)
    for start, stop in itertools.pairwise(cuts):
        writer.chunk(text[start:stop], 0)
    writer.end("end", 0)
    assert b'"base64"' not in file.getvalue()


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"data: a\n\n", {"at": 1.5, "text": "data: a\n\n"}),
        (b"", {"at": 1.5, "text": ""}),
        (b"caf\xc3", {"at": 1.5, "text": "caf", "after": "c3"}),
        (b"\xa9!", {"at": 1.5, "before": "a9", "text": "!"}),
        (b"\x9f\x98", {"at": 1.5, "before": "9f98"}),
        (b"\xf0\x9f\x98", {"at": 1.5, "after": "f09f98"}),
        (b"\x82\xac\xe2\x82", {"at": 1.5, "before": "82ac", "after": "e282"}),
        (b"a\xffb", {"at": 1.5, "base64": "Yf9i"}),
        (b"\x80\x80\x80\x80", {"at": 1.5, "base64": "gICAgA=="}),
    ],
)
def test_the_line_of_a_chunk(tmp_path: Path, data: bytes, line: dict[str, Any]) -> None:
    path = saved(tmp_path, Chunk(1.5, data), end=StreamEnd("end", 2))
    assert line == lines_of(path)[1]
    assert data == read_recording(path).data


def test_the_lines_of_a_recording(tmp_path: Path) -> None:
    """A recording has a head, chunks, and an end with length and digest."""
    path = saved(tmp_path, Chunk(0.12345, b"a"), Chunk(2, b"b"), end=StreamEnd("reset", 3, "ReadError"))

    assert lines_of(path) == [
        {
            "streamtools": "recording",
            "version": 1,
            "source": "openai",
            "title": "A greeting",
            "recorded": "2026-01-02T03:04:05Z",
            "request": {
                "method": "POST",
                "url": "http://127.0.0.1/v1/chat/completions",
                "body": {"stream": True, "n": [1, None]},
            },
            "response": {"status": 200, "headers": {"content-type": "text/event-stream"}},
        },
        {"at": 0.123, "text": "a"},
        {"at": 2.0, "text": "b"},
        {
            "at": 3.0,
            "end": "reset",
            "error": "ReadError",
            "bytes": 2,
            "sha256": "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603",
        },
    ]


def test_a_chunk_is_written_at_the_end_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        writer = RecordingWriter(file, HEAD)
        writer.chunk(b"a\n", 1)
        writer.chunk(b"b", 2)
        assert [{"at": 1.0, "text": "a\n"}] == lines_of(path)[1:]
        writer.end("end", 3)
    assert (Chunk(1, b"a\n"), Chunk(2, b"b")) == read_recording(path).chunks


NO_HEAD = "is not a recording: line 1 is not the head of a recording"
VERSION = "line 1, has the version {}, and this streamtools reads version 1"
MISMATCH = "line 3, has a length or digest that does not match the chunks above"
BAD_HEADS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b"\n \r\n", "is empty"),
    "zeros": (b"\0" * 100, NO_HEAD),
    "not UTF-8": (b"\x89PNG\r\n\xff", NO_HEAD),
    "prose": (b"# Title\n\nText.\n", NO_HEAD),
    "an array": (b"[1]\n", NO_HEAD),
    "deep": (b"[" * 100_000, NO_HEAD),
    "other JSON": (b'\n{"name":"x"}\n', NO_HEAD.replace("1", "2")),
    "no version": (b'{"streamtools":"recording","source":"openai"}\n', VERSION.format("None")),
    "a version in words": (b'{"streamtools":"recording","version":"1","source":"openai"}\n', VERSION.format("'1'")),
    "a later version": (b'{"streamtools":"recording","version":2}\n', VERSION.format("2")),
    "no source": (
        b'{"streamtools":"recording","version":1}\n',
        "line 1, cannot be read: Object missing required field `source`",
    ),
}
BAD_LINES: dict[str, tuple[bytes, str]] = {
    "no end": (b'{"at":1,"text":"a"}\n', "breaks off at line 2, without an end line"),
    "nothing but a head": (b"", "breaks off at line 1, without an end line"),
    "a second head, no end": (MARK.encode(), "breaks off at line 2, without an end line"),
    "half a line": (b'{"at":1,"te', "line 2, cannot be read: Input data was truncated"),
    "a bad line": (b"\n{x}\n", "line 3, cannot be read: JSON is malformed: object keys must be strings (byte 1)"),
    "a list": (b"[]\n", "line 2, cannot be read: Expected `object`, got `array`"),
    "text that is none": (b'{"text":1}\n', "line 2, cannot be read: Expected `str | null`, got `int` - at `$.text`"),
    "bad base64": (b'{"base64":"a"}\n', "line 2, cannot be read: invalid base64"),
    "bad hexadecimal": (
        b'{"before":"8","text":""}\n',
        "line 2, cannot be read: invalid hexadecimal in `before` or `after`",
    ),
    "other length": (b'{"text":"ab"}\n{"end":"end","bytes":1}\n', MISMATCH),
    "other digest": (b'{"text":"ab"}\n{"end":"end","bytes":2,"sha256":"00"}\n', MISMATCH),
}
BAD_FILES = BAD_HEADS | {name: (MARK.encode() + lines, message) for name, (lines, message) in BAD_LINES.items()}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_an_invalid_file_is_reported(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as whole:
        read_recording(path)
    with pytest.raises(RecordingError) as lazily:
        list(open_exchange(path, 1))
    separator = ", " if message.startswith("line") else " "
    assert f"{path}{separator}{message}" == str(whole.value)
    assert str(whole.value) == str(lazily.value)


def test_a_read_error_is_reported_with_the_file_name() -> None:
    """On Linux, reading page 0 of the process fails."""
    with pytest.raises(RecordingError) as whole:
        read_recording("/proc/self/mem")
    with pytest.raises(RecordingError) as any_file:
        open_exchange("/proc/self/mem")
    assert str(whole.value) == str(any_file.value) == "/proc/self/mem cannot be read: Input/output error"


def test_an_invalid_file_name_is_shown_as_repr() -> None:
    with pytest.raises(RecordingError) as error:
        open_exchange("a\0b")
    assert str(error.value).startswith("'a\\x00b' cannot be read: embedded null")


def test_a_line_that_is_too_long_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE", 2 * 1024 * 1024)
    path = tmp_path / "a.jsonl"
    path.write_bytes(MARK.encode() + b"x" * (2 * 1024 * 1024 + 1))
    with pytest.raises(RecordingError) as error:
        read_recording(path)
    assert f"{path}, line 2, is longer than 2 MiB" == str(error.value)


@pytest.mark.parametrize(
    "rest",
    ['{"at":1,"text":"a"}\n', '{"at":1,"text":"a"}\n{"at":2,"te', f'{{"at":1,"text":"a"}}\n{MARK}'],
    ids=["after a line", "in mid-line", "at the next head"],
)
def test_an_incomplete_recording_is_read_up_to_its_break(tmp_path: Path, rest: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(MARK + rest)
    with open_exchange(path, 1) as opened:
        assert Chunk(1, b"a") == next(iter(opened))
        with pytest.raises(RecordingError):
            next(iter(opened))
    assert opened.end is None


def test_an_edited_recording_needs_no_length_and_digest(tmp_path: Path) -> None:
    path = saved(tmp_path, Chunk(0, b"cold"), end=StreamEnd("end", 1))
    path.write_text(path.read_text().replace("cold", "hot"))
    path.write_text(path.read_text().split(',"bytes"')[0] + "}")
    assert (b"hot", StreamEnd("end", 1)) == (read_recording(path).data, read_recording(path).end)


def test_unknown_keys_and_lines_are_ignored(tmp_path: Path) -> None:
    """An unknown end is read as a reset."""
    path = tmp_path / "a.jsonl"
    path.write_text(
        '\ufeff{"streamtools":"recording","version":1,"source":"openai","mood":"fine","response":{"status":200,"x":1}}\n'
        '{"note":"a line of some other type","at":7}\n'
        "\n"
        '{"text":"a","weight":1}\r\n'
        '{"end":"closed","by":"the reader"}\n'
        '{"note":"after the end"}'
    )
    read = read_recording(path)

    assert ExchangeHead(source="openai", response=RecordedResponse(status=200)) == read.head
    assert (Chunk(7, b"a"),) == read.chunks
    assert StreamEnd("reset", 7) == read.end


def test_a_file_may_hold_several_exchanges(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    both = [
        Recording(HEAD, (Chunk(0, b"a"),), StreamEnd("end", 1), name=str(path)),
        Recording(ExchangeHead(source="latitude"), (Chunk(0, b"b"),), StreamEnd("timeout", 1), name=str(path)),
    ]
    with path.open("wb") as file:
        for recording in both:
            write(recording, file)
    with open_exchange(path, 1) as opened:
        first = list(opened)
    with pytest.raises(RecordingError) as error:
        read_recording(path)

    assert both == read_recordings(path)
    assert [Chunk(0, b"a")] == first
    assert f"{path} holds 2 exchanges, expected one" == str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        b'data: {"choices":[]}\n\ndata: [DONE]\n\n',
        b": OPENROUTER PROCESSING\n\ndata: {}\n\n",
        b"\xef\xbb\xbf\r\ndata:{}\r\n\r\n",
        b"data",
        b"event: latitude-event\ndata: {}\n\n",
        b"data: " + b"x" * 200_000 + b"\n\n",
        b'{"model":"m","message":{"content":"Hi."},"done":false}\n',
    ],
)
def test_a_raw_capture_is_read(tmp_path: Path, content: bytes) -> None:
    """Its source is detected later."""
    path = tmp_path / "a.sse"
    path.write_bytes(content)
    read = read_recording(path)
    assert (ExchangeHead(source="detect"), content, StreamEnd("end", 0)) == (read.head, read.data, read.end)
    assert {0.0} == {at for at, _ in read.chunks}


def test_a_closed_recording_has_no_more_chunks(tmp_path: Path) -> None:
    path = saved(tmp_path, Chunk(0, b"a"), Chunk(0, b"b"), end=StreamEnd("end", 1))
    with open_exchange(path, 1) as opened:
        first = next(iter(opened))
    assert (list(opened), opened.end, first.data) == ([], None, b"a")


def test_shipped_recordings_are_complete_and_small() -> None:
    recordings = {name: read_recording(path) for name, path in shipped().items()}
    assert len(recordings) >= 8
    for name, recording in recordings.items():
        assert recording.head.title, name
        assert len(recording.data) < 200_000, name
        assert len(recording.chunks) > 10, name
        assert sorted(recording.chunks, key=lambda chunk: chunk.at) == list(recording.chunks), name

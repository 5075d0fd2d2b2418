"""Streams that were saved in other forms: payloads one a line, raw captures, and older recordings."""

from __future__ import annotations

import base64
import io
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from streamtools import coalesce, replay
from streamtools.errors import RecordingError
from streamtools.events import UIEvent
from streamtools.recording import Chunk, End, read_recording, read_recordings, read_stream_file, shipped
from streamtools.recording.exchanges import exchanges_of
from streamtools.recording.file_writer import import_stream
from tests.support.options import grouped

CHAT = [
    {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi."}}]},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
]
"""The payloads of a stream."""


def lines_of(*payloads: Any) -> bytes:
    """Return payloads one a line, as the AI SDK keeps them."""
    return b"".join(json.dumps(payload).encode() + b"\n" for payload in payloads)


@pytest.mark.parametrize(
    "first",
    [
        {"choices": []},
        {"candidates": [{}]},
        {"type": "message_start", "message": {}},
        {"type": "response.created", "response": {}},
        {"type": "start", "messageId": "1"},
        {"event_type": "interaction.created", "interaction": {}},
    ],
    ids=["chat", "Gemini", "Anthropic", "Responses", "AI SDK", "interactions"],
)
@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf", b"\n\r\n"], ids=["", "BOM", "blank lines"])
def test_payloads_one_a_line(first: dict[str, Any], before: bytes, tmp_path: Path) -> None:
    """Each line is framed as the server-sent event that it was."""
    path = tmp_path / "stream.chunks.txt"
    path.write_bytes(before + lines_of(first) + b"\r\n" + b'{"x": "\\u2028"}')
    recording = read_stream_file(path)
    assert [b"data: " + json.dumps(first).encode() + b"\n\n", b'data: {"x": "\\u2028"}\n\n'] == [
        data for _, data in recording.chunks
    ]
    assert ("detect", End("end", 0.0)) == (recording.head.source, recording.end)


@pytest.mark.parametrize(
    "first",
    [
        {"type": "start", "run_id": "1", "seq": 1},
        {"type": "start", "run_id": "1"},
        {"type": "log"},
        {"type": 5},
        {"choices": "a or b"},
        {"name": "x"},
        ["choices"],
    ],
)
def test_other_lines_are_no_stream(first: Any, tmp_path: Path) -> None:
    """Lines of JSON that begin in another way, our own events among them, are refused as before."""
    path = tmp_path / "log.jsonl"
    path.write_bytes(lines_of(first, {"choices": []}))
    with pytest.raises(RecordingError, match="is not a recording: its line 1 is not the head of one"):
        read_stream_file(path)


async def events_of(path: Path, **options: Any) -> list[UIEvent]:
    """Return the events of a file, so that they can be compared."""
    return coalesce(await replay(path, **grouped(**options)))


@pytest.mark.anyio
async def test_payloads_give_the_events_of_their_stream(tmp_path: Path) -> None:
    """Replayed, the payloads of shipped recordings tell what the recordings tell."""
    for name, path in shipped().items():
        payloads = tmp_path / f"{name}.chunks.txt"
        data = read_recording(path).data
        payloads.write_bytes(b"".join(re.findall(rb"data: (\{.*\n)", data)))
        assert await events_of(path) == await events_of(payloads), name


def test_a_raw_capture_becomes_a_recording(tmp_path: Path) -> None:
    """Each event is a chunk, with its framing as it was; keys are overwritten, and the source can be told."""
    path, out = tmp_path / "a.sse", tmp_path / "a.jsonl"
    data = b'data: {"choices":[]}\r\n\r\n: sk-abcdefghijklmnop hunter2\n\ndata: [DONE]\n\n'
    path.write_bytes(data)
    assert 1 == import_stream(path, out, source="openai", redact=["hunter2"])
    recording = read_recording(out)
    assert [
        Chunk(0.0, b'data: {"choices":[]}\r\n\r\n'),
        Chunk(0.0, b": sk-**************** *******\n\n"),
        Chunk(0.0, b"data: [DONE]\n\n"),
    ] == list(recording.chunks)
    assert "openai" == recording.head.source
    assert 0o600 == stat.S_IMODE(out.stat().st_mode)


@pytest.mark.parametrize("end", [b"\n", b""])
def test_lines_of_json_become_a_recording(end: bytes, tmp_path: Path) -> None:
    """Of a stream of lines each line is a chunk."""
    path, out = tmp_path / "a.ndjson", tmp_path / "a.jsonl"
    path.write_bytes(b'{"message":{"content":"Hi."},"done":false}\n{"done":true}' + end)
    assert 1 == import_stream(path, out)
    assert [b'{"message":{"content":"Hi."},"done":false}\n', b'{"done":true}' + end] == [
        data for _, data in read_recording(out).chunks
    ]
    assert "detect" == read_recording(out).head.source


def test_recordings_are_redacted_once_more(tmp_path: Path) -> None:
    """A recording keeps its chunks, times and ends; what would not be written today is not written again."""
    path, out = tmp_path / "old.jsonl", io.BytesIO()
    head = {
        "streamtools": "recording",
        "version": 1,
        "source": "openai",
        "request": {
            "method": "POST",
            "url": "http://me:x@y/?key=1",
            "headers": {"cookie": "1"},
            "body": {"token": "1"},
        },
        "response": {"status": 200, "headers": {"set-cookie": "1", "server": "x"}},
    }
    path.write_bytes(
        lines_of(head, {"at": 5, "text": "sk-abcdef"}, {"at": 6, "text": "ghijklmnop"}, {"at": 7, "end": "reset"})
        + lines_of({**head, "request": None, "response": None}, {"at": 1, "end": "end"})
    )
    assert 2 == import_stream(path, out, source="text")
    new = tmp_path / "new.jsonl"
    new.write_bytes(out.getvalue())
    first, second = read_recordings(new)
    assert [Chunk(5, b"sk-******"), Chunk(6, b"**********")] == list(first.chunks)
    assert (End("reset", 7), End("end", 1)) == (first.end, second.end)
    assert first.head.request is not None
    assert first.head.response is not None
    assert ("http://y/?key=%5Bredacted%5D", {}, {"token": "[redacted]"}) == (
        first.head.request.url,
        first.head.request.headers,
        first.head.request.body,
    )
    assert {"server": "x"} == first.head.response.headers
    assert ("text", None) == (second.head.source, second.head.request)


SECRET = "0f9c2b7d5e8a4c1b"
"""A credential of no known format."""


@pytest.mark.parametrize(
    ("request_told", "written"),
    [
        (
            {"headers": {"content-type": "application/x-www-form-urlencoded"}, "body": f"client_secret={SECRET}&a=b"},
            "client_secret=%5Bredacted%5D&a=b",
        ),
        ({"body": {"messages": [SECRET], "token": SECRET}}, {"messages": ["*" * 16], "token": "[redacted]"}),
        ({"headers": {"Authorization": f"Bearer {SECRET}"}, "body": f"I am {SECRET}."}, f"I am {'*' * 16}."),
        (
            {
                "headers": {"content-type": "application/x-www-form-urlencoded"},
                "body_base64": base64.b64encode(b"\xff&key=" + SECRET.encode()).decode(),
            },
            base64.b64encode(b"\xff&key=" + b"*" * 16).decode(),
        ),
    ],
    ids=["form", "JSON", "header", "binary"],
)
def test_credentials_of_what_others_recorded(request_told: dict[str, Any], written: Any, tmp_path: Path) -> None:
    """They are taken out of the request, and overwritten in the response, which repeats them in two chunks."""
    path, out = tmp_path / "old.jsonl", tmp_path / "new.jsonl"
    told = {"method": "POST", "url": "http://x/", **request_told}
    head = {"streamtools": "recording", "version": 1, "source": "openai", "request": told}
    chunks = [{"at": 5, "text": f"no {SECRET[:5]}"}, {"at": 6, "text": SECRET[5:] + "\n"}]
    path.write_bytes(lines_of(head, *chunks, {"at": 7, "end": "end"}))

    import_stream(path, out, keep_unreadable=True)

    recording = read_recording(out)
    assert recording.head.request is not None
    assert written == (recording.head.request.body or recording.head.request.body_base64)
    assert b"no " + b"*" * 16 + b"\n" == recording.data
    assert SECRET[5:].encode() not in out.read_bytes()
    (exchange,) = exchanges_of(path)
    assert recording.head.request == exchange.request


def test_a_secret_that_cannot_be_looked_for(tmp_path: Path) -> None:
    """It is refused before the target is emptied."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines_of({"choices": []}))
    with pytest.raises(ValueError, match="a text to be redacted"):
        import_stream(path, path, redact=[""])
    assert lines_of({"choices": []}) == path.read_bytes()


def test_what_is_shipped_needs_no_more_redaction(tmp_path: Path) -> None:
    """The recordings that come with the package are, imported, as they are."""
    for path in shipped().values():
        import_stream(path, tmp_path / "a.jsonl")
        assert path.read_bytes() == (tmp_path / "a.jsonl").read_bytes()

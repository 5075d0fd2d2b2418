"""Streams that were saved in other forms: payloads one a line, raw captures, and older recordings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from streamtools import coalesce, replay
from streamtools.errors import RecordingError
from streamtools.events import UIEvent
from streamtools.recording import StreamEnd, read_recording, read_stream_file, shipped
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
    assert ("detect", StreamEnd("end", 0.0)) == (recording.head.source, recording.end)


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
    with pytest.raises(RecordingError, match="is not a recording: line 1 is not the head"):
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

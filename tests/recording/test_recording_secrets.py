"""Keys in any part of an exchange are overwritten in its recording."""

from __future__ import annotations

import io
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from streamtools.recording import ExchangeHead, RecordingTransport, read_recording
from streamtools.recording.files import RecordingWriter
from streamtools.recording.format import Chunk, RecordedResponse
from streamtools.recording.redaction import describe_request, encode_secrets, redact_head, redact_request, redact_text
from streamtools.recording.transports import ExchangeFile
from tests.recording.test_recording_transport import answering, in_memory
from tests.support.bodies import Pieces
from tests.support.loops import ONE_LOOP
from tests.support.planted import KEYS, found

OPAQUE = "0f9c2b7d5e8a4c1b"  # a key in an unknown format
HEAD = ExchangeHead(source="openai")


class Refused(httpx.ReadError):
    """An error whose message contains a key."""


@ONE_LOOP  # the result depends only on the bytes
@pytest.mark.parametrize("stride", [13, pytest.param(3, marks=pytest.mark.deep)])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
async def test_no_key_is_in_a_recording(key: str, stride: int, tmp_path: Path) -> None:
    """Lengths do not change."""
    data = f'data: {{"error":"{key} and\\n{key}"}}\n\n'.encode()
    quoted = quote(key, safe="")
    url = f"http://user:{quoted}@x/bot/{quoted}/v1?key={quoted}&q={quoted}#{quoted}"
    asked = {"messages": [{"role": "user", "content": f"My key is {key}."}], "api_key": key, key: "x"}
    headers = {"Authorization": key, "User-Agent": f"me/1 {key}", "X-Other": key}
    answers = [
        httpx.Response(200, headers={"x-request-id": key}, stream=Pieces(data[:cut], data[cut:], Refused(key)))
        for cut in range(1, len(data), stride)
    ]
    file = io.BytesIO()
    transport = RecordingTransport(answering(*answers), file, record_body=True)
    async with httpx.AsyncClient(transport=transport) as client:
        for _ in answers:
            with pytest.raises(Refused):
                await client.post(url, headers=headers, json=asked)
    assert [] == found(file.getvalue())
    exchanges = in_memory(file, tmp_path)
    assert 1 == len({each.data for each in exchanges})
    assert [(cut, len(data) - cut) for cut in range(1, len(data), stride)] == [
        tuple(len(chunk.data) for chunk in each.chunks) for each in exchanges
    ]
    assert ["Refused"] == list({each.end.error for each in exchanges if each.end})


def test_a_traceback_with_local_variables_contains_no_secret() -> None:
    assert OPAQUE not in repr(ExchangeFile(io.BytesIO(), redact=[OPAQUE]))


async def test_secrets_of_the_caller_are_overwritten(tmp_path: Path) -> None:
    secrets = ["hunter2", *(f"cust-{number}" for number in range(17, 21))]
    answer = httpx.Response(200, headers={"server": "cust-17"}, stream=Pieces(b"hun", b"ter2 and cus", b"t-18\n"))
    path = tmp_path / "a.jsonl"
    transport = RecordingTransport(answering(answer), path, source="text", redact=iter(secrets), record_body=True)
    async with httpx.AsyncClient(transport=transport) as client:
        assert "hunter2 and cust-18\n" == (await client.post("http://x/cust-19", json={"hunter2": ["cust-20"]})).text
    recording = read_recording(path)
    assert RecordedResponse(status=200, headers={"server": "*******"}) == recording.head.response
    assert recording.head.request is not None
    assert ("http://x/*******", {"*******": ["*******"]}) == (recording.head.request.url, recording.head.request.body)
    assert b"******* and *******\n" == recording.data
    assert [3, 12, 5] == [len(chunk.data) for chunk in recording.chunks]


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://x/a%20b/c?d=e+f&g=%2F#h", "https://x/a%20b/c?d=e+f&g=%2F#h"),
        (f"https://x/{KEYS['openai, old']}", f"https://x/sk-{'*' * 40}"),
        ("https://x/?q=Bearer%20abcdefghijklmnop", "https://x/?q=Bearer%20****************"),
        ("https://x/?q=sk%2Dabcdefghijklmnop", "https://x/?q=sk-****************"),
        ("https://x/?sk-abcdefghijklmnop=1", "https://x/?sk-****************=1"),
        ("http://[::1]:8080/v1/models/gpt-4o-mini-2024-07-18", "http://[::1]:8080/v1/models/gpt-4o-mini-2024-07-18"),
    ],
)
def test_keys_in_urls_are_overwritten(url: str, written: str) -> None:
    """Other parts of the URL do not change."""
    assert written == redact_request(describe_request("GET", url, []), encode_secrets([])).url


def test_the_title_is_searched_for_secrets() -> None:
    assert (
        "asked for *******" == redact_head(ExchangeHead(source="openai", title="asked for hunter2"), ["hunter2"]).title
    )


def test_a_body_may_contain_half_a_surrogate_pair() -> None:
    assert "\ud800" == redact_text("\ud800")


def test_undecided_chunks_are_not_written(tmp_path: Path) -> None:
    """A chunk is written when no key can continue after it."""
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        writer = RecordingWriter(file, HEAD)
        writer.chunk(b"data: a\n\n", 1)
        writer.chunk(b"data: sk-", 2)
        writer.chunk(b"", 3)
        assert 2 == len(path.read_bytes().splitlines())
        writer.chunk(b"abc", 4)
        writer.chunk(b"!\n", 5)
        assert 6 == len(path.read_bytes().splitlines())
        writer.chunk(b"see sk-ab", 6)
        writer.end("reset", 7)
        assert 8 == len(path.read_bytes().splitlines())
    chunks = [Chunk(1, b"data: a\n\n"), Chunk(2, b"data: sk-"), Chunk(3, b""), Chunk(4, b"abc"), Chunk(5, b"!\n")]
    assert [*chunks, Chunk(6, b"see sk-**")] == list(read_recording(path).chunks)

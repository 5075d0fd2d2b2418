"""Keys planted in every place of an exchange: none of them is in the recording."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from streamtools.recording import (
    Chunk,
    Head,
    RecordingTransport,
    RecordingWriter,
    Request,
    Response,
    Secret,
    describe_request,
    describe_response,
    read_recording,
)
from streamtools.recording.recorder import ExchangeFile
from streamtools.recording.redact import MOST, read_request, redact_head, redact_text
from tests.recording.test_recording_transport import Pieces, answering, in_memory
from tests.support.cases import together
from tests.support.loops import ONE_LOOP
from tests.support.planted import KEYS, core, found

OPAQUE = "0f9c2b7d5e8a4c1b"  # a key of no known format
HEAD = Head(source="openai")


class Refused(httpx.ReadError):
    """An error whose text has a key."""


@pytest.mark.anyio
@ONE_LOOP  # bytes are what counts here
@pytest.mark.parametrize("stride", [13, pytest.param(3, marks=pytest.mark.deep)])
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
async def test_no_key_is_in_a_recording(key: str, stride: int, tmp_path: Path) -> None:
    """In headers, URL, request body, response, at each cut, and in what was raised: nowhere, and lengths stay."""
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
    async with httpx.AsyncClient(transport=RecordingTransport(answering(*answers), file)) as client:
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


@pytest.mark.anyio
async def test_the_credentials_of_a_request_are_looked_for_everywhere() -> None:
    """A key of no known format that the request sends is in no other place either."""
    answer = httpx.Response(401, stream=Pieces(b'{"error":"no such key: ' + OPAQUE[:9].encode(), b'4c1b"}'))
    answers = answering(answer, httpx.Response(200, stream=Pieces(OPAQUE[:5].encode(), OPAQUE[5:].encode())))
    file = io.BytesIO()
    async with httpx.AsyncClient(transport=RecordingTransport(answers, file)) as client:
        await client.post("http://x", headers={"api-key": OPAQUE}, json={"text": OPAQUE})
        await client.post(f"http://x/{OPAQUE}", headers={"authorization": f"Bearer {OPAQUE}"})
    assert b'"text":"' + b"*" * 16 in file.getvalue()
    assert OPAQUE.encode() not in file.getvalue()
    assert OPAQUE[5:].encode() not in file.getvalue()


def test_what_is_looked_for_is_not_shown() -> None:
    """A traceback with the values of names, as a reporter of errors takes it, tells no secret."""
    assert OPAQUE not in repr(ExchangeFile(io.BytesIO(), redact=[OPAQUE]))


@pytest.mark.anyio
async def test_secrets_of_the_user(tmp_path: Path) -> None:
    """Texts and patterns that the user gives are overwritten in every place; `edit` sees each head first."""
    title = "asked for hunter2"

    def entitle(head: Head) -> Head:
        return Head(source="openai", title=title, recorded="today", request=head.request, response=head.response)

    secrets: list[Secret] = ["hunter2", re.compile(r"cust-[0-9]+")]
    answer = httpx.Response(200, headers={"server": "cust-17"}, stream=Pieces(b"hun", b"ter2 and cus", b"t-18\n"))
    path = tmp_path / "a.jsonl"
    transport = RecordingTransport(answering(answer), path, source="text", redact=iter(secrets), edit=entitle)
    async with httpx.AsyncClient(transport=transport) as client:
        assert "hunter2 and cust-18\n" == (await client.post("http://x/cust-19", json={"hunter2": ["cust-20"]})).text
    recording = read_recording(path)
    assert (
        Head(
            source="openai",
            title="asked for *******",
            recorded="today",
            request=recording.head.request,
            response=Response(status=200, headers={"server": "*******"}),
        )
        == recording.head
    )
    assert recording.head.request is not None
    assert ("http://x/*******", {"*******": ["*******"]}) == (recording.head.request.url, recording.head.request.body)
    assert b"******* and *******\n" == recording.data
    assert [3, 12, 5] == [len(chunk.data) for chunk in recording.chunks]


@together(
    ("url", "headers", "content", "credentials"),
    [
        ("http://x", [("Authorization", f"Bearer {OPAQUE}")], b"", [OPAQUE]),
        ("http://x", [("Authorization", OPAQUE)], b"", [OPAQUE]),
        ("http://x", [("x-goog-api-key", OPAQUE), ("x-other", OPAQUE[::-1])], b"", [OPAQUE]),
        ("http://x", [("Authorization", "Basic " + base64.b64encode(f"me:{OPAQUE}".encode()).decode())], b"", None),
        ("http://x", [("Authorization", "Basic no base64, it is none")], b"", ["no base64, it is none"]),
        ("http://x", [("Authorization", "Bearer ollama"), ("api-key", "not-needed")], b"", []),
        (f"http://{OPAQUE}:{OPAQUE}a%21@x/?key={OPAQUE}b&q=1", [], b"", [OPAQUE, OPAQUE + "a!", OPAQUE + "b"]),
        ("http://x", [], json.dumps({"a": [{"token": OPAQUE, "n": 1, "b": OPAQUE[::-1]}]}).encode(), [OPAQUE]),
        ("http://x", [("Content-Type", "application/x-www-form-urlencoded")], f"key={OPAQUE}".encode(), [OPAQUE]),
        ("http://x", [("Content-Type", "text/plain")], f"key={OPAQUE}".encode(), []),
        ("http://x", [], b"[" * 100_000, []),
        (
            "http://x",
            [("content-type", "text/plain, application/x-www-form-urlencoded")],
            f"key={OPAQUE}".encode(),
            [OPAQUE],
        ),
    ],
)
def test_what_a_request_sends_as_credentials(
    url: str, headers: list[tuple[str, str]], content: bytes, credentials: list[str] | None
) -> None:
    """By the names of headers and keys, and if they are too long for a word."""
    given = read_request("POST", url, headers, content, (), False)[1]
    assert credentials == given if credentials is not None else given[-1] == OPAQUE


@pytest.mark.parametrize(("character", "least"), [("x", 4096), ("\U0001f511", 292)])
def test_a_credential_of_any_length(character: str, least: int) -> None:
    """What is too long to be looked for as a whole is overwritten piece by piece, but for a last one that is a word."""
    for many in (least, least + 1, MOST):
        secret = character * many
        asked = describe_request("POST", "http://x", [], json.dumps({"token": secret, "text": f"<{secret}>"}).encode())

        assert {"token": "[redacted]"} == {"token": asked.body["token"]}
        rest = asked.body["text"].strip("<>").lstrip("*")
        assert len(rest) < 16, many
    numbers = "".join(map(str, range(20_000)))
    assert numbers.startswith(
        "".join(looked_for := read_request("GET", "http://x", [("token", numbers)], b"", (), False)[1])
    )
    assert MOST <= sum(map(len, looked_for)) < MOST + 300


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("https://x/bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw-1/send", f"https://x/bot123456789:{'*' * 36}/send"),
        ("https://x/a%20b/c?d=e+f&g=%2F#h", "https://x/a%20b/c?d=e+f&g=%2F#h"),
        (f"https://x/{KEYS['openai, old']}", f"https://x/sk-{'*' * 40}"),
        ("https://x/?q=Bearer%20abcdefghijklmnop", "https://x/?q=Bearer%20****************"),
        ("https://x/?q=sk%2Dabcdefghijklmnop", "https://x/?q=sk-****************"),
        ("https://x/?sk-abcdefghijklmnop=1", "https://x/?sk-****************=1"),
        ("http://[::1]:8080/v1/models/gpt-4o-mini-2024-07-18", "http://[::1]:8080/v1/models/gpt-4o-mini-2024-07-18"),
    ],
)
def test_keys_in_urls(url: str, written: str) -> None:
    """In each part of a URL, escaped or not; what is no key stays as it is written."""
    assert written == describe_request("GET", url, []).url


@pytest.mark.parametrize(
    ("headers", "content", "field"),
    [
        (
            [("content-type", "application/x-www-form-urlencoded; charset=utf-8")],
            b"a=b&token=c",
            {"body": "a=b&token=%5Bredacted%5D"},
        ),
        ([], b"my key: sk-abcdefghijklmnop", {"body": "my key: sk-****************"}),
        ([], b"\xff sk-abcdefghijklmnop", {"body_base64": base64.b64encode(b"\xff sk-****************").decode()}),
        ([], b'{"a":"sk-abcdefghijklmnop","b":1.5}', {"body": {"a": "sk-****************", "b": 1.5}}),
    ],
    ids=["form", "text", "binary", "JSON"],
)
def test_keys_in_bodies(headers: list[tuple[str, str]], content: bytes, field: dict[str, Any]) -> None:
    """In bodies of any kind, binary ones too."""
    written = describe_request("POST", "http://x", headers, content, keep_unreadable=True)
    assert field == {name: getattr(written, name) for name in field}


def test_a_head_is_redacted_whoever_has_made_it() -> None:
    """A writer that is given a head with a key in it, or an error with one, writes none."""
    key = KEYS["anthropic"]
    request = Request(method="POST", url=f"http://x/{key}", headers={"accept": key}, body=[key])
    head = Head(source="x", title=key, request=request, response=Response(status=200, headers={"date": key}))
    file = io.BytesIO()
    with RecordingWriter(file, head) as writer:
        writer.chunk(key.encode(), 1)
        writer.end("reset", 2, f"Error: {key}")
    assert core(key) not in file.getvalue()
    assert redact_head(head) == redact_head(redact_head(head))
    assert Response(status=200, headers={"date": redact_text(key)}) == describe_response(200, [("date", key)])


def test_a_surrogate_is_no_trouble() -> None:
    """Half of a pair may come out of a body that was JSON."""
    assert "\ud800" == redact_text("\ud800")


def test_a_killed_writer_loses_what_was_undecided(tmp_path: Path) -> None:
    """A chunk is in the file when it is certain that no key goes on from it; one that waits keeps its time and cut."""
    path = tmp_path / "a.jsonl"
    writer = RecordingWriter(path, HEAD)
    writer.chunk(b"data: a\n\n", 1)
    writer.chunk(b"data: sk-", 2)
    writer.chunk(b"", 3)
    assert 2 == len(path.read_bytes().splitlines())
    writer.chunk(b"abc", 4)
    writer.chunk(b"!\n", 5)
    assert 6 == len(path.read_bytes().splitlines())
    writer.chunk(b"see sk-ab", 6)
    writer.close()
    assert 7 == len(path.read_bytes().splitlines())
    chunks = [Chunk(1, b"data: a\n\n"), Chunk(2, b"data: sk-"), Chunk(3, b""), Chunk(4, b"abc"), Chunk(5, b"!\n")]
    assert [*chunks, Chunk(6, b"see sk-**")] == list(read_recording(path, strict=False).chunks)

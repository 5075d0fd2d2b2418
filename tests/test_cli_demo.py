"""`streamtools demo`, and the server on this machine that it asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute

from streamtools.cli import main, server
from streamtools.cli.demo import FEATURED
from streamtools.cli.server import Provider
from streamtools.recording import (
    Chunk,
    End,
    EndKind,
    Head,
    Recording,
    RecordingWriter,
    Request,
    Response,
    read_recording,
    shipped,
)

_BODY = {"model": "m", "messages": [{"role": "user", "content": "Why?"}], "stream": True}


def made(*chunks: bytes, end: EndKind = "end", response: Response | None = None) -> Recording:
    """Return a recording of an answer to `_BODY`."""
    request = Request(method="POST", url="https://example.org/v1/chat/completions", body=_BODY)
    head = Head(source="openai", title="Made up", request=request, response=response)
    return Recording(head, tuple(Chunk(float(at), data) for at, data in enumerate(chunks)), End(end, 9.0))


def test_three_answers_are_shown_with_their_calls_executed(capsys: pytest.CaptureFixture[str]) -> None:
    """A call of each dialect is executed, headings stay, and no text of a call is to be seen."""
    assert 0 == main(["demo", "--speed", "20"])
    shown = capsys.readouterr()
    assert "" == shown.err
    assert "gemma-3-270m answers, recorded, streamed by http://127.0.0.1:" in shown.out
    assert "their weather is invented" in shown.out
    assert "❯ What is the weather in Paris?\n\nI will look up the weather in Paris.\n\n" in shown.out
    assert "🔧 Executed get_weather: Paris: light rain, 14 °C (" in shown.out
    assert "🔧 Executed add → 41.5 (" in shown.out
    assert "\n\n###### Note\n\nDo not let it boil.\n\n### Summary\n\n" in shown.out
    assert [0, 0, 0] == [shown.out.count(text) for text in ("~~~", "###:", '{"')]
    assert 3 == shown.out.count("✔ finished (stop)")


def test_all_recordings_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """`--all` plays every recording: quoted markers are text, a call that was cut is told as cut and not executed."""
    assert 0 == main(["demo", "--all", "--speed", "0"])
    shown = capsys.readouterr()
    assert "" == shown.err
    assert [1] * len(shipped()) == [shown.out.count(f"── {name}: ") for name in shipped()]
    assert "```\n~~~tool_call\n{" in shown.out
    assert "✂ truncated (length) · 1 malformed call ·" in shown.out
    assert 8 == shown.out.count("🔧 Executed ")
    assert "demo --all" not in shown.out


def test_the_featured_recordings_hold_a_call_of_each_dialect_and_headings() -> None:
    """They are what the demo is for, and no answer among them quotes a marker."""
    texts = []
    for name in FEATURED:
        frames = read_recording(shipped()[name]).data.decode().split("\n\n")
        chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: {")]
        texts.append("".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]))
    tilde, hashes, headings = texts
    assert (1, 0) == (tilde.count("~~~tool_call"), tilde.count("###"))
    assert (1, 0) == (hashes.count("###:"), hashes.count("~~~"))
    assert (0, 0, True) == (headings.count("###:"), headings.count("~~~"), headings.startswith("# "))


def test_an_answer_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connection that breaks is a failed stream and status 1; the other answers are shown."""
    paths = {}
    for name, kind in {"good": "end", "bad": "reset"}.items():
        data = b'data: {"choices":[{"index":0,"delta":{"content":"Be"},"finish_reason":%b}]}\n\n'
        recording = made(data % (b'"stop"' if kind == "end" else b"null"), end="end" if kind == "end" else "reset")
        request = Request(method="POST", url="http://127.0.0.1/", body={**_BODY, "user": name})
        paths[name] = tmp_path / name
        with RecordingWriter(paths[name], Head(source="openai", request=request)) as writer:
            for at, data in recording.chunks:
                writer.chunk(data, at)
            writer.end("end" if kind == "end" else "reset", 9.0)
    monkeypatch.setattr("streamtools.cli.demo.shipped", lambda: paths)
    monkeypatch.setattr("streamtools.cli.demo.FEATURED", ("bad", "good"))
    assert 1 == main(["demo", "--speed", "0"])
    shown = capsys.readouterr()
    assert "✘ failed (stream_interrupted)" in shown.out
    assert "✔ finished (stop)" in shown.out
    assert shown.err.startswith("streamtools: bad: the stream failed: the connection to the provider was lost: ")


def test_a_server_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where even the loopback interface is closed, one line says so."""

    class Unreachable(Provider):
        async def __aenter__(self) -> Self:
            await super().__aenter__()
            async with await anyio.create_tcp_listener(local_host="127.0.0.1") as gone:
                port = gone.extra(SocketAttribute.local_port)
            self.url = f"http://127.0.0.1:{port}{server.PATH}"
            return self

    monkeypatch.setattr("streamtools.cli.demo.Provider", Unreachable)
    assert 1 == main(["demo"])
    assert capsys.readouterr().err.startswith("streamtools: the server of the demo cannot be reached: ConnectError(")


def test_a_server_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where no port can be had, one line says so."""

    async def refuse(**_: object) -> object:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(anyio, "create_tcp_listener", refuse)
    assert 1 == main(["demo"])
    expected = "streamtools: no server can be started on 127.0.0.1: Operation not permitted\n"
    assert expected == capsys.readouterr().err


async def post(url: str, **options: Any) -> tuple[int, str, bytes]:
    """Return the status, the content type and the body of a response."""
    async with httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(url, **options)
        return response.status_code, response.headers["content-type"], response.content


@pytest.mark.anyio
async def test_the_recorded_answer_is_given_byte_for_byte() -> None:
    """A request with the recorded body, in whatever order, gets the recorded response; empty chunks end nothing."""
    recording = made(
        b"data: 1\n\n", b"", b"data: 2\n\n", response=Response(status=201, headers={"content-type": "x/y"})
    )
    nameless = Recording(Head(source="openai"), (), None)
    async with Provider([recording, nameless], speed=0) as provider:
        body = dict(reversed(_BODY.items()))
        assert (201, "x/y", b"data: 1\n\ndata: 2\n\n") == await post(provider.url, json=body)


@pytest.mark.anyio
async def test_shipped_recordings_are_told_apart() -> None:
    """Each request gets its own answer, also the two that differ in `max_tokens` only."""
    recordings = {name: read_recording(path) for name, path in shipped().items()}
    async with Provider(recordings.values(), speed=0) as provider:
        for recording in recordings.values():
            assert recording.head.request is not None
            answer = await post(provider.url, json=recording.head.request.body)
            assert (200, "text/event-stream", recording.data) == answer


@pytest.mark.anyio
@pytest.mark.parametrize("content", [b"{}", b"", b"no JSON", b"[" * 100_000, b"\xff"])
async def test_other_requests_are_not_found(content: bytes) -> None:
    """Who asks for what was never recorded is told so."""
    async with Provider([made()], speed=0) as provider:
        status, kind, body = await post(provider.url, content=content)
    assert (404, "application/json") == (status, kind)
    assert "Not Found: nobody has recorded an answer to this request" == json.loads(body)["error"]["message"]


@pytest.mark.anyio
async def test_other_paths_and_methods_are_not_found() -> None:
    """There is one thing to ask for."""
    async with Provider([made()], speed=0) as provider, httpx.AsyncClient(trust_env=False) as client:
        assert 404 == (await client.post(provider.url + "/more", json=_BODY)).status_code
        assert 404 == (await client.request("GET", provider.url, json=_BODY)).status_code


@pytest.mark.anyio
@pytest.mark.parametrize("size", [b"-1", b"many", b"99999999999"])
async def test_a_bad_length_is_refused(size: bytes) -> None:
    """A body of unknown or absurd length is not waited for."""
    async with Provider([made()], speed=0) as provider:
        assert b"HTTP/1.1 400 " == (await talk(provider, b"POST / HTTP/1.1\r\ncontent-length: %b\r\n\r\n" % size))[:13]


@pytest.mark.anyio
@pytest.mark.parametrize("request_", [b"", b"POST", b"x" * 100_000, b"POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\n{"])
async def test_what_is_no_request_is_left_alone(request_: bytes) -> None:
    """A client that leaves early, or speaks no HTTP, gets no answer, and the next one is served."""
    async with Provider([made(b"data: 1\n\n")], speed=0) as provider:
        assert b"" == await talk(provider, request_)
        assert 200 == (await post(provider.url, json=_BODY))[0]


@pytest.mark.anyio
async def test_a_recorded_reset_cuts_the_response() -> None:
    """What broke off then breaks off now, without the last chunk."""
    async with Provider([made(b"data: 1\n\n", end="reset")], speed=0) as provider:
        with pytest.raises(httpx.RemoteProtocolError):
            await post(provider.url, json=_BODY)


@pytest.mark.anyio
async def test_a_client_may_leave_in_the_middle() -> None:
    """A client that has seen enough closes the connection, and the server goes on with the next one."""
    many = made(*[b"data: %b\n\n" % (b"x" * 100_000)] * 100)
    async with Provider([many], speed=0) as provider:
        url, body = httpx.URL(provider.url), json.dumps(_BODY).encode()
        async with await anyio.connect_tcp(url.host, url.port or 0) as stream:
            await stream.send(b"POST %b HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (url.raw_path, len(body), body))
            assert b"HTTP/1.1 200 " == (await stream.receive())[:13]
        assert many.data == (await post(provider.url, json=_BODY))[2]


async def talk(provider: Provider, request: bytes) -> bytes:
    """Return all that the server answers to `request`, after which the client says no more."""
    url = httpx.URL(provider.url)
    answer = b""
    async with await anyio.connect_tcp(url.host, url.port or 0) as stream:
        try:
            await stream.send(request)
            await stream.send_eof()
            while True:
                answer += await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):  # the last where it left before we did
            return answer

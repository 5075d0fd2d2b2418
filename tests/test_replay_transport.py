"""Recordings as the answers of an HTTP client: which exchange is played, what a miss says, how a stream breaks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from streamtools import chat, coalesce, replay
from streamtools.conversation.models import OpenAIChat, Timeouts
from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.events import Done, Executed, UIEvent
from streamtools.recording import (
    EndKind,
    Exchange,
    Head,
    PlaybackOptions,
    RecordingTransport,
    RecordingWriter,
    ReplayBytes,
    ReplayTransport,
    Request,
    Response,
    VirtualClock,
    describe_request,
    shipped,
)
from streamtools.recording.exchanges import open_exchange
from tests.provider import Provider
from tests.stories import story
from tests.talks import PARIS, QUESTION, TOOLS, calls, says
from tests.test_replaying import ANSWER, now

URL = "https://api.example.org/v1/chat/completions"
ANSWERED = Response(status=200, headers={"content-type": "text/event-stream", "x-request-id": "r1"})


def ask(text: str, **more: Any) -> dict[str, Any]:
    """Return the body of a request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True, **more}


def write(
    path: Path,
    *exchanges: tuple[Request | None, Sequence[bytes]],
    end: EndKind = "end",
    error: str = "",
    response: Response | None = ANSWERED,
) -> Path:
    """Write exchanges into one file, each chunk a tenth of a second behind the one before."""
    with path.open("wb") as file:
        for request, chunks in exchanges:
            writer = RecordingWriter(file, Head(source="openai", request=request, response=response))
            for at, chunk in enumerate(chunks, start=1):
                writer.chunk(chunk, at * 100)
            writer.end(end, len(chunks) * 100, error)
    return path


def request(body: Any, method: str = "POST", url: str = URL) -> Request:
    """Return a request as it is recorded."""
    return Request(method=method, url=url, body=body)


async def post(transport: ReplayTransport, body: Any, url: str = URL, **more: Any) -> bytes:
    """Return what an asynchronous client reads."""
    async with httpx.AsyncClient(transport=transport) as client, client.stream("POST", url, json=body, **more) as got:
        return b"".join([data async for data in got.aiter_bytes()])


def post_blocking(transport: ReplayTransport, body: Any, url: str = URL, **more: Any) -> bytes:
    """Return what a blocking client reads."""
    with httpx.Client(transport=transport) as client, client.stream("POST", url, json=body, **more) as got:
        return b"".join(got.iter_bytes())


@pytest.mark.anyio
async def test_requests_are_answered_in_order(tmp_path: Path) -> None:
    """Of several exchanges that match, the first that has not been played; each once, with its head and its chunks."""
    path = write(
        tmp_path / "a.jsonl",
        (request(ask("one")), [b"1"]),
        (request(ask("two")), [b"2", b"", b"2"]),
        (request(ask("one")), [b"3"]),
    )
    transport = ReplayTransport(path)
    assert [1, 2, 3] == [each.number for each in transport.unplayed]
    assert b"22" == await post(transport, ask("two"))
    assert f"{path}, exchange 1; {path}, exchange 3" == "; ".join(map(str, transport.unplayed))
    assert b"1" == await post(transport, ask("one"))
    with pytest.raises(RecordingError, match=re.escape(f"not asked for: {path}, exchange 3, POST {URL}")):
        transport.check()
    assert b"3" == post_blocking(transport, ask("one"))
    transport.check()

    client = httpx.AsyncClient(transport=ReplayTransport(path))
    async with client, client.stream("POST", URL, json=ask("two")) as response:
        assert (200, ANSWERED.headers) == (response.status_code, dict(response.headers))
        assert [b"2", b"2"] == [data async for data in response.aiter_bytes()]


@pytest.mark.anyio
async def test_what_was_played_is_played_again_only_when_told(tmp_path: Path) -> None:
    """With `repeat` the last one that matched goes on; without, it says that it was recorded too seldom."""
    path = write(tmp_path / "a.jsonl", (request(ask("one")), [b"1"]), (request(ask("one")), [b"2"]))
    transport = ReplayTransport(path, repeat=True)
    assert [b"1", b"2", b"2", b"2"] == [await post(transport, ask("one")) for _ in range(4)]
    transport.check()

    once = ReplayTransport(path)
    assert [b"1", b"2"] == [await post(once, ask("one")) for _ in range(2)]
    with pytest.raises(UnrecordedRequest, match=re.escape("once more: the same is " + str(path))):
        await post(once, ask("one"))


SAME: dict[str, tuple[Request, dict[str, Any]]] = {
    "keys in another order": (request({"a": 1, "b": 2}), {"json": {"b": 2, "a": 1}}),
    "numbers": (request({"a": 1}), {"json": {"a": 1.0}}),
    "other spellings": (request({"a": "é"}), {"content": b'{ "a" : "\\u00e9" }'}),
    "text": (request("hello"), {"content": b"hello"}),
    "bytes": (Request(method="POST", url=URL, body_base64="/w=="), {"content": b"\xff"}),
    "nothing": (Request(method="POST", url=URL), {}),
    "a key in the body": (request({"api_key": "other"}), {"json": {"api_key": "mine"}}),
    "a key in the URL": (request({}, url=URL + "?key=other"), {"json": {}, "params": {"key": "mine"}}),
    "lower case": (request({}, "post"), {"json": {}}),
}


@pytest.mark.parametrize(("recorded", "sent"), SAME.values(), ids=SAME)
def test_requests_that_are_the_same(tmp_path: Path, recorded: Request, sent: dict[str, Any]) -> None:
    """JSON is compared by value, and credentials are not compared at all."""
    transport = ReplayTransport(write(tmp_path / "a.jsonl", (recorded, [b"1"])))
    with httpx.Client(transport=transport) as client:
        assert b"1" == client.post(URL, **sent).content


LONG = "The weather in " + "Paris and " * 20
MISSES: dict[str, tuple[dict[str, Any], str]] = {
    "another value": (ask("two"), 'body.messages[0].content: "two" was asked, "one" is recorded'),
    "more": (ask("one", seed=1), "body.seed: 1 was asked, nothing is recorded"),
    "less": ({"messages": [], "stream": True, "model": "m"}, "body.messages[0]: nothing was asked, {"),
    "true is not 1": (ask("one", stream=1), "body.stream: 1 was asked, true is recorded"),
    "a null": (ask("one", stream=None), "body.stream: null was asked, true is recorded"),
    "an odd key": (ask("one", **{"a b": 1}), 'body["a b"]: 1 was asked, nothing is recorded'),
    "long text": (
        ask(LONG + "Rome"),
        '"… was asked, "one" is recorded',
    ),
    "a list": (ask("one", tools=[1, 2]), "body.tools: [1, 2] was asked, nothing is recorded"),
    "a long list": (ask("one", tools=[LONG]), "… was asked, nothing is recorded"),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("body", "message"), MISSES.values(), ids=MISSES)
async def test_a_miss_names_the_difference(tmp_path: Path, body: Any, message: str) -> None:
    """The nearest recorded request, where it differs, and what each has there."""
    path = write(tmp_path / "a.jsonl", (request({"x": 1}, url=URL + "s"), []), (request(ask("one")), [b"1"]))
    transport = ReplayTransport(path)
    with pytest.raises(UnrecordedRequest) as raised:
        await post(transport, body)
    told = str(raised.value)
    assert told.startswith(f"POST {URL} is not recorded in {path}; the nearest is {path}, exchange 2:\n    body")
    assert message in told
    assert [raised.value] == transport.faults
    with pytest.raises(UnrecordedRequest):
        transport.check()


def test_a_miss_shows_where_long_texts_differ(tmp_path: Path) -> None:
    """Not how they begin."""
    path = write(tmp_path / "a.jsonl", (request(ask(LONG + "Rome, please")), [b"1"]))
    with pytest.raises(UnrecordedRequest) as raised:
        post_blocking(ReplayTransport(path), ask(LONG + "Bonn, please"))
    assert '…"Paris and Paris and Bonn, please" was asked, …"Paris and Paris and Rome, please"' in str(raised.value)


def test_other_misses(tmp_path: Path) -> None:
    """Another address, many differences at once, nothing left to compare with, and a function that refuses."""
    path = write(tmp_path / "a.jsonl", (request({"k": list(range(9))}), [b"1"]))
    transport = ReplayTransport(path)
    with pytest.raises(UnrecordedRequest, match=r'url: "https://h/\?key=%5Bredacted%5D" was asked, "https://api\.'):
        post_blocking(transport, {"k": list(range(9))}, "https://h/?key=secret")
    with pytest.raises(UnrecordedRequest, match=r"body.k\[4\]: 5 was asked, 4 is recorded\n    and 4 more$"):
        post_blocking(transport, {"k": list(range(1, 10))})
    with (
        httpx.Client(transport=transport) as client,
        pytest.raises(UnrecordedRequest, match=r"method: GET was asked, POST is"),
    ):
        client.get(URL)
    assert b"1" == post_blocking(transport, {"k": list(range(9))})
    with pytest.raises(UnrecordedRequest, match=r"a.jsonl \(which has been played\):\n    body.k: nothing"):
        post_blocking(transport, {})

    unknown = ReplayTransport(write(tmp_path / "b.jsonl", (None, [b"1"])))
    assert b"1" == post_blocking(unknown, {})
    with pytest.raises(UnrecordedRequest, match=r"of whose 1 exchanges none is left$"):
        post_blocking(unknown, {})
    with pytest.raises(UnrecordedRequest, match="but `match` refuses it: the same is"):
        post_blocking(ReplayTransport(path, match=lambda asked, recorded: False), {"k": list(range(9))})


def test_what_is_matched(tmp_path: Path) -> None:
    """Some of the fields, or whatever a function says of the two requests, which are both redacted."""
    path = write(tmp_path / "a.jsonl", (request(ask("one"), url=URL + "?api_key=1"), [b"1"]))
    assert b"1" == post_blocking(ReplayTransport(path, match=["body"]), ask("one"), "http://localhost:1/")
    assert b"1" == post_blocking(ReplayTransport(path, match=("method",)), {}, "http://localhost:1/")
    told: list[tuple[str, str]] = []

    def same_model(asked: Request, recorded: Request) -> bool:
        told.append((asked.url, recorded.url))
        return bool(asked.body["model"] == recorded.body["model"])

    assert b"1" == post_blocking(ReplayTransport(path, match=same_model), ask("x"), URL + "?api_key=2")
    assert [(URL + "?api_key=%5Bredacted%5D",) * 2] == told
    for wrong in ("body", ["boddy"]):
        with pytest.raises(ValueError, match=r"match names fields, of method, url, body, and not 'bodd?y'"):
            ReplayTransport(path, match=wrong)


def test_secrets_of_the_recorder(tmp_path: Path) -> None:
    """What `redact` overwrites is no difference."""
    asked = describe_request("POST", URL, [], b'{"user": "Ada Lovelace"}', redact=["Ada Lovelace"])
    path = write(tmp_path / "a.jsonl", (asked, [b"1"]))
    assert b"1" == post_blocking(ReplayTransport(path, redact=["Ada Lovelace"]), {"user": "Ada Lovelace"})


@pytest.mark.anyio
async def test_a_directory(tmp_path: Path) -> None:
    """All its recordings, in the order of their names; nothing else that lies there."""
    for name, text in (("b", "two"), ("a", "one")):
        write(tmp_path / f"{name}.jsonl", (request(ask("x")), [text.encode()]))
    (tmp_path / "notes.txt").write_text("Notes")
    (tmp_path / "c.jsonl").mkdir()
    transport = ReplayTransport(tmp_path)
    assert [b"one", b"two"] == [await post(transport, ask("x")) for _ in range(2)]
    with pytest.raises(RecordingError, match=r"holds no recording: no file there ends in .jsonl"):
        ReplayTransport(tmp_path / "c.jsonl")
    with pytest.raises(RecordingError, match="does not exist"):
        ReplayTransport(tmp_path / "d.jsonl")


def test_files_that_break_off(tmp_path: Path) -> None:
    """They are refused before anybody asks; the digest of a body is checked when it is played, and told by `check`."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"1"]), (request({}), [b'"end" "streamtools"']))
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for missing, name in ((2, "exchange 1"), (5, "exchange 2")):
        path.write_bytes(b"".join(line for at, line in enumerate(lines) if at != missing))
        with pytest.raises(RecordingError, match=f"{name} breaks off, without an end line"):
            ReplayTransport(path)
    path.write_bytes(whole[:-9])
    with pytest.raises(RecordingError, match="exchange 2 breaks off"):
        ReplayTransport(path)
    path.write_bytes(whole.replace(b'"text":"1"', b'"text":"2"'))
    transport = ReplayTransport(path)
    with pytest.raises(RecordingError, match=r"line 3, gives the length or digest of other bytes"):
        post_blocking(transport, {})
    with pytest.raises(RecordingError, match="digest"):
        transport.check()


@pytest.mark.anyio
async def test_a_raw_capture(tmp_path: Path) -> None:
    """It answers whatever is asked first."""
    (tmp_path / "a.sse").write_bytes(b"".join(ANSWER))
    transport = ReplayTransport(tmp_path / "a.sse")
    assert b"".join(ANSWER) == await post(transport, {})
    transport.check()


BROKEN: dict[str, tuple[EndKind, str, type[Exception]]] = {
    "reset": ("reset", "", httpx.ReadError),
    "timeout": ("timeout", "", httpx.ReadTimeout),
    "as recorded": ("reset", "RemoteProtocolError", httpx.RemoteProtocolError),
    "a time as recorded": ("timeout", "PoolTimeout", httpx.PoolTimeout),
    "no error of a transport": ("reset", "InvalidURL", httpx.ReadError),
    "no error at all": ("reset", "Client", httpx.ReadError),
    "of another kind": ("reset", "ReadTimeout", httpx.ReadError),
}


@pytest.mark.anyio
@pytest.mark.parametrize(("end", "error", "raised"), BROKEN.values(), ids=BROKEN)
async def test_a_recorded_break(tmp_path: Path, end: EndKind, error: str, raised: type[Exception]) -> None:
    """It breaks at the same place, with the exception that was recorded if it is one of a connection's."""
    for response in (Response(status=200), None):
        chunks = [b"1"] if response else []
        path = write(tmp_path / "a.jsonl", (request({}), chunks), end=end, error=error, response=response)
        for wait in (True, False):
            transport = ReplayTransport(path)
            with pytest.raises(httpx.TransportError) as caught:
                await post(transport, {}) if wait else post_blocking(transport, {})
            assert raised is type(caught.value)
            transport.check()


@pytest.mark.anyio
async def test_faults_and_times(tmp_path: Path) -> None:
    """Faults are those of `Playback`; the read timeout is that of the client, and a virtual clock waits for neither."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"12", b"34"]))
    for transport, raised in (
        (ReplayTransport(path, reset_after=3), httpx.ReadError),
        (ReplayTransport(path, stall_after=3, clock=VirtualClock()), httpx.ReadTimeout),
        (ReplayTransport(path, speed=1), httpx.ReadTimeout),
    ):
        with pytest.raises(raised):
            post_blocking(transport, {}, timeout=0.01)
    clock = VirtualClock()
    assert b"123" == await post(ReplayTransport(path, cut_after=3, clock=clock), {})
    assert 0.2 == pytest.approx(clock())
    with pytest.raises(httpx.ReadTimeout):
        await post(ReplayTransport(path, stall_after=2, clock=clock), {}, timeout=30)
    assert 30.3 == pytest.approx(clock())
    with pytest.raises(ValueError, match="speed"):
        ReplayTransport(path, speed=-1)


@pytest.mark.anyio
async def test_one_exchange_may_be_played_otherwise(tmp_path: Path) -> None:
    """`vary` returns options for each exchange; wrong ones leave no file open."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"12"]), (request({}), [b"12"]), (request({}), [b"12"]))

    def vary(exchange: Exchange) -> PlaybackOptions:
        options: dict[int, PlaybackOptions] = {2: {"cut_after": 1}, 3: {"speed": -1}}
        return options.get(exchange.number, {})

    transport = ReplayTransport(path, vary=vary)
    assert [b"12", b"1"] == [await post(transport, {}) for _ in range(2)]
    with pytest.raises(ValueError, match="speed"):
        await post(transport, {})


def test_a_response_that_nobody_closes(tmp_path: Path) -> None:
    """Its file is closed with the transport."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"12"]), (request({}), [b"12"]))
    with ReplayTransport(path) as transport:
        for _ in range(2):
            transport.handle_request(httpx.Request("POST", URL, json={}))
    with pytest.raises(TypeError, match="is no request of httpx or httpx2"):
        ReplayTransport(path).handle_request(_Asked())


class _Asked:
    method, url, extensions = "POST", URL, dict[str, Any]()
    headers = httpx.Headers()

    def read(self) -> bytes:
        return b"{}"


@pytest.mark.anyio
async def test_entering_a_transport(tmp_path: Path) -> None:
    """It closes what is open."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"12"]))
    async with ReplayTransport(path) as transport:
        response = await transport.handle_async_request(httpx.Request("POST", URL, json={}))
    assert [] == [data async for data in response.stream]


@pytest.mark.anyio
async def test_a_conversation_is_recorded_and_replayed_whole(tmp_path: Path) -> None:
    """Several requests with tools between them: the replay gives the events of the recording, from the same model."""
    path = tmp_path / "a.jsonl"

    async def talk(transport: Any, url: str, **options: Any) -> list[UIEvent]:
        async with httpx.AsyncClient(transport=transport) as client:
            model = OpenAIChat("m", base_url=url, api_key="k", client=client, retries=0, **options)
            async with chat(model, [QUESTION], tools=TOOLS) as stream:
                return coalesce([event async for event in stream])

    async with Provider(calls(("weather", PARIS), text="One moment."), calls(("clock", {})), says("Done.")) as server:
        recorded = await talk(RecordingTransport(httpx.AsyncHTTPTransport(), path), server.url)
    transport = ReplayTransport(path)
    assert recorded == await talk(transport, server.url)
    transport.check()
    done = recorded[-1]
    assert isinstance(done, Done)
    assert ("finished", 2) == (done.reason, sum(isinstance(event, Executed) for event in recorded))

    with pytest.raises(UnrecordedRequest, match=r"body.temperature: 1 was asked, nothing is recorded"):
        await talk(ReplayTransport(path), server.url, temperature=1)
    breaking = ReplayTransport(path, vary=lambda each: {"reset_after": 50} if each.number == 2 else {})
    *_, done = broken = await talk(breaking, server.url)
    assert isinstance(done, Done)
    assert ("failed", 1) == (done.reason, sum(isinstance(event, Executed) for event in broken))
    with pytest.raises(RecordingError, match=f"{path}, exchange 3, POST {server.url}"):
        breaking.check()


@pytest.mark.anyio
async def test_one_exchange_of_several_straight_to_events(tmp_path: Path) -> None:
    """`replay` plays the one that is named, and none where it is not said which."""
    path = write(tmp_path / "a.jsonl", (request({}), ANSWER), (request({}), ANSWER[1:]))
    with pytest.raises(RecordingError, match=r"a.jsonl holds 2 exchanges: tell which, as in `exchange=1`, or play all"):
        await replay(path, tools=[now])
    first, second = await replay(path, exchange=1, tools=[now]), await replay(path, exchange=2)
    assert [1, 0] == [sum(isinstance(event, Executed) for event in events) for events in (first, second)]
    for number in (0, 3):
        with pytest.raises(RecordingError, match=f"a.jsonl has no exchange {number}, but 2"):
            await replay(path, exchange=number)
    alone = write(tmp_path / "b.jsonl", (request({}), ANSWER))
    assert coalesce(await replay(alone)) == coalesce(await replay(alone, exchange=1))


@pytest.mark.anyio
async def test_what_can_be_read_only_once(tmp_path: Path) -> None:
    """A pipe is replayed without a look ahead."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = shipped()["no-call"].read_bytes()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, pipe.write_bytes, data)
        recording = await anyio.to_thread.run_sync(open_exchange, pipe)
        assert 4700 == sum([len(piece) async for piece in ReplayBytes(recording)])


@pytest.mark.anyio
async def test_a_client_that_is_closed(tmp_path: Path) -> None:
    """It closes the transport, however it is closed."""
    path = write(tmp_path / "a.jsonl", (request({}), [b"12"]))
    transport = ReplayTransport(path)
    client = httpx.AsyncClient(transport=transport)
    response = await client.send(client.build_request("POST", URL, json={}), stream=True)
    await client.aclose()
    assert [] == [data async for data in response.aiter_bytes()]


@pytest.mark.anyio
async def test_a_stall_ends_by_the_time_of_a_model(tmp_path: Path) -> None:
    """Our models bound silences themselves, and in real time, whatever clock the replay goes by."""
    path = write(tmp_path / "a.jsonl", (None, ANSWER))
    transport = ReplayTransport(path, stall_after=len(ANSWER[0]), clock=VirtualClock())
    async with httpx.AsyncClient(transport=transport) as client:
        times = Timeouts(between_bytes=0.01)
        model = OpenAIChat("m", base_url=URL, api_key="", client=client, retries=0, timeout=times)
        async with chat(model, [QUESTION], tools=[now]) as stream:
            told = story(coalesce([event async for event in stream]))
    assert "error stream_interrupted" in told
    assert told[-1].startswith("done failed")
    assert not [line for line in told if line.startswith("executing")]

"""How `ReplayTransport` matches requests, and its errors for a request that is not recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from streamtools import chat, coalesce, replay
from streamtools.conversation import OpenAIChat
from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.events import Done, Executed, UIEvent
from streamtools.recording import RecordedRequest, RecordingTransport, ReplayBytes, ReplayTransport, shipped
from streamtools.recording.files import open_exchange
from streamtools.recording.redaction import describe_request, encode_secrets, redact_request
from tests.recording.exchanges import URL, ask, post, post_blocking, request, write
from tests.recording.test_event_replay import ANSWER, now
from tests.support.provider import Provider
from tests.support.talks import PARIS, QUESTION, TOOLS, calls, says

SAME: dict[str, tuple[RecordedRequest, dict[str, Any]]] = {
    "keys in another order": (request({"a": 1, "b": 2}), {"json": {"b": 2, "a": 1}}),
    "numbers": (request({"a": 1}), {"json": {"a": 1.0}}),
    "other spellings": (request({"a": "é"}), {"content": b'{ "a" : "\\u00e9" }'}),
    "text": (request("hello"), {"content": b"hello"}),
    "bytes": (RecordedRequest(method="POST", url=URL, body_base64="/w=="), {"content": b"\xff"}),
    "nothing": (RecordedRequest(method="POST", url=URL), {}),
    "a key in the URL": (request({}, url=URL + "?key=other"), {"json": {}, "params": {"key": "mine"}}),
    "lower case": (request({}, "post"), {"json": {}}),
}


@pytest.mark.parametrize(("recorded", "sent"), SAME.values(), ids=SAME)
def test_equal_requests_match(tmp_path: Path, recorded: RecordedRequest, sent: dict[str, Any]) -> None:
    """JSON is compared by value. Credentials are not compared."""
    transport = ReplayTransport(write(tmp_path / "a.jsonl", (recorded, [b"1"])))
    with httpx.Client(transport=transport) as client:
        assert b"1" == client.post(URL, **sent).content


LONG = "The weather in " + "Paris and " * 20
MISSES: dict[str, tuple[dict[str, Any], str]] = {
    "another value": (ask("two"), 'body.messages[0].content: "two" was sent, "one" is recorded'),
    "more": (ask("one", seed=1), "body.seed: 1 was sent, nothing is recorded"),
    "less": ({"messages": [], "stream": True, "model": "m"}, "body.messages[0]: nothing was sent, {"),
    "true is not 1": (ask("one", stream=1), "body.stream: 1 was sent, true is recorded"),
    "a null": (ask("one", stream=None), "body.stream: null was sent, true is recorded"),
    "an odd key": (ask("one", **{"a b": 1}), 'body["a b"]: 1 was sent, nothing is recorded'),
    "long text": (ask(LONG + "Rome"), '… was sent, "one" is recorded'),
    "a list": (ask("one", tools=[1, 2]), "body.tools: [1, 2] was sent, nothing is recorded"),
    "a long list": (ask("one", tools=[LONG]), "… was sent, nothing is recorded"),
}


@pytest.mark.parametrize(("body", "message"), MISSES.values(), ids=MISSES)
async def test_an_error_shows_the_difference_to_the_nearest_request(tmp_path: Path, body: Any, message: str) -> None:
    path = write(tmp_path / "a.jsonl", (request({"x": 1}, url=URL + "s"), []), (request(ask("one")), [b"1"]))
    transport = ReplayTransport(path)
    with pytest.raises(UnrecordedRequest) as raised:
        await post(transport, body)
    error = str(raised.value)
    assert error.startswith(f"POST {URL} is not recorded in {path}; the nearest is {path}, exchange 2:\n    body")
    assert message in error
    assert [raised.value] == transport.errors
    with pytest.raises(UnrecordedRequest):
        transport.check()


def test_an_error_shows_long_texts_near_the_difference(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request(ask(LONG + "Rome, please")), [b"1"]))
    with pytest.raises(UnrecordedRequest) as raised:
        post_blocking(ReplayTransport(path), ask(LONG + "Bonn, please"))
    assert '…Paris and Paris and Bonn, please" was sent, …Paris and Paris and Rome, please"' in str(raised.value)


def test_other_errors_for_unrecorded_requests(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request({"k": list(range(9))}), [b"1"]))
    transport = ReplayTransport(path)
    with pytest.raises(UnrecordedRequest, match=r'url: "https://h/\?key=%5Bredacted%5D" was sent, "https://api\.'):
        post_blocking(transport, {"k": list(range(9))}, "https://h/?key=secret")
    with pytest.raises(UnrecordedRequest, match=r"body.k\[4\]: 5 was sent, 4 is recorded\n    and 4 more$"):
        post_blocking(transport, {"k": list(range(1, 10))})
    with (
        httpx.Client(transport=transport) as client,
        pytest.raises(UnrecordedRequest, match=r'method: "GET" was sent, "POST" is'),
    ):
        client.get(URL)
    assert b"1" == post_blocking(transport, {"k": list(range(9))})
    with pytest.raises(UnrecordedRequest, match=r"a.jsonl \(already played\):\n    body.k: nothing"):
        post_blocking(transport, {})

    unknown = ReplayTransport(write(tmp_path / "b.jsonl", (None, [b"1"])))
    assert b"1" == post_blocking(unknown, {})
    with pytest.raises(UnrecordedRequest, match=r"all of its 1 exchanges have been played$"):
        post_blocking(unknown, {})
    with pytest.raises(UnrecordedRequest, match=r"; it equals .*a\.jsonl, but `match` rejected it"):
        post_blocking(ReplayTransport(path, match=lambda asked, recorded: False), {"k": list(range(9))})


def test_match_selects_fields_or_is_a_function(tmp_path: Path) -> None:
    """A function gets two redacted requests."""
    path = write(tmp_path / "a.jsonl", (request(ask("one"), url=URL + "?api_key=1"), [b"1"]))
    assert b"1" == post_blocking(ReplayTransport(path, match=["body"]), ask("one"), "http://localhost:1/")
    assert b"1" == post_blocking(ReplayTransport(path, match=("method",)), {}, "http://localhost:1/")
    urls: list[tuple[str, str]] = []

    def same_model(asked: RecordedRequest, recorded: RecordedRequest) -> bool:
        urls.append((asked.url, recorded.url))
        return bool(asked.body["model"] == recorded.body["model"])

    assert b"1" == post_blocking(ReplayTransport(path, match=same_model), ask("x"), URL + "?api_key=2")
    assert [(URL + "?api_key=%5Bredacted%5D",) * 2] == urls
    for wrong in ("body", ["boddy"]):
        with pytest.raises(ValueError, match=r"`match` must be a list of field names .* got 'bodd?y'"):
            ReplayTransport(path, match=wrong)


def test_secrets_are_overwritten_before_the_comparison(tmp_path: Path) -> None:
    asked = describe_request("POST", URL, [], b'{"user": "Ada Lovelace"}', record_body=True)
    redacted = redact_request(asked, encode_secrets(["Ada Lovelace"]))
    path = write(tmp_path / "a.jsonl", (redacted, [b"1"]))
    assert b"1" == post_blocking(ReplayTransport(path, redact=["Ada Lovelace"]), {"user": "Ada Lovelace"})


# Recordings of conversations with several requests.


async def test_a_conversation_is_recorded_and_replayed(tmp_path: Path) -> None:
    """The replay gives the events of the recording."""
    path = tmp_path / "a.jsonl"

    async def talk(transport: Any, url: str, **options: Any) -> list[UIEvent]:
        async with httpx.AsyncClient(transport=transport) as client:
            model = OpenAIChat("m", base_url=url, api_key="k", client=client, retries=0, **options)
            async with chat(model, [QUESTION], tools=TOOLS) as stream:
                return coalesce([event async for event in stream])

    async with Provider(calls(("weather", PARIS), text="One moment."), calls(("clock", {})), says("Done.")) as server:
        recorded = await talk(RecordingTransport(httpx.AsyncHTTPTransport(), path, record_body=True), server.url)
    transport = ReplayTransport(path)
    assert recorded == await talk(transport, server.url)
    transport.check()
    done = recorded[-1]
    assert isinstance(done, Done)
    assert ("finished", 2) == (done.reason, sum(isinstance(event, Executed) for event in recorded))

    with pytest.raises(UnrecordedRequest, match=r"body.temperature: 1 was sent, nothing is recorded"):
        await talk(ReplayTransport(path), server.url, temperature=1)
    for only, executed in ((3, 2), (2, 1), (1, 0), (None, 0)):
        breaking = ReplayTransport(path, reset_after=50, exchange=only)
        *_, done = broken = await talk(breaking, server.url)
        assert isinstance(done, Done)
        assert ("failed", executed) == (done.reason, sum(isinstance(event, Executed) for event in broken))
    with pytest.raises(ValueError, match="exchange must be one of None, 1, 2, 3, got 4"):
        ReplayTransport(path, exchange=4)
    size = sum(len(data) for _, data in open_exchange(path, 1))
    cut = ReplayTransport(path, cut=[size], exchange=1)  # the other responses are shorter
    assert coalesce(recorded) == coalesce(await talk(cut, server.url))
    cut.check()
    with pytest.raises(RecordingError, match=f"{path}, exchange 2, POST {server.url}"):
        breaking.check()


async def test_replay_needs_the_number_of_an_exchange(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", (request({}), ANSWER), (request({}), ANSWER[1:]))
    with pytest.raises(
        RecordingError, match=r"a.jsonl holds 2 exchanges: choose one, as in `replay.path, exchange=1.`"
    ):
        await replay(path, tools=[now])
    first, second = await replay(path, exchange=1, tools=[now]), await replay(path, exchange=2)
    assert [1, 0] == [sum(isinstance(event, Executed) for event in events) for events in (first, second)]
    for number in (0, 3):
        with pytest.raises(RecordingError, match=f"a.jsonl has no exchange {number}: it has 2"):
            await replay(path, exchange=number)
    alone = write(tmp_path / "b.jsonl", (request({}), ANSWER))
    assert coalesce(await replay(alone)) == coalesce(await replay(alone, exchange=1))


async def test_a_pipe_is_replayed(tmp_path: Path) -> None:
    """A pipe can be read only once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = shipped()["no-call"].read_bytes()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, pipe.write_bytes, data)
        recording = await anyio.to_thread.run_sync(open_exchange, pipe)
        assert 4700 == sum([len(piece) async for piece in ReplayBytes(recording)])

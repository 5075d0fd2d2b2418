"""Recordings of conversations with several requests."""

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
from streamtools.recording import RecordingTransport, ReplayBytes, ReplayTransport, shipped
from streamtools.recording.files import open_exchange
from tests.recording.exchanges import request, write
from tests.recording.test_event_replay import ANSWER, now
from tests.support.provider import Provider
from tests.support.talks import PARIS, QUESTION, TOOLS, calls, says


@pytest.mark.anyio
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
    for only, executed in ((None, 0), (1, 0), (2, 1), (3, 2)):
        breaking = ReplayTransport(path, reset_after=50, exchange=only)
        *_, done = broken = await talk(breaking, server.url)
        assert isinstance(done, Done)
        assert ("failed", executed) == (done.reason, sum(isinstance(event, Executed) for event in broken))
    with pytest.raises(ValueError, match="exchange must be one of None, 1, 2, 3, got 4"):
        ReplayTransport(path, exchange=4)
    breaking = ReplayTransport(path, reset_after=50)
    await talk(breaking, server.url)
    with pytest.raises(RecordingError, match=f"{path}, exchange 2, POST {server.url}"):
        breaking.check()


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_pipe_is_replayed(tmp_path: Path) -> None:
    """A pipe can be read only once."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = shipped()["no-call"].read_bytes()
    async with anyio.create_task_group() as group:
        group.start_soon(anyio.to_thread.run_sync, pipe.write_bytes, data)
        recording = await anyio.to_thread.run_sync(open_exchange, pipe)
        assert 4700 == sum([len(piece) async for piece in ReplayBytes(recording)])

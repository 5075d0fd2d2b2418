"""The function `replay`: recordings and raw captures as UI events."""

from __future__ import annotations

import gc
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from streamtools import ParserOptions, coalesce, replay
from streamtools.errors import RecordingError
from streamtools.events import Done, Error, UIEvent
from streamtools.recording import ExchangeHead, shipped
from streamtools.recording.files import RecordingWriter
from streamtools.recording.format import EndKind, RecordedResponse
from streamtools.tools import ToolRegistry
from tests.support.options import grouped
from tests.support.stories import story

pytestmark = pytest.mark.trio_deep

ANSWER = (
    b'data: {"choices":[{"delta":{"content":"It is ###:{\\"name\\":\\"now\\"} o\'clock."}}]}\n\n',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
OLLAMA = b'{"message":{"role":"assistant","content":"Hi."},"done":true,"done_reason":"stop"}\n'
ANTHROPIC = (
    b'data: {"type":"message_start","message":{"id":"m"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)
CHAIN = (
    b'event: provider-event\ndata: {"type":"text-delta","textDelta":"Hi"}\n\n'
    b'event: latitude-event\ndata: {"type":"chain-completed","uuid":"u-1"}\n\n'
)


def now() -> int:
    return 12


def write(
    path: Path, chunks: Sequence[bytes], *, source: str = "openai", status: int = 200, end: EndKind | None = "end"
) -> Path:
    """Write a recording of these chunks, one every 10 ms."""
    headers = {"content-type": "text/event-stream" if status == 200 else "application/json"}
    head = ExchangeHead(source=source, response=RecordedResponse(status=status, headers=headers))
    with path.open("wb") as file:
        writer = RecordingWriter(file, head)
        for at, chunk in enumerate(chunks):
            writer.chunk(chunk, at * 10)
        if end is not None:
            writer.end(end, len(chunks) * 10)
    return path


async def test_a_replay_is_awaited_or_entered(tmp_path: Path) -> None:
    """Both can be repeated."""
    played = replay(write(tmp_path / "a.jsonl", ANSWER), tools=[now])
    events = await played
    async with played as stream:
        streamed = [event async for event in stream]
    assert coalesce(events) == coalesce(streamed) == coalesce(await played)
    assert story(events)[2] == "text 'It is '"
    assert [line.split()[0] for line in story(events) if line.startswith("exec")] == ["executing", "executed"]
    assert ("It is  o'clock.", 12) == (stream.result.text, stream.result.outcomes[0].result)


@pytest.mark.parametrize("cut", ["recorded", "byte", "frame", "whole", 3, [5, 99]])
@pytest.mark.parametrize("speed", [0, 100])
async def test_cuts_and_times_do_not_change_the_events(tmp_path: Path, cut: Any, speed: float) -> None:
    path = write(tmp_path / "a.jsonl", ANSWER)
    assert coalesce(await replay(path)) == coalesce(await replay(path, cut=cut, speed=speed))


async def test_options_are_passed_to_the_stream(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ANSWER)
    assert 'text \'It is ###:{"name":"now"} o\\\'clock.\'' in story(await replay(str(path), dialects=()))
    stopped = story(
        await replay(
            path, parser=ParserOptions(after_call="stop", new_id=lambda: "c9"), tools=ToolRegistry(now), run_id="r"
        )
    )
    assert "executed c9: 12" in stopped
    assert stopped[-1] == "done finished: stopped_after_call (None)"


async def test_a_raw_capture_of_any_provider_is_replayed(tmp_path: Path) -> None:
    for name, data, last in (
        ("openai.sse", b"".join(ANSWER), "done finished: stop (stop)"),
        ("latitude.sse", CHAIN, "done finished: stop (None), in u-1"),
        ("ollama.ndjson", OLLAMA, "done finished: stop (stop)"),
        ("anthropic.sse", ANTHROPIC, "done finished: stop (end_turn)"),
        ("cut.sse", ANSWER[0], "done failed: None (None), pending call_2"),
    ):
        (tmp_path / name).write_bytes(data)
        assert story(coalesce(await replay(tmp_path / name, tools=[now])))[-1] == last


async def test_the_recorded_status_is_used(tmp_path: Path) -> None:
    """A status of 400 or more is an error."""
    path = write(tmp_path / "a.jsonl", [b'{"error":{"message":"no key"}}'], status=401)
    _, error, done = await replay(path)
    assert isinstance(error, Error)
    assert ("no key", 401) == (error.message, error.status)
    assert isinstance(done, Done)
    assert "failed" == done.reason


@pytest.mark.parametrize("end", ["reset", "timeout"])
async def test_a_recorded_reset_interrupts_the_run(tmp_path: Path, end: EndKind) -> None:
    """No tool runs."""
    events = story(await replay(write(tmp_path / "a.jsonl", ANSWER[:1], end=end), tools=[now]))
    assert events[-3:-1] == ["error stream_interrupted", "step 1 ends: None"]
    assert re.fullmatch(r"done failed: None \(None\), pending .+", events[-1])


async def test_an_incomplete_file_raises_after_the_events(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ANSWER[:1], end=None)
    events: list[UIEvent] = []

    async def play() -> None:
        async with replay(path) as stream:
            async for event in stream:
                events.append(event)

    with pytest.raises(RecordingError, match=re.escape(f"{path} breaks off at line 2")):
        await play()
    assert story(events)[-1].startswith("done failed")
    with pytest.raises(RecordingError, match="breaks off"):
        await replay(path)


async def test_invalid_options_close_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", ANSWER)
    wrong: list[tuple[type[Exception], dict[str, Any]]] = [
        (ValueError, {"dialects": "morse"}),
        (ValueError, {"tool_choice": "required"}),
        (ValueError, {"cut": "half"}),
        (ValueError, {"speed": -1}),
        (TypeError, {"colour": "red"}),
    ]
    for error, options in wrong:
        with pytest.raises(error):
            await replay(path, **grouped(**options))
    with pytest.raises(RecordingError, match=r"b.jsonl: no adapter is named 'smoke'; there are openai, responses, "):
        await replay(write(tmp_path / "b.jsonl", ANSWER, source="smoke"))
    gc.collect()


async def test_leaving_early_closes_the_file() -> None:
    """The run is cancelled."""
    async with replay(shipped()["headings"], speed=0.001) as stream:
        await anyio.wait_all_tasks_blocked()
    gc.collect()
    assert "cancelled" == stream.result.reason

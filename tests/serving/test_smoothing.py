"""Texts that come at once are sent evenly; nothing is lost, reordered, or late but text."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from streamtools.events import Start, Text, TextDelta, UIEvent
from streamtools.serving.event_response import Smoothing, event_stream_response
from tests.serving.test_asgi_response import STOP, answer, answering, stream, texts
from tests.support.serving import Exchange, read_frames

pytestmark = pytest.mark.anyio

BURST = [TextDelta(each) for each in "abcdefgh"]


class Clock:
    """A clock that goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.sent: list[tuple[float, str]] = []
        self.all_sent = anyio.Event()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds
        await anyio.lowlevel.checkpoint()

    async def send(self, event: UIEvent) -> None:
        """Note when an event is sent."""
        await anyio.lowlevel.checkpoint()
        self.sent.append((self.now, event.text if isinstance(event, Text) else event.type))
        if len(self.sent) == 5:
            self.all_sent.set()


async def test_a_burst_is_sent_over_the_seconds() -> None:
    """The first of it at once, the last when it is late."""
    clock = Clock()
    smoothing = Smoothing(clock.send, seconds=1.0, now=lambda: clock.now, sleep=clock.sleep)
    async with anyio.create_task_group() as group:
        for seq, each in enumerate("abcde"):
            await smoothing.take(Text(each, seq))
        assert [] == clock.sent
        group.start_soon(smoothing.run)
        with anyio.fail_after(5):
            await clock.all_sent.wait()
        group.cancel_scope.cancel()
    assert [(0.0, "a"), (0.25, "b"), (0.5, "c"), (0.75, "d"), (1.0, "e")] == clock.sent


async def test_what_is_no_text_sends_what_waits() -> None:
    """And goes at once, behind it; also while the other task is sending."""
    clock = Clock()
    smoothing = Smoothing(clock.send, seconds=1.0, now=lambda: clock.now, sleep=lambda _: anyio.sleep_forever())
    async with anyio.create_task_group() as group:
        group.start_soon(smoothing.run)
        await anyio.wait_all_tasks_blocked()
        for seq, each in enumerate("abc"):
            await smoothing.take(Text(each, seq))
        await anyio.lowlevel.checkpoint()
        await smoothing.take(Start("r", seq=3))
        assert ["a", "b", "c", "start"] == [each for _, each in clock.sent]
        await smoothing.take(Text("d", 4))
        await smoothing.send_all()
        assert ["d"] == [each for _, each in clock.sent[4:]]
        group.cancel_scope.cancel()


async def test_a_fault_of_the_server_is_raised_by_the_next() -> None:
    """The task that sends evenly does not raise it where nobody expects it."""

    async def fails(_: UIEvent) -> None:
        raise RuntimeError("the server")

    smoothing = Smoothing(fails, seconds=1.0)
    async with anyio.create_task_group() as group:
        await smoothing.take(Text("a", 1))
        group.start_soon(smoothing.run)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="the server"):
            await smoothing.take(Text("b", 2))


@pytest.mark.parametrize("format", ["native", "ai_sdk", "text"])
async def test_a_response_is_the_same(format: str) -> None:
    """However long texts may wait: the end sends them."""
    bodies = []
    for smooth in (None, 3600.0):
        events, _ = stream(BURST, *texts("i", "j"), [STOP])
        exchange = Exchange()
        await answer(event_stream_response(events, format=format, smooth=smooth, keep_alive=None), exchange)
        assert exchange.ended
        bodies.append(b"".join(exchange.chunks))
    assert bodies[0] == bodies[1]


async def test_a_client_that_goes_while_texts_wait() -> None:
    """The stream is left at once, and its source closed."""
    events, source = stream(BURST, hold=True)
    exchange = Exchange()
    async with answering(event_stream_response(events, smooth=3600.0), exchange):
        await exchange.has_sent(5)
        exchange.gone.set()
    assert 1 == source.closed
    assert not exchange.ended


async def test_more_than_waits_goes_out() -> None:
    """In its order, and whole."""
    events, _ = stream([TextDelta(f"{at} ") for at in range(1200)], hold=True)
    exchange = Exchange()
    async with answering(event_stream_response(events, smooth=3600.0), exchange):
        await exchange.has_sent(1000)
        exchange.gone.set()
    told = [frame["text"] for chunk in exchange.chunks for frame in read_frames(chunk) if frame["type"] == "text"]
    assert [f"{at} " for at in range(len(told))] == told


@pytest.mark.parametrize("smooth", [0, -1, "1", True])
async def test_a_time_that_is_none(smooth: object) -> None:
    """It is refused when the response is made."""
    with pytest.raises(ValueError, match="smooth is a positive number of seconds"):
        event_stream_response(stream()[0], smooth=smooth)  # type: ignore[arg-type]

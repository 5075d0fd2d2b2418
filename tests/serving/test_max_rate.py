"""The option `max_rate`: which messages wait, for how long, and what they contain. Time passes only in steps."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import outputs
from streamtools.events import DELTAS, CallDelta, Done, Event, Progress, Reasoning, Start, Text, UIEvent
from streamtools.outputs import sse
from streamtools.outputs.asgi import event_stream_response, send_events, serve_websocket
from streamtools.runs import Run, Runs
from streamtools.serving import event_reader, response_writer
from tests.serving.test_asgi_by_hand import Socket
from tests.support.serving import Exchange, read_frames

RATE = 30
SLOT = 1 / RATE
KINDS: dict[str, Callable[[str], UIEvent]] = {
    "text": Text,
    "reasoning": Reasoning,
    "arguments of a": lambda text: CallDelta("a", text),
    "arguments of b": lambda text: CallDelta("b", text),
    "progress": lambda text: Progress("a", text),
}

steps = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([*KINDS])), max_size=15)
"""Milliseconds before each event, and its kind."""


class Clock:
    """Replaces the clock of the writer."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, anyio.Event]] = []
        patch.setattr(response_writer, "monotonic", lambda: self.now)
        patch.setattr(response_writer, "sleep", self._sleep)

    async def _sleep(self, delay: float) -> None:
        woken = anyio.Event()
        self._sleepers.append((self.now + delay, woken))
        await woken.wait()

    async def advance(self, seconds: float) -> None:
        """Let the time pass. Every task acts at its own time."""
        end = self.now + seconds
        await anyio.wait_all_tasks_blocked()
        while self._sleepers and (due := min(due for due, _ in self._sleepers)) <= end:
            self.now = max(self.now, due)
            for _, woken in [each for each in self._sleepers if each[0] <= due]:
                woken.set()
            self._sleepers = [each for each in self._sleepers if each[0] > due]
            await anyio.wait_all_tasks_blocked()
        self.now = end


class Arriving:
    """Yields the events that a test adds."""

    def __init__(self) -> None:
        self.closed = False
        self._events: list[UIEvent] = []
        self._more = anyio.Event()

    def add(self, *events: UIEvent) -> None:
        """Add events."""
        self._events += events
        self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        if self.closed:
            raise StopAsyncIteration
        while not self._events:
            self._more = anyio.Event()
            await self._more.wait()
        event = self._events.pop(0)
        self.closed = type(event) is Done
        return event

    async def aclose(self) -> None:
        """End the events, as `done` does."""
        self.closed = True


Sent = list[tuple[float, list[dict[str, Any]]]]
"""The time of each message, and its events."""


async def respond(schedule: list[tuple[int, str]], clock: Clock) -> tuple[Sent, list[tuple[float, UIEvent]]]:
    """Send a response whose events arrive at these times. Returns the messages, and the events with their times."""
    sent: Sent = []
    arrived: list[tuple[float, UIEvent]] = [(clock.now, Start("r", seq=1))]
    source = Arriving()
    exchange = Exchange()

    async def send(message: MutableMapping[str, Any]) -> None:
        await exchange.send(message)
        if frames := read_frames(message.get("body", b"")):
            sent.append((clock.now, frames))

    def add(event: UIEvent) -> None:
        arrived.append((clock.now, event))
        source.add(event)

    response = event_stream_response(source, max_rate=RATE, keep_alive=None, send_timeout=None)
    async with anyio.create_task_group() as group:
        source.add(arrived[0][1])
        group.start_soon(response, exchange.scope, exchange.receive, send)
        await clock.advance(0)
        for number, (delay, kind) in enumerate(schedule, 2):
            await clock.advance(delay / 1000)
            add(_numbered(KINDS[kind](f"<{number}>"), number))
        await clock.advance(0)
        add(Done("finished", "stop", None, [], seq=len(schedule) + 2))
        await clock.advance(0)
        assert exchange.ended
    return sent, arrived


def _numbered(event: Any, seq: int) -> UIEvent:
    event = type(event)(*(getattr(event, name) for name in event.__struct_fields__[:2] if name != "seq"), seq=seq)
    return event  # type: ignore[no-any-return]


def _pieces(event: dict[str, Any]) -> list[tuple[str, str | None, str]]:
    """Return the pieces of an event that may be joined, or the event as one piece."""
    text = event.get("text") or event.get("data") or "<>"
    return [(event["type"], event.get("call_id"), each) for each in text[1:-1].split("><")]


def check(sent: Sent, arrived: list[tuple[float, UIEvent]]) -> None:
    """Check the laws of `max_rate`."""
    given = [piece for _, event in arrived for piece in _pieces(msgspec.to_builtins(event))]
    assert given == [piece for _, frames in sent for frame in frames for piece in _pieces(frame)]
    times = {event.seq: (time, event) for time, event in arrived}
    seq = 0
    for now, frames in sent:
        for frame in frames:
            before, seq = seq, frame["seq"]
            # The message holds all events after the last message, up to its own `seq`: a client may reconnect with it.
            assert len(_pieces(frame)) == seq - before
            for time, event in (times[each] for each in range(before + 1, seq + 1)):
                assert event.type == frame["type"]
                assert now - time <= (SLOT + 1e-6 if isinstance(event, DELTAS) else 0)
    limited = [
        now for now, frames in sent if all(frame["type"] in ("text", "reasoning", "call-delta") for frame in frames)
    ]
    for (first, one), (last, other) in itertools.combinations(enumerate(limited), 2):
        assert last - first + 1 <= RATE * (other - one) + 2 + 1e-6


@given(steps)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_only_deltas_wait_and_nothing_is_lost(backend: str, schedule: list[tuple[int, str]]) -> None:
    """The order stays, and a client that reconnects after any message repeats and loses nothing."""
    with pytest.MonkeyPatch.context() as patch:
        check(*anyio.run(respond, schedule, Clock(patch), backend=backend))


TYPING = [(7, "text")] * 10 + [(0, "progress"), (2, "text"), (1, "text"), (12, "reasoning"), (40, "text"), (3, "text")]


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "progress waits": (event_reader, "DELTAS", (Event,)),
    "a joined event has the first seq": (
        sse, "join_deltas", lambda events: [next(iter(events)), *list(events)[1:]][:1] or [],
    ),
    "each delta is sent": (response_writer.ResponseWriter, "send_in_slot", lambda self, send: send()),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check(*anyio.run(respond, TYPING, Clock(monkeypatch)))
    monkeypatch.setattr(*PLANTED[name])
    with pytest.raises(AssertionError):
        check(*anyio.run(respond, TYPING, Clock(monkeypatch)))


async def test_a_client_reconnects_after_any_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without `max_rate`, and after events that were joined."""
    Clock(monkeypatch)

    @asynccontextmanager
    async def events() -> AsyncIterator[AsyncIterator[UIEvent]]:
        yield texts()

    async def texts() -> AsyncIterator[UIEvent]:
        yield Start("r")
        for number in range(20):
            yield Text(f"<{number}>")
        yield Done("finished", "stop", None, [])

    async def read(run: Run, after: int, max_rate: float | None) -> list[dict[str, Any]]:
        exchange = Exchange()
        response = event_stream_response(run, after=after, max_rate=max_rate)
        await response(exchange.scope, exchange.receive, exchange.send)
        return read_frames(exchange.chunks)

    async with Runs() as runs:
        run = await runs.start(events(), owner="u")
        await run.wait()
        for rate, other in itertools.product([RATE, None], repeat=2):
            whole = await read(run, 0, rate)
            assert len(whole) < 22 if rate else len(whole) == 22
            for count, frame in enumerate(whole[:-1], 1):
                rest = await read(run, frame["seq"], other)
                shown = "".join(each.get("text", "") for each in whole[:count] + rest)
                assert "".join(f"<{number}>" for number in range(20)) == shown


@pytest.mark.parametrize("conversations", [False, True])
async def test_the_frames_of_a_websocket(conversations: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text waits in a frame for the next slot, also with a custom format."""
    clock = Clock(monkeypatch)
    source = Arriving()
    socket = Socket(*['{"text": "Hello"}'] * conversations)
    options: Any = {
        "format": lambda: outputs.custom(lambda event: getattr(event, "text", event.type)),
        "max_rate": RATE,
        "send_timeout": None,
    }

    async def serve() -> None:
        if conversations:
            await serve_websocket(socket, lambda message, session: source, **options)
        else:
            await send_events(socket, source, **options)

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        source.add(Start("r"), Text("a"), Text("b"), Text("c"))
        await clock.advance(0)
        shown = [message.get("text") for message in socket.sent]
        assert ["start", "a"] == shown[:2]
        await clock.advance(SLOT)
        assert ["start", "a", "bc"] == [message.get("text") for message in socket.sent]
        source.add(Text("d"), Text("e"), Done("finished", "stop", None, []))
        await clock.advance(0)
        texts = [message.get("text") for message in socket.sent if message["type"] == "websocket.send"]
        assert ["start", "a", "bc", "de", "done"] == texts
        group.cancel_scope.cancel()


async def test_an_encoder_that_fails_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exception about a waiting text is raised alone, and the stream is closed."""
    clock = Clock(monkeypatch)

    def convert(event: UIEvent) -> str:
        if isinstance(event, Text) and event.text != "a":
            raise ZeroDivisionError
        return event.type

    source = Arriving()
    source.add(Start("r"), Text("a"), Text("b"))
    exchange = Exchange()
    response = event_stream_response(source, format=lambda: outputs.custom(convert), max_rate=RATE, send_timeout=None)

    async def respond() -> None:
        with pytest.raises(ZeroDivisionError):
            await response(exchange.scope, exchange.receive, exchange.send)

    async with anyio.create_task_group() as group:
        group.start_soon(respond)
        await clock.advance(SLOT)
    assert source.closed


async def test_waiting_text_of_a_broken_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text is sent before the end of the body."""
    Clock(monkeypatch)

    async def events() -> AsyncIterator[UIEvent]:
        yield Start("r")
        for text in "abc":
            yield Text(text)
        raise ZeroDivisionError

    exchange = Exchange()
    with pytest.raises(ZeroDivisionError):
        await event_stream_response(events(), format="text", max_rate=RATE)(
            exchange.scope, exchange.receive, exchange.send
        )
    assert ([b"a", b"bc", b""], True) == (exchange.chunks, exchange.ended)


@pytest.mark.parametrize("value", [0, -1, True, "30"])
def test_invalid_rates(value: Any) -> None:
    with pytest.raises(ValueError, match="max_rate must be a positive number or None"):
        event_stream_response([], max_rate=value)  # type: ignore[arg-type]

"""Servers and websockets that behave differently from uvicorn, simulated on both event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import pytest
from starlette.requests import ClientDisconnect

from streamtools import outputs
from streamtools.events import Done, Start, UIEvent
from streamtools.outputs.asgi import event_stream_response, send_events
from streamtools.serving.response_writer import ResponseWriter
from tests.support.serving import Exchange, read_frames

EVENTS: list[UIEvent] = [Start("r", seq=1), Done("finished", "stop", None, [], seq=2)]


class Bare:
    """Events without a `close` method."""

    def __init__(self) -> None:
        self._events = iter(EVENTS)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> UIEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration


class Socket:
    """An accepted websocket with these frames, which may fail to send and to receive."""

    def __init__(self, *frames: str, refuses: int | None = None, raises: bool = False) -> None:
        self._frames = list(frames)
        self._refuses = refuses
        self._raises = raises
        self.sent: list[Any] = []
        self.more = anyio.Event()

    async def accept(self) -> None:
        """Do nothing: the websocket is already accepted."""
        raise AssertionError("it is accepted")

    async def receive(self) -> Any:
        """Return the next frame."""
        if self._raises:
            raise RuntimeError("there is no client")
        while not self._frames:
            await self.more.wait()
            self.more = anyio.Event()
        return {"type": "websocket.receive", "text": self._frames.pop(0)}

    def say(self, frame: str) -> None:
        """Add a frame."""
        self._frames.append(frame)
        self.more.set()

    async def send(self, message: Any) -> None:
        """Record a message."""
        if self._refuses is not None and len(self.sent) >= self._refuses:
            raise RuntimeError("there is no client")
        self.sent.append(message)


class Struck:
    """Encodes like the native encoder, and reports when its keep-alive is used."""

    content_type, headers, resumable = "text/event-stream", dict[str, str](), True

    def __init__(self) -> None:
        self._native = outputs.native()
        self.struck = anyio.Event()

    def encode(self, event: UIEvent) -> bytes:
        return self._native.encode(event)

    def close(self) -> bytes:
        return self._native.close()

    @property
    def keep_alive(self) -> bytes:
        self.struck.set()
        return self._native.keep_alive


async def test_messages_do_not_overlap() -> None:
    """Messages of several tasks do not overlap. A cancelled one lets the others continue."""
    gates = {name: anyio.Event() for name in "abc"}
    begun = list[str]()

    async def send(name: str) -> None:
        begun.append(name)
        await gates[name].wait()

    writer = ResponseWriter(send, keep_alive=None, send_timeout=None)
    async with anyio.create_task_group() as group:
        for name in "abc":
            group.start_soon(writer.send, name)
        for expected in (1, 2, 3):
            await anyio.wait_all_tasks_blocked()
            assert expected == len(begun)
            gates[begun[-1]].set()
    assert ["a", "b", "c"] == sorted(begun)


async def test_a_message_that_need_not_wait_is_sent_by_a_cancelled_task() -> None:
    """Otherwise, an answer whose time is over would end without its last message."""
    sent: list[str] = []

    async def send(message: str) -> None:
        sent.append(message)

    writer = ResponseWriter(send, keep_alive=None, send_timeout=None)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await writer.send("last")
    assert ["last"] == sent


async def test_iterables_without_aclose() -> None:
    """An iterable without `aclose` is read to its end, also without timeouts."""
    exchange = Exchange()
    with anyio.move_on_after(20):
        response = event_stream_response(Bare(), keep_alive=None, send_timeout=None)
        await response(exchange.scope, exchange.receive, exchange.send)
    assert ["start", "done"] == [frame["type"] for frame in read_frames(exchange.chunks)]
    assert exchange.ended


async def test_a_stream_that_is_slow_to_close() -> None:
    """No keep-alive follows the end of the body."""

    @asynccontextmanager
    async def slow() -> AsyncIterator[Bare]:
        yield Bare()
        encoder.struck = anyio.Event()
        await encoder.struck.wait()

    exchange, encoder = Exchange(), Struck()
    with anyio.fail_after(20):
        await event_stream_response(slow(), format=encoder, keep_alive=0.001)(
            exchange.scope, exchange.receive, exchange.send
        )
    assert exchange.ended


@pytest.mark.parametrize("stuck", [0, 2, 4])
async def test_a_middleware_reports_the_disconnect(stuck: int) -> None:
    """ClientDisconnect from any message ends the response, as with Starlette's middlewares."""
    exchange = Exchange(silent=True)

    async def send(message: Any) -> None:
        if len(exchange.sent) >= stuck:
            raise ClientDisconnect
        await exchange.send(message)

    with anyio.fail_after(20):
        await event_stream_response(Bare())(exchange.scope, exchange.receive, send)
    assert stuck == len(exchange.sent)


@pytest.mark.parametrize("refuses", range(4))
async def test_a_websocket_that_cannot_send(refuses: int) -> None:
    """The client has left. Nothing is raised, not even for the close frame."""
    socket = Socket(refuses=refuses)
    with anyio.fail_after(20):
        await send_events(socket, Bare())
    assert ["websocket.send"] * min(refuses, 2) + ["websocket.close"] * (refuses == 3) == [
        message["type"] for message in socket.sent
    ]


async def test_a_websocket_that_cannot_receive() -> None:
    """The client has left."""
    left = anyio.Event()

    async def held() -> AsyncIterator[UIEvent]:
        try:
            await anyio.sleep_forever()
            yield EVENTS[0]
        finally:
            left.set()

    socket = Socket(raises=True)
    with anyio.fail_after(20):
        await send_events(socket, held())
    assert [] == socket.sent

"""Long histories are written in a worker thread, so that the event loop serves other clients meanwhile."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import anyio
import pytest

from streamtools.calls import NATIVE, ToolCall
from streamtools.conversation import Ask, OpenAIChat
from streamtools.conversation.models.model import Body
from streamtools.conversation.reply import Reply
from streamtools.events import SourceEvent, TextDelta
from streamtools.history import Assistant, CallResult, Message, Results, User
from streamtools.stream.long_work import IN_THREAD
from tests.support.loopback import Loopback
from tests.support.provider import Provider

pytestmark = pytest.mark.anyio

STREAM = [b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]
NUMBERS = range(1_000)
CALLS = [ToolCall(id=f"c{number}", name="f", arguments={"number": number}, dialect=NATIVE) for number in NUMBERS]
RESULTS = Results(tuple(CallResult(NATIVE, "f", "a", call.id) for call in CALLS))
user = ContextVar("user", default="")


class Watched(OpenAIChat):
    """Records the thread in which each body is written, and the context. Then it waits for `goes_on`."""

    def __init__(self, server: Loopback) -> None:
        super().__init__("m", base_url=server.url)
        self.written: list[tuple[bool, str]] = []
        self.begun, self.goes_on = threading.Event(), threading.Event()

    def body(self, ask: Ask) -> Body:
        self.written.append((threading.current_thread() is threading.main_thread(), user.get()))
        self.begun.set()
        self.goes_on.wait(20)
        return super().body(ask)


@pytest.mark.parametrize(
    ("history", "is_long"),
    [
        ([User("Hi"), Assistant("Hello!")], False),
        ([User("a" * IN_THREAD)], True),
        ([User("Hi"), Assistant("a" * 400)] * 200, True),
        ([User("Hi"), Assistant(calls=CALLS), RESULTS], True),
        ([User([{"type": "text", "text": "a"}] * 4_000)], True),
        ([User("\ud83d")], True),
    ],
    ids=["short", "a text", "messages", "calls", "parts", "a lone surrogate, whose length is unknown"],
)
async def test_a_long_history_is_written_in_a_thread(history: list[Message], is_long: bool) -> None:
    """Context variables have their values there."""
    user.set("ann")
    async with Provider(Loopback(STREAM)) as server:
        model = Watched(server)
        model.goes_on.set()
        reply = Reply(model, Ask(tuple(history)))
        events: list[SourceEvent] = [event async for batch in reply for event in batch]
        await reply.aclose()

        assert TextDelta("a") == events[0]
        assert [(not is_long, "ann")] == model.written
        assert 1 == len(server.requests)


async def test_a_cancelled_request_is_not_sent() -> None:
    """The thread is awaited first."""
    async with Provider(Loopback(STREAM)) as server:
        model = Watched(server)
        reply = Reply(model, Ask((User("a" * IN_THREAD),)))
        async with anyio.create_task_group() as group:
            group.start_soon(reply.__anext__)
            await anyio.to_thread.run_sync(model.begun.wait, 20)
            group.cancel_scope.cancel()
            model.goes_on.set()
        await reply.aclose()
        assert 1 == len(model.written)
        assert [] == server.requests

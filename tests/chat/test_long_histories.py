"""Long histories are written in a worker thread, so that the event loop serves other clients meanwhile."""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any

import anyio
import pytest

from streamtools import chat
from streamtools.calls import NATIVE, ToolCall
from streamtools.conversation import Ask, Fallback, Model, OpenAIChat, RequestOptions
from streamtools.conversation.models.model import Body
from streamtools.conversation.reply import Reply
from streamtools.events import SourceEvent, TextDelta
from streamtools.history import Assistant, CallResult, Message, Results, User
from streamtools.history.pairing import pair_results
from streamtools.stream.long_work import IN_THREAD
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.talks import PARIS, TOOLS, calls, decides, model_of, refuses, says

STREAM = [b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]
CALLS = [ToolCall(id=f"c{n}", name="f", arguments={"number": n}, dialect=NATIVE) for n in range(1_000)]
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


@pytest.mark.parametrize("kind", ["native", "taught", "emulated", "failed over"])
async def test_all_requests_of_a_chat_are_adapted_in_a_thread(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def pair(*given: Any) -> list[Message]:
        threads.append(threading.current_thread())
        return pair_results(*given)

    monkeypatch.setattr("streamtools.conversation.reply.pair_results", pair)
    in_text = says('~~~tool_call\n{"name": "weather", "arguments": {"city": "Paris"}}\n~~~')
    answers = {
        "native": [calls(("weather", PARIS))],
        "taught": [in_text],
        "emulated": [says("Hm."), decides(("weather", PARIS)), says("Hm."), decides()],
        "failed over": [refuses(500, "")],
    }[kind] + [says("Warm.")]
    async with Provider(*answers) as server:
        model: Model = model_of(server, native_tool_calls=False if kind == "taught" else None)
        model = Fallback(model, model) if kind == "failed over" else model
        request = RequestOptions(emulation="fallback" if kind == "emulated" else "off")
        await chat(model, [User("a" * IN_THREAD)], tools=TOOLS, request=request)
        assert len(answers) == len(server.requests) == len(threads)
    assert threading.main_thread() not in threads

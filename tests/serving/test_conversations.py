"""Several conversations over one websocket, which is simulated, on both event loops."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import ToolStream
from streamtools.errors import OwnerUnreachable
from streamtools.events import Done, ProviderCompleted, Start, Text, UIEvent
from streamtools.outputs.asgi import Session, serve_websocket
from streamtools.runs import Runs
from tests.serving.test_asgi_by_hand import Socket
from tests.serving.test_asgi_websockets import stream, texts

pytestmark = pytest.mark.anyio

STOP = [ProviderCompleted(finish_reason="stop")]


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(40):
        await anyio.lowlevel.checkpoint()


class Conversations:
    """Serves a simulated websocket. The answer to `{"ask": n}` is the run `n`, which ends when a test lets it."""

    def __init__(self, max_waiting: int = 2) -> None:
        self.max_waiting = max_waiting
        self.socket = Socket()
        self.go_on = dict[str, anyio.Event]()
        self.closing = anyio.Event()
        self.closing.set()

    @asynccontextmanager
    async def answer(self, run_id: str) -> AsyncIterator[AsyncIterator[UIEvent]]:
        """Yield the events of a run. It is left when `closing` is set."""

        async def events() -> AsyncIterator[UIEvent]:
            yield Start(run_id, seq=1)
            await self.go_on.setdefault(run_id, anyio.Event()).wait()
            yield Done("finished", None, None, [], seq=2)

        yield events()
        await self.closing.wait()

    async def serve(self) -> None:
        """Serve the websocket."""
        limits = {"max_conversations": 2, "max_waiting": self.max_waiting}
        await serve_websocket(self.socket, lambda message, session: self.answer(message["ask"]), **limits)

    def say(self, conversation: str, **frame: Any) -> None:
        """Send a frame."""
        self.socket.say(json.dumps({"conversation": conversation, **frame}))

    @property
    def ends(self) -> dict[str, str]:
        """The reason why each run ended, by its id."""
        current: dict[str, str] = {}
        found = {}
        for frame in (json.loads(message["text"]) for message in self.socket.sent if "text" in message):
            if frame.get("type") == "start":
                current[frame["conversation"]] = frame["run_id"]
            if frame.get("type") == "done":  # a run that is cancelled early has no `start`
                found[current.pop(frame["conversation"], f"early {len(found)}")] = frame["reason"]
        return found


ACTIONS = ("ask a", "ask b", "stop a", "stop the run of a", "stop an ended run of a", "let a end")


@pytest.mark.parametrize("first", ACTIONS[:2])
async def test_a_stop_ends_the_answer_that_it_means(first: str) -> None:
    """After any actions, exactly the answers have ended that a model of the conversations says."""
    for actions in itertools.product([first], ACTIONS, ACTIONS, ACTIONS[:5]):
        conversations, count = Conversations(), itertools.count()
        waiting: dict[str, list[str]] = {"a": [], "b": []}
        expected: dict[str, str] = {}
        async with anyio.create_task_group() as group:
            group.start_soon(conversations.serve)
            for action in actions:
                current = waiting["a"][0] if waiting["a"] else None
                match action.split():
                    case ["ask", name]:
                        waiting[name].append(f"r{next(count)}")
                        conversations.say(name, ask=waiting[name][-1])
                    case ["stop", "an", *_]:
                        conversations.say("a", cancel=True, run_id="r9")
                    case ["stop", *words]:
                        conversations.say("a", cancel=True, **({"run_id": current} if words != ["a"] else {}))
                        if current is not None:
                            expected[waiting["a"].pop(0)] = "cancelled"
                    case _ if current is not None:
                        conversations.go_on[current].set()
                        expected[waiting["a"].pop(0)] = "finished"
                await settle()
                assert expected == conversations.ends, actions
            group.cancel_scope.cancel()


async def test_a_new_message_right_after_a_stop_is_answered() -> None:
    """Frames arrive together: each stop ends the message before it only."""
    conversations = Conversations(max_waiting=8)
    for number in range(3):
        conversations.say("a", ask=f"r{number}")
        conversations.say("a", cancel=True)
    conversations.say("a", ask="last")
    async with anyio.create_task_group() as group:
        group.start_soon(conversations.serve)
        await settle()
        assert ["cancelled"] * 3 == [*conversations.ends.values()]
        conversations.go_on["last"].set()
        await settle()
        group.cancel_scope.cancel()
    assert "finished" == conversations.ends["last"]


async def test_a_stop_while_the_last_answer_is_closing() -> None:
    """Its `done` was sent, so an unnamed stop means the next message."""
    conversations = Conversations()
    conversations.closing = anyio.Event()
    async with anyio.create_task_group() as group:
        group.start_soon(conversations.serve)
        for frame in ({"ask": "r1"}, {}, {"ask": "r2"}, {"cancel": True}):
            if frame:
                conversations.say("a", **frame)
            else:
                conversations.go_on["r1"].set()
            await settle()
        conversations.closing.set()
        await settle()
        group.cancel_scope.cancel()
    assert ["finished", "cancelled"] == [*conversations.ends.values()]


async def test_too_many_conversations() -> None:
    """A third one is refused while two are active, and answered after one has ended."""
    conversations = Conversations()
    async with anyio.create_task_group() as group:
        group.start_soon(conversations.serve)
        for name in ("a", "b", "c"):
            conversations.say(name, ask=name)
        await settle()
        frames = [json.loads(message["text"]) for message in conversations.socket.sent]
        (refused,) = [frame for frame in frames if frame["conversation"] == "c"]
        assert "too_many" == refused["error"]["code"]
        conversations.go_on["a"].set()
        await settle()
        conversations.say("c", ask="c")
        await settle()
        assert {"a": "finished"} == conversations.ends
        conversations.go_on["c"].set()
        await settle()
        group.cancel_scope.cancel()
    assert {"a": "finished", "c": "finished"} == conversations.ends


@pytest.mark.parametrize("conversation", [3, "", "a" * 2_000, ["a"]])
async def test_invalid_conversations(conversation: Any) -> None:
    """The frame is refused, and the message is not answered."""
    socket = Socket(json.dumps({"conversation": conversation, "text": "a"}))
    async with anyio.create_task_group() as group:
        group.start_soon(serve_conversations, socket)
        await settle()
        group.cancel_scope.cancel()
    assert ["wrong_type"] == [json.loads(message["text"])["error"]["code"] for message in socket.sent]


async def serve_conversations(websocket: Any, **options: Any) -> None:
    """Answer each message with its text."""

    def answer(message: dict[str, Any], session: Session) -> ToolStream:
        return stream(*texts(f"{session.conversation}: {message['text']}"), hold=message.get("hold", False))[0]

    await serve_websocket(websocket, answer, **{"max_conversations": 4, **options})


async def test_a_client_without_the_field_notices_nothing() -> None:
    """With and without the option, its frames have no conversation. Without the option, the field has no meaning."""
    options: dict[str, Any]
    for options, frame in (({}, {}), ({"max_conversations": None}, {"conversation": "a"})):
        socket = Socket(json.dumps({"text": "hello", "hold": True, **frame}), '{"cancel": true}')
        async with anyio.create_task_group() as group:
            group.start_soon(lambda socket=socket, options=options: serve_conversations(socket, **options))
            await settle()
            group.cancel_scope.cancel()
        frames = [json.loads(message["text"]) for message in socket.sent]
        assert "cancelled" == frames[-1]["reason"]
        assert not [frame for frame in frames if "conversation" in frame]


class Unreachable:
    """A run of another process that does not answer."""

    async def __aenter__(self) -> AsyncIterator[UIEvent]:
        return self.events()

    async def __aexit__(self, *args: object) -> None:
        return None

    async def events(self) -> AsyncIterator[UIEvent]:
        """Yield one event."""
        yield Text("a", seq=1)
        await anyio.sleep_forever()


async def test_a_run_that_cannot_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is told, and the connection stays open."""
    socket = Socket('{"text": "a"}')
    async with Runs() as runs, anyio.create_task_group() as group:
        run = await runs.start(Unreachable(), owner="ann")

        async def refuse() -> None:
            raise OwnerUnreachable("The process does not answer.")

        monkeypatch.setattr(run, "stop", refuse)
        group.start_soon(serve_websocket, socket, lambda message, session: run)
        await settle()
        socket.say('{"cancel": true}')
        await settle()
        assert {"code": "not_stopped", "message": "The process does not answer."} == json.loads(
            socket.sent[-1]["text"]
        )["error"]
        group.cancel_scope.cancel()
        run.cancel()

"""Several conversations over one websocket, which is simulated, on both event loops."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import chat
from streamtools.conversation import ScriptedModel
from streamtools.errors import ConversationBusy, InvalidDecision, OwnerUnreachable, RunNotFound, TooManyRuns
from streamtools.events import Done, Start, TextDelta, UIEvent
from streamtools.machine.event_order import validate
from streamtools.outputs.asgi import serve_websocket
from streamtools.runs import Run, Runs
from streamtools.serving.event_reader import EventReader, EventSink
from streamtools.stream import ToolStream
from tests.serving.test_asgi_by_hand import Socket
from tests.support.stories import Script

REFUSED: dict[str, Callable[[str], Exception]] = {
    "busy": ConversationBusy,
    "decision_refused": InvalidDecision,
    "run_not_found": RunNotFound,
    "too_many_runs": TooManyRuns,
    "too_many_runs_of_owner": lambda reason: TooManyRuns(reason, code="too_many_runs_of_owner"),
    "unreachable": OwnerUnreachable,
}


class Conversations:
    """Serves a simulated websocket. The answer to `{"ask": id}` is a run, which ends when a test lets it."""

    def __init__(self, key: str = "conversation") -> None:
        self.key = key
        self.socket = Socket()
        self.go_on = dict[str, anyio.Event]()
        self.closing = anyio.Event()
        self.closing.set()
        self.run: Run | None = None

    @asynccontextmanager
    async def answer(self, run_id: str) -> AsyncIterator[AsyncIterator[UIEvent]]:
        """Yield the events of a run. It is left when `closing` is set."""

        async def events() -> AsyncIterator[UIEvent]:
            yield Start(run_id, seq=1)
            await self.go_on.setdefault(run_id, anyio.Event()).wait()
            yield Done("finished", None, None, [], seq=2)

        yield events()
        await self.closing.wait()

    def ask(self, run_id: str) -> Any:
        if run_id in REFUSED:
            raise REFUSED[run_id]("Not now.")
        return self.answer(run_id)

    @asynccontextmanager
    async def serving(self, max_conversations: int | None = 2) -> AsyncIterator[None]:
        """Serve the websocket."""

        async def serve() -> None:
            await serve_websocket(
                self.socket,
                lambda message, session: self.run or self.ask(message["ask"]),
                max_conversations=max_conversations,
                conversation_key=self.key,
            )

        async with anyio.create_task_group() as group:
            group.start_soon(serve)
            yield
            await settle()
            group.cancel_scope.cancel()

    def say(self, conversation: Any, **frame: Any) -> None:
        """Send a frame."""
        self.socket.say(json.dumps(({} if conversation is None else {self.key: conversation}) | frame))

    @property
    def frames(self) -> list[dict[str, Any]]:
        """The frames of the server."""
        return [json.loads(message["text"]) for message in self.socket.sent]

    @property
    def ends(self) -> dict[str, str]:
        """The reason why each run ended, by its id."""
        current: dict[str, str] = {}
        found: dict[str, str] = {}
        for frame in self.frames:
            if frame.get("type") == "start":
                current[frame[self.key]] = frame["run_id"]
            if frame.get("type") == "done":  # a run that is cancelled early has no `start`
                found[current.pop(frame[self.key], f"early {len(found)}")] = frame["reason"]
        return found


async def test_the_page_has_its_own_frames(caplog: pytest.LogCaptureFixture) -> None:
    """`read` converts them. If it raises, the frame is refused. If it returns no dict, the server fails."""
    conversations = Conversations()

    def read(frame: dict[str, Any]) -> Any:
        return {"stop": {"cancel": True}, "say": {"ask": frame.get("text")}, "hm": None}[frame["kind"]]

    async def serve() -> None:
        with pytest.raises(TypeError, match="the result of `read` must be a dict, got None"):
            await serve_websocket(conversations.socket, lambda message, _: conversations.ask(message["ask"]), read=read)

    async with anyio.create_task_group() as group:
        group.start_soon(serve)
        for frame in ({"kind": "say", "text": "r1"}, {"kind": "stop"}, {"sort": "stop"}):
            conversations.socket.say(json.dumps(frame))
            await settle()
        done, refused = conversations.frames[-2:]
        assert ("cancelled", "refused") == (done["reason"], refused["error"]["code"])
        assert "reason=\"no key 'kind'\"" in caplog.text
        conversations.socket.say('{"kind": "hm"}')
    assert {"type": "websocket.close", "code": 1011} == conversations.socket.sent[-1]


async def settle() -> None:
    """Let all tasks run until they wait."""
    for _ in range(40):
        await anyio.lowlevel.checkpoint()


ACTIONS = ("ask a", "ask b", "stop a", "stop the run of a", "stop an ended run of a", "let a end")


@pytest.mark.parametrize("first", ACTIONS[:2])
async def test_a_stop_ends_the_answer_that_it_means(first: str) -> None:
    """After any actions, exactly those answers have ended that a model of the conversations says."""
    for actions in itertools.product([first], ACTIONS, ACTIONS, ACTIONS[:5]):
        conversations, count = Conversations(), itertools.count()
        waiting: dict[str, list[str]] = {"a": [], "b": []}
        expected: dict[str, str] = {}
        async with conversations.serving():
            for action in actions:
                current = waiting["a"][0] if waiting["a"] else None
                match action.split():
                    case ["ask", name]:
                        waiting[name].append(f"r{next(count)}")
                        conversations.say(name, ask=waiting[name][-1])
                    case ["stop", "an", *_]:
                        conversations.say("a", cancel=True, run_id="r9")
                    case ["stop", *words]:
                        conversations.say("a", cancel=True, run_id=None if words == ["a"] else current)
                        if current is not None:
                            expected[waiting["a"].pop(0)] = "cancelled"
                    case _ if current is not None:
                        conversations.go_on[current].set()
                        expected[waiting["a"].pop(0)] = "finished"
                await settle()
                assert expected == conversations.ends, actions


async def test_a_client_is_told_that_the_code_after_an_answer_has_failed() -> None:
    conversations = Conversations()

    @asynccontextmanager
    async def unsaved(run_id: str) -> AsyncIterator[AsyncIterator[UIEvent]]:
        async with conversations.answer(run_id) as events:
            yield events
        raise OSError("not saved")

    async def converse() -> None:
        async with conversations.serving():
            conversations.ask = unsaved  # type: ignore[method-assign]
            conversations.say("a", ask="r1")
            await settle()
            conversations.go_on["r1"].set()
            await anyio.sleep_forever()

    with pytest.raises(BaseExceptionGroup) as caught:
        await converse()
    assert caught.group_contains(OSError, match="not saved")
    frames = [json.loads(sent["text"]) for sent in conversations.socket.sent if "text" in sent]
    assert ["start", "error", "done"] == [frame["type"] for frame in frames]
    assert "failed" == frames[-1]["reason"]


@pytest.mark.parametrize("code", REFUSED)
async def test_a_message_that_is_refused_keeps_its_websocket(code: str) -> None:
    conversations = Conversations()
    conversations.say("a", ask=code)
    async with conversations.serving():
        await settle()
        conversations.say("b", ask="r1")
        await settle()
        conversations.go_on["r1"].set()
    assert {"conversation": "a", "error": {"code": code, "message": "Not now."}} in conversations.frames
    assert {"r1": "finished"} == conversations.ends


async def test_a_new_message_right_after_a_stop_is_answered() -> None:
    """Frames arrive together: each stop ends the message before it only."""
    conversations = Conversations()
    for number in range(3):
        conversations.say("a", ask=f"r{number}")
        conversations.say("a", cancel=True)
    conversations.say("a", ask="last")
    async with conversations.serving():
        await settle()
        conversations.go_on["last"].set()
    assert ["cancelled"] * 3 + ["finished"] == [*conversations.ends.values()]


async def test_a_stop_while_the_last_answer_is_closing() -> None:
    """Its `done` is sent after the code that closes it. Until then, an unnamed stop does not mean the next message."""
    conversations = Conversations()
    conversations.closing = anyio.Event()
    async with conversations.serving():
        conversations.say("a", ask="r1")
        await settle()
        conversations.go_on["r1"].set()
        await settle()
        conversations.say("a", ask="r2")
        conversations.say("a", cancel=True)
        await settle()
        conversations.closing.set()
        await settle()
        conversations.go_on["r2"].set()
    assert {"r1": "finished", "r2": "finished"} == conversations.ends


@pytest.mark.parametrize("key", ["conversation", "room"])
async def test_too_many_conversations(key: str) -> None:
    """A third one is refused while two are active, and answered after one has ended."""
    conversations = Conversations(key)
    async with conversations.serving():
        for name in "abc":
            conversations.say(name, ask=name)
        await settle()
        errors = [frame["error"]["code"] for frame in conversations.frames if frame[key] == "c"]
        assert ["too_many_conversations"] == errors
        conversations.go_on["a"].set()
        await settle()
        conversations.say("c", ask="c")
        await settle()
        conversations.go_on["c"].set()
    assert {"a": "finished", "c": "finished"} == conversations.ends


async def test_a_refused_message() -> None:
    """The other conversation continues, and so does its own."""
    conversations = Conversations()
    async with conversations.serving():
        for name, frame in (("a", {"ask": "r1"}), ("b", {"aks": "r2"}), ("b", {"ask": "r2"})):
            conversations.say(name, **frame)
        await settle()
        for run_id in ("r1", "r2"):
            conversations.go_on[run_id].set()
    errors = [(frame["conversation"], frame["error"]["code"]) for frame in conversations.frames if "error" in frame]
    assert [("b", "refused")] == errors
    assert {"r1": "finished", "r2": "finished"} == conversations.ends


async def test_a_stream_in_place_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """The log has a warning for each message."""
    socket, question = Socket(), [{"role": "user", "content": "Hi"}]

    async def serve() -> None:
        await serve_websocket(
            socket, lambda message, session: chat(ScriptedModel(["Yes?"]), question), runs=runs, owner="ann"
        )

    with anyio.fail_after(10):
        async with Runs() as runs, anyio.create_task_group() as group:
            group.start_soon(serve)
            for number in (1, 2):
                socket.say("{}")
                while number > sum('"done"' in message.get("text", "") for message in socket.sent):
                    await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
    assert ["not_a_run"] * 2 == [record.getMessage().split()[0] for record in caplog.records]


@pytest.mark.parametrize(("key", "most", "told"), [("text", 2, "got 'text'"), ("room", None, "needs `max_conv")])
async def test_a_key_that_other_frames_have(key: str, most: int | None, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        await serve_websocket(Socket(), lambda *_: None, max_conversations=most, conversation_key=key)


@pytest.mark.parametrize("conversation", [3, "", "a" * 2_000, ["a"]])
async def test_invalid_conversations(conversation: Any) -> None:
    """The frame is refused, and the message is not answered."""
    conversations = Conversations()
    conversations.say(conversation, ask="a")
    async with conversations.serving():
        conversations.say("a", cancel=7)
    errors = [(frame.get("conversation"), frame["error"]["code"]) for frame in conversations.frames]
    assert [(None, "wrong_type"), ("a", "wrong_type")] == errors


@pytest.mark.parametrize(("limit", "conversation"), [(2, None), (None, "a"), (None, None)])
async def test_a_client_without_the_field_notices_nothing(limit: int | None, conversation: str | None) -> None:
    """Its frames have no conversation. Without the option, the field has no meaning."""
    conversations = Conversations()
    conversations.say(conversation, ask="a")
    conversations.say(None, cancel=True)
    async with conversations.serving(limit):
        pass
    assert "cancelled" == conversations.frames[-1]["reason"]
    assert not [frame for frame in conversations.frames if "conversation" in frame]


async def test_a_run_that_cannot_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gets an error, and the connection stays open."""

    async def refuse() -> None:
        raise OwnerUnreachable("The process does not answer.")

    conversations = Conversations()
    async with Runs() as runs:
        run = conversations.run = await runs.start(conversations.answer("a"), owner="ann")
        conversations.say("a", ask="a")
        conversations.say("a", cancel=True)
        with monkeypatch.context() as patch:
            patch.setattr(run, "stop", refuse)
            async with conversations.serving():
                pass
    error = {"code": "not_stopped", "message": "The process does not answer."}
    assert {"conversation": "a", "error": error} in conversations.frames


class EventList(EventSink):
    """Keeps the events that a client gets."""

    def __init__(self) -> None:
        self.events = list[UIEvent]()

    async def send(self, events: Sequence[UIEvent], /) -> None:
        self.events += events


async def test_a_stop_before_the_answer_begins() -> None:
    """The client gets a whole run, although the stream is never opened."""
    stream = ToolStream(Script([TextDelta("Hello")]))
    reader, sink = EventReader(stream), EventList()
    await reader.stop()
    await reader.read(sink)
    await reader.close()
    assert [Start(stream.run_id, seq=1), Done("cancelled", None, None, [], seq=2)] == sink.events
    validate(sink.events)

"""A server that plays scenes with the library. A scene is a scripted model: its texts and its tool calls.

A question is a POST to `/FORMAT/SCENE`. The AI SDK reconnects with a GET of `/FORMAT/SCENE/CHAT/stream`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamtools import ParserOptions, RunnerOptions, ToolError, chat, outputs, tool
from streamtools.conversation import Chat, RequestOptions, ScriptedModel, ScriptedReply
from streamtools.events import SourceError, TextDelta
from streamtools.outputs import Encoder, asgi
from streamtools.runs import Run, Runs
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools import Answer as Result
from streamtools.tools import Approve, Deny, MemoryLedger
from streamtools.tools.approvals import Decision


def written(name: str, arguments: str) -> str:
    """Return a call, as a model writes it."""
    return f'~~~tool_call\n{{"name": "{name}", "arguments": {arguments}}}\n~~~\n'


WEATHER = written("get_weather", '{"city": "Rome"}')

PAY = written("pay", '{"amount": 50}')
PICK = written("pick_date", '{"title": "Departure"}')

SCENES: dict[str, Sequence[ScriptedReply]] = {
    "one-call": ["Let me see.\n" + WEATHER, ["It is ", "31 degrees."]],
    "three-calls": [WEATHER + written("get_tide", "{}") + written("get_weather", "{oops"), "One of three."],
    "error": [[TextDelta("Half an ans"), SourceError("The provider is overloaded.")]],
    "slow": ["Wait.\n" + written("wait", "{}"), "There it is."],
    "count": [written("count", '{"to": 2}'), "Two."],
    "asked": [PAY, "So be it."],
    "own": ["Let me see.\n" + PICK, "It is booked."],
}


class Stage:
    """The state that a scene and its test share."""

    def __init__(self) -> None:
        self.go = anyio.Event()
        """Lets the tool `wait` answer."""
        self.runs = Runs()
        self.active: dict[str, tuple[Run, str]] = {}
        """The run of each chat, and the id of the message that it makes or continues with."""
        self.ledger = MemoryLedger()
        self.asking: Chat | None = None
        """The last chat whose calls wait for approval."""
        self.decided: list[str] = []
        self.requests: list[Any] = []
        """The bodies of the questions."""

    def app(self) -> Starlette:
        """Return the server."""

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            async with self.runs:
                yield

        ask = Route("/{format}/{scene}", self.ask, methods=["POST"])
        resume = Route("/{format}/{scene}/{chat}/stream", self.resume)
        return Starlette(routes=[ask, resume], lifespan=lifespan)

    async def ask(self, request: Request) -> Response:
        """Play a scene. If its chat can be resumed, it is a run."""
        asked = await request.json()
        self.requests.append(asked)
        stream = self.play(request.path_params["scene"], asked)
        run = await self.runs.start(stream, owner="me")
        if request.path_params["format"] == "ag_ui":
            version = asked.get("protocolVersion")
            ids: Any = {"thread_id": asked["threadId"], "run_id": asked["runId"]}
            results = [each["toolCallId"] for each in asked["messages"] if each["role"] == "tool"]
            encoder: outputs.Encoder = outputs.ag_ui(
                **ids, protocol_version=version, known_calls=self.decided, known_results=results
            )
            self.active[asked["threadId"]] = run, ""
        else:
            last = asked["messages"][-1]
            self.active[asked["id"]] = run, last["id"] if last["role"] == "assistant" else run.id
            encoder = self.encoder(request, asked["id"])
        return asgi.event_stream_response(run, format=encoder, keep_alive=0.05)

    async def resume(self, request: Request) -> Response:
        """Send all events of a run, including new ones. Returns status 204 if there is no run."""
        chat_id = request.path_params["chat"]
        if chat_id not in self.active:
            return Response(status_code=204)
        run, _ = self.active[chat_id]
        return asgi.event_stream_response(run, format=self.encoder(request, chat_id), keep_alive=0.05)

    def encoder(self, request: Request, chat_id: str) -> Encoder:
        """Return an encoder for the client's version."""
        target: Any = int(request.path_params["format"].removeprefix("ai"))
        message_id, known = self.active[chat_id][1], self.decided
        return outputs.ai_sdk(target, message_id=message_id, dynamic=["get_tide"], known_calls=known)

    def play(self, scene: str, asked: dict[str, Any]) -> ToolStream:
        """Return what a scene is."""
        model = ScriptedModel(SCENES[scene], native_tool_calls=False)
        question = [{"role": "user", "content": "What is the weather?"}]
        if scene in ("asked", "own"):
            waiting = self.asking.suspension if self.asking else None
            said = read_decisions(asked)
            self.decided = [call.id for call in waiting.calls] if waiting else []
            self.asking = chat(
                ScriptedModel(SCENES[scene][1:] if waiting else SCENES[scene], native_tool_calls=False),
                self.asking.messages() if self.asking else question,
                tools=[pay, pick_date],
                request=RequestOptions(teach="never"),
                runner=RunnerOptions(ledger=self.ledger),
                resume=waiting,
                approvals={call_id: said[call_id] for call_id in self.decided if call_id in said},
            )
            return self.asking
        return chat(
            model,
            question,
            tools=[get_weather, get_tide, count, self.wait],
            parser=ParserOptions(call_deltas=True),
            request=RequestOptions(teach="never"),
        )

    async def wait(self) -> str:
        """Wait until the test continues the scene."""
        await self.go.wait()
        return "at last"


def get_weather(city: str) -> dict[str, Any]:
    """Tell the weather."""
    return {"city": city, "degrees": 31}


@tool(requires_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(client=True)
def pick_date(title: str) -> str:
    """Let the user pick a date."""
    raise AssertionError("a tool of the front end is not run here")


def read_decisions(asked: dict[str, Any]) -> dict[str, Decision]:
    """Return the results and decisions of a front end, by call id."""
    said: dict[str, Decision] = {}
    for part in asked["messages"][-1].get("parts", ()):  # of the AI SDK
        match part:
            case {"state": "approval-responded", "approval": {"approved": True}}:
                said[part["toolCallId"]] = Approve()
            case {"state": "approval-responded", "approval": approval}:
                said[part["toolCallId"]] = Deny(approval["reason"])
            case {"state": "output-available", "output": output}:
                said[part["toolCallId"]] = Result(output)
    for each in asked["messages"]:  # of AG-UI
        if each["role"] == "tool":
            said[each["toolCallId"]] = Result(each["content"])
    for each in asked.get("resume", ()):
        payload = each.get("payload", {})
        said[each["interruptId"]] = Approve() if payload.get("approved") else Deny(payload.get("reason", ""))
    return said


async def count(to: int) -> AsyncIterator[dict[str, int]]:
    """Count."""
    for number in range(1, to + 1):
        yield {"at": number}


def get_tide() -> str:
    """Fail."""
    raise ToolError("The station is closed.")

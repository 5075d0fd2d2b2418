"""Decisions over a websocket: approved calls, denied calls, and calls that the client carries out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection

from streamtools import ApprovalOptions, chat
from streamtools.calls import ToolCall
from streamtools.conversation import Chat, ScriptedModel
from streamtools.events import UIEvent
from streamtools.outputs.asgi import Session, serve_websocket
from streamtools.runs import Runs
from tests.serving.test_asgi_websockets import conversing, hear, say, talking, visiting
from tests.support.approvals import ANN, QUESTION, Bank, calls
from tests.support.options import grouped
from tests.support.serving import Served

pytestmark = pytest.mark.asyncio_only

PAY = calls(("pay", ANN))
SIGN = calls(("sign", {"text": "Dear Ann"}))


class Counter:
    """A server with a bank. Its answers are streams, or runs of the owner in the path."""

    def __init__(self, *answers: Any, runs: Runs | None = None, **options: Any) -> None:
        self.bank = Bank()
        self.tools: Any = self.bank.tools
        self.chats: list[Chat] = []
        self._answers = answers
        self._runs = runs
        self._options = {"ask": "now", **options}

    async def serve(self, websocket: WebSocket) -> None:
        owner = websocket.path_params["owner"]

        async def handler(message: dict[str, Any], session: Session) -> Any:
            model = ScriptedModel(self._answers)
            answer = chat(model, [QUESTION], tools=self.tools, **grouped(tool_state=session, **self._options))
            self.chats.append(answer)
            return answer if self._runs is None else await self._runs.start(answer, owner=owner)

        await serve_websocket(websocket, handler, runs=self._runs, owner=owner)


@asynccontextmanager
async def counter(*answers: Any, kind: str = "stream", **options: Any) -> AsyncIterator[tuple[Counter, Served]]:
    """Serve a bank."""
    async with Runs() as runs:
        bank = Counter(*answers, runs=runs if kind == "run" else None, **options)
        async with Served(Starlette(routes=[WebSocketRoute("/{owner}", bank.serve)])) as server:
            with anyio.fail_after(20):
                yield bank, server


async def ask(client: ClientConnection, last: str = "approval-requested") -> dict[str, Any]:
    """Start an answer, and return the event with the question."""
    await say(client, {})
    return (await hear(client, last))[-1]


async def decide(client: ClientConnection, call_id: str, *, approved: bool, **rest: Any) -> None:
    """Send a decision."""
    await say(client, {"call_id": call_id, "decision": "approve" if approved else "deny", **rest})


def of(frames: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """Return the events of a type."""
    return [frame for frame in frames if frame.get("type") == kind]


@pytest.mark.parametrize("kind", ["stream", "run"])
@pytest.mark.parametrize("confirms", [True, False])
async def test_an_approved_call_runs(kind: str, confirms: bool) -> None:
    """A client that sends the digest of the question approves exactly the call that it has shown."""
    async with counter(PAY, "Done.", kind=kind) as (counted, server), visiting(server) as client:
        event = await ask(client)
        assert ToolCall(**event["call"]).digest == event["digest"]
        await decide(client, "n0", approved=True, **({"digest": event["digest"]} if confirms else {}))
        frames = await hear(client)
    assert ["paid 5 to Ann"] == [each["result"] for each in of(frames, "executed")]
    assert ("finished", [("Ann", 5)]) == (frames[-1]["reason"], counted.bank.paid)


@pytest.mark.parametrize("kind", ["stream", "run"])
async def test_a_denied_call_does_not_run(kind: str) -> None:
    """The model receives the reason."""
    async with counter(PAY, "Pity.", kind=kind) as (counted, server), visiting(server) as client:
        await ask(client)
        await decide(client, "n0", approved=False, reason="too much")
        frames = await hear(client)
        (told,) = [each for each in counted.chats[0].messages() if each["role"] == "tool"]
    (error,) = of(frames, "error")
    assert ("tool_denied", []) == (error["code"], counted.bank.paid)
    assert "was denied: too much" in told["content"]


async def test_an_approval_times_out() -> None:
    """The call is denied. A later decision is refused, and the connection stays open."""
    async with counter(PAY, "Pity.", decision_timeout=0.01) as (counted, server), visiting(server) as client:
        await ask(client)
        frames = await hear(client)
        for approved in (True, False):
            await decide(client, "n0", approved=approved)
            (answer,) = await hear(client, "error")
            assert ("not_waiting", "n0") == (answer["error"]["code"], answer["error"]["call_id"])
        assert "approval-requested" == (await ask(client))["type"]
    assert ["tool_denied"] == [each["code"] for each in of(frames, "error")]
    assert [] == counted.bank.paid


async def test_an_approval_of_another_call_is_refused() -> None:
    """Nothing runs, and the question stays open."""
    async with counter(PAY, "Done.") as (counted, server), visiting(server) as client:
        event = await ask(client)
        changed = ToolCall(id="n0", name="pay", arguments={**ANN, "amount": 1}, dialect="native")
        for wrong in (changed.digest, ""):
            await decide(client, "n0", approved=True, digest=wrong)
            (answer,) = await hear(client, "error")
            assert ("wrong_digest", "n0") == (answer["error"]["code"], answer["error"]["call_id"])
            assert "its digest differs" in answer["error"]["message"]
        assert [] == counted.bank.paid
        await decide(client, "n0", approved=True, digest=event["digest"])
        await hear(client)
    assert [("Ann", 5)] == counted.bank.paid


async def test_a_second_approval_is_refused() -> None:
    """The tool runs once, and every other decision is refused."""
    async with counter(PAY, "Done.") as (counted, server), visiting(server) as client:
        await ask(client)
        for late in range(40):  # more than the wrong frames for which a client is sent away
            await decide(client, "n0", approved=not late)
        answers: list[dict[str, Any]] = []
        while len(answers) < 39:
            answers += [each for each in await hear(client, "error") if "type" not in each]
        await decide(client, "n1", approved=True)
        answers += [each for each in await hear(client, "error") if "type" not in each]
    expected = [("already_decided", "n0")] * 39 + [("not_waiting", "n1")]
    assert expected == [(each["error"]["code"], each["error"]["call_id"]) for each in answers]
    assert [("Ann", 5)] == counted.bank.paid


async def test_another_connection_approves() -> None:
    """The page was reloaded. Another owner does not find the run and cannot decide."""
    async with counter(PAY, "Done.", kind="run") as (counted, server):
        async with visiting(server) as client:
            await say(client, {})
            seen = await hear(client, "approval-requested")
            client.transport.abort()
        again = {"resume": 0, "run_id": seen[0]["run_id"]}
        async with visiting(server, "bob") as client:
            await say(client, again)
            assert "run_not_found" == (await hear(client, "error"))[0]["error"]["code"]
            await decide(client, "n0", approved=True)
            assert "not_waiting" == (await hear(client, "error"))[0]["error"]["code"]
        assert [] == counted.bank.paid
        async with visiting(server) as client, visiting(server) as other:
            for each in (client, other):
                await say(each, again)
                assert seen == await hear(each, "approval-requested")
            await decide(client, "n0", approved=True, digest=seen[-1]["digest"])
            assert ["finished"] * 2 == [(await hear(each))[-1]["reason"] for each in (client, other)]
            await decide(other, "n0", approved=True)
            (late,) = await hear(other, "error")
    assert ("not_waiting", [("Ann", 5)]) == (late["error"]["code"], counted.bank.paid)


@pytest.mark.parametrize("kind", ["stream", "run"])
@pytest.mark.parametrize(
    ("said", "event", "told"),
    [
        ({"result": {"page": 3}}, "executed", {"page": 3}),
        ({"result": "not of the declared type"}, "error", "tool_output"),
        ({"error": "no ink"}, "error", "tool_failed"),
    ],
)
async def test_a_call_that_the_client_carries_out(kind: str, said: dict[str, Any], event: str, told: Any) -> None:
    """The call is `executing`. Its result is validated, and counts once."""
    async with counter(SIGN, "Done.", kind=kind) as (_, server), visiting(server) as client:
        call_id = (await ask(client, "executing"))["call"]["id"]
        await decide(client, call_id, approved=True)
        (refused,) = await hear(client, "error")
        assert ("wrong_kind", call_id) == (refused["error"]["code"], refused["error"]["call_id"])
        for answer in (said, {"error": "another"}):
            await say(client, {"call_id": call_id, "decision": "answer", **answer})
        frames = await hear(client)
        if not (wrong := [each for each in frames if "type" not in each]):
            wrong = await hear(client, "error")
    (end,) = of(frames, event)
    assert told == (end["result"] if event == "executed" else end["code"])
    assert [("already_decided", call_id)] == [(each["error"]["code"], each["error"]["call_id"]) for each in wrong]


async def test_plain_events_cannot_be_decided() -> None:
    """If the handler returns plain events, no call can be decided."""
    bank = Bank()

    async def handler(message: dict[str, Any], session: Session) -> AsyncIterator[UIEvent]:
        model = ScriptedModel([SIGN, "Done."])
        async with chat(model, [QUESTION], tools=bank.tools, approvals=ApprovalOptions(ask="now")) as events:
            async for event in events:
                yield event

    async with talking(conversing(handler)) as client:
        await ask(client, "executing")
        await decide(client, "n0", approved=True)
        assert "not_waiting" == (await hear(client, "error"))[0]["error"]["code"]
        await say(client, {"call_id": "n0", "decision": "answer", "result": True})
        assert "not_waiting" == (await hear(client, "error"))[0]["error"]["code"]

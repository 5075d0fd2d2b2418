"""The public API around a run, for the type checker: decisions, runs, responses, recordings, tests. Never run.

`typing_api` has the rest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, assert_type

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from conformance.ledger_laws import assert_ledger_laws
from streamtools import (
    ApprovalOptions,
    RunnerOptions,
    StreamOptions,
    Tool,
    ToolOutcome,
    ToolRegistry,
    ToolStream,
    TurnResult,
    chat,
    outputs,
    replay,
    sources,
    tool,
)
from streamtools.conversation import Chat, ScriptedModel
from streamtools.events import UIEvent
from streamtools.history import Message, read_messages, write_messages
from streamtools.outputs import asgi
from streamtools.recording import RecordingTransport, ReplayTransport, VirtualClock, record
from streamtools.runs import Attachment, MemoryEventLog, Run, Runs
from streamtools.testing import assert_events, assert_laws, read_events
from streamtools.tools import (
    Answer,
    Approve,
    CallLedger,
    Decidable,
    Decision,
    Deny,
    Entry,
    MemoryLedger,
    PostgresLedger,
    Question,
    RedisLedger,
    SQLiteLedger,
    Suspension,
)


@tool(requires_approval=lambda arguments: arguments["amount"] > 10, trust="native")
async def pay(to: str, amount: int) -> str:
    """Pay somebody."""
    return f"{amount} to {to}"


@tool(client=True)
def pick(title: str) -> str:
    """Let the user pick."""
    raise NotImplementedError


async def decide(model: ScriptedModel, ledger: Path) -> None:
    """Ask later and take it up again; ask now."""
    async with chat(model, [], tools=[pay, pick, Tool.declared("draw", "Draw.", {})]) as events:
        assert_type(events, Chat)
        assert_type(events.suspension, Suspension | None)
        kept = events.suspension
        assert_type(kept.trace if kept else "", str)
    assert kept is not None
    decisions: dict[str, Decision | bool] = {"a": True, "b": Approve(), "c": Deny("no"), "d": Answer({"x": 1})}
    again = chat(
        model,
        events.history,
        resume=kept.to_json(),
        approvals=decisions,
        runner=RunnerOptions(ledger=SQLiteLedger(ledger)),
    )
    async with again as events:
        ...
    now: StreamOptions = {
        "approvals": ApprovalOptions(ask="now", timeout=60.0),
        "runner": RunnerOptions(ledger=MemoryLedger()),
    }
    async with ToolStream(sources.text("Hello"), tools=[pay], **now) as stream:
        assert_type(stream.questions, list[Question])
        stream.approve("a", digest=stream.questions[0].digest)
        stream.deny("b", "no")
        stream.answer("c", [1])
        stream.decide("d", Deny("no"))


def decide_all(events: Decidable) -> None:
    """A history from one provider for another, and decisions about all waiting calls."""
    history = read_messages([{"role": "user", "content": "Hello"}])
    assert_type(history, list[Message])
    write_messages(history, "anthropic")
    for question in events.questions:
        events.decide(question.call.id, Deny("no"))


async def outlive(model: ScriptedModel) -> TurnResult:
    """A run, its readers, and its end."""
    async with Runs(MemoryEventLog(max_events=100, max_bytes=1_000_000), stop_when_abandoned=60) as runs:
        run = await runs.start(chat(model, []), owner="ann")
        assert_type(run, Run)
        async with run.attach(after=3) as events:
            assert_type(events, Attachment)
            async for event in events:
                assert_type(event, UIEvent)
        await (await runs.find(run.id, owner="ann")).stop()
        await runs.forget(run.id, owner="ann")
        runs.forget_ended(run.id, owner="ann")
        return await run.wait()


async def respond(request: Request, websocket: WebSocket, run: Run, model: ScriptedModel) -> Response:
    """A response, and the two kinds of websocket."""

    async def answer(message: dict[str, object], session: asgi.Session) -> Chat:
        return chat(model, [], runner=RunnerOptions(state=session))

    await asgi.send_events(websocket, run, after=asgi.last_event_id(request))
    await asgi.serve_websocket(websocket, answer, owner="ann")
    return asgi.event_stream_response(run, format=outputs.ai_sdk(7), request=request, on_disconnect="detach")


async def again(path: Path, client: httpx.AsyncClient) -> None:
    """Record, replay, and compare."""
    async with httpx.AsyncClient(transport=RecordingTransport(httpx.AsyncHTTPTransport(), path, redact=["x"])):
        ...
    async with httpx.AsyncClient(transport=ReplayTransport(path, cut="byte", clock=VirtualClock())):
        ...
    async with client.stream("POST", "/") as response:
        stream: AsyncIterator[bytes] = record(response, path).aiter_bytes()
        assert stream is not None
    events = await replay(path, tools=ToolRegistry(pay), reset_after=100, run_id="r")
    assert_type(events, list[UIEvent])
    assert_events(read_events(b""), [{"type": "start"}, ..., {"type": "done"}])
    assert_laws("tilde_fence")


async def at_most_once(calls: CallLedger, registry: ToolRegistry, response: dict[str, Any]) -> list[Entry]:
    """A ledger is one owner's; what it holds can be listed, resolved and pruned."""
    mine = MemoryLedger(per_owner=100).of("ann")
    assert_type(mine, MemoryLedger)
    assert_type(SQLiteLedger("calls.sqlite", lease=5.0).of("ann"), SQLiteLedger)
    async with PostgresLedger("postgresql:///calls", schema="st", lease=5.0, connections=2) as shared:
        assert_type(shared.of("ann"), PostgresLedger)
    async with RedisLedger("redis://localhost", prefix="st") as quick:
        assert_type(quick.of("ann"), RedisLedger)
        await assert_ledger_laws(lambda clock: PostgresLedger("postgresql:///calls", clock=clock))
    assert_type(await registry.process_tool_calls(response, ledger=mine, run_id="r"), list[ToolOutcome])
    for entry in await calls.entries(unknown=True):
        assert_type(await calls.resolve(entry.scope, entry.with_result({"paid": 5})), bool)
    assert_type(await calls.prune(3600.0), int)
    return await mine.entries("r", limit=10)


async def until_the_server_ends(request: Request, stream: ToolStream) -> Run | None:
    """A body with a bound, and runs that are found by their conversation and may finish."""
    assert_type(await asgi.read_body(request, json.loads, max_body=1 << 20), Any)
    async with asgi.shutdown_signal(drain=20.0) as shutdown, Runs(shutdown=shutdown) as runs:
        run = await runs.start(stream, owner="ann", conversation="c1", note={"seen": 1})
        assert_type(run.suspension, Suspension | None)
        return await runs.latest("c1", owner="ann")

"""A chat that another process continues after a crash: FastAPI, and DBOS as durable engine.

    MODEL_URL=http://127.0.0.1:8080/v1 BANK_URL=http://127.0.0.1:9000 uvicorn durable_dbos:app

DBOS records each request to the model and each call of a tool as a step of a workflow. It uses a file, or PostgreSQL
with `DBOS_SYSTEM_DATABASE_URL`. After a crash, the next process with the same `DBOS__VMID` runs the workflow again. So
each of several processes needs a different one, and a `REDIS_URL` for their readers.

Recorded steps are not repeated. The open step is: its request is sent again, and readers get a new answer. But a
payment that may have been sent is not sent again, because the ledger has recorded that it began.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import Annotated, Any

import anyio
import httpx
import msgspec
from dbos import DBOS
from fastapi import Cookie, FastAPI, HTTPException, Request
from fastapi.responses import Response
from pydantic import UUID4

from streamtools import ParserOptions, RunnerOptions, ToolCall, ToolContext, ToolError, ToolOutcome, chat, sources, tool
from streamtools.conversation import Ask, Model, OpenAIChat
from streamtools.events import SourceEvent
from streamtools.history import read_messages
from streamtools.outputs import asgi
from streamtools.runs import RedisStore, Runs
from streamtools.sources import Source
from streamtools.tools import PostgresLedger, SQLiteLedger

DATABASE = os.environ.get("DBOS_SYSTEM_DATABASE_URL")
ledger = PostgresLedger(DATABASE) if DATABASE else SQLiteLedger("calls.sqlite")


class RecordedModel:
    """A model whose answers are steps of the workflow. A recorded answer is not requested again."""

    def __init__(self, model: Model) -> None:
        self._model, self.name, self.native_tool_calls = model, model.name, model.native_tool_calls
        self.body = model.body

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Source]:
        """Send the events of the answer while they arrive, or the events of the recorded answer."""
        writer, reader = anyio.create_memory_object_stream[SourceEvent](math.inf)
        sent = 0

        async def request() -> list[SourceEvent]:
            nonlocal sent
            answer: list[SourceEvent] = []
            async with self._model.stream(ask) as source:
                async for batch in source:
                    for event in batch:
                        answer.append(event)
                        # Calls run after this event. Then their answer must be recorded, and with it their ids.
                        if event.type != "provider-completed" and sent == len(answer) - 1:
                            writer.send_nowait(event)
                            sent += 1
            return answer

        async def record() -> None:
            with writer:
                for event in (await DBOS.run_step_async({"name": "model"}, request))[sent:]:
                    writer.send_nowait(event)

        step = asyncio.create_task(record())
        try:
            yield sources.events(reader)
        finally:
            step.cancel()
            await asyncio.wait([step])


async def send_payment(call_id: str, to: str, amount: int) -> str:
    """Ask the bank to pay."""
    async with httpx.AsyncClient(base_url=os.environ["BANK_URL"]) as bank:
        payment = {"to": to, "amount": amount}
        (await bank.post("/payments", json=payment, headers={"Idempotency-Key": call_id})).raise_for_status()
    return f"paid {amount} to {to}"


@tool
async def pay(to: str, amount: int, context: ToolContext) -> str:
    """Pay an invoice."""
    scope = DBOS.workflow_id or ""
    call = ToolCall(id=context.call_id, name="pay", arguments={"to": to, "amount": amount}, dialect="")

    async def pay_once() -> str:
        entry = await ledger.begin(scope, call)
        if entry is None:
            result = await send_payment(call.id, to, amount)
            outcome = ToolOutcome(call=call, result=result, text=result, error=None, message=None, elapsed=0.0)
            await ledger.finish(scope, outcome)
        elif entry.outcome is None:
            raise ToolError("A crash cut this payment. It is unknown whether it was sent. It was not sent again.")
        else:
            result = entry.outcome.result
        return result

    return await DBOS.run_step_async({"name": "pay"}, pay_once)


model = OpenAIChat(
    os.environ.get("MODEL", "default"),
    base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    native_tool_calls=False,
)


@DBOS.workflow()
async def answer(owner: str, messages: list[Any]) -> str:
    """Answer in a run, which `latest` finds by the id of the workflow. Each process that tries has its own run."""
    workflow = DBOS.workflow_id or ""
    events = chat(
        RecordedModel(model),
        read_messages(messages, client=True),
        tools=[pay],
        parser=ParserOptions(new_id=partial(next, map(f"{workflow}-{{}}".format, count(1)))),  # the same after a crash
        runner=RunnerOptions(concurrency=1),  # DBOS numbers steps in the order in which they begin
    )
    run = await app.state.runs.start(events, owner=owner, conversation=workflow)
    result = await run.wait()
    if result.reason == "cancelled":  # this process stops; the workflow is unfinished, and the next process continues
        raise asyncio.CancelledError
    return str(result.text)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the engine. It then continues the workflows that a process with this database has not finished."""
    redis = os.environ.get("REDIS_URL")
    async with Runs(RedisStore(redis) if redis else None) as app.state.runs:
        DBOS(config={"name": "durable-chat", "system_database_url": DATABASE})
        DBOS.launch()  # in the event loop in which workflows shall run
        yield
    DBOS.destroy()


app = FastAPI(lifespan=lifespan, exception_handlers=asgi.exception_handlers)
Visitor = Annotated[UUID4, Cookie()]  # in your application, the user of the session: only the owner finds a run


def read_question(body: bytes) -> list[Any]:
    """Return the messages of a request body. Raises ValueError for invalid messages."""
    messages: list[Any] = msgspec.json.decode(body)["messages"]
    read_messages(messages, client=True)
    return messages


@app.post("/chat", status_code=202)
async def begin(request: Request, visitor: Visitor) -> dict[str, str]:
    """Start a workflow, which continues without a reader and after a crash."""
    messages = await asgi.read_body(request, read_question)
    workflow = await DBOS.start_workflow_async(answer, str(visitor), messages)
    return {"chat": workflow.workflow_id}


@app.get("/chat/{workflow}")
async def read(workflow: str, visitor: Visitor) -> Response:
    """Send the events of the newest run from its beginning, because a new run may answer in other words.

    A client shows nothing of an earlier response. It asks again after `error(stream_interrupted)` or a lost connection.
    """
    if (run := await app.state.runs.latest(workflow, owner=str(visitor))) is None:
        raise HTTPException(404, "This answer has not begun, or a process has yet to continue it.")
    return asgi.event_stream_response(run)

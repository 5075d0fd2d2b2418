"""A chat page for answers that survive a reload, can be stopped, and wait for the user before they pay.

    uvicorn --app-dir examples/reloads_and_approvals app:app        # and http://127.0.0.1:8000/

A script plays the model. `test_app.py` has the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import FileResponse

from streamtools import chat, tool
from streamtools.conversation import Chat, ScriptedModel
from streamtools.events import NativeToolCall
from streamtools.outputs import asgi
from streamtools.runs import Run, Runs
from streamtools.tools import MemoryLedger, parse_decision

ANSWER = re.findall(r"\S+ ?", "This is a slow answer, so that you can reload the page, or stop it.")


def make_model(*, is_resumed: bool = False) -> ScriptedModel:
    """Return the model of one run, such as `OpenAIChat("gpt-5.4")`. A test replaces this function."""
    call = NativeToolCall("pay", {"to": "Ann", "amount": 5})
    return ScriptedModel([ANSWER] if is_resumed else [["I pay Ann. ", call]], delay=0.2)


@tool(requires_approval=True)
async def pay(to: str, amount: int) -> dict[str, str]:
    """Send a payment."""
    return {"message": f"paid {amount} to {to}"}


async def resume(run: Run) -> Chat:
    """Return the chat that continues after the decisions about the calls of a run."""
    return chat(make_model(is_resumed=True), run.history, tools=[pay], resume=run)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep runs in memory. With `SQLiteLedger("calls.sqlite")`, waiting runs survive a restart."""
    async with MemoryLedger() as ledger, Runs(resume=resume, ledger=ledger) as app.state.runs:
        yield


app = FastAPI(lifespan=lifespan, exception_handlers=asgi.exception_handlers)  # an unknown run is 404


def user(request: Request) -> str:
    """Return the user of a request. Only the owner of a run can read it."""
    if not request.cookies.get("session"):
        raise HTTPException(401)
    return request.cookies["session"]


def read_text(body: bytes) -> str:
    """Return the question in a body."""
    return str(json.loads(body)["text"])


@app.get("/")
async def page() -> FileResponse:
    """Return the page, with a cookie in place of your login."""
    response = FileResponse(Path(__file__).with_name("page.html"))
    response.set_cookie("session", "ann", httponly=True, samesite="lax")
    return response


@app.post("/runs", status_code=202)
async def begin(request: Request) -> dict[str, str]:
    """Start an answer, which continues without a connection."""
    text = await asgi.read_body(request, read_text)
    stream = chat(make_model(), [{"role": "user", "content": text}], tools=[pay])
    run = await app.state.runs.start(stream, owner=user(request), note=text)
    return {"run": run.id}


@app.get("/runs/{run_id}")
async def read(request: Request, run_id: str) -> Response:
    """Send the events of a run, also those before this connection."""
    run = await app.state.runs.find(run_id, owner=user(request))
    return asgi.event_stream_response(run)


@app.delete("/runs/{run_id}", status_code=204)
async def stop(request: Request, run_id: str) -> None:
    """Stop a run, for all its readers."""
    run = await app.state.runs.find(run_id, owner=user(request))
    await run.stop()


@app.get("/runs/{run_id}/questions")
async def questions(request: Request, run_id: str) -> list[str]:
    """Return the ids of the calls that still wait for a decision."""
    run = await app.state.runs.find(run_id, owner=user(request))
    return [question.call.id for question in await run.questions()]


@app.post("/runs/{run_id}/calls/{call_id}", status_code=202)
async def decide(request: Request, run_id: str, call_id: str) -> dict[str, str]:
    """Decide about a call. After the last decision, the next run continues the answer."""
    decision = await asgi.read_body(request, parse_decision)
    run = await app.state.runs.decide(run_id, call_id, decision, owner=user(request))
    return {"run": run.id}

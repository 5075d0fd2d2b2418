"""A call that waits for a click in an e-mail.

The run ends with a `Suspension`, and an e-mail with a link is sent. The link is signed for exactly this call (its
digest), expires, and works once. Opening it shows the question and decides nothing, because mail scanners open every
link. Only the button on that page, a POST, decides. Then a second run continues where the first one ended.

Suspended runs are in a dictionary here, and e-mails in a list. Use your database, and your mail service.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import os
import secrets
import time
from dataclasses import dataclass
from typing import Literal

import msgspec
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

from streamtools import ApprovalOptions, RunnerOptions, chat, tool
from streamtools.conversation import Chat, OpenAIChat
from streamtools.history import Message, read_messages
from streamtools.outputs import asgi
from streamtools.tools import Approve, Deny, MemoryLedger, Question, Suspension

SECRET = os.environ.get("LINK_SECRET", "").encode() or secrets.token_bytes(32)
VALID = 24 * 3600  # seconds

app = FastAPI()
model = OpenAIChat(
    os.environ.get("MODEL", "default"),
    base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    native_tool_calls=False,
)
ledger = MemoryLedger()  # with several processes: a SQLiteLedger or a PostgresLedger


@dataclass
class Waiting:
    """A suspended run."""

    history: list[Message]
    suspension: Suspension


waiting: dict[str, Waiting] = {}
outbox: list[dict[str, str]] = []
paid: list[tuple[str, int]] = []


@tool(requires_approval=True)
async def pay(to: str, amount: int) -> str:
    """Send a payment."""
    paid.append((to, amount))
    return f"paid {amount} to {to}"


def sign(run_id: str, question: Question, expires: int) -> str:
    """Return the signature of a link: over the run, the call as it was shown, and the time when the link expires."""
    text = "\n".join((run_id, question.call.id, question.digest, str(expires)))
    return hmac.new(SECRET, text.encode(), hashlib.sha256).hexdigest()


def find(run_id: str, call_id: str, expires: int, signature: str) -> tuple[Waiting, Question]:
    """Return the question of a link. Every invalid link gets the same error."""
    kept = waiting.get(run_id)
    for question in kept.suspension.questions if kept else ():
        signed = hmac.compare_digest(sign(run_id, question, expires), signature)
        if kept and signed and question.call.id == call_id and time.time() < expires:
            return kept, question
    raise HTTPException(404, "This link is invalid or has expired.")


async def answer(stream: Chat) -> dict[str, str]:
    """Return the answer. Send an e-mail for each call that needs approval."""
    async with stream as events:
        paragraphs: list[str] = []
        async for event in events:
            if event.type == "step-start":
                paragraphs.append("")
            elif event.type == "text":
                paragraphs[-1] += event.text
    text = "\n\n".join(filter(None, map(str.strip, paragraphs)))
    if events.suspension is None:
        return {"answer": text}
    run_id, expires = events.suspension.run_id, int(time.time()) + VALID
    waiting[run_id] = Waiting(events.history, events.suspension)
    for question in events.suspension.questions:
        link = f"/decide/{run_id}/{question.call.id}/{expires}/{sign(run_id, question, expires)}"
        outbox.append({"subject": f"May {question.call.name} run?", "link": link})
    return {"answer": text, "waits": "for an approval by e-mail"}


def begin(body: bytes) -> Chat:
    """Return the chat for a request body."""
    messages = read_messages(msgspec.json.decode(body)["messages"], client=True)
    return chat(
        model, messages, tools=[pay], approvals=ApprovalOptions(timeout=VALID), runner=RunnerOptions(ledger=ledger)
    )


@app.post("/chat")
async def ask(request: Request) -> dict[str, str]:
    """Answer a client's messages."""
    return await answer(await asgi.read_body(request, begin))


@app.get("/decide/{run_id}/{call_id}/{expires}/{signature}")
async def show(run_id: str, call_id: str, expires: int, signature: str) -> HTMLResponse:
    """Show the question, the whole call, and two buttons. Decide nothing."""
    _, question = find(run_id, call_id, expires, signature)
    arguments = html.escape(f"{question.call.name} {question.call.arguments}")
    return HTMLResponse(
        f"<!doctype html><title>Approve?</title><p>May this run?<pre>{arguments}</pre>"
        '<form method="post"><button formaction="?verdict=yes">Approve</button> '
        '<button formaction="?verdict=no">Deny</button></form>',
        headers={"content-security-policy": "default-src 'none'; form-action 'self'", "referrer-policy": "no-referrer"},
    )


@app.post("/decide/{run_id}/{call_id}/{expires}/{signature}")
async def decide(
    run_id: str, call_id: str, expires: int, signature: str, verdict: Literal["yes", "no"]
) -> dict[str, str]:
    """Decide once, and continue the conversation."""
    kept, question = find(run_id, call_id, expires, signature)
    del waiting[run_id]  # before the first await, so that a second click finds nothing
    decision = Approve(digest=question.digest) if verdict == "yes" else Deny("the approver said no")
    return await answer(  # sends new e-mails for calls that are still open
        chat(
            model,
            kept.history,
            tools=[pay],
            resume=kept.suspension,
            approvals=ApprovalOptions(decisions={question.call.id: decision}, timeout=VALID),
            runner=RunnerOptions(ledger=ledger),
        )
    )

"""The ASGI application of the web page.

    GET  /                          the chat page
    GET  /debugger?of=              the debugger; `of` is the name of a recording or the id of a run
    GET  /dissection?of=            the data for the debugger; `exchange` is a number, `cut` sets the chunk boundaries
    GET  /recording?of=             the recording file
    GET  /conversation              the answerer, and the turns of the conversation
    POST /runs                      start a run with {"question": "…"}. "suggestion" is the name of the suggestion with
                                    this question. "replace" is the id of the run whose turn is replaced, together with
                                    all later turns.
    GET  /runs/{id}/events          the events of a run after the position `?after=` or `Last-Event-ID`
    POST /runs/{id}/stop            stop a run, and wait until its source is closed
    POST /runs/{id}/calls/{call}    decide about a call: a `Decision` as JSON. An approval must have the digest.

A browser has one conversation, to which a cookie connects it. The cookie is HttpOnly and SameSite=Strict, and is the
`owner` of the runs. An answer is a run, whose events are in the event log. A conversation consists of the runs of its
owner. The history for the next request is built from the results of these runs.

Each HTML document is one response, which contains its styles and scripts. The styles and scripts are files in the
folders `static`, `vendor` and `client`. The Content-Security-Policy lists their digests. So the browser runs no script
that a model writes. `client` holds modules of `@streamtools/client`, which `python -m tests.clients.typescript_package`
builds.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamtools.apps.web.dissection import dissect
from streamtools.conversation.chat_stream import Chat
from streamtools.errors import RecordingError
from streamtools.events import COMPLETE
from streamtools.history import Assistant, Message, User
from streamtools.history.pairing import pair_results
from streamtools.history.parts import steps_to_history
from streamtools.outputs.asgi import Shutdown, event_stream_response, exception_handlers, read_body, shutdown_signal
from streamtools.recording.files import find_exchanges, open_exchange
from streamtools.runs import MemoryEventLog, Run, Runs
from streamtools.serving.guard import Guard, digest
from streamtools.tools import Approve, parse_decision

_FOLDER = Path(__file__).parent


# A place at which a document includes a file: "<!-- script static/page.js -->"
_INCLUDE = re.compile(r"<!-- (style|script) (\S+) -->")
# "export async function name", "export class name" or "export const name"
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function\*?|class|const) (\w+))", re.MULTILINE)
# This line is removed, because developer tools would request the source map.
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*$", re.MULTILINE)


class Documents(NamedTuple):
    """The HTML of the chat page and of the debugger, and the Content-Security-Policy for both."""

    page: str
    debugger: str
    policy: str


@cache
def make_documents() -> Documents:
    digests: dict[str, set[str]] = {"style": set(), "script": set()}

    def include(place: re.Match[str]) -> str:
        tag, text = place[1], _read_file(place[2])
        digests[tag].add(digest(text))
        return f"<{tag}>{text}</{tag}>"

    page, debugger = (_INCLUDE.sub(include, _read_file(f"static/{name}.html")) for name in ("page", "debugger"))
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(sorted(digests['script']))}",
        f"style-src {' '.join(sorted(digests['style']))}",
        "connect-src 'self'",
        "img-src data:",  # allows the icon
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types dompurify",
    ]
    return Documents(page, debugger, policy="; ".join(policy))


def _read_file(name: str) -> str:
    """Read a file to insert into a document.

    A module is converted to a script, because modules in a document cannot import each other.
    """
    text = _SOURCE_MAP.sub("", (_FOLDER / name).read_text(encoding="utf-8"))
    if not name.startswith("client/"):
        return text
    names = ", ".join(_EXPORT.findall(text))
    return f'const {{ {names} }} = (() => {{\n"use strict";\n{_EXPORT.sub("", text)}\nreturn {{ {names} }};\n}})();\n'


# Conversations.

MAX_TURNS = 200
"""The maximum number of questions in a conversation. Older questions are not shown."""

MAX_AGE_S = 12 * 3600.0
"""The number of seconds for which an answer is kept."""


class Suggestion(NamedTuple):
    """A question that the page shows as a button."""

    name: str
    title: str
    question: str


class PageAnswer(NamedTuple):
    """The answer to a question: a chat that is not entered yet, and the path of its recording, if any."""

    chat: Chat
    recording: Path | None = None


class Answerer:
    """Base class of objects that answer the questions of the page."""

    label = ""
    """The name of the model or of the recordings, which the page shows."""
    note = ""
    """A short note that the page shows to the user."""
    suggestions: Sequence[Suggestion] = ()
    """The questions that the page suggests."""
    tools: Sequence[Mapping[str, str]] = ()
    """The tools with `name` and `about`, which the first screen shows."""
    client_tools: Sequence[str] = ()
    """The names of the tools whose results the user enters."""
    recordings: Mapping[str, Path] = MappingProxyType({})
    """The recordings that the debugger shows, by name."""

    def answer(self, question: str, history: Sequence[Message], *, suggestion: str | None = None) -> PageAnswer:
        """Answer a question. `suggestion` is the name of the chosen suggestion."""
        raise NotImplementedError


class RunNote(NamedTuple):
    """The `note` of a run: the question that the run answers, and the path of its recording, if any."""

    text: str
    recording: Path | None


def describe(run: Run) -> dict[str, Any]:
    """Return the data about a run that the page shows."""
    return {"run": run.id, "question": run.note.text, "recorded": run.note.recording is not None}


def history_of(runs: Sequence[Run]) -> list[Message]:
    """Return the messages of runs. A question without an answer is skipped."""
    history: list[Message] = []
    for run in runs:
        result = run.result
        answer = pair_results(steps_to_history(result.steps), None if result.reason in COMPLETE else "cancelled")
        if any(isinstance(message, Assistant) for message in answer):
            history += [User(run.note.text), *answer]
    return history


# Requests.

MAX_RUNNING = 32
"""The maximum number of answers that are written at the same time."""

MAX_BODY = 256 * 1024
"""The maximum size of a request body in bytes."""

_NUMBER = re.compile("[0-9]{1,9}")

_ABANDONED_S = 900.0  # the time in seconds after which an answer without a reader is stopped
_BUSY = "The last question is still being answered. Wait for the end of the answer, or stop it."


class QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON body of `POST /runs`."""

    question: str
    suggestion: str | None = None
    replace: str | None = None


def make_app(answerer: Answerer, *, cookie: str = "streamtools", hosts: Collection[str] = ()) -> ASGIApp:
    """Create the ASGI application. `answerer` answers the questions of the users.

    `cookie` is the name of the cookie. Servers on different ports of one host need different names. `hosts` holds the
    host names that requests may use in addition to `localhost` and IP addresses. At most `MAX_RUNNING` answers are
    written at the same time.
    """
    page, documents = _ChatPage(answerer, cookie), make_documents()
    routes = [
        Route("/", HTMLResponse(documents.page), methods=["GET"]),
        Route("/debugger", HTMLResponse(documents.debugger), methods=["GET"]),
        Route("/dissection", page.dissection),
        Route("/recording", page.recording),
        Route("/conversation", page.conversation),
        Route("/runs", page.ask, methods=["POST"]),
        Route("/runs/{run}/events", page.events),
        Route("/runs/{run}/stop", page.stop, methods=["POST"]),
        Route("/runs/{run}/calls/{call:path}", page.decide, methods=["POST"]),
    ]
    app = Starlette(routes=routes, lifespan=page.lifespan, exception_handlers=exception_handlers)
    return Guard(app, hosts=hosts, policy=documents.policy, max_body=MAX_BODY)


class _ChatPage:
    """Handles the requests of the page, and starts the runs of the answers."""

    def __init__(self, answerer: Answerer, cookie: str) -> None:
        self._answerer = answerer
        self._cookie = cookie
        self._starting: set[str] = set()  # the owners whose question was accepted and whose run has not started
        self._server_id = secrets.token_urlsafe(8)  # a new id tells the page that the server was restarted
        self._runs: Runs
        self._shutdown: Shutdown

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        runs = Runs(MemoryEventLog(), max_running=MAX_RUNNING, keep=MAX_AGE_S, stop_when_abandoned=_ABANDONED_S)
        async with shutdown_signal() as self._shutdown, runs as self._runs:
            yield

    async def dissection(self, request: Request) -> Response:
        path = await self._find_recording(request)
        cut, number = request.query_params.get("cut", "recorded"), request.query_params.get("exchange", "1")
        if not (cut in ("recorded", "byte", "frame", "whole") or _NUMBER.fullmatch(cut)):
            raise HTTPException(400, "`cut` must be recorded, byte, frame, whole or a number (a random seed)")
        if not _NUMBER.fullmatch(number):
            raise HTTPException(400, "`exchange` must be a number")
        data = await run_in_threadpool(_dissect, path, int(number), cut)
        return Response(
            msgspec.json.encode({"names": [*self._answerer.recordings], **data}), media_type="application/json"
        )

    async def recording(self, request: Request) -> Response:
        path = await self._find_recording(request)
        return FileResponse(path, media_type="application/jsonl", filename=path.name)

    async def _find_recording(self, request: Request) -> Path:
        recordings = self._answerer.recordings
        name = request.query_params.get("of") or next(iter(recordings), "")
        if name in recordings:
            return recordings[name]
        asked = {run.id: run.note for run in await self._conversation(request)}
        note: RunNote | None = asked.get(name)
        if note is None or note.recording is None or not note.recording.exists():
            raise HTTPException(404, "the server has no recording of this answer")
        return note.recording

    async def conversation(self, request: Request) -> Response:
        answerer = self._answerer
        return JSONResponse(
            {
                "server": self._server_id,
                "label": answerer.label,
                "note": answerer.note,
                "client_tools": answerer.client_tools,
                "tools": answerer.tools,
                "suggestions": [suggestion._asdict() for suggestion in answerer.suggestions],
                "turns": [describe(run) for run in await self._conversation(request)],
            }
        )

    async def ask(self, request: Request) -> Response:
        body = await read_body(request, msgspec.json.Decoder(QuestionBody).decode, max_body=MAX_BODY)
        if not body.question.strip():
            raise HTTPException(400, "the question is empty")
        runs = await self._conversation(request)
        # A new browser gets a new cookie, because its cookie may be forged.
        owner = self._read_cookie(request) if runs else secrets.token_urlsafe(24)
        if owner in self._starting or any(run.result.reason is None for run in runs[-1:]):
            raise HTTPException(409, _BUSY)
        positions = [*(run.id for run in runs), None]  # None is the position after the last run
        if body.replace not in positions:
            raise HTTPException(409, "the question to replace is no longer in this conversation")
        position = positions.index(body.replace)
        self._starting.add(owner)
        try:
            for last in runs[-1:]:
                with suppress(Exception):
                    await last.wait()  # it has sent `done`, and may still be closing its source
            answer = self._answerer.answer(body.question, history_of(runs[:position]), suggestion=body.suggestion)
            run = await self._runs.start(answer.chat, owner=owner, note=RunNote(body.question, answer.recording))
            for replaced in runs[position:]:
                await self._runs.forget(replaced.id, owner=owner)
        finally:
            self._starting.remove(owner)
        response = JSONResponse(describe(run), 201)
        response.set_cookie(self._cookie, owner, httponly=True, samesite="strict")
        return response

    async def events(self, request: Request) -> Response:
        run = await self._find_run(request)
        return event_stream_response(run, shutdown=self._shutdown)

    async def stop(self, request: Request) -> Response:
        run = await self._find_run(request)
        await run.stop()
        return JSONResponse({"reason": run.result.reason})

    async def decide(self, request: Request) -> Response:
        decision = await read_body(request, parse_decision, max_body=MAX_BODY)
        if isinstance(decision, Approve) and not decision.digest:
            raise HTTPException(400, "an approval must have the digest of the approval-requested event")
        run_id, call_id = request.path_params["run"], request.path_params["call"]
        await self._runs.decide(run_id, call_id, decision, owner=self._read_cookie(request))
        return JSONResponse({})

    async def _find_run(self, request: Request) -> Run:
        return await self._runs.find(request.path_params["run"], owner=self._read_cookie(request))

    async def _conversation(self, request: Request) -> list[Run]:
        """Return the runs of a browser, the oldest first."""
        return [*reversed(await self._runs.list(self._read_cookie(request), limit=MAX_TURNS))]

    def _read_cookie(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")


def _dissect(path: Path, number: int, cut: str) -> dict[str, Any]:
    try:
        count = len(find_exchanges(path))
        with open_exchange(path, number) as recording:
            dissection = dissect(recording, int(cut) if cut.isdecimal() else cut)  # type: ignore[arg-type] # checked
    except RecordingError as error:  # for example, if the recording is still being written
        raise HTTPException(422, str(error).replace(str(path), path.name)) from None
    return {"exchanges": count, **msgspec.structs.asdict(dissection)}

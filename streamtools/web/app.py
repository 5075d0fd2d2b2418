"""The ASGI application behind the page: conversations, and the runs that answer in them.

    GET  /                          the page
    GET  /conversation              what has been said, and by which runs it is being answered
    POST /conversation              begin a new one
    POST /runs                      ask: {"question": "…"} or {"suggestion": "name"}
    GET  /runs/{id}/events          the events of a run behind `?after=` or `Last-Event-ID`
    POST /runs/{id}/stop            stop it, and wait until what is behind it is closed
    POST /runs/{id}/calls/{call}    {"approve": true, "shown": event} or {"approve": false, "reason": "…"}

A conversation belongs to whoever has its cookie, which no script can read and no other site can use.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamtools.errors import ClosedError, DecisionRefused, RunNotFound, TooManyRuns
from streamtools.events import ApprovalRequested, read_ui_event
from streamtools.outputs.asgi import Shutdown, event_stream_response, shutdown_signal
from streamtools.runs import MemoryEventLog, Runs
from streamtools.web.conversations import Answerer, Conversation, Conversations, Turn
from streamtools.web.guard import MAX_BODY, Guard, refuse
from streamtools.web.page import make_page

_Body = TypeVar("_Body")

MAX_QUESTION = 100_000
"""Characters of a question."""

_ABANDONED = 900.0  # seconds that an answer goes on which nobody reads
_KEPT = 12 * 3600.0  # seconds that the events of an answer are kept


class _QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    question: str | None = None
    suggestion: str | None = None


class _DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    approve: bool
    shown: str = ""
    reason: str = ""


def make_app(
    answerer: Answerer,
    *,
    cookie: str = "streamtools",
    hosts: Collection[str] = (),
    conversations: Conversations | None = None,
    max_running: int = 32,
) -> ASGIApp:
    """Return the application in which `answerer` answers.

    `cookie` is the name of the cookie, which servers on other ports of the same host share if it is the same. `hosts`
    are the names by which the server may be addressed, besides `localhost` and addresses.
    """
    chats = _Chats(answerer, cookie, Conversations() if conversations is None else conversations, max_running)
    routes: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("GET", "/", chats.page),
        ("GET", "/conversation", chats.tell),
        ("POST", "/conversation", chats.begin),
        ("POST", "/runs", chats.ask),
        ("GET", "/runs/{run}/events", chats.events),
        ("POST", "/runs/{run}/stop", chats.stop),
        ("POST", "/runs/{run}/calls/{call:path}", chats.decide),
    ]
    app = Starlette(
        routes=[Route(path, function, methods=[method]) for method, path, function in routes],
        lifespan=chats.lifespan,
        exception_handlers={HTTPException: _say, RunNotFound: _not_found},
    )
    return Guard(app, hosts=hosts, policy=make_page().policy)


class _Chats:
    def __init__(self, answerer: Answerer, cookie: str, conversations: Conversations, max_running: int) -> None:
        self._answerer = answerer
        self._cookie = cookie
        self._conversations = conversations
        self._max_running = max_running
        self._server = secrets.token_urlsafe(8)  # so that a page notices that it is another
        self._runs: Runs
        self._shutdown: Shutdown

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Hold the runs, for as long as the server lives."""
        log = MemoryEventLog(max_age=None, max_ended=None)  # `Runs` forgets
        options: dict[str, Any] = {"max_running": self._max_running, "keep": _KEPT, "stop_when_abandoned": _ABANDONED}
        async with shutdown_signal() as self._shutdown, Runs(log, **options) as self._runs:
            yield

    async def page(self, request: Request) -> Response:
        """Answer with the page."""
        return HTMLResponse(make_page().html)

    async def tell(self, request: Request) -> Response:
        """Tell what has been said."""
        conversation = self._conversation(request)
        turns = conversation.turns if conversation is not None else []
        return JSONResponse(
            {
                "server": self._server,
                "told": self._answerer.told,
                "note": self._answerer.note,
                "suggestions": [each._asdict() for each in self._answerer.suggestions],
                "dropped": conversation.dropped if conversation is not None else 0,
                "turns": [{"run": turn.run.id, "question": turn.question} for turn in turns],
            }
        )

    async def begin(self, request: Request) -> Response:
        """Forget the conversation."""
        conversation = self._conversation(request)
        if conversation is not None:
            self._conversations.forget(conversation)
        response = JSONResponse({}, 201)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict")
        return response

    async def ask(self, request: Request) -> Response:
        """Begin an answer."""
        asked = await _read(request, _QuestionBody)
        by_name = {each.name: each.question for each in self._answerer.suggestions}
        question = asked.question if asked.suggestion is None else by_name.get(asked.suggestion)
        if question is None or not question.strip() or (asked.suggestion is not None and asked.question is not None):
            raise HTTPException(400, "a question, or the name of a suggestion, is missing")
        if len(question) > MAX_QUESTION:
            raise HTTPException(413, f"a question may have {MAX_QUESTION} characters")
        conversation = self._conversation(request) or self._conversations.begin()
        before = conversation.running
        if conversation.is_asking or (before is not None and before.run.result.reason is None):
            raise HTTPException(409, "an answer is being given already: wait for its end, or stop it")
        conversation.is_asking = True
        try:
            if before is not None:  # has said its end, and is closing what is behind it
                with suppress(Exception):
                    await before.run.wait()
            answer = self._answerer.answer(question, conversation.history, suggestion=asked.suggestion)
            told = len(answer.history)
            run = await self._runs.start(answer, owner=conversation.key)
        except (TooManyRuns, ClosedError):
            if not conversation.turns:  # nobody has its key
                self._conversations.forget(conversation)
            raise HTTPException(503, "too many answers are being given at the same time") from None
        finally:
            conversation.is_asking = False
        conversation.add(Turn(question, run, answer, told))
        if (
            self._conversations.find(conversation.key) is None
        ):  # forgotten meanwhile, when there was no run to be stopped
            run.cancel()
            raise HTTPException(409, "the conversation was ended meanwhile")
        response = JSONResponse({"run": run.id, "question": question}, 201)
        response.set_cookie(self._cookie, conversation.key, httponly=True, samesite="strict")
        return response

    async def events(self, request: Request) -> Response:
        """Send the events of a run."""
        run = await self._runs.find(request.path_params["run"], owner=self._owner(request))
        return event_stream_response(run, request=request, shutdown=self._shutdown)

    async def stop(self, request: Request) -> Response:
        """Stop a run."""
        run = await self._runs.find(request.path_params["run"], owner=self._owner(request))
        await run.stop()
        return JSONResponse({"reason": run.result.reason})

    async def decide(self, request: Request) -> Response:
        """Let a call run, or not."""
        decided = await _read(request, _DecisionBody)
        conversation = self._conversation(request)
        run, call = request.path_params["run"], request.path_params["call"]
        answers = [each.answer for each in conversation.turns if each.run.id == run] if conversation else []
        if not answers:
            raise RunNotFound
        try:
            if decided.approve:
                answers[0].approve(call, digest=_shown(decided.shown, call))
            else:
                answers[0].deny(call, decided.reason)
        except DecisionRefused as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({})

    def _conversation(self, request: Request) -> Conversation | None:
        return self._conversations.find(request.cookies.get(self._cookie))

    def _owner(self, request: Request) -> str:
        conversation = self._conversation(request)
        return conversation.key if conversation is not None else ""


async def _read(request: Request, kind: type[_Body]) -> _Body:
    """Return the body of a request."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY:
                raise HTTPException(413, f"the body may have {MAX_BODY} bytes")
        return msgspec.json.decode(body, type=kind)
    except ClientDisconnect:
        raise HTTPException(400, "the request breaks off") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HTTPException(400, "the body is not what is wanted here") from None


def _shown(text: str, call_id: str) -> str:
    """Return the digest of the call that the page has shown, which sends back the event that asked."""
    try:
        event = read_ui_event(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        event = None
    if not isinstance(event, ApprovalRequested) or event.call.id != call_id:
        raise HTTPException(400, "to approve takes the event that asked")
    return event.call.digest


async def _say(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refuse(error.status_code, error.detail)


async def _not_found(request: Request, error: Exception) -> Response:
    return refuse(404, "there is no such run")

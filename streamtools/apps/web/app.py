"""The ASGI application behind the page: conversations, and the runs that answer in them.

    GET  /                          the page
    GET  /debugger?of=              the debugger: `of` is the name of a recording, or a run
    GET  /dissection?of=            what it shows, of the exchange with the number `exchange`, cut as `cut` says
    GET  /recording?of=             the recording itself
    GET  /conversation              what has been said, and by which runs it is being answered
    POST /conversation              begin a new one
    POST /runs                      ask: {"question": "…"} or {"suggestion": "name"}; with {"replace": run}, in the
                                    place of a question that was asked before, and of all behind it
    GET  /runs/{id}/events          the events of a run behind `?after=` or `Last-Event-ID`
    POST /runs/{id}/stop            stop it, and wait until what is behind it is closed
    POST /runs/{id}/calls/{call}    {"approve": true, "shown": event}, {"approve": false, "reason": "…"},
                                    {"result": value} or {"error": "…"}

A conversation belongs to the browser with its cookie, which no script can read and no other site can use.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from streamtools.apps.web.conversations import (
    MAX_TURNS,
    Answerer,
    Conversation,
    Conversations,
    Turn,
    shared_conversation,
)
from streamtools.apps.web.dissecting import TooManySteps, dissect
from streamtools.apps.web.documents import make_documents
from streamtools.conversation.chatting import Chat
from streamtools.errors import (
    ClosedError,
    DecisionRefused,
    OwnerUnreachable,
    RecordingError,
    RunNotFound,
    TooManyRuns,
)
from streamtools.events import ApprovalRequested, read_ui_event
from streamtools.outputs.asgi import Shutdown, event_stream_response, read_body, shutdown_signal
from streamtools.recording.exchanges import exchanges_in, open_exchange
from streamtools.runs import MemoryEventLog, RedisStore, Runs
from streamtools.serving.guard import Guard, refuse

MAX_BODY = 256 * 1024
"""Bytes of a request's body."""

_Body = TypeVar("_Body")
_NUMBER = re.compile("[0-9]{1,9}")

MAX_QUESTION = 100_000
"""Characters of a question."""

_ABANDONED = 900.0  # seconds that an answer without a reader goes on
_MOST_RECORDED = 100  # answers whose bytes can be looked at
_KEPT = 12 * 3600.0  # seconds that the events of an answer are kept


class _QuestionBody(msgspec.Struct, forbid_unknown_fields=True):
    question: str | None = None
    suggestion: str | None = None
    replace: str | None = None


class _DecisionBody(msgspec.Struct, forbid_unknown_fields=True):
    approve: bool | None = None
    shown: str = ""
    reason: str = ""
    result: Any = msgspec.UNSET
    error: str | None = None


def make_app(
    answerer: Answerer,
    *,
    cookie: str = "streamtools",
    hosts: Collection[str] = (),
    conversations: Conversations | None = None,
    max_running: int = 32,
    redis: str | None = None,
) -> ASGIApp:
    """Return the application in which `answerer` answers. Processes with the same URL of `redis` are one server.

    `cookie` is the name of the cookie, which servers on other ports of the same host share if it is the same. `hosts`
    are the names by which the server may be addressed, besides `localhost` and addresses.
    """
    chats = _Chats(answerer, cookie, Conversations() if conversations is None else conversations, max_running, redis)
    routes: list[tuple[str, str, Callable[[Request], Awaitable[Response]]]] = [
        ("GET", "/", chats.page),
        ("GET", "/debugger", chats.debugger),
        ("GET", "/dissection", chats.dissect),
        ("GET", "/recording", chats.recording),
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
        exception_handlers={HTTPException: _say, RunNotFound: _say, OwnerUnreachable: _say},
    )
    return Guard(app, hosts=hosts, policy=make_documents().policy, max_body=MAX_BODY)


async def reach(redis: str) -> None:
    """Raise what keeps processes from sharing their runs there."""
    async with RedisStore(redis).connect():
        pass


class _Chats:
    def __init__(
        self, answerer: Answerer, cookie: str, conversations: Conversations, max_running: int, redis: str | None
    ) -> None:
        self._redis = redis
        self._answerer = answerer
        self._cookie = cookie
        self._conversations = conversations
        self._max_running = max_running
        self._server = secrets.token_urlsafe(8) if redis is None else ""  # so that a page notices that it is another
        self._recordings: dict[str, Path] = dict(getattr(answerer, "recordings", {}))
        self._recorded: dict[str, Path] = {}  # by run
        self._runs: Runs
        self._shutdown: Shutdown

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Hold the runs, for as long as the server lives."""
        options: dict[str, Any] = {"max_running": self._max_running, "keep": _KEPT, "stop_when_abandoned": _ABANDONED}
        log: MemoryEventLog | RedisStore = MemoryEventLog(max_age=None, max_ended=None)  # `Runs` forgets
        if self._redis is not None:
            log = RedisStore(self._redis, keep=_KEPT)
            options["max_per_owner"] = 1  # an answer at a time, wherever it is asked for
        async with shutdown_signal() as self._shutdown, Runs(log, **options) as self._runs:
            yield

    async def page(self, request: Request) -> Response:
        return HTMLResponse(make_documents().page)

    async def debugger(self, request: Request) -> Response:
        return HTMLResponse(make_documents().debugger)

    async def dissect(self, request: Request) -> Response:
        path = await self._recording(request)
        asked = request.query_params
        cut, number = asked.get("cut", "recorded"), asked.get("exchange", "1")
        if not (cut in ("recorded", "byte", "frame", "whole") or _NUMBER.fullmatch(cut)) or not _NUMBER.fullmatch(
            number
        ):
            raise HTTPException(400, "cut is recorded, byte, frame, whole or the number of a random one")
        dissected = await run_in_threadpool(_dissect, path, int(number), cut)
        return Response(msgspec.json.encode({"names": [*self._recordings], **dissected}), media_type="application/json")

    async def recording(self, request: Request) -> Response:
        path = await self._recording(request)
        return FileResponse(path, media_type="application/jsonl", filename=path.name)

    async def _recording(self, request: Request) -> Path:
        name = request.query_params.get("of") or next(iter(self._recordings), "")
        if name in self._recordings:
            return self._recordings[name]
        run = await self._runs.find(name, owner=self._owner(request))
        if run.id not in self._recorded or not self._recorded[run.id].exists():
            raise HTTPException(404, "the bytes of this answer are not kept here")
        return self._recorded[run.id]

    def _keep(self, run: str, answer: Chat) -> None:
        """Keep what is recorded of an answer, for as long as it is one of the last."""
        path = recording_of(answer) if (recording_of := getattr(self._answerer, "recording_of", None)) else None
        if path is not None:
            self._recorded[run] = path
            if len(self._recorded) > _MOST_RECORDED:
                del self._recorded[next(iter(self._recorded))]

    async def tell(self, request: Request) -> Response:
        conversation = await self._conversation(request)
        turns = conversation.turns if conversation is not None else []
        return JSONResponse(
            {
                "server": self._server,
                "label": self._answerer.label,
                "note": self._answerer.note,
                "client_tools": [*getattr(self._answerer, "client_tools", ())],
                "tools": [*getattr(self._answerer, "tools", ())],
                "records": hasattr(self._answerer, "recording_of"),
                "suggestions": [each._asdict() for each in self._answerer.suggestions],
                "dropped": conversation.dropped if conversation is not None else 0,
                "turns": [{"run": turn.run.id, "question": turn.question} for turn in turns],
            }
        )

    async def begin(self, request: Request) -> Response:
        """Forget the conversation."""
        conversation = await self._conversation(request)
        if conversation is not None and self._redis is None:
            self._conversations.forget(conversation)
        elif conversation is not None and conversation.running is not None:
            await conversation.running.run.stop()
        response = JSONResponse({}, 201)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict")
        return response

    async def ask(self, request: Request) -> Response:
        asked = await _read_body(request, _QuestionBody)
        by_name = {each.name: each.question for each in self._answerer.suggestions}
        question = asked.question if asked.suggestion is None else by_name.get(asked.suggestion)
        if question is None or not question.strip() or (asked.suggestion is not None and asked.question is not None):
            raise HTTPException(400, "a question, or the name of a suggestion, is missing")
        if len(question) > MAX_QUESTION:
            raise HTTPException(413, f"a question may have {MAX_QUESTION} characters")
        conversation = await self._conversation(request) or self._begin()
        before = conversation.running
        if conversation.is_asking or (before is not None and before.run.result.reason is None):
            raise HTTPException(409, "an answer is being given already: wait for its end, or stop it")
        try:
            place = conversation.place(asked.replace)
        except LookupError:
            raise HTTPException(409, "what is to be asked anew is not in this conversation any more") from None
        conversation.is_asking = True
        try:
            if before is not None:  # has said its end, and is closing what is behind it
                with suppress(Exception):
                    await before.run.wait()
            answer = self._answerer.answer(question, conversation.history(place), suggestion=asked.suggestion)
            note = {"question": question, **conversation.note(place)}
            run = await self._runs.start(answer, owner=conversation.key, note=note)
        except (TooManyRuns, ClosedError):
            if not conversation.turns:  # nobody has its key
                self._conversations.forget(conversation)
            last = await self._runs.list(conversation.key, limit=1)
            if last and not last[0].ended:  # asked at the same moment in another process
                raise HTTPException(409, "an answer is being given already: wait for its end, or stop it") from None
            raise HTTPException(503, "too many answers are being given at the same time") from None
        finally:
            conversation.is_asking = False
        conversation.add(Turn(question, run), place)
        self._keep(run.id, answer)
        if (
            self._redis is None and self._conversations.find(conversation.key) is None
        ):  # forgotten meanwhile: there was no run to be stopped
            run.cancel()
            raise HTTPException(409, "the conversation was ended meanwhile")
        response = JSONResponse({"run": run.id, "question": question}, 201)
        response.set_cookie(self._cookie, conversation.key, httponly=True, samesite="strict")
        return response

    async def events(self, request: Request) -> Response:
        run = await self._runs.find(request.path_params["run"], owner=self._owner(request))
        return event_stream_response(run, request=request, shutdown=self._shutdown)

    async def stop(self, request: Request) -> Response:
        run = await self._runs.find(request.path_params["run"], owner=self._owner(request))
        await run.stop()
        return JSONResponse({"reason": run.result.reason})

    async def decide(self, request: Request) -> Response:
        decided = await _read_body(request, _DecisionBody)
        if [decided.approve is None, decided.result is msgspec.UNSET, decided.error is None].count(False) != 1:
            raise HTTPException(400, "a decision is one of approve, result and error")
        run = await self._runs.find(request.path_params["run"], owner=self._owner(request))
        call = request.path_params["call"]
        try:
            if decided.approve is None:
                result = None if decided.result is msgspec.UNSET else decided.result
                await run.answer(call, result, error=decided.error)
            elif decided.approve:
                await run.approve(call, digest=_shown(decided.shown, call))
            else:
                await run.deny(call, decided.reason)
        except DecisionRefused as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({})

    def _begin(self) -> Conversation:
        return self._conversations.begin() if self._redis is None else Conversation(MAX_TURNS)

    async def _conversation(self, request: Request) -> Conversation | None:
        key = request.cookies.get(self._cookie, "")
        return self._conversations.find(key) if self._redis is None else await shared_conversation(self._runs, key)

    def _owner(self, request: Request) -> str:
        key = request.cookies.get(self._cookie, "")
        return key if self._redis is not None or self._conversations.find(key) is not None else ""


def _dissect(path: Path, number: int, cut: str) -> dict[str, Any]:
    chosen: Any = int(cut) if cut.isdecimal() else cut
    try:
        count = exchanges_in(path)
        with open_exchange(path, number) as recording:
            return {"exchanges": count, **msgspec.structs.asdict(dissect(recording, chosen))}
    except RecordingError as error:  # also of one that is still being written
        raise HTTPException(422, str(error).replace(str(path), path.name)) from None
    except TooManySteps as error:
        raise HTTPException(413, str(error)) from None


async def _read_body(request: Request, kind: type[_Body]) -> _Body:
    return await read_body(request, partial(msgspec.json.decode, type=kind), max_body=MAX_BODY)


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
    if isinstance(error, HTTPException):
        return refuse(error.status_code, error.detail)
    if isinstance(error, OwnerUnreachable):
        return refuse(503, "the server that has this run does not answer")
    return refuse(404, "there is no such run")

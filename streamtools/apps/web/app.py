"""The ASGI application behind the page: conversations, and the runs that answer in them.

    GET  /                          the page
    GET  /debugger?of=              the debugger: `of` is the name of a recording, or a run
    GET  /dissection?of=            what it shows, of the exchange with the number `exchange`, cut as `cut` says
    GET  /recording?of=             the recording itself
    GET  /conversation?of=          which conversations there are; what has been said in one, and by which runs it is
                                    being answered. `of` is its id; without one, that which was used last
    POST /conversation/{id}/delete  forget one, and stop its answer
    POST /runs                      ask: {"question": "…"} or {"suggestion": "name"}; with {"replace": run}, in the
                                    place of a question that was asked before, and of all behind it; "conversation"
                                    is its id, or null for a new one; "temperature", "max_tokens" as `parameters`;
                                    "images" are some, as `data:` addresses
    GET  /runs/{id}/images          those of its question
    GET  /runs/{id}/events          the events of a run behind `?after=` or `Last-Event-ID`
    POST /runs/{id}/stop            stop it, and wait until what is behind it is closed
    POST /runs/{id}/calls/{call}    {"approve": true, "shown": event}, {"approve": false, "reason": "…"},
                                    {"result": value} or {"error": "…"}

Conversations belong to the browser with their cookie, which no script can read and no other site can use.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
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

from streamtools import errors
from streamtools.apps.web.conversations import (
    MAX_QUESTION,
    MAX_TURNS,
    MOST,
    PARAMETERS,
    Answerer,
    Conversation,
    Conversations,
    DecisionBody,
    QuestionBody,
    Turn,
    check_images,
    choose,
    owner_of,
    shared_conversations,
    shown_digest,
)
from streamtools.apps.web.dissecting import TooManySteps, dissect
from streamtools.apps.web.documents import make_documents
from streamtools.apps.web.kept import ConversationFile
from streamtools.conversation.chatting import Chat
from streamtools.outputs.asgi import Shutdown, event_stream_response, last_event_id, read_body, shutdown_signal
from streamtools.recording.exchanges import exchanges_in, open_exchange
from streamtools.runs import MemoryEventLog, RedisStore, Run, Runs
from streamtools.serving.guard import Guard, refuse

MAX_BODY = 256 * 1024
"""Bytes of a request's body."""

_Body = TypeVar("_Body")
_NUMBER = re.compile("[0-9]{1,9}")

_ABANDONED = 900.0  # seconds that an answer without a reader goes on
_MOST_RECORDED = 100  # answers whose bytes can be looked at
_KEPT = 12 * 3600.0  # seconds that the events of an answer are kept in memory
_IN_FILE = 90 * 24 * 3600.0  # seconds that a conversation is kept in a file, behind its last use
_TITLE = 80  # characters
_ONE = "an answer is being given already: wait for its end, or stop it"
_FULL = "too many answers are being given at the same time: ask again when one of them has ended"
_ANSWERED: dict[type[Exception], tuple[int, str]] = {
    errors.RunNotFound: (404, "there is no such run"),
    errors.OwnerUnreachable: (503, "the server that has this run does not answer"),
    errors.TooManyRuns: (503, _FULL),
}


def make_app(
    answerer: Answerer,
    *,
    cookie: str = "streamtools",
    hosts: Collection[str] = (),
    conversations: Conversations | None = None,
    max_running: int = 32,
    redis: str | None = None,
    keep: str | None = None,
) -> ASGIApp:
    """Return the application in which `answerer` answers. Processes with the same URL of `redis` are one server.

    Without it, conversations are kept in memory, and with `keep` in a file of SQLite, too, which one server uses at a
    time. Raises sqlite3.Error, OSError or ValueError for a file in which they cannot be.

    `cookie` is the name of the cookie, which servers on other ports of the same host share if it is the same. `hosts`
    are the names by which the server may be addressed, besides `localhost` and addresses.
    """
    kept = ConversationFile(keep) if keep is not None else None
    if conversations is None:
        conversations = Conversations(most=MOST + max_running, max_age=_KEPT if kept is None else _IN_FILE, kept=kept)
    chats = _Chats(answerer, cookie, conversations, max_running, redis, kept)
    routes = [
        Route("/", chats.page),
        Route("/debugger", chats.debugger),
        Route("/dissection", chats.dissect),
        Route("/recording", chats.recording),
        Route("/conversation", chats.tell),
        Route("/conversation/{id}/delete", chats.delete, methods=["POST"]),
        Route("/runs", chats.ask, methods=["POST"]),
        Route("/runs/{run}/events", chats.events),
        Route("/runs/{run}/images", chats.images),
        Route("/runs/{run}/stop", chats.stop, methods=["POST"]),
        Route("/runs/{run}/calls/{call:path}", chats.decide, methods=["POST"]),
    ]
    faults = dict.fromkeys((HTTPException, *_ANSWERED), _say)
    app = Starlette(routes=routes, lifespan=chats.lifespan, exception_handlers=faults)
    return Guard(app, hosts=hosts, policy=make_documents().policy, max_body=MAX_BODY)


async def reach(redis: str) -> None:
    """Raise what keeps processes from sharing their runs there."""
    async with RedisStore(redis).connect():
        pass


@dataclass(eq=False)
class _Chats:
    _answerer: Answerer
    _cookie: str
    _conversations: Conversations
    _max_running: int
    _redis: str | None
    _kept: ConversationFile | None

    def __post_init__(self) -> None:
        is_forgetful = self._redis is None and self._kept is None
        self._server = secrets.token_urlsafe(8) if is_forgetful else ""  # so that a page notices that it is another
        self._recordings: dict[str, Path] = dict(getattr(self._answerer, "recordings", {}))
        self._recorded: dict[str, Path] = {}  # by run
        self._runs: Runs
        self._shutdown: Shutdown

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        options: dict[str, Any] = {"max_running": self._max_running, "keep": _KEPT, "stop_when_abandoned": _ABANDONED}
        log: MemoryEventLog | RedisStore = MemoryEventLog(max_age=None, max_ended=None)  # `Runs` forgets
        if self._redis is not None:
            log = RedisStore(self._redis, keep=_KEPT)
            options["max_per_owner"] = 1  # an answer at a time, wherever it is asked for
        async with AsyncExitStack() as stack:
            if self._kept is not None:
                log = self._kept.log
                await stack.enter_async_context(self._kept.writing())
            self._shutdown = await stack.enter_async_context(shutdown_signal())
            self._runs = await stack.enter_async_context(Runs(log, **options))
            self._conversations.runs = self._runs
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
        run = await self._find(request, name)
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
        known = await self._of(self._owner(request))
        conversation = choose(known, request.query_params.get("of", msgspec.UNSET))
        if conversation is not None and self._redis is None:
            self._conversations.use(conversation)
        turns = conversation.turns if conversation is not None else []
        return JSONResponse(
            {
                "server": self._server,
                "label": self._answerer.label,
                "note": self._answerer.note,
                "client_tools": [*getattr(self._answerer, "client_tools", ())],
                "tools": [*getattr(self._answerer, "tools", ())],
                "parameters": [*getattr(self._answerer, "parameters", ())],
                "images": MAX_BODY * 3 // 4 if getattr(self._answerer, "images", False) else 0,
                "records": hasattr(self._answerer, "recording_of"),
                "suggestions": [each._asdict() for each in self._answerer.suggestions],
                "conversations": [
                    {"id": each.id, "title": each.turns[0].question[:_TITLE], "running": each.is_answered}
                    for each in known
                    if each.turns
                ],
                "conversation": conversation.id if turns and conversation is not None else None,
                "dropped": conversation.dropped if conversation is not None else 0,
                "turns": [
                    {"run": turn.run.id, "question": turn.question}
                    | ({"images": len(turn.images)} if turn.images else {})
                    for turn in turns
                ],
            }
        )

    async def delete(self, request: Request) -> Response:
        id, owner = request.path_params["id"], self._owner(request)
        conversation = choose(await self._of(owner), id)
        if conversation is None:
            raise HTTPException(404, "there is no such conversation")
        if self._redis is None:
            self._conversations.forget(conversation)
        while self._redis is not None and conversation is not None:  # behind its turns stand those that they replaced
            for turn in conversation.turns:
                with suppress(errors.RunNotFound):
                    await self._runs.forget(turn.run.id, owner=owner)
            conversation = choose(await self._of(owner), id)
        return JSONResponse({})

    async def ask(self, request: Request) -> Response:
        asked = await _read_body(request, QuestionBody)
        by_name = {each.name: each.question for each in self._answerer.suggestions}
        question = asked.question if asked.suggestion is None else by_name.get(asked.suggestion)
        if question is None or not question.strip() or (asked.suggestion is not None and asked.question is not None):
            raise HTTPException(400, "a question, or the name of a suggestion, is missing")
        if len(question) > MAX_QUESTION:
            raise HTTPException(413, f"a question may have {MAX_QUESTION} characters")
        parameters = {name: value for name in PARAMETERS if (value := getattr(asked, name)) is not None}
        if not parameters.keys() <= set(getattr(self._answerer, "parameters", ())):
            raise HTTPException(400, "that is not for the page to say here")
        if asked.images and not getattr(self._answerer, "images", False):
            raise HTTPException(400, "who answers here takes no images")
        known = await self._of(self._owner(request))
        key = request.cookies[self._cookie] if known else secrets.token_urlsafe(24)  # one that somebody made is none
        begin = self._conversations.begin if self._redis is None else partial(Conversation, MAX_TURNS)
        conversation = choose(known, asked.conversation) or begin(owner_of(key))
        before = conversation.running
        if conversation.is_asking or conversation.is_answered:
            raise HTTPException(409, _ONE)
        try:
            place = conversation.place(asked.replace)
        except ValueError:
            raise HTTPException(409, "what is to be asked anew is not in this conversation any more") from None
        check_images(asked.images, [image for turn in conversation.turns[:place] for image in turn.images])
        conversation.is_asking = True
        try:
            if before is not None:  # has said its end, and is closing what is behind it
                with suppress(Exception):
                    await before.wait()
            how: dict[str, Any] = {"request": parameters} if parameters else {}
            how |= {"images": asked.images} if asked.images else {}
            answer = self._answerer.answer(question, conversation.history(place), suggestion=asked.suggestion, **how)
            note = conversation.note(question, place, asked.images)
            run = await self._runs.start(answer, owner=conversation.owner, note=note)
        except (errors.TooManyRuns, errors.ClosedError):
            if not conversation.turns:  # nobody knows of it
                self._conversations.forget(conversation)
            last = await self._runs.list(conversation.owner, limit=1)
            if last and not last[0].ended:  # asked at the same moment in another process
                raise HTTPException(409, _ONE) from None
            raise HTTPException(503, _FULL) from None
        finally:
            conversation.is_asking = False
        if self._redis is None and conversation not in self._conversations:  # there was no run to be stopped
            run.cancel()
            raise HTTPException(409, "the conversation was deleted meanwhile")
        self._conversations.add(conversation, Turn(question, run, asked.images), place)
        self._keep(run.id, answer)
        response = JSONResponse({"run": run.id, "question": question, "conversation": conversation.id}, 201)
        age = None if self._kept is None else int(_IN_FILE)
        response.set_cookie(self._cookie, key, httponly=True, samesite="strict", max_age=age)
        return response

    async def events(self, request: Request) -> Response:
        id = request.path_params["run"]
        try:
            run = await self._find(request, id)
        except errors.RunNotFound:
            if self._kept is None or not self._knows(request, id):
                raise
            return Response(await self._kept.read(id, last_event_id(request)), media_type="text/event-stream")
        return event_stream_response(run, request=request, shutdown=self._shutdown)

    async def images(self, request: Request) -> Response:
        known = await self._of(self._owner(request))
        turns = [turn for each in known for turn in each.turns if turn.run.id == request.path_params["run"]]
        return JSONResponse([image for turn in turns for image in turn.images])

    async def stop(self, request: Request) -> Response:
        run = await self._find(request, request.path_params["run"])
        await run.stop()
        return JSONResponse({"reason": run.result.reason})

    async def decide(self, request: Request) -> Response:
        decided = await _read_body(request, DecisionBody)
        if [decided.approve is None, decided.result is msgspec.UNSET, decided.error is None].count(False) != 1:
            raise HTTPException(400, "a decision is one of approve, result and error")
        run = await self._find(request, request.path_params["run"])
        call = request.path_params["call"]
        try:
            if decided.approve is None:
                await run.answer(call, None if decided.result is msgspec.UNSET else decided.result, error=decided.error)
            elif decided.approve:
                await run.approve(call, digest=shown_digest(decided.shown, call))
            else:
                await run.deny(call, decided.reason)
        except errors.DecisionRefused as error:
            raise HTTPException(409, str(error)) from None
        return JSONResponse({})

    async def _of(self, owner: str) -> list[Conversation]:
        return self._conversations.of(owner) if self._redis is None else await shared_conversations(self._runs, owner)

    async def _find(self, request: Request, run: str) -> Run:
        if not self._knows(request, run):
            raise errors.RunNotFound("there is no such run")
        return await self._runs.find(run, owner=self._owner(request))

    def _knows(self, request: Request, run: str) -> bool:
        if self._redis is not None:
            return True
        known = self._conversations.of(self._owner(request))
        return any(turn.run.id == run for conversation in known for turn in conversation.turns)

    def _owner(self, request: Request) -> str:
        return owner_of(request.cookies.get(self._cookie, ""))


def _dissect(path: Path, number: int, cut: str) -> dict[str, Any]:
    chosen: Any = int(cut) if cut.isdecimal() else cut
    try:
        found = exchanges_in(path)
        with open_exchange(path, number) as recording:
            return {"exchanges": len(found), **msgspec.structs.asdict(dissect(recording, chosen))}
    except errors.RecordingError as error:  # also of one that is still being written
        raise HTTPException(422, str(error).replace(str(path), path.name)) from None
    except TooManySteps as error:
        raise HTTPException(413, str(error)) from None


async def _read_body(request: Request, kind: type[_Body]) -> _Body:
    return await read_body(request, partial(msgspec.json.decode, type=kind), max_body=MAX_BODY)


async def _say(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return refuse(error.status_code, error.detail)
    return refuse(*next(answer for kind, answer in _ANSWERED.items() if isinstance(error, kind)))

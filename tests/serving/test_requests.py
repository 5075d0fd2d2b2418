"""Bodies of requests: limits, errors, and other clients during a long body."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
import httpx
import msgspec
import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from streamtools import chat, errors
from streamtools.conversation import Chat, ScriptedModel
from streamtools.history import read_messages
from streamtools.json_values import count_values
from streamtools.outputs import asgi
from streamtools.serving import requests
from streamtools.serving.requests import MAX_BODY, MAX_VALUES, BodyRefused
from streamtools.stream.long_work import IN_THREAD
from tests.support.loops import ONE_LOOP
from tests.support.serving import Served


class Posted:
    """A request with these pieces. It waits for an event among them, and raises an exception."""

    def __init__(self, *pieces: bytes | anyio.Event | Exception, declared: int | str | None = None) -> None:
        self._pieces = pieces
        self.headers = Headers({} if declared is None else {"content-length": str(declared)})
        self.given = 0

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Give the pieces."""
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, anyio.Event):
                await piece.wait()
            else:
                self.given += 1
                yield piece


async def refused(request: Posted, read: Callable[[bytes], Any], **options: Any) -> int:
    """Return the status for a refused body."""
    with pytest.raises(BodyRefused) as raised:
        await asgi.read_body(request, read, **options)
    status, headers = raised.value.status_code, raised.value.headers or {}
    codes = {400: "invalid_body invalid_messages", 408: "request_timeout", 413: "too_large", 503: "too_many_bodies"}
    assert (True, status == 503) == (raised.value.code in codes[status], "retry-after" in headers)
    return status


async def test_a_body_is_read() -> None:
    """As JSON, in one piece or several, or by another function."""
    assert {"a": [1]} == await asgi.read_body(Posted(b'{"a"', b": [1]}"), json.loads)
    assert 4 == await asgi.read_body(Posted(b"abcd"), len, max_body=4)


async def test_a_body_that_is_too_long() -> None:
    """It is refused by its declared length, or at the first byte over the limit."""
    assert 4 * 1024 * 1024 == MAX_BODY
    declared = Posted(b"x", declared=MAX_BODY + 1)
    assert (413, 0) == (await refused(declared, json.loads), declared.given)
    absurd = Posted(b"x", declared="9" * 5000)
    assert (413, 0) == (await refused(absurd, json.loads), absurd.given)
    endless = Posted(*[b"x" * 1024] * 100)
    assert (413, 5) == (await refused(endless, json.loads, max_body=4096), endless.given)
    lying = Posted(b"x" * 100, declared=1)
    assert 413 == await refused(lying, json.loads, max_body=10)


async def test_the_size_of_concurrent_bodies_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One body too many gets 503. It is accepted after others have been read or refused."""
    monkeypatch.setattr("streamtools.serving.requests.MAX_TOTAL_BODIES", 100)
    ends = [anyio.Event(), anyio.Event()]
    async with anyio.create_task_group() as group:
        for one in (Posted(b"x" * 50, ends[0]), Posted(b"x" * 50, ends[1], ClientDisconnect())):
            group.start_soon(partial(suppressed, one, len, max_body=100))
        await anyio.wait_all_tasks_blocked()
        assert 503 == await refused(Posted(b"x"), len, max_body=100)
        assert 101 == await asgi.read_body(Posted(b"x"), lambda body: len(body) + 100, max_body=200)
        for end in ends:
            end.set()
    assert 100 == await asgi.read_body(Posted(b"x" * 100), len, max_body=100)


async def suppressed(request: Posted, read: Callable[[bytes], Any], **options: Any) -> None:
    """Read a body and ignore errors."""
    with suppress(HTTPException):
        await asgi.read_body(request, read, **options)


async def test_a_body_of_too_many_values() -> None:
    """A long one is refused before parsing. Strings are not counted, and short bodies are not checked."""
    deep = Posted(b'{"a":[' + b"{}," * MAX_VALUES + b"{}]}")
    assert 413 == await refused(deep, json.loads)
    text = json.dumps({"a": "[{," * MAX_VALUES + "é"}).encode()
    assert 1 == len(await asgi.read_body(Posted(text), json.loads))
    assert 3 * MAX_VALUES == await asgi.read_body(Posted(b"1,2" * MAX_VALUES), len, max_values=None)
    assert 413 == await refused(Posted(('"\u2200"' * IN_THREAD).encode("utf-16")), json.loads)


async def test_values_are_counted() -> None:
    """The pieces may end within an escape or after a string."""
    some = {"a\\": ['"', "[,", {'\\"': [1, 2, {}]}, "\\" * 9 + "x"]}
    for length in range(IN_THREAD - 90, IN_THREAD + 10):
        assert 10 == count_values(b" " * length + json.dumps(some).encode()), length
    assert 2 == count_values(json.dumps(["\\" * IN_THREAD, '"[' * IN_THREAD]).encode())


async def test_a_body_that_is_never_complete() -> None:
    """It is refused after the timeout."""
    assert 408 == await refused(Posted(b"{", anyio.Event()), json.loads, timeout=0.01)
    assert 400 == await refused(Posted(b"{", ClientDisconnect()), json.loads)


class Conversation(BaseModel):
    messages: list[dict[str, str]]


def ask(body: bytes) -> Chat:
    """Return the answer to the messages of a body."""
    return chat(ScriptedModel(["Hi"]), read_messages(json.loads(body)["messages"], client=True))


@pytest.mark.parametrize("length", [0, IN_THREAD])
@pytest.mark.parametrize(
    ("read", "body"),
    [
        (msgspec.json.decode, b"{"),
        (msgspec.json.decode, b"\xff"),
        (json.loads, b"[" * 100_000),
        (Conversation.model_validate_json, b'{"messages": 5}'),
        (ask, b'{"messages": 5}'),
        (ask, b'{"messages": [{"role": "nobody"}]}'),
        (ask, b"[]"),
        (ask, b"{}"),
    ],
)
async def test_invalid_bodies_get_400(
    read: Callable[[bytes], Any], body: bytes, length: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The status is 400, and the log names the line that raised and the reason."""
    with caplog.at_level(logging.WARNING, "streamtools"):
        assert 400 == await refused(Posted(body + b" " * length), read)
    told = [vars(each)["streamtools"] for each in caplog.records if each.getMessage().startswith("body_refused ")]
    assert [{"error", "raised_at", "reason"}] == [each.keys() for each in told]
    assert ":" in told[0]["raised_at"]
    assert told[0]["reason"]


def read_number(body: bytes) -> int:
    return int(json.loads(body))


def read_conversation(body: bytes) -> Conversation:
    return Conversation.model_validate_json(body)


def read_json(body: bytes) -> Any:
    return json.loads(body)


async def test_the_line_of_a_refusal_is_in_the_application(caplog: pytest.LogCaptureFixture) -> None:
    """It is not in pydantic or the standard library."""
    for read in (read_conversation, read_json):
        await refused(Posted(b"{"), read)
    places = [vars(each)["streamtools"]["raised_at"] for each in caplog.records]
    assert [f"{__file__}:{read.__code__.co_firstlineno + 1}" for read in (read_conversation, read_json)] == places


def look_up(body: bytes) -> str:
    return {"a": "b"}[body.decode()]


NO_NUMBER = "invalid literal for int() with base 10: "
NO_MESSAGE = 'message 0: a message must be an object such as {"role": "user", "content": "Hello"}, got int'
NO_LIST = "Invalid input for Conversation:\nmessages: Input should be a valid array [list_type]"


@pytest.mark.parametrize(
    ("read", "body", "logged", "shown"),
    [
        (ask, b'{"messages": [5]}', NO_MESSAGE, ""),
        (Conversation.model_validate_json, b'{"messages": "s3cret"}', NO_LIST, ""),
        (read_number, b'"s3cret"', f"{NO_NUMBER}…", f"{NO_NUMBER}'s3cret'"),
        (int, b"s3cret", f"{NO_NUMBER}b…", f"{NO_NUMBER}b's3cret'"),
        (ask, b"{}", "no key 'messages'", "'messages'"),
        (look_up, b"s3cret", "no key …", "'s3cret'"),
        (json.loads, b"{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)", ""),
    ],
)
async def test_the_reason_is_in_the_log_and_with_debug_in_the_response(
    read: Callable[[bytes], Any], body: bytes, logged: str, shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log holds no value of the body. The response has no reason without `debug`."""
    for debug, detail in ((False, "Invalid request body."), (True, f"Invalid request body: {shown or logged}")):
        with pytest.raises(BodyRefused) as refusal:
            await asgi.read_body(Posted(body), read, debug=debug)
        code = "invalid_messages" if logged == NO_MESSAGE else "invalid_body"
        assert (detail, code) == (refusal.value.detail, refusal.value.code)
    reasons = [vars(each)["streamtools"]["reason"] for each in caplog.records]
    assert [logged] * 2 == reasons


async def test_errors_that_are_not_the_clients() -> None:
    """Errors of this package keep their meaning, and other exceptions are server errors."""

    def fail(error: Exception, body: bytes) -> None:
        raise error

    for error in (errors.DecisionRefused("no"), OSError()):
        with pytest.raises(type(error)):
            await asgi.read_body(Posted(b"{}"), partial(fail, error))


RESPONSES: dict[Any, int] = dict.fromkeys((errors.Draining, errors.TooManyRuns, errors.OwnerUnreachable), 503)
RESPONSES |= {errors.RunNotFound: 404, partial(errors.TooManyRuns, code="too_many_runs_of_owner"): 429}
RESPONSES |= {errors.DecisionRefused: 409, errors.ConversationBusy: 409, partial(BodyRefused, 413, "too_large"): 413}
RESPONSES |= {errors.InvalidDecision: 400, errors.InvalidMessages: 400}


async def test_errors_of_runs_have_their_status() -> None:
    """The client may repeat a request that was refused with 503. The body has the form of the framework's errors."""
    for (error, status), framework in itertools.product(RESPONSES.items(), (Starlette, FastAPI)):

        async def fail(request: Request, error: Any = error) -> Response:
            raise error("The reason.")

        app = framework(routes=[Route("/", fail)], exception_handlers=asgi.exception_handlers)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client:
            answer = await client.get("/")
        assert (status, status == 503) == (answer.status_code, "retry-after" in answer.headers)
        told = {} if framework is Starlette else answer.json()
        text = told.get("detail", answer.text)
        assert framework is Starlette or told["code"] == error("x").code
        assert ("The reason." == text) == (type(error("x")) not in (errors.Draining, errors.TooManyRuns))
    assert {type(error("x")) for error in RESPONSES} == asgi.exception_handlers.keys()


async def test_a_chat_can_be_made_in_a_thread(anyio_backend: str) -> None:
    """Reading its messages does not block the event loop."""
    body = json.dumps({"messages": [{"role": "user", "content": "x" * IN_THREAD}]}).encode()
    async with await asgi.read_body(Posted(body), ask) as events:
        assert "Hi" == "".join([event.text async for event in events if event.type == "text"])


@ONE_LOOP
async def test_another_client_is_answered_meanwhile() -> None:
    """It is answered while the long body of the first one is read."""
    reading, answered = threading.Event(), threading.Event()
    order: list[str] = []

    def read(body: bytes) -> int:
        reading.set()
        answered.wait(20)
        order.append("read")
        return len(body)

    async def post(request: Request) -> Response:
        return JSONResponse(await asgi.read_body(request, read))

    async def get(request: Request) -> Response:
        return PlainTextResponse("Hi")

    app = Starlette(routes=[Route("/", post, methods=["POST"]), Route("/", get)])
    async with (
        Served(app) as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as client,
        anyio.create_task_group() as group,
    ):

        async def send() -> None:
            response = await client.post("/", content=b"x" * (IN_THREAD + 1))
            order.append(f"answered {response.json()}")

        group.start_soon(send)
        await anyio.to_thread.run_sync(reading.wait, 20)
        assert "Hi" == (await client.get("/")).text
        order.append("answered Hi")
        answered.set()
    assert ["answered Hi", "read", f"answered {IN_THREAD + 1}"] == order


async def test_a_cancelled_reader_is_awaited(anyio_backend: str) -> None:
    """It runs in the context of the request. Afterwards, its bytes are no longer counted, and garbage is collected."""
    user = ContextVar("user", default="")
    begun, goes_on = threading.Event(), threading.Event()
    seen: list[object] = []

    def read(body: bytes) -> None:
        begun.set()
        goes_on.wait(20)
        seen.extend([user.get(), threading.current_thread() is threading.main_thread()])

    before = requests._total_bytes
    async with anyio.create_task_group() as group:
        user.set("ann")
        group.start_soon(asgi.read_body, Posted(b" " * (IN_THREAD + 1)), read)
        await anyio.to_thread.run_sync(begun.wait, 20)
        group.cancel_scope.cancel()
        goes_on.set()
    assert ["ann", False] == seen
    assert before == requests._total_bytes
    assert gc.isenabled()


@ONE_LOOP
@pytest.mark.parametrize("is_on", [True, False])
async def test_long_bodies_are_read_without_garbage_collection(is_on: bool) -> None:
    """The collector is restored afterwards, also after errors and with several readers."""
    first, second = threading.Event(), threading.Event()

    def read(body: bytes) -> bool:
        first.set()
        second.wait(20)
        return gc.isenabled()

    def fail(body: bytes) -> None:
        second.set()
        raise OSError("no")

    long = b" " * (IN_THREAD + 1)
    if not is_on:
        gc.disable()
    try:
        async with anyio.create_task_group() as group:

            async def read_first() -> None:
                assert await asgi.read_body(Posted(long), read) is False

            group.start_soon(read_first)
            await anyio.to_thread.run_sync(first.wait, 20)
            with pytest.raises(OSError, match="no"):
                await asgi.read_body(Posted(long), fail)
        assert gc.isenabled() is is_on
        with pytest.raises(OSError, match="no"):
            await asgi.read_body(Posted(long), fail)
        assert gc.isenabled() is is_on
        assert await asgi.read_body(Posted(b" "), lambda body: gc.isenabled()) is is_on
    finally:
        gc.enable()

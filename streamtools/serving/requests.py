"""Reads request bodies within limits, and makes the responses to refused requests, such as 503 during a shutdown.

Parsing a body in the event loop would block all other clients. So a long body is parsed in a thread, and Python
switches between this thread and the event loop. Python cannot switch during a single call that parses JSON, collects
garbage or frees values. So the number of JSON values in a body is limited as well.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from inspect import isawaitable
from typing import Any, Protocol, TypeVar

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response

from streamtools.errors import (
    ConversationBusy,
    DecisionRefused,
    Draining,
    InvalidDecision,
    InvalidMessages,
    OwnerUnreachable,
    RefusalCode,
    RunNotFound,
    StreamToolsError,
    TooManyRuns,
    check_function,
    check_methods,
)
from streamtools.json_values import count_values
from streamtools.logs import Logger, explained, without_inputs
from streamtools.serving.shutdown import RETRY_AFTER
from streamtools.stream.long_work import IN_THREAD, in_thread

MAX_BODY = 4 * 1024 * 1024
"""Maximum number of bytes in the body of a request."""

MAX_VALUES = 100_000
"""Maximum number of JSON values in the body of a request. Bodies up to 64 KiB are not counted."""

MAX_TOTAL_BODIES = 256 * 1024 * 1024
"""Maximum number of bytes in all bodies that a process receives or parses at the same time."""

CLIENT_ERRORS = (ValueError, LookupError, TypeError, RecursionError)
"""Exceptions that are treated as an invalid body or message, unless they are errors of this package."""

_log = Logger(__name__)

_total_bytes = 0  # number of bytes in the bodies that are being received or parsed

_SHUTTING_DOWN = "The server is shutting down."
_CLOSE = {"connection": "close"}  # the rest of the body is not read
_RETRY_LATER = {"retry-after": str(RETRY_AFTER), **_CLOSE}
_Read = TypeVar("_Read")


class BodyRefused(HTTPException):
    """The request has an unusable body. The `code` is the reason."""

    def __init__(self, status: int, code: RefusalCode, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(status, detail, headers)
        self.code = code


class StreamedRequest(Protocol):
    """A request of any supported framework, whose body was not received."""

    @property
    def headers(self) -> Any: ...
    def stream(self) -> AsyncGenerator[bytes, None]: ...


async def read_body(
    request: StreamedRequest,
    read: Callable[[bytes], _Read],
    *,
    max_body: int = MAX_BODY,
    max_values: int | None = MAX_VALUES,
    timeout: float | None = 60.0,
    debug: bool = False,
) -> _Read:
    """Receive the body of a request and return `read(body)`. For example, `read` may be `json.loads`.

    If the body has more than 64 KiB, `read` is called in a thread, so that the event loop can serve other clients. Let
    `read` do everything that takes long with a large body, such as `chat(…)`, which reads the messages. `read` must not
    wait: during the call, the event loop is blocked or garbage collection is paused. If `read` raises ValueError (as
    pydantic and msgspec do), LookupError, TypeError or RecursionError, the body is treated as invalid. The log reports
    the type, line and message of the exception (`body_refused`), because `read` may have a bug. Values that the message
    quotes are left out. With `debug=True`, the response holds the message, without the input values that pydantic
    quotes. Other exceptions of this package pass unchanged.

    Raises Starlette's HTTPException, which Starlette and FastAPI turn into a response. The status is 413 if the body
    has more than `max_body` bytes, or has more than 64 KiB and more than `max_values` JSON values. Pass
    `max_values=None` if the body is not JSON. The status is 408 if the body did not arrive within `timeout` seconds
    (None: no limit), and 400 if it is incomplete or invalid. It is 503 with `Retry-After` if all bodies of the process
    together exceed the larger of 256 MiB and `max_body`. With `exception_handlers`, the response has a `code`.
    """
    check_methods("request", request, "the request of a framework", "stream")
    check_function("read", read, "body", may_wait=False)
    global _total_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > max_body):
        raise _too_large(max_body, "bytes")
    body = bytearray()
    try:
        try:
            with anyio.fail_after(timeout):
                async with aclosing(request.stream()) as chunks:
                    async for chunk in chunks:
                        body += chunk
                        _total_bytes += len(chunk)
                        if len(body) > max_body:
                            raise _too_large(max_body, "bytes")
                        if _total_bytes > max(MAX_TOTAL_BODIES, max_body):
                            raise BodyRefused(503, "too_many_bodies", "Too many request bodies at once.", _RETRY_LATER)
        except TimeoutError:
            raise BodyRefused(408, "request_timeout", "The request body did not arrive in time.", _CLOSE) from None
        except ClientDisconnect:
            raise BodyRefused(400, "invalid_body", "The request body is incomplete.") from None
        if len(body) > IN_THREAD:
            return await in_thread(partial(_count_and_read, read, bytes(body), max_values))
        return read(bytes(body))
    except CLIENT_ERRORS as error:
        if not is_fault_of_client(error):
            raise
        _log.warning("body_refused", **explained(error))
        code: RefusalCode = "invalid_messages" if isinstance(error, InvalidMessages) else "invalid_body"
        detail = f"Invalid request body: {without_inputs(error)}" if debug else "Invalid request body."
        raise BodyRefused(400, code, detail) from None
    finally:
        _total_bytes -= len(body)


def is_fault_of_client(error: Exception) -> bool:
    """Whether one of the `CLIENT_ERRORS` says that the client's data is invalid, as the exceptions of parsers do."""
    return isinstance(error, InvalidMessages) or not isinstance(error, StreamToolsError)


def _count_and_read(read: Callable[[bytes], _Read], body: bytes, max_values: int | None) -> _Read:
    if max_values is not None and count_values(body) > max_values:
        raise _too_large(max_values, "values")
    return read(body)


def _too_large(limit: int, unit: str) -> HTTPException:
    return BodyRefused(413, "too_large", f"The request body may have at most {limit} {unit}.")


def unavailable() -> Response:
    """Return a response with the status 503 and the header `Retry-After`."""
    return PlainTextResponse(_SHUTTING_DOWN, 503, {"retry-after": str(RETRY_AFTER)})


def _as_text(request: object, refused: HTTPException) -> Response:
    return PlainTextResponse(refused.detail, refused.status_code, refused.headers)


async def _respond(status: int, message: str, request: Any, error: Any) -> Response:
    """Respond as the application does to an HTTPException. Without a message, the client gets the error text."""
    if error.code == "too_many_runs_of_owner":
        status, message = 429, "Too many of your answers are in progress."
    headers = {"retry-after": str(RETRY_AFTER)} if status == 503 else None
    respond = request.app.exception_handlers.get(HTTPException, _as_text)
    refused = error if isinstance(error, HTTPException) else HTTPException(status, message or str(error), headers)
    given: Response | Awaitable[Response] = respond(request, refused)
    response = await given if isawaitable(given) else given
    if isinstance(response, JSONResponse) and isinstance(body := json.loads(bytes(response.body)), dict):
        response.body = response.render({"code": error.code, **body})
        response.headers["content-length"] = str(len(response.body))
    return response


exception_handlers: dict[Any, Any] = {
    Draining: partial(_respond, 503, _SHUTTING_DOWN),
    TooManyRuns: partial(_respond, 503, "Too many answers are in progress."),
    OwnerUnreachable: partial(_respond, 503, ""),
    RunNotFound: partial(_respond, 404, ""),
    ConversationBusy: partial(_respond, 409, ""),
    DecisionRefused: partial(_respond, 409, ""),
    InvalidDecision: partial(_respond, 400, ""),
    InvalidMessages: partial(_respond, 400, ""),
    BodyRefused: partial(_respond, 400, ""),
}
"""Exception handlers for Starlette and FastAPI.

The status is 503 if no run can start, or if Redis or the process of a run does not respond. It is 429 if a user has too
many runs, 404 for an unknown run, and 400 for an invalid decision and for invalid messages of a client. It is 409 for
any other decision that is refused, and for a conversation in which no other run may start. The exceptions of
`read_body` keep their status.
The body has the form of the framework's errors. In FastAPI, it is JSON with a `detail`. A JSON object also has
the `code` of the exception, such as `wrong_digest`.
"""

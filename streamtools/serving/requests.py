"""Bodies of requests within a bound, and the responses to what a server refuses: 503 while it begins nothing new.

Reading a body blocks the event loop, and with it all other clients. JSON and messages are read at some megabytes a
second, so a long body is read in a thread, which Python interrupts for the loop: but not while a single call reads its
JSON, looks for garbage among its values or lets go of them, so these have a bound of their own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol, TypeVar

import anyio
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response

from streamtools.errors import DecisionRefused, Draining, RunNotFound, StreamToolsError, TooManyRuns
from streamtools.json_values import count_values
from streamtools.logs import Logger, loggable
from streamtools.serving.shutdown import RETRY_AFTER
from streamtools.stream.long_work import IN_THREAD, in_thread

MAX_BODY = 4 * 1024 * 1024
"""Bytes of a request's body."""

MAX_VALUES = 100_000
"""Values of its JSON."""

MOST_BODIES = 256 * 1024 * 1024
"""Bytes of all bodies that a process receives, or reads, at the same time."""

_log = Logger(__name__)

_coming = 0  # of these

UNWANTED_BY = (ValueError, LookupError, TypeError, RecursionError)
"""What reading raises where a client has sent what is not wanted; our own errors are none of these faults."""

_LATER = {"retry-after": str(RETRY_AFTER), "connection": "close"}
_Read = TypeVar("_Read")


class AnyBody(Protocol):
    """A request, of whichever framework."""

    @property
    def headers(self) -> Any: ...
    def stream(self) -> AsyncGenerator[bytes, None]: ...


async def read_body(
    request: AnyBody,
    read: Callable[[bytes], _Read],
    *,
    max_body: int = MAX_BODY,
    max_values: int | None = MAX_VALUES,
    timeout: float | None = 60.0,
) -> _Read:
    """Return what `read` makes of the body of a request, as `json.loads` does.

    A body of more than 64 KiB is read in a thread, so that other clients are answered meanwhile: let `read` do all that
    takes long, such as `chat(…)` itself, which reads the messages, and wait for nothing, because the process collects
    no garbage as long. What it raises as ValueError, as pydantic and msgspec do too, or as LookupError or TypeError,
    counts as the client's fault, and the log has its type and line (`body_refused`), as it may be a mistake in `read`;
    our own errors are raised as they are.

    Raises Starlette's HTTPException, with which its frameworks answer: 413 for more than `max_body` bytes, or, in a
    long one, more than `max_values` values of JSON (None: they are not counted, as in a body that is something else);
    408 for one that has not come in `timeout` seconds (None: no bound), 400 for one that breaks off or that `read`
    refuses; 503, with `Retry-After`, where all bodies that the process receives and reads have more than 256 MiB, or
    than `max_body`.
    """
    global _coming
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > max_body):
        raise _too_large(max_body)
    body = bytearray()
    try:
        try:
            with anyio.fail_after(timeout):
                async with aclosing(request.stream()) as chunks:
                    async for chunk in chunks:
                        body += chunk
                        _coming += len(chunk)
                        if len(body) > max_body:
                            raise _too_large(max_body)
                        if _coming > max(MOST_BODIES, max_body):
                            raise HTTPException(503, "too many bodies come at the same time", _LATER)
        except TimeoutError:
            raise HTTPException(408, "the body has not come in time", {"connection": "close"}) from None
        except ClientDisconnect:
            raise HTTPException(400, "the request breaks off") from None
        if len(body) > IN_THREAD:
            return await in_thread(partial(_count_and_read, read, bytes(body), max_values))
        return read(bytes(body))
    except (HTTPException, StreamToolsError):
        raise
    except UNWANTED_BY as fault:
        _log.warning("body_refused", **loggable(fault))
        raise HTTPException(400, "the body is not what is wanted here") from None
    finally:
        _coming -= len(body)


def _count_and_read(read: Callable[[bytes], _Read], body: bytes, max_values: int | None) -> _Read:
    if max_values is not None and count_values(body) > max_values:
        raise _too_large(max_values, "values")
    return read(body)


def _too_large(most: int, of: str = "bytes") -> HTTPException:
    return HTTPException(413, f"the body may have {most} {of}")


def unavailable(message: str = "the server is about to end") -> Response:
    """Return the response to a client that may come again in a moment: 503, with `Retry-After`."""
    return PlainTextResponse(message, 503, {"retry-after": str(RETRY_AFTER)})


async def _refuse(answer: Callable[[str], Response], message: str, request: Any, error: Exception) -> Response:
    return answer(message or str(error))


exception_handlers: dict[Any, Any] = {
    Draining: partial(_refuse, unavailable, "the server is about to end"),
    TooManyRuns: partial(_refuse, unavailable, "too many answers are being given at the same time"),
    RunNotFound: partial(_refuse, partial(PlainTextResponse, status_code=404), ""),
    DecisionRefused: partial(_refuse, partial(PlainTextResponse, status_code=409), ""),
}
"""For an application of Starlette or FastAPI: what `Runs.start` raises because of others is answered with 503, a run
that is not there with 404, and what is decided about a call that does not wait for it with 409.
"""

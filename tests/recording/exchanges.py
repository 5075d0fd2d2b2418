"""Hand-written recordings of exchanges, and clients that request them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from streamtools.recording import ExchangeHead, RecordedRequest, ReplayTransport
from streamtools.recording.files import RecordingWriter
from streamtools.recording.format import EndKind, RecordedResponse

URL = "https://api.example.org/v1/chat/completions"
ANSWERED = RecordedResponse(status=200, headers={"content-type": "text/event-stream", "x-request-id": "r1"})


def ask(text: str, **more: Any) -> dict[str, Any]:
    """Return the body of a request."""
    return {"model": "m", "messages": [{"role": "user", "content": text}], "stream": True, **more}


def write(
    path: Path,
    *exchanges: tuple[RecordedRequest | None, Sequence[bytes]],
    end: EndKind = "end",
    error: str = "",
    response: RecordedResponse | None = ANSWERED,
) -> Path:
    """Write exchanges to a file. Each chunk arrives a tenth of a second after the chunk before it."""
    with path.open("wb") as file:
        for request, chunks in exchanges:
            writer = RecordingWriter(file, ExchangeHead(source="openai", request=request, response=response))
            for at, chunk in enumerate(chunks, start=1):
                writer.chunk(chunk, at * 100)
            writer.end(end, len(chunks) * 100, error)
    return path


def request(body: Any, method: str = "POST", url: str = URL) -> RecordedRequest:
    """Return a recorded request."""
    return RecordedRequest(method=method, url=url, body=body)


async def post(transport: ReplayTransport, body: Any, url: str = URL, **more: Any) -> bytes:
    """Return the response body that an asynchronous client reads."""
    async with httpx.AsyncClient(transport=transport) as client, client.stream("POST", url, json=body, **more) as got:
        return b"".join([data async for data in got.aiter_bytes()])


def post_blocking(transport: ReplayTransport, body: Any, url: str = URL, **more: Any) -> bytes:
    """Return the response body that a blocking client reads."""
    with httpx.Client(transport=transport) as client, client.stream("POST", url, json=body, **more) as got:
        return b"".join(got.iter_bytes())

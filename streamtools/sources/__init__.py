"""Converts the streams of providers into source events. There is one adapter per wire format.

Each function for a format returns a `Source`, and so does `detect`. These functions accept any of these objects:

- a response, which is an object with `aiter_bytes()`
- an `EventSource` of httpx-sse or httpx2
- a stream of the provider's SDK
- a synchronous or asynchronous iterable of bytes, server-sent events, dicts or SDK objects

They raise `UnreadableSource` for any other object. Failures of providers, SDKs and networks become error events. The
adapters are sans-IO and can also be used directly: `adapter("openai").feed(bytes)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable

from streamtools.events import SourceEvent
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.loading import check_calls
from streamtools.sources.adapter import (
    Adapter,
    Frame,
    FrameAdapter,
    LineDecoder,
    PlainText,
    ReadyEvents,
    Source,
    SSEDecoder,
)
from streamtools.sources.detection import ADAPTERS, Undecided
from streamtools.sources.finished import finished

__all__ = [
    "ADAPTERS", "Adapter", "Frame", "FrameAdapter", "LineDecoder", "SSEDecoder", "Source", "Undecided", "adapter",
    "ai_sdk", "anthropic", "bedrock", "cohere", "detect", "events", "finished_response", "gemini", "latitude",
    "ollama", "openai", "responses", "text",
]  # fmt: skip


def openai(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of chat completion chunks, from OpenAI or a compatible server."""
    return Source(response, ADAPTERS["openai"](limits))


def responses(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of OpenAI's Responses, from OpenAI or a compatible server."""
    return Source(response, ADAPTERS["responses"](limits))


def anthropic(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of Anthropic's Messages, from Anthropic or a compatible server."""
    return Source(response, ADAPTERS["anthropic"](limits))


def gemini(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of Gemini: of `streamGenerateContent?alt=sse` or of the Interactions API.

    `streamGenerateContent` of Vertex has the same format.
    """
    return Source(response, ADAPTERS["gemini"](limits))


def ollama(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of Ollama's `/api/chat`. Use `openai` for its OpenAI-compatible API."""
    return Source(response, ADAPTERS["ollama"](limits))


def ai_sdk(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of a UI message stream (v1) of the AI SDK.

    Calls that the remote backend has run are reported with `provider_executed`. Their results are `raw` events.
    """
    return Source(response, ADAPTERS["ai_sdk"](limits))


def latitude(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of a Latitude run, direct or through a proxy."""
    return Source(response, ADAPTERS["latitude"](limits))


def bedrock(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of Bedrock's ConverseStream.

    `response` yields the bytes of the HTTP response, or the events of boto3's stream.
    """
    return Source(response, ADAPTERS["bedrock"](limits))


def cohere(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of Cohere's chat, version 2. The plan that precedes calls becomes reasoning."""
    return Source(response, ADAPTERS["cohere"](limits))


def detect(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of a stream. Its content type and first event decide which of the formats it has."""
    return Source(response, Undecided(limits=limits))


def text(strings: Iterable[str] | AsyncIterable[str]) -> Source:
    """Return the source events of plain text. Each string is a delta. The turn ends at the end of the iterable."""
    return Source(strings, PlainText())


def events(ready: Iterable[SourceEvent] | AsyncIterable[SourceEvent]) -> Source:
    """Return a source that yields the given source events. Used for custom adapters and for tests."""
    return Source(ready, ReadyEvents())


def finished_response(response: object, *, limits: Limits = DEFAULT_LIMITS) -> Source:
    """Return the source events of a response that was not streamed, as a dict or an object of an SDK.

    `response` is a whole response of OpenAI (chat or Responses), Anthropic, Gemini or Ollama. It may also be a message
    from such a response, a call, a list of content blocks or calls, a text, or None. Any other dict is read as a chat
    message. Raises `UnreadableSource` for a value of any other type.
    """
    return events(finished(response, limits))


def adapter(name: str, limits: Limits = DEFAULT_LIMITS) -> FrameAdapter:
    """Return a new adapter by its name in `ADAPTERS`. Raises `LookupError`, which lists the names."""
    try:
        make = ADAPTERS[name]
    except KeyError:
        raise LookupError(f"no adapter is named {name!r}; there are {', '.join(ADAPTERS)}") from None
    return make(limits)


check_calls(globals())

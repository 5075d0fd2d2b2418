"""The common base of protocols for chat interfaces, in which everything that begins ends. Sans-IO.

In our events, a block of text has no end of its own: the next event of another type ends it. The protocols of front
ends have a beginning and an end of each block of text, each step and each call, and their clients fail, or wait for
ever, where one is missing. This module keeps track of what is open and ends it, however the run ends; a protocol is a
subclass that writes each beginning and each end.

White space alone is no block of text: models put line feeds around their calls, and an interface would show an empty
message for each. It waits for the first character that can be seen, and is dropped if there is none.

Nothing here relies on the order of the events: where they begin in the middle of a run, because earlier ones are kept
no more, the client can read the body all the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from streamtools import events
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.outputs.encoder import EVENT_STREAM, EVENT_STREAM_HEADERS, KEEP_ALIVE, closed_error, to_json
from streamtools.outputs.protected import Protected, of_reasoning, of_text

Channel: TypeAlias = Literal["text", "reasoning"]

UNNAMED = "unknown"
"""The name of a call that ended before its name was known; protocols require one."""


class KnownCall(msgspec.Struct):
    """What the reader knows of a call that has not ended."""

    id: str
    name: str
    pieces: bool = False
    """Some of its arguments went out as they were written."""
    whole: bool = False
    """All of its arguments went out."""
    begun: bool = False
    """It was allowed to run, if anybody was asked."""


_LEFT = {
    "truncated": "Not run: the answer was cut off.",
    "failed": "Not run: the run failed.",
    "stopped": "Not run: the run was stopped.",
    "cancelled": "Not run: the run was cancelled.",
}
_MAX_WHITE = 256  # characters of white space that wait for a visible character
_NO_RESULT = "The run ended without a result of this call."


class PairedEncoder(ABC):
    """Takes UI events, and has a protocol write beginnings, of which each has one end: by the last of its methods."""

    content_type: str = EVENT_STREAM
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive: bytes = KEEP_ALIVE
    resumable: bool = False
    _delta_head: bytes = b""

    def __init__(self, known_calls: Collection[str] = ()) -> None:
        self._begun = False
        self._ended = False
        self._step: int | None = None
        self._format: str | None = None  # of its provider
        self._step_finish: str | None = None
        self._channel: Channel | None = None
        self._blocks = 0
        self._white: dict[Channel, str] = {}  # white space with which a block may begin
        self._calls: dict[str, KnownCall] = {}
        self._known = {known_calls} if isinstance(known_calls, str) else set(known_calls)
        self._questions: dict[str, events.ApprovalRequested] = {}
        self._failure: events.Error | None = None
        self._usage: events.Usage | None = None

    def encode(self, event: events.UIEvent) -> bytes:
        """Return the parts for `event`; those of `done` complete the body."""
        if self._ended:
            raise closed_error()
        if type(event) is events.Text and self._channel == "text" and event.text:  # nearly every event is one of these
            return b"%b%b}\n\n" % (self._delta_head, to_json(event.text))
        match event:
            case events.Text(text):
                return self._add("text", text)
            case events.Reasoning():
                return self._reason(event)
            case events.Raw(format="gemini", about="text"):
                return self._sign_text(of_text(event))
            case events.Start(run_id):
                return self._begin(run_id)
            case events.StepStart(step, format=format):
                written = self._begin() + self._end_step()
                self._step, self._format = step, format
                return written + self._write_step_start(step)
            case events.StepEnd(finish_reason=finish_reason):
                self._step_finish = finish_reason
                return self._end_step()
            case events.CallStart(call_id, name):
                return self._announce(call_id, name)
            case events.CallDelta(call_id, text):
                return self._add_to_call(call_id, text)
            case events.Call(call):
                return self._introduce(call)
            case events.Executing(call):
                written = self._introduce(call)
                self._calls[call.id].begun = True
                return written + (self._write_approval(call) if call.id in self._questions else b"")
            case events.ApprovalRequested(call):
                self._questions[call.id] = event
                return self._introduce(call) + self._write_question(call)
            case events.Progress(call_id, data):
                known = self._calls.get(call_id)
                return self._write_progress(known, data) if known and known.whole else b""
            case events.Executed(call, result):
                written = self._introduce(call)
                del self._calls[call.id]
                return written + self._write_result(call, result)
            case events.Error(call_id=None):
                self._failure = event  # sent at the end, because readers stop reading there
                return b""
            case events.Error():
                return self._refuse(event)
            case events.UsageReport(usage):
                self._usage = usage if self._usage is None else self._usage + usage
                return self._begin() + self._write_usage(self._usage)
            case events.Done():
                return self._finish(event)
            case events.Raw(data):
                return b"".join(self._write_file(kind, url) for kind, url in files_of(data))
            case events.Partial():
                return self._begin() + self._write_partial(event)
            case events.Thinking() | events.Warning() | events.FollowUp() | events.Markup() | events.Matched():
                return b""
            case events.StepSuperseded():  # responses refuse such runs, whose readers cannot take back what they show
                return b""
        assert_never(event)

    def close(self) -> bytes:
        """Return the end of a body whose `done` never came: all that is open is ended, and the reader is sent so."""
        if self._ended:
            return b""
        return self._finish(None)

    # What is open, and how it ends.

    def _begin(self, run_id: str | None = None) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._write_start(run_id)

    def _end_step(self) -> bytes:
        written = self._end_block()
        if self._step is None:
            return written
        step, self._step = self._step, None
        return written + self._write_step_end(step)

    def _add(self, channel: Channel, text: str) -> bytes:
        if not text:
            return b""
        if channel == self._channel:
            return b"%b%b}\n\n" % (self._delta_head, to_json(text))
        text = self._white.get(channel, "") + text
        if text.isspace() and len(text) <= _MAX_WHITE:
            self._white[channel] = text
            return b""
        written = self._open(channel)
        return b"%b%b%b}\n\n" % (written, self._delta_head, to_json(text))

    def _open(self, channel: Channel) -> bytes:
        written = self._begin() + self._end_block()
        self._channel = channel
        self._blocks += 1
        return written + self._write_block_start(channel, self._blocks)

    def _end_block(self, kept: Protected | None = None) -> bytes:
        self._white.clear()
        if self._channel is None:
            return b""
        channel, self._channel = self._channel, None
        return self._write_block_end(channel, self._blocks, kept)

    def _reason(self, event: events.Reasoning) -> bytes:
        """Return a piece of reasoning; what signs it ends one block of it, which may have no text."""
        written = self._add("reasoning", event.text)
        kept = of_reasoning(event, self._format)
        if kept is not None and self._channel != "reasoning":
            written += self._open("reasoning")
        ends = self._channel == "reasoning" and (kept is not None or event.signature is not None)
        return written + self._end_block(kept) if ends else written

    def _sign_text(self, kept: Protected | None) -> bytes:
        """Return the end of a text that is signed; or of one before it, which is not."""
        if self._channel == "text":
            return self._end_block(kept)
        return self._open("text") + self._end_block(kept) if kept is not None else b""

    def _announce(self, call_id: str, name: str) -> bytes:
        if call_id in self._calls:
            return b""
        written = self._begin() + self._end_block()
        self._calls[call_id] = KnownCall(call_id, name)
        return written + self._write_call_start(call_id, name)

    def _add_to_call(self, call_id: str, text: str) -> bytes:
        known = self._calls.get(call_id)
        if known is None or known.whole or not text:
            return b""
        known.pieces = True
        return self._write_call_delta(call_id, text)

    def _introduce(self, call: ToolCall) -> bytes:
        """Return what completes a call, or nothing if the reader knows it."""
        known = self._calls.get(call.id)
        if known is not None and known.whole:
            return b""
        if call.id in self._known:
            self._calls[call.id] = KnownCall(call.id, call.name, whole=True)
            return self._begin()
        written = self._announce(call.id, call.name)
        known = self._calls[call.id]
        known.whole = True
        return written + self._write_call(call, known)

    def _refuse(self, error: events.Error) -> bytes:
        assert error.call_id is not None
        known = self._calls.pop(error.call_id, None)
        if known is None and error.call is not None and error.call_id in self._known:
            known = KnownCall(error.call_id, error.call.name, whole=True)
        written = self._begin() + (self._end_block() if known is None else b"")
        return written + self._write_refusal(error, known)

    def _finish(self, done: events.Done | None) -> bytes:
        parts = [self._begin(), self._end_block()]  # joined once: a run may leave any number of calls behind
        if done is not None and done.reason == "finished":
            for call in done.pending:
                parts.append(self._introduce(call))
                del self._calls[call.id]  # left for the client to run, which is no fault
        text = _LEFT.get(done.reason, _NO_RESULT) if done is not None else _NO_RESULT
        for known in [*self._calls.values()]:
            parts.append(self._refuse(events.Error(Code.TRUNCATED, text, known.id)))
        parts.append(self._end_step())
        self._ended = True
        if done is None or done.reason == "failed":
            failure = self._failure or events.Error(Code.STREAM_INTERRUPTED, "The stream ended before the answer did.")
            parts.append(self._write_failure(failure))
        else:
            parts.append(self._write_end(done))
        return b"".join(parts)

    # How a protocol writes each of them.

    @abstractmethod
    def _write_start(self, run_id: str | None) -> bytes:
        """Return what opens the body; `run_id` is None where the reader's events begin in the middle of a run."""

    @abstractmethod
    def _write_step_start(self, step: int) -> bytes: ...

    @abstractmethod
    def _write_step_end(self, step: int) -> bytes: ...

    @abstractmethod
    def _write_block_start(self, channel: Channel, number: int) -> bytes:
        """Return the start of a block, and set `_delta_head` to what stands before the JSON of each of its deltas."""

    @abstractmethod
    def _write_block_end(self, channel: Channel, number: int, kept: Protected | None) -> bytes:
        """Return the end of a block, with what is `kept` of it for its provider."""

    @abstractmethod
    def _write_call_start(self, call_id: str, name: str) -> bytes: ...

    @abstractmethod
    def _write_call_delta(self, call_id: str, text: str) -> bytes: ...

    @abstractmethod
    def _write_call(self, call: ToolCall, known: KnownCall) -> bytes:
        """Return what completes a call, which has been announced."""

    def _write_question(self, call: ToolCall) -> bytes:
        """Return what asks for the approval of a call, which has been sent; nothing where the end of the run asks."""
        return b""

    def _write_approval(self, call: ToolCall) -> bytes:
        """Return that a call whose approval was asked for has been approved, for readers that did not do it."""
        return b""

    def _write_file(self, kind: str, url: str) -> bytes:
        """Return a file that the model has made, of a media type, for readers that have a place for it."""
        return b""

    def _write_partial(self, partial: events.Partial) -> bytes:
        """Return what was added to the value that the text is, for readers that have a place for it."""
        return b""

    @abstractmethod
    def _write_progress(self, known: KnownCall, data: Any) -> bytes: ...

    @abstractmethod
    def _write_result(self, call: ToolCall, result: Any) -> bytes: ...

    @abstractmethod
    def _write_refusal(self, error: events.Error, known: KnownCall | None) -> bytes:
        """Return how a call ends without a result; `known` is None where the reader has not heard of it."""

    def _write_usage(self, usage: events.Usage) -> bytes:
        """Return the tokens of the run so far; nothing where they are sent at its end."""
        return b""

    @abstractmethod
    def _write_failure(self, failure: events.Error) -> bytes:
        """Return the end of the body of a run that failed."""

    @abstractmethod
    def _write_end(self, done: events.Done) -> bytes:
        """Return the end of the body of any other run."""


# Files that a model has made, as they pass among what is no text.
#
# What an adapter does not interpret is `raw`, in its provider's form. Images are a part of it that readers want to see,
# so those forms are known here. A file is a media type and an address: one that holds the data (`data:`), or leads to a
# server (`https:`); no other may reach an interface.
#
# Source: the references of Gemini, Interactions, Bedrock's Converse, OpenAI's Responses, OpenRouter and Ollama, and the
# part `file` of the AI SDK's stream.

_BEGINNINGS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}
"""How images in Base64 begin whose type nobody tells; all others are PNG."""


def files_of(data: Any) -> list[tuple[str, str]]:
    """Return the files in what a provider has sent, each as its media type and its address.

    >>> files_of({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
    [('image/png', 'data:image/png;base64,aGk=')]
    >>> files_of({"groundingMetadata": {}})
    []
    """
    match data:
        case {"inlineData": {"mimeType": str() as kind, "data": str() as held}}:  # Gemini
            return [_held(held, kind)]
        case {"choices": [{"delta": {"images": [*images]}}]} | {"images": [*images]}:  # OpenRouter, Ollama
            return [found for each in images for found in _image(each)]
        case {"type": "image_generation_call", "result": str() as held}:  # Responses
            return [_held(held, None)] if held else []
        case {"type": "model_output", "content": [*parts]}:  # Interactions
            return [found for each in parts for found in _image(each)]
        case {"image": {"format": str() as name, "source": {"bytes": str() as held}}}:  # Bedrock
            return [_held(held, f"image/{name}")]
        case {"type": "file", "url": str() as url, "mediaType": str() as kind}:  # the AI SDK
            return _safe(kind, url)
    return []


def _image(value: Any) -> list[tuple[str, str]]:
    match value:
        case {"image_url": {"url": str() as url}}:
            kind = url[5:].partition(";")[0] if url.startswith("data:") else "image/*"
            return _safe(kind, url)
        case {"type": "image", "data": str() as held}:
            kind = value.get("mime_type")
            return [_held(held, kind if isinstance(kind, str) else None)]
        case str() if value:
            return [_held(value, None)]
    return []


def _held(data: str, kind: str | None) -> tuple[str, str]:
    kind = kind or _BEGINNINGS.get(data[:4], "image/png")
    return kind, f"data:{kind};base64,{data}"


def _safe(kind: str, url: str) -> list[tuple[str, str]]:
    return [(kind, url)] if url.startswith(("data:", "https:")) else []

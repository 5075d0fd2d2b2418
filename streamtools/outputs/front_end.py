"""The base of the encoders for the protocols of chat interfaces. Sans-IO.

In these protocols, text blocks, steps and calls have a start and an end. A client fails, or waits forever, if an
end is missing. UI events have no event for the end of a block: an event of another type ends it. This module tracks the
open blocks, steps and calls, and ends them, even if the run fails. A subclass writes each start and each end.

Models write line breaks around their calls. To avoid empty messages, up to 256 characters of leading white space are
buffered. They are dropped if the block has no visible character. Longer white space is sent immediately.

`streamtools.serving` stores the events of a run in a log. The log may drop its oldest events. A client that reads only
the later events still gets a valid body.

Data that a provider adapter does not interpret becomes a `raw` event. This data may contain files, such as images. A
file has a media type and a URL: a `data:` URL with the content, or an `https:` URL. Files with other URLs are dropped,
because an interface must not load them.

Providers sign reasoning, text and calls, or encrypt reasoning. The next request must contain the signatures and the
encrypted reasoning. Clients may store both, because they cannot forge them. Other data for the next request is not sent
to clients. Each signature is sent with the message format of its provider, because no other provider accepts it.
The AI SDK has its own names for providers and fields. For AG-UI, a signature is one opaque string.

Source: the references of Gemini, Interactions, Bedrock's Converse, OpenAI's Responses, OpenRouter and Ollama, and the
part `file` of the AI SDK's stream. For signatures, the AI SDK's packages `@ai-sdk/anthropic`, `amazon-bedrock`,
`google`, `openai`, `openai-compatible`, and `@openrouter/ai-sdk-provider`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias, assert_never

from streamtools import events
from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.outputs.sse import StreamEncoder, closed_error, present, to_json

# Files.

_BASE64_STARTS = {"/9j/": "image/jpeg", "R0lG": "image/gif", "UklG": "image/webp"}
"""Media types by the first four Base64 characters, for images without a media type. The default is `image/png`."""


def files_of(data: Any) -> list[tuple[str, str]]:
    """Return the media type and the URL of each file in `data`, the data of a `raw` event.

    >>> files_of({"inlineData": {"mimeType": "image/png", "data": "aGk="}})
    [('image/png', 'data:image/png;base64,aGk=')]
    >>> files_of({"groundingMetadata": {}})
    []
    """
    match data:
        case {"inlineData": {"mimeType": str() as media_type, "data": str() as content}}:  # Gemini
            return [_data_url(content, media_type)]
        case {"choices": [{"delta": {"images": [*images]}}]} | {"images": [*images]}:  # OpenRouter, Ollama
            return [file for image in images for file in _read_image(image)]
        case {"type": "image_generation_call", "result": str() as content}:  # Responses
            return [_data_url(content, None)] if content else []
        case {"type": "model_output", "content": [*parts]}:  # Interactions
            return [file for part in parts for file in _read_image(part)]
        case {"image": {"format": str() as name, "source": {"bytes": str() as content}}}:  # Bedrock
            return [_data_url(content, f"image/{name}")]
        case {"type": "file", "url": str() as url, "mediaType": str() as media_type}:  # the AI SDK
            return _if_safe(media_type, url)
    return []


def _read_image(value: Any) -> list[tuple[str, str]]:
    match value:
        case {"image_url": {"url": str() as url}}:
            # The media type is in `data:image/png;base64,…`, but not in an `https:` URL.
            return _if_safe(url[5:].partition(";")[0] if url.startswith("data:") else "image/*", url)
        case {"type": "image", "data": str() as content}:
            media_type = value.get("mime_type")
            return [_data_url(content, media_type if isinstance(media_type, str) else None)]
        case str() if value:
            return [_data_url(value, None)]
    return []


def _data_url(content: str, media_type: str | None) -> tuple[str, str]:
    media_type = media_type or _BASE64_STARTS.get(content[:4], "image/png")
    return media_type, f"data:{media_type};base64,{content}"


def _if_safe(media_type: str, url: str) -> list[tuple[str, str]]:
    return [(media_type, url)] if url.startswith(("data:", "https:")) else []


# Signatures.

_AI_SDK_PROVIDERS = {"responses": "openai", "gemini": "google", "openai": "openaiCompatible"}
"""Maps a format to the name of the provider in the AI SDK, if it differs from the format."""


class Signature(NamedTuple):
    """A signature of one part of a turn, or encrypted reasoning.

    `format` is the message format of the provider. `signature` is a signature or encrypted reasoning. `redacted` is
    True if the provider hides the text of the reasoning. For OpenRouter, `details` holds the signed or encrypted
    entries of `reasoning_details` instead. `id` is the id of the part, if the provider has sent one. `is_reasoning` is
    False for the signature of a text or a call.
    """

    format: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    details: list[dict[str, Any]] | None = None
    is_reasoning: bool = False

    def as_metadata(self) -> dict[str, dict[str, Any]]:
        """Return the signature as `providerMetadata` of the AI SDK."""
        if self.details is not None:
            return {"openrouter": {"reasoning_details": self.details}}
        if self.format == "responses":
            fields = present(itemId=self.id, reasoningEncryptedContent=self.signature)
        elif self.redacted:
            fields = {"redactedData": self.signature}
        else:
            name = "signature" if self.is_reasoning and self.format != "gemini" else "thoughtSignature"
            fields = {name: self.signature}
        return {_AI_SDK_PROVIDERS.get(self.format, self.format): fields}

    def as_string(self) -> str:
        """Return the signature and its format as one JSON string."""
        fields = present(format=self.format, signature=self.signature, id=self.id, reasoning_details=self.details)
        return to_json(fields | ({"redacted": True} if self.redacted else {})).decode()


def reasoning_signature(event: events.Reasoning, format: str | None) -> Signature | None:
    """Return the signature of a reasoning event, or None. `format` is the message format of the provider, or None."""
    if event.signature and format:
        return Signature(format, event.signature, event.id, event.redacted, is_reasoning=True)
    details = (event.own or {}).get("openai", {}).get("reasoning_details")
    entries = [entry for entry in details if entry.get("data") or entry.get("signature")] if details else []
    return Signature("openai", details=entries, is_reasoning=True) if entries else None


# The encoder.

Channel: TypeAlias = Literal["text", "reasoning"]

UNNAMED = "unknown"
"""The name of a call that ended before its name was known. Protocols require a name."""


@dataclass
class SentCall:
    """A call that has not ended, and the parts of it that were sent."""

    id: str
    name: str
    has_deltas: bool = False
    """Whether some of its arguments were sent while the model wrote them."""
    complete: bool = False
    """Whether all of its arguments were sent."""
    allowed: bool = False
    """Whether the call has started to run. A call that needs an approval starts only after its approval."""


_NOT_RUN = {
    "truncated": "Not run: the answer was cut off.",
    "failed": "Not run: the run failed.",
    "stopped": "Not run: the run was stopped.",
    "cancelled": "Not run: the run was cancelled.",
}
_NO_RESULT = "The run ended without a result of this call."
_MAX_WHITE_SPACE = 256  # maximum number of white-space characters that are buffered for a block


class FrontEndEncoder(StreamEncoder, ABC):
    """Converts UI events to the bytes of a chat protocol. A subclass implements the methods that write its parts.

    `known_calls` are the ids of calls that the client already has, from an earlier run.
    """

    _delta_prefix: bytes = b""  # bytes before the JSON of each delta of the open block

    def __init__(self, known_calls: Collection[str] = ()) -> None:
        self._begun = False
        self._ended = False
        self._step: int | None = None
        self._provider_format: str | None = None
        self._step_finish: str | None = None  # the finish reason of the last step
        self._channel: Channel | None = None  # the channel of the open block; None if no block is open
        self._blocks = 0
        self._white_space: dict[Channel, str] = {}  # buffered until a visible character
        self._calls: dict[str, SentCall] = {}
        self._known_calls = {known_calls} if isinstance(known_calls, str) else set(known_calls)
        self._approval_requests: dict[str, events.ApprovalRequested] = {}  # approval requests, by call id
        self._failure: events.Error | None = None
        self._usage: events.Usage | None = None

    def encode(self, event: events.UIEvent) -> bytes:
        """Return the bytes for `event`, which may be `b""`. The bytes for `done` complete the body."""
        if self._ended:
            raise closed_error()
        match event:
            case events.Text(text):
                return self._add_text("text", text)
            case events.Reasoning():
                return self._add_reasoning(event)
            case events.Raw({"thoughtSignature": str() as signature}, format="gemini", about="text") if signature:
                return self._sign_text(Signature("gemini", signature))
            case events.Raw(format="gemini", about="text"):
                return self._sign_text(None)
            case events.Start(run_id):
                return self._begin(run_id)
            case events.StepStart(step, format=format):
                written = self._begin() + self._end_step()
                self._step, self._provider_format = step, format
                return written + self._write_step_start(step)
            case events.StepEnd(finish_reason=finish_reason):
                self._step_finish = finish_reason
                return self._end_step()
            case events.CallStart(call_id, name):
                return self._start_call(call_id, name)
            case events.CallDelta(call_id, text):
                open_call = self._calls.get(call_id)
                if open_call is None or open_call.complete or not text:
                    return b""
                open_call.has_deltas = True
                return self._write_call_delta(call_id, text)
            case events.Call(call):
                return self._complete_call(call)
            case events.Executing(call):
                written = self._complete_call(call)
                self._calls[call.id].allowed = True
                return written + (self._write_approval(call) if call.id in self._approval_requests else b"")
            case events.ApprovalRequested(call):
                self._approval_requests[call.id] = event
                return self._complete_call(call) + self._write_approval_request(call)
            case events.Progress(call_id, data):
                open_call = self._calls.get(call_id)
                is_open = open_call is not None and open_call.complete
                reported = {"toolCallId": call_id, "progress": data}
                return self._write_notice("tool-progress", reported, call_id) if is_open else b""
            case events.Executed(call, result):
                written = self._complete_call(call)
                del self._calls[call.id]
                return written + self._write_result(call, result)
            case events.Error(call_id=None):
                self._failure = event  # sent at the end of the body, because clients stop reading after an error
                return b""
            case events.Error():
                return self._end_call_without_result(event)
            case events.UsageReport(usage):
                self._usage = usage if self._usage is None else self._usage + usage
                return self._begin() + self._write_usage(self._usage)
            case events.Done():
                return self._finish(event)
            case events.Raw(data):
                return b"".join(self._write_file(media_type, url) for media_type, url in files_of(data))
            case events.Partial(path, value, complete, call_id=call_id):
                added = present(toolCallId=call_id) | {"path": path, "value": value, "complete": complete}
                return self._begin() + self._write_notice("partial", added)
            case events.Warning((Code.OWNER_LOST | Code.FAILED_OVER) as code, message):
                name = "reconnecting" if code == Code.OWNER_LOST else "failed-over"
                return self._begin() + self._write_notice(name, {"message": message})
            case events.Thinking() | events.Warning() | events.FollowUp() | events.Markup() | events.Matched():
                return b""
            case events.StepSuperseded():  # not expected: `check_can_replace_steps` refuses such runs for these clients
                return b""
        assert_never(event)

    def close(self) -> bytes:
        """End the open blocks, calls and steps, and then the body. Returns `b""` if the body has already ended."""
        if self._ended:
            return b""
        return self._finish(None)

    # The start and the end of each item.

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

    def _add_text(self, channel: Channel, text: str) -> bytes:
        if not text:
            return b""
        if channel == self._channel:
            return b"%b%b}\n\n" % (self._delta_prefix, to_json(text))
        text = self._white_space.get(channel, "") + text
        if text.isspace() and len(text) <= _MAX_WHITE_SPACE:
            self._white_space[channel] = text
            return b""
        written = self._start_block(channel)
        return b"%b%b%b}\n\n" % (written, self._delta_prefix, to_json(text))

    def _start_block(self, channel: Channel) -> bytes:
        written = self._begin() + self._end_block()
        self._channel = channel
        self._blocks += 1
        return written + self._write_block_start(channel, self._blocks)

    def _end_block(self, signature: Signature | None = None) -> bytes:
        self._white_space.clear()
        if self._channel is None:
            return b""
        channel, self._channel = self._channel, None
        return self._write_block_end(channel, self._blocks, signature)

    def _add_reasoning(self, event: events.Reasoning) -> bytes:
        """Return the bytes for a reasoning event.

        A signature ends the reasoning block. If no reasoning block is open, the signature gets an empty block.
        """
        written = self._add_text("reasoning", event.text)
        signature = reasoning_signature(event, self._provider_format)
        if signature is not None and self._channel != "reasoning":
            written += self._start_block("reasoning")
        ends = self._channel == "reasoning" and (signature is not None or event.signature is not None)
        return written + self._end_block(signature) if ends else written

    def _sign_text(self, signature: Signature | None) -> bytes:
        """End the open text block. If none is open, write a `signature` other than None in an empty block."""
        if self._channel == "text":
            return self._end_block(signature)
        return self._start_block("text") + self._end_block(signature) if signature is not None else b""

    def _start_call(self, call_id: str, name: str) -> bytes:
        if call_id in self._calls:
            return b""
        written = self._begin() + self._end_block()
        self._calls[call_id] = SentCall(call_id, name)
        return written + self._write_call_start(call_id, name)

    def _complete_call(self, call: ToolCall) -> bytes:
        """Return the part of a call that was not sent before. Returns `b""` if the call is complete."""
        open_call = self._calls.get(call.id)
        if open_call is not None and open_call.complete:
            return b""
        if call.id in self._known_calls:
            self._calls[call.id] = SentCall(call.id, call.name, complete=True)
            return self._begin()
        written = self._start_call(call.id, call.name)
        open_call = self._calls[call.id]
        open_call.complete = True
        format = self._provider_format
        signature = Signature(format, call.signature) if call.signature and format else None
        return written + self._write_call(call, open_call, signature)

    def _end_call_without_result(self, error: events.Error) -> bytes:
        assert error.call_id is not None
        open_call = self._calls.pop(error.call_id, None)
        if open_call is None and error.call is not None and error.call_id in self._known_calls:
            open_call = SentCall(error.call_id, error.call.name, complete=True)
        written = self._begin() + (self._end_block() if open_call is None else b"")
        return written + self._write_call_error(error, open_call)

    def _end_run(self, done: events.Done | None) -> bytes:
        """End the open blocks, calls and steps of a run. `done` is None if the stream broke off."""
        parts = [self._begin(), self._end_block()]  # a list, because many calls may be open
        if done is not None and done.reason in events.COMPLETE:
            for call in done.pending:
                parts.append(self._complete_call(call))
                del self._calls[call.id]  # the client must run or approve the call, so no error ends it
        message = _NOT_RUN.get(done.reason, _NO_RESULT) if done is not None else _NO_RESULT
        for open_call in [*self._calls.values()]:
            parts.append(self._end_call_without_result(events.Error(Code.TRUNCATED, message, open_call.id)))
        parts.append(self._end_step())
        return b"".join(parts)

    def _finish(self, done: events.Done | None) -> bytes:
        written = self._end_run(done)
        self._ended = True
        if done is None or done.reason == "failed":
            failure = self._failure or events.Error(Code.STREAM_INTERRUPTED, "The stream ended before the answer did.")
            return written + self._write_failure(failure)
        return written + self._write_end(done)

    # Methods that write the parts of the protocol.

    @abstractmethod
    def _write_start(self, run_id: str | None) -> bytes:
        """Return the start of the body. `run_id` is None if the first event is not `start`."""

    @abstractmethod
    def _write_step_start(self, step: int) -> bytes: ...

    @abstractmethod
    def _write_step_end(self, step: int) -> bytes: ...

    @abstractmethod
    def _write_block_start(self, channel: Channel, number: int) -> bytes:
        """Return the start of a block, and set `_delta_prefix` to the bytes before the JSON of each delta."""

    @abstractmethod
    def _write_block_end(self, channel: Channel, number: int, signature: Signature | None) -> bytes:
        """Return the end of a block, with its signature if it has one."""

    @abstractmethod
    def _write_call_start(self, call_id: str, name: str) -> bytes: ...

    @abstractmethod
    def _write_call_delta(self, call_id: str, text: str) -> bytes: ...

    @abstractmethod
    def _write_call(self, call: ToolCall, open_call: SentCall, signature: Signature | None) -> bytes:
        """Return the parts that complete a call whose start was sent. `open_call` describes the parts sent before.

        `signature` is the signature of the call, if it has one.
        """

    def _write_approval_request(self, call: ToolCall) -> bytes:
        """Return a request for the approval of a call.

        Returns `b""` if the protocol has no approvals, or requests them at the end of the body.
        """
        return b""

    def _write_approval(self, call: ToolCall) -> bytes:
        """Return a part that reports the approval of a call. Another client may have approved the call."""
        return b""

    def _write_file(self, media_type: str, url: str) -> bytes:
        """Return a file that the model has generated. Returns `b""` if the protocol has no files."""
        return b""

    @abstractmethod
    def _write_notice(self, name: str, data: dict[str, Any], id: str | None = None) -> bytes:
        """Return a part that is not stored in the message. Parts with the same `id` are about the same call."""

    @abstractmethod
    def _write_result(self, call: ToolCall, result: Any) -> bytes: ...

    @abstractmethod
    def _write_call_error(self, error: events.Error, open_call: SentCall | None) -> bytes:
        """Return the error that ends a call without a result. `open_call` is None if no part of the call was sent."""

    def _write_usage(self, usage: events.Usage) -> bytes:
        """Return the tokens that the run has used. Returns `b""` if the end of the body holds them."""
        return b""

    @abstractmethod
    def _write_failure(self, failure: events.Error) -> bytes:
        """Return the end of the body if the run failed."""

    @abstractmethod
    def _write_end(self, done: events.Done) -> bytes:
        """Return the end of the body if the run did not fail."""

"""The base of three encoders that write a run as the answer of a model, for clients of a model API. Sans-IO.

These clients run every call that they receive. So a call must not be sent if the run has executed it itself. The event
`done` lists the pending calls, so the encoder sends calls when `done` arrives. It then sends no calls that have a
result, or that must not run (error codes `superseded` and `tool_choice_violation`).

If the client provides all tools, the run executes no call. Then `call_deltas` may be set: a call is sent as soon as its
name is known, and its arguments while the model writes them. A call that was sent cannot be withdrawn.

A malformed call is sent with the model's text as its arguments, so that the client can answer it. If the run executes
tools, it answers malformed calls itself, and they are not sent. If a part of the arguments was sent before the error
was found, the answer ends with an error, because some clients would run the incomplete call. An answer that the
provider cut ends without this error.

All steps of a run become one message. White space between text and a call is dropped (see `TrailingSpace`).
"""

from __future__ import annotations

import json
import string
from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import ClassVar

from streamtools import events
from streamtools.calls import NATIVE
from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.outputs.sse import StreamEncoder, closed_error

WHITE_SPACE = " \t\r\n"
_CUT_REASONS = ("length", "content_filter")  # finish reasons that take precedence over calls
_CLOSING_CHARACTERS = WHITE_SPACE + "}"  # characters that may complete the JSON of arguments
# Events that `CallOrder` reorders.
_CALL_EVENTS = (events.CallStart, events.CallDelta, events.Call, events.Error)
_UNSENT_CODES = (Code.TOO_MANY_CALLS, Code.SUPERSEDED)  # an incomplete call with such an error is not sent


class CompletionEncoder(StreamEncoder, ABC):
    """Converts UI events to the answer of a model API. A subclass defines how each part is written.

    `custom` holds the names of custom tools: their calls have a text `input` instead of JSON arguments. With
    `call_deltas`, calls are sent while the model writes them. A call of a custom tool is sent only when it is complete.
    """

    _accepts_invalid_arguments: ClassVar[bool] = True
    """Whether clients accept a call whose arguments are not JSON."""

    def __init__(self, *, call_deltas: bool, custom: Collection[str] = ()) -> None:
        self._streams_calls = call_deltas
        self._custom = custom
        self._order = CallOrder()
        self._usage: events.Usage | None = None
        self._space = TrailingSpace()
        self._begun = self._failed = self._ended = False
        self._has_text = False
        self._needs_separator = False  # whether a blank line must precede the next text, because a step has started
        self._runs_tools = False
        self._names: dict[str, str] = {}  # maps the id of each call of this step to its name
        self._malformed: dict[str, str] = {}  # maps the id of each malformed call of this step to its text
        self._indexes: dict[str, int] = {}  # maps the id of each call that was sent to its index
        self._has_arguments: set[str] = set()  # ids of calls whose arguments were sent, at least in part
        self._complete: set[str] = set()  # ids of calls that were sent completely
        self._withheld: dict[str, str] = {}  # the buffered end of the arguments of each open call
        self._partial_error: events.Error | None = None  # the error of a malformed call that was sent in part

    def encode(self, event: events.UIEvent) -> bytes:
        """Return the bytes for `event`, which may be `b""`."""
        if self._ended:
            raise closed_error()
        if self._failed:
            self._ended = type(event) is events.Done
            return b""
        if self._streams_calls and type(event) in _CALL_EVENTS:
            return b"".join(map(self._encode, self._order.take(event)))
        return self._encode(event)

    def _encode(self, event: events.UIEvent) -> bytes:
        match event:
            case events.Text(text):
                return self._add_text(text)
            case events.Reasoning():
                return self._write_reasoning(event)
            case events.Start():
                return self._begin()
            case events.StepStart():
                self._needs_separator = self._has_text
                self._names.clear()
                self._malformed.clear()
            case events.CallStart(call_id, name):
                self._names[call_id] = name
                if self._streams_calls and name not in self._custom:
                    return self._start_call(call_id, name)
            case events.CallDelta(call_id, text) if call_id in self._indexes:
                return self._add_arguments(call_id, text)
            case events.Call(call):
                if call.dialect != NATIVE:
                    self._space.record_call()
                if self._streams_calls:
                    return self._complete_call(call.id, call.name, compact(call.arguments))
            case events.Executing():
                self._runs_tools = True
            case events.Error():
                return self._add_error(event)
            case events.UsageReport(usage):
                self._usage = usage if self._usage is None else self._usage + usage
            case events.Done():
                self._ended = True
                return b"" if event.reason == "cancelled" else self._finish(event)
        return b""

    def close(self) -> bytes:
        """Return the error that ends a body without `done`. Returns `b""` if the body has already ended."""
        has_ended = self._ended or self._failed
        self._ended = True
        return b"" if has_ended else self._fail(Code.STREAM_INTERRUPTED, "the stream ended before it was complete")

    def _add_text(self, text: str) -> bytes:
        if self._needs_separator:
            text = text.lstrip(WHITE_SPACE)
            if not text:
                return b""
            self._needs_separator = False
            self._space.drop()
            text = "\n\n" + text
        text = self._space.feed(text)
        if not text:
            return b""
        self._has_text = True
        return self._write_text(text)

    # Calls.

    def _start_call(self, call_id: str, name: str, arguments: str = "") -> bytes:
        self._indexes[call_id] = len(self._indexes)
        if arguments:
            self._has_arguments.add(call_id)
        return self._write_call_start(call_id, name, arguments)

    def _add_arguments(self, call_id: str, text: str) -> bytes:
        """Return a delta of arguments. Closing braces and white space at its end are buffered.

        They are sent with the next delta, or when the call is complete. Otherwise some clients would run a malformed
        call as soon as its arguments are complete JSON.
        """
        text = self._withheld.pop(call_id, "") + text
        sent = text.rstrip(_CLOSING_CHARACTERS)
        if sent != text:
            self._withheld[call_id] = text[len(sent) :]
        if not sent:
            return b""
        self._has_arguments.add(call_id)
        return self._write_arguments(call_id, sent)

    def _complete_call(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the part of a call that was not sent before, up to its end."""
        if call_id in self._complete:
            return b""
        self._complete.add(call_id)
        written = b""
        if call_id not in self._indexes:
            written = self._start_call(call_id, name, arguments)
        elif rest := self._withheld.get(call_id, "") if call_id in self._has_arguments else arguments:
            written = self._write_arguments(call_id, rest)
        return written + self._write_call_end(call_id)

    def _add_error(self, event: events.Error) -> bytes:
        if event.call_id is None:
            return self._fail(event.code, event.message)
        if event.call is not None:
            return b""
        if event.dialect != NATIVE:
            self._space.record_call()
        name = self._names.get(event.call_id)
        if event.call_id in self._has_arguments:
            self._partial_error = event
            return b""
        if name is None or not event.raw or event.code in _UNSENT_CODES:
            return b""
        arguments = self._malformed[event.call_id] = _as_refused(event.raw)
        if not (self._streams_calls and self._accepts_invalid_arguments):
            return b""
        return self._complete_call(event.call_id, name, arguments)

    # The end.

    def _fail(self, code: Code, message: str) -> bytes:
        self._failed = True
        return self._write_error(code, message)

    def _finish(self, done: events.Done) -> bytes:
        calls = {call.id: (call.name, compact(call.arguments)) for call in done.pending}
        was_cut = done.finish_reason in _CUT_REASONS
        if self._partial_error is not None and not was_cut:
            message = f"the model wrote a call that cannot be read: {self._partial_error.message}"
            return self._fail(self._partial_error.code, message)
        if not self._runs_tools and done.reason != "stopped":
            if self._malformed and not self._accepts_invalid_arguments and not was_cut:
                return self._fail(Code.INVALID_JSON, "the model wrote a call that cannot be read")
            calls |= {call_id: (self._names[call_id], arguments) for call_id, arguments in self._malformed.items()}
        space = self._space.close()
        parts = [self._write_text(space) if space else self._begin()]
        for call_id, (name, arguments) in calls.items():
            parts.append(self._complete_call(call_id, name, arguments))
        parts.append(self._write_end(_finish_reason(done, bool(calls))))
        return b"".join(parts)

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._write_start()

    # Methods that write the parts of the API's answer.

    @abstractmethod
    def _write_start(self) -> bytes: ...

    @abstractmethod
    def _write_text(self, text: str) -> bytes: ...

    @abstractmethod
    def _write_reasoning(self, event: events.Reasoning) -> bytes: ...

    @abstractmethod
    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the start of a call. `arguments` is `""` if they are not known yet."""

    @abstractmethod
    def _write_arguments(self, call_id: str, text: str) -> bytes: ...

    def _write_call_end(self, call_id: str) -> bytes:
        """Return the end of a call. It is `b""` if the API has no such event."""
        return b""

    @abstractmethod
    def _write_end(self, finish: str) -> bytes:
        """Return the end of an answer. `finish` is a finish reason of OpenAI's chat completions."""

    @abstractmethod
    def _write_error(self, code: Code, message: str) -> bytes:
        """Return an error, which the client raises as an exception. It is the last part of the body."""


class TrailingSpace:
    """Buffers the white space at the end of a text, and drops it if a call follows.

    Models write line breaks around a call in text. The line breaks would remain in the text after the call is removed.
    The delay is invisible to the user. The result does not depend on how the text is split into deltas.
    """

    def __init__(self) -> None:
        self._pending: list[str] = []  # pieces of the white space at the end of the text
        self._after_call = False  # whether only white space has followed the last call

    def feed(self, text: str) -> str:
        """Add `text`. Returns the text that can be sent now."""
        body = text.rstrip(WHITE_SPACE)
        sent = ""
        if body:
            sent = "".join([*self._pending, body])
            self._pending.clear()
            self._after_call = False
        self._pending.append(text[len(body) :])
        return sent

    def record_call(self) -> None:
        """Record a call. Drops the white space before the call. White space that ends the text after it is dropped."""
        self.drop()
        self._after_call = True

    def drop(self) -> None:
        """Drop the buffered white space."""
        self._pending.clear()

    def close(self) -> str:
        """Return the white space that ends the text. Returns `""` if nothing else follows the last call."""
        return "" if self._after_call else "".join(self._pending)


class CallOrder:
    """Reorders the events of calls, so that one call ends before the next one starts.

    Some servers interleave the events of native calls. The calls of an array in text all end at the end of the array.
    But clients expect that a call is complete when the next one starts: at that time, the `openai` package parses the
    arguments of the call. So the events of other calls are buffered while a call is open.
    """

    def __init__(self) -> None:
        self._open: str | None = None  # the id of the call whose events are sent now
        self._waiting: dict[str, list[events.UIEvent]] = {}  # the buffered events of the other calls, by id

    def take(self, event: events.UIEvent) -> list[events.UIEvent]:
        """Add `event`. Returns the events that can be sent now."""
        call_id = events.call_id_of(event)
        if isinstance(event, events.CallStart) and self._open is not None:
            self._waiting[event.call_id] = []
        if call_id in self._waiting:
            self._waiting[call_id].append(event)
            return []
        if isinstance(event, events.CallStart):
            self._open = call_id
        elif call_id == self._open and isinstance(event, events.Call | events.Error):
            return [event, *self._release()]
        return [event]

    def _release(self) -> list[events.UIEvent]:
        """Return the buffered events of the next calls, up to and including the first call without an end."""
        released: list[events.UIEvent] = []
        self._open = None
        while self._open is None and self._waiting:
            call_id = next(iter(self._waiting))
            released += (buffered := self._waiting.pop(call_id))
            if not isinstance(buffered[-1], events.Call | events.Error):
                self._open = call_id
        return released


def custom_input(arguments: str) -> str:
    """Return the string `input` in the JSON `arguments` of a custom tool. Without this string, return `arguments`."""
    try:
        text = json.loads(arguments).get("input")
    except (ValueError, AttributeError):
        return arguments
    return text if isinstance(text, str) else arguments


def _finish_reason(done: events.Done, has_calls: bool) -> str:
    """Return the finish reason in OpenAI's terms. `has_calls` is whether the answer contains calls."""
    if done.finish_reason in _CUT_REASONS:
        return str(done.finish_reason)
    if has_calls:
        return "tool_calls"
    if done.reason == "truncated" or (done.reason == "stopped" and done.finish_reason != "tool_stop"):
        return "length"  # the provider cut the answer without a reason, or a limit of this package stopped the run
    return "stop"


def _as_refused(raw: str) -> str:
    """Return the text of malformed arguments in a form that every client refuses.

    Text that begins like a JSON object or array becomes a JSON string. Otherwise some clients would run the call,
    because they read broken JSON up to the error, or accept duplicate keys or `NaN`.
    """
    return json.dumps(raw) if raw.lstrip("\ufeff" + string.whitespace).startswith(("{", "[")) else raw

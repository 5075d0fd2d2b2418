"""A run as the answer of a model, for clients of a model API: the base of three encoders. Sans-IO.

Such a client runs every call that it sees. So a call is sent once it is certain that it has not run here: at `done`,
which lists the pending calls. Calls with a result, superseded calls and forbidden calls are never sent. A server whose
clients bring all tools may send calls while the model writes them (`call_deltas`). Then each call is sent when its name
is known, and cannot be withdrawn.

A malformed call is sent with the model's text as its arguments, because clients can answer it, unless the run answers
it. If a part of its arguments has been sent, the answer ends with an error instead: some clients would run the call.
The steps of a run become one message. White space between text and a call is dropped (see `TrailingSpace`).
"""

from __future__ import annotations

import json
import string
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import ClassVar

from streamtools import events
from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.outputs.encoder import closed_error
from streamtools.outputs.sse import EVENT_STREAM, EVENT_STREAM_HEADERS, KEEP_ALIVE

MAX_WHITE_SPACE = 1024
"""Characters of white space that wait. A longer run is intended, and sent."""

WHITE_SPACE = " \t\r\n"
_CUT_REASONS = ("length", "content_filter")  # finish reasons that take precedence over calls
_CLOSING_CHARACTERS = WHITE_SPACE + "}"
_CALL_EVENTS = (events.CallStart, events.CallDelta, events.Call, events.Error)
_USELESS_CODES = (Code.TOO_MANY_CALLS, Code.SUPERSEDED)  # malformed calls that a client cannot answer


class CompletionEncoder(ABC):
    """Takes UI events. The methods of a subclass write text, reasoning, calls and the end in the form of an API.

    `custom` names the tools whose calls have a text, `input`, instead of arguments. Such calls are sent when complete.
    """

    content_type = EVENT_STREAM
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive = KEEP_ALIVE
    resumable = False
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
        self._needs_separator = False  # before the first text of a later step
        self._runs_tools = False
        self._names: dict[str, str] = {}  # of the calls of this step
        self._malformed: dict[str, str] = {}  # calls of this step and their arguments
        self._indexes: dict[str, int] = {}  # of the calls that have been sent
        self._has_arguments: set[str] = set()  # calls with arguments that have been sent, at least in part
        self._complete: set[str] = set()  # calls that have been sent completely
        self._withheld: dict[str, str] = {}  # the end of the arguments, until the call is known to be well formed
        self._partial_error: events.Error | None = None  # of a malformed call that has been sent in part

    def encode(self, event: events.UIEvent) -> bytes:
        """Return the bytes for `event`."""
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
                return self._add_call(call)
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
        """Return the error that ends a body without `done`."""
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
        """Return a piece of arguments without its end: some clients run a call as soon as its JSON is complete."""
        text = self._withheld.pop(call_id, "") + text
        sent = text.rstrip(_CLOSING_CHARACTERS)
        if sent != text:
            self._withheld[call_id] = text[len(sent) :]
        if not sent:
            return b""
        self._has_arguments.add(call_id)
        return self._write_arguments(call_id, sent)

    def _complete_call(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the part of a call that has not been sent."""
        if call_id in self._complete:
            return b""
        self._complete.add(call_id)
        written = b""
        if call_id not in self._indexes:
            written = self._start_call(call_id, name, arguments)
        elif rest := self._withheld.get(call_id, "") if call_id in self._has_arguments else arguments:
            written = self._write_arguments(call_id, rest)
        return written + self._write_call_end(call_id, name, arguments)

    def _add_call(self, call: ToolCall) -> bytes:
        if call.dialect != NATIVE:
            self._space.meet_call()
        return self._complete_call(call.id, call.name, compact(call.arguments)) if self._streams_calls else b""

    def _add_error(self, event: events.Error) -> bytes:
        if event.call_id is None:
            return self._fail(event.code, event.message)
        if event.call is not None:
            return b""
        if event.dialect != NATIVE:
            self._space.meet_call()
        name = self._names.get(event.call_id)
        if event.call_id in self._has_arguments:
            self._partial_error = event
            return b""
        if name is None or not event.raw or event.code in _USELESS_CODES:
            return b""
        arguments = self._malformed[event.call_id] = _refusable(event.raw)
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

    # The form of the API.

    @abstractmethod
    def _write_start(self) -> bytes: ...

    @abstractmethod
    def _write_text(self, text: str) -> bytes: ...

    @abstractmethod
    def _write_reasoning(self, event: events.Reasoning) -> bytes: ...

    @abstractmethod
    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the start of a call, with its arguments if they are known."""

    @abstractmethod
    def _write_arguments(self, call_id: str, text: str) -> bytes: ...

    def _write_call_end(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the end of a call, if the form has one."""
        return b""

    @abstractmethod
    def _write_end(self, finish: str) -> bytes:
        """Return the end of an answer, for a finish reason of chat completions."""

    @abstractmethod
    def _write_error(self, code: Code, message: str) -> bytes:
        """Return the error that clients raise. Nothing follows it, not even the regular end."""


class TrailingSpace:
    """Passes a text except for the white space at its end, which waits until the next item is known.

    Models surround a call with line breaks, which would remain in a format that removes calls from the text. Waiting
    white space is invisible, so no reader misses it. Its treatment depends only on its length and its neighbors, not on
    the cuts of the text.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._too_long = False  # the white space at the end is longer than the limit, and sent
        self._after_call = False  # only white space has followed a call

    def feed(self, text: str) -> str:
        """Return the text that can be sent."""
        body = text.rstrip(WHITE_SPACE)
        sent = ""
        if body:
            sent = self._pending + body
            self._pending = ""
            self._too_long = self._after_call = False
        space = text[len(body) :]
        if self._too_long:
            return sent + space
        self._pending += space
        if len(self._pending) > MAX_WHITE_SPACE:
            sent += self._pending
            self._pending = ""
            self._too_long = True
        return sent

    def meet_call(self) -> None:
        """Drop the white space before a call, and after it if nothing else follows."""
        self.drop()
        self._after_call = True

    def drop(self) -> None:
        self._pending = ""
        self._too_long = False

    def close(self) -> str:
        """Return the white space at the end of the text."""
        return "" if self._after_call else self._pending


class CallOrder:
    """Passes the events of one call until it ends. The events of other calls wait.

    An array of calls in text ends all of them together, and the native calls of some servers are interleaved. But
    clients expect that a call is complete when another one starts: the `openai` package parses its arguments then.
    """

    def __init__(self) -> None:
        self._open: str | None = None
        self._waiting: dict[str, list[events.UIEvent]] = {}

    def take(self, event: events.UIEvent) -> list[events.UIEvent]:
        """Return the events that can be sent after `event` has arrived."""
        match event:
            case events.CallStart(call_id) if self._open is None:
                self._open = call_id
            case events.CallStart(call_id):
                self._waiting[call_id] = [event]
                return []
            case events.CallDelta(call_id) | events.Error(call_id=str() as call_id) if call_id in self._waiting:
                self._waiting[call_id].append(event)
                return []
            case events.Call(call) if call.id in self._waiting:
                self._waiting[call.id].append(event)
                return []
            case events.Error(call_id=str() as call_id) if call_id == self._open:
                return [event, *self._release()]
            case events.Call(call) if call.id == self._open:
                return [event, *self._release()]
        return [event]

    def _release(self) -> list[events.UIEvent]:
        """Return the waiting events, up to and including the first call that has not ended."""
        released: list[events.UIEvent] = []
        self._open = None
        while self._open is None and self._waiting:
            call_id = next(iter(self._waiting))
            released += (waiting := self._waiting.pop(call_id))
            if not isinstance(waiting[-1], events.Call | events.Error):
                self._open = call_id
        return released


def custom_input(arguments: str) -> str:
    """Return the `input` of a custom tool's call; for other arguments, the text itself."""
    try:
        text = json.loads(arguments).get("input")
    except (ValueError, AttributeError):
        return arguments
    return text if isinstance(text, str) else arguments


def _finish_reason(done: events.Done, has_calls: bool) -> str:
    """Return the finish reason of OpenAI that tells the client what to do next."""
    if done.finish_reason in _CUT_REASONS:
        return str(done.finish_reason)
    if has_calls:
        return "tool_calls"
    if done.reason == "truncated" or (done.reason == "stopped" and done.finish_reason != "tool_stop"):
        return "length"  # cut by the provider without a reason, or by a limit of this package
    return "stop"


def _refusable(raw: str) -> str:
    """Return refused arguments in a form that every client refuses.

    Text that looks like JSON becomes a JSON string. Some clients would run the call otherwise: they read broken JSON up
    to the error, keep one of two equal keys, or accept `NaN`.
    """
    return json.dumps(raw) if raw.lstrip("\ufeff" + string.whitespace).startswith(("{", "[")) else raw

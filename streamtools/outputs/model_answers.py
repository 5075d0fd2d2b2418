"""A run as the answer of a model, for clients of its API: what their three forms share. Sans-IO.

Such a client runs every call that it sees. So a call is sent once it is certain that it has not run here: at `done`,
which lists the pending calls. Calls that our tools have answered, that were superseded or that were forbidden are never
sent. A server whose clients bring all tools with them may send calls while they are written (`call_deltas`): then each
is sent once it has a name, and cannot be taken back.

A malformed call is sent with the text of the model in the place of its arguments, because clients can answer those,
unless the run answers it itself. One whose arguments have left in part ends the answer with an error: what is sent
cannot be taken back, and there are clients that would run it. The steps of a run are one message. White space between a
text and a call in it is dropped; see `white_space`.
"""

from __future__ import annotations

import json
import string
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar

from streamtools import events
from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import Call, CallDelta, CallStart, Error, UIEvent
from streamtools.json_values import compact
from streamtools.outputs.encoder import EVENT_STREAM, EVENT_STREAM_HEADERS, KEEP_ALIVE, closed_error

# Calls one after the other, as the APIs of models send them, where a model has written some at once.
#
# An array of calls in text ends them together, and there are servers whose native calls come in turns. Clients of those
# APIs take a call for ended when another begins: openai's own reads its arguments then, and raises for half of them.


class CallOrder:
    """Lets the events of one call through until it has ended; those of others wait for that."""

    def __init__(self) -> None:
        self._open: str | None = None
        self._waiting: dict[str, list[UIEvent]] = {}  # what has come of each call that has begun meanwhile

    def take(self, event: UIEvent) -> list[UIEvent]:
        """Return the events that are next, now that `event` has come."""
        match event:
            case CallStart(call_id) if self._open is None:
                self._open = call_id
            case CallStart(call_id):
                self._waiting[call_id] = [event]
                return []
            case CallDelta(call_id) | Error(call_id=str() as call_id) if call_id in self._waiting:
                self._waiting[call_id].append(event)
                return []
            case Call(call) if call.id in self._waiting:
                self._waiting[call.id].append(event)
                return []
            case Error(call_id=str() as call_id) if call_id == self._open:
                return [event, *self._go_on()]
            case Call(call) if call.id == self._open:
                return [event, *self._go_on()]
        return [event]

    def _go_on(self) -> list[UIEvent]:
        """Return what has waited for the end of a call, up to a call that has not ended."""
        events: list[UIEvent] = []
        self._open = None
        while self._open is None and self._waiting:
            call_id = next(iter(self._waiting))
            events += (waited := self._waiting.pop(call_id))
            if not isinstance(waited[-1], Call | Error):
                self._open = call_id
        return events


# White space at the end of a text that grows: held back until it is known what follows. Sans-IO.
#
# Models surround a call with line feeds, which would stay behind in a format that takes calls out of the text. Held
# white space is invisible, so no reader misses it; and because its treatment depends only on its length and its
# neighbours, it does not matter how the text was cut.

BOUND = 1024
"""Characters of white space that are held; more in a row is intended, and shown."""

WHITE = " \t\r\n"


@dataclass(slots=True, eq=False)
class TrailingSpace:
    """Lets a text through but for the white space at its end."""

    held: str = ""
    too_long: bool = False  # the white space at the end of the text is longer, and shown
    behind_call: bool = False  # nothing but white space has come since a call

    def feed(self, text: str) -> str:
        body = text.rstrip(WHITE)
        shown = ""
        if body:
            shown = self.held + body
            self.held = ""
            self.too_long = self.behind_call = False
        space = text[len(body) :]
        if self.too_long:
            return shown + space
        self.held += space
        if len(self.held) > BOUND:
            shown += self.held
            self.held = ""
            self.too_long = True
        return shown

    def meet_call(self) -> None:
        """Drop what is held, because a call follows; and what follows the call, if nothing else does."""
        self.drop()
        self.behind_call = True

    def drop(self) -> None:
        self.held = ""
        self.too_long = False

    def close(self) -> str:
        """Return what is left to be shown at the end of the text."""
        return "" if self.behind_call else self.held


_CUT = ("length", "content_filter")  # finish reasons that matter more than calls
_CLOSERS = WHITE + "}"
_OF_CALLS = (events.CallStart, events.CallDelta, events.Call, events.Error)
_DROPPED = (Code.TOO_MANY_CALLS, Code.SUPERSEDED)  # malformed calls that are of no use to a client


class CompletionEncoder(ABC):
    """Takes UI events, and has a form write text, reasoning, calls and the end.

    `custom` names the tools whose calls hold a text, `input`, where others have arguments: they are sent when whole.
    """

    content_type = EVENT_STREAM
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive = KEEP_ALIVE
    resumable = False
    _takes_any_arguments: ClassVar[bool] = True
    """Whether clients read a call whose arguments are no JSON."""

    def __init__(self, *, call_deltas: bool, custom: Collection[str] = ()) -> None:
        self._streams_calls = call_deltas
        self._custom = custom
        self._order = CallOrder()
        self._usage: events.Usage | None = None
        self._space = TrailingSpace()
        self._begun = self._failed = self._ended = False
        self._has_text = False  # the answer has
        self._separates = False  # something comes between the text and that of the step before
        self._runs_tools = False  # of ours
        self._names: dict[str, str] = {}  # of the calls of this step
        self._bad: dict[str, str] = {}  # what malformed calls of this step have for arguments
        self._indexes: dict[str, int] = {}  # of the calls that have been sent
        self._given: set[str] = set()  # those whose arguments have been sent, or a part of them
        self._whole: set[str] = set()  # and those that are complete
        self._closers: dict[str, str] = {}  # the end of what has come of arguments, until the call is well formed
        self._broken: events.Error | None = None  # of a call whose arguments have left in part

    def encode(self, event: events.UIEvent) -> bytes:
        """Return what goes out for `event`."""
        if self._ended:
            raise closed_error()
        if self._failed:
            self._ended = type(event) is events.Done
            return b""
        if type(event) is events.Text:  # nearly all of them are
            text = event.text
            body = text.rstrip(WHITE)
            end = len(body)
            if body and len(text) - end <= BOUND and not self._separates:  # inlined: `_read_text`, `TrailingSpace.feed`
                space = self._space
                if space.held:
                    body = space.held + body
                space.held = text[end:]
                space.too_long = space.behind_call = False
                self._has_text = True
                return self._write_text(body)
            return self._read_text(text)
        if self._streams_calls and type(event) in _OF_CALLS:
            return b"".join(map(self._read, self._order.take(event)))
        return self._read(event)

    def _read(self, event: events.UIEvent) -> bytes:
        """Return what goes out for an event that is no text."""
        match event:
            case events.Reasoning():
                return self._write_reasoning(event)
            case events.Start():
                return self._begin()
            case events.StepStart():
                self._separates = self._has_text
                self._names.clear()
                self._bad.clear()
            case events.CallStart(call_id, name):
                self._names[call_id] = name
                if self._streams_calls and name not in self._custom:
                    return self._begin_call(call_id, name)
            case events.CallDelta(call_id, text) if call_id in self._indexes:
                return self._add_arguments(call_id, text)
            case events.Call(call):
                return self._read_call(call)
            case events.Executing():
                self._runs_tools = True
            case events.Error():
                return self._read_error(event)
            case events.UsageReport(usage):
                self._usage = usage if self._usage is None else self._usage + usage
            case events.Done():
                self._ended = True
                return b"" if event.reason == "cancelled" else self._finish(event)
        return b""

    def close(self) -> bytes:
        """Return the error that ends a body whose `done` did not come."""
        has_ended = self._ended or self._failed
        self._ended = True
        return b"" if has_ended else self._fail(Code.STREAM_INTERRUPTED, "the stream ended before it was complete")

    def _read_text(self, text: str) -> bytes:
        if self._separates:
            text = text.lstrip(WHITE)
            if not text:
                return b""
            self._separates = False
            self._space.drop()
            text = "\n\n" + text
        text = self._space.feed(text)
        if not text:
            return b""
        self._has_text = True
        return self._write_text(text)

    # The calls.

    def _begin_call(self, call_id: str, name: str, arguments: str = "") -> bytes:
        self._indexes[call_id] = len(self._indexes)
        if arguments:
            self._given.add(call_id)
        return self._write_call_start(call_id, name, arguments)

    def _add_arguments(self, call_id: str, text: str) -> bytes:
        """Return what is sent of a piece of arguments: there are clients that run a call as soon as its JSON ends."""
        text = self._closers.pop(call_id, "") + text
        sent = text.rstrip(_CLOSERS)
        if sent != text:
            self._closers[call_id] = text[len(sent) :]
        if not sent:
            return b""
        self._given.add(call_id)
        return self._write_arguments(call_id, sent)

    def _complete_call(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return what has not been sent of a call."""
        if call_id in self._whole:
            return b""
        self._whole.add(call_id)
        written = b""
        if call_id not in self._indexes:
            written = self._begin_call(call_id, name, arguments)
        elif rest := self._closers.get(call_id, "") if call_id in self._given else arguments:
            written = self._write_arguments(call_id, rest)
        return written + self._write_call_end(call_id, name, arguments)

    def _read_call(self, call: ToolCall) -> bytes:
        if call.dialect != NATIVE:
            self._space.meet_call()
        return self._complete_call(call.id, call.name, compact(call.arguments)) if self._streams_calls else b""

    def _read_error(self, event: events.Error) -> bytes:
        if event.call_id is None:
            return self._fail(event.code, event.message)
        if event.call is not None:
            return b""
        if event.dialect != NATIVE:
            self._space.meet_call()
        name = self._names.get(event.call_id)
        if event.call_id in self._given:
            self._broken = event
            return b""
        if name is None or not event.raw or event.code in _DROPPED:
            return b""
        arguments = self._bad[event.call_id] = _refusable(event.raw)
        if not (self._streams_calls and self._takes_any_arguments):
            return b""
        return self._complete_call(event.call_id, name, arguments)

    # The end.

    def _fail(self, code: Code, message: str) -> bytes:
        self._failed = True
        return self._write_error(code, message)

    def _finish(self, done: events.Done) -> bytes:
        calls = {call.id: (call.name, compact(call.arguments)) for call in done.pending}
        if self._broken is not None and done.finish_reason not in _CUT:
            why = f"the model wrote a call that cannot be read: {self._broken.message}"
            return self._fail(self._broken.code, why)
        if not self._runs_tools and done.reason != "stopped":
            if self._bad and not self._takes_any_arguments and done.finish_reason not in _CUT:
                return self._fail(Code.INVALID_JSON, "the model wrote a call that cannot be read")
            calls |= {call_id: (self._names[call_id], arguments) for call_id, arguments in self._bad.items()}
        space = self._space.close()
        parts = [self._write_text(space) if space else self._begin()]
        for call_id, (name, arguments) in calls.items():
            parts.append(self._complete_call(call_id, name, arguments))
        parts.append(self._write_end(_finish_reason(done, bool(calls))))
        return b"".join(parts)

    def _begin(self) -> bytes:
        """Return what opens the answer, the first time that it is asked for."""
        if self._begun:
            return b""
        self._begun = True
        return self._write_start()

    # How a form writes each of them.

    @abstractmethod
    def _write_start(self) -> bytes: ...

    @abstractmethod
    def _write_text(self, text: str) -> bytes: ...

    @abstractmethod
    def _write_reasoning(self, event: events.Reasoning) -> bytes: ...

    @abstractmethod
    def _write_call_start(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the beginning of a call, and its arguments if they are known."""

    @abstractmethod
    def _write_arguments(self, call_id: str, text: str) -> bytes: ...

    def _write_call_end(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return the end of a call, where a form has one."""
        return b""

    @abstractmethod
    def _write_end(self, finish: str) -> bytes:
        """Return the end of an answer, for one of the reasons of chat completions."""

    @abstractmethod
    def _write_error(self, code: Code, message: str) -> bytes:
        """Return what clients raise as an error of the API; nothing follows it, not even the usual end."""


def input_in(arguments: str) -> str:
    """Return the text that a call of a custom tool holds; what is no such call's is the text."""
    try:
        found = json.loads(arguments).get("input")
    except (ValueError, AttributeError):
        return arguments
    return found if isinstance(found, str) else arguments


def _finish_reason(done: events.Done, has_calls: bool) -> str:
    """Return the one of OpenAI's reasons that says what the client has to do next."""
    if done.finish_reason in _CUT:
        return str(done.finish_reason)
    if has_calls:
        return "tool_calls"
    if done.reason == "truncated" or (done.reason == "stopped" and done.finish_reason != "tool_stop"):
        return "length"  # by the provider without saying so, or by a limit of ours
    return "stop"


def _refusable(raw: str) -> str:
    """Return arguments that we refused in a form that every client refuses.

    What looks like an object becomes a JSON string: there are clients that read broken JSON as far as it goes, keep one
    of two equal keys, or take `NaN`, and they would run the call.
    """
    return json.dumps(raw) if raw.lstrip("\ufeff" + string.whitespace).startswith(("{", "[")) else raw

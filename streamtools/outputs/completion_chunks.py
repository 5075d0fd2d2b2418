"""A run as one chat completion of OpenAI's, streamed: any client reads it, whatever way of calling the model has.

Such a client runs every call that it sees. So a call is sent once it is certain that it has not run here: at `done`,
which lists the pending calls. Calls that our tools have answered, that were superseded or that were forbidden are never
sent. A server whose clients bring all tools with them may send calls while they are written (`call_deltas`): then each
is sent once it has a name, and cannot be taken back.

A malformed call is sent with the text of the model in the place of its arguments, because clients can answer those,
unless the run answers it itself. The steps of a run are one message. White space between a text and a call in it is
dropped; see `white_space`.
"""

from __future__ import annotations

import json
import secrets
import string
import time
from collections.abc import Mapping
from typing import Any

from streamtools import events
from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.json_values import compact
from streamtools.outputs.encoder import (
    DONE,
    EVENT_STREAM,
    EVENT_STREAM_HEADERS,
    KEEP_ALIVE,
    closed_error,
    encode_json,
    present,
    to_json,
)

# White space at the end of a text that grows: held back until it is known what follows. Sans-IO.
#
# Models surround a call with line feeds, which would stay behind in a format that takes calls out of the text. Held
# white space is invisible, so no reader misses it; and because its treatment depends only on its length and its
# neighbours, it does not matter how the text was cut.

BOUND = 1024
"""Characters of white space that are held; more in a row is intended, and shown."""

WHITE = " \t\r\n"


class TrailingSpace:
    """Lets a text through but for the white space at its end."""

    def __init__(self) -> None:
        self._held = ""
        self._too_long = False  # the white space at the end of the text is longer, and shown
        self._behind_call = False  # nothing but white space has come since a call

    def feed(self, text: str) -> str:
        """Return what may be shown now."""
        body = text.rstrip(WHITE)
        shown = ""
        if body:
            shown = self._held + body
            self._held = ""
            self._too_long = self._behind_call = False
        space = text[len(body) :]
        if self._too_long:
            return shown + space
        self._held += space
        if len(self._held) > BOUND:
            shown += self._held
            self._held = ""
            self._too_long = True
        return shown

    def meet_call(self) -> None:
        """Drop what is held, because a call follows; and what follows the call, if nothing else does."""
        self.drop()
        self._behind_call = True

    def drop(self) -> None:
        """Drop what is held."""
        self._held = ""
        self._too_long = False

    def close(self) -> str:
        """Return what is left to be shown at the end of the text."""
        return "" if self._behind_call else self._held


_CUT = ("length", "content_filter")  # finish reasons that matter more than calls
_DROPPED = (Code.TOO_MANY_CALLS, Code.SUPERSEDED)  # malformed calls that are of no use to a client


class OpenAIEncoder:
    """Writes OpenAI's chat completion chunks, in which calls in text have become native ones.

    A client sees the calls that it has to run itself: those that are pending at the end. `call_deltas`: it sees each
    call as it is written, which is for runs whose tools are all the client's, because a call that has been sent cannot
    be taken back when it is run here, superseded or forbidden. `include_usage` is that of the request's
    `stream_options`. `id`, `created` (seconds since 1970) and `system_fingerprint` are those of the provider's answer
    or made. The texts of several steps are one, with a blank line in between.
    """

    content_type = EVENT_STREAM
    headers: Mapping[str, str] = EVENT_STREAM_HEADERS
    keep_alive = KEEP_ALIVE
    resumable = False

    def __init__(
        self,
        *,
        model: str = "streamtools",
        include_usage: bool = False,
        call_deltas: bool = False,
        id: str | None = None,
        created: int | None = None,
        system_fingerprint: str | None = None,
    ) -> None:
        self._head: dict[str, Any] = {
            "id": id or "chatcmpl-" + secrets.token_urlsafe(18),
            "object": "chat.completion.chunk",
            "created": int(time.time()) if created is None else created,
            "model": model,
            **present(system_fingerprint=system_fingerprint),
        }
        self._before = b"data: " + to_json(self._head)[:-1] + b',"choices":[{"index":0,"delta":'
        # `finish_reason` is the one member that the schema wants in each choice, also where it is null.
        self._behind = b',"finish_reason":null}]}\n\n'
        self._include_usage = include_usage
        self._streams_calls = call_deltas
        self._usage: events.Usage | None = None
        self._space = TrailingSpace()
        self._begun = False
        self._failed = False
        self._ended = False
        self._has_text = False  # the answer has
        self._separates = False  # something comes between the text and that of the step before
        self._runs_tools = False  # of ours
        self._names: dict[str, str] = {}  # of the calls of this step
        self._bad: dict[str, str] = {}  # what malformed calls of this step have for arguments
        self._indexes: dict[str, int] = {}  # of the calls that have been sent
        self._given: set[str] = set()  # those whose arguments have been sent, or a part of them

    def encode(self, event: events.UIEvent) -> bytes:
        """Return the chunks of `event`."""
        if self._ended:
            raise closed_error()
        if self._failed:
            self._ended = type(event) is events.Done
            return b""
        if type(event) is events.Text:  # nearly all of them are
            return self._write_text(event.text)
        match event:
            case events.Reasoning(text):
                return self._write({"reasoning_content": text}) if text else b""
            case events.Start():
                return self._begin()
            case events.StepStart():
                self._separates = self._has_text
                self._names.clear()
                self._bad.clear()
            case events.CallStart(call_id, name):
                self._names[call_id] = name
                return self._begin_call(call_id, name) if self._streams_calls else b""
            case events.CallDelta(call_id, text) if text and call_id in self._indexes:
                return self._write_arguments(call_id, text)
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
        return b"" if has_ended else _write_error(Code.STREAM_INTERRUPTED, "the stream ended before it was complete")

    # The message.

    def _begin(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return self._write({"role": "assistant", "content": ""})

    def _write(self, delta: dict[str, Any]) -> bytes:
        return self._begin() + self._before + to_json(delta) + self._behind

    def _write_text(self, text: str) -> bytes:
        if self._separates:
            text = text.lstrip(WHITE)
            if not text:
                return b""
            self._separates = False
            self._space.drop()
            text = "\n\n" + text
        shown = self._space.feed(text)
        if not shown:
            return b""
        self._has_text = True
        return b'%b%b{"content":%b}%b' % (self._begin(), self._before, to_json(shown), self._behind)

    # The calls.

    def _begin_call(self, call_id: str, name: str, arguments: str = "") -> bytes:
        index = self._indexes[call_id] = len(self._indexes)
        if arguments:
            self._given.add(call_id)
        function = {"name": name, "arguments": arguments}
        return self._write({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})

    def _write_arguments(self, call_id: str, text: str) -> bytes:
        self._given.add(call_id)
        return self._write({"tool_calls": [{"index": self._indexes[call_id], "function": {"arguments": text}}]})

    def _write_call(self, call_id: str, name: str, arguments: str) -> bytes:
        """Return what has not been sent of a call."""
        if call_id not in self._indexes:
            return self._begin_call(call_id, name, arguments)
        return b"" if call_id in self._given else self._write_arguments(call_id, arguments)

    def _read_call(self, call: ToolCall) -> bytes:
        if call.dialect != NATIVE:
            self._space.meet_call()
        return self._write_call(call.id, call.name, compact(call.arguments)) if self._streams_calls else b""

    def _read_error(self, event: events.Error) -> bytes:
        if event.call_id is None:
            self._failed = True
            return _write_error(event.code, event.message)
        if event.call is not None:
            return b""
        if event.dialect != NATIVE:
            self._space.meet_call()
        name = self._names.get(event.call_id)
        if name is None or not event.raw or event.code in _DROPPED:
            return b""
        self._bad[event.call_id] = _refusable(event.raw)
        return self._write_call(event.call_id, name, self._bad[event.call_id]) if self._streams_calls else b""

    # The end.

    def _finish(self, done: events.Done) -> bytes:
        calls = {call.id: (call.name, compact(call.arguments)) for call in done.pending}
        if not self._runs_tools and done.reason != "stopped":
            calls |= {call_id: (self._names[call_id], arguments) for call_id, arguments in self._bad.items()}
        space = self._space.close()
        parts = [self._write({"content": space}) if space else self._begin()]
        for call_id, (name, arguments) in calls.items():
            parts.append(self._write_call(call_id, name, arguments))
        choice = {"index": 0, "delta": {}, "finish_reason": _finish_reason(done, bool(calls))}
        parts.append(encode_json({**self._head, "choices": [choice]}))
        if self._include_usage and self._usage is not None:
            parts.append(encode_json({**self._head, "choices": [], "usage": _write_usage(self._usage)}))
        return b"".join((*parts, DONE))


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


def _write_usage(usage: events.Usage) -> dict[str, Any]:
    given, made = usage.input or 0, usage.output or 0
    cache = present(cached_tokens=usage.cache_read, cache_write_tokens=usage.cache_write)
    thought = present(reasoning_tokens=usage.reasoning)
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made if usage.total is None else usage.total,
        **present(prompt_tokens_details=cache or None, completion_tokens_details=thought or None),
    }


def _write_error(code: Code, message: str) -> bytes:
    """Return what clients raise as an error of the API; nothing follows it, not even the usual end."""
    return encode_json({"error": {"message": message, "type": "server_error", "code": code.value}})

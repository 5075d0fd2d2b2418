"""Writes the custom protocol of an application. A function of the application converts each event. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

from streamtools.errors import Code, check_function, check_result
from streamtools.events import Done, Error, UIEvent
from streamtools.json_values import well_formed
from streamtools.outputs.sse import Framing, NativeEncoder, closed_error, encode_json, to_json

Message: TypeAlias = bytes | str | Mapping[str, Any] | None
"""A message of the protocol: a JSON object, or the bytes or the text to send. None sends nothing."""
_KINDS = (bytes, str, Mapping, type(None))


class CustomEncoder(NativeEncoder):
    """Writes the messages that `function` returns for the events.

    A `dict` is written as JSON. With `framing="sse"`, it is one server-sent event, whose id is the `seq`. With
    `"ndjson"`, it is one line. Over a websocket, it is one text frame. A `str` or `bytes` is sent unchanged, but a lone
    surrogate becomes U+FFFD.

    `function` is called for each event except `follow-up`, which contains messages for the model. The last event is
    always `done`. If the stream of an HTTP response breaks, `close` passes `function` an `error` and then `done` with
    the reason `failed`. If `function` raises an exception, the response ends in the same way, and the exception is
    raised in the server. A websocket is closed with 1011 instead.

    With `resumable=False`, a client that reconnects to a run gets all messages from the start. This is necessary if
    `function` keeps state. Each response then needs a new `function`. For this, let `format` be a function that returns
    a new encoder with a new `function`.

    Calling an encoder returns a new encoder for another response, with the same `function`. Raises ValueError for an
    unknown `framing`, and TypeError if `function` is not callable or is `async def`.
    """

    def __init__(
        self, function: Callable[[UIEvent], Message], *, framing: Framing = "sse", resumable: bool = True
    ) -> None:
        super().__init__(framing=framing)
        check_function("function", function, "event", may_wait=False)
        self.resumable = resumable
        self._function = function

    def __call__(self) -> Self:
        """Return a new encoder for another response."""
        return type(self)(self._function, framing=self.framing, resumable=self.resumable)

    def convert(self, event: UIEvent) -> Message:
        """Return the message for `event`. Raises TypeError for a wrong message, and `ClosedError` after `done`."""
        if self._ended:
            raise closed_error()
        self._ended = type(event) is Done
        message = None if event.type in self.excluded else self._function(event)
        check_result("a custom format", self._function, message, _KINDS, "a dict, str, bytes or None")
        return well_formed(message) if isinstance(message, str) else message

    def encode(self, event: UIEvent) -> bytes:
        """Return the bytes of the message for `event`, or `b""` if it has none."""
        message = self.convert(event)
        if not isinstance(message, Mapping):
            return message.encode() if isinstance(message, str) else message or b""
        try:
            if not self.is_sse:
                return to_json({**message}) + b"\n"
            return (b"id: %d\n" % event.seq if event.seq else b"") + encode_json({**message})
        except TypeError as error:
            raise TypeError(f"the message for the event {event.type!r} is not JSON: {error}") from error

    def close(self) -> bytes:
        """Return the messages for an `error` and for `done`, which end the body. After the end, return `b""`."""
        if self._ended:
            return b""
        error = Error(Code.STREAM_INTERRUPTED, "The stream ended before the answer did.")
        try:
            return self.encode(error) + self.encode(Done("failed", None, None, []))
        finally:
            self._ended = True

"""Serves websockets of Starlette, FastAPI or Litestar: the events of one run, or whole conversations.

`send_events` sends the events of a run or a stream. With `serve_websocket`, the client sends messages, and the server
answers them in order. If the framework raises any exception from `send` or `receive`, the client is treated as
disconnected.

In a conversation, each frame of the client is a text that contains one JSON object. A control frame has one of the keys
`cancel`, `resume` and `decision`. Any other object is a message for the application. The server answers an invalid
frame with an error. It closes the connection after too many invalid frames.

One task reads the frames of the client, even while an answer is being sent. For each active conversation, another task
calls the handler with each message and sends the answer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from inspect import iscoroutine
from typing import Annotated, Any, NamedTuple, Protocol, TypeAlias

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from starlette.websockets import WebSocketState

from streamtools.errors import (
    Code,
    ConversationBusy,
    DecisionRefused,
    Draining,
    OwnerUnreachable,
    RunNotFound,
    StreamToolsError,
    TooManyRuns,
    UnreadableSource,
    check_function,
    check_kind,
    check_methods,
    check_number,
    place_of,
)
from streamtools.events import UI_EVENTS, Done, Error, Start, UIEvent, Warning, join_deltas
from streamtools.json_values import count_values
from streamtools.logs import Logger, explained
from streamtools.outputs import make_encoder
from streamtools.outputs.custom import CustomEncoder, Message
from streamtools.outputs.sse import HIDDEN, read_exclude, to_json
from streamtools.serving.event_reader import EventReader, EventSink, OnDisconnect, Readable
from streamtools.serving.requests import CLIENT_ERRORS, is_fault_of_client
from streamtools.serving.response_writer import ResponseWriter
from streamtools.serving.run import NEXT, Run, chain_of
from streamtools.serving.runs import Runs
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown
from streamtools.tools.approvals import Decision, parse_decision

_CLOSE_TIMEOUT_S = 5.0

NORMAL, GOING_AWAY, POLICY_VIOLATION, INTERNAL_ERROR = 1000, 1001, 1008, 1011
"""Close codes: all events were sent, the server shuts down, too many invalid frames, the server failed."""


class AnyWebSocket(Protocol):
    """The methods that the websocket objects of all supported frameworks have."""

    def accept(self) -> Awaitable[None]: ...
    def receive(self) -> Awaitable[Any]: ...
    def send(self, message: Any, /) -> Awaitable[None]: ...


class Socket:
    """Wraps a framework's websocket. All frames are sent through `writer`."""

    def __init__(
        self,
        websocket: AnyWebSocket,
        *,
        send_timeout: float | None,
        max_rate: float | None,
        shutdown: Shutdown | None,
        conversation_key: str = "conversation",
    ) -> None:
        check_methods("websocket", websocket, "the websocket of a framework", "accept", "receive", "send")
        # There is no keep-alive, because servers send pings.
        self.writer = ResponseWriter(
            websocket.send,
            keep_alive=None,
            send_timeout=send_timeout,
            disconnect_errors=(Exception,),
            max_rate=max_rate,
        )
        self.shutdown = shutdown or Shutdown()
        self.too_many_invalid_frames = False
        """Whether the client has sent too many invalid frames. Then `serve` closes the websocket with 1008."""
        self.conversation_key = conversation_key
        """The field of a frame that holds the id of its conversation."""
        self._websocket = websocket
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether this object has closed the websocket, or the client has left."""
        return self._closed or self.writer.client_left

    async def serve(
        self, deliver: Callable[..., Awaitable[Exception | None]], *, starts: bool = True, **options: Any
    ) -> None:
        """Accept the websocket, call `deliver` with the shutdown and `options`, and close the websocket.

        The close code is 1008 if `too_many_invalid_frames` is True. Otherwise, it is 1011 if `deliver` returned an
        exception, 1001 after the shutdown has begun, and 1000 in other cases. An exception that `deliver` returned is
        raised. With `starts=True`, the client is refused if the shutdown has begun.
        """
        if starts and self.shutdown.begun:
            await self.close(GOING_AWAY)
            return
        if self._is_new:
            await self._websocket.accept()
        error = await deliver(shutdown=self.shutdown, **options)
        code = INTERNAL_ERROR if error is not None else GOING_AWAY if self.shutdown.begun else NORMAL
        await self.close(POLICY_VIOLATION if self.too_many_invalid_frames else code)
        if error is not None:
            _log.error("response_failed", error)
            raise error

    async def receive(self) -> tuple[str | None] | None:
        """Return the next frame as `(text,)`. Returns `(None,)` for a binary frame, and None if the client has left."""
        with suppress(Exception):
            message = await self._websocket.receive()
            if message["type"] == "websocket.receive":
                return (message.get("text"),)
        self._closed = True
        return None

    async def send(self, message: Message, conversation: str | None = None) -> None:
        """Send one frame, unless the websocket is closed or `message` is None. A mapping is sent as a JSON object.

        The JSON object gets the id of its conversation, unless `conversation` is None.
        """
        if message is None or self.closed:
            return
        if not isinstance(message, str) and isinstance(message, Mapping):  # the first check is faster
            tag = {} if conversation is None else {self.conversation_key: conversation}
            message = to_json({**tag, **message}).decode()
        kind = "bytes" if isinstance(message, bytes) else "text"
        await self.writer.send({"type": "websocket.send", kind: message})

    async def close(self, code: int) -> None:
        """Close the websocket, unless it is already closed."""
        if not self.closed:
            self._closed = True
            with anyio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
                await self.writer.send({"type": "websocket.close", "code": code})

    @property
    def _is_new(self) -> bool:
        socket: Any = self._websocket
        state = getattr(socket, "application_state", None) or getattr(socket, "connection_state", None)
        return state in (WebSocketState.CONNECTING, "init")


SocketFormat: TypeAlias = Callable[[], CustomEncoder]
"""An encoder of `outputs.custom`, or a function that makes one."""


def _check_format(format: SocketFormat | None) -> None:
    if not (format is None or isinstance(make_encoder(format), CustomEncoder)):
        raise TypeError(f"`format` must be None or outputs.custom(function), got {format!r}.")


class SocketSink(EventSink):
    """Sends each event as one frame, except the event types in `exclude`."""

    def __init__(
        self, socket: Socket, exclude: Collection[str], format: SocketFormat | None, conversation: str | None = None
    ) -> None:
        self.run_id: str | None = None
        """The id of the run. None until a `Run` is found, or until the `start` event of a stream is sent."""
        self.last: UIEvent | None = None
        """The last event that was read, even if its type is excluded."""
        self._socket = socket
        self._exclude = exclude
        self.encoder = format() if format is not None else None
        """The encoder of the answer; None without a custom format."""
        self.known: float = 0
        """The client has the events up to this `seq`, until a resync. If it is `inf`, only `done` is sent."""
        self._conversation = conversation
        tag = "" if conversation is None else to_json({socket.conversation_key: conversation}).decode()
        self._prefix = tag[:-1] + "," if tag else ""

    async def send(self, events: Sequence[UIEvent], /) -> None:
        for event in join_deltas(events) if self._socket.writer.max_rate is not None else events:
            self.last = event
            if isinstance(event, Warning) and event.code == Code.RESYNC and self.known < math.inf:
                self.known = 0
            is_known = event.seq <= self.known and type(event) is not Done
            if event.type in self._exclude or (self.known and is_known):
                continue
            if type(event) is Start:
                self.run_id = event.run_id
            if self.encoder is not None:
                await self._socket.send(self.encoder.convert(event), self._conversation)
            else:
                json = event.to_json()
                await self._socket.send(self._prefix + json[1:] if self._prefix else json)


async def send_events(
    websocket: AnyWebSocket,
    run_or_stream: Readable,
    *,
    after: int = 0,
    format: SocketFormat | None = None,
    exclude: Collection[str] = HIDDEN,
    on_disconnect: OnDisconnect | None = None,
    send_timeout: float | None = 60.0,
    max_rate: float | None = None,
    shutdown: Shutdown | None = None,
) -> None:
    """Send the events of a run or a stream, each as one text frame, then close the websocket.

    `exclude` names event types that are not sent. The default is `follow-up`, whose events contain messages for the
    model. With `format=outputs.custom(function)`, the messages that `function` returns are sent instead of events. The
    other parameters have the same meaning as in `event_stream_response`. Accepts the websocket if the application has
    not accepted it. Frames of the client are ignored. Returns when the websocket is closed or the client has left.

    The close code is 1000 after the last event, and 1001 if `shutdown` has begun. If the stream raises an exception,
    the code is 1011, and the exception is raised. If a stream would start after `shutdown` has begun, the stream is
    closed. If the websocket is not accepted yet, the server refuses it with the status 403.
    """
    excluded = read_exclude(exclude)
    _check_format(format)
    socket = Socket(websocket, send_timeout=send_timeout, max_rate=max_rate, shutdown=shutdown)
    reader = EventReader(run_or_stream, after=after, on_disconnect=on_disconnect)

    async def listen(group: TaskGroup) -> None:
        while await socket.receive() is not None:
            pass

    deliver = partial(reader.deliver, socket.writer, SocketSink(socket, excluded, format))
    try:
        await socket.serve(deliver, starts=reader.run is None, listen=listen)
    finally:
        await reader.close()


# Conversations.

_log = Logger(__name__)

_MAX_INVALID_FRAMES = 32
_MAX_VALUES = 10_000
"""The maximum number of JSON values in a frame."""
_MAX_WAITING = 8
"""The maximum number of frames of a conversation that wait. For decisions and stops, the limit is four times higher."""

Id: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
"""An id of a run, a call or a conversation.

Ids of this package have about 24 characters, and ids of providers have fewer than 100.
"""


_REFUSALS = (ConversationBusy, DecisionRefused, Draining, OwnerUnreachable, RunNotFound, TooManyRuns)
"""Exceptions of the handler whose `code` is reported to the client, as ordinary events of a service."""


class FrameError(Exception):
    """A frame that cannot be used. The client receives `answer`, which includes `fields`.

    If the client sends too many invalid frames, the websocket is closed. An error about a decision has the field
    `call_id`. Such a frame may just have arrived too late, so it is not counted as invalid.
    """

    def __init__(self, code: str, message: str, frame: object = None, **fields: Any) -> None:
        super().__init__(message)
        call = {"call_id": frame.call_id} if isinstance(frame, DecisionFrame) else {}
        self.answer = {"code": code, "message": message, **fields, **call}
        self.conversation: str | None = None
        """The id of the conversation of a frame that could not be read, if it is known."""


class CancelFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"cancel": true, "run_id": id}`: stop the current answer, but only if its run has this id.

    Without `run_id`, the first answer that has not ended and was not stopped before is stopped.
    """

    cancel: bool
    run_id: Id | None = None

    def __post_init__(self) -> None:
        if not self.cancel:
            raise ValueError("`cancel` must be true")


class ResumeFrame(msgspec.Struct, forbid_unknown_fields=True):
    """`{"resume": seq, "run_id": id}`: send the events of a run after the event with this `seq`."""

    after: Annotated[int, msgspec.Meta(ge=0)] = msgspec.field(name="resume")
    run_id: Id


class DecisionFrame(NamedTuple):
    """`{"call_id": id, "decision": "approve"}`: a `Decision` about a call, with the fields of the decision.

    Without `run_id`, the call is one of the answer that is being sent. With `run_id`, that run may have ended waiting.
    """

    call_id: str
    decision: Decision
    run_id: str | None


MessageFrame: TypeAlias = dict[str, Any]
"""A JSON object that is not a control frame: a message for the application."""

Frame: TypeAlias = CancelFrame | ResumeFrame | DecisionFrame | MessageFrame
ReadFrame: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
"""A function that converts a client's JSON object to a message or a control frame."""

_CONTROL_FRAMES: dict[str, type[CancelFrame | ResumeFrame]] = {"cancel": CancelFrame, "resume": ResumeFrame}
_FRAME_FIELDS = {"", "error", "cancel", "resume", "decision", "run_id", "call_id"}
_EVENT_FIELDS = {"type"}.union(*(kind.__struct_fields__ for kind in UI_EVENTS))


def read_frame(
    text: str | None, max_characters: int, conversation_key: str | None = None, read: ReadFrame | None = None
) -> tuple[Frame, str | None]:
    """Parse the text of a frame. Returns the frame and its field `conversation_key`, the id of its conversation.

    Without `conversation_key`, None is returned for the id. `text` is None for a binary frame.
    `read` converts the JSON object of the frame. Raises `FrameError` for an invalid frame, and TypeError if `read`
    does not return a dict. A frame with more than `max_characters` characters or `_MAX_VALUES` JSON values is invalid,
    and is not parsed.
    """
    if text is None:
        raise FrameError("not_text", "The frame is binary; send text.")
    if len(text) > max_characters:
        raise FrameError("too_large", f"The frame has {len(text)} characters; the limit is {max_characters}.")
    try:
        if len(text) > _MAX_VALUES and count_values(text.encode()) > _MAX_VALUES:
            raise FrameError("too_large", f"The frame has more than {_MAX_VALUES} values.")
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise FrameError("not_json", "The frame is not valid JSON.") from None
    if not isinstance(value, dict):
        raise FrameError("not_an_object", "The frame is not a JSON object.")
    given = value.get(conversation_key)
    try:
        return _read_object(value, conversation_key, read)
    except FrameError as error:
        with suppress(msgspec.ValidationError):
            error.conversation = msgspec.convert(given, Id | None)
        raise


def _read_object(
    value: dict[str, Any], conversation_key: str | None, read: ReadFrame | None
) -> tuple[Frame, str | None]:
    if read is not None:
        try:
            value = read(value)
        except CLIENT_ERRORS as error:
            raise _refused(error, read) from None
        check_kind("the result of `read`", value, dict)
    key = conversation_key or ""
    try:
        conversation = msgspec.convert(value.pop(key, None), Id | None) if conversation_key else None
        key = next((key for key in (*_CONTROL_FRAMES, "decision") if key in value), "")
        if key == "decision":
            key = "call_id"
            call_id = msgspec.convert(value.pop(key, None), Id)
            key = "run_id"
            run_id = msgspec.convert(value.pop(key, None), Id | None)
            key = "decision"
            return DecisionFrame(call_id, parse_decision(value), run_id), conversation
        return msgspec.convert(value, _CONTROL_FRAMES[key]) if key else value, conversation
    except (msgspec.ValidationError, DecisionRefused) as error:
        raise FrameError("wrong_type", f"{key}: {str(error)[:200]}") from None


class Session:
    """The connection on which a message arrived, for the handler of the message and for the tools of the answer."""

    def __init__(self, websocket: AnyWebSocket, socket: Socket, conversation: str | None = None) -> None:
        self.websocket = websocket
        """The websocket object of the framework, with the headers, the user and the state."""
        self.conversation = conversation
        """The id of the conversation of the message; None without `max_conversations`, or if the frame has none."""
        self._socket = socket

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send the client a JSON object, in the conversation of the message. The key `type` is reserved for events."""
        check_kind("message", message, Mapping)
        await self._socket.send(message, self.conversation)


Handler: TypeAlias = Callable[[dict[str, Any], Session], "Coroutine[Any, Any, Readable | None] | Readable | None"]
"""A function that receives a message and its session. It returns the run or the stream that answers the message, or
None for no answer. It may be asynchronous."""


async def serve_websocket(
    websocket: AnyWebSocket,
    handler: Handler,
    *,
    runs: Runs | None = None,
    owner: str | None = None,
    format: SocketFormat | None = None,
    read: ReadFrame | None = None,
    exclude: Collection[str] = HIDDEN,
    on_disconnect: OnDisconnect | None = None,
    max_frame: int = 1 << 20,
    max_conversations: int | None = None,
    conversation_key: str = "conversation",
    send_timeout: float | None = 60.0,
    max_rate: float | None = None,
    shutdown: Shutdown | None = None,
) -> None:
    """Answer the messages of a websocket client until the client leaves. Accepts the websocket if necessary.

    Each frame of the client is a JSON object:

    - `{"cancel": true}` stops the first answer that has not ended and was not stopped before. With a `run_id`, it stops
      only this run. If the run is not being sent, but is active or waits for decisions, the client gets its `done`.
    - `{"call_id": id, "decision": …}` decides about a call of the answer that is being sent. The frame has the other
      fields of `Approve`, `Deny` or `Answer`, too. `Answer` holds the result of a call that the client has executed.
      With the `run_id` of a run that has ended waiting, the frame calls `runs.decide`. While other calls of the run are
      undecided, the client gets its `done` again. After the last decision, the client gets the events of the
      continuation that follow those of the waiting run. If the continuation has ended, and this connection has sent
      it, a repeated decision gets only `done`.
    - `{"resume": seq, "run_id": id}` requests the events of a run after `seq`, or its `done` if there are none.
    - Any other object is a message. `handler(message, session)` returns the run or the stream that answers it, or None.

    A run with a `run_id` must be in `runs` and belong to the user `owner`. With the id of a waiting run, a frame also
    reaches the run that continues it. If the client has other frames, `read` converts each of its objects to one of
    these, such as `{"cancel": True}`.

    The server sends each event as one frame, except the event types in `exclude`. With
    `format=outputs.custom(function)`, it sends the messages that `function` returns. At most 8 messages and `resume`
    frames of a conversation may wait. A frame over this limit is dropped with the error `too_many_messages`. It counts
    as an invalid frame. At most 32 decisions and stops of runs that are not being sent may wait.

    With `max_conversations`, each frame may have the field `conversation`, an id that the client chooses. Messages of
    one conversation are answered in order. At most `max_conversations` conversations are answered at the same time. A
    frame over this limit is dropped with the error `too_many_conversations`, and counts as an invalid frame. A JSON
    object from the server has the same `conversation` as the frame that it answers. The error for a frame that is not a
    JSON object has no `conversation`. A `str` or `bytes` of a custom format is sent unchanged. Without
    `max_conversations`, the field is passed to the handler in a message, and is invalid in a control frame.
    `conversation_key` is another name for the field, such as `"room"`. It must not be a field of other frames, or,
    without `format`, of events.

    An invalid frame is answered with `{"error": {"code": …, "message": …}}`. An error about a decision also has the
    `call_id`, and the frame is not counted as invalid. With `format`, the client gets the result of the function for an
    `Error` with the code `frame_refused`. Its `raw` is the code of the error frame.
    A frame with more than `max_frame` characters or 10,000 JSON values is invalid. The 32nd invalid frame closes the
    connection with the code 1008. Frames are parsed in the event loop.

    If the handler or `read` raises ValueError, LookupError, TypeError or RecursionError, the message is an invalid
    frame with the code `refused`. It is also refused if the stream raises one of these before its first event. The log
    reports the type, line and reason of the exception, and the handler (`message_refused`). Any other exception is
    raised, and the websocket is closed with 1011. This includes each `StreamToolsError`, except these of the handler:
    `ConversationBusy`, `DecisionRefused`, `Draining`, `OwnerUnreachable`, `RunNotFound` and `TooManyRuns` are answered
    with an error that has their `code`.

    When `shutdown` begins, the current answers may finish during the drain. Other messages are answered with the error
    code `ending` and the number of seconds `retry_after`. Then the websocket is closed with 1001. A client that
    connects after `shutdown` has begun is refused, as in `send_events`. When the client leaves, a stream is stopped. A
    run continues, unless `on_disconnect` is `"stop"`.

    With `runs`, return `await runs.start(…)` from the handler. If the handler returns a stream, the log has a warning
    (`not_a_run`).

    Raises ValueError for `runs` without `owner`, and for a limit below 1. Raises TypeError for a `websocket`, `handler`
    or `format` of a wrong type.
    """
    if runs is not None and owner is None:
        raise ValueError("`runs` needs `owner`, whose runs the client may use.")
    check_number("max_frame", max_frame, 1)
    check_number("max_conversations", max_conversations, 1, optional=True)
    check_kind("conversation_key", conversation_key, str)
    check_function("handler", handler, "message", "session")
    if read is not None:
        check_function("read", read, "frame")
    _check_format(format)
    if conversation_key != "conversation" and max_conversations is None:
        raise ValueError("`conversation_key` needs `max_conversations`: without it, a socket is one conversation.")
    if conversation_key in _FRAME_FIELDS or (format is None and conversation_key in _EVENT_FIELDS):
        raise ValueError(f"`conversation_key` must be a field that no other frame has, got {conversation_key!r}.")
    socket = Socket(
        websocket, send_timeout=send_timeout, max_rate=max_rate, shutdown=shutdown, conversation_key=conversation_key
    )
    excluded = read_exclude(exclude)
    await _Connection(
        socket=socket,
        handler=wraps(handler)(
            lambda message, conversation: handler(message, Session(websocket, socket, conversation))
        ),
        read_frame=partial(
            read_frame,
            max_characters=max_frame,
            conversation_key=None if max_conversations is None else conversation_key,
            read=read,
        ),
        make_sink=partial(SocketSink, socket, excluded, format),
        runs=runs,
        owner=owner or "",
        on_disconnect=on_disconnect,
        max_conversations=max_conversations or math.inf,
    ).serve()


@dataclass(eq=False)
class _Answer:
    """The answer to a frame. It waits for earlier answers, or is being sent."""

    frame: Frame
    sink: SocketSink
    reader: EventReader | None = None  # None before the handler has returned
    is_cancelled: bool = False
    run: Run | None = None  # of a decision or a stop: the run to send, known when `is_carried_out` is set
    is_carried_out: anyio.Event = field(default_factory=anyio.Event)

    def is_of(self, run_id: str) -> bool:
        """Whether the answer is the run with this id, or a run of the same chain of continuations."""
        return self.sink.run_id is not None and self.sink.run_id.rstrip(NEXT) == run_id.rstrip(NEXT)


@dataclass
class _Connection:
    socket: Socket
    handler: Callable[[dict[str, Any], str | None], Any]
    read_frame: Callable[[str | None], tuple[Frame, str | None]]
    make_sink: Callable[[str | None], SocketSink]
    runs: Runs | None
    owner: str
    on_disconnect: OnDisconnect | None
    max_conversations: float
    answers: dict[str | None, deque[_Answer]] = field(default_factory=dict)
    """For each active conversation: the answer that is being sent, and then the waiting answers."""
    continued: set[str] = field(default_factory=set)
    """The ids of the continuations that this connection has sent, or sends."""
    error: Exception | None = None  # raised by the handler or a stream
    invalid_frames: int = 0

    async def serve(self) -> None:
        self.finished = anyio.Event()  # set after an error or too many invalid frames, or at a shutdown without answers

        async def work() -> None:
            await self.finished.wait()
            if self.error is not None:
                raise self.error

        async def end_on_shutdown() -> None:
            await self.socket.shutdown.wait()
            if not self.answers:
                self.finished.set()

        async def listen(group: TaskGroup) -> None:
            self.group = group
            group.start_soon(end_on_shutdown)
            await self._read_frames()

        async def stop() -> None:
            for conversation in self.answers:
                self._cancel(None, conversation)

        deliver = partial(self.socket.writer.deliver, work)
        await self.socket.serve(deliver, listen=listen, on_disconnect=self._leave, on_shutdown=stop)

    def _leave(self) -> None:
        for answers in self.answers.values():
            if (reader := answers[0].reader) is not None:
                reader.leave()

    # Frames of the client.

    async def _read_frames(self) -> None:
        while (received := await self.socket.receive()) is not None:
            conversation = None
            try:
                frame, conversation = self.read_frame(received[0])
                match frame:
                    case CancelFrame(run_id=run_id):
                        if not self._cancel(run_id, conversation) and run_id is not None:
                            self._add(frame, conversation)
                    case DecisionFrame(run_id=None):
                        await self._decide(frame, conversation)
                    case _:
                        self._add(frame, conversation)
            except FrameError as error:
                await self._refuse(error, error.conversation if conversation is None else conversation)
            except Exception as error:  # of `read`
                self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        """Close the websocket. `serve` raises the error, because a task group would wrap it in an ExceptionGroup."""
        self.error = error
        self._leave()
        self.finished.set()

    async def _refuse(self, error: FrameError, conversation: str | None) -> None:
        """Answer an invalid frame. Close the websocket after too many of them."""
        await self._send_error(error, conversation)
        self.invalid_frames += "call_id" not in error.answer
        if self.invalid_frames >= _MAX_INVALID_FRAMES:
            self.socket.too_many_invalid_frames = True
            self._leave()
            self.finished.set()

    async def _send_error(self, error: FrameError, conversation: str | None) -> None:
        message: Message = {"error": error.answer}
        try:
            if (encoder := self.make_sink(conversation).encoder) is not None:
                code, call_id = error.answer["code"], error.answer.get("call_id")
                message = encoder.convert(Error(Code.FRAME_REFUSED, str(error), call_id, raw=code))
            await self.socket.send(message, conversation)
        except Exception as failure:  # of the function of the custom format
            self._fail(failure)

    def _add(self, frame: Frame, conversation: str | None) -> None:
        if self.socket.shutdown.begun:
            raise _shutdown_error(frame)
        if conversation not in self.answers:
            if len(self.answers) >= self.max_conversations:
                raise FrameError("too_many_conversations", "Too many are active; this message is dropped.", frame)
            self.answers[conversation] = deque()
            self.group.start_soon(self._converse, conversation)
        answers = self.answers[conversation]
        # More decisions may wait, because a turn may have several calls.
        if len(answers) > _MAX_WAITING * (1 if isinstance(frame, dict | ResumeFrame) else 4):
            raise FrameError("too_many_messages", "Too many messages wait; this one is dropped.", frame)
        answers.append(answer := _Answer(frame, self.make_sink(conversation)))
        if isinstance(frame, DecisionFrame | CancelFrame):
            self.group.start_soon(self._carry_out, answer, conversation)

    def _cancel(self, run_id: str | None, conversation: str | None) -> bool:
        """Stop the first answer that has not ended and was not stopped before. Returns whether it is stopped.

        With `run_id`, stop that answer only if its run has this id.
        """
        answers = (each for each in self.answers.get(conversation, ()) if type(each.sink.last) is not Done)
        answer = next((each for each in answers if not each.is_cancelled), None)
        if run_id is not None and (answer is None or not answer.is_of(run_id)):
            return any(each.is_cancelled and each.is_of(run_id) for each in self.answers.get(conversation, ()))
        if answer is None:
            return False
        answer.is_cancelled = True
        self.group.start_soon(self._stop, answer.reader, conversation)
        return True

    async def _stop(self, reader: EventReader | None, conversation: str | None) -> None:
        try:
            if reader is not None:
                await (reader.shut_down() if self.socket.shutdown.over else reader.stop())
        except StreamToolsError as error:  # the process that drives the run does not answer
            await self._send_error(FrameError("not_stopped", str(error)), conversation)

    async def _decide(self, frame: DecisionFrame, conversation: str | None) -> None:
        """Pass a decision to the call that waits for it. Raises `FrameError` if the call does not wait."""
        answers = self.answers.get(conversation)
        decidable = answers[0].reader.decidable if answers and answers[0].reader is not None else None
        try:
            if decidable is None:
                reason = f"Call {frame.call_id[:64]!r} does not wait for a decision: no such run is being sent."
                raise DecisionRefused(reason, code="not_waiting")
            await decidable.decide(frame.call_id, frame.decision)
        except (DecisionRefused, OwnerUnreachable) as error:
            raise _refusal(error, frame) from None

    # Answers of the server.

    async def _converse(self, conversation: str | None) -> None:
        """Send the answers of a conversation in order, until none waits."""
        answers = self.answers[conversation]
        try:
            while answers:
                await anyio.lowlevel.checkpoint_if_cancelled()  # `_answer` may return without raising a cancellation
                try:
                    if self.socket.shutdown.begun:
                        raise _shutdown_error(answers[0].frame)
                    await self._answer(answers[0], conversation)
                except FrameError as error:
                    await self._send_error(error, conversation)
                except CLIENT_ERRORS as error:
                    has_begun = not isinstance(answers[0].frame, dict) or answers[0].sink.last is not None
                    if has_begun or not is_fault_of_client(error):
                        raise
                    await self._refuse(_refused(error, self.handler), conversation)
                answers.popleft()
        except Exception as error:
            self._fail(error)
        finally:
            del self.answers[conversation]
            if self.socket.shutdown.begun and not self.answers:
                self.finished.set()

    async def _answer(self, answer: _Answer, conversation: str | None) -> None:
        frame, after = answer.frame, 0
        try:
            match frame:
                case ResumeFrame(after=after):
                    made: Any = self._known_runs.find(frame.run_id, owner=self.owner)
                case DecisionFrame() | CancelFrame():
                    await answer.is_carried_out.wait()
                    made = answer.run
                case _:
                    made = self.handler(frame, conversation)
            readable: Readable | None = await made if iscoroutine(made) else made
        except _REFUSALS as error:
            raise _refusal(error, frame) from None
        if readable is None:
            return
        if isinstance(readable, Run):
            answer.sink.run_id = readable.id
            self.continued.update(chain_of(readable.id)[1:])
        elif self.runs is not None:
            _log.warning("not_a_run", advice="return `await runs.start(…)`: a stream ends with its websocket")
        try:
            answer.reader = reader = EventReader(readable, after=after, on_disconnect=self.on_disconnect)
        except (TypeError, ValueError) as error:  # a fault of the application, not of the client
            raise UnreadableSource(f"the handler {place_of(self.handler)}: {error}") from None
        try:
            if answer.is_cancelled:
                await self._stop(reader, conversation)
                if self.socket.shutdown.over and reader.run is not None and reader.run._outlives_process:
                    raise _shutdown_error(frame)  # another process continues the run, perhaps much later
            await reader.read(answer.sink, self.socket.writer)
        except RunNotFound as error:  # it was deleted, or this process gives it up in a shutdown
            raise (_shutdown_error(frame) if self.socket.shutdown.begun else _refusal(error, frame)) from None
        finally:
            if self.socket.closed:
                reader.leave()
            await reader.close()
        has_all = isinstance(readable, Run) and readable.ended and answer.sink.last is None
        if has_all and isinstance(frame, ResumeFrame) and frame.after and not self.socket.closed:
            answer.frame, answer.sink.known = ResumeFrame(0, frame.run_id), math.inf
            await self._answer(answer, conversation)  # sends `done` again

    @property
    def _known_runs(self) -> Runs:
        if self.runs is None:
            raise RunNotFound("The server finds no runs, because `serve_websocket` has no `runs`.")
        return self.runs

    async def _carry_out(self, answer: _Answer, conversation: str | None) -> None:
        """Carry out a decision or a stop immediately. `_answer` sends what follows, after earlier answers."""
        frame = answer.frame
        try:
            if isinstance(frame, DecisionFrame):
                answer.run = await self._decide_about_run(frame, answer.sink)
            elif isinstance(frame, CancelFrame):
                answer.run = await self._stop_run(str(frame.run_id), answer.sink)
        except _REFUSALS as error:
            await self._send_error(_refusal(error, frame), conversation)
        except Exception as error:
            self._fail(error)
        finally:
            answer.is_carried_out.set()

    async def _stop_run(self, run_id: str, sink: SocketSink) -> Run | None:
        """Stop a run that is not being sent, such as a waiting one. Returns the run, of which `sink` sends `done`.

        Returns None if there is no such run, or if it has already ended, because the frame arrived too late.
        """
        sink.known = math.inf
        with suppress(RunNotFound):
            run = await self._known_runs.find(run_id, owner=self.owner)
            if not run.ended or run.suspension is not None:
                await run.stop()
                return run
        return None

    async def _decide_about_run(self, frame: DecisionFrame, sink: SocketSink) -> Run | None:
        """Decide about a call of a run. Returns the run of which `sink` sends the new events.

        Only `done` is new if other calls of the run are undecided, or if the client has already got the continuation.
        Returns None if the run is active, and not a new continuation.
        """
        run = await self._known_runs.decide(str(frame.run_id), frame.call_id, frame.decision, owner=self.owner)
        is_new = run.id.endswith(NEXT) and run.id not in self.continued and frame.call_id not in run.decisions
        self.continued.update(chain_of(run.id)[1:])
        # `attach(after)` would not do: the log may not have the copied events yet.
        sink.known = await run._copied_until() if is_new else math.inf
        return run if is_new or run.ended else None


def _refused(error: Exception, function: Callable[..., Any]) -> FrameError:
    _log.warning("message_refused", **explained(error), handler=place_of(function), advice="fix the handler or page")
    return FrameError("refused", "The server could not read the message. Its log has the reason.")


def _refusal(error: Any, frame: Frame) -> FrameError:
    """Return the error that the client gets for one of the `_REFUSALS`."""
    return FrameError(error.code, str(error), frame, **({"retry_after": RETRY_AFTER} if error.code == "ending" else {}))


def _shutdown_error(frame: Frame) -> FrameError:
    return _refusal(Draining("The server is shutting down."), frame)

"""A conversation over one websocket: messages come in, runs go out, one after the other.

One task reads the client's frames, so that it is heard while a run goes on; another asks the application for the answer
to each message and sends it. What the client says wrongly is answered, and only a client that says nothing else is sent
away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutine
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamtools.errors import DecisionRefused, Draining, OwnerUnreachable, RunNotFound, StreamToolsError
from streamtools.logs import Logger, loggable
from streamtools.outputs.encoder import HIDDEN, read_exclude
from streamtools.serving import client_frames
from streamtools.serving.client_frames import BadFrame, Mailbox, MessageFrame, RefusedFrame, ResumeFrame
from streamtools.serving.connection import OnDisconnect, Readable, attend
from streamtools.serving.requests import UNWANTED_BY
from streamtools.serving.run import Run
from streamtools.serving.run_group import Runs
from streamtools.serving.shutdown import RETRY_AFTER, Shutdown
from streamtools.serving.websockets import FAULT, GOING_AWAY, NORMAL, UNWANTED, AnyWebSocket, Socket, SocketReading
from streamtools.tools.decisions import Decidable

_log = Logger(__name__)

_FAULTS = 32  # wrong frames that a connection may send


class Session:
    """One message's side of a websocket, for the handler that answers it and the tools of that answer."""

    def __init__(self, websocket: AnyWebSocket, socket: Socket, mailbox: Mailbox) -> None:
        self.websocket = websocket
        """As the framework made it: headers, user, state."""
        self._socket = socket
        self._mailbox = mailbox

    async def tool_result(self, call_id: str) -> Any:
        """Wait for the client's result of a call, and return it; for tools that run in the browser.

        The client sees the call's `executing` event and answers with `{"tool_result": {"call_id": …, "result": …}}`.
        Raises `ToolError` if it answers with an `error`. How long to wait is the tool's own timeout.
        """
        return await self._mailbox.wait(call_id)

    async def send(self, message: Mapping[str, Any]) -> None:
        """Send the client a JSON object of the application's own; events have a `type`, so it better has none."""
        await self._socket.send_object(message)


Handler: TypeAlias = Callable[[dict[str, Any], Session], "Coroutine[Any, Any, Readable | None] | Readable | None"]
"""Gets a message and its session, and returns the run or stream that answers it, or None."""


async def serve_websocket(
    websocket: AnyWebSocket,
    handler: Handler,
    *,
    runs: Runs | None = None,
    owner: str | None = None,
    exclude: Collection[str] = HIDDEN,
    on_disconnect: OnDisconnect | None = None,
    max_frame: int = 1 << 20,
    max_values: int | None = 10_000,
    max_waiting: int = 8,
    send_timeout: float | None = 60.0,
    shutdown: Shutdown | None = None,
) -> None:
    """Answer the messages of a websocket's client until it goes; the websocket is accepted if it is not yet.

    A frame is a JSON object. `{"cancel": true}` stops the run that is being sent; `{"approval": …}` lets a call of it
    run that waits for that, or denies it; `{"tool_result": …}` is for a call that the client carries out, or for a tool
    that waits in `session.tool_result`; `{"resume": seq, "run_id": id}` sends a run of `owner`'s out of `runs` again,
    behind the event with that number, and without `run_id` the last run of this connection. Any other object is a
    message, for which `handler(message, session)` returns a run, a stream, or None. Its events are sent as they come,
    one a frame, but for the types that `exclude` names; at most `max_waiting` messages wait until they have been.

    What cannot be read, or is wrong, is answered with `{"error": {"code": …, "message": …}}`, and the connection goes
    on; after 32 of these it is closed, with 1008, or 1003 or 1009 if the last was binary or larger than `max_frame`
    characters, or than `max_values` values of JSON (None: they are not counted), which are read in the event loop. What
    is said about a call that does not wait for it is answered in the same way, with its `call_id`, and does not count.
    What the handler raises as ValueError, LookupError or TypeError, or its stream before the first event, counts as the
    client's fault: it closes the websocket with 1008, and the log has its type and line (`message_refused`). All else
    that they raise closes it with 1011 and is raised. When `shutdown` begins, the answer that is
    being given may finish for as long as that lets it; other messages are answered with the code `ending` and the
    seconds of `retry_after`, and then the websocket is closed with 1001.
    When the client goes, a stream is stopped, and a run goes on unless `on_disconnect` is `"stop"`.
    """
    if runs is not None and owner is None:
        raise ValueError("runs have owners: serve_websocket(…, runs=runs, owner=…)")
    if max_frame < 1 or max_waiting < 1 or (max_values is not None and max_values < 1):
        raise ValueError("max_frame, max_values and max_waiting are at least 1")
    socket = Socket(websocket, send_timeout=send_timeout)
    excluded = read_exclude(exclude)
    bounds = max_frame, max_values
    conversation = _Conversation(websocket, socket, handler, runs, owner or "", excluded, on_disconnect, bounds)
    await conversation.serve(max_waiting, shutdown)


@dataclass
class _Conversation:
    websocket: AnyWebSocket
    socket: Socket
    handler: Handler
    runs: Runs | None
    owner: str
    exclude: Collection[str]
    on_disconnect: OnDisconnect | None
    bounds: tuple[int, int | None]  # characters and values of a frame
    reading: SocketReading | None = None
    mailbox: Mailbox | None = None  # of the message that is being answered, of which there may be no reading yet
    run: Run | None = None  # the last of this connection
    unanswered: int = 0  # messages
    is_cancelled: bool = False  # what it is busy with
    is_ending: bool = False
    has_begun: bool = False  # to answer what came last
    code: int = NORMAL

    async def serve(self, max_waiting: int, shutdown: Shutdown | None) -> None:
        if shutdown is not None and shutdown.begun:
            await self.socket.refuse()
            return
        give, take = anyio.create_memory_object_stream[MessageFrame | ResumeFrame](max_waiting)

        async def begin_end(shutdown: Shutdown) -> None:
            await shutdown.wait()
            self.code = GOING_AWAY
            self.is_ending = True
            give.close()  # so that the other task, if it waits for a message, waits no more

        async def listen(group: TaskGroup) -> None:
            if shutdown is not None:
                group.start_soon(begin_end, shutdown)
            await self._listen(give, group)

        async def end() -> None:
            self.is_cancelled = True
            if self.reading is not None:
                await self.reading.stop()

        def leave() -> None:
            if self.reading is not None:
                self.reading.leave()

        await self.socket.accept()
        with give, take:
            fault = await attend(
                partial(self._answer_all, take),
                listen=listen,
                watch=self.socket.watch,
                leave=leave,
                shutdown=shutdown,
                stop=end,
            )
        if isinstance(fault, UNWANTED_BY) and not (self.has_begun or isinstance(fault, StreamToolsError)):
            _log.warning("message_refused", **loggable(fault))
            await self.socket.close(UNWANTED, "the message is not what is wanted here")
            return
        await self.socket.close(self.code if fault is None else FAULT)
        if fault is not None:
            raise fault

    # What comes in.

    async def _listen(self, give: MemoryObjectSendStream[MessageFrame | ResumeFrame], group: TaskGroup) -> None:
        faults = 0
        while (received := await self.socket.receive()) is not None:
            try:
                match client_frames.read_frame(received[0], *self.bounds):
                    case client_frames.CancelFrame():
                        if self.unanswered and not self.is_cancelled:
                            self.is_cancelled = True
                            if self.reading is not None:
                                group.start_soon(self.reading.stop)
                    case client_frames.ResultFrame() as result:
                        await self._hand_over(result)
                    case client_frames.ApprovalFrame() as approval:
                        await self._decide(approval)
                    case message:
                        try:
                            give.send_nowait(message)
                            self.unanswered += 1
                        except anyio.WouldBlock:
                            raise BadFrame("too_many", "too many messages wait; this one is dropped") from None
                        except anyio.ClosedResourceError:
                            raise _ending() from None
            except BadFrame as error:
                await self._complain(error)
                faults += not isinstance(error, RefusedFrame)
                if faults >= _FAULTS:
                    self.code = error.closing
                    return

    async def _complain(self, error: BadFrame) -> None:
        await self.socket.send_object({"error": error.answer})

    @property
    def _decidable(self) -> Run | Decidable | None:
        return self.reading.decidable if self.reading is not None else None

    async def _decide(self, approval: client_frames.ApprovalFrame) -> None:
        """Approve or deny a call. Raises `RefusedFrame` if nothing waits for this."""
        call_id = approval.call_id
        decidable = self._decidable
        try:
            if decidable is None:
                raise DecisionRefused(f"call {call_id[:64]!r} waits for no decision: there is nothing that asks")
            decided = decidable.decide(call_id, approval.decision)
            if decided is not None:
                await decided
        except (DecisionRefused, OwnerUnreachable) as error:
            raise RefusedFrame("decision_refused", str(error), call_id) from None

    async def _hand_over(self, frame: client_frames.ResultFrame) -> None:
        """Give a call its result, or what went wrong. Raises `RefusedFrame` if none waits for it.

        It is for the run itself if the call is one that the front end carries out, and else for the tool of ours that
        waits in `Session.tool_result`.
        """
        call_id = frame.call_id
        decidable = self._decidable
        wrong: str | None = "no call of this id waits for a result"
        questions = await decidable.questions() if isinstance(decidable, Run) else decidable and decidable.questions
        if decidable and any(each.call.id == call_id and not each.approval for each in questions or ()):
            assert self.mailbox is not None
            answered = decidable.answer(call_id, frame.result, error=frame.error)
            if answered is not None:
                await answered
            self.mailbox.close(call_id)
            return
        if self.mailbox is not None:
            wrong = self.mailbox.put(call_id, frame.result, frame.error)
        if wrong:
            raise RefusedFrame("unknown_call", f"{wrong}: {call_id}", call_id)

    # What goes out.

    async def _answer_all(self, take: MemoryObjectReceiveStream[MessageFrame | ResumeFrame]) -> None:
        async for frame in take:
            try:
                if self.is_ending:
                    raise _ending()
                await self._answer(frame)
            except BadFrame as error:
                await self._complain(error)
            self.mailbox = None
            self.unanswered -= 1
            self.is_cancelled = False

    async def _answer(self, frame: MessageFrame | ResumeFrame) -> None:
        after = 0
        self.has_begun = isinstance(frame, ResumeFrame)
        if isinstance(frame, ResumeFrame):
            readable: Readable | None = await self._find(frame.run_id)
            after = frame.after
        else:
            self.mailbox = Mailbox()
            try:
                answer: Any = self.handler(frame.message, Session(self.websocket, self.socket, self.mailbox))
                readable = await answer if iscoroutine(answer) else answer
            except Draining:
                raise _ending() from None
        if readable is None:
            return
        if isinstance(readable, Run):
            self.run = readable
            readable.mailbox = self.mailbox = readable.mailbox or self.mailbox or Mailbox()
        self.reading = reading = SocketReading(
            self.socket, self.exclude, readable, self.mailbox, after=after, on_disconnect=self.on_disconnect
        )
        try:
            if self.is_cancelled:
                await reading.stop()
            await reading.read()
        finally:
            if self.socket.gone:
                reading.leave()
            self.has_begun = self.has_begun or reading.last is not None
            self.reading = None
            await reading.close()

    async def _find(self, run_id: str | None) -> Run:
        if run_id is None and self.run is not None:
            return self.run
        if self.runs is None:
            raise BadFrame("run_not_found", "this server keeps no runs: only the last of this connection is resumed")
        if run_id is None:
            raise BadFrame("run_not_found", "there is no run to resume: say which with run_id")
        try:
            return await self.runs.find(run_id, owner=self.owner)
        except RunNotFound:
            raise BadFrame("run_not_found", "there is no such run") from None


def _ending() -> BadFrame:
    error = BadFrame("ending", "the server is about to end")
    error.answer["retry_after"] = RETRY_AFTER
    return error

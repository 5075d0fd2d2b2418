"""A conversation over one websocket: messages come in, runs go out, one after the other.

One task reads the client's frames, so that it is heard while a run goes on; another asks the application for the answer
to each message and sends it. What the client says wrongly is answered, and only a client that says nothing else is sent
away.
"""

from __future__ import annotations

from collections.abc import Collection
from inspect import iscoroutine
from typing import Any

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from streamtools.errors import RunNotFound
from streamtools.outputs.asgi.deciding import decide, hand_over
from streamtools.outputs.asgi.frames import (
    ApprovalFrame,
    BadFrame,
    CancelFrame,
    MessageFrame,
    RefusedFrame,
    ResultFrame,
    ResumeFrame,
    read_frame,
)
from streamtools.outputs.asgi.reading import OnDisconnect, Readable, Reading
from streamtools.outputs.asgi.sending import seconds
from streamtools.outputs.asgi.sessions import Handler, Session, SessionReader
from streamtools.outputs.asgi.shutdown import Shutdown
from streamtools.outputs.asgi.sockets import FAULT, GOING_AWAY, NORMAL, AnyWebSocket, Socket
from streamtools.outputs.native import HIDDEN, read_exclude
from streamtools.runs import Run, Runs
from streamtools.runs.mailbox import Mailbox
from streamtools.tools.decisions import Decidable

_FAULTS = 32  # wrong frames that a connection may send


async def serve_websocket(
    websocket: AnyWebSocket,
    handler: Handler,
    *,
    runs: Runs | None = None,
    owner: str | None = None,
    exclude: Collection[str] = HIDDEN,
    on_disconnect: OnDisconnect | None = None,
    max_frame: int = 1 << 20,
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
    characters. What is said about a call that does not wait for it is answered in the same way, with its `call_id`, and
    does not count. What the handler or a stream raises closes it with 1011 and is raised; 1001 is the server's
    `shutdown`.
    When the client goes, a stream is stopped, and a run goes on unless `on_disconnect` is `"stop"`.
    """
    if runs is not None and owner is None:
        raise ValueError("runs have owners: serve_websocket(…, runs=runs, owner=…)")
    if max_frame < 1 or max_waiting < 1:
        raise ValueError("max_frame and max_waiting are at least 1")
    seconds("send_timeout", send_timeout)
    excluded = read_exclude(exclude)
    await _Connection(websocket, handler, runs, owner or "", excluded, on_disconnect, max_frame, send_timeout).serve(
        max_waiting, shutdown
    )


class _Connection:
    def __init__(
        self,
        websocket: AnyWebSocket,
        handler: Handler,
        runs: Runs | None,
        owner: str,
        exclude: Collection[str],
        on_disconnect: OnDisconnect | None,
        max_frame: int,
        send_timeout: float | None,
    ) -> None:
        self._websocket = websocket
        self._handler = handler
        self._runs = runs
        self._owner = owner
        self._exclude = exclude
        self._on_disconnect = on_disconnect
        self._max_frame = max_frame
        self._socket = Socket(websocket, send_timeout=send_timeout)
        self._reading: Reading | None = None
        self._mailbox: Mailbox | None = None
        self._run: Run | None = None  # the last of this connection
        self._unanswered = 0  # messages; of the one that is being answered there may be no reading yet
        self._cancelled = False  # what it is busy with
        self._ending = False
        self._faults = 0
        self._code = NORMAL
        self._fault: Exception | None = None

    async def serve(self, max_waiting: int, shutdown: Shutdown | None) -> None:
        await self._socket.accept()
        give, take = anyio.create_memory_object_stream[MessageFrame | ResumeFrame](max_waiting)
        with give, take:
            async with anyio.create_task_group() as group:
                group.start_soon(self._answer_all, take, group)
                group.start_soon(self._look_on, group)
                if shutdown is not None:
                    group.start_soon(self._end, shutdown, give)
                try:
                    await self._listen(give, group)
                finally:
                    self._leave()
                group.cancel_scope.cancel()
        await self._socket.close(self._code)
        if self._fault is not None:
            raise self._fault

    def _leave(self) -> None:
        if self._reading is not None:
            self._reading.leave()

    # What comes in.

    async def _listen(self, give: MemoryObjectSendStream[MessageFrame | ResumeFrame], group: TaskGroup) -> None:
        while (received := await self._socket.receive()) is not None:
            try:
                match read_frame(received[0], self._max_frame):
                    case CancelFrame():
                        await self._cancel(group)
                    case ResultFrame() as result:
                        hand_over(result, self._decidable, self._mailbox)
                    case ApprovalFrame() as decided:
                        decide(decided, self._decidable)
                    case message:
                        try:
                            give.send_nowait(message)
                            self._unanswered += 1
                        except anyio.WouldBlock:
                            raise BadFrame("too_many", "too many messages wait; this one is dropped") from None
                        except anyio.ClosedResourceError:
                            raise BadFrame("ending", "the server is about to end") from None
            except RefusedFrame as error:
                await self._complain(error)
            except BadFrame as error:
                self._faults += 1
                await self._complain(error)
                if self._faults >= _FAULTS:
                    self._code = error.closing
                    return

    async def _complain(self, error: BadFrame) -> None:
        await self._socket.send_object({"error": error.told})

    async def _cancel(self, group: TaskGroup) -> None:
        if self._unanswered and not self._cancelled:
            self._cancelled = True
            if self._reading is not None:
                group.start_soon(self._reading.stop)

    @property
    def _decidable(self) -> Decidable | None:
        return self._reading.decidable if self._reading is not None else None

    # What goes out.

    async def _answer_all(self, take: MemoryObjectReceiveStream[MessageFrame | ResumeFrame], group: TaskGroup) -> None:
        try:
            async for frame in take:
                if self._ending:
                    break
                await self._answer(frame)
                self._unanswered -= 1
                self._cancelled = self._ending
        except Exception as error:  # and the group is not shown it: it would wrap it
            self._fault, self._code = error, FAULT
        finally:
            group.cancel_scope.cancel()

    async def _answer(self, frame: MessageFrame | ResumeFrame) -> None:
        after = 0
        if isinstance(frame, ResumeFrame):
            try:
                readable: Readable = await self._find(frame.run_id)
            except BadFrame as error:
                await self._complain(error)
                return
            after = frame.after
        else:
            self._mailbox = Mailbox()
            answer: Any = self._handler(frame.message, Session(self._websocket, self._socket, self._mailbox))
            readable = await answer if iscoroutine(answer) else answer
        if isinstance(readable, Run):
            self._run = readable
            readable.mailbox = self._mailbox = readable.mailbox or self._mailbox or Mailbox()
        if readable is not None:
            await self._send(Reading(readable, after=after, on_disconnect=self._on_disconnect))
        self._mailbox = None

    async def _find(self, run_id: str | None) -> Run:
        if run_id is None and self._run is not None:
            return self._run
        if self._runs is None:
            raise BadFrame("run_not_found", "this server keeps no runs: only the last of this connection is resumed")
        if run_id is None:
            raise BadFrame("run_not_found", "there is no run to resume: say which with run_id")
        try:
            return await self._runs.find(run_id, owner=self._owner)
        except RunNotFound:
            raise BadFrame("run_not_found", "there is no such run") from None

    async def _send(self, reading: Reading) -> None:
        assert self._mailbox is not None
        self._reading = reading
        reader = SessionReader(self._socket, reading, self._exclude, self._mailbox)
        try:
            if self._cancelled:
                await reading.stop()
            await reading.run(reader)
        finally:
            if self._socket.gone:
                reading.leave()
            self._reading = None
            await reading.close()

    # What ends it.

    async def _look_on(self, group: TaskGroup) -> None:
        await self._socket.watch()
        self._leave()
        group.cancel_scope.cancel()

    async def _end(self, shutdown: Shutdown, give: MemoryObjectSendStream[MessageFrame | ResumeFrame]) -> None:
        await shutdown.wait()
        self._code = GOING_AWAY
        self._ending = True
        give.close()  # so that the other task, if it waits for a message, waits no more
        self._cancelled = True
        if self._reading is not None:
            await self._reading.stop()

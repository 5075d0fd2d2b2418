"""UI events over a websocket, one way: each event is one text frame."""

from __future__ import annotations

from collections.abc import Collection

import anyio
from anyio.abc import TaskGroup

from streamtools.outputs.asgi.reading import OnDisconnect, Readable, Reading
from streamtools.outputs.asgi.shutdown import Shutdown
from streamtools.outputs.asgi.sockets import FAULT, GOING_AWAY, NORMAL, AnyWebSocket, Socket, SocketReader
from streamtools.outputs.native import HIDDEN, read_exclude


async def send_events(
    websocket: AnyWebSocket,
    run_or_stream: Readable,
    *,
    after: int = 0,
    exclude: Collection[str] = HIDDEN,
    on_disconnect: OnDisconnect | None = None,
    send_timeout: float | None = 60.0,
    shutdown: Shutdown | None = None,
) -> None:
    """Send the events of a run or a stream, each as one text frame, and close the websocket behind the last.

    `exclude` names types of events that are not sent, by default `follow-up`, which holds what the model is told. The
    other parameters are those of `event_stream_response`; the websocket is accepted if it is not yet, and what its
    client says is not listened to. Returns when it is closed, or the client has gone. The close code is 1000 at the
    end, 1001 when `shutdown` has begun, and 1011 if the stream raises, which is then raised.
    """
    excluded = read_exclude(exclude)
    reading = Reading(run_or_stream, after=after, on_disconnect=on_disconnect)
    socket = Socket(websocket, send_timeout=send_timeout)
    fault: Exception | None = None

    async def deliver(group: TaskGroup) -> None:
        nonlocal fault
        try:
            await reading.run(SocketReader(socket, reading, excluded))
        except Exception as error:  # and the group is not shown it: it would wrap it
            fault = error
        finally:
            group.cancel_scope.cancel()

    async def look_on(group: TaskGroup) -> None:
        await socket.watch()
        reading.leave()
        group.cancel_scope.cancel()

    async def stop(shutdown: Shutdown) -> None:
        await shutdown.wait()
        await reading.stop()

    try:
        await socket.accept()
        async with anyio.create_task_group() as group:
            group.start_soon(deliver, group)
            group.start_soon(look_on, group)
            if shutdown is not None:
                group.start_soon(stop, shutdown)
            try:
                while await socket.receive() is not None:
                    pass
            finally:
                reading.leave()
            group.cancel_scope.cancel()
    finally:
        await reading.close()
    ending = shutdown is not None and shutdown.begun
    await socket.close(FAULT if fault is not None else GOING_AWAY if ending else NORMAL)
    if fault is not None:
        raise fault

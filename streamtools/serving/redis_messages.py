"""Messages between the processes of a `RedisStore`. Each process has a stream for requests and for answers.

A process asks the owner of a run to stop it, to report its questions or to decide about a call, and waits for the
answer within a lease.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from streamtools.errors import OwnerUnreachable
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.redis_server import RedisServer, milliseconds

log = Logger(__name__)


class RedisMessages:
    """Sends the messages of one process, and passes requests of others to `answer`."""

    def __init__(
        self,
        server: RedisServer,
        tasks: TaskGroup,
        answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
    ) -> None:
        self.process_id = secrets.token_hex(8)
        self._server = server
        self._tasks = tasks
        self._answer = answer
        self._pending: dict[str, tuple[anyio.Event, dict[str, Any]]] = {}  # requests and their answers

    async def ask(self, key: str, request: dict[str, Any], *, also_ended: bool = False) -> dict[str, Any]:
        """Return the answer of a run's owner. Without `also_ended`, the answer for an ended run is `{"over": True}`.

        Raises `OwnerUnreachable` if no answer arrives within a lease.
        """
        answer = dict[str, Any]()
        id, arrived = secrets.token_hex(8), anyio.Event()
        self._pending[id] = arrived, answer
        try:
            with anyio.fail_after(self._server.settings.lease):
                state = await self._server.run_state(key)
                if not state.token or (state.is_over and not also_ended):
                    return {"over": True}
                message = {**request, "key": key, "id": id, "from": self.process_id}
                await self.send(state.token.partition(":")[2], message)
                await arrived.wait()
        except Exception as error:
            raise OwnerUnreachable("The process that drives the run does not answer.") from error
        finally:
            del self._pending[id]
        return answer

    def ask_in_background(self, key: str, request: dict[str, Any]) -> None:
        """Send a request without waiting for its answer."""

        async def ask() -> None:
            with suppress(OwnerUnreachable):
                await self.ask(key, request)

        self._tasks.start_soon(ask)

    async def send(self, process_id: str, message: dict[str, Any]) -> None:
        """Send a message to a process."""
        settings = self._server.settings
        keep = milliseconds(max(settings.keep, 4 * settings.lease))
        await self._server.run_script(scripts.SEND, (self.stream(process_id),), keep, msgspec.json.encode(message))

    def receive(self, data: bytes) -> None:
        """Handle a message from the stream of this process."""
        try:
            message = msgspec.json.decode(data, type=dict[str, Any])
            match message["kind"]:
                case "wake":
                    pass
                case "answer":
                    if (pending := self._pending.get(message["id"])) is not None:
                        arrived, answer = pending
                        answer.update(message["answer"])
                        arrived.set()
                case _:
                    self._tasks.start_soon(self._handle, message)
        except Exception as error:  # another version may send it, and later messages must still be read
            log.warning("message_not_read", **loggable(error))

    def stream(self, process_id: str) -> str:
        """Return the key of a process's stream."""
        return self._server.shared_key("process", process_id)

    async def _handle(self, message: dict[str, Any]) -> None:
        try:
            answer = await self._answer(message["key"], message)
            await self.send(message["from"], {"kind": "answer", "id": message["id"], "answer": answer})
        except Exception as error:
            log.warning("message_not_answered", kind=message["kind"], **loggable(error))

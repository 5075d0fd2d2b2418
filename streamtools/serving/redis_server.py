"""Access to a Redis server that the processes of a `RedisStore` share: commands, retries and messages.

`redis_protocol.py` describes the data on the server. The driving process of a run is the process that produces its
events.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, OwnerUnreachable
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_protocol as scripts
from streamtools.serving.redis_protocol import Keys, RunState
from streamtools.tools.redis_client import Cipher, RedisClient, Unencrypted, Word

log = Logger(__name__)

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
"""The first and the longest pause between attempts to reach the server, in seconds.

Each pause is twice as long as the previous pause, up to the longest.
"""


class StoreSettings(NamedTuple):
    """The settings that must be equal in all processes. `RedisStore` describes them."""

    prefix: str
    lease: float
    keep: float
    max_events: int
    max_outage: float
    cipher: Cipher = Unencrypted()


class RedisServer:
    """Runs commands and scripts on one Redis server of a store."""

    def __init__(self, client: RedisClient, settings: StoreSettings) -> None:
        self.client = client
        self.settings = settings
        self.keys = Keys(settings.prefix)
        self.closed: ClosedError | None = None
        """The error that commands raise after the store has been closed; None while it is open."""

    async def retry(self, *args: Word, seconds: float | None = None) -> Any:
        """Send an idempotent command and return its reply. Repeats the command if it fails.

        Raises `OwnerUnreachable` if the command still fails after `seconds`, by default a third of the lease. Raises
        `ClosedError` after the store has been closed.
        """
        pause = FIRST_RETRY_S
        deadline = anyio.current_time() + (self.settings.lease / 3 if seconds is None else seconds)
        while self.closed is None:
            try:
                return await self.client.execute(*args)
            except Exception as error:
                if anyio.current_time() > deadline:
                    raise OwnerUnreachable("The Redis server of the runs does not answer.") from error
            await anyio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_S)
        raise self.closed

    async def run_script(self, script: str, keys: Iterable[str], *args: Word) -> Any:
        """Run a Lua script and return its result."""
        names = list(keys)
        return await self.client.execute("EVAL", script, len(names), *names, *args)

    async def run_state(self, key: str, seq: int | None = None) -> RunState:
        """Return the state of a run. Its field `written_by` is about the event `seq`, or about the last event."""
        log, meta, *_ = self.keys.of_run(key)
        args = ("EVAL", scripts.STATE, 2, log, meta, "" if seq is None else seq)
        first, last, epoch, process_id, *others = await self.retry(*args, seconds=self.settings.max_outage)
        return RunState(first, last, epoch, process_id.decode(), *others)

    async def store(
        self, key: str, field: str, value: str | bytes = "", *, token: str = "", read: Sequence[str] = ()
    ) -> list[bytes | None]:
        """Store a field of a run, if the run does not have it and `value` is not empty.

        Returns the values of the fields in `read`, by default the value of `field`. Stores nothing and returns [] if
        the run is unknown, or if `token` is given and differs from the token of the run.
        """
        meta = self.keys.of_run(key).meta
        fields: list[bytes | None]
        fields = await self.retry("EVAL", scripts.STORE, 1, meta, token, field, value, *(read or (field,)))
        return fields

    async def read_result(self, key: str) -> bytes | None:
        """Return the stored result of a run; None if the run has not ended or is unknown."""
        result: bytes | None = await self.retry("HGET", self.keys.of_run(key).meta, "ended")
        return result


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


class RedisMessages:
    """Exchanges messages between this process and the other processes of the store.

    Each process has one Redis stream, from which it reads requests and answers. A process asks the process that drives
    a run to stop the run, to report its end, to return its open questions, or to decide a call. The answer must arrive
    within the time of a lease. `answer(key, request)` answers the requests of other processes.
    """

    def __init__(
        self, server: RedisServer, tasks: TaskGroup, answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> None:
        self.process_id = secrets.token_hex(8)
        self._server = server
        self._tasks = tasks
        self._answer = answer
        # By request id: an event that is set when the answer has arrived, and the answer.
        self._pending: dict[str, tuple[anyio.Event, dict[str, Any]]] = {}

    async def ask(self, key: str, request: dict[str, Any], *, also_ended: bool = False) -> dict[str, Any]:
        """Send a request to the process that drives a run, and return its answer.

        The answer is `{"over": True}` for an unknown run and, with `also_ended=False`, for an ended run. While another
        process takes the run over, the request is repeated. Raises `OwnerUnreachable` if no answer arrives within the
        time of a lease, or if the request fails.
        """
        id = secrets.token_hex(8)
        try:
            with anyio.fail_after(self._server.settings.lease):
                while True:
                    state = await self._server.run_state(key)
                    if not state.epoch or (state.is_over and not also_ended):
                        return {"over": True}
                    if state.process_id:
                        self._pending[id] = arrived, answer = anyio.Event(), dict[str, Any]()
                        await self.send(state.process_id, {**request, "key": key, "id": id, "from": self.process_id})
                        await arrived.wait()
                        if state.is_over or not answer.get("over"):
                            return answer
                    await anyio.sleep(FIRST_RETRY_S)  # another process takes the run over, or the run has just ended
        except Exception as error:
            raise OwnerUnreachable("The process that drives the run does not answer.") from error
        finally:
            self._pending.pop(id, None)

    async def send(self, process_id: str, message: dict[str, Any]) -> None:
        """Append a message to the stream of a process."""
        settings = self._server.settings
        keep = milliseconds(max(settings.keep, 4 * settings.lease))
        data = settings.cipher.encrypt(msgspec.json.encode(message))
        await self._server.run_script(scripts.SEND, (self._server.keys.of_process(process_id),), keep, data)

    def receive(self, data: bytes) -> None:
        """Handle a message from the stream of this process."""
        try:
            message = msgspec.json.decode(self._server.settings.cipher.decrypt(data), type=dict[str, Any])
            if message["kind"] == "answer" and (pending := self._pending.get(message["id"])) is not None:
                arrived, answer = pending
                answer.update(message["answer"])
                arrived.set()
            elif message["kind"] not in ("answer", "wake"):
                self._tasks.start_soon(self._handle, message)
        except Exception as error:  # another version of streamtools may have sent it; later messages must still be read
            log.warning("message_not_read", **loggable(error))

    async def _handle(self, message: dict[str, Any]) -> None:
        try:
            answer = await self._answer(message["key"], message)
            await self.send(message["from"], {"kind": "answer", "id": message["id"], "answer": answer})
        except Exception as error:
            log.warning("message_not_answered", kind=message["kind"], **loggable(error))

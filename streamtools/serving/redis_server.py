"""Access to a Redis server that the processes of a `RedisStore` share: keys, scripts, retries and messages.

`owner` is the user to whom a run belongs. The driving process of a run is the process that produces its events.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import anyio
import msgspec
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, OwnerUnreachable
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.event_log import log_key
from streamtools.serving.run import NEXT
from streamtools.tools.redis_client import RedisClient, Word

log = Logger(__name__)

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
"""Seconds of the first and the longest pause between attempts to reach the server. Each pause doubles the last one."""


class StoreSettings(NamedTuple):
    """The settings that must be equal in all processes. `RedisStore` describes them."""

    prefix: str
    lease: float
    keep: float
    max_events: int
    max_outage: float


class RunKeys(NamedTuple):
    """The Redis keys of one run. They share a hash tag: the part in braces."""

    log: str
    meta: str
    lease: str
    readers: str


class OwnerKeys(NamedTuple):
    """The Redis keys of one user.

    `runs` holds the ids of all runs, `conversations` the last run of each conversation, and `running` the runs that
    have not ended. `kept` expires with the last run that has ended.
    """

    runs: str
    conversations: str
    running: str
    kept: str


class RunState(NamedTuple):
    """The state of a run on the server.

    `first` and `last` are the first and the last seq in the log. `token` is `"<epoch>:<process id>"` of the driving
    process, or empty if the run is unknown. `claim_seq` was the last seq when the driving process claimed the run.
    `is_over` is True after the end of the run. `written_by` is the epoch under which the event was written for which
    the state was requested, or 0 if the log does not contain this event.
    """

    first: int
    last: int
    token: str
    claim_seq: int
    is_over: bool
    written_by: int


class RedisServer:
    """Runs commands and scripts on one Redis server of a store."""

    def __init__(self, client: RedisClient, settings: StoreSettings) -> None:
        self.client = client
        self.settings = settings
        self.closed: ClosedError | None = None
        """The error that commands raise after the store has been closed; None while it is open."""

    def shared_key(self, *names: str) -> str:
        """Return a Redis key that belongs to no run: the prefix of the store and `names`, joined by colons."""
        return ":".join((self.settings.prefix, *names))

    def run_keys(self, key: str) -> RunKeys:
        stem = f"{self.settings.prefix}:{{{key}}}:"
        return RunKeys(stem + "log", stem + "meta", stem + "lease", stem + "readers")

    def owner_keys(self, owner: str) -> OwnerKeys:
        stem = f"{self.settings.prefix}:{{{log_key(owner, '')}}}:"
        return OwnerKeys(stem + "runs", stem + "conversations", stem + "running", stem + "kept")

    def keys_before(self, owner: str, run_id: str) -> list[str]:
        """Return the keys of the log and the meta of each run that a run continues, the last one first."""
        names = list[str]()
        while run_id.endswith(NEXT):
            run_id = run_id.removesuffix(NEXT)
            names += self.run_keys(log_key(owner, run_id))[:2]
        return names

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
        """Return the state of a run. Its `written_by` is about the event `seq`, by default the last event."""
        keys = self.run_keys(key)
        args = ("EVAL", scripts.STATE, 2, keys.log, keys.meta, "" if seq is None else seq)
        first, last, token, claim_seq, is_over, written_by = await self.retry(*args, seconds=self.settings.max_outage)
        return RunState(first, last, token.decode(), claim_seq, bool(is_over), written_by)

    async def read_result(self, key: str) -> bytes | None:
        """Return the stored result of a run; None if the run has not ended or is unknown."""
        result: bytes | None = await self.retry("HGET", self.run_keys(key).meta, "ended")
        return result


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))


class RedisMessages:
    """Exchanges messages between this process and the other processes of the store.

    Each process has one Redis stream, from which it reads requests and answers. A process sends requests about a run to
    the process that drives the run: to stop the run, to wait for its end, to return its approval questions, or to
    decide a call. The answer must arrive within the time of a lease. `answer(key, request)` answers the requests of
    other processes.
    """

    def __init__(
        self, server: RedisServer, tasks: TaskGroup, answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
    ) -> None:
        self.process_id = secrets.token_hex(8)
        self._server = server
        self._tasks = tasks
        self._answer = answer
        # By request id: an event, which is set when the answer has arrived, and the answer.
        self._pending: dict[str, tuple[anyio.Event, dict[str, Any]]] = {}

    async def ask(self, key: str, request: dict[str, Any], *, also_ended: bool = False) -> dict[str, Any]:
        """Send a request to the process that drives a run, and return its answer.

        The answer is `{"over": True}` for an unknown run, and for an ended run unless `also_ended` is True. While
        another process takes the run over, the request is repeated.
        Raises `OwnerUnreachable` if no answer arrives within the time of a lease.
        """
        id = secrets.token_hex(8)
        try:
            with anyio.fail_after(self._server.settings.lease):
                while True:
                    state = await self._server.run_state(key)
                    if not state.token or (state.is_over and not also_ended):
                        return {"over": True}
                    self._pending[id] = arrived, answer = anyio.Event(), dict[str, Any]()
                    message = {**request, "key": key, "id": id, "from": self.process_id}
                    await self.send(state.token.partition(":")[2], message)
                    await arrived.wait()
                    if state.is_over or not answer.get("over"):
                        return answer
                    await anyio.sleep(FIRST_RETRY_S)  # another process is taking the run over, or it has just ended
        except Exception as error:
            raise OwnerUnreachable("The process that drives the run does not answer.") from error
        finally:
            self._pending.pop(id, None)

    def ask_in_background(self, key: str, request: dict[str, Any]) -> None:
        """Send a request in a background task that ignores the answer."""

        async def ask() -> None:
            with suppress(OwnerUnreachable):
                await self.ask(key, request)

        self._tasks.start_soon(ask)

    async def send(self, process_id: str, message: dict[str, Any]) -> None:
        """Append a message to the stream of a process."""
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
        except Exception as error:  # another version of streamtools may have sent it; later messages must still be read
            log.warning("message_not_read", **loggable(error))

    def stream(self, process_id: str) -> str:
        """Return the Redis key of the stream of a process."""
        return self._server.shared_key("process", process_id)

    async def _handle(self, message: dict[str, Any]) -> None:
        try:
            answer = await self._answer(message["key"], message)
            await self.send(message["from"], {"kind": "answer", "id": message["id"], "answer": answer})
        except Exception as error:
            log.warning("message_not_answered", kind=message["kind"], **loggable(error))

"""What processes say to each other in Redis: each has a stream in which it is asked, and answered, by its id.

An owner is asked to stop a run, what that waits for, and to decide; whoever asks waits for the answer within a lease.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import anyio
import msgspec
from anyio.abc import TaskGroup

from streamtools.errors import ClosedError, OwnerUnreachable
from streamtools.logs import Logger, loggable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.redis_log import Agreed, Look
from streamtools.serving.redis_scripts import run_keys
from streamtools.tools.redis_client import RedisClient, Word

log = Logger(__name__)

LONGEST = 1.0  # seconds between two attempts to reach the server


class Talking:
    """A process that asks others and answers them. `on_message` does the latter."""

    def __init__(self, client: RedisClient, tasks: TaskGroup, settings: Agreed) -> None:
        self.id = secrets.token_hex(8)
        self.on_message: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
        self._client = client
        self._tasks = tasks
        self._set = settings
        self._answers: dict[str, tuple[anyio.Event, dict[str, Any]]] = {}
        self._closed: ClosedError | None = None

    async def patiently(self, *args: Word, seconds: float | None = None) -> Any:
        """Return the reply to a command that may be sent twice; while the server is away, try again for a while."""
        pause, until = 0.05, anyio.current_time() + (self._set.lease / 3 if seconds is None else seconds)
        while self._closed is None:
            try:
                return await self._client.execute(*args)
            except Exception as error:
                if anyio.current_time() > until:
                    raise OwnerUnreachable("the server that holds the runs does not answer") from error
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST)
        raise self._closed

    async def look(self, key: str, at: int | None = None) -> Look:
        """Return how a run stands, and who has written the event of this `seq`, or the last."""
        keys = run_keys(self._set.prefix, key)
        args = ("EVAL", scripts.LOOK, 2, keys.log, keys.meta, "" if at is None else at)
        first, last, token, since, over, written = await self.patiently(*args, seconds=self._set.patience)
        return Look(first, last, token.decode(), since, bool(over), written)

    def shared(self, *names: str) -> str:
        """Return a key that is none of a run's."""
        return ":".join((self._set.prefix, *names))

    async def run_script(self, script: str, keys: Iterable[str], *args: Word) -> Any:
        """Return what a script returns. It is sent by its digest, and whole where the server does not know that."""
        names = list(keys)
        words = (len(names), *names, *args)
        try:
            return await self._client.execute("EVALSHA", _digest(script), *words)
        except Exception as error:  # each library has another class for it, and some leave out the first word
            if "no matching script" not in str(error).lower():
                raise
        return await self._client.execute("EVAL", script, *words)

    async def ask(self, key: str, message: dict[str, Any], *, is_over: bool = False) -> dict[str, Any]:
        """Return what the owner of a run answers, `over` for one that has ended, unless that `is_over` is known.

        Raises `OwnerUnreachable` where it does not, within a lease.
        """
        answer = dict[str, Any]()
        id, heard = secrets.token_hex(8), anyio.Event()
        self._answers[id] = heard, answer
        try:
            with anyio.fail_after(self._set.lease):
                look = await self.look(key)
                if not look.token or (look.is_over and not is_over):
                    return {"over": True}
                await self._send(look.token.partition(":")[2], {**message, "key": key, "id": id, "from": self.id})
                await heard.wait()
        except Exception as error:
            raise OwnerUnreachable("the process that drives the run does not answer") from error
        finally:
            del self._answers[id]
        return answer

    def tell(self, key: str, message: dict[str, Any]) -> None:
        """Ask the owner of a run, without waiting for that."""

        async def ask() -> None:
            with suppress(OwnerUnreachable):
                await self.ask(key, message)

        self._tasks.start_soon(ask)

    async def _send(self, process: str, message: dict[str, Any]) -> None:
        kept = self._ms(max(self._set.keep, 4 * self._set.lease))
        await self.run_script(scripts.SEND, (self._stream(process),), kept, msgspec.json.encode(message))

    def _take(self, data: bytes) -> None:
        try:
            message = msgspec.json.decode(data, type=dict[str, Any])
            match message["kind"]:
                case "wake":
                    pass
                case "answer":
                    if (waiting := self._answers.get(message["id"])) is not None:
                        waiting[1].update(message["answer"])
                        waiting[0].set()
                case _:
                    self._tasks.start_soon(self._answer, message)
        except Exception as error:  # of another version, say: what comes with it is heard
            log.warning("message_not_read", **loggable(error))

    async def _answer(self, message: dict[str, Any]) -> None:
        try:
            answer = await self.on_message(message["key"], message)
            await self._send(message["from"], {"kind": "answer", "id": message["id"], "answer": answer})
        except Exception as error:
            log.warning("message_not_answered", kind=message["kind"], **loggable(error))

    def _stream(self, process: str) -> str:
        return self.shared("process", process)

    def _ms(self, seconds: float) -> int:
        return max(1, int(seconds * 1000))


@cache
def _digest(script: str) -> str:
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

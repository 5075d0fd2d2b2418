"""What the commands share that serve: a socket that listens, and a server until a signal ends it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, TextIO

from streamtools.apps.cli.complaints import Refused

_PATIENCE = 20  # seconds that answers may take to be left when the server ends


@contextmanager
def needing_a_server(what: str) -> Iterator[None]:
    """Raise `Refused` where an import inside lacks the extra `web`."""
    try:
        import uvicorn  # noqa: F401

        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise Refused(f'{what} needs {error.name}: pip install "streamtools[cli,web]"') from None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; raise `Refused` if there is none to be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        is_dual = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=is_dual)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Refused(f"port {port} is taken: choose another with --port, or --port 0 for any", status=1) from error
        raise Refused(f"nothing can listen at {host}, port {port}: {error.strerror or error}", status=1) from error


def is_here(listener: socket.socket) -> bool:
    """Whether only this machine reaches what listens there."""
    return ip_address(listener.getsockname()[0]).is_loopback


def name_of(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def run_server(app: Any, listener: socket.socket, banner: str, output: TextIO, *, patience: float = _PATIENCE) -> None:
    """Say in one line that the server listens, and serve until a signal ends the process."""
    import uvicorn

    config = uvicorn.Config(app, lifespan="on", log_config=None, access_log=False, server_header=False)
    config.timeout_graceful_shutdown = int(patience)
    if banner:
        output.write(f"{banner}\n")
        output.flush()
    uvicorn.Server(config).run(sockets=[listener])

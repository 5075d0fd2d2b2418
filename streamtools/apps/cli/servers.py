"""Opens a socket and runs an application with uvicorn, for the commands `serve` and `gateway`."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, TextIO

from streamtools.apps.cli.errors import CommandError

_SHUTDOWN_TIMEOUT_S = 20


@contextmanager
def require_web_extra(name: str) -> Iterator[None]:
    """Raise CommandError if an import in the `with` block fails because the extra `web` is not installed.

    The message begins with `name`, such as "the gateway".
    """
    try:
        import uvicorn  # noqa: F401

        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
            raise
        raise CommandError(f'{name} needs {error.name}: pip install "streamtools[cli,web]"') from None


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises CommandError if that fails."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(address, family=family, dualstack_ipv6=dual_stack)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} is in use: choose another port with --port, or --port 0 for any free port"
            raise CommandError(message, status=1) from error
        message = f"cannot listen on {host}, port {port}: {error.strerror or error}"
        raise CommandError(message, status=1) from error


def is_loopback(listener: socket.socket) -> bool:
    """Return True if only the local machine can connect to the socket."""
    return ip_address(listener.getsockname()[0]).is_loopback


def url_host(host: str) -> str:
    """Return a host in the form for URLs. IPv6 addresses are enclosed in brackets."""
    return f"[{host}]" if ":" in host else host


def run_server(
    app: Any, listener: socket.socket, banner: str, output: TextIO, *, shutdown_timeout: float = _SHUTDOWN_TIMEOUT_S
) -> None:
    """Print the banner, and run the server until a signal ends the process.

    After the signal, open requests have `shutdown_timeout` seconds to end.
    """
    import uvicorn

    config = uvicorn.Config(app, lifespan="on", log_config=None, access_log=False, server_header=False)
    config.timeout_graceful_shutdown = int(shutdown_timeout)
    output.write(f"{banner}\n")
    output.flush()
    uvicorn.Server(config).run(sockets=[listener])

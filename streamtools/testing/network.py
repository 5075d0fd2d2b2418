"""Blocks the network during a test. An attempt to use the network raises an error, and is added to a list.

asyncio, trio and Python clients connect, send and resolve names with functions of the standard library. These functions
are replaced during the test. An event loop in C, such as uvloop, connects without them. Such a loop is blocked
only if it resolves names with Python.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from streamtools.errors import StreamToolsError

_LOCAL_NAMES = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
_ADDRESS_ARGUMENTS = {"connect": slice(1), "connect_ex": slice(1), "sendto": slice(1, None), "sendmsg": slice(3, None)}
"""Maps socket methods to the slice of their arguments that may hold the address. In `sendto`, flags may precede the
address."""


class NetworkBlocked(StreamToolsError, RuntimeError):
    """Raised when a test tries to use the blocked network.

    It is not a subclass of OSError, because clients retry after an OSError, or convert it to another error.
    """


@contextmanager
def blocked(advice: str, *, allow: Collection[str] = ()) -> Iterator[list[str]]:
    """Block the network. The local machine and the hosts in `allow` (names or addresses) stay reachable.

    Yields a list, to which each attempt is added as `host:port` or as a name. `advice` is the end of the error message.
    """
    guard = _Guard(advice, allow)
    replacements: list[tuple[Any, str, Callable[..., Any]]] = [
        *((socket.socket, name, partial(guard.wrap_send, address=part)) for name, part in _ADDRESS_ARGUMENTS.items()),
        (socket, "getaddrinfo", guard.wrap_resolve),
    ]
    with ExitStack() as stack:
        for owner, name, wrap in replacements:
            if hasattr(owner, name):  # not all systems have all of these functions
                stack.enter_context(patch.object(owner, name, wrap(getattr(owner, name))))
        yield guard.attempts


class _Guard:
    """Wraps functions that use the network. The wrappers raise NetworkBlocked for hosts that are not allowed."""

    def __init__(self, advice: str, allow: Collection[str]) -> None:
        self._advice = advice
        self._allowed = {host.lower() for host in allow}
        self.attempts: list[str] = []

    def wrap_send(self, send: Callable[..., Any], *, address: slice) -> Callable[..., Any]:
        def checked(sock: socket.socket, *args: Any) -> Any:
            for target in args[address]:
                if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(target, tuple) and len(target) > 1:
                    self._check(target[0], target[1])
            return send(sock, *args)

        return checked

    def wrap_resolve(self, resolve: Callable[..., Any]) -> Callable[..., Any]:
        def checked(host: Any, *args: Any, **named: Any) -> Any:
            self._check(host, named.get("port", args[0] if args else None))
            found = resolve(host, *args, **named)
            # The addresses of an allowed host are also allowed.
            self._allowed.update(str(item[4][0]).lower() for item in found)
            return found

        return checked

    def _check(self, host: Any, port: Any) -> None:
        if isinstance(host, bytes | bytearray):  # the socket functions also accept bytes
            host = host.decode("latin-1")
        if not (isinstance(host, str) and host.lower() not in self._allowed and not _is_local(host)):
            return
        target = f"[{host}]" if ":" in host else host
        target = target if port is None else f"{target}:{port}"
        self.attempts.append(target)
        raise NetworkBlocked(f"the network is blocked in this test, which tried to reach {target}: {self._advice}")


def _is_local(host: str) -> bool:
    if host.lower().rstrip(".") in (*_LOCAL_NAMES, socket.gethostname().lower()):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified

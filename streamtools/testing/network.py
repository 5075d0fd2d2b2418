"""Blocks the network in a test: what asks for it fails with what to do, and is noted.

The methods and functions of the standard library are replaced through which asyncio, trio and every client
written in Python connect, send or look up a name; what was there before is put back. A loop written in C (uvloop)
connects by itself and is not held back, except where it looks up names through Python.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

from streamtools.errors import StreamToolsError

_NAMES_OF_THIS_MACHINE = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
_ADDRESS = {"connect": slice(1), "connect_ex": slice(1), "sendto": slice(1, None), "sendmsg": slice(3, None)}
"""Among which arguments of the methods of sockets the address stands; of `sendto`, flags may stand before it."""
_FOUND: dict[str, Callable[[Any], Iterable[str]]] = {
    "getaddrinfo": lambda found: (str(each[4][0]).lower() for each in found),
    "gethostbyname": lambda found: [found],
    "gethostbyname_ex": lambda found: found[2],
}
"""Which addresses the functions that look up a name have found."""


class NetworkBlocked(StreamToolsError, RuntimeError):
    """A test that must not reach the network tried to.

    Not an OSError: clients take those for bad weather, try again, or report that all attempts have failed.
    """


@contextmanager
def blocked(advice: str, *, allow: Collection[str] = ()) -> Iterator[list[str]]:
    """Block the network but for this machine and the hosts in `allow`, names or addresses.

    Yields the list of what was tried, `host:port` each, or a name that was looked up, as it grows. `advice` is the end
    of the message of an attempt.
    """
    guard = _Guard(advice, allow)
    places: list[tuple[Any, str, Callable[..., Any]]] = [
        *((socket.socket, name, partial(guard.send, address=address)) for name, address in _ADDRESS.items()),
        *((socket, name, partial(guard.look_up, addresses=addresses)) for name, addresses in _FOUND.items()),
    ]
    with ExitStack() as replaced:
        for owner, name, wrap in places:
            if hasattr(owner, name):  # not every system has all of them
                replaced.enter_context(patch.object(owner, name, wrap(getattr(owner, name))))
        yield guard.tried


class _Guard:
    def __init__(self, advice: str, allow: Collection[str]) -> None:
        self._advice = advice
        self._allowed = {host.lower() for host in allow}
        self.tried: list[str] = []

    def send(self, send: Callable[..., Any], *, address: slice) -> Callable[..., Any]:
        def checked(sock: socket.socket, *args: Any) -> Any:
            for to in args[address]:
                if sock.family in (socket.AF_INET, socket.AF_INET6) and isinstance(to, tuple) and len(to) > 1:
                    self._check(to[0], to[1])
            return send(sock, *args)

        return checked

    def look_up(self, look_up: Callable[..., Any], *, addresses: Callable[[Any], Iterable[str]]) -> Callable[..., Any]:
        def checked(host: Any, *args: Any, **named: Any) -> Any:
            self._check(host, named.get("port", args[0] if args else None))
            found = look_up(host, *args, **named)
            self._allowed.update(addresses(found))
            return found

        return checked

    def _check(self, host: Any, port: Any) -> None:
        if isinstance(host, bytes | bytearray):  # the system takes them, too
            host = host.decode("latin-1")
        if not (isinstance(host, str) and host.lower() not in self._allowed and not _is_here(host)):
            return
        where = f"[{host}]" if ":" in host else host
        where = where if port is None else f"{where}:{port}"
        self.tried.append(where)
        raise NetworkBlocked(f"the network is blocked in this test, and it asked for {where}: {self._advice}")


def _is_here(host: str) -> bool:
    if host.lower().rstrip(".") in (*_NAMES_OF_THIS_MACHINE, socket.gethostname().lower()):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified

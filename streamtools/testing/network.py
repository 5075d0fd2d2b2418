"""No test reaches the network by accident: connections to anything but this machine fail with what to do about it.

What is replaced are the methods and functions of the standard library through which asyncio, trio and every client
written in Python connect, send or look up a name; what was there before is put back. A loop written in C (uvloop)
connects by itself and is not held back, except where it looks up names through Python.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from streamtools.errors import StreamToolsError

_NAMES_OF_THIS_MACHINE = frozenset({"", "localhost", "localhost.localdomain", "ip6-localhost"})
_INTERNET = (socket.AF_INET, socket.AF_INET6)


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
        (socket.socket, "connect", guard.connect),
        (socket.socket, "connect_ex", guard.connect),
        (socket.socket, "sendto", guard.send_to),
        (socket.socket, "sendmsg", guard.send_message),
        (socket, "getaddrinfo", guard.look_up),
        (socket, "gethostbyname", guard.look_up_one),
        (socket, "gethostbyname_ex", guard.look_up_one),
    ]
    places = [each for each in places if hasattr(*each[:2])]  # not every system has all of them
    own = [(owner, name, vars(owner).get(name)) for owner, name, _ in places]
    for owner, name, wrap in places:
        setattr(owner, name, wrap(getattr(owner, name)))
    try:
        yield guard.tried
    finally:
        for owner, name, before in own:
            if before is None:
                delattr(owner, name)  # it was inherited
            else:
                setattr(owner, name, before)


class _Guard:
    def __init__(self, advice: str, allow: Collection[str]) -> None:
        self._advice = advice
        self._allowed = {host.lower() for host in allow}
        self.tried: list[str] = []

    def connect(self, connect: Callable[..., Any]) -> Callable[..., Any]:
        def checked(sock: socket.socket, address: Any) -> Any:
            self._check_socket(sock, address)
            return connect(sock, address)

        return checked

    def send_to(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def checked(sock: socket.socket, data: Any, *rest: Any) -> Any:
            self._check_socket(sock, rest[-1] if rest else None)
            return send(sock, data, *rest)

        return checked

    def send_message(self, send: Callable[..., Any]) -> Callable[..., Any]:
        def checked(sock: socket.socket, buffers: Any, *rest: Any) -> Any:
            self._check_socket(sock, rest[2] if len(rest) > 2 else None)
            return send(sock, buffers, *rest)

        return checked

    def look_up_one(self, look_up: Callable[..., Any]) -> Callable[..., Any]:
        def checked(host: Any) -> Any:
            self._check(host, None)
            found = look_up(host)
            self._allowed.update([found] if isinstance(found, str) else found[2])
            return found

        return checked

    def look_up(self, look_up: Callable[..., Any]) -> Callable[..., Any]:
        def checked(host: Any, port: Any, *args: Any, **named: Any) -> Any:
            self._check(host, port)
            found = look_up(host, port, *args, **named)
            self._allowed.update(str(each[4][0]).lower() for each in found)
            return found

        return checked

    def _check_socket(self, sock: socket.socket, address: Any) -> None:
        if sock.family in _INTERNET and isinstance(address, tuple) and len(address) > 1:
            self._check(address[0], address[1])

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

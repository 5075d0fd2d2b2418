"""The block of the network in tests, on both event loops."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest

from streamtools.testing import NetworkBlocked
from streamtools.testing.network import blocked
from tests.support.loopback import Loopback

ELSEWHERE = "192.0.2.1"  # an address for documentation, see RFC 5737


def find(error: BaseException) -> NetworkBlocked:
    """Return the exception of this type, which may be in an exception group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, NetworkBlocked)
    return error


@pytest.mark.anyio
@pytest.mark.parametrize("host", [ELSEWHERE, "provider.invalid", "2001:db8::1"])
async def test_a_request_to_the_network_raises_network_blocked(host: str) -> None:
    """The message says how to record the test."""
    url = f"http://[{host}]:8000/" if ":" in host else f"http://{host}:8000/"
    with blocked("record it") as tried, pytest.raises((NetworkBlocked, BaseExceptionGroup)) as caught:
        async with httpx.AsyncClient() as client:
            await client.get(url)

    place = f"[{host}]:8000" if ":" in host else f"{host}:8000"
    assert [place] == tried
    assert str(find(caught.value)) == f"the network is blocked in this test, which tried to reach {place}: record it"


@pytest.mark.anyio
async def test_the_local_machine_is_reachable() -> None:
    """By address and by name."""
    async with Loopback([b"hello"]) as server:
        with blocked("record it") as tried:
            async with httpx.AsyncClient() as client:
                answer = await client.get(server.url)
                named = await client.get(server.url.replace("127.0.0.1", "localhost"))

    assert ("hello", "hello") == (answer.text, named.text)
    assert [] == tried


@pytest.mark.parametrize(
    "ask",
    [
        lambda: socket.create_connection((ELSEWHERE, 80)),
        lambda: socket.socket().connect_ex((ELSEWHERE, 80)),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", (ELSEWHERE, 53)),
        lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", 0, (ELSEWHERE, 53)),
        lambda: socket.getaddrinfo("provider.invalid", 80),
        lambda: socket.getaddrinfo(b"provider.invalid", 80),
        lambda: httpx.get(f"https://{ELSEWHERE}/"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_connections_datagrams_and_names_are_blocked(ask: Callable[[], object]) -> None:
    with blocked("record it") as tried, pytest.raises(NetworkBlocked):
        ask()

    assert 1 == len(tried)


def test_hosts_can_be_allowed() -> None:
    """Addresses of an allowed name are allowed too."""
    with blocked("record it", allow=[ELSEWHERE, "LOCALHOST", "provider.invalid"]) as tried:
        with socket.socket() as sock:
            sock.setblocking(False)
            assert sock.connect_ex((ELSEWHERE, 80)) != 0
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo("provider.invalid", 80)
        found = socket.getaddrinfo("localhost", 80)

    assert found
    assert [] == tried


def test_the_functions_are_restored() -> None:
    """Also after an exception."""
    before = (vars(socket.socket).get("connect"), socket.getaddrinfo, socket.socket.connect)

    with blocked("a"), pytest.raises(NetworkBlocked, match="b"), blocked("b"):
        socket.create_connection((ELSEWHERE, 80))

    assert before == (vars(socket.socket).get("connect"), socket.getaddrinfo, socket.socket.connect)
    assert "connect" not in vars(socket.socket)

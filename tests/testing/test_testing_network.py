"""The network, blocked: what asks for it fails with what to do, on both event loops, and all is put back afterwards."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest

from streamtools.testing import NetworkBlocked
from streamtools.testing.network import blocked
from tests.support.loopback import Loopback

ELSEWHERE = "192.0.2.1"  # no host has it: RFC 5737


def find(error: BaseException) -> NetworkBlocked:
    """Return the error that is meant, alone or in a group of the event loop's."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, NetworkBlocked)
    return error


@pytest.mark.anyio
@pytest.mark.parametrize("host", [ELSEWHERE, "provider.invalid", "2001:db8::1"])
async def test_a_client_that_asks_for_the_network_fails(host: str) -> None:
    """Its test gets one error that names the place and says what to do, not one of a client that tried and failed."""
    url = f"http://[{host}]:8000/" if ":" in host else f"http://{host}:8000/"
    with blocked("record it") as tried, pytest.raises((NetworkBlocked, BaseExceptionGroup)) as caught:
        async with httpx.AsyncClient() as client:
            await client.get(url)

    place = f"[{host}]:8000" if ":" in host else f"{host}:8000"
    assert [place] == tried
    assert str(find(caught.value)) == f"the network is blocked in this test, which tried to reach {place}: record it"


@pytest.mark.anyio
async def test_this_machine_may_be_asked() -> None:
    """A server on the loopback interface is no network, by address or by name."""
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
def test_each_way_out_is_blocked(ask: Callable[[], object]) -> None:
    """Connections, datagrams and names are."""
    with blocked("record it") as tried, pytest.raises(NetworkBlocked):
        ask()

    assert 1 == len(tried)


def test_hosts_can_be_allowed() -> None:
    """By address, or by a name whose addresses are then allowed too."""
    with blocked("record it", allow=[ELSEWHERE, "LOCALHOST", "provider.invalid"]) as tried:
        with socket.socket() as sock:
            sock.setblocking(False)
            assert sock.connect_ex((ELSEWHERE, 80)) != 0
        with pytest.raises(socket.gaierror):
            socket.getaddrinfo("provider.invalid", 80)
        found = socket.getaddrinfo("localhost", 80)

    assert found
    assert [] == tried


def test_everything_is_put_back() -> None:
    """What was there before is there again, in the same place, after an error too and in the reverse order."""
    before = (vars(socket.socket).get("connect"), socket.getaddrinfo, socket.socket.connect)

    with blocked("a"), pytest.raises(NetworkBlocked, match="b"), blocked("b"):
        socket.create_connection((ELSEWHERE, 80))

    assert before == (vars(socket.socket).get("connect"), socket.getaddrinfo, socket.socket.connect)
    assert "connect" not in vars(socket.socket)

"""S11: a key goes to the host that it was meant for, and a tool's request to the public internet or nowhere.

Two servers on this machine, at two addresses, write down all that reaches them.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Any

import anyio
import httpx
import pytest
from anyio.abc import SocketAttribute, SocketStream

from streamtools import chat
from streamtools.conversation import AnthropicMessages, GeminiChat, OllamaChat, OpenAIChat, OpenAIResponses
from streamtools.events import Error
from streamtools.tools.guarded_http import Address, GuardedTransport, guarded_client, is_public
from tests.support.cases import cases, together
from tests.support.loops import other_loop_deep

__all__ = ["other_loop_deep"]  # a fixture

pytestmark = pytest.mark.anyio

KEY = "sk-test-0123456789abcdef"
MODELS = [OpenAIChat, OpenAIResponses, AnthropicMessages, GeminiChat, OllamaChat]


class Witness:
    """A server that writes down each request, and answers with `answer`."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        self.heard: list[bytes] = []
        self.url = ""

    async def serve(self, *, task_status: Any) -> None:
        async with await anyio.create_tcp_listener(local_host=self.address) as listener:
            self.url = f"http://{self.address}:{listener.extra(SocketAttribute.local_port)}"
            task_status.started()
            await listener.serve(self._answer)

    async def _answer(self, stream: SocketStream) -> None:
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):  # a connection without a request
                self.heard.append(await stream.receive(65_536))
                await stream.send(self.answer)

    def redirects_to(self, url: str, status: int = 307) -> None:
        self.answer = f"HTTP/1.1 {status} Go\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode()


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Witness, Witness]]:
    """Run two of them, at two addresses of the loopback network."""
    one, other = Witness("127.0.0.1"), Witness("127.0.0.2")
    async with anyio.create_task_group() as group:
        for server in (one, other):
            await group.start(server.serve)
        yield one, other
        group.cancel_scope.cancel()


async def ask(model: Any) -> list[Error]:
    """Return the errors of one question."""
    async with chat(model, [{"role": "user", "content": "Hi"}]) as events:
        return [event async for event in events if isinstance(event, Error)]


@pytest.mark.parametrize("make", MODELS)
async def test_no_redirect_is_followed(make: Any) -> None:
    """Neither to another address nor to another port, with each provider's key; the error names the target's host."""
    with cases() as case:
        for status in (301, 302, 303, 307, 308):
            with case(status):
                async with serving() as (one, other):
                    one.redirects_to(other.url, status)
                    (error,) = await ask(make("m", base_url=one.url, api_key=KEY, retries=0))

                    assert 1 == len(one.heard)
                    assert [] == other.heard
                    assert make is OllamaChat or KEY.encode() in one.heard[0]
                    assert other.url in error.message
                    assert KEY not in error.to_json()


@pytest.mark.parametrize("target", ["http://169.254.169.254/latest/", "//127.0.0.2:1/", "file:///etc/passwd", "\x01"])
async def test_a_redirect_inside_is_refused(target: str) -> None:
    """By a client that would follow it, too."""
    async with serving() as (one, _):
        one.redirects_to(target)
        async with httpx.AsyncClient(follow_redirects=True) as client:
            (error,) = await ask(OpenAIChat("m", base_url=one.url, api_key=KEY, client=client, retries=0))

        assert 1 == len(one.heard)
        assert "redirect" in error.message or "could not be reached" in error.message


INJECTED = ["a\r\nX-Evil: 1", "a\nb", "a\0b", "a\r\n\r\nGET /evil HTTP/1.1\r\n\r\n"]


@pytest.mark.parametrize("where", ["headers", "key", "url", "model"])
async def test_nothing_is_injected_into_a_request(where: str) -> None:
    """A line end in a header, a key or an address is refused or escaped: one request goes out, or none."""
    with cases() as case:
        for value in INJECTED:
            with case(repr(value)):
                async with serving() as (one, _):
                    of: dict[str, dict[str, Any]] = {
                        "headers": {"headers": {"X-Own": value}},
                        "key": {"api_key": value},
                    }
                    options = of.get(where, {})
                    try:
                        url = f"{one.url}/{value}" if where == "url" else one.url
                        errors = await ask(
                            GeminiChat(value if where == "model" else "m", base_url=url, retries=0, **options)
                        )
                    except ValueError:
                        errors = []

                    assert len(one.heard) < 2
                    for request in one.heard:
                        lines = request.partition(b"\r\n\r\n")[0].lower().splitlines()[1:]
                        assert not [line for line in lines if line.startswith((b"x-evil", b"get"))]
                    assert all(value not in error.message for error in errors)


async def test_the_user_of_an_address_is_shown_to_nobody() -> None:
    """A password in the base URL goes to its host, and into no event and no `repr`."""
    async with serving() as (one, _):
        model = OpenAIChat("m", base_url=one.url.replace("//", "//ann:hunter2@") + "?key=hunter2", retries=0)
        one.answer = b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
        (error,) = await ask(model)

        assert 1 == len(one.heard)
        assert "hunter2" not in repr(model) + error.to_json()


NOT_PUBLIC = (
    "0.0.0.0 127.0.0.1 127.1.2.3 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.2.1 198.18.0.1"
    " 224.0.0.1 240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 fe80::1 fc00::1 fd00:ec2::254 fec0::1 ff02::1 2001:db8::1"
    " ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::1 2002:7f00:1:: 2002:a00:1::"
    " 2001:0:0:0:0:0:f5ff:fffe 168.63.129.16 192.0.0.9 192.0.0.192 192.88.99.1 ::ffff:0:7f00:1 200::1 3fff::1 5f00::1"
    " 64:ff9b::a83f:8110 ::ffff:168.63.129.16 2002:a83f:8110:: 64:ff9b:1:7f00::1 2606:4700::5efe:a00:1"
    " 2606:4700::200:5efe:a9fe:a9fe 2606:4700::5efe:808:808"
)


def test_addresses() -> None:
    """Private, local, reserved and shared ones are not public, nor what leads to one in version 6."""
    refused = NOT_PUBLIC.split()

    assert [] == [each for each in refused if is_public(ip_address(each))]
    assert all(
        is_public(ip_address(each)) for each in ("1.1.1.1", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8")
    )


@asynccontextmanager
async def client_of(*allowed: str, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """Take these addresses of this machine for public ones."""

    def allow(address: Address) -> bool:
        return str(address) in allowed or is_public(address)

    async with guarded_client(allow=allow, **options) as client:
        yield client


INSIDE = ["2606:64::/96", "203.0.114.0/24"]


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("2606:64::a00:1", None),
        ("203.0.114.9", None),
        ("::ffff:203.0.114.9", None),
        ("64:ff9b::cb00:7209", None),
        ("2002:cb00:7209::", None),
        ("127.0.0.1", 200),
    ],
)
async def test_networks_that_are_named(address: str, status: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one's own network translates or routes elsewhere counts as inside, whatever leads there."""
    async with serving() as (one, _):

        async def getaddrinfo(host: str, port: int, **_: Any) -> Any:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr("streamtools.tools.guarded_http.anyio.getaddrinfo", getaddrinfo)
        async with guarded_client(allow=lambda _: True, inside=INSIDE) as client, AsyncExitStack() as stack:
            if status is None:
                stack.enter_context(pytest.raises(httpx.ConnectError, match="the address is not a public one"))
            response = await client.get(f"http://named.example:{one.url.rpartition(':')[2]}/")
            assert status == response.status_code


def test_a_network_that_is_none() -> None:
    """It is refused where it is named, and one that is not given in a list is one."""
    with pytest.raises(ValueError, match="does not appear to be"):
        guarded_client(inside=["inside"])
    guarded_client(inside="10.0.0.0/8")


@together(
    "host", ["127.0.0.1", "127.0.0.2", "localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0"]
)
async def test_the_inside_is_not_reached(host: str) -> None:
    """However its address is written."""
    async with serving() as (one, other):
        port = one.url.rpartition(":")[2]
        async with guarded_client() as client:
            with pytest.raises((httpx.ConnectError, httpx.InvalidURL)):
                await client.get(f"http://{host}:{port}/", headers={"Authorization": KEY})

        assert [] == one.heard + other.heard


@pytest.mark.parametrize("follow", [False, True])
async def test_a_redirect_to_the_inside(follow: bool) -> None:
    """A page that is public redirects to what is not: nothing is asked there."""
    async with serving() as (one, other):
        one.redirects_to(other.url, 302)
        async with client_of("127.0.0.1", follow_redirects=follow) as client, AsyncExitStack() as stack:
            if follow:
                stack.enter_context(pytest.raises(httpx.ConnectError, match="the address is not a public one"))
            response = await client.get(one.url)
            assert 302 == response.status_code

        assert (1, []) == (len(one.heard), other.heard)


async def test_a_redirect_among_public_ones() -> None:
    """It is followed, if told to, without the credentials, and the caller sees names and not numbers."""
    async with serving() as (one, other):
        one.redirects_to(other.url + "/b", 302)
        async with client_of("127.0.0.1", "127.0.0.2", follow_redirects=True) as client:
            response = await client.get(one.url + "/a", headers={"Authorization": KEY})

        assert (200, other.url + "/b", "hi") == (response.status_code, str(response.url), response.text)
        assert KEY.encode() in one.heard[0]
        assert KEY.encode() not in other.heard[0]


async def test_a_name_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a name means a moment later changes nothing; one bad address among good ones is enough to refuse it."""
    async with serving() as (one, other):
        port = int(one.url.rpartition(":")[2])
        looked_up: list[str] = []

        async def resolve(*addresses: str) -> Any:
            async def getaddrinfo(host: str, *_: Any, **__: Any) -> Any:
                looked_up.append(host)
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

            monkeypatch.setattr("streamtools.tools.guarded_http.anyio.getaddrinfo", getaddrinfo)

        async with client_of("127.0.0.1") as client:
            await resolve("127.0.0.1")
            response = await client.get(f"http://rebound.example:{port}/")
            assert ["rebound.example"] == looked_up
            assert f"host: rebound.example:{port}".encode() in one.heard[0].lower()
            assert f"http://rebound.example:{port}/" == str(response.url)
            for addresses in (("127.0.0.2",), ("127.0.0.1", "127.0.0.2"), ()):
                await resolve(*addresses)
                with pytest.raises(httpx.ConnectError):
                    await client.get(f"http://rebound.example:{port}/")
        assert (1, []) == (len(one.heard), other.heard)


@pytest.mark.parametrize("error", [OSError("no such name"), UnicodeError("no name at all")])
async def test_a_name_that_is_none(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an error like that of a client without a guard."""

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("streamtools.tools.guarded_http.anyio.getaddrinfo", getaddrinfo)
    async with guarded_client() as client:
        with pytest.raises(httpx.ConnectError, match="the name cannot be resolved"):
            await client.get("http://nowhere.example/")


@pytest.mark.parametrize("options", [{"proxy": "http://127.0.0.1:1"}, {"trust_env": True}, {"transport": None}])
def test_what_would_get_around_it_is_refused(options: dict[str, Any]) -> None:
    """A proxy connects in our place."""
    with pytest.raises(ValueError, match="guarded client"):
        guarded_client(**options)
    with pytest.raises(ValueError, match="guarded transport"):
        GuardedTransport(proxy="http://127.0.0.1:1")


def test_a_connection_is_shared_among_no_names() -> None:
    """HTTP/2 would send a request for one name over what was verified for another of the same number."""
    with pytest.raises(ValueError, match="without HTTP/2"):
        guarded_client(http2=True)


async def test_a_name_that_takes_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time for connecting bounds the looking up, too."""

    async def getaddrinfo(*_: Any, **__: Any) -> Any:
        await anyio.sleep_forever()

    monkeypatch.setattr("streamtools.tools.guarded_http.anyio.getaddrinfo", getaddrinfo)
    async with guarded_client(timeout=0.01) as client:
        with pytest.raises(httpx.ConnectTimeout, match="not resolved in time"):
            await client.get("http://slow.example/")

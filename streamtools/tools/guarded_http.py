"""An HTTP client for tools whose addresses a model chooses: it reaches the public internet, and nothing else.

    async with guarded_client() as client:
        page = await client.get(url)

A model that was talked into it asks for `http://169.254.169.254/`, for a name that leads to the inside, or for a page
that redirects there. What counts is the address that is connected to. So a name is resolved once, each of its addresses
has to be a public one, and the connection goes to the first of them, by number: a name that means something else a
moment later changes nothing. Each redirect is another request and is judged anew. The certificate is that of the name.

`import streamtools` does not load it, because it needs httpx.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any

import anyio
import httpx

Address = IPv4Address | IPv6Address

_TRANSLATED = IPv6Network("64:ff9b::/96")  # behind it, a gateway finds an address of version 4
_GIVEN_OUT = IPv6Network("2000::/3")  # all that the internet has of version 6; what is elsewhere leads elsewhere
_INSIDE = tuple(map(ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16", "3fff::/20")))
"""What `is_global` lets pass, in some versions: services of the network one is in, Oracle's metadata among them;
relays; Azure's metadata; examples."""
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)
"""Before the last half of an address whose end is one of version 4, to which a router of the network it is in sends it
(RFC 5214, 6.1)."""


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet, and to one host there.

    An address of version 6 that leads to one of version 4 is judged by that. A network may translate addresses under a
    prefix of its own (RFC 6052), of which nobody outside knows: name it to `guarded_client(inside=…)`.

    >>> [is_public(ip_address(each)) for each in ("1.1.1.1", "10.0.0.1", "169.254.169.254", "::ffff:127.0.0.1")]
    [True, False, False, False]
    """
    inner = _inner(address)
    if inner is not None:
        return is_public(inner)
    if isinstance(address, IPv6Address) and (address not in _GIVEN_OUT or int(address) >> 32 & 0xFFFF_FFFF in _ISATAP):
        return False
    return address.is_global and not (address.is_multicast or any(address in each for each in _INSIDE))


def _inner(address: Address) -> IPv4Address | None:
    """Return the address of version 4 that one of version 6 leads to, wherever it is, or None."""
    if not isinstance(address, IPv6Address):
        return None
    if address.teredo is not None:
        return address.teredo[1]
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


class GuardedTransport(httpx.AsyncHTTPTransport):
    """Connects to addresses that `allow` accepts, and raises `httpx.ConnectError` for others, before anything is sent.

    `inside` are networks (`"2001:db8:64::/96"`) that count as no public ones, whatever `allow` says of them: what your
    own network translates or routes elsewhere. The other parameters are those of `httpx.AsyncHTTPTransport`; a proxy
    would connect in our place, so there can be none, and HTTP/2 would share a connection, which is verified for one
    name, among all the names of its number. Raises ValueError for these, and for what is no network.
    """

    def __init__(
        self, *, allow: Callable[[Address], bool] = is_public, inside: Iterable[str] = (), **options: Any
    ) -> None:
        if options.get("proxy") is not None or options.get("uds") is not None:
            raise ValueError(
                "a guarded transport connects itself: without a proxy and without a socket of this machine"
            )
        if options.get("http2"):
            raise ValueError("a guarded transport uses each connection once: without HTTP/2")
        # A connection is verified for one name, and its number may be that of several.
        options["limits"] = httpx.Limits(max_keepalive_connections=0)
        super().__init__(**options)
        self._allow = allow
        self._inside = tuple(map(ip_network, (inside,) if isinstance(inside, str) else inside))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request to the address that was looked at."""
        host = request.url.raw_host.decode("ascii")
        address = await self._resolve(host, request)
        sent = httpx.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,  # `Host` is the name
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await super().handle_async_request(sent)

    async def _resolve(self, host: str, request: httpx.Request) -> Address:
        try:
            with anyio.fail_after(request.extensions.get("timeout", {}).get("connect")):
                found = await anyio.getaddrinfo(host, request.url.port, type=socket.SOCK_STREAM)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("the name is not resolved in time", request=request) from error
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError("the name cannot be resolved", request=request) from error
        addresses = [ip_address(str(each[4][0]).partition("%")[0]) for each in found]
        if not addresses or not all(map(self._allow, addresses)) or any(map(self._is_inside, addresses)):
            raise httpx.ConnectError("the address is not a public one", request=request)
        return addresses[0]

    def _is_inside(self, address: Address) -> bool:
        inner = _inner(address)
        return any(address in each or (inner is not None and inner in each) for each in self._inside)


def guarded_client(
    *, allow: Callable[[Address], bool] = is_public, inside: Iterable[str] = (), **options: Any
) -> httpx.AsyncClient:
    """Return a client that connects only to addresses which `allow` accepts and that are not `inside`, as
    `GuardedTransport` says it; `options` are those of the client.

    It takes neither proxies nor credentials from the environment, and follows no redirect unless told to; each is then
    judged like the first request. What a body may cost is yours to bound: read it with `stream`.
    """
    if options.keys() & {"transport", "proxy", "mounts", "trust_env", "limits"}:
        raise ValueError("transport, proxy, mounts, limits and trust_env of a guarded client are its own")
    kept = {name: options.pop(name) for name in ("verify", "cert", "http1", "http2") if name in options}
    return httpx.AsyncClient(transport=GuardedTransport(allow=allow, inside=inside, **kept), trust_env=False, **options)

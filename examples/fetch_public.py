"""A tool that fetches an address of the model's choice, but only a public one.

    python fetch_public.py https://example.org

An address of your own network is refused, also after a redirect. Do not enable HTTP/2 or a proxy on this transport.
"""

from __future__ import annotations

import socket
import sys
from ipaddress import ip_address, ip_network

import anyio
import httpx

from streamtools import ToolError, tool

MAX_BYTES = 1_000_000
INTERNAL = [ip_network(block) for block in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16")]  # metadata services


def is_public(address: str) -> bool:
    """Whether the address is outside of all internal networks."""
    found = ip_address(address)
    return found.is_global and not found.is_multicast and not any(found in block for block in INTERNAL)


class PublicTransport(httpx.AsyncHTTPTransport):
    """Connects to public IPv4 addresses only. Checks each redirect, because a redirect is a new request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Resolve the name once, check the address, and connect to it."""
        host = request.url.raw_host.decode("ascii")
        try:
            found = await anyio.getaddrinfo(host, request.url.port, family=socket.AF_INET, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpx.ConnectError("The host name cannot be resolved.", request=request) from error
        addresses = [str(entry[4][0]) for entry in found]
        if not addresses or not all(map(is_public, addresses)):
            raise httpx.ConnectError("The address is not public.", request=request)
        checked = httpx.Request(
            request.method,
            request.url.copy_with(host=addresses[0]),  # a second lookup could return another address
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},  # the certificate must match the name
        )
        return await super().handle_async_request(checked)


@tool
async def fetch(url: str) -> str:
    """Read a page of the public web."""
    page = bytearray()
    no_reuse = httpx.Limits(max_keepalive_connections=0)  # a connection is verified for one host name only
    transport = PublicTransport(limits=no_reuse)
    async with httpx.AsyncClient(transport=transport, trust_env=False, follow_redirects=True, timeout=10) as client:
        try:
            async with client.stream("GET", url) as response:
                async for chunk in response.aiter_bytes(65_536):
                    page += chunk
                    if len(page) > MAX_BYTES:
                        raise ToolError("The page is too long.")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ToolError("The page cannot be read.") from error
    return page.decode(errors="replace")


if __name__ == "__main__":
    print(anyio.run(fetch, sys.argv[1]))

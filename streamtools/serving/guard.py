"""Protects a local server from requests by web pages of other sites."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.datastructures import Address, Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"\A(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/?#\\\s]+))(?::[0-9]*)?\Z", re.ASCII)
"""Matches a `Host` header: a name or an address, and an optional port (RFC 9110, section 7.2)."""


def refuse(status: int, message: str) -> Response:
    """Return a response with the text `message`."""
    return PlainTextResponse(message, status)


def digest(text: str) -> str:
    """Return a Content-Security-Policy hash source that allows exactly this inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def is_local(client: Address | None) -> bool:
    """Return whether the client has a loopback address."""
    address = client and _address(client.host)
    return address is not None and address.is_loopback


@dataclass(eq=False, repr=False, kw_only=True)
class Guard:
    """ASGI middleware: refuses unsafe HTTP requests, and adds security headers to all HTTP responses.

    Any page that the user opens in a browser can send requests to a local server. Requests for an unknown host name are
    refused, because an attacker's domain may resolve to this server (DNS rebinding). Requests other than GET, HEAD and
    OPTIONS must have this server's origin. Their `Content-Type` must be JSON, which cross-site forms cannot send. Their
    `Content-Length` must be at most `max_body`. The size of a body without this header is not checked.

    `hosts` are the host names of this server in lower case. `localhost` and IP addresses are always allowed. `policy`
    is the Content-Security-Policy of all responses. It should allow only resources, frames and scripts of this server.

    With `origins`, requests from these origins are also accepted. So are requests without an `Origin` header, because
    only browsers send this header. `refusal` makes the response to a refused request.
    """

    app: ASGIApp = field(kw_only=False)
    policy: str
    max_body: int
    hosts: Collection[str] = ()
    origins: Collection[str] | None = None
    refusal: Callable[[int, str], ASGIApp] = refuse

    def __post_init__(self) -> None:
        self.hosts = {"localhost", *self.hosts}
        self._headers = {
            "content-security-policy": self.policy,
            "x-content-type-options": "nosniff",
            "x-frame-options": "DENY",
            "referrer-policy": "no-referrer",
            "cross-origin-opener-policy": "same-origin",
            "cross-origin-resource-policy": "same-origin",
            "permissions-policy": "camera=(), geolocation=(), microphone=()",
            "cache-control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        # Not `async`: that would create an extra coroutine for each chunk.
        def send_with_headers(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            return send(message)

        app = self._refusal(scope["method"], Headers(scope=scope)) or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> ASGIApp | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_known_host(hosts[0]):
            return self.refusal(421, "Unknown host name. Allow it with --allow-host.")
        if method in _SAFE_METHODS:
            return None
        origins = headers.getlist("origin")
        is_allowed = self.origins is not None and (not origins or (len(origins) == 1 and origins[0] in self.origins))
        if origins not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]) and not is_allowed:
            return self.refusal(
                403, "The request has a foreign or missing Origin header. Send it from a page of this server."
            )
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            return self.refusal(415, "The body must be JSON, with the header Content-Type: application/json.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 9 or int(length) > self.max_body:
            return self.refusal(413, f"The body may have at most {self.max_body} bytes.")
        return None

    def _is_known_host(self, host: str) -> bool:
        match = _HOST.match(host)
        if match is None:
            return False
        name = match[1] or match[2]
        return name.lower() in self.hosts or _address(name) is not None


def _address(name: str) -> IPv4Address | IPv6Address | None:
    """Return `name` as an IP address; None if it is a host name."""
    try:
        return ip_address(name)
    except ValueError:
        return None

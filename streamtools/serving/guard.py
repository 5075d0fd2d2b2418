"""Protection of a local server against other pages: checks of requests, and headers for browsers."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from ipaddress import ip_address

from starlette.datastructures import Address, Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"\A(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/?#\\\s]+))(?::[0-9]*)?\Z", re.ASCII)
"""The whole `Host` header: a name or an address, and a port (RFC 9110, 7.2)."""


def refuse(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


def digest(text: str) -> str:
    """Return the source of a Content-Security-Policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def is_local(client: Address | None) -> bool:
    try:
        return client is not None and ip_address(client.host).is_loopback
    except ValueError:
        return False


@dataclass(eq=False, repr=False, kw_only=True)
class Guard:
    """Wraps an application: checks requests, and restricts by headers what browsers may do with the responses.

    Any page that the user opens in a browser can reach a local server. So the host name must be known, because
    another name may be made to point here (DNS rebinding). A request that changes something must come from our own page
    (its origin is the host), must be JSON (which a form of another page cannot send), and has a size limit. The policy
    allows no resource, frame or script that is not on the page.

    `hosts` are the names, in lower case, of the server; `localhost` and addresses are always allowed. `policy` is the
    Content-Security-Policy of all responses. With `origins`, clients other than browsers, which send no origin, may
    change something too, and so may the pages of these origins. `forms` are paths that also accept the body of a form.
    `refusal` makes the response to a refused request.
    """

    app: ASGIApp = field(kw_only=False)
    policy: str
    max_body: int
    hosts: Collection[str] = ()
    origins: Collection[str] | None = None
    forms: Collection[str] = ()
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

        def send_with_headers(message: Message) -> Awaitable[None]:  # no coroutine: each chunk of a stream passes here
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            return send(message)

        app = self._refusal(scope["method"], scope["path"], Headers(scope=scope)) or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> ASGIApp | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_known_host(hosts[0]):
            return self.refusal(421, "Unknown host name. Allow it with --allow-host.")
        if method in _SAFE_METHODS:
            return None
        origins = headers.getlist("origin")
        is_allowed = self.origins is not None and (not origins or (len(origins) == 1 and origins[0] in self.origins))
        if origins not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]) and not is_allowed:
            return self.refusal(403, "Only the page of this server may do that.")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind == "multipart/form-data" and path in self.forms):
            return self.refusal(415, "The body must be JSON, with Content-Type: application/json.")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 9 or int(length) > self.max_body:
            return self.refusal(413, f"The body may have at most {self.max_body} bytes.")
        return None

    def _is_known_host(self, host: str) -> bool:
        match = _HOST.match(host)
        if match is None:
            return False
        name = match[1] or match[2]
        return name.lower() in self.hosts or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

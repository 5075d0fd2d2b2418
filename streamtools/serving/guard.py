"""Who may ask a server of this package, and what browsers may do with its answers."""

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

_SAFE = ("GET", "HEAD", "OPTIONS")
_HOST = re.compile(r"\A(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:@/?#\\\s]+))(?::[0-9]*)?\Z", re.ASCII)
"""A name or an address, and a port: the whole header, as what stands behind a bracket is part of the name (RFC 9110,
7.2), which `urlsplit` drops."""


def refuse(status: int, message: str) -> Response:
    return JSONResponse({"error": message}, status)


def digest(text: str) -> str:
    """Return the source of a Content-Security-Policy that allows exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def is_here(client: Address | None) -> bool:
    try:
        return client is not None and ip_address(client.host).is_loopback
    except ValueError:
        return False


@dataclass(eq=False, repr=False, kw_only=True)
class Guard:
    """Wraps an application: checks requests, and tells browsers by headers what they may do with its answers.

    A server on the loopback interface is reached by every page that the browser of its user has open. So a host that is
    a name has to be known (a foreign name may be made to point here: DNS rebinding), what changes something has to come
    from our own page (its origin is that of the host) and has to be JSON (which no form of another page can send), and
    bodies have a bound. The policy of the page lets nothing be loaded, framed or run that is not on it.

    `hosts` are the names, in lower case, by which the server may be addressed; `localhost` and addresses always may.
    `policy` is the Content-Security-Policy of all that it answers. With `origins`, clients that are no browsers may
    change something too, since they name no origin, and so may pages of these. `forms` are paths that take the body of
    a form, too, and `refusal` makes the response to what is refused.
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

        def send_with_headers(message: Message) -> Awaitable[None]:  # no coroutine: each piece of a stream passes here
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            return send(message)

        app = self._refusal(scope["method"], scope["path"], Headers(scope=scope)) or self.app
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> ASGIApp | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return self.refusal(421, "this server is not known by that name: see --allow-host")
        if method in _SAFE:
            return None
        origins = headers.getlist("origin")
        known = self.origins is not None and (not origins or (len(origins) == 1 and origins[0] in self.origins))
        if origins not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]) and not known:
            return self.refusal(403, "only the page of this server may do that")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not (kind == "multipart/form-data" and path in self.forms):
            return self.refusal(415, "the body has to be JSON, and its header Content-Type: application/json")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 9 or int(length) > self.max_body:
            return self.refusal(413, f"the body may have {self.max_body} bytes")
        return None

    def _is_ours(self, host: str) -> bool:
        read = _HOST.match(host)
        if read is None:
            return False
        name = read[1] or read[2]
        if name.lower() in self.hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

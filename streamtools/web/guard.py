"""What stands before the application: who may ask it, and what browsers may do with its answers.

A server on the loopback interface is reached by every page that the browser of its user has open. So a host that is a
name has to be known (a foreign name may be made to point here: DNS rebinding), what changes something has to come from
our own page (its origin is that of the host) and has to be JSON (which no form of another page can send), and bodies
have a bound. The policy of the page lets nothing be loaded, framed or run that is not on it.
"""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY = 256 * 1024
"""Bytes of a request's body."""

_SAFE = ("GET", "HEAD", "OPTIONS")


class Guard:
    """An ASGI application in front of another.

    `hosts` are the names, in lower case, by which the server may be addressed; `localhost` and addresses always may.
    `policy` is the Content-Security-Policy of all that it answers.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] = (), policy: str) -> None:
        self._app = app
        self._hosts = {"localhost", *hosts}
        self._headers = {
            "content-security-policy": policy,
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
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
            await send(message)

        app = self._refusal(scope["method"], Headers(scope=scope)) or self._app
        await app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> ASGIApp | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return refuse(421, "this server is not known by that name: see --allow-host")
        if method in _SAFE:
            return None
        if headers.getlist("origin") not in ([f"http://{hosts[0]}"], [f"https://{hosts[0]}"]):
            return refuse(403, "only the page of this server may do that")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return refuse(415, "the body has to be JSON")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY:
            return refuse(413, f"the body may have {MAX_BODY} bytes")
        return None

    def _is_ours(self, host: str) -> bool:
        if not {*"@/?#\\"}.isdisjoint(host):  # it is more than a name and a port
            return False
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.lower() in self._hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def refuse(status: int, message: str) -> JSONResponse:
    """Return a response that says what is wrong."""
    return JSONResponse({"error": message}, status)

"""Where clients ask, where the upstream is asked, and which headers go either way. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streamtools.gateway.client_requests import Client

CLIENTS: Mapping[str, Client] = {"/chat/completions": "openai", "/responses": "responses", "/v1/messages": "anthropic"}
"""How the paths end at which clients ask, and in which format."""

JSON = "application/json"
_HOP = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"),
    *("transfer-encoding", "upgrade", "content-length", "content-encoding"),
}
"""Headers of one connection, and of a body as it was."""

_AT_THE_ROOT = ("api/chat", "apply-template", "completion", "tokenize")
"""Endpoints that are not below `/v1`."""

_NO_TEXT = re.compile(
    r"/(?:models(?:/[^:]{1,256})?|embeddings|moderations|audio/speech|count_tokens|input_tokens"
    r"|files(?:/[^/]{1,256})?|uploads(?:/[^/]{1,256}){0,2})\Z"
)
"""How paths end behind which no text of a model comes."""

UNREAD = (
    "what comes from here would be read by no rule and no judge, and some are set: ask for chat completions, "
    "Responses or Messages, or ask the upstream itself"
)

ONCE = "idempotency-key"
"""A header for the first request of an exchange alone: those behind it are others, and not the same once more."""

Headers = list[tuple[str, str]]


class Head(NamedTuple):
    """Status and headers of the answer to a client; the length of its body is left to whoever sends it."""

    status: int
    headers: Headers


def client_of(method: str, path: str) -> Client | None:
    """Return the format in which a client asks for an answer; None for a request of anything else.

    >>> client_of("POST", "/v1/chat/completions")
    'openai'
    """
    ends = (client for end, client in CLIENTS.items() if path.rstrip("/").endswith(end))
    return next(ends, None) if method == "POST" else None


def holds_text(path: str) -> bool:
    """Return whether an answer that passes as it is may hold a text of a model, for which there may be rules.

    >>> holds_text("/v1/completions"), holds_text("/v1/embeddings")
    (True, False)
    """
    return _NO_TEXT.search(path.rstrip("/")) is None


def path_below(scope: Mapping[str, Any]) -> str:
    """Return what is asked for of an ASGI application, below the path at which it is mounted.

    >>> path_below({"path": "/llm/v1/models", "root_path": "/llm"})
    '/v1/models'
    """
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def path_for(path: str, endpoint: str) -> str:
    """Return the path of an upstream's endpoint, where a client asks at `path`.

    >>> path_for("/v1/responses", "chat/completions")
    '/v1/chat/completions'
    """
    end = next(end for end in ("/chat/completions", "/responses", "/messages") if path.rstrip("/").endswith(end))
    base = path.rstrip("/").removesuffix(end)
    return f"{base.removesuffix('/v1') if endpoint in _AT_THE_ROOT else base}/{endpoint}"


def headers_for(client: Client, headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers of a client's request as an upstream of chat completions takes them, with its key."""
    kept = [(name, value) for name, value in without_hop(headers) if name.lower() != "content-type"]
    if client == "anthropic":
        keys = [value for name, value in kept if name.lower() == "x-api-key"]
        kept = [
            each for each in kept if each[0].lower() != "x-api-key" and not each[0].lower().startswith("anthropic-")
        ]
        if not any(name.lower() == "authorization" for name, _ in kept):
            kept += [("authorization", f"Bearer {key}") for key in keys[:1]]
    return [*kept, ("content-type", JSON)]


def is_packed_twice(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a body has several content encodings, each of which may unpack to a thousand times its size."""
    codings = ",".join(value.lower() for name, value in headers if name.lower() == "content-encoding").split(",")
    return sum(each.strip() not in ("", "identity") for each in codings) > 1


def as_text(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return headers whose bytes `as_bytes` gives back, whatever they are; names are in lower case."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]


def as_bytes(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def without_hop(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers that hold for the whole way: not those that `Connection` names (RFC 9110, 7.6.1)."""
    given = list(headers)
    named = ",".join(value.lower() for name, value in given if name.lower() == "connection").split(",")
    hop = {*_HOP, *(name.strip() for name in named)}
    return [(name, value) for name, value in given if name.lower() not in hop]

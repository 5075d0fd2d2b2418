"""Maps paths and headers between clients and the upstream. Sans-IO."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streamtools.gateway.client_requests import Client

CLIENTS: Mapping[str, Client] = {"/chat/completions": "openai", "/responses": "responses", "/v1/messages": "anthropic"}
"""Maps the end of a request's path to the format of the request and of its answer."""

JSON = "application/json"

IDEMPOTENCY_KEY = "idempotency-key"
"""The name of a header that is sent only with the first request of an exchange.

An exchange's further requests differ from the first, so they must not have the same idempotency key."""

UNREAD = (
    "This gateway cannot apply its text rules and its vault to this path. Use chat completions, Responses or Messages, "
    "or call the upstream directly."
)

_HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "content-length", "content-encoding",
}  # fmt: skip
"""Headers that are not forwarded: they apply to one connection, or describe the body before it was decoded."""

_WITHOUT_MODEL_TEXT = re.compile(
    r"/(?:models(?:/[^:]{1,256})?|embeddings|moderations|audio/speech|count_tokens|input_tokens"
    r"|files(?:/[^/]{1,256})?|uploads(?:/[^/]{1,256}){0,2})\Z"
)
"""Matches the end of a path whose answers contain no text of a model."""

Headers = list[tuple[str, str]]


class ResponseHead(NamedTuple):
    """The status and headers of the response to a client. The code that sends it adds `content-length`."""

    status: int
    headers: Headers


def client_of(method: str, path: str) -> Client | None:
    """Return the format of a client's request. Returns None for a request whose answer is not rewritten.

    >>> client_of("POST", "/v1/chat/completions")
    'openai'
    """
    formats = (client for end, client in CLIENTS.items() if path.rstrip("/").endswith(end))
    return next(formats, None) if method == "POST" else None


def may_return_text(path: str) -> bool:
    """Return whether the answer of a path may contain text of a model.

    >>> may_return_text("/v1/completions"), may_return_text("/v1/embeddings")
    (True, False)
    """
    return _WITHOUT_MODEL_TEXT.search(path.rstrip("/")) is None


def mounted_path(scope: Mapping[str, Any]) -> str:
    """Return the path of an ASGI request relative to the path at which the application is mounted.

    >>> mounted_path({"path": "/llm/v1/models", "root_path": "/llm"})
    '/v1/models'
    """
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path.removeprefix(root) if path.startswith(f"{root}/") else path


def path_for(path: str, endpoint: str) -> str:
    """Return the path of the upstream's `endpoint` for a client's request to `path`.

    >>> path_for("/v1/responses", "chat/completions")
    '/v1/chat/completions'
    """
    end = next(end for end in ("/chat/completions", "/responses", "/messages") if path.rstrip("/").endswith(end))
    return f"{path.rstrip('/').removesuffix(end)}/{endpoint}"


def headers_for(client: Client, headers: Iterable[tuple[str, str]], content_type: str = JSON) -> Headers:
    """Convert a client's headers for a chat completions request, whose body has the `content_type`.

    For an Anthropic client, the `x-api-key` and `anthropic-` headers are dropped. The key becomes a bearer token if the
    request has no `authorization` header.
    """
    kept = [(name, value) for name, value in end_to_end(headers) if name.lower() != "content-type"]
    if client == "anthropic":
        keys = [("authorization", f"Bearer {value}") for name, value in kept if name.lower() == "x-api-key"]
        kept = [header for header in kept if not header[0].lower().startswith(("x-api-key", "anthropic-"))]
        if not any(name.lower() == "authorization" for name, _ in kept):
            kept += keys[:1]
    return [*kept, ("content-type", content_type)]


def is_encoded_twice(headers: Iterable[tuple[str, str]]) -> bool:
    """Return whether a body has several content encodings. Each of them may expand the body a thousandfold."""
    codings = ",".join(value.lower() for name, value in headers if name.lower() == "content-encoding").split(",")
    return sum(coding.strip() not in ("", "identity") for coding in codings) > 1


def decode_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return headers as text, with names in lower case. `encode_headers` is the inverse."""
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in raw]


def encode_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers that may be forwarded.

    Hop-by-hop headers are dropped, and so are the headers that `Connection` names (RFC 9110, 7.6.1).
    """
    given = list(headers)
    named = ",".join(value.lower() for name, value in given if name.lower() == "connection").split(",")
    dropped = {*_HOP_BY_HOP, *(name.strip() for name in named)}
    return [(name, value) for name, value in given if name.lower() not in dropped]

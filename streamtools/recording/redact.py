"""What of an exchange may be written down.

Recordings are committed and shared. So headers are written from an allow-list, because nobody can list all that carry a
credential; and in URLs and request bodies a value whose key is named like a credential is replaced, with the key left,
so that the reader sees that something was there.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from streamtools.recording.format import Request, Response

HEADERS = frozenset(
    {
        "accept",
        "anthropic-beta",
        "anthropic-version",
        "cache-control",
        "content-type",
        "date",
        "openai-beta",
        "openai-model",
        "openai-processing-ms",
        "openai-version",
        "request-id",
        "retry-after",
        "server",
        "user-agent",
        "x-request-id",
        "x-vercel-ai-data-stream",
        "x-vercel-ai-ui-message-stream",
    }
)
"""The headers that are written, in lower case. `content-encoding` is none of them: the bytes are kept decoded."""

REDACTED = "[redacted]"

_SECRET = re.compile(
    r"(?:.*[_-])?(?:(?:api|app|access|account|auth|client|private|secret|subscription)[_-]?key"
    r"|[a-z]*(?:token|secret)|passwd|password|authorization|credentials?)",
    re.IGNORECASE,
)
_SECRET_IN_URL = re.compile(r"(?:x-[a-z]+-)?(?:key|sig|signature|auth|code)", re.IGNORECASE)


def describe_request(method: str, url: str, headers: Iterable[tuple[str, str]], content: bytes = b"") -> Request:
    """Return a request as it may be written down. `content` is its body as it was sent."""
    kept = keep_headers(headers)
    where = redact_url(url)
    if not content:
        return Request(method=method, url=where, headers=kept)
    try:
        return Request(method=method, url=where, headers=kept, body=redact_json(msgspec.json.decode(content)))
    except (ValueError, RecursionError):  # not JSON, or JSON that no provider would take
        pass
    try:
        return Request(method=method, url=where, headers=kept, body=content.decode())
    except UnicodeDecodeError:
        return Request(method=method, url=where, headers=kept, body_base64=base64.b64encode(content).decode())


def describe_response(status: int, headers: Iterable[tuple[str, str]]) -> Response:
    """Return the head of a response as it may be written down."""
    return Response(status=status, headers=keep_headers(headers))


def keep_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers of the allow-list, in their order, with names in lower case; repeated ones are joined."""
    kept: dict[str, str] = {}
    for name, value in headers:
        if (key := name.lower()) in HEADERS:
            kept[key] = f"{kept[key]}, {value}" if key in kept else value
    return kept


def redact_url(url: str) -> str:
    """Return `url` without user name and password, and without the values of query keys that are named like secrets.

    >>> redact_url("https://me:pass@example.org/v1/chat?alt=sse&api_key=123")
    'https://example.org/v1/chat?alt=sse&api_key=%5Bredacted%5D'
    """
    parts = urlsplit(url)
    pairs = (pair.partition("=") for pair in parts.query.split("&"))
    query = "&".join(
        f"{key}={quote(REDACTED)}"
        if equals and (is_secret(key) or _SECRET_IN_URL.fullmatch(key))
        else f"{key}{equals}{value}"
        for key, equals, value in pairs
    )
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=query))


def redact_json(value: Any) -> Any:
    """Return `value` with each string replaced that stands, at any depth, under a key that is named like a secret."""
    if isinstance(value, dict):
        return {
            key: REDACTED if isinstance(each, str) and is_secret(key) else redact_json(each)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [redact_json(each) for each in value]
    return value


def is_secret(key: str) -> bool:
    """Tell whether a key is named like one that holds a credential: `api_key`, `X-Auth-Token`, `clientSecret`."""
    return _SECRET.fullmatch(key) is not None

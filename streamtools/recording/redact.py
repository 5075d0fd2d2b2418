"""What of an exchange may be written down.

Recordings are committed and shared. So headers are written from an allow-list, because nobody can list all that carry a
credential; and in URLs and request bodies a value whose key is named like a credential is replaced, with the key left,
so that the reader sees that something was there. In each string that is left, keys of known formats, what the caller
says is a secret, and the credentials of this request are overwritten, as they are in the bytes of the response.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import msgspec

from streamtools.recording.credentials import DEEPEST, find_credentials, is_form, is_secret, is_secret_in_url, read_json
from streamtools.recording.format import Head, Request, Response
from streamtools.recording.scrubbing import Secret, scrub

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

_BOT_TOKEN = re.compile(r"(?<=[0-9]:)[A-Za-z0-9_-]{30,}")  # behind a bot's number, in paths of Telegram and its like


def describe_request(
    method: str,
    url: str,
    headers: Iterable[tuple[str, str]],
    content: bytes = b"",
    *,
    redact: Iterable[Secret] = (),
) -> Request:
    """Return a request as it may be written down. `content` is its body as it was sent, `redact` are more secrets."""
    fields = list(headers)
    asked = Request(method=method, url=url, headers=keep_headers(fields), **_body(content))
    return redact_request(asked, [*redact, *find_credentials(url, fields, content)])


def redact_request(request: Request, redact: Iterable[Secret] = ()) -> Request:
    """Return a request as it may be written down, whoever made it. `redact` are more secrets.

    Raises ValueError for a URL that is none, and for a body that is no base64.
    """
    headers, body = request.headers.items(), request.body
    is_pairs = isinstance(body, str) and is_form(headers)
    asked = msgspec.structs.replace(
        request,
        url=redact_url(request.url),
        headers=keep_headers(headers),
        body=redact_pairs(body) if is_pairs else redact_json(body),
    )
    return _clean_request(asked, list(redact))


def credentials_of(request: Request) -> list[str]:
    """Return the credentials in a request that others wrote down; see `find_credentials`."""
    headers, body = request.headers.items(), request.body
    if isinstance(body, str):
        return find_credentials(request.url, headers, body.encode(errors="surrogatepass"))
    return find_credentials(request.url, headers, base64.b64decode(request.body_base64), body=body)


def describe_response(status: int, headers: Iterable[tuple[str, str]], *, redact: Iterable[Secret] = ()) -> Response:
    """Return the head of a response as it may be written down."""
    return _clean_response(Response(status=status, headers=keep_headers(headers)), list(redact))


def redact_head(head: Head, redact: Iterable[Secret] = ()) -> Head:
    """Return a head with known formats and `redact` overwritten in each of its strings."""
    secrets = list(redact)
    return msgspec.structs.replace(
        head,
        title=redact_text(head.title, secrets),
        request=head.request and _clean_request(head.request, secrets),
        response=head.response and _clean_response(head.response, secrets),
    )


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
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=redact_pairs(parts.query)))


def redact_pairs(text: str) -> str:
    """Return the query of a URL, or a form, without the values of keys that are named like secrets."""
    pairs = (pair.partition("=") for pair in text.split("&"))
    return "&".join(
        f"{key}={quote(REDACTED)}" if equals and is_secret_in_url(key) else f"{key}{equals}{value}"
        for key, equals, value in pairs
    )


def redact_json(value: Any, *, level: int = 0) -> Any:
    """Return `value` with each string replaced that stands, at any depth, under a key that is named like a secret.

    What is deeper than `DEEPEST` levels is replaced as well.
    """
    if isinstance(value, dict | list) and level == DEEPEST:
        return REDACTED
    if isinstance(value, dict):
        return {
            key: REDACTED if isinstance(each, str) and is_secret(key) else redact_json(each, level=level + 1)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [redact_json(each, level=level + 1) for each in value]
    return value


def redact_text(text: str, redact: Iterable[Secret] = ()) -> str:
    """Return `text` with known formats and `redact` overwritten."""
    data = text.encode(errors="surrogatepass")
    clean = scrub(data, redact)
    return text if clean == data else clean.decode(errors="replace")


def _body(content: bytes) -> dict[str, Any]:
    """Return the field of a request that holds this body, as it is."""
    if not content:
        return {}
    try:
        return {"body": read_json(content)}
    except ValueError:
        pass
    try:
        return {"body": content.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(content).decode()}


def _clean_request(request: Request, secrets: list[Secret]) -> Request:
    binary = base64.b64decode(request.body_base64)
    return msgspec.structs.replace(
        request,
        url=_clean_url(request.url, secrets),
        headers={name: redact_text(value, secrets) for name, value in request.headers.items()},
        body=_clean_json(request.body, lambda text: redact_text(text, secrets)),
        body_base64=base64.b64encode(scrub(binary, secrets)).decode(),
    )


def _clean_response(response: Response, secrets: list[Secret]) -> Response:
    headers = {name: redact_text(value, secrets) for name, value in response.headers.items()}
    return msgspec.structs.replace(response, headers=headers)


def _clean_url(url: str, secrets: list[Secret]) -> str:
    """Return `url` with secrets overwritten in each part that they may stand in, also where they are escaped."""
    return "".join(part if part in "/?&=#" else _clean_part(part, secrets) for part in re.split(r"([/?&=#])", url))


def _clean_part(part: str, secrets: list[Secret]) -> str:
    plain = unquote(part)
    clean = _BOT_TOKEN.sub(lambda token: "*" * len(token[0]), redact_text(plain, secrets))
    return part if clean == plain else quote(clean, safe="*:@+,;!~'()")


def _clean_json(value: Any, clean: Callable[[str], str], level: int = 0) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict | list) and level == DEEPEST:  # of a recording that others wrote
        return REDACTED
    if isinstance(value, dict):
        return {clean(key): _clean_json(each, clean, level + 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_clean_json(each, clean, level + 1) for each in value]
    return value

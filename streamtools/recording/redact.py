"""The redaction of an exchange before it is written down.

Recordings are committed and shared. So headers are written from an allow-list, because not all headers with credentials
can be listed. In URLs and request bodies, values that are named like a credential are replaced, and their names stay:
see `credentials`. A body that cannot be searched is left out, and the head says so. In each string that is left, keys
of known formats, the caller's secrets and the credentials of this request are overwritten, as in the bytes of the
response: a server that refuses a key repeats it, and a key of a private server has no known format.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote

import msgspec

from streamtools.json_values import fits, with_texts
from streamtools.recording.credentials import DEEPEST, LEAST, REDACTED, Credentials
from streamtools.recording.format import Head, Request, Response
from streamtools.recording.request_bodies import body_fields, change_unread, is_form, is_multipart, leave_out
from streamtools.recording.scrubbing import LONGEST, Known, Secret, Secrets, know, scrub

MOST = 8192
"""Characters of a credential that are looked for elsewhere; servers take no longer headers."""

MANY = 32
"""Credentials of a request that are looked for elsewhere, those of headers and URL first: each costs time."""

HEADERS = frozenset(
    {
        *("accept", "anthropic-beta", "anthropic-version", "cache-control", "content-type", "date", "openai-beta"),
        *("openai-model", "openai-processing-ms", "openai-version", "request-id", "retry-after", "server"),
        *("user-agent", "x-request-id", "x-vercel-ai-data-stream", "x-vercel-ai-ui-message-stream"),
    }
)
"""The headers that are written, in lower case. `content-encoding` is none of them: the bytes are kept decoded."""


def read_request(
    method: str, url: str, headers: Iterable[tuple[str, str]], content: bytes, redact: Iterable[Secret], keep: bool
) -> tuple[Request, list[str]]:
    """Return what `describe_request` does, and the credentials that were found, to be looked for in the response."""
    fields = list(headers)
    asked = Request(method=method, url=url, **body_fields(fields, content))
    clean, found = _redacted(asked, fields, redact)
    return clean if keep else leave_out(clean), found


def describe_request(
    method: str,
    url: str,
    headers: Iterable[tuple[str, str]],
    content: bytes = b"",
    *,
    redact: Iterable[Secret] = (),
    keep_unreadable: bool = False,
) -> Request:
    """Return a request as it may be written down.

    `content` is its body as it was sent, `redact` are more secrets. What of the body cannot be looked through, because
    it is neither JSON, nor text, nor parts of these, is left out, unless `keep_unreadable`; `left_out` says so then.
    """
    return read_request(method, url, headers, content, redact, keep_unreadable)[0]


def redact_request(request: Request, redact: Iterable[Secret] = ()) -> tuple[Request, list[str]]:
    """Return a request that others wrote down as it may be, with all of its body, and the credentials that were found.

    Raises ValueError for a URL that is none, and for a body that is no base64.
    """
    headers, body = list(request.headers.items()), request.body
    if request.body_base64:
        fields = {"body": None, "body_base64": ""} | body_fields(headers, base64.b64decode(request.body_base64))
        request = msgspec.structs.replace(request, **fields)
    elif isinstance(body, str) and is_multipart(headers):
        request = msgspec.structs.replace(
            request, **({"body": None} | body_fields(headers, body.encode(errors="surrogatepass")))
        )
    return _redacted(request, headers, redact)


def _redacted(request: Request, headers: list[tuple[str, str]], redact: Iterable[Secret]) -> tuple[Request, list[str]]:
    """Return a request without its credentials, and them. `headers` are all that were sent."""
    credentials = Credentials()
    for name, value in headers:
        credentials.header(name, value)
    url, body = credentials.url(request.url), request.body
    body = credentials.pairs(body) if isinstance(body, str) and is_form(headers) else credentials.json(body)
    if is_form(headers):  # of bytes that are no text
        credentials.pairs(base64.b64decode(request.body_base64).decode("latin-1"))
    kept = {name: credentials.text(value) for name, value in keep_headers(headers).items()}
    found = _looked_for(credentials.found)
    clean = msgspec.structs.replace(request, url=url, headers=kept, body=body)
    return _clean_request(clean, know([*redact, *found])), found


def _looked_for(found: Iterable[str]) -> list[str]:
    """Return the credentials to be looked for elsewhere; a long one in pieces, up to `MOST` characters."""
    several = dict.fromkeys(piece for each in found for piece in _pieces(each) if len(piece) >= LEAST)
    return list(several)[:MANY]


def _pieces(text: str) -> list[str]:
    """Return a text, or its pieces, short enough to be looked for in any form."""
    if len(text) < LONGEST and len(json.dumps(json.dumps(text))) <= LONGEST:
        return [text]
    most = LONGEST // 14  # bytes that one character may have in JSON inside JSON
    return [text[start : start + most] for start in range(0, min(len(text), MOST), most)]


def credentials_of_headers(headers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the credentials that headers hold, those of a response too, which sets cookies."""
    credentials = Credentials()
    for name, value in headers:
        credentials.header(name, value)
    return _looked_for(credentials.found)


def describe_response(status: int, headers: Iterable[tuple[str, str]], *, redact: Iterable[Secret] = ()) -> Response:
    """Return the head of a response as it may be written down."""
    return _clean_response(Response(status=status, headers=keep_headers(headers)), know(redact))


def redact_head(head: Head, redact: Iterable[Secret] = (), *, keep_unreadable: bool = False) -> Head:
    """Return a head with known formats and `redact` overwritten in each of its strings, and what cannot be read out."""
    secrets = know(redact)
    request = head.request and _clean_request(head.request, secrets)
    return msgspec.structs.replace(
        head,
        title=redact_text(head.title, secrets),
        request=request if request is None or keep_unreadable else leave_out(request),
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
    """Return `url` without user name and password, and without what is named or made like a key in path and query.

    >>> redact_url("https://me:pass@example.org/v1/chat?alt=sse&api_key=123")
    'https://example.org/v1/chat?alt=sse&api_key=%5Bredacted%5D'
    """
    return Credentials().url(url)


def redact_text(text: str, redact: Secrets = ()) -> str:
    """Return `text` with known formats and `redact` overwritten."""
    data = text.encode(errors="surrogatepass")
    clean = scrub(data, redact)
    return text if clean == data else clean.decode(errors="replace")


def _clean_request(request: Request, secrets: Known) -> Request:
    def scrubbed(text: str) -> str:
        return base64.b64encode(scrub(base64.b64decode(text), secrets)).decode()

    body = change_unread(request, lambda part: part | {"base64": scrubbed(part["base64"])})
    return msgspec.structs.replace(
        request,
        url=_clean_url(request.url, secrets),
        headers={name: redact_text(value, secrets) for name, value in request.headers.items()},
        body=with_texts(body if fits(body, DEEPEST) else REDACTED, lambda text: redact_text(text, secrets)),
        body_base64=scrubbed(request.body_base64),
        left_out=redact_text(request.left_out, secrets),
    )


def _clean_response(response: Response, secrets: Known) -> Response:
    headers = {name: redact_text(value, secrets) for name, value in response.headers.items()}
    return msgspec.structs.replace(response, headers=headers)


def _clean_url(url: str, secrets: Known) -> str:
    """Return `url` with secrets overwritten in each part that they may stand in, also where they are escaped."""

    def cleaned(part: re.Match[str]) -> str:
        plain = unquote(part[0])
        clean = redact_text(plain, secrets)
        return part[0] if clean == plain else quote(clean, safe="*:@+,;!~'()")

    return re.sub("[^/?&=#]+", cleaned, url)

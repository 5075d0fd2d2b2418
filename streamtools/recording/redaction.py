"""Redacts the head of an exchange before it is written.

Recordings are committed and shared, so they must not hold credentials:

- Only headers of an allow-list are recorded.
- A request body is recorded only with `record_body=True`. Otherwise only its size is recorded.
- In URLs, user names and passwords are removed. The value of a parameter whose name suggests a credential is replaced.
- In the text of the head, keys of known formats, the caller's secrets, and the credentials in the headers and URL of
  the request are overwritten. The module `scrubbing` overwrites them in the bytes of the response, because a server
  that refuses a key often repeats it.

A replay redacts a new request in the same way, to compare it with the recorded requests.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, unquote_plus, urlsplit, urlunsplit

import msgspec

from streamtools.json_values import fits, with_texts
from streamtools.recording.format import ExchangeHead, RecordedRequest, RecordedResponse
from streamtools.recording.scrubbing import MAX_SECRET, EncodedSecrets, Secret, Secrets, encode_secrets, scrub

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
"""The names of the headers that are recorded. `content-encoding` is missing, because decoded bytes are recorded."""

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    "auth|key|token|secret|pass|pwd|credential|cookie|session|signature|sig$|sid$|jwt|code$", re.IGNORECASE
)
"""Matches the names of headers and URL parameters whose values are credentials."""
# "Bearer " in "Bearer sk-…"
_SCHEME = re.compile(r"(?:apikey|basic|bearer|digest|key|negotiate|token) +", re.IGNORECASE)
_MIN_CREDENTIAL = 16  # length in characters; a shorter value may be an ordinary word
_MAX_CREDENTIALS = 32  # number of credentials in a request to search for; each search takes time
_MAX_DEPTH = 100  # levels of nested JSON; a deeper value would exhaust the stack

Headers = Iterable[tuple[str, str]]


def describe_request(
    method: str,
    url: str,
    headers: Headers,
    content: bytes = b"",
    *,
    redact: Iterable[Secret] = (),
    record_body: bool = False,
) -> RecordedRequest:
    """Return a redacted request for a recording. With `record_body=False`, it has only the size of the body."""
    headers = list(headers)
    request = RecordedRequest(method=method, url=redact_url(url), headers=keep_headers(headers))
    if content and not record_body:
        request = msgspec.structs.replace(request, left_out=f"{len(content)} bytes")
    elif content:
        request = _with_body(request, content)
    return redact_request(request, encode_secrets([*redact, *credentials_in(headers, url)]))


def describe_response(status: int, headers: Headers, *, redact: Iterable[Secret] = ()) -> RecordedResponse:
    """Return the redacted status and headers of a response for a recording."""
    return _redact_response(RecordedResponse(status=status, headers=keep_headers(headers)), encode_secrets(redact))


def credentials_in(headers: Headers, url: str = "") -> list[str]:
    """Return the credentials in headers and a URL, to overwrite them in other text. Short values are skipped."""
    found: list[str] = []
    for name, value in headers:
        if name.lower() in ("cookie", "set-cookie"):
            # In `set-cookie`, only the first item is a cookie.
            cookies = value.split(";")[: 1 if name.lower() == "set-cookie" else None]
            found += [cookie.partition("=")[2].strip().strip('"') for cookie in cookies]
        elif _SECRET_NAME.search(name):
            found.append(_SCHEME.sub("", value.strip(), count=1))
    parts = urlsplit(url)
    found += map(unquote, parts.netloc.rpartition("@")[0].partition(":")[::2])  # user name and password
    for parameter in (*parts.query.split("&"), *parts.fragment.split("&")):
        name, _, value = parameter.partition("=")
        if _SECRET_NAME.search(unquote_plus(name)):
            found.append(unquote_plus(value))
    # A search finds at most `MAX_SECRET` bytes, so only the beginning of a long credential is searched for. One
    # character takes up to 14 bytes: in JSON inside JSON, a character above U+FFFF is two escapes such as `\\ud83d`.
    long_enough = [value[: MAX_SECRET // 14] for value in found if len(value) >= _MIN_CREDENTIAL]
    return list(dict.fromkeys(long_enough))[:_MAX_CREDENTIALS]


def redact_head(head: ExchangeHead, redact: Iterable[Secret] = ()) -> ExchangeHead:
    """Return a head in which keys of known formats and the secrets in `redact` are overwritten."""
    secrets = encode_secrets(redact)
    return msgspec.structs.replace(
        head,
        title=redact_text(head.title, secrets),
        request=head.request and redact_request(head.request, secrets),
        response=head.response and _redact_response(head.response, secrets),
    )


def keep_headers(headers: Headers) -> dict[str, str]:
    """Return the headers whose names are in the allow-list. Names are in lower case, repeated headers are joined."""
    kept: dict[str, str] = {}
    for name, value in headers:
        if (key := name.lower()) in HEADERS:
            kept[key] = f"{kept[key]}, {value}" if key in kept else value
    return kept


def redact_url(url: str) -> str:
    """Return `url` without user name and password. Values of parameters whose names suggest a credential are replaced.

    >>> redact_url("https://me:pass@example.org/v1/chat?alt=sse&api_key=123")
    'https://example.org/v1/chat?alt=sse&api_key=%5Bredacted%5D'
    """
    parts = urlsplit(url)
    fragment = _redact_parameters(parts.fragment) if "=" in parts.fragment else parts.fragment
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query=_redact_parameters(parts.query), fragment=fragment))


def redact_text(text: str, secrets: Secrets = ()) -> str:
    """Return `text` in which keys of known formats and `secrets` are overwritten."""
    data = text.encode(errors="surrogatepass")
    clean = scrub(data, secrets)
    return text if clean == data else clean.decode(errors="replace")


def redact_request(request: RecordedRequest, secrets: EncodedSecrets) -> RecordedRequest:
    """Return a request in which keys of known formats and `secrets` are overwritten.

    It has only the allowed headers, and a URL without credentials. A body that is nested too deeply is replaced by
    `REDACTED`.
    """
    body = request.body if fits(request.body, _MAX_DEPTH) else REDACTED
    return msgspec.structs.replace(
        request,
        url=_redact_escaped(redact_url(request.url), secrets),
        headers={name: redact_text(value, secrets) for name, value in keep_headers(request.headers.items()).items()},
        body=with_texts(body, lambda text: redact_text(text, secrets)),
        body_base64=base64.b64encode(scrub(base64.b64decode(request.body_base64), secrets)).decode(),
        left_out=redact_text(request.left_out, secrets),
    )


def _with_body(request: RecordedRequest, content: bytes) -> RecordedRequest:
    try:
        return msgspec.structs.replace(request, body=msgspec.json.decode(content))
    except (ValueError, RecursionError):
        pass
    try:
        return msgspec.structs.replace(request, body=content.decode())
    except UnicodeDecodeError:
        return msgspec.structs.replace(request, body_base64=base64.b64encode(content).decode())


def _redact_parameters(text: str) -> str:
    parameters = []
    for parameter in text.split("&"):
        name, equals, _ = parameter.partition("=")
        is_secret = equals and _SECRET_NAME.search(unquote_plus(name))
        parameters.append(f"{name}={quote(REDACTED)}" if is_secret else parameter)
    return "&".join(parameters)


def _redact_response(response: RecordedResponse, secrets: EncodedSecrets) -> RecordedResponse:
    headers = {name: redact_text(value, secrets) for name, value in response.headers.items()}
    return msgspec.structs.replace(response, headers=headers)


def _redact_escaped(url: str, secrets: EncodedSecrets) -> str:
    """Return `url` in which secrets are overwritten, also percent-encoded secrets."""

    def clean(part: re.Match[str]) -> str:
        plain = unquote(part[0])
        redacted = redact_text(plain, secrets)
        return part[0] if redacted == plain else quote(redacted, safe="*:@+,;!~'()")

    return re.sub("[^/?&=#]+", clean, url)

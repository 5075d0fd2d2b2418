"""What of an exchange is written down: no credentials, whatever their place."""

from __future__ import annotations

from typing import Any

import pytest

from streamtools.recording import Request, Response, describe_request, describe_response
from streamtools.recording.credentials import Credentials
from streamtools.recording.redact import keep_headers, redact_url
from tests.support.cases import together

URL = "https://example.org/v1"


def test_headers_of_the_list_only() -> None:
    """Headers that are not known to be harmless are left out; names are in lower case, repeated ones are joined."""
    headers = [
        ("Content-Type", "text/event-stream"),
        ("Authorization", "Bearer abc"),
        ("x-api-key", "abc"),
        ("Set-Cookie", "session=abc"),
        ("X-Something-New", "abc"),
        ("content-encoding", "gzip"),
        ("Cache-Control", "no-cache"),
        ("cache-control", "no-store"),
    ]

    expected = {"content-type": "text/event-stream", "cache-control": "no-cache, no-store"}
    assert expected == keep_headers(headers)
    assert Response(status=200, headers=expected) == describe_response(200, headers)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("https://me:pass@example.org/v1", "https://example.org/v1"),
        ("https://example.org/?alt=sse&key=abc", "https://example.org/?alt=sse&key=%5Bredacted%5D"),
        ("https://example.org/?API-Key=abc&token", "https://example.org/?API-Key=%5Bredacted%5D&token"),
        (
            "https://example.org/?X-Amz-Signature=abc&sig=abc#x",
            "https://example.org/?X-Amz-Signature=%5Bredacted%5D&sig=%5Bredacted%5D#x",
        ),
        ("https://example.org/?a=%20b+c=d&a=", "https://example.org/?a=%20b+c=d&a="),
    ],
)
def test_urls(url: str, written: str) -> None:
    """A URL loses its user and the values of keys that are named like secrets; the rest stays as it is."""
    assert written == redact_url(url)


@together(
    "key",
    [
        "api_key",
        "apiKey",
        "API-KEY",
        "openai_api_key",
        "token",
        "accessToken",
        "x-auth-token",
        "client_secret",
        "password",
        "authorization",
    ],
)
def test_secrets_in_bodies(key: str) -> None:
    """A string under a key that is named like a secret is replaced, at any depth."""
    body = {"model": "m", "tools": [{"headers": {key: "abc"}}]}

    assert {"model": "m", "tools": [{"headers": {key: "[redacted]"}}]} == Credentials().json(body)


@pytest.mark.parametrize(
    "body", [{"max_tokens": 5}, {"token": 5}, {"key": "a"}, {"tokens": "a"}, {"api_key": None}, "token", [1]]
)
def test_what_is_no_secret_in_bodies(body: Any) -> None:
    """Other keys, and values that are no strings, stay."""
    assert body == Credentials().json(body)


@pytest.mark.parametrize(
    ("content", "request_line"),
    [
        (b"", Request(method="POST", url=URL)),
        (
            b'{"stream": true, "api_key": "abc"}',
            Request(method="POST", url=URL, body={"stream": True, "api_key": "[redacted]"}),
        ),
        (b"a=b", Request(method="POST", url=URL, body="a=b")),
        (b"[" * 100_000, Request(method="POST", url=URL, body="[" * 100_000)),
        (
            b"\xff\x00",
            Request(method="POST", url=URL, left_out="2 bytes of no declared type, which cannot be looked through"),
        ),
    ],
    ids=["none", "JSON", "text", "deep", "binary"],
)
def test_bodies(content: bytes, request_line: Request) -> None:
    """A body is kept as JSON or as text, whichever it is; one that is neither is left out, and its size told."""
    assert request_line == describe_request(
        "POST", "https://me:pass@example.org/v1", [("Authorization", "abc")], content
    )

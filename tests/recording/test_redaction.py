"""The recorded parts of a request and a response."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from streamtools.errors import UnrecordedRequest
from streamtools.recording import RecordedRequest, RecordingTransport, ReplayTransport, read_recording, redaction
from tests.support.cases import together

SECRET = "Zq7fLw2mXc9vRk4tBn8s"  # in an unknown format
URL = "https://example.org/v1"


def record(path: Path, request: dict[str, Any], answer: httpx.Response, **options: Any) -> RecordedRequest:
    """Record one exchange, and return its request."""
    transport = RecordingTransport(httpx.MockTransport(lambda _: answer), path, **options)
    with httpx.Client(transport=transport) as client:
        client.request("POST", **({"url": URL} | request))
    recorded = read_recording(path).head.request
    assert recorded is not None
    return recorded


def test_only_headers_of_the_allow_list_are_recorded() -> None:
    """Names are in lower case. Repeated headers are joined."""
    headers = [
        ("Content-Type", "text/event-stream"),
        ("Authorization", "Bearer abc"),
        ("x-api-key", "abc"),
        ("Set-Cookie", "session=abc"),
        ("X-Something-New", "abc"),
        ("content-encoding", "gzip"),
        ("Retry-After", "3"),
        ("retry-after", "4"),
    ]
    expected = {"content-type": "text/event-stream", "retry-after": "3, 4"}
    assert expected == redaction.keep_headers(headers)


@pytest.mark.parametrize(
    ("url", "written"),
    [
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("https://me:pass@example.org/v1", "https://example.org/v1"),
        ("https://example.org/?alt=sse&key=abc", "https://example.org/?alt=sse&key=%5Bredacted%5D"),
        ("https://example.org/?API-Key=abc&token", "https://example.org/?API-Key=%5Bredacted%5D&token"),
        ("https://x/?X-Amz-Signature=abc&sig=abc#x", "https://x/?X-Amz-Signature=%5Bredacted%5D&sig=%5Bredacted%5D#x"),
        ("https://example.org/#access_token=abc&a=b", "https://example.org/#access_token=%5Bredacted%5D&a=b"),
        ("https://example.org/?a=%20b+c=d&a=", "https://example.org/?a=%20b+c=d&a="),
    ],
)
def test_urls_lose_their_credentials(url: str, written: str) -> None:
    assert written == redaction.redact_url(url)


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (b"", {}),
        (b'{"stream": true}', {"body": {"stream": True}}),
        (b"a=b", {"body": "a=b"}),
        (b"[" * 100_000, {"body": "[" * 100_000}),
        (b"\xff\x00", {"body_base64": "/wA="}),
    ],
    ids=["none", "JSON", "text", "deep", "binary"],
)
def test_bodies_are_recorded_on_request(content: bytes, fields: dict[str, Any]) -> None:
    expected = RecordedRequest(method="POST", url=URL, **fields)
    request = redaction.describe_request("POST", URL, [("Authorization", "abc")], content, record_body=True)
    assert expected == redaction.redact_request(request, redaction.encode_secrets([]))
    size = f"{len(content)} bytes" if content else ""
    assert RecordedRequest(method="POST", url=URL, left_out=size) == redaction.describe_request(
        "POST", URL, [], content
    )


@pytest.mark.parametrize("record_body", [False, True])
def test_requests_are_matched_without_and_with_bodies(record_body: bool, tmp_path: Path) -> None:
    """Without bodies, the size is compared."""
    path = tmp_path / "a.jsonl"
    request = {"json": {"question": "One?"}}
    recorded = record(path, request, httpx.Response(200, text="ok"), record_body=record_body)
    assert ({"question": "One?"} if record_body else None) == recorded.body
    assert (b"One?" in path.read_bytes()) is record_body
    with httpx.Client(transport=ReplayTransport(path, repeat=True)) as client:
        assert "ok" == client.post(URL, **request).text  # type: ignore[arg-type]
        with pytest.raises(UnrecordedRequest, match="body"):
            client.post(URL, json={"question": "Another one?"})


@together(
    ("headers", "url", "found"),
    [
        ([("Authorization", f"Bearer {SECRET}")], URL, [SECRET]),
        (
            [("Authorization", SECRET), ("x-goog-api-key", SECRET[::-1]), ("x-other", "a" * 20)],
            URL,
            [SECRET, SECRET[::-1]],
        ),
        ([("Cookie", f"theme=dark; session={SECRET}")], URL, [SECRET]),
        ([("Set-Cookie", f"sid={SECRET}; Domain=chat.example.org")], URL, [SECRET]),
        ([("x-functions-key", SECRET), ("X-Session-Id", SECRET[1:])], URL, [SECRET, SECRET[1:]]),
        ([("Authorization", "Bearer ollama"), ("api-key", "not-needed")], URL, []),
        ([], f"https://{SECRET}:{SECRET}%21@x/?key={SECRET}b&q={SECRET}c", [SECRET, f"{SECRET}!", f"{SECRET}b"]),
        ([("Authorization", "x" * 5000)], URL, ["x" * 292]),
    ],
)
def test_credentials_are_found_by_the_names_of_headers_and_parameters(
    headers: list[tuple[str, str]], url: str, found: list[str]
) -> None:
    """Short values are skipped."""
    assert found == redaction.credentials_in(headers, url)


@pytest.mark.parametrize(
    "request_",
    [
        {"headers": {"Authorization": f"Bearer {SECRET}"}},
        {"headers": {"Cookie": f"a=b; session={SECRET}"}},
        {"headers": {"x-api-key": SECRET}, "json": {"text": f"My key is {SECRET}."}},
        {"url": f"{URL}?api_key={SECRET}"},
        {"url": f"https://me:{SECRET}@example.org/{SECRET}"},
        {},
    ],
    ids=["header", "cookie", "body", "parameter", "user", "cookie of the response"],
)
def test_credentials_are_overwritten_in_the_response(request_: dict[str, Any], tmp_path: Path) -> None:
    """A server that refuses a key often repeats it."""
    path = tmp_path / "a.jsonl"
    answer = httpx.Response(401, text=f"no such key: {SECRET}!", headers={"Set-Cookie": f"sid={SECRET}; Path=/"})
    record(path, request_, answer, record_body=True)
    assert SECRET.encode() not in path.read_bytes()
    assert f"no such key: {'*' * len(SECRET)}!".encode() == read_recording(path).data

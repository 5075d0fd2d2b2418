"""Regression tests for attacks on recordings, and on tests that use them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from streamtools.errors import RecordingError
from streamtools.recording import ReplayTransport
from streamtools.recording.redaction import Scrubber, describe_request, encode_secrets, redact_request

KEY = "sk-acme-9f8e7d6c5b4a3f2e1d0c"
END = '{"at":1,"end":"end"}\n'


def recording(folder: Path, *, chunk: str = '{"at":0,"text":"data: x\\n\\n"}\n', **head: Any) -> Path:
    """Write a recording by hand, which may be invalid."""
    path = folder / "by-hand.jsonl"
    mark = {"streamtools": "recording", "version": 1, "source": "openai"}
    path.write_text(json.dumps(mark | head) + "\n" + chunk + END, encoding="utf-8")
    return path


# Secrets.


@pytest.mark.parametrize("secret", ["acme", "7d6c5"])
@pytest.mark.parametrize("text", [f"the key is {KEY} now", f'{{"text":"Bearer {KEY}"}}'])
def test_a_secret_inside_a_key_does_not_hide_the_key(secret: str, text: str) -> None:
    """Both are overwritten at every cut."""
    data = text.encode()
    for cut in range(len(data) + 1):
        scrubber = Scrubber([secret])
        clean = scrubber.feed(data[:cut]) + scrubber.feed(data[cut:]) + scrubber.close(complete=True)
        assert data.replace(KEY[3:].encode(), b"*" * len(KEY[3:])) == clean.replace(b"Bearer ***", b"Bearer sk-")


def test_a_secret_does_not_hide_a_key_in_pieces() -> None:
    data = "".join(f'data: {{"delta":"{KEY[at : at + 3]}"}}\n\n' for at in range(0, len(KEY), 3)).encode()
    scrubber = Scrubber(["acme"])
    clean = scrubber.feed(data) + scrubber.close(complete=True)
    assert "sk-" + "*" * len(KEY[3:]) == "".join(re.findall('delta":"(.*?)"', clean.decode()))


def test_overlapping_texts_are_overwritten_at_every_cut() -> None:
    data = b"- xabcdefghxab -"
    for cut in range(len(data) + 1):
        scrubber = Scrubber(["xab", "abcdefgh", "ghx"])
        clean = scrubber.feed(data[:cut]) + scrubber.feed(data[cut:]) + scrubber.close(complete=True)
        assert b"- ************ -" == clean


@pytest.mark.parametrize("secret", ['it is "quoted"', "back\\slash", "pässwörd"])
@pytest.mark.parametrize("ascii_", [True, False])
def test_a_text_is_found_in_json_inside_json(secret: str, ascii_: bool) -> None:
    arguments = json.dumps({"key": secret}, ensure_ascii=ascii_)
    for size in (1, 5, 100):
        pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
        data = "".join(f'data: {{"arguments":{json.dumps(each, ensure_ascii=ascii_)}}}\n\n' for each in pieces).encode()
        scrubber = Scrubber([secret])
        clean = (scrubber.feed(data) + scrubber.close(complete=True)).decode()
        assert re.fullmatch(r'\{\\"key\\": \\"\*+\\"\}', "".join(re.findall('arguments":"(.*)"}', clean)))


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
@pytest.mark.parametrize("depth", [101, 600, 900])
def test_a_deep_body_is_not_recorded(opening: str, closing: str, depth: int) -> None:
    """The client still gets its response."""
    body = opening * depth + "1" + closing * depth
    asked = describe_request("POST", "https://example.org/", [], body.encode(), record_body=True)
    assert "[redacted]" == redact_request(asked, encode_secrets([])).body


# Recordings of other people.


@pytest.mark.parametrize(
    "request_",
    [
        {"method": "GET", "url": "http://[x"},
        {"method": "GET", "url": "http://℀.example.org/"},
        {"method": "GET", "url": "http://x/", "body_base64": "a"},
        {"method": "GET", "url": "http://x/", "body_base64": "é"},
    ],
)
def test_an_invalid_recorded_request_is_reported_with_its_line(request_: dict[str, str], tmp_path: Path) -> None:
    path = recording(tmp_path, request=request_)
    with pytest.raises(RecordingError, match=r"by-hand\.jsonl, line 1, has a request that cannot be read: "):
        ReplayTransport(path)


def test_a_request_with_a_deep_body_is_matched(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(300):
        deep = [deep]
    path = recording(tmp_path, request={"method": "POST", "url": "http://x/", "body": deep})
    with httpx.Client(transport=ReplayTransport(path)) as client:
        assert "data: x\n\n" == client.post("http://x/", json=deep).text


def test_an_invalid_recorded_header_is_reported(tmp_path: Path) -> None:
    """The client and `check` raise the error."""
    path = recording(
        tmp_path, request={"method": "GET", "url": "http://x/"}, response={"status": 200, "headers": {"é": ""}}
    )
    transport = ReplayTransport(path)
    with httpx.Client(transport=transport) as client, pytest.raises(RecordingError, match="has an invalid header"):
        client.get("http://x/")
    with pytest.raises(RecordingError, match="has an invalid header"):
        transport.check()


def test_a_recorded_content_encoding_is_ignored(tmp_path: Path) -> None:
    """Recorded bytes are not compressed."""
    response = {"status": 200, "headers": {"Content-Encoding": "gzip", "server": "x"}}
    path = recording(tmp_path, request={"method": "GET", "url": "http://x/"}, response=response)
    with httpx.Client(transport=ReplayTransport(path)) as client:
        answer = client.get("http://x/")
    assert ("data: x\n\n", "x") == (answer.text, answer.headers["server"])

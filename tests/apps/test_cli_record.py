"""The command `streamtools record`."""

from __future__ import annotations

import io
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from streamtools.apps.cli import main
from streamtools.events import read_ui_event
from streamtools.recording import read_recording
from tests.apps.test_cli_bad_input import error_line
from tests.apps.test_cli_replay import save, save_recording, sse
from tests.support.loopback import Loopback
from tests.support.planted import KEYS, found

KEY = KEYS["openai"]


@contextmanager
def serving(*chunks: bytes, **options: Any) -> Iterator[Loopback]:
    """Serve these chunks in a thread."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(Loopback(chunks, **options)) as server:
        yield server


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the proxies from the environment."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_an_answer_is_recorded_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The request has the body and the headers. The file contains no keys."""
    body, out = save(tmp_path, b'{"stream": true}', "body.json"), tmp_path / "out.jsonl"
    answer = sse("Your key is ", KEY, " indeed")
    headers = ["--header", f"authorization: Bearer {KEY}", "--header", "accept:*/*"]
    with serving(answer[:90], answer[90:]) as server:
        arguments = ["record", "--url", f"{server.url}?key=1", "--out", str(out), "--body", body, "--record-body"]
        assert 0 == main([*arguments, *headers, "--redact", "indee[a-d]"])
    shown = capsys.readouterr()
    assert shown.out.startswith(f"Your key is {KEY} indeed\n\n✔ finished (stop) · no calls · ")
    assert shown.out.endswith(f"\n\nRecorded in {out}.\n")
    assert "" == shown.err
    (request,) = server.requests
    assert request.startswith(b"POST /?key=1 HTTP/1.1\r\n")
    assert f"authorization: Bearer {KEY}".encode() in request
    assert b"content-type: application/json\r\n" in request
    assert request.endswith(b'\r\n\r\n{"stream": true}')
    recording = read_recording(out)
    assert recording.head.request is not None
    assert {"stream": True} == recording.head.request.body
    assert len(answer) == len(recording.data)
    assert b'"' + b"*" * len(KEY) + b'"' in recording.data
    assert b'" ******"' in recording.data
    assert [] == found(out.read_bytes())
    assert 0o600 == stat.S_IMODE(out.stat().st_mode)


def test_json_prints_only_events(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a body, the method is GET."""
    out = tmp_path / "out.jsonl"
    with serving(sse("Hi.")) as server:
        assert 0 == main(["record", "--url", server.url, "--out", str(out), "--json", "--source", "openai"])
    shown = capsys.readouterr()
    assert ["start", "step-start", "text", "step-end", "done"] == [
        read_ui_event(line).type for line in shown.out.splitlines()
    ]
    assert "" == shown.err
    assert server.requests[0].startswith(b"GET / ")
    assert "openai" == read_recording(out).head.source


def test_the_body_is_read_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a=b")))
    out = tmp_path / "out.jsonl"
    with serving(sse("Hi.")) as server:
        arguments = ["--body", "-", "--header", "Content-Type: application/x-www-form-urlencoded"]
        assert 0 == main(["record", "--url", server.url, "--out", str(out), *arguments])
    assert server.requests[0].endswith(b"\r\n\r\na=b")
    assert 1 == server.requests[0].lower().count(b"content-type")
    monkeypatch.setattr(sys, "stdin", None)
    capsys.readouterr()
    assert 2 == main(["record", "--url", server.url, "--out", str(out), "--body", "-"])
    assert "--body: standard input is closed" == error_line(capsys)


def test_a_failed_response_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit status is 1."""
    out = tmp_path / "out.jsonl"
    with serving(b'{"error":{"message":"no such key"}}', status=401, declared="application/json") as server:
        assert 1 == main(["record", "--url", server.url + "?key=1", "--out", str(out)])
    shown = capsys.readouterr()
    assert "no such key" in shown.out
    assert f"streamtools: {server.url}?key=%5Bredacted%5D: the stream failed: no such key\n" == shown.err
    assert b'{"error":{"message":"no such key"}}' == read_recording(out).data
    with serving(sse("Hi.", finish=None), drop=True) as server:
        assert 1 == main(["record", "--url", server.url, "--out", str(out)])
    end = read_recording(out).end
    assert end is not None
    assert "reset" == end.kind


def test_a_missing_server_is_reported_without_credentials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The recording contains a request without a response."""
    with serving() as server:
        url = server.url
    out = tmp_path / "out.jsonl"
    assert 1 == main(["record", "--url", f"{url}?key=s3cret", "--out", str(out)])
    assert f"{url}?key=%5Bredacted%5D does not respond: ConnectError" == error_line(capsys)
    assert read_recording(out).head.response is None


def test_replay_shows_all_exchanges_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error names the exchange."""
    data = Path(save_recording(tmp_path, sse("One."), "end")).read_bytes()
    data += Path(save_recording(tmp_path, sse("Two.", finish=None), "reset")).read_bytes()
    path = save(tmp_path, data, "both.jsonl")
    assert 1 == main(["replay", path, "--speed", "0"])
    shown = capsys.readouterr()
    assert shown.out.index("One.") < shown.out.index("Two.")
    assert shown.err.startswith(f"streamtools: {path}, exchange 2: the stream failed: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "the following arguments are required: --url, --out (see streamtools record --help)"),
        (("--out", "x"), "the following arguments are required: --url"),
        (
            ("--out", "x", "--url", "y", "--header", "accept"),
            "expected NAME:VALUE, such as 'accept: */*', got 'accept'",
        ),
        (("--out", "x", "--url", "y", "--header", "s" * 30), "got 'ssssssss…'"),
        (("--out", "x", "--url", "y", "--redact", "("), "invalid regular expression '(': missing ), unterminated"),
        (("--out", "x", "--url", "y", "--source", "z"), "argument --source: invalid choice: 'z'"),
        (
            ("--out", "/no/such/x", "--url", "http://x"),
            "--out: /no/such/x cannot be written: No such file or directory",
        ),
        (("--out", "a\0b", "--url", "http://x"), "--out: a␀b cannot be written: embedded null byte"),
        (("--out", "x", "--url", "y"), "--url must be a URL such as https://example.com/stream: Request URL is"),
        (("--out", "x", "--url", "http://[x"), "Invalid IPv6 URL"),
        (
            ("--out", "x", "--url", "http://y", "--body", "none"),
            "--body: none cannot be read: No such file or directory",
        ),
        (("--out", "x", "--url", "http://y", "--body", "a\0b"), "--body: a␀b cannot be read: embedded null byte"),
    ],
)
def test_invalid_options_are_refused(
    arguments: tuple[str, ...],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert 2 == main(["record", *arguments])
    assert reason in error_line(capsys)


def test_a_full_disk_is_reported_after_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(sse("Hi.")) as server:
        assert 1 == main(["record", "--url", server.url, "--out", "/dev/full"])
    shown = capsys.readouterr()
    assert shown.out.startswith("Hi.\n")
    assert "streamtools: the recording cannot be written: No space left on device\n" == shown.err

"""S12: keys and content are in no log and no recording, a log record is one line, and recordings are private.

`test_log_secrets.py`, `test_recording_secrets.py` and `test_s14_errors.py` search for planted secrets. This module
checks who may read the files, and what names can do to a log.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from streamtools import ToolStream
from streamtools.events import NativeToolCall, ProviderCompleted
from streamtools.recording import RecordingTransport, record
from tests.support.stories import Script

CANARY = "sk-canary0123456789abcdef0123456789"


@pytest.fixture(autouse=True)
def _open_mask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def answer() -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=f"data: {CANARY}\n\n".encode())


@pytest.mark.parametrize("existed", [False, True])
async def test_only_the_owner_can_read_a_recording(tmp_path: Path, existed: bool) -> None:
    """Holds for each way of recording, any umask, and a file that everyone could read before."""
    paths = [tmp_path / name for name in ("transport", "wrapped")]
    for path in paths if existed else ():
        path.write_text("old")
        path.chmod(0o666)

    transport = RecordingTransport(httpx.MockTransport(lambda _: answer()), paths[0])
    async with httpx.AsyncClient(transport=transport) as client:
        await client.post(f"http://ann:{CANARY}@x/{CANARY}?key={CANARY}", headers={"x-key": CANARY}, json={"a": CANARY})
        async with record(answer(), paths[1]) as stream:
            assert CANARY.encode() in b"".join([chunk async for chunk in stream])

    for path in paths:
        assert 0o600 == mode(path), path.name
        assert CANARY.encode() not in path.read_bytes(), path.name
        assert CANARY[8:] not in path.read_text(), path.name


FORGED = "f\n2026-01-01 00:00:00 [info] approved\r\x1b[2J\x85\u2028x"


async def test_a_name_adds_no_line_to_a_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Names of tools and ids of calls are on one line, without control characters."""
    caplog.set_level(logging.DEBUG)
    call, end = NativeToolCall(FORGED, {}, id=FORGED), ProviderCompleted(finish_reason="stop")
    async with ToolStream(Script([call, end]), tools=[answer], run_id="r") as events:
        told = [event.type async for event in events]
    shown = capsys.readouterr().out + caplog.text

    assert "error" in told
    assert "tool_call_failed" in shown
    assert 1 == len(shown.splitlines())
    assert [] == [each for each in ("\x1b[2J", "\r", "\x85", "\u2028") if each in shown]

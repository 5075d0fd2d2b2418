"""The transport of a test's clients: it replays, it records, or both.

What is recorded goes into a file of its own until the test is over, so that one that fails half-way leaves what was
recorded before as it was.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import httpx

from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.recording import RecordingTransport, read_recordings
from streamtools.recording.library import library_of
from streamtools.recording.replay_transport import ReplayTransport
from streamtools.recording.writing import open_anew
from streamtools.testing.settings import Mode, Settings

_REFUSED = 400  # the least status that says so


class RecordedTransport(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """Replays, records, or both; what is recorded goes to a file of its own until the test is over."""

    def __init__(self, path: Path, settings: Settings, mode: Mode, advice: str = "") -> None:
        self._path = path
        self._advice = advice
        self._part = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._settings = settings
        self._strict = mode == "replay"
        self._replays: ReplayTransport | None = None
        self._file: Any = None
        self._recorder: RecordingTransport | None = None
        if mode == "replay" or (mode == "extend" and path.exists()):
            self._replays = ReplayTransport(
                path, match=settings.match, repeat=settings.repeat, redact=settings.redact, **settings.playback
            )

    async def handle_async_request(self, request: Any) -> Any:
        try:
            if self._replays is not None:
                return await self._replays.handle_async_request(request)
        except UnrecordedRequest as fault:
            self._forgive(fault)
        return await self._recording().handle_async_request(request)

    def handle_request(self, request: Any) -> Any:
        try:
            if self._replays is not None:
                return self._replays.handle_request(request)
        except UnrecordedRequest as fault:
            self._forgive(fault)
        return self._recording().handle_request(request)

    async def aclose(self) -> None:
        if self._replays is not None:
            await self._replays.aclose()
        if self._recorder is not None:
            await self._recorder.aclose()

    def close(self) -> None:
        if self._replays is not None:
            self._replays.close()
        if self._recorder is not None:
            self._recorder.close()

    def faults(self, *, unplayed: bool) -> list[str]:
        if self._replays is None or not self._strict:
            return []
        found = [str(fault) for fault in self._replays.faults]
        if not found and unplayed:
            found += self._replays.missed
            if not found and self._settings.unplayed == "fail":
                try:
                    self._replays.check()
                except RecordingError as fault:
                    found.append(f"{fault}\n{self._advice}".strip())
        return found

    def save(self, *, passed: bool) -> str | None:
        """Put what was recorded in its place; return why not, if it is nothing to keep.

        What a provider refused is only worth keeping if that is what the test, which has `passed`, is about.
        """
        if self._file is None:
            return None
        try:
            if why := self._why_not(passed=passed):
                return why
            if self._replays is not None:
                recorded = self._part.read_bytes()
                with open_anew(self._part) as file:
                    file.write(self._path.read_bytes() + recorded)
            self._part.replace(self._path)
        finally:
            self._part.unlink(missing_ok=True)
        return None

    def _why_not(self, *, passed: bool) -> str | None:
        assert self._recorder is not None
        fault = self._recorder.fault
        try:
            self._file.close()
        except OSError as error:
            fault = error
        if fault is not None:
            return f"it could not be written: {fault}"
        for exchange in read_recordings(self._part, strict=False):
            request, response = exchange.head.request, exchange.head.response
            assert request is not None
            if response is None or exchange.end is None:
                return f"{request.method} {request.url} got no whole response"
            if response.status >= _REFUSED and not passed:
                return f"{request.method} {request.url} got the status {response.status}, and the test has not passed"
        return None

    def _forgive(self, fault: UnrecordedRequest) -> None:
        """Take note that a request is to be recorded after all, or raise."""
        assert self._replays is not None
        if self._strict:
            fault.args = (f"{fault}\n{self._advice}".strip(),)
            raise fault
        self._replays.faults.remove(fault)

    def _recording(self) -> RecordingTransport:
        if self._recorder is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_anew(self._part)
            inner = self._settings.inner() if self._settings.inner else _Network()
            self._recorder = RecordingTransport(
                inner,
                self._file,
                source=self._settings.source,
                redact=self._settings.redact,
                edit=self._settings.edit,
                clock=self._settings.record_clock,
            )
        return self._recorder


class _Network:
    """The transports of the clients' own library, made when they are asked: a test may have clients of both kinds."""

    def __init__(self) -> None:
        self._asynchronous: Any = None
        self._blocking: Any = None

    async def handle_async_request(self, request: Any) -> Any:
        self._asynchronous = self._asynchronous or library_of(request).AsyncHTTPTransport()
        return await self._asynchronous.handle_async_request(request)

    def handle_request(self, request: Any) -> Any:
        self._blocking = self._blocking or library_of(request).HTTPTransport()
        return self._blocking.handle_request(request)

    async def aclose(self) -> None:
        if self._asynchronous is not None:
            await self._asynchronous.aclose()

    def close(self) -> None:
        if self._blocking is not None:
            self._blocking.close()

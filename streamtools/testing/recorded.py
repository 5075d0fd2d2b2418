"""A recorded stream in the hands of a test: replayed, or recorded on the way."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack

import httpx

from streamtools.errors import RecordingError, UnrecordedRequest
from streamtools.recording import (
    DETECT,
    Head,
    Playback,
    PlaybackOptions,
    Recording,
    RecordingTransport,
    Secret,
    read_recordings,
)
from streamtools.recording.library import library_of
from streamtools.recording.matching import FIELDS, Match
from streamtools.recording.replay_transport import ReplayTransport
from streamtools.recording.writing import open_anew
from streamtools.replaying import Replay, ReplayOptions, replay
from streamtools.tools.registry import ToolsLike

Mode: TypeAlias = Literal["replay", "record", "extend"]
"""Only what is recorded; everything anew; what is recorded, and what is not is recorded."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keywords of the marker `recording`, and of the fixture `recording_options`; others are those of `Playback`.

    Raises ValueError for a value that is not allowed.
    """

    source: str = DETECT
    """The adapter that reads what is recorded; by default whose it is shows when it is read."""
    match: Match = FIELDS
    """What of a request has to be as recorded, see `ReplayTransport`."""
    repeat: bool = False
    """Whether a recorded response may be given more than once."""
    unplayed: Literal["fail", "ignore"] = "fail"
    """What it means that something recorded was not asked for."""
    allow_hosts: Sequence[str] = ()
    """Hosts that may be reached while the recording is replayed; this machine always may."""
    inner: Callable[[], Any] | None = None
    """Makes the transport that is recorded; by default one of the client's library."""
    redact: Sequence[Secret] = ()
    """Secrets that are overwritten when it is recorded, beside those that are known, see `RecordingTransport`."""
    edit: Callable[[Head], Head] | None = None
    """Takes each head before it is recorded and returns what is: to take out a date, say."""
    record_clock: Callable[[], float] = time.perf_counter
    """The clock, in seconds, by which it is recorded."""
    playback: PlaybackOptions = field(default_factory=PlaybackOptions)

    def __post_init__(self) -> None:
        if self.unplayed not in ("fail", "ignore"):
            raise ValueError(f"unplayed is 'fail' or 'ignore', not {self.unplayed!r}")
        if isinstance(self.allow_hosts, str):
            raise ValueError(f"allow_hosts is a list of hosts, not {self.allow_hosts!r}")
        Playback(**self.playback)


class RecordingFixture:
    """What the fixture `recording` is: the exchanges of a test with its provider, from a file beside the test.

    `path` is that file. `new_id` makes ids for calls that are the same in each run, as `replay` uses them.
    """

    def __init__(self, path: Path, settings: Settings, mode: Mode) -> None:
        self.path = path
        self.new_id: Callable[[], str] = map("call_{}".format, itertools.count(1)).__next__
        self._settings = settings
        self._mode = mode
        self._transport: _Transport | None = None

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        """What to give to an HTTP client of httpx or httpx2, as its `transport`; several clients may share it."""
        if self._transport is None:
            self._transport = _Transport(self.path, self._settings, self._mode)
        return self._transport

    def client(self, **options: Any) -> httpx.AsyncClient:
        """Return a client of httpx that has the transport; the options are its own."""
        return httpx.AsyncClient(transport=self.transport, **options)

    def replay(
        self, *, exchange: int | None = None, tools: ToolsLike | None = None, **options: Unpack[ReplayOptions]
    ) -> Replay:
        """Return the UI events of the recorded stream, as `streamtools.replay` does, with ids that stay the same."""
        if not self.path.exists():
            raise RecordingError(f"{self.path} is not there: only what goes through `recording.transport` is recorded")
        chosen: Any = {"run_id": "run_1", "new_id": self.new_id, **self._settings.playback, **options}
        return replay(self.path, exchange=exchange, tools=tools, **chosen)

    @property
    def exchanges(self) -> list[Recording]:
        """What the file holds: requests, responses, chunks and ends. Raises `RecordingError`."""
        return read_recordings(self.path)

    def faults(self, *, unplayed: bool) -> list[str]:
        """Return what was wrong: requests that are not recorded, and `unplayed` ones if there were no such requests."""
        return [] if self._transport is None else self._transport.faults(unplayed=unplayed)

    def save(self) -> str | None:
        """Put what was recorded in its place; return why not, if it is nothing to keep."""
        return None if self._transport is None else self._transport.save()


class _Transport(httpx.AsyncBaseTransport, httpx.BaseTransport):
    """Replays, records, or both; what is recorded goes to a file of its own until the test is over."""

    def __init__(self, path: Path, settings: Settings, mode: Mode) -> None:
        self._path = path
        self._part = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._settings = settings
        self._strict = mode == "replay"
        self._replays: ReplayTransport | None = None
        self._file: Any = None
        self._recorder: RecordingTransport | None = None
        if mode == "replay" or (mode == "extend" and path.exists()):
            options: dict[str, Any] = {"match": settings.match, "repeat": settings.repeat, **settings.playback}
            self._replays = ReplayTransport(path, **options)

    async def handle_async_request(self, request: Any) -> Any:
        try:
            if self._replays is not None:
                return await self._replays.handle_async_request(request)
        except UnrecordedRequest as fault:
            self._forgive(fault)
        return await self._recording(request, "AsyncHTTPTransport").handle_async_request(request)

    def handle_request(self, request: Any) -> Any:
        try:
            if self._replays is not None:
                return self._replays.handle_request(request)
        except UnrecordedRequest as fault:
            self._forgive(fault)
        return self._recording(request, "HTTPTransport").handle_request(request)

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
        if not found and unplayed and self._settings.unplayed == "fail":
            try:
                self._replays.check()
            except RecordingError as fault:
                found.append(str(fault))
        return found

    def save(self) -> str | None:
        if self._file is None:
            return None
        try:
            if why := self._why_not():
                return why
            if self._replays is not None:
                recorded = self._part.read_bytes()
                with open_anew(self._part) as file:
                    file.write(self._path.read_bytes() + recorded)
            self._part.replace(self._path)
        finally:
            self._part.unlink(missing_ok=True)
        return None

    def _why_not(self) -> str | None:
        assert self._recorder is not None
        fault = self._recorder.fault
        try:
            self._file.close()
        except OSError as error:
            fault = error
        if fault is not None:
            return f"it could not be written: {fault}"
        for exchange in read_recordings(self._part, strict=False):
            if exchange.head.response is None or exchange.end is None:
                request = exchange.head.request
                assert request is not None
                return f"{request.method} {request.url} got no whole response"
        return None

    def _forgive(self, fault: UnrecordedRequest) -> None:
        """Take note that a request is to be recorded after all, or raise."""
        assert self._replays is not None
        if self._strict:
            raise fault
        self._replays.faults.remove(fault)

    def _recording(self, request: Any, kind: str) -> RecordingTransport:
        if self._recorder is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_anew(self._part)
            inner = self._settings.inner() if self._settings.inner else getattr(library_of(request), kind)()
            self._recorder = RecordingTransport(
                inner,
                self._file,
                source=self._settings.source,
                redact=self._settings.redact,
                edit=self._settings.edit,
                clock=self._settings.record_clock,
            )
        return self._recorder

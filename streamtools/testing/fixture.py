"""The fixture `recording`: a stream replayed to a test, or recorded while it runs, with the network blocked."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Unpack, overload

import httpx

from streamtools.calls import new_call_id
from streamtools.errors import RecordingError, UnrecordedRequest, check_word
from streamtools.parsing.options import ParserOptions
from streamtools.recording import Cut, Edit, Playback, PlaybackOptions, Recording, Secret, read_recordings
from streamtools.recording.event_replay import Replay, ReplayOptions, replay
from streamtools.recording.exchanges import DETECT, FIELDS, Match
from streamtools.recording.file_writer import open_anew
from streamtools.recording.transports import RecordingTransport, ReplayTransport, Transport, library_of
from streamtools.tools.registry import ToolsLike

Mode: TypeAlias = Literal["replay", "record", "extend"]
"""Only what is recorded; everything anew; what is recorded, and what is not is recorded."""


@dataclass(frozen=True, kw_only=True)
class RecordingSettings:
    """The keywords of the marker `recording`, and of the fixture `recording_options`; others are those of `Playback`.

    Raises ValueError for a value that is not allowed.
    """

    source: str = DETECT
    """The adapter that reads the recorded stream; by default, it is detected when the stream is read."""
    match: Match = FIELDS
    """What of a request has to be as recorded, see `ReplayTransport`."""
    repeat: bool = False
    """Whether a recorded response may be given more than once."""
    unplayed: Literal["fail", "ignore"] = "fail"
    """Whether a recorded exchange that was not asked for fails the test."""
    allow_hosts: Sequence[str] = ()
    """Hosts that may be reached while the recording is replayed; this machine always may."""
    inner: Callable[[], Any] | None = None
    """Makes the transport that is recorded; by default one of the client's library."""
    redact: Sequence[Secret] = ()
    """Secrets that are overwritten beside those that are known, in what is recorded and in what is compared with it."""
    keep_unreadable: bool = False
    """Whether bodies of requests that cannot be looked through, such as images, are recorded all the same."""
    edit: Edit | None = None
    """Takes each head before it is recorded and returns what is: to take out a date, say. What is asked later is not
    edited: a change of the request is for `match` to let pass."""
    record_clock: Callable[[], float] = time.perf_counter
    """The clock, in seconds, by which it is recorded."""
    playback: PlaybackOptions = field(default_factory=PlaybackOptions)

    def __post_init__(self) -> None:
        check_word("unplayed", self.unplayed, ("fail", "ignore"))
        if isinstance(self.allow_hosts, str):
            raise ValueError(f"allow_hosts is a list of hosts, not {self.allow_hosts!r}")
        Playback(**self.playback)


class RecordedTransport(Transport):
    """The transport of a test's clients, which replays, records, or both.

    What is recorded goes to a file of its own until the test is over: one that fails half-way leaves the old recording.
    """

    def __init__(self, path: Path, settings: RecordingSettings, mode: Mode, advice: str = "") -> None:
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

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        async def ask(transport: Any) -> Any:
            return transport.handle_request(request) if blocking else await transport.handle_async_request(request)

        try:
            if self._replays is not None:
                return await ask(self._replays)
        except UnrecordedRequest as fault:
            assert self._replays is not None
            if self._strict:
                fault.args = (f"{fault}\n{self._advice}".strip(),)
                raise
            self._replays.faults.remove(fault)
        return await ask(self._recording())

    async def _pass_on(self, method: str, *args: Any) -> None:
        closing = {"__aexit__": "aclose", "__exit__": "close"}.get(method, method)
        if "enter" not in method:
            for each in filter(None, (self._replays, self._recorder)):
                await each._pass_on(closing)

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
            if response.status >= 400 and not passed:
                return f"{request.method} {request.url} got the status {response.status}, and the test has not passed"
        return None

    def _recording(self) -> RecordingTransport:
        if self._recorder is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_anew(self._part)
            how = self._settings
            inner, clock = how.inner() if how.inner else _Network(), how.record_clock
            options = {name: getattr(how, name) for name in ("source", "redact", "edit", "keep_unreadable")}
            self._recorder = RecordingTransport(inner, self._file, clock=clock, **options)
        return self._recorder


class _Network(Transport):
    """The transports of the clients' own library, made when they are asked: a test may have clients of both kinds."""

    asynchronous: Any = None
    blocking: Any = None

    async def _handle(self, request: Any, *, blocking: bool) -> Any:
        if blocking:
            self.blocking = self.blocking or library_of(request).HTTPTransport()
            return self.blocking.handle_request(request)
        self.asynchronous = self.asynchronous or library_of(request).AsyncHTTPTransport()
        return await self.asynchronous.handle_async_request(request)

    async def _pass_on(self, method: str, *args: Any) -> None:
        if method in ("aclose", "__aexit__") and self.asynchronous is not None:
            await self.asynchronous.aclose()
        elif method in ("close", "__exit__") and self.blocking is not None:
            self.blocking.close()


class RecordingFixture:
    """The value of the fixture `recording`: the exchanges of a test with its provider, from a file beside the test.

    `new_id` makes ids for calls that are the same in each run, as `replay` uses them.
    """

    def __init__(self, path: Path, settings: RecordingSettings, mode: Mode, advice: str = "") -> None:
        """`advice` is added to the message where the requests differ from the recorded ones."""
        self._path = path
        self.new_id: Callable[[], str] = map("call_{}".format, itertools.count(1)).__next__
        self._settings = settings
        self._mode = mode
        self._advice = advice
        self._transport: RecordedTransport | None = None
        self._used = False
        self.passed = False
        """Whether the test has passed, as far as is known."""

    @property
    def path(self) -> Path:
        """The file of the recording."""
        self._used = True
        return self._path

    @property
    def transport(self) -> RecordedTransport:
        """The `transport` for an HTTP client of httpx or httpx2; several clients may share it."""
        if self._transport is None:
            self._transport = RecordedTransport(self.path, self._settings, self._mode, self._advice)
        return self._transport

    def client(self, **options: Any) -> httpx.AsyncClient:
        """Return a client of httpx that has the transport; the options are its own."""
        return httpx.AsyncClient(transport=self.transport, **options)

    def replay(
        self, *, exchange: int | None = None, tools: ToolsLike | None = None, **options: Unpack[ReplayOptions]
    ) -> Replay:
        """Return the UI events of the recorded stream, as `streamtools.replay` does, with ids that stay the same."""
        if not self.path.exists():
            raise RecordingError(
                f"{self.path} is not there: only what goes through `recording.transport` is recorded, and"
                " `recording.replay` asks nobody"
            )
        parser = options.get("parser", ParserOptions())
        if parser.new_id is new_call_id:
            parser = replace(parser, new_id=self.new_id)
        chosen: Any = {"run_id": "run_1", **self._settings.playback, **options, "parser": parser}
        return replay(self.path, exchange=exchange, tools=tools, **chosen)

    @property
    def exchanges(self) -> list[Recording]:
        """What the file holds: requests, responses, chunks and ends. Raises `RecordingError`."""
        return read_recordings(self.path)

    def faults(self, *, unplayed: bool) -> list[str]:
        """Return what was wrong: requests that are not recorded, and `unplayed` ones if there were no such requests.

        A recording that was not opened is unplayed, too: the test has not asked through it.
        """
        if self._transport is not None:
            return self._transport.faults(unplayed=unplayed)
        if self._used or not unplayed or self._settings.unplayed == "ignore":
            return []
        return [
            "the test has not used its recording: give `recording.client()`, or a client with `recording.transport`, to"
            " what asks the provider, or say `unplayed='ignore'`"
        ]

    def save(self) -> str | None:
        """Put what was recorded in its place; return why not, if it is nothing to keep."""
        return None if self._transport is None else self._transport.save(passed=self.passed)


TestT = TypeVar("TestT", bound=Callable[..., Any])

_BY_NAME: tuple[Cut, ...] = ("recorded", "frame", "byte", "whole")


@overload
def every_cut(recording: TestT) -> TestT: ...
@overload
def every_cut(recording: str | Path | None = None, *, seeds: Sequence[int] = (1, 2, 3)) -> Callable[[TestT], TestT]: ...
def every_cut(recording: Any = None, *, seeds: Sequence[int] = (1, 2, 3)) -> Any:
    """Run a test once for each way to cut its recording: as recorded, by frame, by byte, whole, and at random.

        @every_cut
        async def test_weather(recording): ...

    The fixture `recording` is cut so in all that it gives, and there is one recording for all of them. It may be named,
    `@every_cut("weather")`, as with the marker. Each of `seeds` is one more way, at random.
    """
    import pytest

    def decorate(test: TestT) -> TestT:
        if recording is not None and not callable(recording):
            test = pytest.mark.recording(recording)(test)
        ids = [f"cut={each}" for each in _BY_NAME] + [f"cut=random{seed}" for seed in seeds]
        marked: TestT = pytest.mark.parametrize("recording", [*_BY_NAME, *seeds], indirect=True, ids=ids)(test)
        return marked

    return decorate(recording) if callable(recording) else decorate

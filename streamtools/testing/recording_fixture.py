"""The fixture `recording`. It replays recorded responses of a provider in a test, or records them during the test."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, TypeVar, Unpack

import httpx

from streamtools.calls import new_call_id
from streamtools.errors import Checked, RecordingError
from streamtools.parsing.options import ParserOptions
from streamtools.recording import Playback, PlaybackOptions
from streamtools.recording.event_replay import EventReplay, ReplayOptions, replay
from streamtools.recording.files import DETECT, create_private_file, find_exchanges
from streamtools.recording.matching import FIELDS, Match
from streamtools.recording.playback import Cut
from streamtools.recording.transports import ClientTransport, RecordingTransport, ReplayTransport
from streamtools.tools.registry import ToolsLike

Mode: TypeAlias = Literal["replay", "record"]
"""`"replay"` answers all requests from the recording, `"record"` sends and records all requests."""


@dataclass(frozen=True, kw_only=True)
class RecordingSettings(Checked):
    """The options of the marker `recording` and of the fixture `recording_options`.

    The marker and the fixture also accept the fields of `Playback` as keywords. Raises ValueError for an invalid value.
    """

    source: str = DETECT
    """The id of the wire format of the stream. By default, the format is detected when the stream is read."""
    match: Match = FIELDS
    """The fields that must be equal in a request and a recorded request, or a function, see `ReplayTransport`."""
    repeat: bool = False
    """True if a recorded response can be replayed more than once."""
    unplayed: Literal["fail", "ignore"] = "fail"
    """With `"fail"`, a recorded exchange that was not requested fails the test. `"ignore"` allows it."""
    exchange: int | None = None
    """The number of the only exchange whose response is cut or has the fault; None means each. `replay` reads it."""
    inner: Callable[[], Any] | None = None
    """A function that creates the transport that sends requests while they are recorded. None uses the HTTP transport
    of the client's library."""
    redact: Sequence[str] = ()
    """Additional secrets to overwrite, in the recording and in the requests that are compared with it."""
    record_body: bool = True
    """True if request bodies are recorded. Otherwise requests are compared by the size of the body."""
    playback: PlaybackOptions = field(default_factory=PlaybackOptions)
    """The options of `Playback` for the replay."""

    def __post_init__(self) -> None:
        Playback(**self.playback)


class RecordingFixture:
    """The value of the fixture `recording`: the exchanges of a test with its provider, in a file next to the test.

    `new_id` is a function that creates call ids. It returns the same ids in each test run. `replay` uses it.

    A new recording is written to a temporary file. After the test, it replaces the old recording if every response is
    complete. If the test failed, every status must also be below 400.
    """

    def __init__(self, path: Path, settings: RecordingSettings, mode: Mode, advice: str = "") -> None:
        """`advice` is added to the error message for a request that is not recorded."""
        self._path = path
        self.new_id: Callable[[], str] = map("call_{}".format, itertools.count(1)).__next__
        self._settings = settings
        self._mode = mode
        self._advice = advice
        self._transport: RecordingTransport | ReplayTransport | None = None
        self._temporary_path = path.with_name(f"{path.name}.{os.getpid()}.part")
        self._file: BinaryIO | None = None  # the open temporary file
        self._path_was_used = False
        self.test_passed = False

    @property
    def path(self) -> Path:
        """The path of the recording."""
        self._path_was_used = True
        return self._path

    @property
    def transport(self) -> ClientTransport:
        """The HTTP transport for clients of httpx or httpx2. Several clients can share it."""
        settings = self._settings
        if self._transport is None and self._mode == "replay":
            self._transport = ReplayTransport(
                self.path,
                match=settings.match,
                repeat=settings.repeat,
                redact=settings.redact,
                exchange=settings.exchange,
                **settings.playback,
            )
            self._transport.advice = self._advice
        elif self._transport is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = create_private_file(self._temporary_path)
            self._transport = RecordingTransport(
                None if settings.inner is None else settings.inner(),
                self._file,
                source=settings.source,
                redact=settings.redact,
                record_body=settings.record_body,
            )
        return self._transport

    def client(self, **options: Any) -> httpx.AsyncClient:
        """Return a new `httpx.AsyncClient` with `transport`. `options` are other arguments of the client."""
        return httpx.AsyncClient(transport=self.transport, **options)

    def replay(
        self, *, exchange: int | None = None, tools: ToolsLike | None = None, **options: Unpack[ReplayOptions]
    ) -> EventReplay:
        """Replay the recorded stream with `streamtools.replay`. Call ids and the run id are the same in each test run.

        Raises RecordingError if the recording does not exist.
        """
        if not self.path.exists():
            raise RecordingError(
                f"{self.path} does not exist: `recording.replay` sends no request. Record the stream with a test that "
                "uses `recording.client()`."
            )
        parser = options.get("parser", ParserOptions())
        if parser.new_id is new_call_id:
            parser = dataclasses.replace(parser, new_id=self.new_id)
        chosen: Any = {"run_id": "run_1", **self._settings.playback, **options, "parser": parser}
        return replay(self.path, exchange=exchange or self._settings.exchange, tools=tools, **chosen)

    def problems(self, *, check_unplayed: bool) -> list[str]:
        """Return messages about requests that are not recorded.

        If there are none and `check_unplayed` is True, return messages about injected faults that were not reached, or
        about recorded exchanges that were not requested.
        """
        transport, fails_unplayed = self._transport, check_unplayed and self._settings.unplayed == "fail"
        if transport is None and fails_unplayed and not self._path_was_used:
            return [
                "the test did not use its recording: pass `recording.client()`, or a client with "
                "`recording.transport`, to the code that calls the provider, or set `unplayed='ignore'`"
            ]
        if not isinstance(transport, ReplayTransport):
            return []
        problems = [str(error) for error in transport.errors]
        if not problems and check_unplayed:
            problems = transport.missed
        if not problems and fails_unplayed:
            try:
                transport.check()
            except RecordingError as error:
                problems = [f"{error}\n{self._advice}".strip()]
        return problems

    def save(self) -> str | None:
        """Replace the old recording by the new recording, if there is one.

        If the new recording is incomplete, keep the old recording and return the reason. Returns None otherwise.
        """
        if self._file is None:
            return None
        self._file.close()
        try:
            is_empty = not self._temporary_path.stat().st_size
            if problem := self._find_problem(is_empty):
                return problem
            if not is_empty:
                self._temporary_path.replace(self._path)
        finally:
            self._temporary_path.unlink(missing_ok=True)
        return None

    def _find_problem(self, is_empty: bool) -> str | None:
        assert isinstance(self._transport, RecordingTransport)
        if (error := self._transport.write_error) is not None:
            return f"it could not be written: {error}"
        for exchange in () if is_empty else find_exchanges(self._temporary_path):
            request, response = exchange.head.request, exchange.head.response
            assert request is not None
            if response is None or not exchange.has_end:
                return f"{request.method} {request.url} got no complete response"
            if response.status >= 400 and not self.test_passed:  # if the test passed, it expected the error
                return f"{request.method} {request.url} got the status {response.status}, and the test did not pass"
        return None


TestT = TypeVar("TestT", bound=Callable[..., Any])

_CUTS: tuple[Cut, ...] = ("recorded", "frame", "byte", "whole", 1, 2, 3)  # the numbers are seeds of random sizes


def every_cut(test: TestT) -> TestT:
    """Run a test several times, each time with other chunk boundaries in its recording.

    The runs use, in order: the recorded chunks, one chunk per event, one chunk per byte, the whole body as one chunk,
    and three times chunks of random sizes. All runs share one recording. Example:

        @every_cut
        async def test_weather(recording): ...
    """
    import pytest

    ids = [f"cut=random{cut}" if isinstance(cut, int) else f"cut={cut}" for cut in _CUTS]
    marked: TestT = pytest.mark.parametrize("recording", _CUTS, indirect=True, ids=ids)(test)
    return marked

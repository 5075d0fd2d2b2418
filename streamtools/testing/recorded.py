"""A recorded stream in the hands of a test: replayed, or recorded on the way."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

import httpx

from streamtools.errors import RecordingError
from streamtools.recording import Recording, read_recordings
from streamtools.replaying import Replay, ReplayOptions, replay
from streamtools.testing.settings import Mode, Settings
from streamtools.testing.transport import RecordedTransport
from streamtools.tools.registry import ToolsLike


class RecordingFixture:
    """What the fixture `recording` is: the exchanges of a test with its provider, from a file beside the test.

    `new_id` makes ids for calls that are the same in each run, as `replay` uses them.
    """

    def __init__(self, path: Path, settings: Settings, mode: Mode, advice: str = "") -> None:
        """`advice` is said where something else is asked than what was recorded."""
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
        """What to give to an HTTP client of httpx or httpx2, as its `transport`; several clients may share it."""
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
        chosen: Any = {"run_id": "run_1", "new_id": self.new_id, **self._settings.playback, **options}
        return replay(self.path, exchange=exchange, tools=tools, **chosen)

    @property
    def exchanges(self) -> list[Recording]:
        """What the file holds: requests, responses, chunks and ends. Raises `RecordingError`."""
        return read_recordings(self.path)

    def faults(self, *, unplayed: bool) -> list[str]:
        """Return what was wrong: requests that are not recorded, and `unplayed` ones if there were no such requests.

        A recording that nobody has opened is unplayed, too: the test has asked somebody else, or nobody.
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

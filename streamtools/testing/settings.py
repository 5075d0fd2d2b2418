"""How a test's recording is to be used: what the marker `recording` and the fixture `recording_options` may say."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from streamtools.recording import DETECT, Head, Playback, PlaybackOptions, Secret
from streamtools.recording.matching import FIELDS, Match

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
    """Secrets that are overwritten beside those that are known, in what is recorded and in what is compared with it."""
    edit: Callable[[Head], Head] | None = None
    """Takes each head before it is recorded and returns what is: to take out a date, say. What is asked later is not
    edited: a change of the request is for `match` to let pass."""
    record_clock: Callable[[], float] = time.perf_counter
    """The clock, in seconds, by which it is recorded."""
    playback: PlaybackOptions = field(default_factory=PlaybackOptions)

    def __post_init__(self) -> None:
        if self.unplayed not in ("fail", "ignore"):
            raise ValueError(f"unplayed is 'fail' or 'ignore', not {self.unplayed!r}")
        if isinstance(self.allow_hosts, str):
            raise ValueError(f"allow_hosts is a list of hosts, not {self.allow_hosts!r}")
        Playback(**self.playback)

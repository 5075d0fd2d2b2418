"""Faults in recorded streams: wherever a stream breaks, the run ends truthfully and runs only what was earned.

Every shipped recording × every fault × places all over it, and most of them where the turn ends.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any, NamedTuple

import pytest

from streamtools import replay
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, Text, UIEvent, Warning
from streamtools.recording import VirtualClock, read_recording, shipped
from tests.recording.test_recordings_shipped import TOOLS
from tests.support.options import grouped

pytestmark = pytest.mark.anyio

QUICK = ("tilde-call",)
"""Recordings that the quick tests take."""

STRETCHES = 15
"""Places in a recording, beside those around the end of the turn."""

BREAKS = ("cut_after", "reset_after", "stall_after")


class Told(NamedTuple):
    """What counts of a run."""

    reason: str
    finish: str | None
    executed: list[tuple[str, str]]
    faults: list[Code]
    """The errors that are no call's."""
    pending: int
    text: str
    warned: bool
    """Whether a frame is said to be bad."""


def tell(events: list[UIEvent]) -> Told:
    """Return what counts of these events."""
    done = events[-1]
    assert isinstance(done, Done)
    executed = [(each.call.name, json.dumps(each.call.arguments)) for each in events if isinstance(each, Executed)]
    return Told(
        done.reason,
        done.finish_reason,
        sorted(executed),
        [each.code for each in events if isinstance(each, Error) and each.call_id is None],
        len(done.pending),
        "".join(each.text for each in events if isinstance(each, Text)),
        any(isinstance(each, Warning) and each.code is Code.BAD_FRAME for each in events),
    )


async def play(name: str, **options: Any) -> Told:
    """Return what comes of playing a shipped recording; what stalls is waited for on a virtual clock."""
    return tell(await replay(shipped()[name], tools=TOOLS, clock=VirtualClock(), read_timeout=60, **grouped(**options)))


class Stream(NamedTuple):
    """The bytes of a recording, and where its turn ends: the frame that holds the finish reason."""

    data: bytes
    start: int
    stop: int
    """Behind the line of data, of which the blank line is no part."""

    @property
    def places(self) -> list[int]:
        """Where faults are put."""
        size = len(self.data)
        edges = {edge + by for edge in (self.start, self.stop) for by in range(-3, 12)}
        inside = range(self.start, self.stop, 29)  # a number that keeps step with nothing
        return sorted({*range(0, size, max(1, size // STRETCHES)), *edges, *inside, size - 1, size})


def stream(name: str) -> Stream:
    """Return the stream in a shipped recording."""
    data = read_recording(shipped()[name]).data
    (found,) = re.finditer(rb'data: (?=[^\n]*"finish_reason":")[^\n]*', data)
    return Stream(data, found.start(), found.end())


@pytest.fixture
def anyio_backend() -> str:
    """One event loop: what is tested here is what comes of the bytes."""
    return "asyncio"


every_recording = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in shipped()]
)


@every_recording
@pytest.mark.parametrize("fault", BREAKS)
async def test_a_stream_that_ends_too_early(name: str, fault: str) -> None:
    """Before the finish reason is there the run has failed and nothing is run; behind it, nothing is missing."""
    whole, recorded = await play(name), stream(name)
    for place in recorded.places:
        told = await play(name, **{fault: place})
        if place >= recorded.stop:
            assert whole == told._replace(warned=False), f"{fault}={place}"
        else:
            assert told == told._replace(reason="failed", finish=None, executed=[], faults=[Code.STREAM_INTERRUPTED]), (
                f"{fault}={place}"
            )
            shown = sum(
                1
                for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(whole.text, told.text, strict=False))
            )
            assert len(told.text) - shown < len("~~~tool_call\n"), (
                "only the beginning of a marker is shown in its place"
            )

"""Faults in recorded streams: a run ends with the correct reason, and runs only calls of complete turns.

Every shipped recording is tested with every fault at many offsets, most of them near the end of the turn.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

import pytest

from streamtools import replay
from streamtools.errors import Code
from streamtools.events import Done, Error, Executed, Text, UIEvent, Warning
from streamtools.recording import read_recording, shipped
from streamtools.recording.matching import common_prefix_length
from tests.recording.test_recordings_shipped import TOOLS
from tests.support.options import grouped

pytestmark = [pytest.mark.anyio, pytest.mark.asyncio_only]

QUICK = ("tilde-call",)
"""The recordings that the quick tests use."""

STRETCHES = 15
"""The number of offsets in a recording, in addition to those near the end of the turn."""

BREAKS = ("cut_after", "reset_after", "stall_after")


class Outcome(NamedTuple):
    """The parts of a run that are compared."""

    reason: str
    finish: str | None
    executed: list[tuple[str, str]]
    faults: list[Code]
    """The errors that do not concern a call."""
    pending: int
    text: str
    warned: bool
    """True if a frame was reported as bad."""


def outcome_of(events: list[UIEvent]) -> Outcome:
    """Return the outcome of these events."""
    done = events[-1]
    assert isinstance(done, Done)
    executed = [(each.call.name, json.dumps(each.call.arguments)) for each in events if isinstance(each, Executed)]
    return Outcome(
        done.reason,
        done.finish_reason,
        sorted(executed),
        [each.code for each in events if isinstance(each, Error) and each.call_id is None],
        len(done.pending),
        "".join(each.text for each in events if isinstance(each, Text)),
        any(isinstance(each, Warning) and each.code is Code.BAD_FRAME for each in events),
    )


async def play(name: str, **options: Any) -> Outcome:
    """Replay a shipped recording, and return its outcome. Only a stall waits for the read timeout."""
    return outcome_of(await replay(shipped()[name], tools=TOOLS, read_timeout=0.001, **grouped(**options)))


class Stream(NamedTuple):
    """The bytes of a recording, and the end of its turn: the frame with the finish reason."""

    data: bytes
    start: int
    stop: int
    """The offset after the line of data, without the blank line."""

    @property
    def offsets(self) -> list[int]:
        """The offsets of the faults."""
        size = len(self.data)
        edges = {edge + by for edge in (self.start, self.stop) for by in range(-3, 12)}
        inside = range(self.start, self.stop, 29)
        return sorted({*range(0, size, max(1, size // STRETCHES)), *edges, *inside, size - 1, size})


def stream(name: str) -> Stream:
    """Return the stream of a shipped recording."""
    data = read_recording(shipped()[name]).data
    (found,) = re.finditer(rb'data: (?=[^\n]*"finish_reason":")[^\n]*', data)
    return Stream(data, found.start(), found.end())


every_recording = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.deep) for name in shipped()]
)


@every_recording
@pytest.mark.parametrize("fault", BREAKS)
async def test_a_fault_before_the_finish_reason_fails_the_run(name: str, fault: str) -> None:
    """After the finish reason, the outcome is complete."""
    whole, recorded = await play(name), stream(name)
    for offset in recorded.offsets:
        outcome = await play(name, **{fault: offset})
        if offset >= recorded.stop:
            assert whole == outcome._replace(warned=False), f"{fault}={offset}"
            continue
        failed = outcome._replace(reason="failed", finish=None, executed=[], faults=[Code.STREAM_INTERRUPTED])
        assert failed == outcome, f"{fault}={offset}"
        same = common_prefix_length(whole.text, outcome.text)
        assert len(outcome.text) - same < len("~~~tool_call\n"), "more than the beginning of a marker is shown"

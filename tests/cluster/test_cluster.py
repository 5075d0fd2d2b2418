"""The checks of histories find what is wrong in one, and an episode finds nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.events import (
    Call,
    Done,
    Error,
    Executed,
    Executing,
    Start,
    StepEnd,
    StepStart,
    Text,
    Thinking,
    UIEvent,
    Warning,
)
from tests.cluster.checks import check
from tests.cluster.episode import Asked, Fault, History, Reading
from tests.cluster.worker import Plan

CALL = ToolCall(id="c", name="pay", arguments={}, dialect="native")


def history() -> History:
    """One run with one call, which one reader saw as it was, in two pieces."""
    told: list[UIEvent] = [
        *(Start("r", seq=1), StepStart(1, seq=2), Text("a", seq=3), Thinking(True, "c", seq=4), Call(CALL, seq=5)),
        *(Thinking(False, "c", seq=6), Executing(CALL, seq=7), Executed(CALL, 1, None, 0.0, seq=8)),
        *(StepEnd(1, "tool_calls", seq=9), Done("finished", "tool_calls", None, [], seq=10)),
    ]
    reading = Reading("r", list(told), connections=2, is_over=True)
    asked = [Asked("approve", "r", 1.0, 1.1, "ok"), Asked("stop", "r", 2.0, 2.1, "ok")]
    return History(
        1, {"r": Plan("r", 1, 0.0)}, {"r": 0.5}, readings=[reading], asked=asked, effects=["r"], told={"r": told}
    )


def _twice(found: History) -> None:
    found.readings[0].events.insert(3, found.readings[0].events[2])


def _gap(found: History) -> None:
    del found.readings[0].events[4]


def _other(found: History) -> None:
    found.readings[0].events[2] = Text("b", seq=3)


def _resyncs(found: History) -> None:
    found.readings[0].events.insert(3, Warning(Code.RESYNC, "", seq=0))


def _no_end(found: History) -> None:
    del found.told["r"][-1], found.readings[0].events[-1]
    found.readings[0].is_over = False


def _two_ends(found: History) -> None:
    found.told["r"].append(Done("finished", "tool_calls", None, [], seq=11))


def _unreasoned(found: History) -> None:
    found.told["r"][7] = Error(Code.OUTCOME_UNKNOWN, "", call_id="c", call=CALL, seq=8)


def _unreached(found: History) -> None:
    found.asked[0].answer = "OwnerUnreachable: no answer"


BROKEN: dict[str, tuple[str, Callable[[History], object]]] = {
    "an event twice": ("readers", _twice),
    "an event that a reader has not seen": ("readers", _gap),
    "an event that is another": ("readers", _other),
    "a resync for nothing": ("readers", _resyncs),
    "a run without end": ("ends", _no_end),
    "two ends": ("ends", _two_ends),
    "an effect twice": ("effects", lambda found: found.effects.append("r")),
    "an effect that was not had": ("effects", lambda found: found.effects.clear()),
    "unknown for no reason": ("faults", _unreasoned),
    "a message that is lost": ("asked", _unreached),
    "an orphan": ("orphans", lambda found: found.left.append("log")),
}


def test_a_history_in_which_all_is_well() -> None:
    """Nothing is found in it, nor where a fault is the reason."""
    assert [] == check(history())
    found = history()
    _unreasoned(found)
    found.faults.append(Fault("kill", 1, 0.4, 0.9))
    found.readings.clear()
    assert [] == check(found)
    _unreached(found)
    found.faults.clear()
    found.told["r"] = history().told["r"]
    found.waits += [Fault("waits", None, 0.9, 1.2), Fault("waits", None, 1.0, 1.5), Fault("waits", None, 1.6, 1.9)]
    found.asked[0].over = 1.9  # within 0.9 s, all but 0.1 s of it waited for the machine
    assert [] == check(found)
    found.waits = found.waits[2:]
    assert 1 == len(check(found))


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_wrong_is_found(name: str) -> None:
    """By the check that is there for it."""
    rule, breaks = BROKEN[name]
    found = history()
    breaks(found)

    assert any(each.startswith(rule) for each in check(found))


@pytest.mark.servers
def test_an_episode() -> None:
    """Three processes, twenty runs, and faults that follow from the seed: all that is promised holds."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.cluster", "--episodes", "1", "--seed", "3"]
    played = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )

    assert (0, "") == (played.returncode, played.stderr)

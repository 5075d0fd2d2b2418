"""The checks find each broken promise in a history, and nothing in an episode."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamtools import events as ui
from streamtools.calls import ToolCall
from streamtools.errors import Code
from tests.cluster.checks import check
from tests.cluster.episode import Asked, Fault, History, Reading
from tests.cluster.worker import Plan

CALL = ToolCall(id="c", name="pay", arguments={}, dialect="native")
PLAN = Plan("r", 1, 0.0)


def history() -> History:
    """Return a history of one run with one call. One reader received it over two connections."""
    told: list[ui.UIEvent] = [
        *(
            *(ui.Start("r", seq=1), ui.StepStart(1, seq=2), ui.Text(PLAN.text, seq=3)),
            *(ui.Thinking(True, "c", seq=4), ui.Call(CALL, seq=5)),
        ),
        *(ui.Thinking(False, "c", seq=6), ui.Executing(CALL, seq=7), ui.Executed(CALL, 1, None, 0.0, seq=8)),
        *(ui.StepEnd(1, "tool_calls", seq=9), ui.Done("finished", "tool_calls", None, [], seq=10)),
    ]
    reading = Reading("r", list(told), connections=2, is_over=True)
    asked = [Asked("approve", "r", 1.0, 1.1, "ok"), Asked("stop", "r", 2.0, 2.1, "ok")]
    return History(1, {"r": PLAN}, {"r": 0.5}, readings=[reading], asked=asked, effects=["r"], told={"r": told})


def _twice(found: History) -> None:
    found.readings[0].events.insert(3, found.readings[0].events[2])


def _gap(found: History) -> None:
    del found.readings[0].events[4]


def _other(found: History) -> None:
    found.readings[0].events[2] = ui.Text("b", seq=3)


def _resyncs(found: History) -> None:
    found.readings[0].events.insert(3, ui.Warning(Code.RESYNC, "", seq=0))


def _no_end(found: History) -> None:
    del found.told["r"][-1], found.readings[0].events[-1]
    found.readings[0].is_over = False


def _two_ends(found: History) -> None:
    found.told["r"].append(ui.Done("finished", "tool_calls", None, [], seq=11))


def _unreasoned(found: History) -> None:
    found.told["r"][7] = ui.Error(Code.OUTCOME_UNKNOWN, "", call_id="c", call=CALL, seq=8)


def _unreached(found: History) -> None:
    found.asked[0].answer = "OwnerUnreachable: no answer"


def _text(text: str) -> Callable[[History], object]:
    def write(found: History) -> None:
        found.told["r"][2] = found.readings[0].events[2] = ui.Text(text, seq=3)

    return write


def _not_continued(found: History) -> None:
    found.told["r"][-1] = found.readings[0].events[-1] = ui.Done("failed", None, None, [], seq=10)
    del found.asked[1]  # the stop


BROKEN: dict[str, tuple[str, Callable[[History], object]]] = {
    "an event twice": ("readers", _twice),
    "a missing event": ("readers", _gap),
    "a different event": ("readers", _other),
    "an unnecessary resync": ("readers", _resyncs),
    "a run without an end": ("ends", _no_end),
    "two ends": ("ends", _two_ends),
    "an effect twice": ("effects", lambda found: found.effects.append("r")),
    "an effect that is missing": ("effects", lambda found: found.effects.clear()),
    "an unknown outcome without a fault": ("faults", _unreasoned),
    "lost text": ("texts", _text(PLAN.text[:-3])),
    "repeated text": ("texts", _text(PLAN.text + PLAN.text[-3:])),
    "a run that was not continued": ("texts", _not_continued),
    "a lost request": ("asked", _unreached),
    "an orphan": ("orphans", lambda found: found.left.append("log")),
}


def test_a_correct_history_has_no_findings() -> None:
    """A fault excuses an unknown outcome and a lost request."""
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
    found.asked[0].over = 1.9  # 0.8 s of these 0.9 s are delays of the machine
    assert [] == check(found)
    found.waits = found.waits[2:]
    assert 1 == len(check(found))


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_promise_is_found(name: str) -> None:
    """The check for it finds it."""
    rule, breaks = BROKEN[name]
    found = history()
    breaks(found)

    assert any(each.startswith(rule) for each in check(found))


@pytest.mark.servers
def test_an_episode() -> None:
    """Three processes with twenty runs keep all promises under the faults of a seed."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.cluster", "--episodes", "1", "--seed", "3"]
    played = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)}
    )

    assert (0, "") == (played.returncode, played.stderr)

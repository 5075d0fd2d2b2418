"""Outputs: encoders for front ends, additions to a history, and a terminal.

The runs are the machine's, for any source events. A reader may start late or leave early.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streamtools.apps.cli.printable import one_line, printable
from streamtools.events import UIEvent
from streamtools.history import User, write_messages
from streamtools.history.parts import steps_to_history
from streamtools.stream.collector import Collector
from streamtools.testing.laws import cut
from tests.fuzz.target import Input, Target, seeds
from tests.fuzz.targets import machine
from tests.fuzz.targets.foreign import DIALECTS, FORMATS
from tests.machine.test_machine_laws import run
from tests.outputs.test_encoders_contract import ENCODERS, check
from tests.recording.test_scrubbing import PLANTED
from tests.support.history_rules import breaches

_LEFT = (None, None, 0, 1, 2, 3, 5, 8, -1)
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _run(given: Input) -> list[UIEvent]:
    options = given.choose_all(machine.CHOICES) | {"dialects": DIALECTS}
    return run(machine.read(given.text), idle=given.choose(11, (False, True)), **options)


def _check_encoders(given: Input) -> Iterator[object]:
    """The body of any run, whole or between any two events, is readable for a client of its protocol."""
    events = _run(given)[given.choose(10, (0, 0, 0, 1, 2, 4, 7)) : given.choose(12, _LEFT)]
    for row in ENCODERS.values():
        check(row, events)
    yield from zip(map(type, events), map(type, events[1:]), strict=False)


def _check_results(given: Input) -> Iterator[object]:
    """Every provider accepts the additions of any run to a history."""
    collector = Collector(DIALECTS)
    events = _run(given)
    collector.take(events)
    result = collector.read()
    said = steps_to_history(result.steps)
    for format in FORMATS:
        written = write_messages([User("?"), *said, User("And?")], format, dialects=DIALECTS)
        assert [] == breaches(written, format)
        asked = write_messages([User("?")], format)
        result.messages(format)
        told = result.messages(format, answer_pending=True)
        if format != "gemini" or told:
            assert [] == breaches([*asked, *told], format)
    yield from zip(map(type, said), map(type, said[1:]), strict=False)
    yield result.reason, result.finish_reason, min(len(result.errors), 2), min(len(result.calls), 2)


def _check_terminal(given: Input) -> Iterator[object]:
    """No character of a text controls the terminal, at any cuts."""
    text = given.text
    shown: list[str] = []
    for deltas in ([text], list(text), cut(text, given.places(len(text)))):
        shown.append("".join(map(printable, deltas)))
    assert shown[0] == shown[1] == shown[2]
    assert not _OBEYED.search(shown[0])
    line = one_line(text)
    assert not _OBEYED.search(line)
    assert "\n" not in line
    yield len(shown[0]) - len(text)


def _make_terminal() -> Target:
    bodies = ["\x1b[31mred\x1b[0m\r\n", "a\rb\r\r\nc\t", "\x9b2J\x85\x7f\ud83d", "é😀\u2028", *PLANTED[:2]]
    words = [b"\x1b[", b"\x1b]0;", b"\x07", b"\r", b"\r\n", b"\n", b"\xc2\x9b", b"\xed\xa0\xbd", b"\t", b"\0"]
    return Target("terminal", _check_terminal, lambda: list(seeds(bodies, {})), words)


def _make_encoders() -> Target:
    whole = machine.make()
    return Target("encoders", _check_encoders, whole.seeds, whole.words)


def _make_results() -> Target:
    whole = machine.make()
    return Target("results", _check_results, whole.seeds, whole.words)


MAKE = {"encoders": _make_encoders, "results": _make_results, "terminal": _make_terminal}
"""What makes each target."""

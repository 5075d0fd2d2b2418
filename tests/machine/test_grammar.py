"""The order of events: every run keeps it, and any other order is refused with its position and the rule.

docs/events.md describes the order too. The tests read the page, and both must agree about changed runs.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event as tell
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamtools import Parser, outputs
from streamtools import events as kinds
from streamtools.errors import Code, EventOrderError
from streamtools.machine.event_order import Grammar, validate
from streamtools.testing.laws import feed
from tests.machine.test_machine_laws import IDS, options, rarely, run, sources
from tests.support import strategies
from tests.support.cases import together
from tests.support.sample_runs import RUNS, START, STOP, call, executed, numbered, written_call

PAGE = (Path(__file__).parents[2] / "docs" / "events.md").read_text()

_OF_RUNS = ("start", "step-start", "step-end", "done", "follow-up", "usage", "warning")
_OF_TEXT = ("text", "reasoning", "markup", "matched", "raw")
_WAITING = (" call thinking:ends ", "call:again ", "approval-requested ")
_OF_CALLS = ("call-start", "call-delta", "call", "approval-requested", "executing", "progress", "executed")


def read_grammar(text: str) -> dict[str, str]:
    """Return the grammar of a docstring as regular expressions over words, each of which ends in a space."""
    block = re.search(r"```grammar\n(.*?)```", text, re.DOTALL)
    assert block is not None
    rules: dict[str, str] = {}
    for line in block[1].splitlines():
        name, _, rule = line.rpartition("= ")
        if name:
            rules[latest := name.strip()] = rule
        else:
            rules[latest] += line

    def write(rule: str) -> str:
        return re.sub(r"[a-z][a-z:-]*", lambda word: refer(word[0]), rule)

    def refer(word: str) -> str:
        return f"(?:{write(rules[word]) if word in rules else word + '_'})"

    return {name: write(rule).replace(" ", "").replace("_", " ") for name, rule in rules.items()}


GRAMMAR = read_grammar(inspect.getdoc(Grammar) or "")


def keeps(events: Sequence[kinds.UIEvent]) -> bool:
    """Return whether the events are those of a run according to the grammar in the docstring of `Grammar`."""
    words, waits = "", ""
    lives: dict[str, str] = defaultdict(str)
    places: dict[str, set[int]] = defaultdict(set)
    steps = 0
    for at, event in enumerate(events):
        word: str = event.type if event.type in _OF_RUNS + _OF_TEXT else "of-call"
        if isinstance(event, kinds.StepStart | kinds.StepEnd):
            steps += isinstance(event, kinds.StepStart)
            if event.step != steps:
                return False
        elif isinstance(event, kinds.Thinking) and event.call_id is None:
            waits += "T" if event.active else "t"
            continue
        elif isinstance(event, kinds.Error) and event.call_id is None:
            word = "error"
        elif word == "of-call":
            call_id = _call_id(event)
            again = isinstance(event, kinds.Call) and not lives[call_id]
            lives[call_id] += ("call:again" if again else _life(event)) + " "
            places[call_id].add(steps)
            if lives[call_id] in ("thinking:begins ", "call:again "):
                word = lives[call_id].strip()
            following = next(iter(events[at + 1 :]), None)
            if lives[call_id] == "thinking:begins thinking:ends " and not isinstance(following, kinds.Warning):
                return False
        words += word + " "
    done = events[-1]
    pending = sorted(call_id for call_id, life in lives.items() if life.endswith(_WAITING))
    return (
        isinstance(events[0], kinds.Start)
        and isinstance(done, kinds.Done)
        and sorted(each.id for each in done.pending) == pending
        and re.fullmatch(GRAMMAR["failed-run" if done.reason == "failed" else "run"], words) is not None
        and re.fullmatch("(?:Tt)*", waits) is not None
        and all(re.fullmatch(GRAMMAR["life"], life) for life in lives.values())
        and all(len(where) == 1 for where in places.values())
    )


def _call_id(event: Any) -> str:
    told = getattr(event, "call", None)
    return str(event.call_id if told is None else told.id)


def _life(event: Any) -> str:
    if isinstance(event, kinds.Thinking):
        return "thinking:begins" if event.active else "thinking:ends"
    if isinstance(event, kinds.Error):
        return "error:malformed" if event.call is None else "error:call"
    assert event.type in _OF_CALLS
    return str(event.type)


def refusal(events: Sequence[kinds.UIEvent]) -> EventOrderError | None:
    """Return the message of the error for these events, or None."""
    try:
        validate(events)
    except EventOrderError as error:
        return error
    return None


def changes(events: Sequence[kinds.UIEvent]) -> Iterator[list[kinds.UIEvent]]:
    """Yield the events with one event removed, with one doubled, and with two neighbours exchanged."""
    for at in range(len(events)):
        before, after = list(events[:at]), list(events[at + 1 :])
        yield [*before, *after]
        yield [*before, events[at], events[at], *after]
        if after:
            yield [*before, after[0], events[at], *after[1:]]


@given(sources, options, rarely, rarely, st.data())
def test_every_run_keeps_the_order_of_events(
    source: Any, options: Any, cancel: bool, idle: bool, data: st.DataObject
) -> None:
    """The grammar and the rules of the tests agree about a changed run."""
    events = run(source, cancel=cancel, idle=idle, **options | {"call_partials": False})

    validate(events)
    assert keeps(events)
    changed = numbered(*data.draw(st.sampled_from(list(changes(events)))))
    assert keeps(changed) == (refusal(changed) is None), f"{refusal(changed)} {changed}"
    tell("refused" if refusal(changed) else "kept")


@together("events", RUNS.values(), ids=list(RUNS))
def test_each_change_of_a_run_is_refused(events: list[kinds.UIEvent]) -> None:
    """An event is omitted, doubled or exchanged. The result is refused, unless it could be another run."""
    assert keeps(events)
    for changed in changes(events):
        changed_events = numbered(*changed)
        assert keeps(changed_events) == (refusal(changed_events) is None), (
            f"{refusal(changed_events)}: {changed_events}"
        )
        if [replace(event, seq=0) for event in changed] != [replace(event, seq=0) for event in events]:
            assert refusal(changed) is not None, "numbers tell of each change"


@given(strategies.readings(IDS))
def test_every_text_keeps_the_order_of_events(reading: Any) -> None:
    """The events of a parser are a part of a run. With the events of a machine around them, they are a whole run."""
    text, chosen = reading
    events = feed(text, **chosen)

    validate(events, run=False)
    validate(run([kinds.TextDelta(text)], **chosen))


CALLED = [*START, *written_call(call(1))]
BEGUN = [*START, kinds.Thinking(True, "c")]
NO_ANSWER = kinds.Error(Code.UPSTREAM_ERROR, "no")


@together(
    ("events", "complaint"),
    [
        ([], "at the end: a run ends with done"),
        ([*START], "at the end: a run ends with done"),
        ([kinds.Text("a")], "event 1, text: a run begins with one start"),
        ([kinds.Start("r"), kinds.Start("r")], "event 2, start: a run begins with one start"),
        ([kinds.Start("r"), kinds.Text("a")], "event 2, text: it belongs in a step, and no step has begun"),
        ([*START, kinds.StepEnd(1, "stop"), kinds.Text("a")], "event 4, text: no step is open"),
        ([*START, kinds.StepStart(2)], "event 3, step-start: step 1 has not ended"),
        ([*START, kinds.StepEnd(2, None)], "event 3, step-end: only the open step can end, and that is step 1"),
        ([kinds.Start("r"), kinds.StepStart(2)], "event 2, step-start: steps are numbered from 1, and the last was 0"),
        ([kinds.Start("r"), STOP[0]], "event 2, step-end: it belongs in a step, and no step has begun"),
        ([*START, *STOP, kinds.Text("a")], "event 5, text: nothing follows done"),
        ([*START, STOP[1]], "event 3, done: step 1 has not ended"),
        ([START[0], kinds.UsageReport(kinds.Usage())], "event 2, usage: usage belongs to a step, and no step"),
        (
            [*START, kinds.CallStart("c", "f")],
            "event 3, call-start of c: a call is named once, while it is being written,",
        ),
        ([*BEGUN, kinds.CallDelta("c", "{")], "event 4, call-delta of c: arguments come after the"),
        ([*START, kinds.Text("a"), kinds.Call(call(1))], "of call_1: a call is reported once, .* call_1 has not begun"),
        ([*CALLED[:-1], kinds.Executing(call(1))], "only a complete call of this step is run, once, and"),
        ([*CALLED, executed(call(1))[1]], "event 7, progress of call_1: only a running tool"),
        ([*CALLED, kinds.Executed(call(1), 1, None, 0.0)], "only a running tool returns a result, once"),
        ([*CALLED, CALLED[2]], "event 7, thinking of call_1: the id of a call is unique"),
        ([*CALLED, kinds.Thinking(False, "call_1")], "thinking ends after the call or its error, or if"),
        ([*CALLED, kinds.Executing(call(1)), STOP[0]], "step-end: call_1 is running, and executions prec"),
        ([*CALLED[:4], STOP[0]], "the step ends, and call_1 is being written and has its name"),
        ([*CALLED, *STOP], "event 8, done: pending must be the calls that did not run: call_1"),
        ([*CALLED, STOP[0], kinds.Executing(call(1))], "executing of call_1: no step is open"),
        ([*START, STOP[0], kinds.Done("finished", None, None, [call(1)])], "must be the calls that did not run: none"),
        ([*START, STOP[0], kinds.Done("failed", None, None, [])], "done has the reason failed if and only if"),
        ([*START, NO_ANSWER, *STOP], "event 5, done: done has the reason failed if and only if"),
        ([*START, NO_ANSWER, NO_ANSWER], "event 4, error: a run fails once"),
        ([*START, NO_ANSWER, kinds.Text("a")], "event 4, text: the answer is complete or has failed"),
        ([kinds.Start("r"), NO_ANSWER, kinds.StepStart(1)], "no step begins after the error that ends"),
        ([*START, replace(NO_ANSWER, call=call(1))], "an error with a call has the id of the call"),
        ([*CALLED, kinds.Error(Code.TOOL_FAILED, "", call_id="call_1", call=call(2))], "has the id of the"),
        ([*CALLED, kinds.Error(Code.INVALID_JSON, "", call_id="call_1")], "is malformed while it is being"),
        (
            [*START, kinds.Error(Code.TOOL_FAILED, "", call_id="call_1", call=call(1))],
            "a complete call ends once, in its",
        ),
        ([*BEGUN, kinds.Thinking(False, "c"), kinds.Text("a")], "if a call turned out to be text, a warn"),
        ([kinds.Start("r"), kinds.Thinking(False)], "event 2, thinking: thinking begins and ends in turn"),
        (
            [kinds.Start("r"), kinds.Thinking(True), kinds.Done("finished", None, None, [])],
            "done: the thinking has not ended",
        ),
        ([kinds.Start("r"), kinds.FollowUp([])], "event 2, follow-up: one follow-up may come between two step"),
        ([kinds.Start("r"), kinds.TextDelta("a")], "event 2, text-delta: it is not a UI event"),
    ],
)
def test_an_error_names_the_event_and_the_rule(events: list[Any], complaint: str) -> None:
    """Each of these runs is wrong at its last event. The error holds no content of the event."""
    with pytest.raises(EventOrderError, match=complaint) as caught:
        validate(events)

    assert len(events) == caught.value.place
    assert caught.value.event is (events[-1] if "at the end" not in complaint else None)
    assert str(caught.value).endswith(caught.value.rule)


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ([0, 0, 0, 0], ""),
        ([1, 2, 3, 4], ""),
        ([2, 3, 4, 5], "event 1, start: the seq values of a run begin with 1, or all are 0"),
        ([1, 2, 4, 5], "event 3, step-end: the seq after 2 is 3"),
        ([1, 2, 2, 3], "event 3, step-end: the seq after 2 is 3"),
        ([1, 2, 0, 3], "event 3, step-end: the seq after 2 is 3"),
        ([1, 2, 10_000_004, 10_000_005], "event 3, step-end: the seq after 2 is 3"),
        ([0, 0, 0, 1], "event 4, done: the seq after 0 is 0"),
    ],
)
def test_numbers_rise_by_one(numbers: list[int], complaint: str) -> None:
    """Events are numbered from 1, or have no numbers."""
    events = [replace(event, seq=seq) for event, seq in zip([*START, *STOP], numbers, strict=True)]

    assert complaint == str(refusal(events) or "")


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([kinds.Text("a"), kinds.Start("r")], "event 2, start: a parser reports nothing of runs and tools"),
        (
            [kinds.Text("a"), kinds.Done("finished", None, None, [])],
            "event 2, done: a parser reports nothing of runs and tools",
        ),
        ([kinds.Text("a"), kinds.Thinking(True, "c")], "at the end: the text ends, and c is being written"),
        (
            [kinds.Thinking(True, "c"), kinds.Thinking(False, "c")],
            "at the end: if a call turned out to be text, a warning follows",
        ),
    ],
)
def test_a_parser_yields_only_text_and_calls(events: list[kinds.UIEvent], complaint: str) -> None:
    """Each call that begins ends."""
    with pytest.raises(EventOrderError, match=complaint):
        validate(events, run=False)


def test_events_can_be_checked_one_by_one() -> None:
    """`outputs.validate` uses the same grammar, and accepts an iterator."""
    grammar = Grammar()
    for event in RUNS["two steps"]:
        grammar.feed(event)
    grammar.close()

    outputs.validate(iter(RUNS["two steps"]))
    parser = Parser()
    events = parser.feed("a\nb") + parser.close()
    outputs.validate((replace(event, seq=seq) for seq, event in enumerate(events, 5)), run=False)


def test_the_error_of_the_page_is_raised() -> None:
    events = numbered(*START, *written_call(call(1)), kinds.Progress("call_1", 1))
    assert str(refusal(events)) in " ".join(PAGE.split())

"""The state machine: turns, endings, completed texts, runnable calls, and the order of events.

A run is written as source events and read as a story with one line for each event. `Driver` runs the runnable calls
("run c1") and ends the step. `c1`, `c2` are the ids of the calls.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import structlog.testing

from streamtools import Limits, StreamMachine, coalesce
from streamtools import events as kinds
from streamtools.calls import ToolChoice
from streamtools.errors import ClosedError, Code, UnreadableSource
from streamtools.machine.state_machine import STOPPED_AFTER_CALL
from streamtools.parsing.dialects import TAUGHT_DIALECTS
from tests.support.cases import together
from tests.support.stories import names, tell, texts

ADD = '###:{"name":"add","arguments":{"a":1}}'
NOW = "~~~tool_call\n{}\n~~~".format('{"name":"now"}')
CUT = '###:{"name":"add","argu'
BAD = '###:{"name":5}'

STOP = kinds.ProviderCompleted(finish_reason="stop", raw_finish_reason="end_turn")
TURN = kinds.ProviderCompleted(finish_reason="tool_calls", ends_run=False)


ENDED = "step 1 ends: stop"


def called(call_id: str, name: str = "add") -> list[str]:
    """Return the story of one call in text."""
    return [f"thinking {call_id}", f"{call_id} is {name}", f"call {call_id}", f"not thinking {call_id}"]


def malformed(call_id: str, code: str = "truncated", name: str = "add") -> list[str]:
    """Return the story of one call in text that is an error."""
    named = [f"{call_id} is {name}"] if name else []
    return [f"thinking {call_id}", *named, f"error {call_id} {code}", f"not thinking {call_id}"]


def machine(**options: Any) -> StreamMachine:
    """Return a machine whose calls are c1, c2 and so on."""
    return StreamMachine(new_id=map("c{}".format, itertools.count(1)).__next__, run_id="r", **options)


class Driver:
    """Feeds a machine, runs its runnable calls, and records the story."""

    def __init__(self, **options: Any) -> None:
        self.machine = machine(**options)
        self.events: list[kinds.UIEvent] = []
        self.story: list[str] = []

    def feed(self, *events: kinds.SourceEvent) -> None:
        for event in events:
            self.take(self.machine.feed(event))
            if due := self.machine.take_runnable():
                self.story.append(f"run {names(due)}")
            if self.machine.awaits_outcomes:
                self.take(self.machine.end_step())

    def take(self, events: list[kinds.UIEvent]) -> None:
        self.events += events
        self.story += map(tell, events)


def driven(*events: kinds.SourceEvent, **options: Any) -> Driver:
    """Return the driver after a whole run."""
    driver = Driver(**options)
    driver.feed(*events)
    driver.take(driver.machine.close())
    return driver


def story(*events: kinds.SourceEvent, **options: Any) -> list[str]:
    """Return the story of a whole run, without its first line, which is always the same."""
    driver = driven(*events, **options)
    first, *rest = driver.story
    assert first == "start"
    assert [event.seq for event in driver.events] == list(range(1, len(driver.events) + 1))
    assert [type(event) for event in driver.events].count(kinds.Done) == 1
    assert isinstance(driver.events[-1], kinds.Done)
    return rest


# One turn.


def test_the_order_of_all_events_of_a_turn() -> None:
    """`seq` rises from 1, and `done` is the last event."""
    driver = Driver(call_deltas=True, dialects=TAUGHT_DIALECTS)
    driver.take(driver.machine.start())
    driver.feed(
        kinds.ReasoningDelta("Hm."),
        *texts("Let me ", "add.\n", *ADD, "\nSo."),
        kinds.SourceUsage(kinds.Usage(input=1)),
        kinds.SourceUsage(kinds.Usage(input=3)),
        STOP,
    )
    driver.take(driver.machine.close())

    assert [
        *("start", "step 1", "reasoning 'Hm.'", "text 'Let me '", "text 'add.\\n'", "thinking c1", "c1 is add"),
        *("c1 has " + character for character in '{"a":1}'),
        *("call c1", "not thinking c1", "text '\\nSo.'", "usage 3", "run c1", "step 1 ends: stop"),
        "done finished: stop (end_turn)",
    ] == driver.story
    assert [event.seq for event in driver.events] == list(range(1, len(driver.events) + 1))


def test_each_event_of_a_long_delta_is_numbered() -> None:
    """A delta of more than 8,192 characters is read in blocks. `story` checks each `seq`."""
    assert "done finished: stop (end_turn)" == story(*texts("Hello ", "x" * 9000 + "\n"), STOP)[-1]


PASSED: dict[str, tuple[kinds.SourceEvent, str]] = {
    "raw": (kinds.SourceRaw({"odd": 1}), "raw {'odd': 1}"),
    "a warning": (kinds.SourceWarning(Code.BAD_FRAME, "what?", raw="{", count=1), "warning bad_frame"),
    "a call that the provider runs itself": (
        kinds.NativeToolCall("search", {"a": 1}, "0", provider_executed=True),
        "raw {'type': 'tool-call', 'name': 'search', 'arguments': {'a': 1}, 'key': '0', 'provider_executed': True}",
    ),
}


@pytest.mark.parametrize(("event", "expected"), PASSED.values(), ids=PASSED)
def test_other_data_is_passed_on(event: kinds.SourceEvent, expected: str) -> None:
    """It changes nothing else."""
    around = ["step 1", "text 'a'", expected, "text 'b'", ENDED, "done finished: stop (end_turn)"]
    assert around == story(*texts("a"), event, *texts("b"), STOP)


# Endings.

ENDINGS: dict[str, tuple[list[kinds.SourceEvent], list[str]]] = {
    "finished with calls": (
        [*texts(ADD), kinds.ProviderCompleted(finish_reason="tool_calls", raw_finish_reason="tool_use")],
        ["step 1", *called("c1"), "run c1", "step 1 ends: tool_calls", "done finished: tool_calls (tool_use)"],
    ),
    "a terminator without a reason counts as stop": (
        [*texts(ADD), kinds.ProviderCompleted()],
        ["step 1", *called("c1"), "run c1", ENDED, "done finished: stop (None)"],
    ),
    "truncated by length": (
        [*texts(ADD, CUT), kinds.ProviderCompleted(finish_reason="length", raw_finish_reason="max_tokens")],
        [
            *("step 1", *called("c1"), *malformed("c2"), "step 1 ends: length"),
            "done truncated: length (max_tokens), pending c1",
        ],
    ),
    "the provider itself was cancelled": (
        [*texts(ADD), kinds.ProviderCompleted(finish_reason="cancelled")],
        ["step 1", *called("c1"), "step 1 ends: cancelled", "done truncated: cancelled (None), pending c1"],
    ),
    "the turn ends with an error": (
        [*texts(ADD), kinds.ProviderCompleted(finish_reason="error", raw_finish_reason="ERROR")],
        [
            *("step 1", *called("c1"), "error upstream_error", "step 1 ends: error"),
            "done failed: error (ERROR), pending c1",
        ],
    ),
    "no terminator, in the middle of a call": (
        texts(CUT),
        ["step 1", *malformed("c1"), "error stream_interrupted", "step 1 ends: None", "done failed: None (None)"],
    ),
    "no success follows an error": (
        [*texts("a"), kinds.SourceError("no"), *texts("b"), kinds.SourceError("no"), STOP, kinds.ChainCompleted("x")],
        ["step 1", "text 'a'", "error upstream_error", "step 1 ends: None", "done failed: None (None)"],
    ),
    "usage of a turn that fails": (
        [kinds.SourceUsage(kinds.Usage(input=2)), kinds.SourceError("no")],
        ["step 1", "error upstream_error", "usage 2", "step 1 ends: None", "done failed: None (None)"],
    ),
    "a turn behind the terminator has to end as well": (
        [*texts("a"), STOP, *texts("b")],
        [
            *("step 1", "text 'a'", ENDED, "step 2", "text 'b'", "error stream_interrupted", "step 2 ends: None"),
            "done failed: None (None)",
        ],
    ),
}


@together(("events", "expected"), ENDINGS.values(), ids=ENDINGS)
def test_each_run_ends_with_one_done(events: list[kinds.SourceEvent], expected: list[str]) -> None:
    """Its reason is true, and only calls of a complete turn run."""
    assert expected == story(*events)


def test_the_error_of_a_run_holds_message_and_status() -> None:
    """The cause is only in the log."""
    made = machine()
    with structlog.testing.capture_logs() as logs:
        events = made.feed(kinds.SourceError("no key", status=401, cause="invalid_api_key"))

    assert [kinds.Start("r", seq=1), kinds.Error(Code.UPSTREAM_ERROR, "no key", status=401, seq=2)] == events
    (entry,) = logs
    assert entry["cause"] == "invalid_api_key"
    assert [kinds.Done("failed", None, None, [], seq=3)] == made.close()


def test_no_event_follows_done() -> None:
    """Closing and cancelling again return no events. Feeding raises `ClosedError`."""
    for end in (StreamMachine.close, StreamMachine.cancel):
        made = machine()
        made.feed(STOP)
        before, last, after = made.closed, end(made)[-1], made.closed
        assert (False, kinds.Done, True) == (before, type(last), after)
        assert made.close() == made.cancel() == made.start() == made.end_step() == []
        with pytest.raises(ClosedError, match="the run has ended"):
            made.feed(kinds.TextDelta("a"))


def test_an_object_that_is_no_source_event_is_refused() -> None:
    """The message names its type."""
    made = machine()
    made.start()
    for wrong in ("text", None, kinds.Text("a"), {"type": "text-delta"}):
        with pytest.raises(UnreadableSource, match="is not a source event"):
            made.feed(wrong)  # type: ignore[arg-type]  # what a caller without types does

    assert [kinds.StepStart(1, seq=2), kinds.Text("a", seq=3)] == made.feed(kinds.TextDelta("a"))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="'later'"):
        machine(execute="later")
    with pytest.raises(ValueError, match="'maybe'"):
        machine(reasoning="maybe")
    with pytest.raises(ValueError, match="no dialect 'x'"):
        machine(dialects=["x"])


# Cancellation.

CANCELLED: dict[str, tuple[list[kinds.SourceEvent], list[str]]] = {
    "in mid-call": (
        texts(ADD, CUT),
        [
            *("start", "step 1", *called("c1"), *malformed("c2"), "step 1 ends: None"),
            "done cancelled: None (None), pending c1",
        ],
    ),
    "between two turns": (
        [*texts(ADD), TURN],
        ["start", "step 1", *called("c1"), "run c1", "step 1 ends: tool_calls", "done cancelled: tool_calls (None)"],
    ),
}


@pytest.mark.parametrize(("events", "expected"), CANCELLED.values(), ids=CANCELLED)
def test_a_cancelled_run_keeps_its_complete_parts(events: list[kinds.SourceEvent], expected: list[str]) -> None:
    driver = Driver()
    driver.feed(*events)
    driver.take(driver.machine.cancel())
    assert expected == driver.story


# The completed text and the deltas.

MISMATCH = "warning text_mismatch"

RECONCILED: dict[str, tuple[list[str], str | None, list[str]]] = {
    "no completed text": (["a"], None, ["text 'a'"]),
    "the deltas are its beginning": (["a", "b"], "abc", ["text 'a'", "text 'b'", "text 'c'"]),
    "a call continues in it": (["a ", ADD[:9]], "a " + ADD + "b", ["text 'a '", *called("c1"), "text 'b'", "run c1"]),
    "held text goes on in it": (["##"], "## b", ["text '## b'"]),
    "only a completed text": ([], "a " + ADD, ["text 'a '", *called("c1"), "run c1"]),
    "white space at both ends": (["a \n"], "\n\ta", ["text 'a \\n'"]),
    "another text": (["a"], "b", ["text 'a'", MISMATCH]),
    "an empty text after deltas": (["a"], "", ["text 'a'", MISMATCH]),
    "another text with a call, and none in the deltas": (
        ["a"],
        "b" + NOW.join("\n\n"),
        ["text 'a'", MISMATCH, *called("c1", "now"), "run c1"],
    ),
    "another text with a call, and one in the deltas": (
        ["a " + ADD],
        "b " + ADD + "c " + ADD,
        ["text 'a '", *called("c1"), MISMATCH, "run c1"],
    ),
    "another text with a malformed call": (
        ["a"],
        "b " + BAD,
        ["text 'a'", MISMATCH, *malformed("c1", "missing_tool_name", "")],
    ),
    "a call that the deltas have lost a piece of": (
        ["a " + ADD.replace('":{', ":{"), "\n\nb"],
        "a " + ADD + "\n\nb",
        ["text 'a '", *malformed("c1", "invalid_json"), "text '\\nb'", MISMATCH, *called("c2"), "run c2"],
    ),
}


@together(("deltas", "completed", "expected"), RECONCILED.values(), ids=RECONCILED)
def test_the_completed_text_adds_only_missing_text(
    deltas: list[str], completed: str | None, expected: list[str]
) -> None:
    """The shown text stays, and no call appears twice."""
    end = kinds.ProviderCompleted(completed, finish_reason="stop")
    assert ["step 1", *expected, ENDED, "done finished: stop (None)"] == story(
        *texts(*deltas), end, dialects=TAUGHT_DIALECTS
    )


def test_an_empty_delta_begins_no_turn() -> None:
    lost = kinds.SourceError("lost", Code.STREAM_INTERRUPTED)

    assert story(lost) == story(kinds.TextDelta(""), lost)
    assert ["step 1", *story(lost)[:1]] == story(kinds.ReasoningDelta(""), lost)[:2]  # empty reasoning begins a turn
    assert story(*texts("a"), lost) == story(*texts("", "a", ""), lost)


def test_a_text_over_the_limit_is_not_compared() -> None:
    """It is not stored, and its calls are still found."""
    end = kinds.ProviderCompleted("something else", finish_reason="stop")
    expected = ["step 1", "text 'abcd '", *called("c1"), "run c1", ENDED, "done finished: stop (None)"]
    limit = len("abcd " + ADD)

    assert expected == story(*texts("abcd ", ADD), end, limits=Limits(text=limit - 1))
    assert expected == story(*texts("abcd ", ADD), end, limits=Limits(text=0))
    assert expected == story(*texts("abcd ", ADD), end, limits=Limits(text=0), after_call="stop")
    expected.insert(-3, MISMATCH)
    assert expected == story(*texts("abcd ", ADD), end, limits=Limits(text=limit))


def test_a_text_of_many_blocks_is_compared_whole() -> None:
    word = "abcdefg "
    whole = word * 20_000
    for deltas in ([word] * 20_000, [whole], ["", whole[:1], whole[1:], ""]):
        driver = Driver()
        driver.feed(*texts(*deltas), kinds.ProviderCompleted(whole + "!"))
        assert driver.story[-2:] == ["text '!'", ENDED]


def test_the_last_usage_of_each_turn_counts() -> None:
    """It is reported at the end of the turn, and added to the usage of the run."""
    driver = Driver()
    first, second = kinds.Usage(input=5, output=1), kinds.Usage(input=7, reasoning=2)
    driver.feed(kinds.SourceUsage(kinds.Usage(input=1)), kinds.ProviderCompleted(usage=first, ends_run=False))
    driver.feed(*texts("a"), kinds.ProviderCompleted(ends_run=False))
    driver.feed(*texts("b"), kinds.SourceUsage(second), STOP)
    driver.take(driver.machine.close())

    reports = [event.usage for event in driver.events if isinstance(event, kinds.UsageReport)]
    assert [first, second] == reports
    assert kinds.Usage(input=12, output=1, reasoning=2) == driver.machine.usage
    assert StreamMachine().usage is None


# Runs of several turns.


def test_each_turn_of_a_chain_is_a_step() -> None:
    """Its calls run before the step ends. The chain ends the run."""
    assert story(
        *texts(ADD), TURN, *texts("So: 1."), kinds.ProviderCompleted(ends_run=False), kinds.ChainCompleted("u-1")
    ) == [
        *("step 1", *called("c1"), "run c1", "step 1 ends: tool_calls", "step 2", "text 'So: 1.'"),
        *("step 2 ends: stop", "done finished: stop (None), in u-1"),
    ]


def test_no_turn_changes_how_the_next_is_read() -> None:
    """Not by half a marker, an open fence, or a call without an end."""
    half = [
        *("step 1", "text '```\\n'", "text '##'", "step 1 ends: tool_calls", "step 2", "text '# a '"),
        *(*called("c1"), "run c1", "step 2 ends: stop", "done finished: stop (end_turn)"),
    ]
    assert half == story(*texts("```\n", "##"), TURN, *texts("# a " + ADD), STOP)
    assert "text '1}}'" in story(*texts(ADD[:-3]), TURN, *texts(ADD[-3:]), STOP)


# Runnable calls.


def test_calls_are_runnable_when_their_turn_is_complete() -> None:
    """Then the step waits until they have run."""
    made = machine()
    made.feed(kinds.TextDelta(ADD + "\n" + NOW))
    assert (made.runnable, made.awaits_outcomes) == ([], False)
    assert made.feed(STOP) == []
    assert (["c1", "c2"], True) == ([call.id for call in made.runnable], made.awaits_outcomes)
    assert ["c1", "c2"] == [call.id for call in made.take_runnable()]
    assert ([], True) == (made.take_runnable(), made.awaits_outcomes)

    assert [ENDED] == [tell(event) for event in made.end_step()]
    assert (made.end_step(), made.awaits_outcomes, made.pending) == ([], False, [])


def test_eager_calls_are_runnable_when_they_are_complete() -> None:
    """Only if no native call can supersede them."""
    events = [*texts(ADD, "a ", CUT), STOP]
    eager = ["step 1", *called("c1"), "run c1", "text 'a '", *malformed("c2"), ENDED, "done finished: stop (end_turn)"]
    assert eager == story(*events, execute="eager", native_tool_calls=False)
    eager.insert(-2, eager.pop(eager.index("run c1")))
    assert eager == story(*events, execute="eager")
    assert eager == story(*events, execute="eager", native_tool_calls=True, dialects=("hash_marker", "tilde_fence"))


def test_eager_calls_of_a_failed_turn() -> None:
    """A running call is not pending, and its step ends after it. Other calls do not run."""
    taken, left = (machine(execute="eager", native_tool_calls=False) for _ in range(2))
    for made in (taken, left):
        made.feed(kinds.TextDelta(ADD))
        assert ["c1"] == [call.id for call in made.runnable]
    assert not taken.awaits_outcomes
    taken.take_runnable()
    told = [tell(event) for event in taken.feed(kinds.SourceError("no"))]
    assert (["error upstream_error"], True) == (told, taken.awaits_outcomes)
    assert ["step 1 ends: None", "done failed: None (None)"] == [tell(event) for event in taken.close()]

    told = [tell(event) for event in left.feed(kinds.SourceError("no"))]
    assert (["error upstream_error", "step 1 ends: None"], [], False) == (told, left.runnable, left.awaits_outcomes)
    assert ["done failed: None (None), pending c1"] == [tell(event) for event in left.close()]


def test_eager_calls_of_the_completed_text_run_once() -> None:
    """They are runnable at the end of the turn."""
    events = [*texts(ADD), kinds.ProviderCompleted(ADD + NOW.join("\n\n"), finish_reason="stop")]
    assert story(*events, execute="eager", native_tool_calls=False) == [
        *("step 1", *called("c1"), "run c1", "text '\\n'", *called("c2", "now"), "text '\\n'", "run c2", ENDED),
        "done finished: stop (None)",
    ]


# The tool choice.


NO_CALL = ToolChoice("none")
ONE_CALL = ToolChoice("tool", "add")


CHOICES: dict[str, tuple[ToolChoice, str, list[str]]] = {
    "all are refused": (
        NO_CALL,
        ADD + "\n" + NOW,
        [
            *(*called("c1"), "text '\\n'", *called("c2", "now"), "error c1 tool_choice_violation"),
            *("error c2 tool_choice_violation", ENDED, "done finished: stop (end_turn)"),
        ],
    ),
    "one is missing": (
        ONE_CALL,
        "a",
        ["text 'a'", "error tool_choice_violation", ENDED, "done failed: stop (end_turn)"],
    ),
}


@together("execute", ["completed", "eager"])
@together(("choice", "written", "expected"), CHOICES.values(), ids=CHOICES)
def test_calls_that_violate_the_tool_choice_do_not_run(
    choice: ToolChoice, written: str, expected: list[str], execute: str
) -> None:
    """They are not pending either. This also holds for eager execution."""
    options = {"tool_choice": choice, "execute": execute, "native_tool_calls": False}
    assert ["step 1", *expected] == story(*texts(written), STOP, **options)


@pytest.mark.parametrize("finish", ["length", "content_filter", "error", "other", "pause"])
def test_a_forbidden_call_of_a_truncated_turn_is_refused(finish: kinds.FinishReason) -> None:
    """It must not stay pending. A missing call is no violation in such a turn."""
    end = kinds.ProviderCompleted(finish_reason=finish)
    assert [line for line in story(*texts(ADD), end, tool_choice=NO_CALL) if "violation" in line]
    assert [line for line in story(*texts(ADD), tool_choice=NO_CALL) if "violation" in line]
    assert not [line for line in story(*texts("a"), end, tool_choice=ONE_CALL) if "violation" in line]


# `after_call="stop"`.


def test_text_after_a_call_completes_the_turn() -> None:
    """With `after_call="stop"`, unless the text begins another call."""
    made = machine(after_call="stop")
    told = [tell(event) for event in made.feed(kinds.TextDelta(ADD + "\n" + NOW + "\n#"))]
    assert (False, []) == (made.stopped, made.runnable)
    assert ["start", "step 1", *called("c1"), "text '\\n'", *called("c2", "now"), "text '\\n'"] == told
    assert made.feed(kinds.TextDelta(" The result is 4.")) == []
    assert (True, ["c1", "c2"], True) == (
        made.stopped,
        [call.id for call in made.take_runnable()],
        made.awaits_outcomes,
    )
    assert made.feed(kinds.TextDelta(ADD)) == made.feed(kinds.SourceError("closed")) == made.feed(STOP) == []

    assert [f"step 1 ends: {STOPPED_AFTER_CALL}"] == [tell(event) for event in made.end_step()]
    assert [f"done finished: {STOPPED_AFTER_CALL} (None)"] == [tell(event) for event in made.close()]


def test_a_call_over_the_limit_stops_the_turn() -> None:
    """With `after_call="stop"` and a call that becomes text. Text after the limit is dropped."""
    written = ADD + "\n" + ADD.replace("1", "1" * 50) + "\n\na"

    def run(*deltas: str) -> list[kinds.UIEvent]:
        driver = Driver(on_malformed="text", after_call="stop", limits=Limits(call=len(ADD)))
        driver.feed(*texts(*deltas))
        return coalesce([*driver.events, *driver.machine.close()])

    assert run(written) == run(*written)
    assert tell(run(written)[-1]) == f"done finished: {STOPPED_AFTER_CALL} (None)"


def test_usage_before_an_answer_belongs_to_its_turn() -> None:
    made = machine()
    for event in (*texts("a"), kinds.SourceUsage(kinds.Usage(output=1)), STOP):
        made.feed(event)
    made.expect_answer()
    told = [tell(event) for event in made.feed(kinds.SourceUsage(kinds.Usage(input=2)))]

    assert ["step 2"] == told
    made.feed(kinds.ProviderCompleted(finish_reason="stop", usage=kinds.Usage(input=3)))
    assert kinds.Usage(input=3, output=1) == made.usage

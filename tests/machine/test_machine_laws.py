"""The laws of the machine. They hold for all source events, in any order, with any cuts in their text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hypothesis import event as tell
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streamtools import Parser, StreamMachine, coalesce
from streamtools import events as kinds
from streamtools.calls import ToolChoice
from streamtools.errors import Code
from streamtools.limits import DEFAULT_LIMITS
from streamtools.machine.event_order import validate
from streamtools.machine.state_machine import STOPPED_AFTER_CALL
from streamtools.testing.laws import assert_conserved, cut
from tests.support import strategies

IDS = ("hash_marker", "tilde_fence")
REASONS = ("stop", "tool_calls", "length", "content_filter", "error", "pause", "cancelled", "other", None)

texts = strategies.texts(IDS) | strategies.documents(IDS).map(lambda document: document.text)
usages = st.builds(kinds.Usage, input=st.none() | st.integers(0, 9), output=st.none() | st.integers(0, 9))
keys = st.sampled_from(["0", "1"])
provider_ids = st.sampled_from([None, None, "x", "y"])
call_names = st.sampled_from([None, "f", "f", "g", " "])
arguments = st.sampled_from(["{", '"a"', ':"b', '"', "}", "{}", '{"a":1}', "", "[", "\\"])
native_calls = st.builds(
    kinds.NativeToolCall,
    call_names,
    st.none() | arguments | st.sampled_from([{"a": 1}, {}, [1], float("nan")]),
    keys | st.just(""),
    provider_ids,
    provider_executed=st.sampled_from([False, False, False, True]),
    answerable=st.sampled_from([True, True, True, False]),
)
ends = st.builds(
    kinds.ProviderCompleted,
    text=st.none() | texts,
    tool_calls=st.none() | st.lists(native_calls, max_size=2),
    finish_reason=st.sampled_from(REASONS),
    usage=st.none() | usages,
    ends_run=st.booleans(),
)
calm_events: st.SearchStrategy[kinds.SourceEvent] = st.one_of(
    texts.map(kinds.TextDelta),
    texts.map(kinds.TextDelta),
    st.builds(kinds.ReasoningDelta, st.sampled_from(["", "Hm. ", "###:"])),
    usages.map(kinds.SourceUsage),
    st.just(kinds.SourceWarning(Code.BAD_FRAME, "odd")),
    st.just(kinds.SourceRaw({"odd": [1]})),
    st.builds(kinds.ToolCallStart, keys, provider_ids, call_names),
    st.builds(kinds.ToolCallDelta, keys, arguments),
    native_calls,
)
source_events = st.one_of(
    calm_events,
    calm_events,
    calm_events,
    ends,
    st.builds(kinds.ChainCompleted, st.none() | st.just("u-1")),
    st.builds(kinds.SourceError, st.just("no"), st.sampled_from([Code.UPSTREAM_ERROR, Code.STREAM_INTERRUPTED])),
)
good_ends = st.sampled_from(
    [kinds.ProviderCompleted(), kinds.ProviderCompleted(finish_reason="tool_calls", ends_run=False)]
)
sources: st.SearchStrategy[list[kinds.SourceEvent]] = st.one_of(
    st.lists(source_events, max_size=12),
    st.lists(st.one_of(calm_events, calm_events, good_ends), max_size=8).map(
        lambda run: [*run, kinds.ChainCompleted("u-1")]
    ),
)


rarely = st.sampled_from([False, False, False, True])


NO_CHOICE = ToolChoice()
CHOICES = (NO_CHOICE, NO_CHOICE, ToolChoice("none"), ToolChoice("required"), ToolChoice("tool", "f"))


OWN = ("execute", "native_tool_calls", "self_contained", "tool_choice")
"""The options that a machine does not pass on to its parser."""

options = st.tuples(
    strategies.options(IDS),
    st.fixed_dictionaries(
        {},
        optional={
            "execute": st.sampled_from(["completed", "eager", "never"]),
            "native_tool_calls": st.sampled_from([None, True, False]),
            "self_contained": st.sampled_from([False, False, False, True]),
            "tool_choice": st.sampled_from(CHOICES),
        },
    ),
).map(lambda both: both[0] | both[1])


def run(
    source: Iterable[kinds.SourceEvent], *, cancel: bool = False, idle: bool = False, **options: Any
) -> list[kinds.UIEvent]:
    """Return the events of a run. Runnable calls run immediately, unless `idle` is true."""
    new_id = map("id {} of the test".format, itertools.count(1)).__next__  # inputs may contain simple ids such as `c1`
    machine = StreamMachine(new_id=new_id, run_id="r", **options)
    events: list[kinds.UIEvent] = []
    for each in source:
        events += machine.feed(each)
        if not idle:
            for call in machine.take_runnable():
                events.append(kinds.Executing(call, seq=machine.number()))
                events.append(kinds.Executed(call, None, None, 0.0, seq=machine.number()))
            events += machine.end_step()
    return events + (machine.cancel() if cancel else machine.close())


class Turn(NamedTuple):
    """One turn of a model."""

    text: str
    end: kinds.ProviderCompleted | kinds.SourceError

    def source(self, places: Sequence[int] | None = ()) -> list[kinds.SourceEvent]:
        """Return its source events, with the text cut at these places, or in single characters."""
        deltas = list(self.text) if places is None else cut(self.text, places)
        return [*map(kinds.TextDelta, deltas), self.end]


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    """Draw a turn whose completed text equals its deltas, continues them, or differs."""
    text = draw(texts)
    end = draw(ends)
    completed = draw(st.sampled_from([None, end.text, text, text + "\n", text + (end.text or "")]))
    return Turn(text, draw(st.sampled_from([replace(end, text=completed)] * 5 + [kinds.SourceError("no")])))


chains = st.lists(turns(), min_size=1, max_size=3)


@given(
    chains, st.lists(strategies.cuts, min_size=2, max_size=2), options, st.booleans(), st.sampled_from([0, 0, 9, 99])
)
def test_the_cuts_between_deltas_change_nothing(
    chain: list[Turn], places: list[list[int]], options: dict[str, Any], idle: bool, kept: int
) -> None:
    if kept:
        options["limits"] = replace(options.get("limits", DEFAULT_LIMITS), text=kept)
    idle = idle or options.get("execute") == "eager"  # eager calls run at another delta if the cuts differ

    def events(places: Sequence[int] | None) -> list[kinds.UIEvent]:
        return coalesce(run([each for turn in chain for each in turn.source(places)], idle=idle, **options))

    whole = events(())
    for each in (*places, None):
        assert whole == events(each), f"cut at {each}"
    for code in {each.code for each in whole if isinstance(each, kinds.Warning)}:
        tell(f"warns of {code}")
    tell(f"{min(3, sum(isinstance(each, kinds.Call) for each in whole))} calls or more")


@given(sources, options, rarely, rarely)
def test_any_source_events_give_one_run(
    source: list[kinds.SourceEvent], options: dict[str, Any], cancel: bool, idle: bool
) -> None:
    """It is numbered from 1, step by step, with one `done` at its end."""
    events = run(source, cancel=cancel, idle=idle, **options)

    assert [each.seq for each in events] == list(range(1, len(events) + 1))
    assert isinstance(events[0], kinds.Start)
    assert [each for each in events if isinstance(each, kinds.Done)] == events[-1:]
    steps = [(type(each), each.step) for each in events if isinstance(each, kinds.StepStart | kinds.StepEnd)]
    assert steps == [(kind, 1 + at) for at in range(len(steps) // 2) for kind in (kinds.StepStart, kinds.StepEnd)]
    faults = [each for each in events if isinstance(each, kinds.Error) and each.call_id is None]
    assert len(faults) == (_done(events).reason == "failed")
    tell(_done(events).reason)


@given(sources, options, rarely, rarely)
def test_each_call_is_executed_rejected_or_pending(
    source: list[kinds.SourceEvent], options: dict[str, Any], cancel: bool, idle: bool
) -> None:
    """Only calls of a complete turn run."""
    events = run(source, cancel=cancel, idle=idle, **options)
    validate(events)

    finish: str | None = None
    for each in reversed(events):
        match each:
            case kinds.StepEnd():
                finish = each.finish_reason
            case kinds.Executing():
                assert options.get("execute") == "eager" or finish in ("stop", "tool_calls", STOPPED_AFTER_CALL)
                tell("a call is run")
            case _:
                pass
    if options.get("execute") == "never" or idle:
        assert not any(isinstance(each, kinds.Executing) for each in events)


@given(sources, options)
def test_the_source_events_alone_decide_the_ending(source: list[kinds.SourceEvent], options: dict[str, Any]) -> None:
    """No text changes it."""
    options |= {"tool_choice": NO_CHOICE, "after_call": "show"}
    events = run(source, **options)

    assert_truthful(source, events)
    done = _done(events)
    tell(f"{done.reason}: {done.finish_reason}")


@given(chains, st.lists(strategies.cuts, min_size=3, max_size=3), options)
def test_the_events_hold_every_character_of_the_text(
    chain: list[Turn], places: list[list[int]], options: dict[str, Any]
) -> None:
    """In order, however the turn ends."""
    for turn, where in zip(chain, places, strict=False):
        end = (
            replace(turn.end, text=None, tool_calls=None) if isinstance(turn.end, kinds.ProviderCompleted) else turn.end
        )
        events = run([*turn.source(where)[:-1], end], idle=True, keep_markup=True, **options)
        parser = Parser(**{name: options[name] for name in options if name not in OWN})
        parser.feed(turn.text)
        parser.close()
        assert_conserved(turn.text, events, stopped=parser.stopped)


def assert_truthful(source: Iterable[kinds.SourceEvent], events: list[kinds.UIEvent]) -> None:
    """Assert that `done` reports the end of the source, without a tool choice and without a stop after calls."""
    done = _done(events)
    reason, finish, conversation = _ending(source)
    if done.finish_reason == "tool_calls" and any(
        isinstance(each, kinds.Call) and each.call.dialect == "native" for each in events
    ):
        finish = "tool_calls" if finish == "stop" else finish  # some providers always send "stop"
    assert (done.reason, done.finish_reason, done.conversation_id) == (reason, finish, conversation)


def _done(events: list[kinds.UIEvent]) -> kinds.Done:
    assert isinstance(events[-1], kinds.Done)
    return events[-1]


def _ending(source: Iterable[kinds.SourceEvent]) -> tuple[str, str | None, str | None]:
    """Return the reason, the finish reason and the conversation of a run, computed independently of the machine."""
    begun, open_, earned, lost = False, False, False, False
    finish: str | None = None
    conversation: str | None = None
    for each in source:
        match each:
            case kinds.SourceError():
                return "failed", None if open_ else finish, conversation
            case kinds.SourceRaw() | kinds.TextDelta(""):  # an empty text begins no turn; empty reasoning does
                pass
            case kinds.SourceWarning():
                lost = True
            case kinds.SourceUsage() if begun and not open_:  # usage after the end of its turn
                pass
            case kinds.ProviderCompleted():
                begun, open_, earned, finish = True, False, each.ends_run, each.finish_reason or "stop"
                if lost and finish == "stop" and each.raw_finish_reason is None:
                    finish = "other"  # the reason may have been lost
                lost = False
                if finish == "error":
                    return "failed", finish, conversation
            case kinds.ChainCompleted():
                finish = ("other" if lost else "stop") if open_ else finish or "stop"
                lost = lost and not open_  # the loss was reported in its turn
                open_, earned, conversation = False, True, each.conversation_id
            case _:
                begun, open_, earned = True, True, False
    if not earned:
        return "failed", None if open_ else finish, conversation
    return "truncated" if finish in ("length", "content_filter", "cancelled") else "finished", finish, conversation

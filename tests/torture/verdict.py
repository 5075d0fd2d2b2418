"""Checks each run after its blows. Each broken rule is a complaint."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from streamtools.errors import Code, EventOrderError
from streamtools.events import COMPLETE, ApprovalRequested, Done, Error, Executed, Executing, UIEvent
from streamtools.machine.event_order import validate
from tests.support.history_rules import check_openai
from tests.support.stories import tell
from tests.torture.noted import Tracked
from tests.torture.rack import Rack
from tests.torture.trial import Trial

_NOT_BEGUN = "was never awaited"  # coroutines of tasks that asyncio cancels before their first step
QUESTION = {"role": "user", "content": "Well?"}


def judge(trial: Trial, whole: Counter[str]) -> list[str]:
    """Return all complaints about a trial. `whole` counts the events of an undisturbed run."""
    rack, effects = trial.rack, effects_of(trial)
    complaints = [*rack.complaints, *(each for each in rack.steps.stalls if trial.scenario.looks_again not in each)]
    if "escapes" not in effects:  # asyncio then reports each unfinished task
        complaints += [noise for noise in trial.noises if not (_cancels_all(trial) and _NOT_BEGUN in noise)]
    complaints += _ending(trial, effects)
    most = 2 if _cancels_all(trial) else 1  # asyncio ignores shields, so an interrupted `aclose` is repeated
    complaints += [
        f"a response was closed {each.closings} times" for each in rack.wires if not 0 < each.closings <= most
    ]
    closes_badly = any(blow.kind.place == "close" or "lone" in blow.kind.name for blow in trial.struck)
    if not closes_badly and any(log["event"] == "source_not_closed" for log in trial.logs):
        complaints.append("the log says that a source could not be closed")
    if "escapes" in effects and trial.backend == "asyncio":  # the rest was not read
        return complaints
    for tracked in rack.streams:
        if tracked.entered:
            complaints += _stream(trial, tracked, effects, whole)
    complaints += _tools(rack)
    outcomes = [outcome for tracked in rack.streams for outcome in tracked.stream.result.outcomes]
    failed = {outcome.call.id for outcome in outcomes if outcome.error is Code.TOOL_FAILED}
    if effects == {"tool"} and len(failed) != len(trial.struck):
        complaints.append(f"{len(trial.struck)} calls had to fail, but {failed} failed")
    if rack.run_events is not None:
        complaints += _log(trial, rack.run_events)
    if rack.sent:
        complaints += _client(trial, effects)
    return complaints


def _cancels_all(trial: Trial) -> bool:
    return any(blow.kind.name == "cancel-all" for blow in trial.struck)


def effects_of(trial: Trial) -> set[str]:
    """Return the effects of the blows that struck."""
    return {trial.scenario.effects.get(blow.kind.name, blow.kind.effect) for blow in trial.struck}


def story_of(rack: Rack) -> Counter[str]:
    """Return the events of all streams, counted by their description."""
    return Counter(tell(event) for tracked in rack.streams for event in tracked.events)


def _ending(trial: Trial, effects: set[str]) -> Iterator[str]:
    """The consumer ends as one of the blows requires."""
    rack = trial.rack
    error = trial.escaped or rack.error
    raised = [blow for blow in trial.struck if blow.error is not None]
    if "escapes" in effects:
        loud = [blow.error for blow in raised if _effect(trial, blow.kind.name, blow.kind.effect) == "escapes"]
        # The exception may be replaced by a cancellation if a context manager on its way waits, or if asyncio cancels
        # the cleanup again. An exception of an abandoned thread is lost.
        is_cancelled = "cancels" in effects or any(blow.kind.name.startswith("sibling") for blow in trial.struck)
        is_again = any(blow.kind.name.startswith("cancel-again") for blow in trial.struck)
        is_lost = _cancels_all(trial) or is_again or (is_cancelled and trial.scenario.is_inside)
        is_left = is_cancelled or effects & {"stops", "late"}
        is_alone = is_left and any(blow.kind.place == "thread" for blow in raised)
        if not (is_lost or is_alone) and not any(leaf is each for leaf in _leaves(error) for each in loud):
            yield f"{error!r} has escaped instead of {loud}"
        return
    if trial.escaped is not None:
        yield f"the event loop was ended by {trial.escaped!r}"
        return
    allowed = {"cancels": "cancelled", "raises": "raised"}
    wanted = {allowed[effect] for effect in effects if effect in allowed} or {"returned"}
    if rack.ended not in wanted:
        yield f"the consumer has {rack.ended or 'not ended'} ({error!r}), but should have {' or '.join(wanted)}"
    elif rack.ended == "raised":
        mine = [each.error for each in raised if _effect(trial, each.kind.name, each.kind.effect) == "raises"]
        if len(trial.struck) > 1:  # one exception may replace the other
            if not all(any(leaf is each for each in mine) for leaf in _leaves(error)):
                yield f"{error!r} was raised, but only {mine} should have been"
            return
        depth, inner = 0, error
        while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
            depth, inner = depth + 1, inner.exceptions[0]
        if not any(inner is each for each in mine):
            yield f"{error!r} was raised instead of {mine}"
        elif depth != rack.depth:
            yield f"{error!r} is in {depth} groups instead of {rack.depth}"


def _effect(trial: Trial, name: str, effect: str) -> str:
    return trial.scenario.effects.get(name, effect)


def _leaves(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    elif error is not None:
        yield error
        if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
            yield from _leaves(error.__context__)


def _stream(trial: Trial, tracked: Tracked, effects: set[str], whole: Counter[str]) -> Iterator[str]:
    """The events of a stream are a complete run in order, with one true end."""
    rack, result, events = trial.rack, tracked.stream.result, tracked.events
    try:
        validate(events)
    except EventOrderError as error:
        yield f"out of order: {error}\n    " + "\n    ".join(map(tell, events))
        return
    done = events[-1]
    assert isinstance(done, Done)
    if (done.reason, done.finish_reason) != (result.reason, result.finish_reason):
        yield f"{done} was reported, but the result is {result.reason}, {result.finish_reason}"
    if [call.id for call in done.pending] != [call.id for call in result.pending]:
        yield f"{done.pending} are pending, but the result has {result.pending}"
    disturbed = effects - {"none", "tool", "late", "fails"}
    allowed = {trial.scenario.reason}
    if disturbed:
        allowed |= {"cancelled"}
    if "fails" in effects or "raises" in effects:
        allowed |= {"failed"}
    asked = {event.call.id for event in events if isinstance(event, ApprovalRequested)}
    if asked.intersection(call.id for call in done.pending):
        allowed = {"waiting" if reason == "finished" else reason for reason in allowed}
    if done.reason not in allowed:
        yield f"the run is {done.reason}, but should be {' or '.join(sorted(allowed))}"
    is_complete = done.reason in COMPLETE
    if is_complete and not all(wire.given for wire in rack.wires if wire.closings):
        yield "the run has finished before the end of its source"
    cancelled = [each for each in result.outcomes if each.error is Code.TOOL_CANCELLED]
    if is_complete and cancelled:
        yield f"the run has finished, but {cancelled} are cancelled"
    if not effects - {"none"} and story_of(rack) != whole:
        yield f"missing: {whole - story_of(rack)}, too much: {story_of(rack) - whole}"
    if effects == {"late"} and any(
        each.error not in (None, Code.TOOL_TIMEOUT, Code.UNKNOWN_TOOL) for each in result.outcomes
    ):
        yield f"calls had to time out, but their outcomes are {result.outcomes}"
    if tracked.unread is not None and tracked.unread not in [blow.error for blow in trial.struck]:
        yield f"reading the rest raised {tracked.unread!r}"
    outcomes = Counter(each.call.id for each in result.outcomes)
    if any(number > 1 for number in outcomes.values()):
        yield f"a call has two outcomes: {outcomes}"
    ended = Counter(event.call_id for event in events if isinstance(event, Error) and event.call_id)
    if any(number > 1 for number in ended.values()):
        yield f"a call failed twice: {ended}"
    try:
        if not result.resumed:  # it continues an earlier history
            check_openai([QUESTION, *result.messages("openai", answer_pending=True), QUESTION])
    except AssertionError as error:
        yield f"a provider would refuse the history: {error}"


def _log(trial: Trial, events: list[UIEvent]) -> Iterator[str]:
    """The log of a run has all events of its stream."""
    try:
        validate(events)
    except EventOrderError as error:
        yield f"out of order in the log: {error}\n    " + "\n    ".join(map(tell, events))
        return
    (run,), (tracked,) = trial.rack.runs, trial.rack.streams
    done = events[-1]
    if isinstance(done, Done) and done.reason != run.result.reason:
        yield f"the log ends with {done}, but the result is {run.result.reason}"
    if tracked.entered and story_of(trial.rack) != Counter(map(tell, events)):
        yield f"the log lacks {story_of(trial.rack) - Counter(map(tell, events))} of the events of the stream"


def _client(trial: Trial, effects: set[str]) -> Iterator[str]:
    """A client that stayed gets all messages and an end, and no message follows the end."""
    sent = trial.rack.sent
    if sent[0]["type"] in ("http.response.start", "http.response.body"):
        ends = [not message.get("more_body", True) for message in sent]
        begins = [message["type"] == "http.response.start" for message in sent]
        if begins != [True] + [False] * (len(sent) - 1):
            yield f"the head was sent {sum(begins)} times, or late"
    else:
        ends = [message["type"] == "websocket.close" for message in sent]
    if any(ends[:-1]):
        yield "a message follows the end"
    names = {blow.kind.name for blow in trial.struck}
    gone = trial.rack.leaves_first or any(name.startswith(("leave", "send")) for name in names)
    stays = not effects - {"none", "tool", "late", "fails"} or names == {"end"}
    if stays and not gone and not ends[-1]:
        yield "the client did not get the end"


def _tools(rack: Rack) -> Iterator[str]:
    """Each call ran at most once, was reported before and after, and has an outcome."""
    for name, counts in (("run", rack.begun), ("told", rack.told)):
        for call_id, number in counts.items():
            if number > 1 and (name == "run" or not rack.resumes):
                yield f"call {call_id} was {name} {number} times"
    events = [event for tracked in rack.streams for event in tracked.events]
    executing = {event.call.id for event in events if isinstance(event, Executing)}
    executed = {event.call.id for event in events if isinstance(event, Executed)}
    outcomes = {each.call.id for tracked in rack.streams for each in tracked.stream.result.outcomes}
    if not set(rack.begun) <= executing:
        yield f"tools ran that were not reported: {set(rack.begun) - executing}"
    if not set(rack.begun) <= outcomes:
        yield f"tools ran without an outcome: {set(rack.begun) - outcomes}"
    if not executed <= rack.returned:
        yield f"reported as executed, but have not returned: {executed - rack.returned}"

"""Guards: each limit ends a run with its own reason, and calls that did not run are pending."""

from __future__ import annotations

import itertools
import math
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from streamtools import RunnerOptions, StreamMachine, ToolCall, ToolError, ToolOutcome, ToolResult, ToolStream
from streamtools.errors import Code
from streamtools.events import Done, NativeToolCall, ProviderCompleted, SourceEvent, SourceUsage, UIEvent, Usage
from streamtools.history.pairing import NO_RESULT
from streamtools.tools.guards import Guards, GuardTracker
from tests.support.options import grouped
from tests.support.stories import Script, story, texts

SAME = '###:{"name":"look"}'
BAD = "###:{\"name\":'look'}\n\n"
TURN = ProviderCompleted(finish_reason="tool_calls", ends_run=False)
STOP = ProviderCompleted(finish_reason="stop")


def look(at: int = 0) -> int:
    """Look at something."""
    return at


def fail() -> None:
    """Fail."""
    raise ToolError("no")


def at(number: int) -> str:
    """Return a call that is like no other."""
    return f'###:{{"name":"look","arguments":{{"at":{number}}}}}'


async def run(*source: SourceEvent, tools: Any = (look, fail), **options: Any) -> tuple[list[str], ToolStream]:
    """Return the story of the executions and the end, and the stream."""
    new_id = map("c{}".format, itertools.count(1)).__next__
    events: list[UIEvent] = []
    async with ToolStream(Script(list(source)), tools=tools, run_id="r", **grouped(new_id=new_id, **options)) as stream:
        async for event in stream:
            events.append(event)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    kinds = ("executed", "error", "done")
    return [line for line in story(events) if line.startswith(kinds)], stream


async def test_repeated_calls_stop_the_run() -> None:
    """The last repetition does not run, in any turn, and neither do calls after it."""
    calls = [*texts(SAME, SAME), TURN, *texts(SAME, at(1)), TURN, *texts("never read"), STOP]
    told, stream = await run(*calls, guards=Guards(repeated_calls=3))
    assert sorted(told[:2]) == ["executed c1: 0", "executed c2: 0"]
    assert told[2:] == ["done stopped: repeated_call (None), pending c3 c4"]
    assert ("stopped", "repeated_call") == (stream.result.reason, stream.result.finish_reason)


async def test_failed_turns_stop_the_run() -> None:
    """Malformed calls and failed tools count. A success resets the count, and turns without calls do not."""
    failed = texts('###:{"name":"fail"}')
    fine = [*failed, *texts(SAME), TURN]
    source = [*failed, TURN, *fine, *texts(BAD), TURN, *texts("a"), TURN, *failed, TURN, *texts("never read"), STOP]
    told, stream = await run(*source, guards=Guards(failed_turns=2))
    codes = [line.split()[2] for line in told if line.startswith("error")]
    assert codes == ["tool_failed", "tool_failed", "invalid_json", "tool_failed"]
    assert told[-1] == "done stopped: failed_turns (None)"
    assert "never read" not in stream.result.text


async def test_a_turn_with_a_denied_call_is_not_a_failed_turn() -> None:
    watch = GuardTracker(Guards(failed_turns=1))
    made = ToolCall(id="c", name="look", arguments={}, dialect="native")
    for code in (Code.TOOL_DENIED, Code.TOOL_CANCELLED):
        watch.end_turn([ToolOutcome(call=made, result=None, text="", error=code, message=None, elapsed=0.0)])
    assert watch.why is None
    watch.end_turn([], malformed=1)
    assert watch.why == "failed_turns"


def spent(input: int | None, output: int | None = None, total: int | None = None) -> SourceUsage:
    return SourceUsage(Usage(input=input, output=output, total=total))


async def test_too_many_tokens_stop_the_run() -> None:
    """At the limit, no call runs and no turn is read. A run without further calls has finished."""
    guards = Guards(tokens=10)
    told, _ = await run(*texts(at(1)), spent(4, 5), TURN, *texts(at(2)), spent(None, None, 1), TURN, guards=guards)
    assert told == ["executed c1: 1", "done stopped: token_limit (None), pending c2"]
    told, _ = await run(*texts("a"), spent(10), TURN, *texts("b"), STOP, guards=guards)
    assert told == ["done stopped: token_limit (None)"]
    told, _ = await run(*texts("a"), spent(10), STOP, guards=guards)
    assert told == ["done finished: stop (None)"]
    told, _ = await run(*texts(at(1)), spent(None), TURN, *texts("a"), spent(9), STOP, guards=guards)
    assert told[-1] == "done finished: stop (None)"


async def test_a_tool_ends_the_run() -> None:
    """Running tools finish, calls that have not started are pending, and no further turn is read."""
    done, begun = anyio.Event(), anyio.Event()

    async def finish() -> ToolResult:
        await begun.wait()
        done.set()
        return ToolResult(model="over", ui={"message": "Over."}, stop=True)

    async def slow() -> str:
        begun.set()
        await done.wait()
        await anyio.lowlevel.checkpoint()
        return "slow"

    calls = texts('###:{"name":"slow"}', '###:{"name":"finish"}', at(1), at(2))
    told, stream = await run(*calls, TURN, *texts("never read"), STOP, tools=[slow, finish, look], concurrency=2)
    assert sorted(told[:-1]) == ["executed c1: slow", "executed c2: {'message': 'Over.'}"]
    assert told[-1] == "done stopped: tool_stop (None), pending c3 c4"
    assert [False, True] == [outcome.stop for outcome in stream.result.outcomes]
    assert ["slow", "over"] == [outcome.text for outcome in stream.result.outcomes]


async def test_eager_calls_are_limited_too() -> None:
    """A call after the limit does not start. The turn is read and shown to its end."""

    async def finish() -> ToolResult:
        return ToolResult(stop=True)

    native = [NativeToolCall("finish", {}, str(number), f"n{number}") for number in (1, 2)]
    source = Script([native[0]], [], [], [], [native[1]], [*texts("so"), STOP])
    async with ToolStream(source, tools=[finish], runner=RunnerOptions(execute="eager")) as stream:
        told = story([event async for event in stream])
    assert "executed n1: None" in told
    assert told[-1] == "done stopped: tool_stop (None), pending n2"
    assert stream.result.text == "so"
    assert [None] == [outcome.result for outcome in stream.result.outcomes]
    assert ["assistant", "tool", "tool"] == [message["role"] for message in stream.result.messages()]
    assert ["null", NO_RESULT] == [message["content"] for message in stream.result.messages()[1:]]


@pytest.mark.parametrize(
    "bound", [{"calls": 0}, {"seconds": -math.inf}, {"tokens": math.nan}, {"repeated_calls": 1}, {"failed_turns": 0}]
)
def test_invalid_limits_are_refused(bound: dict[str, Any]) -> None:
    """A limit must be a positive number, and a single call is not a repetition."""
    with pytest.raises(ValueError, match=next(iter(bound))):
        Guards(**bound)
    with pytest.raises(ValueError, match=f"{next(iter(bound))} must be a positive number or None, got '5'"):
        Guards(**dict.fromkeys(bound, "5"))  # type: ignore[arg-type]


def test_the_first_limit_stays_the_reason() -> None:
    """Later limits do not change it, and no call is admitted any more."""
    watch = GuardTracker(Guards(tokens=1))
    watch.trip("tool_stop")
    calls = [ToolCall(id="c", name="look", arguments={}, dialect="native")]
    assert (watch.admit(calls, tokens=5), watch.why) == (0, "tool_stop")


def test_a_machine_can_be_stopped_at_any_time() -> None:
    """Exactly one `done` is the last event: before the start, in a turn, after it and after the end."""
    source: list[SourceEvent] = [*texts("a", SAME), TURN, *texts("b"), STOP]
    for length in range(len(source) + 1):
        machine = StreamMachine(run_id="r")
        events = [each for event in source[:length] for each in machine.feed(event)]
        events += machine.stop("time_limit") + machine.stop("other")
        for event in source[length:]:
            assert machine.feed(event) == []
        events += machine.cancel()
        done = events[-1]
        assert isinstance(done, Done)
        finished = length == len(source)
        assert (("finished", "stop") if finished else ("stopped", "time_limit")) == (done.reason, done.finish_reason)
        assert ["done"] == [event.type for event in events if event.type == "done"]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert [] == machine.stop("late") + machine.close()

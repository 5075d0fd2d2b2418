"""Runs that are cancelled at each of their events: nothing leaks, and the history is valid."""

from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import IO, Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ToolStream, TurnResult
from streamtools.events import (
    Call,
    Done,
    Error,
    Executed,
    Executing,
    NativeToolCall,
    Progress,
    ProviderCompleted,
    SourceError,
    SourceEvent,
    UIEvent,
)
from streamtools.tools import Tool
from streamtools.tools.guards import Guards
from tests.support.options import grouped
from tests.support.order_rules import Message, check_anthropic, check_openai, to_anthropic
from tests.support.stories import Script, texts

TURN = ProviderCompleted(finish_reason="tool_calls", ends_run=False)
STOP = ProviderCompleted(finish_reason="stop")
NAMES = ("wait", "block", "step", "wait_by_steps", "quick")


class Workshop:
    """Slow tools of each kind, each with a file open while it works, and a door for which all of them wait."""

    def __init__(self) -> None:
        self.door, self.thread_door = anyio.Event(), threading.Event()
        self.files: list[IO[bytes]] = []

    def open(self) -> IO[bytes]:
        file = tempfile.TemporaryFile()  # noqa: SIM115  # it is the tools that close it
        self.files.append(file)
        return file

    async def wait(self) -> str:
        with self.open():
            await self.door.wait()
        return "waited"

    async def wait_by_steps(self) -> AsyncIterator[int]:
        with self.open():
            yield 1
            await self.door.wait()
            yield 2

    def block(self) -> str:
        with self.open():
            self.thread_door.wait()
        return "blocked"

    def step(self) -> Iterator[int]:
        with self.open():
            yield 1
            self.thread_door.wait()
            yield 2

    async def quick(self) -> str:
        return "quick"

    @property
    def tools(self) -> list[Tool]:
        return [Tool(getattr(self, name)) for name in NAMES]

    def open_doors(self) -> None:
        self.door.set()
        self.thread_door.set()


def native(*names: str) -> list[SourceEvent]:
    """Return a turn with native calls."""
    return [NativeToolCall(str(number), name, {}, f"n{number}") for number, name in enumerate(names)]


def written(*names: str) -> list[SourceEvent]:
    """Return a turn with calls in text."""
    return texts(*(f'###:{{"name":"{name}"}}\n' for name in names))


def check_result(result: TurnResult) -> None:
    """Raise AssertionError where a provider would refuse the history with the user's next message."""
    question = {"role": "user", "content": "Well?"}
    messages = [question, *result.messages("openai"), question]
    check_openai(messages)
    check_anthropic(to_anthropic(messages))


def check_events(events: list[UIEvent]) -> None:
    """Raise AssertionError unless each call that was announced has exactly one end, and the run one `done`."""
    done = events[-1]
    assert isinstance(done, Done), done
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    ends = Counter(event.call.id for event in events if isinstance(event, Executed))
    ends.update(event.call_id for event in events if isinstance(event, Error) and event.call_id)
    ends.update(call.id for call in done.pending)
    assert {event.call.id for event in events if isinstance(event, Call | Executing)} <= set(ends)
    assert set(ends.values()) <= {1}, ends


Leave = Callable[[ToolStream, anyio.CancelScope], Any]


async def by_closing(stream: ToolStream, scope: anyio.CancelScope) -> None:
    await stream.aclose()


async def by_cancelling(stream: ToolStream, scope: anyio.CancelScope) -> None:
    scope.cancel()


async def killed(
    source: list[list[SourceEvent]], nth: int, leave: Leave | None, opening: int | None = None, **options: Any
) -> tuple[list[UIEvent], TurnResult]:
    """Run, leave the block at the event number `nth` (or otherwise, by `leave`), and check what is left.

    The doors open when so many tools have begun or said something (`opening`), or where the run would stand still.
    """
    workshop, script = Workshop(), Script(*source)
    tasks_before = len(anyio.get_running_tasks())
    new_id = map("c{}".format, itertools.count(1)).__next__
    stream = ToolStream(script, tools=workshop.tools, **grouped(new_id=new_id, **options))
    events: list[UIEvent] = []
    try:
        with anyio.CancelScope() as scope:
            async with stream, anyio.create_task_group() as helpers:

                async def open_doors() -> None:
                    await anyio.wait_all_tasks_blocked()
                    workshop.open_doors()

                if opening is None:
                    helpers.start_soon(open_doors)
                async for event in stream:
                    events.append(event)
                    if opening == sum(isinstance(event, Executing | Progress) for event in events):
                        workshop.open_doors()
                    if len(events) == nth:
                        helpers.cancel_scope.cancel()
                        if leave is None:
                            break
                        await leave(stream, scope)
                helpers.cancel_scope.cancel()
        assert len(anyio.get_running_tasks()) == tasks_before
        events += [event async for event in stream]
        left = stream.threads.left
        assert left <= sum(outcome.abandoned for outcome in stream.result.outcomes)
    finally:
        workshop.open_doors()
    with anyio.fail_after(20):
        while stream.threads.left or not all(file.closed for file in workshop.files):
            await anyio.lowlevel.checkpoint()
    assert script.closed == 1
    check_events(events)
    check_result(stream.result)
    return events, stream.result


@pytest.mark.anyio
@pytest.mark.parametrize("leave", [None, by_closing, by_cancelling], ids=["break", "aclose", "cancel"])
@pytest.mark.parametrize("kind", [native, written])
@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.deep)])
async def test_killed_at_each_event(leave: Leave | None, kind: Callable[..., list[SourceEvent]], stride: int) -> None:
    """No task, file or uncounted thread is left. Each call has one end, and both providers accept the history."""
    source: list[list[SourceEvent]] = [
        kind("wait", "block", "step"),
        [TURN],
        [*texts("Now: "), *kind("wait_by_steps", "quick"), STOP],
    ]
    whole, result = await killed(source, -1, leave, opening=4)
    assert "finished" == result.reason
    places = range(len(whole), 0, -stride)[::-1]
    reasons = [(await killed(source, nth, leave, opening=4))[1].reason for nth in places]
    assert {"cancelled", "finished"} == set(reasons)
    assert "finished" == reasons[-1]
    assert stride > 1 or "finished" == reasons[-2]


@pytest.mark.anyio
@pytest.mark.parametrize("nth", [1, 6, 12, 18])
async def test_eager_runs_are_killed_too(nth: int) -> None:
    """Tools that run beside the stream end with it."""
    await killed([native("wait"), native("wait", "block")[1:], [STOP]], nth, None, execute="eager")


names = st.sampled_from([*NAMES, "unknown", "not a name", ""])
arguments: st.SearchStrategy[Any] = st.sampled_from([{}, "", "{}", '{"a":', '{"odd":1}', [1], None])
provider_ids = st.sampled_from(["x", "y", "z", None])
native_calls = st.builds(
    NativeToolCall, st.integers(0, 5).map(str), names, arguments, provider_ids, st.sampled_from([False] * 5 + [True])
)
pieces = st.one_of(
    native_calls,
    native_calls,
    st.sampled_from([*texts("So. ", '###:{"name":"quick"}\n', '###:{"name":}\n\n', '###:{"na')]),
)
endings: st.SearchStrategy[SourceEvent] = st.sampled_from(
    [TURN, TURN, STOP, ProviderCompleted(finish_reason="length"), SourceError("no")]
)
turns = st.tuples(st.lists(pieces, max_size=5), endings).map(lambda turn: [*turn[0], turn[1]])


@given(
    source=st.lists(turns, max_size=3),
    nth=st.integers(1, 40),
    leave=st.sampled_from([None, by_closing, by_cancelling]),
    backend=st.sampled_from(["asyncio", "trio"]),
    guards=st.sampled_from([Guards(), Guards(calls=2), Guards(failed_turns=1), Guards(calls_per_turn=1)]),
    flag=st.sampled_from([None, False]),
    concurrency=st.sampled_from([1, 8]),
)
def test_every_history_is_accepted(
    source: list[list[SourceEvent]], nth: int, leave: Leave | None, backend: str, **options: Any
) -> None:
    """Malformed, unknown, duplicate and cut calls of both kinds, run, pending, failed and killed."""
    options["native_tool_calls"] = options.pop("flag")

    async def run() -> None:
        await killed(source, nth, leave, **options)

    anyio.run(run, backend=backend)


def test_the_rules_find_faults() -> None:
    """A missing, a duplicate, a late and an unexpected result are refused."""
    asked: Message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    told: Message = {"role": "tool", "tool_call_id": "a", "content": "1"}
    user: Message = {"role": "user", "content": "Well?"}
    check_openai([user, asked, told])
    check_anthropic(to_anthropic([user, asked, told]))
    for messages in ([user, asked], [user, asked, told, told], [user, asked, user, told], [user, told]):
        with pytest.raises(AssertionError):
            check_openai(messages)
        with pytest.raises(AssertionError):
            check_anthropic(to_anthropic(messages))

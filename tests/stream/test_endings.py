"""Streams that are cut: the run has one true end, and no call of an incomplete turn runs.

Every fixture of every provider is cut after each of its frames, by an end and by a loss of the connection. One answer
of each provider is also cut inside its frames. These tests define the end of a stream by its bytes, independently of
the adapters.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import pytest

from streamtools import ParserOptions, RunnerOptions, StreamMachine, Tool, ToolStream, sources
from streamtools.errors import Code
from streamtools.events import Call, Done, Error, Executed, Executing, StepEnd, StepStart, UIEvent, Warning
from streamtools.machine.event_order import validate
from streamtools.recording import read_recording, shipped
from tests.sources import test_sources_latitude, test_sources_openai_calls
from tests.sources.test_every_format import STREAMS
from tests.support.cases import cases, together
from tests.support.loops import ONE_LOOP, OTHER_LOOP_DEEP
from tests.support.provider_streams import CALLS, NAMES, PROVIDERS, Provider

Made = list[tuple[str, dict[str, Any]]]


class Fixture(NamedTuple):
    """A stream as frames, and the name of its adapter."""

    adapter: str
    frames: Sequence[bytes]


def _cut(stream: bytes) -> list[bytes]:
    """Return the frames of a stream of server-sent events."""
    return [frame for frame in re.split(rb"(?<=\n\n)|(?<=\r\n\r\n)", stream) if frame]


def _fixtures() -> Iterator[tuple[str, Fixture]]:
    for name, stream in STREAMS.items():
        adapter = name.partition(",")[0]
        yield name, Fixture(adapter, _cut(stream.frames[0]) if adapter == "openai" else stream.frames)
    for name, (lists, _) in test_sources_openai_calls.ROWS.items():
        yield f"openai, calls: {name}", Fixture("openai", _cut(test_sources_openai_calls.stream(lists)))
    for name, (events, _) in test_sources_latitude.RUNS.items():
        yield f"latitude, {name}", Fixture("latitude", [test_sources_latitude.native(event) for event in events])
    for provider in PROVIDERS:
        yield f"{provider.adapter}, the whole answer", Fixture(provider.adapter, provider.frames)
    for name, path in shipped().items():
        yield f"openai, the recording {name}", Fixture("openai", _cut(read_recording(path).data))


FIXTURES = dict(_fixtures())

ENDS: dict[str, str] = {
    "openai": r'\[DONE|"finish_reason": ?[^n" ]|"finish_reason": ?"[^"]',
    "responses": r"response\.(completed|incomplete|failed|cancelled|done)",
    "anthropic": r"message_stop",
    "gemini": r'"finishReason"|"(prompt_feedback|promptFeedback|blockReason)"|interaction\.complete|"status"',
    "ollama": r'"done": ?true',
    "ai_sdk": r'"type": ?"(finish|abort)"|\[DONE',
    "latitude": r"chain-complete|tools-requested",
    "bedrock": r"messageStop|chunk",
    "cohere": r"message-end",
}
"""The bytes that a complete stream contains, by provider."""


class Run(NamedTuple):
    """The events of a stream, and the calls that ran."""

    events: list[UIEvent]
    ran: Made

    @property
    def done(self) -> Done:
        assert isinstance(self.events[-1], Done)
        return self.events[-1]


async def run(
    adapter: str,
    frames: Sequence[bytes],
    names: Sequence[str],
    *,
    lost: bool = False,
    execute: Literal["completed", "eager"] = "completed",
) -> Run:
    """Return the events of a stream, and the calls whose tools have run."""
    ran: Made = []

    def note(name: str, arguments: dict[str, Any]) -> str:
        ran.append((name, arguments))
        return "done"

    async def read() -> AsyncIterator[bytes]:
        for frame in frames:
            yield frame
        if lost:
            raise ConnectionResetError

    tools = [
        Tool(partial(_run, note, name), name=name, description="", parameters={"type": "object"}) for name in names
    ]
    source = getattr(sources, adapter)(read())
    async with ToolStream(
        source, tools=tools, runner=RunnerOptions(execute=execute), parser=ParserOptions(call_deltas=True)
    ) as stream:
        events = [event async for event in stream]
    return Run(events, ran)


async def _run(note: Any, name: str, arguments: dict[str, Any]) -> str:
    result: str = note(name, arguments)
    return result


def calls_of(adapter: str, frames: Sequence[bytes]) -> Made:
    """Return all complete calls of a whole stream, also superseded calls."""
    reader, machine = sources.adapter(adapter), StreamMachine()
    told = [event for each in reader.feed(b"".join(frames)) + reader.close() for event in machine.feed(each)]
    return [(event.call.name, event.call.arguments) for event in told + machine.close() if isinstance(event, Call)]


def assert_truthful(told: Run, given: bytes, adapter: str) -> None:
    """Assert the rules for any run with any end."""
    validate(told.events)
    faults = [event for event in told.events if isinstance(event, Error) and event.call_id is None]
    assert (told.done.reason == "failed") == bool(faults)
    assert len(faults) <= 1
    if told.done.reason in ("finished", "truncated"):
        assert re.search(ENDS[adapter], given.decode(errors="replace"))
    assert len(told.ran) == sum(isinstance(event, Executed) for event in told.events)


def assert_earned(events: Sequence[UIEvent]) -> None:
    """Assert that calls ran only if their turn was complete."""
    running = False
    for event in events:
        if isinstance(event, StepStart):
            running = False
        elif isinstance(event, Executing):
            running = True
        elif isinstance(event, StepEnd):
            assert not running or event.finish_reason in ("stop", "tool_calls")


WAYS: Sequence[tuple[bool, Literal["completed", "eager"]]] = [
    (False, "completed"),
    (True, "completed"),
    (False, "eager"),
]
"""Whether the connection is lost at the cut, and when calls run. The quick tests use them in turn."""


@OTHER_LOOP_DEEP
@pytest.mark.parametrize("share", [5, pytest.param(1, marks=pytest.mark.deep)])
@pytest.mark.parametrize("adapter", ENDS)
async def test_a_stream_cut_after_any_frame_has_one_true_end(adapter: str, share: int) -> None:
    """Only calls of the whole stream run, with the same arguments."""
    with cases() as case:
        fixtures = [(name, each.frames) for name, each in FIXTURES.items() if each.adapter == adapter]
        for number, (name, frames) in enumerate(fixtures):
            whole = calls_of(adapter, frames)
            names = sorted({name for name, _ in whole if re.fullmatch(r"[\w-]{1,64}", name, re.ASCII)})
            for count in range(len(frames) + 1):
                for lost, execute in WAYS[(number + count) % share :: share]:
                    with case(name, count, lost, execute):
                        given = frames[:count]
                        told = await run(adapter, given, names, lost=lost, execute=execute)
                        assert_truthful(told, b"".join(given), adapter)
                        if execute == "completed":
                            assert_earned(told.events)
                        assert all(each in whole for each in told.ran)


def test_every_recorded_stream_is_cut() -> None:
    assert set(ENDS) == {each.adapter for each in FIXTURES.values()}


@together("provider", PROVIDERS, ids=NAMES)
async def test_no_call_runs_if_the_response_is_cut_between_frames(provider: Provider) -> None:
    """Each call that has begun is complete or truncated."""
    left = provider.adapter == "latitude"  # which takes no results
    with cases() as case:
        for count in range(len(provider.frames) + 1):
            with case(count):
                told = await run(provider.adapter, provider.frames[:count], [name for name, _ in CALLS])
                assert_begun(told, earned=count >= provider.turn, left=left)
                assert ("finished" if count >= provider.end else "failed") == told.done.reason


@ONE_LOOP  # thousands of runs; both event loops are above
@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.deep)])
@together("provider", PROVIDERS, ids=NAMES)
async def test_no_call_runs_if_the_response_is_cut_inside_a_frame(provider: Provider, stride: int) -> None:
    """Also inside a string or a character."""
    names, left = [name for name, _ in CALLS], provider.adapter == "latitude"
    earned = b"".join(provider.frames[: provider.turn]).rindex(b"}") + 1
    earned += 4 * (provider.adapter == "bedrock")  # the checksum of a binary message
    with cases() as case:
        for size in range(0, len(provider.body) + 1, stride):
            with case(size):
                given = provider.body[:size]
                told = await run(provider.adapter, [given], names)
                assert_truthful(told, given, provider.adapter)
                if size < earned or told.ran or not _lost_a_frame(told):
                    assert_begun(told, earned=size >= earned, left=left)  # else the frame is unknown


def _lost_a_frame(told: Run) -> bool:
    return any(isinstance(event, Warning) and event.code is Code.BAD_FRAME for event in told.events)


def assert_begun(told: Run, *, earned: bool, left: bool) -> None:
    """Assert that each call of the partly read answer is complete or truncated."""
    if earned and not left:
        assert (CALLS, []) == (told.ran, list(told.done.pending))
        return
    assert [] == told.ran
    complete = [event.call for event in told.events if isinstance(event, Call)]
    assert complete == list(told.done.pending)
    assert CALLS[: len(complete)] == [(call.name, call.arguments) for call in complete]
    cut = [event.code for event in told.events if isinstance(event, Error) and event.call_id is not None]
    assert {Code.TRUNCATED}.issuperset(cut)  # a lost half of a frame may hold a piece of any open call

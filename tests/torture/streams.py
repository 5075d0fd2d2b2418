"""Scenarios of one stream, with all kinds of sources and tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from streamtools import sources
from streamtools.errors import DecisionRefused
from streamtools.events import ApprovalRequested, ProviderCompleted, TextDelta, UIEvent
from streamtools.tools import CallLedger, MemoryLedger, SQLiteLedger, Tool
from tests.torture.rack import Bang, Rack
from tests.torture.tools import Tools, called, native, new_ids, said
from tests.torture.wires import OwnSource, Wire


@dataclass(frozen=True)
class Scenario:
    """A run to disturb. `effects` maps the names of blows to their effects in this scenario, if they differ."""

    name: str
    run: Callable[[Rack], Coroutine[Any, Any, None]]
    reason: str = "finished"
    effects: Mapping[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # kinds of blows that do not apply
    is_inside: bool = False  # whether the stream is inside a context manager of a library that waits when it exits
    looks_again: str = "(nowhere)"  # the module in which a task polls, because no event can wake it


async def _read(rack: Rack, wire: Wire, tools: list[Tool] | None = None, **options: Any) -> None:
    async with rack.stream(sources.openai(wire), tools=tools, new_id=new_ids(), run_id="r", **options) as events:
        await rack.read(events)


async def prose(rack: Rack) -> None:
    """Text without calls."""
    await _read(rack, Wire(rack, *said("a", "b", "c")))


async def in_generators(rack: Rack) -> None:
    """Bytes from nested generators, and one tool."""
    await _read(rack, Wire(rack, *native("think", text="Let me see."), generator=True), Tools(rack)["think"])


async def threads(rack: Rack) -> None:
    """Tools in threads: one returns immediately, one reports progress."""
    await _read(rack, Wire(rack, *native("quick", "count")), Tools(rack)["quick count"], concurrency=1)


async def parallel(rack: Rack) -> None:
    """Concurrent tools of all kinds. One waits for another."""
    names = ("think", "steps", "block", "unlock")
    await _read(rack, Wire(rack, *native(*names)), Tools(rack)[" ".join(names)])


async def eager(rack: Rack) -> None:
    """Tools that run during the answer."""
    wire = Wire(rack, *native("think", "steps", "quick", between="and "))
    await _read(rack, wire, Tools(rack)["think steps quick"], execute="eager")


async def in_text(rack: Rack) -> None:
    """Sequential calls in text, with text between them. The second tool is unknown."""
    wire = Wire(rack, *said("So: ", called("think"), called("unknown"), "and ", called("steps"), "."))
    await _read(rack, wire, Tools(rack)["think steps"], concurrency=1, dialects=["hash_marker"])


async def cut(rack: Rack) -> None:
    """An answer that breaks off in its second call. Neither call runs."""
    wire = Wire(rack, *said(called("think"), '###:{"name":"thi', finish=None))
    await _read(rack, wire, Tools(rack)["think"], dialects=["hash_marker"])


async def asked(rack: Rack) -> None:
    """A call that the consumer approves, and one that needs no approval."""
    tools = Tools(rack)
    guarded = Tool(tools.think, requires_approval=True)
    wire = Wire(rack, *native("think", "steps"))
    stream = rack.stream(
        sources.openai(wire), tools=[guarded, *tools["steps"]], new_id=new_ids(), run_id="r", ask="now"
    )

    class Approving:
        def __aiter__(self) -> Approving:
            return self

        async def __anext__(self) -> Any:
            event = await anext(stream)
            if isinstance(event, ApprovalRequested):
                with suppress(DecisionRefused):  # if the stream was closed meanwhile
                    stream.approve(event.call.id)
            return event

        async def aclose(self) -> None:
            await stream.aclose()

    async with stream:
        await rack.read(Approving())


async def resumed_with_file(rack: Rack) -> None:
    """Like `resumed`, with a ledger in a file, which threads write."""
    place = TemporaryDirectory()
    ledger = SQLiteLedger(Path(place.name) / "ledger")
    rack.cleanups += [ledger.close, place.cleanup]
    await resumed(rack, ledger)


async def resumed(rack: Rack, ledger: CallLedger | None = None) -> None:
    """A run that is suspended for an approval, and a run that resumes it. A second resume runs no call twice."""
    rack.resumes = True
    tools = Tools(rack)
    guarded = [Tool(tools.think, requires_approval=True), *tools["steps"]]
    options: dict[str, Any] = {"tools": guarded, "run_id": "r", "ledger": ledger or MemoryLedger()}
    first = rack.stream(sources.openai(Wire(rack, *native("think", "steps"))), new_id=new_ids(), **options)
    async with first as events:
        await rack.read(events)
    suspension = first.suspension
    if suspension is None:
        return
    options |= {"resume": suspension, "decisions": {"n0": True}}

    async def resume_again() -> None:
        rack.is_calm = True
        async with rack.stream(OwnSource(rack), **options) as events:
            await rack.read(events)

    rack.afterwards = resume_again
    async with rack.stream(OwnSource(rack), **options) as events:
        await rack.read(events)


async def own_source(rack: Rack) -> None:
    """A source of the application, whose exceptions are raised unchanged."""
    end = ProviderCompleted(finish_reason="stop")
    source = OwnSource(rack, [TextDelta("a")], [TextDelta(called("think"))], [TextDelta("b"), end])
    tools = Tools(rack)["think"]
    async with rack.stream(source, tools=tools, new_id=new_ids(), run_id="r", dialects=["hash_marker"]) as events:
        await rack.read(events)


async def elsewhere(rack: Rack) -> None:
    """Another task reads the events than the task that entered the stream."""
    wire = Wire(rack, *native("think", text="a"))
    async with rack.stream(sources.openai(wire), tools=Tools(rack)["think"], new_id=new_ids(), run_id="r") as events:
        raised: list[BaseException] = []

        async def read() -> None:
            try:
                await rack.read(events)
            except (Exception, Bang) as error:
                raised.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(read, name="reader")
        if raised:
            raise raised[0]


async def in_own_generator(rack: Rack) -> None:
    """A generator of the application around the stream. The task that reads it closes it."""
    wire = Wire(rack, *native("think", text="a"))
    stream = rack.stream(sources.openai(wire), tools=Tools(rack)["think"], new_id=new_ids(), run_id="r")

    async def generate() -> AsyncGenerator[UIEvent, None]:
        async with stream as events:
            async for event in events:
                yield event

    async with aclosing(generate()) as events:
        await rack.read(events)


async def closed_early(rack: Rack) -> None:
    """A consumer that closes the stream after one event, reads the rest, and closes it again."""
    wire = Wire(rack, *native("think", text="a"))
    async with rack.stream(sources.openai(wire), tools=Tools(rack)["think"], new_id=new_ids(), run_id="r") as events:
        await anext(events)
        await events.aclose()
        await rack.read(events)
        await events.aclose()


_IN_TURN = ("timeout", "timeouts", "wait-for")
"""A cancel scope must not enclose a single read of a generator, and one task must read it (PEP 789)."""

STREAMS = [
    Scenario("prose", prose),
    Scenario("generators", in_generators),
    Scenario("threads", threads),
    Scenario("parallel", parallel),
    Scenario("eager", eager),
    Scenario("in-text", in_text),
    Scenario("cut", cut, reason="failed"),
    Scenario("asked", asked),
    Scenario("resumed", resumed),
    # A call in a file stays claimed until the abandoned thread of the first run releases it.
    Scenario("resumed-file", resumed_with_file, looks_again="tools/ledger.py"),
    Scenario("own-source", own_source),
    Scenario("elsewhere", elsewhere),
    Scenario("own-generator", in_own_generator, without=_IN_TURN),
    Scenario("closed-early", closed_early, reason="cancelled"),
]

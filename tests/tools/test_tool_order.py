"""The runner: sequential tools, the end of a run, long results, contexts, neutralized text."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from streamtools import RunnerOptions, ToolOutcome, ToolResult, ToolStream
from streamtools.errors import Code
from streamtools.events import Executed, Executing, NativeToolCall, ProviderCompleted, UIEvent, Warning
from streamtools.tools import Tool
from tests.support.stories import Script, texts
from tests.tools.test_tool_runner import Interface, call, runner

STOP = ProviderCompleted(finish_reason="stop")


class Diary:
    """Tools that write down who is at work with them."""

    def __init__(self) -> None:
        self.at_work: set[str] = set()
        self.seen: dict[str, set[str]] = {}

    async def work(self, name: str) -> str:
        self.at_work.add(name)
        for _ in range(10):
            self.seen.setdefault(name, set()).update(self.at_work - {name})
            await anyio.lowlevel.checkpoint()
        self.at_work.remove(name)
        return name

    async def alone(self, name: str) -> str:
        return await self.work(name)

    @property
    def tools(self) -> list[Any]:
        return [self.work, Tool(self.alone, sequential=True)]


async def test_a_sequential_tool_is_a_barrier() -> None:
    """Earlier calls have finished when it starts, and later calls start when it has finished."""
    diary, interface = Diary(), Interface()
    calls = [call("alone" if name in "cd" else "work", name, name=name) for name in "abcdef"]
    outcomes = await runner(interface, *diary.tools).run(calls, interface.send)
    assert list("abcdef") == [outcome.text for outcome in outcomes]
    assert {"a": {"b"}, "b": {"a"}, "c": set(), "d": set(), "e": {"f"}, "f": {"e"}} == diary.seen
    begun = [story for story in interface.story if story[0] == "executing"]
    assert list("abcdef") == [name for _, name in begun]
    assert interface.story.index(("executing", "c")) > interface.story.index(("executed", "b"))
    assert interface.story.index(("executing", "e")) > interface.story.index(("executed", "d"))


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_barrier_can_be_cancelled(name: str) -> None:
    """While it waits or works. The next run is not blocked."""
    diary = Diary()
    scope = anyio.CancelScope()

    def stop(event: UIEvent) -> None:
        if isinstance(event, Executing) and event.call.id == name:
            scope.cancel()

    interface = Interface(stop)
    work = runner(interface, *diary.tools)
    calls = [call("work", "a", name="a"), call("alone", "b", name="b"), call("work", "c", name="c")]
    with scope:
        await work.run(calls, interface.send)
    outcomes, _ = work.close_calls(calls)
    assert Code.TOOL_CANCELLED is outcomes[2].error
    diary.at_work.clear()
    with anyio.fail_after(10):
        again = await work.run([call("alone", "d", name="d"), call("work", "e", name="e")], Interface().send)
    assert ["d", "e"] == [outcome.text for outcome in again]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_tool_that_cancels_its_own_task() -> None:
    """Its siblings are cancelled with it, each has an outcome, and the next run works."""

    async def vanish() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    diary, interface = Diary(), Interface()
    calls = [call("vanish"), call("alone", "b", name="b"), call("work", "c", name="c")]
    work = runner(interface, vanish, *diary.tools)
    outcomes = await work.run(calls, interface.send)
    assert [Code.TOOL_CANCELLED] * 3 == [outcome.error for outcome in outcomes]
    assert ["error"] * 3 == [kind for kind, _ in interface.story if kind != "executing"]
    assert ["d"] == [outcome.text for outcome in await work.run([call("alone", "d", name="d")], interface.send)]


async def test_nothing_starts_after_the_end() -> None:
    """A call that waits for its place when a tool ends the run has no outcome and no event."""

    def finish() -> ToolResult:
        return ToolResult(model="over", stop=True)

    async def work() -> str:
        return "worked"

    interface = Interface()
    shared = runner(interface, finish, work, concurrency=1)
    outcomes = await shared.run([call("work", "a"), call("finish"), call("work", "b")], interface.send)
    assert ["worked", "over"] == [outcome.text for outcome in outcomes]
    assert ([False, True], True) == ([outcome.stop for outcome in outcomes], shared.stopped)
    assert [] == await shared.run([call("work", "c")], interface.send)
    assert ["a", "finish"] == [name for kind, name in interface.story if kind == "executing"]
    (outcome,), (ending,) = shared.close_calls([call("work", "b")])
    assert (Code.TOOL_CANCELLED, "error") == (outcome.error, ending.type)


async def test_a_result_that_is_too_long_for_the_model() -> None:
    """The interface gets all of it, the model its length and an excerpt, with a warning."""

    def read() -> str:
        return "x" * 5000

    interface = Interface()
    (outcome,) = await runner(interface, read, result_limit=2000).run([call("read")], interface.send)
    assert outcome.result == "x" * 5000
    assert outcome.text == (
        "the result has 5000 characters, more than the limit of 2000; request less of it. It begins: " + "x" * 1000
    )
    _, warning, executed = interface.events
    assert isinstance(warning, Warning)
    assert (Code.RESULT_TOO_LONG, 5000, 2) == (warning.code, warning.count, warning.seq)
    assert isinstance(executed, Executed)
    assert ("x" * 5000, 3) == (executed.result, executed.seq)


async def test_a_thread_that_has_not_started_never_does() -> None:
    """A call that is cancelled before its thread starts has no effect."""
    scope = anyio.CancelScope()
    begun = threading.Event()

    def stop(event: UIEvent) -> None:
        scope.cancel()

    interface = Interface(stop)
    work = runner(interface, begun.set)
    with scope:
        await work.run([call("set")], interface.send)
    (outcome,), _ = work.close_calls([call("set")])
    assert (Code.TOOL_CANCELLED, False, False) == (outcome.error, outcome.abandoned, begun.is_set())


# Results that travel as text, and come back in later calls.

OPENER = "~~~tool_call\n{}\n~~~ <|im_end|>"
NEUTRALIZED = "~\u2060~~tool_call\n{}\n~\u2060~~ <\u2060|im_end|>"


@pytest.mark.parametrize("native", [True, False])
async def test_neutralized_text_in_a_call_is_restored(native: bool) -> None:
    """For the tool, its events and its outcome. The history has the model's text."""
    taken: list[str] = []

    def write(path: str, lines: list[str]) -> None:
        taken.extend(lines)

    arguments = {"path": "a\u2060b", "lines": [NEUTRALIZED]}
    told: list[ToolOutcome] = []
    made: list[Any]
    if native:
        made = [NativeToolCall("write", arguments, id="n")]
    else:
        written = '###:{"name":"write","arguments":{"path":"a\u2060b","lines":["%s"]}}'
        made = texts(written % NEUTRALIZED.replace("\n", "\\n"))
    source = Script([*made, STOP])
    async with ToolStream(
        source, tools=[write], runner=RunnerOptions(on_result=lambda call, outcome: told.append(outcome))
    ) as events:
        executing = [event.call async for event in events if isinstance(event, Executing)]
    assert [OPENER] == taken
    assert [{"path": "a\u2060b", "lines": [OPENER]}] * 2 == [executing[0].arguments, told[0].call.arguments]
    assert "~\u2060~~tool_call" in json.dumps(events.result.messages()[0], ensure_ascii=False)
    assert [NEUTRALIZED] == events.result.calls[0].arguments["lines"]

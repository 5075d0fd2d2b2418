"""The runner: order, limits, outcomes, cancellation, and its events."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import fields
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
import structlog.testing

from streamtools.calls import ToolCall
from streamtools.errors import Code, ToolFailed
from streamtools.events import Error, Executed, Executing, Progress, UIEvent, Warning, read_ui_event
from streamtools.tools import Tool, ToolContext, ToolOutcome, ToolRegistry, ToolResult
from streamtools.tools.runner import Runner, RunnerOptions
from tests.support.cases import together

SECRET = "hunter2-s3cret"


class Interface:
    """Collects the events for the interface, and numbers them."""

    def __init__(self, then: Callable[[UIEvent], Any] = lambda event: None) -> None:
        self.events: list[UIEvent] = []
        self.number = itertools.count(1).__next__
        self._then = then

    async def send(self, event: UIEvent) -> None:
        self.events.append(event)
        told = self._then(event)
        if told is not None:
            await told

    @property
    def story(self) -> list[tuple[str, str]]:
        """Which call each event is about."""
        return [(event.type, _call_id(event)) for event in self.events]


def _call_id(event: UIEvent) -> str:
    if isinstance(event, Warning):
        return ""
    assert isinstance(event, Executing | Progress | Executed | Error)
    return (event.call_id if isinstance(event, Progress | Error) else event.call.id) or ""


def call(name: str, id: str | None = None, /, **arguments: Any) -> ToolCall:
    """A call of `name` with an id of the same name."""
    return ToolCall(id=id or name, name=name, arguments=arguments, dialect="hash_marker")


def runner(interface: Interface, *tools: Any, **options: Any) -> Runner:
    """A runner of these tools that numbers for the interface."""
    names = {field.name for field in fields(RunnerOptions)}
    limits = RunnerOptions(**{name: options.pop(name) for name in names & options.keys()})
    return Runner(ToolRegistry(*tools), number=interface.number, options=limits, **options)


async def outcome_of(function: Any, /, **options: Any) -> tuple[ToolOutcome, list[UIEvent]]:
    """How a call of one tool without arguments ends, and the events of it."""
    interface = Interface()
    made = function if isinstance(function, Tool) else Tool(function, name="it")
    (outcome,) = await runner(interface, made, **options).run([call(made.name)], interface.send)
    return outcome, interface.events


async def weather(city: str) -> dict[str, str]:
    return {"city": city, "message": f"Rain in {city}"}


async def test_an_async_tool_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`executing`, then `executed` with plain values, message and time. The model gets JSON."""
    interface = Interface()
    monkeypatch.setattr("streamtools.tools.runner.perf_counter", iter([10.0, 12.5]).__next__)
    made = call("weather", city="Bern")
    outcomes = await runner(interface, weather).run([made], interface.send)
    result = {"city": "Bern", "message": "Rain in Bern"}
    assert interface.events == [Executing(made, seq=1), Executed(made, result, "Rain in Bern", 2.5, seq=2)]
    assert outcomes == [
        ToolOutcome(
            call=made,
            result=result,
            text='{"city":"Bern","message":"Rain in Bern"}',
            error=None,
            message="Rain in Bern",
            elapsed=2.5,
        )
    ]
    assert interface.events == [read_ui_event(event.to_json()) for event in interface.events]


@pytest.mark.parametrize(
    ("result", "message"),
    [({"message": ""}, None), ({"message": 3}, None), (ToolResult(model={"message": "a"}, ui={"message": "b"}), "b")],
)
async def test_the_field_message_of_a_result_is_for_the_reader(result: Any, message: str | None) -> None:
    """It must be a non-empty string."""
    outcome, events = await outcome_of(lambda: result)
    assert isinstance(events[-1], Executed)
    assert message == outcome.message == events[-1].message


async def test_events_in_order_of_completion_outcomes_in_call_order() -> None:
    """The interface sees results as tools finish."""
    second_is_done = anyio.Event()

    async def slow() -> str:
        await second_is_done.wait()
        return "slow"

    async def quick() -> str:
        return "quick"

    def watch(event: UIEvent) -> None:
        if isinstance(event, Executed) and event.call.name == "quick":
            second_is_done.set()

    interface = Interface(watch)
    outcomes = await runner(interface, slow, quick).run([call("slow"), call("quick")], interface.send)
    assert interface.story == [
        ("executing", "slow"),
        ("executing", "quick"),
        ("executed", "quick"),
        ("executed", "slow"),
    ]
    assert [outcome.text for outcome in outcomes] == ["slow", "quick"]
    assert [event.seq for event in interface.events] == [1, 2, 3, 4]


async def test_a_call_waits_for_the_concurrency_limit() -> None:
    """Calls start in call order. Concurrent runs share the limit."""
    doors = {name: anyio.Event() for name in "abcd"}

    async def wait(name: str) -> str:
        await doors[name].wait()
        return name

    interface = Interface()
    shared = runner(interface, wait, concurrency=2)
    async with anyio.create_task_group() as tasks:
        for names in ("abc", "d"):
            calls = [call("wait", name, name=name) for name in names]
            tasks.start_soon(shared.run, calls, interface.send)
            await anyio.wait_all_tasks_blocked()
        assert interface.story == [("executing", "a"), ("executing", "b")]
        for name, next_story in [("b", ("executing", "c")), ("a", ("executing", "d"))]:
            doors[name].set()
            await anyio.wait_all_tasks_blocked()
            assert ("executed", name) in interface.story
            assert next_story in interface.story
        doors["c"].set()
        doors["d"].set()
    assert sorted(interface.story[-2:]) == [("executed", "c"), ("executed", "d")]


async def test_an_unknown_tool_is_an_error_with_a_suggestion() -> None:
    """The model gets the list of tools. The reader does not."""
    interface = Interface()
    (outcome,) = await runner(interface, weather).run([call("wether")], interface.send)
    assert outcome.text == "no tool named 'wether'; there are weather; did you mean 'weather'?"
    assert (outcome.error, outcome.result) == (Code.UNKNOWN_TOOL, None)
    made = call("wether")
    assert interface.events == [
        Executing(made, seq=1),
        Error(Code.UNKNOWN_TOOL, "no tool named 'wether'", call_id="wether", call=made, seq=2),
    ]


async def test_a_tool_times_out() -> None:
    """The default applies to tools without a timeout. The message has the seconds."""

    async def hang() -> None:
        await anyio.Event().wait()

    for made, options in ((Tool(hang), {"timeout": 0.01}), (Tool(hang, timeout=0.01), {})):
        outcome, events = await outcome_of(made, **options)
        assert (outcome.error, outcome.text) == (Code.TOOL_TIMEOUT, "tool 'hang' did not finish within 0.01 seconds")
        assert events[-1] == outcome.event(2)


async def test_a_tool_that_turns_our_timeout_into_an_error_is_timed_out() -> None:
    """HTTP clients raise their own error when they are cancelled."""

    async def hang() -> None:
        try:
            await anyio.Event().wait()
        finally:
            raise ConnectionError(SECRET)

    outcome, _ = await outcome_of(Tool(hang, timeout=0.01))
    assert outcome.error is Code.TOOL_TIMEOUT


async def test_a_timeout_error_of_the_tool_is_a_failure() -> None:
    """A `TimeoutError` from inside is not our timeout."""

    async def times_out() -> None:
        raise TimeoutError(SECRET)

    outcome, _ = await outcome_of(times_out)
    assert outcome.error is Code.TOOL_FAILED


async def test_a_thread_that_takes_too_long_is_abandoned() -> None:
    """The call ends in time. The late result is dropped."""
    door = threading.Event()

    def block() -> str:
        door.wait()
        return "too late"

    interface = Interface()
    work = runner(interface, Tool(block, timeout=0.2))
    with structlog.testing.capture_logs() as logs:
        try:
            (outcome,) = await work.run([call("block")], interface.send)
        finally:
            door.set()
    text = "tool 'block' did not finish within 0.2 seconds; it could not be stopped and may still be running"
    assert (outcome.error, outcome.abandoned, outcome.text) == (Code.TOOL_TIMEOUT, True, text)
    assert interface.story == [("executing", "block"), ("warning", ""), ("error", "block")]
    warning = interface.events[1]
    assert isinstance(warning, Warning)
    assert (warning.code, warning.count, warning.seq) == (Code.ABANDONED, 1, 2)
    assert ["tool_call_failed"] == [each["event"] for each in logs]


def raises(error: BaseException) -> list[Callable[[], Any]]:
    """One tool of each kind that raises `error`."""

    async def as_coroutine() -> None:
        raise error

    def in_thread() -> None:
        raise error

    async def as_async_generator() -> AsyncIterator[int]:
        for each in [error]:
            raise each
        yield 1

    return [as_coroutine, in_thread, as_async_generator]


@together("kind", range(3), ids=["coroutine", "thread", "async generator"])
async def test_exceptions_for_the_program_propagate(kind: int) -> None:
    """Other exceptions that do not inherit from `Exception` are failures."""

    class Emergency(BaseException):
        pass

    with pytest.raises(BaseExceptionGroup) as caught:
        await outcome_of(raises(Emergency())[kind])
    assert caught.group_contains(Emergency)


@together("kind", range(3), ids=["coroutine", "thread", "async generator"])
@together("raised", [SystemExit, KeyboardInterrupt])
@together("backend", ["asyncio", "trio"])
def test_a_tool_that_exits_ends_the_program(raised: type[BaseException], kind: int, backend: str) -> None:
    with pytest.raises((raised, BaseExceptionGroup)) as caught:  # trio says that it came from a task
        anyio.run(outcome_of, raises(raised(3))[kind], backend=backend)
    assert isinstance(caught.value, raised) or caught.group_contains(raised)


@pytest.mark.parametrize("is_async", [True, False])
async def test_on_tool_result_is_called_before_the_interface(is_async: bool) -> None:
    """An application has stored the outcome when it is shown. Errors count too."""
    seen: list[tuple[str, str]] = []
    interface = Interface(lambda event: seen.append((event.type, _call_id(event))))

    def keep(call: ToolCall, outcome: ToolOutcome) -> None:
        assert call is outcome.call
        seen.append(("kept", call.id))

    async def keep_slowly(call: ToolCall, outcome: ToolOutcome) -> None:
        keep(call, outcome)

    callback = keep_slowly if is_async else keep
    await runner(interface, weather, on_result=callback).run([call("weather", city="Bern")], interface.send)
    await runner(interface, weather, on_result=callback).run([call("nobody")], interface.send)
    assert seen == [
        *(("executing", "weather"), ("kept", "weather"), ("executed", "weather"), ("executing", "nobody")),
        *(("kept", "nobody"), ("error", "nobody")),
    ]


async def test_an_exception_of_on_tool_result_is_logged() -> None:
    """The outcome stays."""

    def complain(call: ToolCall, outcome: ToolOutcome) -> None:
        raise LookupError

    with structlog.testing.capture_logs() as logs:
        outcome, events = await outcome_of(lambda: "fine", on_result=complain)
    assert (outcome.error, outcome.text) == (None, "fine")
    assert isinstance(events[-1], Executed)
    assert [each["error"] for each in logs] == ["LookupError"]


async def count_async(to: int) -> AsyncIterator[int]:
    for number in range(1, to + 1):
        yield number


def count(to: int, context: ToolContext) -> int:
    for number in range(1, to + 1):
        context.progress(number)
    return to


async def count_and_conclude(to: int) -> AsyncIterator[Any]:
    for number in range(1, to + 1):
        yield number
    yield ToolResult(model=f"counted to {to}", ui=to)


@together(
    ("function", "result", "text"), [(count_async, 3, "3"), (count, 3, "3"), (count_and_conclude, 3, "counted to 3")]
)
async def test_yielded_values_are_progress(function: Callable[..., Any], result: Any, text: str) -> None:
    """The result of a generator is its last yield."""
    interface = Interface()
    (outcome,) = await runner(interface, function).run([call(function.__name__, "c", to=3)], interface.send)
    assert interface.events[1:-1] == [Progress("c", number, seq=number + 1) for number in (1, 2, 3)]
    assert [interface.story[0], interface.story[-1]] == [("executing", "c"), ("executed", "c")]
    assert (outcome.result, outcome.text) == (result, text)


@pytest.mark.parametrize("function", [count, count_async])
async def test_a_slow_reader_does_not_time_a_tool_out(function: Callable[..., Any]) -> None:
    """The clock of the tool stops while an event waits to be taken."""

    deadlines: list[float] = []
    interface = Interface(lambda event: deadlines.append(anyio.current_effective_deadline()))
    (outcome,) = await runner(interface, function).run([call(function.__name__, to=3)], interface.send)
    assert outcome.error is None
    assert [math.inf] * 5 == deadlines


async def test_the_clock_continues_after_progress() -> None:
    """A tool keeps its remaining time between yields."""
    left: list[float] = []

    async def watch() -> AsyncIterator[int]:
        for number in range(3):
            left.append(anyio.current_effective_deadline() - anyio.current_time())
            yield number

    await outcome_of(watch, timeout=60)
    assert all(0 < each <= 60 for each in left)
    assert left == sorted(left, reverse=True)


@together(
    ("function", "at"),
    [
        *((weather, "executing"), (weather, "executed"), (count, "executing"), (count, "progress")),
        *((count, "executed"), (count_async, "progress"), (count_async, "executed")),
    ],
)
async def test_an_interface_that_fails_ends_the_run(function: Callable[..., Any], at: str) -> None:
    """An exception of `send` is no failure of a tool. Outcomes are kept, the rest is closed."""

    def hang_up(event: UIEvent) -> None:
        if event.type == at:
            raise anyio.BrokenResourceError

    interface = Interface(hang_up)
    made = call(function.__name__, **({"city": "Bern"} if function is weather else {"to": 1}))
    work = runner(interface, function)
    with structlog.testing.capture_logs() as logs, pytest.raises(ExceptionGroup) as caught:
        await work.run([made], interface.send)
    assert caught.group_contains(anyio.BrokenResourceError)
    assert logs == []
    (outcome,), (ending,) = work.close_calls([made])
    assert (None if at == "executed" else Code.TOOL_CANCELLED) == outcome.error
    assert ending == outcome.event(ending.seq)


async def test_a_cancelled_call_is_reported() -> None:
    """To the model and the reader, even if no run got the call. It is not logged."""
    interface = Interface()
    made = call("weather", city="Bern")
    with structlog.testing.capture_logs() as logs:
        (outcome,), (ending,) = runner(interface, weather).close_calls([made])
    text = "tool 'weather' was cancelled before it finished"
    assert outcome == ToolOutcome(
        call=made, result=None, text=text, error=Code.TOOL_CANCELLED, message=text, elapsed=0.0
    )
    assert ending == Error(Code.TOOL_CANCELLED, text, call_id="weather", call=made, seq=1)
    assert logs == []


async def test_closing_calls_again_changes_nothing() -> None:
    """Outcomes stay, and no event is repeated."""
    interface = Interface()
    work = runner(interface, weather)
    done, never_run = call("weather", "done", city="Bern"), call("weather", "never", city="Bern")
    outcomes = await work.run([done], interface.send)
    assert (outcomes, []) == work.close_calls([done])
    first, (ending,) = work.close_calls([never_run, done])
    assert _call_id(ending) == "never"
    assert (first, []) == work.close_calls([never_run, done])
    assert outcomes[0] is first[1]


def test_execute_propagates_a_cancellation_by_asyncio() -> None:
    """It is not confused with a cancellation inside the tool."""

    async def program() -> None:
        begun = asyncio.Event()

        async def hang() -> None:
            begun.set()
            await asyncio.Event().wait()

        async def stumble() -> None:
            inner = asyncio.create_task(hang())
            await begun.wait()
            inner.cancel()
            await inner

        registry = ToolRegistry(hang, stumble)
        with pytest.raises(ToolFailed, match="tool 'stumble' failed"):
            await registry.execute("stumble")
        begun.clear()
        task = asyncio.create_task(registry.execute("hang"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(program())

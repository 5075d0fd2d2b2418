"""The context of a running tool, and its progress."""

from __future__ import annotations

import threading
from typing import Any, TypeVar, cast

import anyio
import pytest

from streamtools.errors import ToolInputError, ToolTimeout
from streamtools.tools import Tool, ToolRegistry, tool
from streamtools.tools.context import CallEnded, ToolContext
from streamtools.tools.invocation import invoke

T = TypeVar("T")


class Reports:
    """Collects progress."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.all: list[Any] = []
        self.fault = fault

    async def __call__(self, data: Any) -> None:
        if self.fault is not None:
            raise self.fault
        self.all.append(data)


@tool
async def search(query: str, context: ToolContext[dict[str, str]]) -> list[str]:
    await context.progress({"looked": 1})
    return [query, context.call_id, context.name, context.state["user"]]


@tool
def search_here(query: str, *, it: ToolContext[dict[str, str]]) -> list[str]:
    it.progress({"looked": 1})
    return [query, it.call_id, it.name, it.state["user"]]


@pytest.mark.parametrize("made", [search, search_here], ids=["async", "sync"])
async def test_a_tool_gets_its_context(made: Tool[..., Any]) -> None:
    """By its annotation, under any name. The model does not see the parameter and cannot fill it."""
    told = Reports()
    context: ToolContext[dict[str, str]] = ToolContext(
        call_id="call_1", name=made.name, state={"user": "Ann"}, report=told
    )
    written = await invoke(made, {"query": "x"}, context)
    assert ["x", "call_1", made.name, "Ann"] == written.value
    assert [{"looked": 1}] == told.all
    assert context.cancelled  # no caller waits for it any more
    with pytest.raises(ToolInputError, match="Extra inputs are not permitted"):
        await invoke(made, {"query": "x", str(made.context): {}}, ToolContext())


def test_a_tool_needs_a_state_if_its_type_has_no_none() -> None:
    """A chat without a state refuses the tool."""
    for state, needed in ((dict, True), (dict | None, False), (Any, False), (T, False)):
        function = cast("Any", lambda context: None)
        function.__annotations__ = {"context": ToolContext[state]}  # type: ignore[valid-type]
        assert needed == tool(name="f")(function).needs_state


async def test_a_context_can_be_optional_or_made_by_hand() -> None:
    """So the function can be called directly; progress is then dropped."""

    def greet(name: str, context: ToolContext | None = None) -> bool:
        return context is None

    async def wave(context: ToolContext) -> bool:
        await context.progress("waving")
        return context.cancelled

    def bow(context: ToolContext) -> bool:
        context.progress("bowing")
        return context.cancelled

    assert Tool(greet)("Ann")
    assert not await ToolRegistry(greet).execute("greet", {"name": "Ann"})
    assert not await Tool(wave)(ToolContext())
    assert not bow(ToolContext())


async def test_a_handler_may_have_unknown_hints() -> None:
    """Its schema declares the arguments."""

    def handle(arguments: "Nowhere") -> Any:  # type: ignore[name-defined]  # noqa: F821, UP037  # the subject of the test
        return arguments

    assert {"q": 1} == (await invoke(Tool(handle, parameters={}), {"q": 1})).value


async def test_a_thread_sees_the_end_of_its_call() -> None:
    """After a timeout `cancelled` is set, and `progress` raises."""
    begun, may_look, ended = threading.Event(), threading.Event(), threading.Event()
    seen: list[Any] = []

    def stubborn(context: ToolContext) -> None:
        begun.set()
        may_look.wait()
        seen.append(context.cancelled)
        try:
            context.progress("late")
        except CallEnded as error:
            seen.append(str(error))
        ended.set()

    told = Reports()
    timeout = 0.01
    while not begun.is_set():  # on a busy machine, the time may be up before there is a thread
        with pytest.raises(ToolTimeout):
            await invoke(Tool(stubborn, timeout=timeout), {}, ToolContext(call_id="c", name="stubborn", report=told))
        timeout *= 2
    may_look.set()
    await anyio.to_thread.run_sync(ended.wait)
    assert [True, "the call of tool 'stubborn' has ended"] == seen[:2]
    assert [] == told.all


async def test_progress_after_the_end_is_dropped() -> None:
    """A task that outlives its tool reports nothing."""
    contexts: list[ToolContext] = []

    async def leaves(context: ToolContext) -> None:
        contexts.append(context)

    told = Reports()
    await invoke(Tool(leaves), {}, ToolContext(report=told))
    await contexts[0].progress("late")
    assert [] == told.all


@pytest.mark.parametrize("swallows", [False, True])
async def test_progress_that_cannot_be_reported_ends_the_call(swallows: bool) -> None:
    """With the error of the reporter, even if the tool ignores it."""

    def speaks(context: ToolContext) -> str:
        try:
            context.progress(1)
        except LookupError:
            if not swallows:
                raise
        return "done"

    with pytest.raises(LookupError, match="gone"):
        await invoke(Tool(speaks), {}, ToolContext(report=Reports(LookupError("gone"))))


def test_a_function_has_at_most_one_context() -> None:
    """Two context parameters, or a positional one, are refused."""

    def two(a: ToolContext, b: ToolContext) -> None: ...
    def positional(a: ToolContext, /) -> None: ...

    with pytest.raises(TypeError, match="tool 'two': parameters 'a' and 'b' both take the ToolContext"):
        Tool(two)
    with pytest.raises(TypeError, match="tool 'positional': parameter 'a' is positional-only"):
        Tool(positional)

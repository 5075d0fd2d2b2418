"""S13: each limit stops a model that calls without end. The reason is the limit's name, and open calls are pending."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio

from streamtools import Guards, chat
from streamtools.conversation import Ask, ScriptedModel
from streamtools.errors import Code
from streamtools.events import NativeToolCall, ProviderCompleted, SourceUsage, Usage
from streamtools.sources import Source
from tests.support.cases import together
from tests.support.options import grouped

ASK = [{"role": "user", "content": "Go."}]


class Tireless(ScriptedModel):
    """A model that calls the tool in each turn, with new arguments each time or always with the same."""

    def __init__(self, calls: int = 1, *, same: bool = False) -> None:
        super().__init__([])
        self.calls = calls
        self.same = same

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Answer."""
        turn = len(self.asks)
        made: list[Any] = [
            NativeToolCall("work", {"at": 0 if self.same else turn * 1000 + at}, f"{turn}.{at}", f"c{turn}.{at}")
            for at in range(self.calls)
        ]
        self._answers.append(
            [*made, SourceUsage(Usage(input=900, output=100)), ProviderCompleted(finish_reason="tool_calls")]
        )
        return super().stream(ask)


class Work:
    """Counts the executions of the tool, which may fail or never return."""

    def __init__(self, *, ends: bool = True, fails: bool = False) -> None:
        self.done = 0
        self.ends, self.fails = ends, fails

    async def work(self, at: int = 0) -> str:
        """Do it."""
        self.done += 1
        if not self.ends:
            await anyio.sleep_forever()
        if self.fails:
            raise ValueError
        return "done"


BOUNDS: dict[str, tuple[Tireless, Work, dict[str, Any], str, int]] = {
    "steps, by default": (Tireless(), Work(), {}, "max_steps", 9),
    "steps": (Tireless(), Work(), {"max_steps": 3}, "max_steps", 2),
    "the same call": (Tireless(same=True), Work(), {}, "repeated_call", 4),
    "calls in a turn": (Tireless(8), Work(), {"guards": Guards(calls_per_turn=3)}, "call_limit", 3),
    "calls, by default": (Tireless(30), Work(), {"max_steps": 99}, "call_limit", 100),
    "calls": (Tireless(2), Work(), {"guards": Guards(calls=5)}, "call_limit", 5),
    "failures, by default": (Tireless(), Work(fails=True), {}, "failed_turns", 3),
    "tokens": (Tireless(), Work(), {"guards": Guards(tokens=2500)}, "token_limit", 2),
    "time": (Tireless(), Work(ends=False), {"guards": Guards(seconds=0.1)}, "time_limit", 1),
}


@together("bound", BOUNDS)
async def test_each_limit_stops_the_model(bound: str) -> None:
    """The reason is the name of the limit. Calls that did not run are pending."""
    model, worked, options, why, runs = BOUNDS[bound]
    model, work = Tireless(model.calls, same=model.same), Work(ends=worked.ends, fails=worked.fails)
    with anyio.fail_after(60):
        result = await chat(model, ASK, tools=[work.work], **grouped(**options))

    assert ("stopped", why) == (result.reason, result.finish_reason)
    assert (runs, 0) == (work.done, model.open)
    assert (why in ("failed_turns", "time_limit")) or result.pending
    assert (why == "time_limit") is (result.outcomes[-1].error is Code.TOOL_CANCELLED)

"""The calls of a finished answer, run: the same runner as for a stream, without anybody who watches."""

from __future__ import annotations

import itertools
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.errors import Code
from streamtools.events import UIEvent
from streamtools.json_values import Rejected
from streamtools.tools.decider import Decider
from streamtools.tools.decisions import Deny
from streamtools.tools.finished import read_finished
from streamtools.tools.outcome import ToolOutcome
from streamtools.tools.runner import Runner, Tools


async def process(
    tools: Tools, response: object, *, fail_fast: bool, concurrency: int, timeout: float, state: Any
) -> list[ToolOutcome]:
    """Return one outcome for each call of the response, in their order; see `ToolRegistry.process_tool_calls`."""
    calls = read_finished(response).calls
    runner = Runner(
        tools,
        number=itertools.count().__next__,
        concurrency=concurrency,
        timeout=timeout,
        state=state,
        trusted=lambda call: call.dialect == NATIVE,
        decider=Decider(otherwise=Deny("nobody is there to be asked")),
    )
    good = [call for call, rejected in calls if rejected is None]
    if fail_fast:
        for call, rejected in calls:
            if rejected is not None or (await runner.run([call], _unwatched))[0].error is not None or runner.stopped:
                break
    else:
        await runner.run(good, _unwatched)
    outcomes, _ = runner.settle(good)
    ended = {outcome.call.id: outcome for outcome in outcomes}
    return [ended[call.id] if rejected is None else _refuse(call, rejected) for call, rejected in calls]


async def _unwatched(event: UIEvent) -> None:
    """Take an event that nobody waits for."""


def _refuse(call: ToolCall, rejected: Rejected) -> ToolOutcome:
    text = rejected.message if rejected.code is Code.TRUNCATED else f"not a valid call: {rejected.message}"
    return ToolOutcome(
        call=call,
        result=None,
        text=f"{text}; send the call again",
        error=rejected.code,
        message=rejected.message,
        elapsed=0.0,
    )

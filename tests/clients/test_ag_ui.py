"""AG-UI clients (1.0, and the one in CopilotKit) read our streams and end with the right messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import React, Said, run_program
from tests.clients.scenes import Stage
from tests.support.serving import Served

CURRENT = "@ag-ui/client"
pytestmark = pytest.mark.sdk


class Front:
    """A front end with AG-UI, and its server."""

    def __init__(self, folder: Path, stage: Stage, url: str, package: str) -> None:
        self.folder, self.stage, self.url, self.package = folder, stage, url, package
        self.current = package == CURRENT
        self.said: list[Said] = []
        self.react: React = self.let_go

    async def __call__(self, scene: str, says: str = "approve") -> Any:
        """Return the final state of the front end, without the message of the question."""
        url = f"{self.url}/ag_ui/{scene}"
        end = await run_program(self.folder, "ag_ui.mjs", self.package, url, says, react=self.hear)
        assert {"id": "q-1", "role": "user", "content": "What is the weather?"} == end["messages"].pop(0)
        return end

    async def hear(self, said: Said) -> None:
        """Record the output of the front end, and react to it."""
        self.said.append(said)
        await self.react(said)

    async def let_go(self, said: Said) -> None:
        """Let the tool `wait` answer once the response has been kept alive."""
        if "alive" in said:
            self.stage.go.set()


@pytest.fixture(params=[CURRENT, "ag-ui-before"])
async def front(request: pytest.FixtureRequest, folder: Path, anyio_backend: str) -> AsyncIterator[Front]:
    """A front end with each version, and its server."""
    stage = Stage()
    async with Served(stage.app()) as server:
        yield Front(folder, stage, server.url, request.param)


def brief(message: dict[str, Any]) -> tuple[Any, ...]:
    """Return the roles, the texts, and the calls with their arguments."""
    calls = [(each["function"]["name"], each["function"]["arguments"]) for each in message.get("toolCalls", ())]
    return (message["role"], message.get("content", ""), *calls)


CALL = ("get_weather", '{"city": "Rome"}')
RESULT = ("tool", '{"city":"Rome","degrees":31}')


async def test_a_call_and_its_result_follow_the_text(front: Front) -> None:
    """The call belongs to the message with the text before it. The result follows."""
    end = await front("one-call")

    assert "failure" not in end
    assert [("assistant", "Let me see.\n", CALL), RESULT, ("assistant", "It is 31 degrees.")] == [
        brief(each) for each in end["messages"]
    ]
    assert ["STEP_STARTED", "STEP_FINISHED"] * 2 == [each["type"] for each in end["events"] if "stepName" in each]
    assert not end.get("pending")


async def test_failed_and_malformed_calls_have_results(front: Front) -> None:
    """The three calls of one turn are in one message, and each has a result."""
    end = await front("three-calls")

    assert "failure" not in end
    calls, *results, answer = end["messages"]
    assert ["get_weather", "get_tide", "get_weather"] == [each["function"]["name"] for each in calls["toolCalls"]]
    assert {each["id"] for each in calls["toolCalls"]} == {each["toolCallId"] for each in results}
    contents = {each["toolCallId"]: each["content"] for each in results}
    good, failed, malformed = (contents[each["id"]] for each in calls["toolCalls"])
    assert (RESULT[1], "The station is closed.", True) == (good, failed, "JSON" in malformed)
    assert ("assistant", "One of three.") == brief(answer)


async def test_an_error_is_the_last_event_and_keeps_the_text(front: Front) -> None:
    """The error occurs in the middle of a stream."""
    end = await front("error")

    assert ("RUN_ERROR", "The provider is overloaded.") == (end["events"][-1]["type"], end["events"][-1]["message"])
    assert [("assistant", "Half an ans")] == [brief(each) for each in end["messages"]]
    assert "failure" not in end


async def test_a_stopped_run_is_reported_as_stopped(front: Front) -> None:
    """Another client stops it. The outcome and the result of the running call report this."""

    async def stop(said: Said) -> None:
        if said.get("event") == "TOOL_CALL_END":
            run, _ = front.stage.active["thread-1"]
            await run.stop()

    front.react = stop
    end = await front("slow")

    assert "failure" not in end
    assert front.current or "cancelled" == end["events"][-1]["code"]
    assert not front.current or {"type": "cancelled"} == end["events"][-1]["outcome"]
    assert "cancelled" in end["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("says", "result"),
    [
        ("approve", "paid 50"),
        ("deny", "the call of tool 'pay' was denied: too much"),
        ("cancel", "the call of tool 'pay' was denied"),
    ],
)
async def test_an_approval_interrupts_the_run(front: Front, says: str, result: str) -> None:
    """The next run has the decision. The result is added to the waiting call."""
    end = await front("asked", says)

    assert "failure" not in end
    assert [("assistant", "", ("pay", '{"amount":50}')), ("tool", result), ("assistant", "So be it.")] == [
        brief(each) for each in end["messages"]
    ]
    outcomes = [each["outcome"]["type"] for each in end["events"] if "outcome" in each]
    assert ["interrupt"] == outcomes


async def test_the_front_end_runs_its_own_tool(front: Front) -> None:
    """Its result is sent to the model, and is in the messages once."""
    end = await front("own")

    assert "failure" not in end
    assert [
        ("assistant", "Let me see.\n", ("pick_date", '{"title":"Departure"}')),
        ("tool", "2027-03-01"),
        ("assistant", "It is booked."),
    ] == [brief(each) for each in end["messages"]]
    assert front.stage.asking is not None
    assert "2027-03-01" in str(front.stage.asking.messages())

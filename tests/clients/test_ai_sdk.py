"""The AI SDK (versions 5, 6 and 7) reads our streams and ends with the right message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import React, Said, run_program
from tests.clients.scenes import Stage
from tests.support.serving import Served

pytestmark = pytest.mark.sdk


class Front:
    """A front end with one version of the AI SDK, and its server."""

    def __init__(self, folder: Path, stage: Stage, url: str, version: str) -> None:
        self.folder, self.stage, self.url, self.version = folder, stage, url, version
        self.said: list[Said] = []
        self.react: React = self.let_go

    async def __call__(self, mode: str, scene: str) -> Any:
        """Return the final state of the front end."""
        url = f"{self.url}/{self.version}/{scene}"
        return await run_program(self.folder, "ai_sdk.mjs", self.version, mode, url, react=self.hear)

    async def hear(self, said: Said) -> None:
        """Record the output of the front end, and react to it."""
        self.said.append(said)
        await self.react(said)

    async def let_go(self, said: Said) -> None:
        """Let the tool `wait` answer once the response has been kept alive, or the client has left it."""
        if "alive" in said or "left" in said:
            self.stage.go.set()


@pytest.fixture(params=["ai5", "ai6", "ai7"])
async def front(request: pytest.FixtureRequest, folder: Path, anyio_backend: str) -> AsyncIterator[Front]:
    """A front end of each version."""
    stage = Stage()
    async with Served(stage.app()) as server:
        yield Front(folder, stage, server.url, request.param)


def text(words: str) -> dict[str, Any]:
    """Return a part of text that has ended."""
    return {"type": "text", "text": words, "state": "done"}


STEP = {"type": "step-start"}


async def test_a_call_passes_through_its_states(front: Front) -> None:
    """The text after its result is the second step of the same message."""
    end = await front("read", "one-call")

    assert [] == end["errors"]
    parts = end["message"]["parts"]
    called = parts[2]
    assert [STEP, text("Let me see.\n"), called, STEP, text("It is 31 degrees.")] == parts
    assert ("tool-get_weather", "output-available") == (called["type"], called["state"])
    assert ({"city": "Rome"}, {"city": "Rome", "degrees": 31}) == (called["input"], called["output"])
    states = [part for said in front.said for part in said.get("parts", ()) if part.startswith("tool-")]
    assert ["input-streaming", "input-available", "output-available"] == [
        state.removeprefix("tool-get_weather ") for state in dict.fromkeys(states)
    ]


async def test_failed_and_malformed_calls_end_separately(front: Front) -> None:
    """Each of the three calls has its own final state, and the answer continues."""
    end = await front("read", "three-calls")

    assert [] == end["errors"]
    good, failed, malformed = (part for part in end["message"]["parts"] if "toolCallId" in part)
    assert ("output-available", {"city": "Rome", "degrees": 31}) == (good["state"], good["output"])
    assert ("dynamic-tool", "get_tide", "output-error", "The station is closed.") == (
        *(failed["type"], failed["toolName"]),
        *(failed["state"], failed["errorText"]),
    )
    assert ("output-error", True) == (malformed["state"], "JSON" in malformed["errorText"])
    assert [STEP, text("One of three.")] == end["message"]["parts"][-2:]


async def test_progress_is_sent_as_a_transient_part(front: Front) -> None:
    """The page receives all progress. The message has the result of the call and no progress."""
    end = await front("chat", "count")

    _, called, *answer = end["messages"][-1]["parts"]
    assert [STEP, text("Two.")] == answer
    assert [{"at": 1}, {"at": 2}] == [part["data"]["progress"] for part in end["data"]]
    assert ("output-available", {"at": 2}) == (called["state"], called["output"])


async def test_an_error_ends_all_parts_of_a_chat(front: Front) -> None:
    """The chat has the status `error` and no open part, although it stops reading."""
    end = await front("chat", "error")

    assert ("error", "Error: The provider is overloaded.") == (end["status"], end["error"])
    assert [STEP, text("Half an ans")] == end["messages"][-1]["parts"]
    assert [True] == [finish["isError"] for finish in end["finishes"]]


async def test_a_stopped_run_leaves_the_chat_ready(front: Front) -> None:
    """The text has ended, the call is reported as cancelled, and the client does not send the next request."""

    async def stop(said: Said) -> None:
        if any("input-available" in part for part in said.get("parts", ())):
            run, _ = front.stage.active["chat-1"]
            await run.stop()

    front.react = stop
    end = await front("approve", "slow")

    assert ("ready", None, 1) == (end["status"], end.get("error"), len(front.stage.requests))
    _, said, called, _ = end["messages"][-1]["parts"]
    assert text("Wait.\n") == said
    assert ("output-error", "cancelled" in called["errorText"]) == (called["state"], True)


async def test_an_approved_call_ends_in_its_message(front: Front) -> None:
    """The client asks the user and sends the decision automatically. Version 5 has no approvals."""
    if front.version == "ai5":
        (part,) = (each for each in (await front("read", "asked"))["message"]["parts"] if "toolCallId" in each)
        assert "input-available" == part["state"]
        return
    end = await front("approve", "asked")

    assert ("ready", 2) == (end["status"], len(front.stage.requests))
    parts = end["messages"][-1]["parts"]
    (called,) = (part for part in parts if "toolCallId" in part)
    assert ("output-available", "paid 50", True) == (called["state"], called["output"], called["approval"]["approved"])
    assert text("So be it.") == parts[-1]


async def test_a_denied_call_ends_in_its_message(front: Front) -> None:
    """The call has the reason, and the answer continues."""
    if front.version == "ai5":  # it has no approvals
        return
    end = await front("deny", "asked")

    assert ("ready", None, 2) == (end["status"], end.get("error"), len(front.stage.requests))
    parts = end["messages"][-1]["parts"]
    (called,) = (part for part in parts if "toolCallId" in part)
    approval = {"approved": False, "reason": "too much"}
    assert ("output-denied", approval | {"id": called["toolCallId"]}) == (called["state"], called["approval"])
    assert "errorText" not in called
    assert front.stage.asking is not None
    assert "the call of tool 'pay' was denied: too much" in str(front.stage.asking.messages())
    assert text("So be it.") == parts[-1]


async def test_the_client_runs_its_own_tool(front: Front) -> None:
    """Its result is validated and sent to the model, and the run continues in the same message."""
    end = await front("approve", "own")

    assert ("ready", 2) == (end["status"], len(front.stage.requests))
    called = end["messages"][-1]["parts"][2]
    assert [STEP, text("Let me see.\n"), called, STEP, text("It is booked.")] == end["messages"][-1]["parts"]
    assert ("output-available", "2027-03-01") == (called["state"], called["output"])
    assert front.stage.asking is not None
    assert "2027-03-01" in str(front.stage.asking.messages())


async def test_a_reconnected_chat_has_the_same_message(front: Front) -> None:
    """This holds for the same chat and for a reloaded page. Status 204 gives no message."""
    end = await front("resume", "slow")

    assert [STEP, "Wait.\n"] == [end["before"][-1]["parts"][0], end["before"][-1]["parts"][1]["text"]]
    (*_, resumed), (*_, loaded) = end["resumed"]["messages"], end["loaded"]["messages"]
    assert resumed["parts"] == loaded["parts"]
    assert "at last" == resumed["parts"][2]["output"]
    assert text("There it is.") == resumed["parts"][-1]
    assert [["user", "assistant"]] * 2 == [
        [each["role"] for each in end[name]["messages"]] for name in ("resumed", "loaded")
    ]
    assert end["before"][-1]["id"] == resumed["id"] == loaded["id"]
    assert (["user"], "ready") == ([each["role"] for each in end["other"]["messages"]], end["other"]["status"])

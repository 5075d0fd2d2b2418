"""The AI SDK (versions 5, 6 and 7) reads our streams and ends with the right message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import React, Said, run_program
from tests.clients.scenes import Stage
from tests.support.serving import Served

pytestmark = [pytest.mark.sdk, pytest.mark.anyio]


class Front:
    """A front end with one version of the AI SDK, and the server that it asks."""

    def __init__(self, folder: Path, stage: Stage, url: str, version: str) -> None:
        self.folder, self.stage, self.url, self.version = folder, stage, url, version
        self.said: list[Said] = []
        self.react: React = self.let_go

    async def __call__(self, mode: str, scene: str) -> Any:
        """Return what the front end has at the end."""
        url = f"{self.url}/{self.version}/{scene}"
        return await run_program(self.folder, "ai_sdk.mjs", self.version, mode, url, react=self.hear)

    async def hear(self, said: Said) -> None:
        """Take note of what the front end says, and react."""
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


def call(name: str, call_id: str, **rest: Any) -> dict[str, Any]:
    """Return the part of a call."""
    return {"type": f"tool-{name}", "toolCallId": call_id, **rest}


STEP = {"type": "step-start"}


async def test_one_call_in_two_steps(front: Front) -> None:
    """The call goes through its states; the answer to its result is the second step of the same message."""
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


async def test_three_calls_of_which_one_fails_and_one_is_malformed(front: Front) -> None:
    """Each has its own end, and the answer continues."""
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


async def test_progress_as_a_part_of_its_own(front: Front) -> None:
    """All of it is told to the page; in the message the call has its result, and nothing of the progress stays."""
    end = await front("chat", "count")

    _, called, *answer = end["messages"][-1]["parts"]
    assert [STEP, text("Two.")] == answer
    assert [{"at": 1}, {"at": 2}] == [part["data"]["progress"] for part in end["data"]]
    assert ("output-available", {"at": 2}) == (called["state"], called["output"])


async def test_an_error_in_a_chat(front: Front) -> None:
    """The chat is in the state of an error, with nothing left open, although it reads no further."""
    end = await front("chat", "error")

    assert ("error", "Error: The provider is overloaded.") == (end["status"], end["error"])
    assert [STEP, text("Half an ans")] == end["messages"][-1]["parts"]
    assert [True] == [finish["isError"] for finish in end["finishes"]]


async def test_a_run_that_is_stopped_elsewhere(front: Front) -> None:
    """The chat is ready again; the text has ended, and the call says that it was cancelled."""

    async def stop(said: Said) -> None:
        if any("input-available" in part for part in said.get("parts", ())):
            run, _ = front.stage.active["chat-1"]
            await run.stop()

    front.react = stop
    end = await front("chat", "slow")

    assert ("ready", None) == (end["status"], end.get("error"))
    _, said, called = end["messages"][-1]["parts"]
    assert text("Wait.\n") == said
    assert ("output-error", "cancelled" in called["errorText"]) == (called["state"], True)


async def test_a_call_that_somebody_has_to_approve(front: Front) -> None:
    """The client asks, sends the answer of its own accord, and the call ends in its place; version 5 cannot ask."""
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


async def test_a_call_that_somebody_denies(front: Front) -> None:
    """It ends in its place, with the reason, and the answer continues."""
    if front.version == "ai5":  # it cannot be asked
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


async def test_a_tool_of_the_client(front: Front) -> None:
    """Its result is checked and told to the model, and the run continues in the same message."""
    end = await front("approve", "own")

    assert ("ready", 2) == (end["status"], len(front.stage.requests))
    called = end["messages"][-1]["parts"][2]
    assert [STEP, text("Let me see.\n"), called, STEP, text("It is booked.")] == end["messages"][-1]["parts"]
    assert ("output-available", "2027-03-01") == (called["state"], called["output"])
    assert front.stage.asking is not None
    assert "2027-03-01" in str(front.stage.asking.messages())


async def test_a_chat_that_comes_back(front: Front) -> None:
    """A replay gives the same message, to the chat that left and to a page that is loaded again. 204 gives none."""
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

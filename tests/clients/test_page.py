"""The programs of docs for the AI SDK and AG-UI, with the real clients, which are asked and answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import run_program
from tests.support.loopback import Loopback
from tests.whole.test_server_programs import END, PAY, PICK, TEXT, serving

pytestmark = [pytest.mark.sdk, pytest.mark.anyio]

DENIED = "the call of tool 'pay' was denied: too much"


def answers(asks: bytes) -> tuple[Loopback, Loopback]:
    """Return what the model answers: a call, and then a text."""
    return Loopback([asks, END]), Loopback([TEXT, END])


@pytest.mark.parametrize("version", ["ai6", "ai7"])
@pytest.mark.parametrize(
    ("asks", "mode", "told"),
    [
        (PAY, "approve", {"state": "output-available", "output": "paid 5 to Ann"}),
        (PAY, "deny", {"state": "output-denied"}),
        (PICK, "approve", {"state": "output-available", "output": "2027-03-01"}),
    ],
)
async def test_use_chat(folder: Path, version: str, asks: bytes, mode: str, told: dict[str, Any]) -> None:
    """The call ends in the message in which it stands, and the answer continues there."""
    async with serving("ai-sdk", *answers(asks), user="ann") as (server, _):
        end = await run_program(folder, "ai_sdk.mjs", version, mode, f"{server.url}/api/chat")

    assert ("ready", None) == (end["status"], end.get("error"))
    question, answer = end["messages"]
    assert ["user", "assistant"] == [question["role"], answer["role"]]
    assert ["step-start", "dynamic-tool", "step-start", "text"] == [part["type"] for part in answer["parts"]]
    assert told.items() <= answer["parts"][1].items()
    assert "It is warm." == answer["parts"][-1]["text"]


@pytest.mark.parametrize("package", ["@ag-ui/client", "ag-ui-before"])
@pytest.mark.parametrize(
    ("asks", "says", "result"),
    [(PAY, "approve", "paid 5 to Ann"), (PAY, "deny", DENIED), (PICK, "approve", "2027-03-01")],
)
async def test_ag_ui(folder: Path, package: str, asks: bytes, says: str, result: str) -> None:
    """The call has one result, and the answer stands after it."""
    async with serving("ag-ui", *answers(asks), user="ann") as (server, _):
        end = await run_program(folder, "ag_ui.mjs", package, f"{server.url}/agent", says)

    assert "failure" not in end
    assert ["user", "assistant", "tool", "assistant"] == [each["role"] for each in end["messages"]]
    assert [result, "It is warm."] == [each["content"] for each in end["messages"][2:]]

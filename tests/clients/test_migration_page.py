"""The page docs/migration.md: its programs before and after a migration, and its instructions for histories."""

from __future__ import annotations

import json
import sys
from types import ModuleType
from typing import Any

import httpx
import pytest

from streamtools.history import read_messages, write_messages
from tests.support.provider import Provider
from tests.support.readme import ROOT, Block, read_blocks
from tests.support.serving import Served, read_frames
from tests.support.talks import calls, says

pytestmark = [pytest.mark.sdk, pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # frameworks cause warnings

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
BLOCKS = read_blocks(PAGE)
PROGRAMS: dict[tuple[str, str], Block] = {
    (when, each.notes[when]): each for each in BLOCKS for when in ("before", "after") if when in each.notes
}
UI_MESSAGES = "/api/chat", "outputs.ai_sdk(7, dynamic=False)"
"""The path and the format of the program for the AI SDK. Otherwise it is the program after a move from openai."""
TEXT = [("before", "openai"), ("after", "openai")]
PARTS = [("before", "pydantic-ai"), ("after", "ai-sdk")]

ASKED: dict[str, Any] = {
    "id": "c1",
    "trigger": "submit-message",
    "messages": [{"id": "q1", "role": "user", "parts": [{"type": "text", "text": "What is the weather in Paris?"}]}],
}
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
CALLED = [{"name": "get_weather", "arguments": {"city": "Paris"}}]
IN_TEXT = f"<tool_call>\n{json.dumps(CALLED[0])}\n</tool_call>"


async def ask(which: tuple[str, str]) -> str:
    """Return the response of a program to a page."""
    module = ModuleType("app")
    sys.modules[module.__name__] = module
    try:
        chats = which in PARTS
        code = PROGRAMS[("after", "openai") if which == ("after", "ai-sdk") else which].text
        if which == ("after", "ai-sdk"):
            assert all(f"`{prefix}{word}`" in PAGE for prefix, word in zip(("", "format="), UI_MESSAGES, strict=True))
            code = code.replace("/chat", UI_MESSAGES[0]).replace('"text"', UI_MESSAGES[1])
            code = "from streamtools import outputs\n" + code
        exec(compile(code, "migration.md", "exec"), vars(module))
        asked, path = (ASKED, "/api/chat") if chats else ({"messages": QUESTION}, "/chat")
        async with Served(vars(module)["app"]) as server, httpx.AsyncClient(trust_env=False, timeout=60) as client:
            return (await client.post(f"{server.url}{path}", json=asked)).raise_for_status().text
    finally:
        del sys.modules[module.__name__]


def read_parts(answer: str) -> tuple[str, list[Any]]:
    """Return the text, and the calls with their results, of a stream of UI messages."""
    frames = read_frames(answer.replace("data: [DONE]", "").encode())
    text: dict[str, str] = {}
    for each in frames:
        if each["type"] == "text-delta":
            text[each["id"]] = text.get(each["id"], "") + each["delta"]
    told: dict[str, list[Any]] = {}
    for each in frames:
        if each["type"] == "tool-input-available":
            told[each["toolCallId"]] = [each["toolName"], each["input"]]
        if each["type"] == "tool-output-available":
            told[each["toolCallId"]].append(each["output"])
    return "\n".join(text.values()), list(told.values())


@pytest.mark.parametrize("which", [*TEXT, *PARTS], ids=" ".join)
async def test_a_program_runs_calls(which: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the tool, sends the result to the model, and sends all text to the page."""
    native = calls(("get_weather", {"city": "Paris"}), text="Let me see. ")
    async with Provider(native, says("It is ", "mild.")) as model:
        monkeypatch.setenv("MODEL_URL", f"{model.url}v1")
        answer = await ask(which)
        told = model.bodies[1]["messages"]
    text, parts = read_parts(answer) if which in PARTS else (answer, None)
    assert "Let me see. It is mild." == " ".join(text.split())
    assert parts in (None, [["get_weather", {"city": "Paris"}, "18 °C in Paris"]])
    assert ["user", "assistant", "tool"] == [each["role"] for each in told if each["role"] != "system"]
    assert "18 °C in Paris" in json.dumps(told[-1], ensure_ascii=False)


@pytest.mark.parametrize("which", [*TEXT, *PARTS], ids=" ".join)
async def test_migrated_programs_run_text_calls(which: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the migration, the reader sees the call and it does not run. Afterwards it runs and is hidden.

    Programs that declare native calls (`native_tool_calls=True`) show it, as the original does.
    """
    async with Provider(says("Let me see.\n", IN_TEXT), says("It is mild.")) as model:
        monkeypatch.setenv("MODEL_URL", f"{model.url}v1")
        answer = await ask(which)
    text = read_parts(answer)[0] if which in PARTS else answer
    if which[0] == "before" or which in (("after", "openai"), ("after", "ai-sdk")):
        assert (True, 1) == (IN_TEXT in text, len(model.bodies))
    else:
        assert ("Let me see. It is mild.", 2) == (" ".join(text.split()), len(model.bodies))
        assert "18 °C in Paris" in json.dumps(model.bodies[1], ensure_ascii=False)


def test_histories_can_be_migrated() -> None:
    """The documented functions of the frameworks convert them."""
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_openai_messages
    from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
    from pydantic_ai.ui.vercel_ai import VercelAIAdapter

    of_langchain = [
        HumanMessage("Weather?"),
        AIMessage("", tool_calls=[{"name": "get_weather", "args": {"city": "Paris"}, "id": "n0"}]),
        ToolMessage("18 °C", tool_call_id="n0"),
        AIMessage("Mild."),
    ]
    of_pydantic_ai = [
        ModelRequest([UserPromptPart("Weather?")]),
        ModelResponse([ToolCallPart("get_weather", {"city": "Paris"}, "n0")]),
        ModelRequest([ToolReturnPart("get_weather", "18 °C", "n0")]),
        ModelResponse([TextPart("Mild.")]),
    ]
    dumped = [each.model_dump(by_alias=True) for each in VercelAIAdapter.dump_messages(of_pydantic_ai)]
    for stored in (convert_to_openai_messages(of_langchain), dumped):
        written = write_messages(read_messages(stored), "openai")
        assert ["user", "assistant", "tool", "assistant"] == [each["role"] for each in written]
        assert "get_weather" == written[1]["tool_calls"][0]["function"]["name"]
        assert ("18 °C", "Mild.") == (written[2]["content"], written[3]["content"])


def test_each_block_is_run() -> None:
    """This includes the blocks before and after the migration."""
    assert {*TEXT, *PARTS} - {("after", "ai-sdk")} == PROGRAMS.keys()
    assert len(PROGRAMS) == len(BLOCKS)

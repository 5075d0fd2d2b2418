"""The page docs/migration.md: its programs before and after a migration, and its instructions for histories."""

from __future__ import annotations

import json
from textwrap import indent
from typing import Any

import httpx
import pytest

from streamtools.history import read_messages, write_messages
from tests.support.provider import Provider, serving
from tests.support.readme import ROOT, read_blocks, running
from tests.support.serving import Served, read_frames
from tests.support.talks import calls, says

pytestmark = [pytest.mark.sdk, pytest.mark.filterwarnings("ignore")]  # frameworks cause warnings

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
BLOCKS = read_blocks(PAGE)
CODE: dict[tuple[str, str], str] = {
    (when, each.notes[when]): each.text for each in BLOCKS for when in ("before", "after") if when in each.notes
}
UI_MESSAGES = "/api/chat", "outputs.ai_sdk(7, dynamic=False)"
"""The path and the format of the program for the AI SDK. Otherwise it is the program after a move from openai."""
PARTS = ("after", "ai-sdk")
ALL = [("before", "openai"), ("after", "openai"), PARTS]

ASKED: dict[str, Any] = {
    "id": "c1",
    "trigger": "submit-message",
    "messages": [{"id": "q1", "role": "user", "parts": [{"type": "text", "text": "What is the weather in Paris?"}]}],
}
QUESTION = [{"role": "user", "content": "What is the weather in Paris?"}]
CALLED = [{"name": "get_weather", "arguments": {"city": "Paris"}}]
IN_TEXT = f"<tool_call>\n{json.dumps(CALLED[0])}\n</tool_call>"


async def ask(which: tuple[str, str]) -> tuple[str, list[Any]]:
    """Return the text, and the tools with their results, of the page of a program. `after` stores its messages."""
    rows = indent(CODE["after", "rows"], " " * 4)
    code = CODE[which[0], "openai"].replace("\n\n\ndef read(", f"\n{rows}\n\ndef read(")
    if which == PARTS:
        assert all(f"`{prefix}{word}`" in PAGE for prefix, word in zip(("", "format="), UI_MESSAGES, strict=True))
        code = code.replace("/chat", UI_MESSAGES[0]).replace("outputs.custom(send)", UI_MESSAGES[1])
    asked, path = (ASKED, "/api/chat") if which == PARTS else ({"messages": QUESTION}, "/chat")
    with running(code) as names:
        async with Served(names["app"]) as server, httpx.AsyncClient(trust_env=False, timeout=60) as client:
            client.cookies["session"] = "ann"
            answer = (await client.post(f"{server.url}{path}", json=asked)).raise_for_status().text
    text, results = read_parts(answer) if which == PARTS else read_own(answer)
    assert 10 == names["users"]["ann"]["tokens"]
    stored = [json.loads(row)["role"] for row in names["users"]["ann"].get("rows", ())]
    assert stored == ([] if which[0] == "before" else ["assistant", "tool"] * len(results) + ["assistant"])
    return text, results


def read_own(answer: str) -> tuple[str, list[Any]]:
    """Return the text, and the tools with their results, of the JSON of the page, which ends with `done`."""
    frames = read_frames(answer.encode())
    assert {"done": "finished"} == frames[-1]
    text = "".join(each.get("token", "") for each in frames)
    return text, [[each["tool"], each["result"]] for each in frames if "tool" in each]


def read_parts(answer: str) -> tuple[str, list[Any]]:
    """Return the text, and the calls with their results, of a stream of UI messages."""
    frames = read_frames(answer.replace("data: [DONE]", "").encode())
    text, told = dict[str, str](), dict[str, list[Any]]()
    for each in frames:
        if each["type"] == "text-delta":
            text[each["id"]] = text.get(each["id"], "") + each["delta"]
        elif each["type"] == "tool-input-available":
            told[each["toolCallId"]] = [each["toolName"], each["input"]]
        elif each["type"] == "tool-output-available":
            told[each["toolCallId"]].append(each["output"])
    return "\n".join(text.values()), list(told.values())


@pytest.mark.parametrize("which", ALL, ids=" ".join)
async def test_a_program_runs_calls(which: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs the tool for the user, sends the result to the model and the page, and counts tokens."""
    text, ((name, result),) = read_own(next(each for each in BLOCKS if "shows" in each.notes).text)
    native = calls((name, {"city": "Paris"}), usage=(10, 5))
    async with Provider(native, says("It is ", "18 °C in Paris.\n", usage=(10, 5))) as model:
        monkeypatch.setenv("MODEL_URL", f"{model.url}v1")
        answer = await ask(which)
        told = model.bodies[1]["messages"]
    assert (text, [[name, {"city": "Paris"}, result] if which == PARTS else [name, result]]) == answer
    assert ["system", "user", "assistant", "tool"] == [each["role"] for each in told]
    assert result in json.dumps(told[-1], ensure_ascii=False)


@pytest.mark.parametrize("which", ALL, ids=" ".join)
async def test_programs_show_calls_in_text(which: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With `native_tool_calls=True` they do not run, as in the program before the migration."""
    async with Provider(says("Let me see.\n", IN_TEXT, usage=(10, 10))) as model:
        monkeypatch.setenv("MODEL_URL", f"{model.url}v1")
        text, _ = await ask(which)
    assert (True, 1) == (IN_TEXT in text, len(model.bodies))


def test_a_websocket_answers_two_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sends the same JSON, and its model reads the first answer."""
    from starlette.testclient import TestClient

    with serving(says("It is ", "warm."), says("Yes.")) as model:
        monkeypatch.setenv("MODEL_URL", f"{model.url}v1")
        code = CODE["after", "openai"] + CODE["after", "websocket"]
        with running(code) as names, TestClient(names["app"]).websocket_connect("/chat") as socket:
            for question, *told in ("Warm?", "It is ", "warm."), ("Sure?", "Yes."):
                socket.send_json({"text": question})
                frames = [socket.receive_json() for _ in range(len(told) + 1)]
                assert [*({"token": token} for token in told), {"done": "finished"}] == frames
    said = [(each["role"], each["content"]) for each in model.bodies[1]["messages"]]
    assert [("user", "Warm?"), ("assistant", "It is warm."), ("user", "Sure?")] == said


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
    """The others are commands and their output."""
    assert {*ALL[:2], ("after", "websocket"), ("after", "rows")} == CODE.keys()
    assert len(CODE) == len([each for each in BLOCKS if each.language == "python"])

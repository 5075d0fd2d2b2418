"""The SDKs as judges of requests: messages and definitions are of their types, to the leaves, with nothing unknown."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import given

from streamtools.history import Message, Origin, User, read_messages, write_messages
from streamtools.history.content import accept_from_client, data_of
from streamtools.tools import ToolRegistry, tool
from tests.history.test_history_order import DIALECTS, histories
from tests.sdks.judge import faults, shape_faults
from tests.support.exact_histories import BEYOND, EXACT
from tests.support.recorded_histories import history_of, recorded
from tests.support.signatures import TOOLS

pytestmark = pytest.mark.sdk

Messages = list[dict[str, Any]]


def openai() -> tuple[Any, Any]:
    from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

    return ChatCompletionMessageParam, ChatCompletionToolParam


def responses() -> tuple[Any, Any]:
    from openai.types.responses import FunctionToolParam, ResponseInputItemParam

    return ResponseInputItemParam, FunctionToolParam


def anthropic() -> tuple[Any, Any]:
    from anthropic.types import MessageParam, ToolParam

    return MessageParam, ToolParam


def anthropic_beta() -> tuple[Any, Any]:
    from anthropic.types.beta import BetaMessageParam, BetaToolParam

    return BetaMessageParam, BetaToolParam


def gemini() -> tuple[Any, Any]:
    from google.genai.types import Content, Tool

    return Content, Tool


def ollama() -> tuple[Any, Any]:
    from ollama import Message, Tool

    return Message, Tool


def cohere() -> tuple[Any, Any]:
    from cohere.types import ChatMessageV2, ToolV2

    return ChatMessageV2, ToolV2


def mistral() -> tuple[Any, Any]:
    from mistralai.client.models import ChatCompletionRequestMessageTypedDict, ToolTypedDict

    return ChatCompletionRequestMessageTypedDict, ToolTypedDict


def bedrock() -> tuple[Any, Any]:
    from botocore.session import get_session

    model = get_session().get_service_model("bedrock-runtime")
    request = model.operation_model("ConverseStream").input_shape
    return request.members["messages"].member, request.members["toolConfig"].members["tools"].member


def interactions() -> tuple[Any, Any]:
    from google.genai._gaos.types.interactions.step import StepParam
    from google.genai._gaos.types.interactions.tool import ToolParam

    return StepParam, ToolParam


class Judge(NamedTuple):
    """Whose types judge a format, and what else the server takes; `host` is the one that is asked."""

    types: Callable[[], tuple[Any, Any]]
    format: str
    host: str | None = None
    beyond: frozenset[str] = frozenset()
    files: bool = True
    addresses: bool = True  # of images

    def __call__(self, messages: Any, *, tools: bool = False) -> list[str]:
        kind = _types(self.types)[tools]
        judged = shape_faults if self.types is bedrock else functools.partial(faults, beyond=self.beyond)
        told = (judged(kind, each, f"[{at}]") for at, each in enumerate(messages))
        return list(itertools.chain.from_iterable(told))

    def write(self, history: Any) -> Messages:
        return write_messages(history, self.format, dialects=DIALECTS, provider=Origin(host=self.host))


@functools.cache
def _types(of: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    return of()


_OLLAMAS = frozenset(("id", "tool_call_id"))  # which the server has and its client has not
JUDGES = {
    "openai": Judge(openai, "openai", "api.openai.com"),
    "compatible": Judge(openai, "openai", None, BEYOND),
    "mistral": Judge(mistral, "openai", "api.mistral.ai", files=False),
    "responses": Judge(responses, "responses"),
    "anthropic": Judge(anthropic, "anthropic"),
    "anthropic, beta": Judge(anthropic_beta, "anthropic"),
    "gemini": Judge(gemini, "gemini"),
    "ollama": Judge(ollama, "ollama", None, _OLLAMAS, files=False, addresses=False),
    "cohere": Judge(cohere, "cohere", files=False),
    "bedrock": Judge(bedrock, "bedrock", addresses=False),
    "interactions": Judge(interactions, "interactions", beyond=frozenset(("signature",))),  # of calls
}
every_judge = pytest.mark.parametrize("name", JUDGES)


@every_judge
def test_histories_in_their_exact_shape(name: str) -> None:
    """They are exact, and so is what is written of them."""
    judge, messages = JUDGES[name], EXACT[name][1]
    assert [] == judge(messages)
    assert [] == judge(judge.write(read_messages(messages)))


@every_judge
def test_histories_of_others(name: str) -> None:
    """What another provider has said is written so that this one takes it."""
    judge = JUDGES[name]
    for other, (format, messages) in EXACT.items():
        if format != judge.format:
            told = [_plain(each, judge) for each in read_messages(messages)]
            assert [] == judge(judge.write(told)), other


def _plain(message: Message, judge: Judge) -> Message:
    """Return a user's message without what only its provider knows: how it is cached, and references by an id."""
    if not isinstance(message, User) or isinstance(message.content, str):
        return message
    kinds = {"text", "image_url"} | ({"file"} if judge.files else set())
    parts = [part for part in message.content if accept_from_client(part) and part["type"] in kinds]
    held = [part for part in parts if judge.addresses or data_of(part.get("image_url", {}).get("url", "data:;base64,"))]
    return User([{name: part[name] for name in ("type", part["type"])} for part in held] or "Hi")


@every_judge
@given(histories())
def test_generated_histories(name: str, history: Any) -> None:
    """In any order, answered or not, with whatever names and ids."""
    judge = JUDGES[name]
    assert [] == judge(judge.write([*history, User("And?")]))


@every_judge
def test_histories_of_streams(name: str) -> None:
    """Of every recording, and of each provider's answer."""
    judge = JUDGES[name]
    for stream, result in anyio.run(recorded).items():
        assert [] == judge(judge.write(history_of(result))), stream


@tool(examples=[{"city": "Bern"}])
def weather(city: str) -> str:
    """Tell the weather."""
    return city


@every_judge
def test_definitions_of_tools(name: str) -> None:
    """Of every signature of the table; Ollama's client knows fewer members of a schema than there are."""
    judge = JUDGES[name]
    registry = ToolRegistry(weather, TOOLS)
    format: Any = judge.format
    told = registry.definitions(format)
    assert len(told) > (0 if judge.format == "gemini" else 20)
    assert [] == [each for each in judge(told, tools=True) if judge.format != "ollama" or ".properties" not in each]


def said(*content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", **({"content": [*content]} if content else {}), **more}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*content]}


def call(**more: Any) -> dict[str, Any]:
    return said(tool_calls=[{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, **more}])


_IMAGE = {"type": "image_url", "image_url": {"url": 5}}
_TOOL: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": "x"}
_CLAUDE: list[Any] = [
    user({"type": "text", "text": 5}),
    said({"type": "tool_use", "name": "f", "input": {}}),
    user({"type": "tool_result", "content": "x"}),
    said({"type": "future"}),
    user({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "txt": "a"}]}),
    user({"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "aGk="}}),
    said({"type": "text", "text": "a", "citations": [{"type": "char_location", "cited_text": "c"}]}),
    said({"type": "thinking", "thinking": "a"}),
    said({"type": "text", "text": "a", "id": "x"}),
    said(5),
    {"role": "robot", "content": "a"},
]
_CHAT: list[Any] = [
    {"role": "user", "content": 5},
    user(_IMAGE),
    user({"type": "future", "text": "a"}),
    {"role": "robot", "content": "a"},
    call(function={"name": "f", "arguments": 5}),
    {**_TOOL, "content": 5},
    said({"type": "text"}),
    said(content="a", future=1),
]
_MISSING: list[Any] = [
    said(tool_calls=[{"type": "function", "function": {"name": "f", "arguments": "{}"}}]),
    {"role": "tool", "content": "x"},
    call(type="future"),
    call(signature="s"),
    user({"type": "text", "text": "a", "citations": []}),
]

_NAMELESS = call(function={"arguments": "{}"})  # which Cohere's types pass over

PLANTED: dict[str, list[Any]] = {
    "openai": [*_CHAT, *_MISSING, _NAMELESS, call(extra_content={}), said(content="a", reasoning_content="Hm")],
    "compatible": [*_CHAT, *_MISSING, _NAMELESS],
    "mistral": [
        *_CHAT,
        _NAMELESS,
        said({"type": "thinking", "thinking": "Hm"}),
        said(content="a", reasoning_content="Hm"),
    ],
    "responses": [
        {"role": "user", "content": 5},
        user({"type": "text", "text": "a"}),
        user({"type": "input_image", "detail": "auto", "image_url": {"url": "u"}}),
        {"type": "function_call", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": {}},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "a"}]},
        {"type": "custom_tool_call_output", "output": "a"},
        {"type": "future", "id": "x"},
        {"type": "reasoning", "summary": []},
        {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text"}]},
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "future"}},
        {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"role": "assistant", "content": "a", "phase": "future"},
        {"role": "assistant", "content": "a", "future": 1},
    ],
    "anthropic": [*_CLAUDE, said({"type": "mcp_tool_use", "id": "m", "name": "e", "server_name": "s", "input": {}})],
    "anthropic, beta": [*_CLAUDE, said({"type": "mcp_tool_use", "id": "m", "name": "e", "input": {}})],
    "gemini": [
        {"role": "user", "parts": [{"text": 5}]},
        {"role": "user", "parts": {"text": "a"}},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": []}}]},
        {"role": "model", "parts": [{"function_call": {"name": "f", "args": {}}}]},
        {"role": "model", "parts": [{"future": {}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": "x"}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}, "parts": [{"text": "a"}]}}]},
        {"role": "model", "parts": [{"executableCode": {"language": "COBOL", "code": "1"}}]},
        {"role": "model", "content": "a"},
    ],
    "ollama": [
        {"role": "user", "content": 5},
        {"role": "user", "content": "a", "images": [5]},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"content": "a"},
        said(content="a", tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]),
        said(content="a", tool_calls=[{"function": {"arguments": {}}}]),
        said(content="a", tool_calls=[{"function": {"name": "f", "arguments": {}, "future": 1}}]),
        said(content="a", reasoning="Hm"),
    ],
    "cohere": [*_CHAT, *_MISSING, said(tool_plan=5), user({"type": "file", "file": {"file_id": "f"}})],
    "bedrock": [
        user({"type": "text", "text": "a"}),
        {"role": "robot", "content": []},
        {"role": "user", "content": "a"},
        user({"toolResult": {"content": []}}),
        user({"toolResult": {"toolUseId": "t", "content": [{"txt": "a"}]}}),
        user({"document": {"format": "plain", "name": "a", "source": {"bytes": "aGk="}}}),
        said({"text": "a", "toolUse": {"toolUseId": "t", "name": "f", "input": {}}}),
        said({"reasoningContent": {"reasoningText": {"signature": "s"}}}),
    ],
    "interactions": [
        {"type": "user_input", "content": [{"type": "text", "text": 5}]},
        {"type": "function_call", "name": "f", "arguments": {}},
        {"type": "function_call", "id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_result", "name": "f", "result": "x"},
        {"type": "function_result", "call_id": "c", "result": [{"type": "future"}]},
        {"type": "model_output", "content": [{"type": "text", "txt": "a"}]},
        {"type": "thought", "summary": "Hm"},
        {"type": "future", "id": "x"},
        {"role": "user", "content": "a"},
    ],
}
"""What each judge is to refuse: another type, what is missing or unknown, on top and deep inside."""


@every_judge
def test_the_judge_refuses(name: str) -> None:
    """What is planted, in a history that is sound without it: else it were none."""
    judge = JUDGES[name]
    for planted in PLANTED[name]:
        assert judge([*EXACT[name][1], planted]), planted
    for definition in ({"type": 5}, {"function": {"name": 5}}, {"future": 1}):
        assert judge([definition], tools=True), definition

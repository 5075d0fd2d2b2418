"""Bodies of requests: messages, tools, tool choices and options for each provider."""

from __future__ import annotations

from typing import Any

from streamtools import tool
from streamtools.conversation import (
    AnthropicMessages,
    Ask,
    GeminiChat,
    GeminiInteractions,
    HTTPModel,
    OllamaChat,
    OpenAIChat,
    OpenAIResponses,
    latitude_request,
)
from streamtools.conversation.models.providers import ANTHROPIC_MAX_TOKENS
from streamtools.history import Message, System, User
from streamtools.tools import ToolChoice, ToolRegistry
from tests.support.cases import together


@tool
def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


@tool
def clock() -> str:
    """Tell the time."""
    return "noon"


HISTORY: tuple[Message, ...] = (System("Be brief."), User("Hi"))
TOOLS = (weather, clock)


def offered(format: str, *tools: Any) -> list[dict[str, Any]]:
    return ToolRegistry(*(tools or TOOLS)).definitions(format)


def test_chat_completions() -> None:
    """The request asks for a stream with the usage at its end."""
    body = OpenAIChat("m", api_key="").body(Ask(HISTORY, TOOLS))

    assert {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": offered("openai"),
    } == body


def test_responses() -> None:
    """The history is the input."""
    body = OpenAIResponses("m", api_key="", max_tokens=5).body(Ask(HISTORY, TOOLS))

    assert ["model", "input", "stream", "tools", "max_output_tokens"] == list(body)
    assert ("Hi", "Be brief.") == (body["input"][1]["content"], body["input"][0]["content"])
    assert (True, 5, offered("responses")) == (body["stream"], body["max_output_tokens"], body["tools"])


def test_anthropic_messages() -> None:
    """The system prompt is a separate field, and `max_tokens` is set."""
    body = AnthropicMessages("m", api_key="").body(Ask(HISTORY, TOOLS))

    assert ["model", "max_tokens", "system", "messages", "stream", "tools"] == list(body)
    assert ("Be brief.", ANTHROPIC_MAX_TOKENS) == (body["system"], body["max_tokens"])
    assert ["user"] == [message["role"] for message in body["messages"]]
    assert offered("anthropic") == body["tools"]
    assert "system" not in AnthropicMessages("m", api_key="").body(Ask((User("Hi"),)))


def test_ollama() -> None:
    """Sampling options are in `options`; other options are at the top level."""
    model = OllamaChat("m", temperature=0, max_tokens=5, think=True, options={"mirostat": 1})
    body = model.body(Ask(HISTORY, TOOLS, options={"stop": "END", "keep_alive": "5m", "max_tokens": None}))

    assert {"temperature": 0, "mirostat": 1, "stop": ["END"]} == body["options"]
    assert (True, True, "5m") == (body["stream"], body["think"], body["keep_alive"])
    assert offered("ollama") == body["tools"]
    assert "options" not in OllamaChat("m").body(Ask(HISTORY))
    taken = Ask(HISTORY, options={"stop": None, "options": {"num_predict": None}})
    assert {"num_ctx": 1} == OllamaChat("m", stop="a", max_tokens=5, options={"num_ctx": 1}).body(taken)["options"]
    assert "options" not in OllamaChat("m", stop="a").body(Ask(HISTORY, options={"stop": None, "seed": None}))


def test_gemini() -> None:
    """The system prompt is a separate field, and sampling options are in `generationConfig`."""
    model = GeminiChat("m", api_key="", generationConfig={"candidateCount": 1}, top_k=3, stop="END")
    body = model.body(Ask(HISTORY, TOOLS, options={"max_tokens": 5, "safetySettings": []}))

    assert {"parts": [{"text": "Be brief."}]} == body["systemInstruction"]
    assert [{"role": "user", "parts": [{"text": "Hi"}]}] == body["contents"]
    assert {"candidateCount": 1, "topK": 3, "stopSequences": ["END"], "maxOutputTokens": 5} == body["generationConfig"]
    assert ([], offered("gemini")) == (body["safetySettings"], body["tools"])
    assert ["contents"] == list(GeminiChat("m", api_key="").body(Ask((User("Hi"),))))


def named(name: str) -> ToolChoice:
    return ToolChoice("tool", name)


@together(
    ("client", "choice", "written"),
    [
        (OpenAIChat, ToolChoice("none"), "none"),
        (OpenAIChat, ToolChoice("required"), "required"),
        (OpenAIChat, named("clock"), {"type": "function", "function": {"name": "clock"}}),
        (OpenAIResponses, ToolChoice("none"), "none"),
        (OpenAIResponses, ToolChoice("required"), "required"),
        (OpenAIResponses, named("clock"), {"type": "function", "name": "clock"}),
        (AnthropicMessages, ToolChoice("none"), {"type": "none"}),
        (AnthropicMessages, ToolChoice("required"), {"type": "any"}),
        (AnthropicMessages, named("clock"), {"type": "tool", "name": "clock", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choices_of_each_provider(client: type[HTTPModel], choice: ToolChoice, written: object) -> None:
    """Each tool choice has the form of the provider."""
    body = client("m", api_key="").body(Ask(HISTORY, TOOLS, choice))

    assert (written, 2) == (body["tool_choice"], len(body["tools"]))


def test_a_latitude_request() -> None:
    """It has the whole history, the prompt, the id of the run, extras of the application, and the tools."""
    messages = [{"role": "user", "content": "Weather in Rome?"}]
    body = latitude_request(messages, conversation_uuid="c1", tools=[weather], todos=[1], briefs=[])

    assert {
        "messages": messages,
        "promptPath": "briefPlanner",
        "conversationUuid": "c1",
        "todos": [1],
        "briefs": [],
        "media": [],
        "toolClients": offered("tool_clients", weather),
    } == body
    assert body["messages"] is not messages


def test_body_of_interactions() -> None:
    """Instructions, tools, tool choice and options are in separate fields."""
    options: Any = {"max_tokens": 9, "stop": "END"}
    google = GeminiInteractions("m", api_key="", thinking_level="low", **options)

    assert {
        "model": "m",
        "input": [{"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}],
        "stream": True,
        "system_instruction": "Be brief.",
        "tools": offered("interactions", clock),
        "generation_config": {
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["clock"]}},
            "thinking_level": "low",
            "max_output_tokens": 9,
            "stop_sequences": ["END"],
        },
    } == google.body(Ask(HISTORY, (clock,), ToolChoice("tool", "clock")))
    assert "none" == google.body(Ask(HISTORY, (clock,), ToolChoice("none")))["generation_config"]["tool_choice"]

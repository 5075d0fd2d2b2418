"""Round trips of messages: unchanged for the same provider, without provider data for others.

The messages here avoid these normalisations. A text replaces a list of texts (chat), or the reverse (Anthropic).
Arguments are compact JSON and never empty. A developer message is a system message. Null fields and empty texts are
omitted. Neighbours with one role are joined (Anthropic, Gemini). Results are in call order.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from streamtools.history import (
    Assistant,
    Message,
    Origin,
    ProviderItem,
    Results,
    TextPart,
    Thought,
    User,
    read_messages,
    write_messages,
)
from tests.support.cases import together
from tests.support.exact_histories import EXACT

Messages = list[dict[str, Any]]

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
QUOTE = {"type": "web_search_result_location", "url": "u", "title": "t", "encrypted_index": "i", "cited_text": "c"}
SEARCH: list[dict[str, Any]] = [
    {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srv",
        "content": [
            {"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "e", "page_age": None}
        ],
    },
]
ANTHROPIC_ASK = {"role": "user", "content": [{"type": "text", "text": "?"}]}


def anthropic(*blocks: dict[str, Any]) -> Messages:
    return [ANTHROPIC_ASK, {"role": "assistant", "content": [*blocks]}]


def use(id: str = "t", **more: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "f", "input": {"a": 1}, **more}


def told(content: Any, id: str = "t", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": content, **more}]}


def chat_call(id: str = "c", arguments: str = '{"a":1}', **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}, **more}


ASK, DONE = {"role": "user", "content": "?"}, {"role": "assistant", "content": "Done."}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm"}]}
ENCRYPTED = {**REASONING, "encrypted_content": "e", "status": "completed"}


HISTORIES: dict[str, tuple[str, Messages]] = {
    # Anthropic
    "a web search with citations": (
        "anthropic",
        anthropic(
            {"type": "thinking", "thinking": "Hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            *SEARCH,
            {"type": "text", "text": "It is ", "citations": [QUOTE]},
            {"type": "text", "text": "so."},
        ),
    ),
    "images, documents and search results as results": (
        "anthropic",
        [
            *anthropic(use()),
            told(
                [
                    {"type": "text", "text": "a"},
                    PICTURE,
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                    {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "x"}]},
                ],
                cache_control={"type": "ephemeral"},
            ),
        ],
    ),
    "names, and how texts are cached": (
        "openai",
        [
            {"role": "system", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": "?", "name": "ann"},
            {
                "role": "assistant",
                "content": [{"type": "text", "text": "So", "cache_control": {"type": "ephemeral"}}],
                "tool_calls": [chat_call()],
            },
            {
                "role": "tool",
                "tool_call_id": "c",
                "name": "f",
                "content": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "!", "cache_control": {"type": "ephemeral"}}]},
            {"role": "user", "content": [{"type": "file", "file_id": "f"}]},
        ],
    ),
    "a signed call, its result, and a named file": (
        "gemini",
        [
            {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}, {"text": "?"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "s"}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"a_b": 1}}}]},
            {
                "role": "user",
                "parts": [{"inlineData": {"mimeType": "application/pdf", "data": "aGk=", "displayName": "a"}}],
            },
        ],
    ),
    "tools that are added": (
        "anthropic",
        [
            ANTHROPIC_ASK,
            {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "x"}}]},
        ],
    ),
    "an image and a document of Converse": (
        "bedrock",
        [
            {
                "role": "user",
                "content": [
                    {"image": {"format": "png", "source": {"bytes": "aGk="}}},
                    {"document": {"format": "pdf", "name": "a", "source": {"bytes": "aGk="}}},
                    {"guardContent": {"text": {"text": "a"}}},
                ],
            }
        ],
    ),
    "reasoning without a signature": (
        "bedrock",
        [
            {"role": "user", "content": [{"text": "?"}]},
            {"role": "assistant", "content": [{"reasoningContent": {"reasoningText": {"text": "Hm"}}}, {"text": "!"}]},
        ],
    ),
}


OTHERS = {name: case for name, case in EXACT.items() if not name.startswith(("anthropic", "bedrock"))}


@together(("format", "messages"), {**HISTORIES, **OTHERS}.values(), ids=[*HISTORIES, *OTHERS])
def test_another_provider_gets_no_provider_data(format: str, messages: Messages) -> None:
    """It gets no items and no signatures. Texts, calls and results stay, each call with its result."""
    for other in {"openai", "responses", "anthropic", "gemini"} - {format}:
        history = read_messages(messages)
        written = json.dumps(write_messages(history, other))
        said = [part for each in history if isinstance(each, Assistant) for part in each.parts]
        for part in said:
            if isinstance(part, TextPart) and part.text.strip():
                assert json.dumps(part.text.strip())[1:-1] in written
            if isinstance(part, Thought) and part.signature:
                assert f'"{part.signature}"' not in written
        for word in (
            *("encrypted", "thoughtSignature", "server_tool", "_call_id", "citations", "phase", "executableCode"),
            *("cache_control", "tool_addition", "reasoningContent"),
        ):
            assert word not in written.replace("tool_call_id", "")


def test_another_host_gets_no_provider_data() -> None:
    """An unknown host counts as the same host. The model may differ."""
    item, extra = ProviderItem("openai", {"audio": {"id": "a"}}), ProviderItem("openai", {"reasoning": "Hm"})
    origin = Origin("openai", "one.example", "m1")
    turn = Assistant(parts=(Thought("Hm", extra=extra), "Hi", item), origin=origin)
    history: list[Message] = [User("?"), turn]

    def keys(**provider: Any) -> set[str]:
        asked = Origin(**provider) if provider else None
        return set(write_messages(history, "openai", provider=asked, send_reasoning="always")[1])

    both = {"role", "content", "audio", "reasoning"}
    assert both == keys() == keys(host="one.example", model="m2") == keys(model="m2")
    assert {"role", "content"} == keys(host="two.example")
    assert ["text"] == [key for part in write_messages(history, "gemini")[1]["parts"] for key in part]


def test_strict_hosts_get_no_unknown_fields() -> None:
    """No host gets cache control. OpenAI gets names of users, and Mistral names of tools."""
    _, messages = HISTORIES["names, and how texts are cached"]

    def written(host: str) -> Messages:
        return write_messages(read_messages(messages), "openai", provider=Origin(host=host))

    for host, named in (("api.openai.com", ["user"]), ("api.mistral.ai", ["tool"])):
        assert "cache_control" not in json.dumps([each for each in written(host) if each["role"] != "assistant"])
        assert named == [each["role"] for each in written(host) if "name" in each]


def test_protobuf_names_are_read() -> None:
    """They become the names of JSON, except in arguments and in results."""
    _, messages = HISTORIES["a signed call, its result, and a named file"]
    spelled = json.dumps(messages)
    for name in ("inlineData", "mimeType", "functionCall", "thoughtSignature", "functionResponse", "displayName"):
        spelled = spelled.replace(name, re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", name))
    history = read_messages(json.loads(spelled))
    assert messages == write_messages(history, "gemini")
    asked, called, told, file = write_messages(history, "openai")
    assert {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}} == asked["content"][0]
    assert [("f", "{}")] == [tuple(each["function"].values()) for each in called["tool_calls"]]
    assert '{"a_b":1}' == told["content"]
    assert ["file"] == [each["type"] for each in file["content"]]


def test_malformed_arguments_are_sent_unchanged() -> None:
    """Servers that may render a template do not get them."""
    history = read_messages(EXACT["openai"][1])

    def arguments(host: str | None) -> str:
        (_, call, _) = write_messages(history, "openai", provider=Origin(host=host))[2]["tool_calls"]
        return str(call["function"]["arguments"])

    assert ['{"a', '{"a', "{}"] == [arguments(host) for host in (None, "api.openai.com", "localhost")]
    assert {} == write_messages(history, "anthropic")[1]["content"][2]["input"]


@pytest.mark.parametrize("arguments", ['{"a', "[1]", '"a"', "NaN", 5, [1]])
def test_a_malformed_call_gets_its_error(arguments: Any) -> None:
    """An existing result stays."""
    asked = {"role": "assistant", "content": None, "tool_calls": [chat_call(arguments=arguments)]}
    (_, result, _) = write_messages(read_messages([asked, ASK]), "openai")
    assert result["tool_call_id"] == "c"
    assert "send the call again" in result["content"]
    known = {"role": "tool", "tool_call_id": "c", "content": "no"}
    assert known == write_messages(read_messages([asked, known]), "openai")[1]


ODD: list[dict[str, Any]] = [
    {"role": "user", "content": None},
    {"role": "user"},
    {"role": "user", "content": 5},
    {"role": "user", "content": {"type": "text", "text": "Hi"}},
    {"role": "user", "content": [None, 3, [], {"type": 7}, {"type": "image", "source": 1}]},
    {"role": "system", "content": [{"type": "image_url"}]},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": 5, "tool_calls": "x", "reasoning_details": 3},
    {"role": "assistant", "content": [3, None, {"type": []}, {"type": "text"}, {"type": "thinking"}]},
    {"role": "assistant", "tool_calls": [3, {}, {"function": 5}, {"function": {"name": 5, "arguments": 5}}]},
    {"type": "reasoning", "summary": 5, "content": [1]},
    {"type": "function_call", "name": None},
    {"type": "never heard of"},
    {"role": "model", "parts": [1, {"functionCall": 5}, {"functionCall": {}}, {"text": 5}]},
    {"role": "user", "parts": None},
    {"role": "assistant", "parts": [{"type": "tool-f"}, {"type": "tool-f", "toolCallId": "x", "state": 5}]},
    {"role": "user", "parts": [{"type": "file", "url": 5}, {"type": "data-x", "data": {}}]},
    {"role": "assistant", "id": "m", "toolCalls": [5, {"id": "x", "function": 5}]},
    {"role": "activity", "id": "m", "activityType": "x", "content": {}},
    {"role": "function", "name": "f", "content": [{"type": []}]},
    *({"role": "user", "content": "Hi", "images": images} for images in (5, "aGk=", {"a": 1}, [5])),
]


@together("message", ODD, ids=str)
def test_unknown_content_is_never_refused(message: dict[str, Any]) -> None:
    """It is kept or ignored, and the history can be written in each format."""
    history = [User("?"), *read_messages([message], system=True), User("!")]
    for format in ("openai", "responses", "anthropic", "gemini"):
        assert write_messages(history, format)


def test_content_that_nests_too_deeply_is_dropped() -> None:
    """A call then has no arguments."""
    deep: Any = "x"
    for _ in range(3000):
        deep = [deep]
    read = read_messages(
        [
            {
                "role": "assistant",
                "content": [{"type": "future", "x": deep}, {"type": "text", "text": "Hi", "y": deep}],
            },
            {"type": "web_search_call", "action": deep},
            {"role": "assistant", "tool_calls": [chat_call(arguments=deep)]},
        ]
    )
    for format in ("openai", "responses", "anthropic", "gemini"):
        assert write_messages(read, format)


def test_unanswered_calls_of_client_tools_are_dropped() -> None:
    """The provider refuses such computer and shell calls, and the reasoning before them."""
    call = {"type": "computer_call", "id": "cu", "call_id": "c3", "action": {}}
    messages: Messages = [ASK, ENCRYPTED, call, DONE]
    assert [ASK, DONE] == write_messages(read_messages(messages), "responses")


def test_an_interrupted_server_tool_is_dropped() -> None:
    """Anthropic refuses a call of a server tool without a result, unless the turn continues."""
    paused = anthropic({"type": "text", "text": "I look."}, SEARCH[0])
    assert paused == write_messages(read_messages(paused), "anthropic")
    (_, said, _) = write_messages([*read_messages(paused), User("And?")], "anthropic")
    assert [{"type": "text", "text": "I look."}] == said["content"]


def test_results_with_images_are_converted() -> None:
    """Chat completions get the text."""
    history = read_messages(HISTORIES["images, documents and search results as results"][1])
    (results,) = (each for each in history if isinstance(each, Results))
    assert ["text", "image_url", "document", "search_result"] == [part["type"] for part in results.results[0].parts]
    assert "a" == write_messages(history, "openai")[2]["content"]
    items = write_messages(history, "responses")[2]["output"]
    assert ["input_text", "input_image"] == [each["type"] for each in items]
    response = write_messages(history, "gemini")[2]["parts"][0]["functionResponse"]
    assert [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}] == response["parts"]
    assert ["aGk="] == write_messages(history, "ollama")[2]["images"]


@together(("format", "messages"), HISTORIES.values(), ids=HISTORIES)
def test_messages_are_written_as_they_were_read(format: str, messages: Messages) -> None:
    """The JSON is the same, also the second time."""
    written = write_messages(read_messages(json.loads(json.dumps(messages))), format)
    assert messages == written
    assert written == write_messages(read_messages(written), format)

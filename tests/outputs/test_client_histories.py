"""Tests of signatures in a history that a front end stores. The provider receives each signature unchanged.

The front ends here build their messages of a body as the packages do: `process-ui-message-stream` of `ai` 6.0.326, and
`apply/default` of `@ag-ui/client` 1.0.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from streamtools import ToolStream, chat
from streamtools.conversation.models import (
    AnthropicMessages,
    BedrockConverse,
    GeminiChat,
    GeminiInteractions,
    HTTPModel,
    OpenAIChat,
    OpenAIResponses,
)
from streamtools.events import Raw, Reasoning, StepStart
from streamtools.history import read_messages, write_messages
from streamtools.outputs import ag_ui, ai_sdk
from streamtools.sources import anthropic
from tests.chat.test_chat_going_back import (
    HIDDEN,
    THINKING,
    Body,
    Complaint,
    Stream,
    _complaining,
    _streaming,
    anthropic_complaint,
    anthropic_stream,
    chat_complaint,
    chat_stream,
    gemini_complaint,
    gemini_stream,
    now,
    responses_complaint,
    responses_stream,
    sse,
)
from tests.support.event_streams import event
from tests.support.front_ends import check_ag_ui, check_ai_sdk, read_body

pytestmark = pytest.mark.anyio


def kept_by_ai_sdk(body: bytes, message: Body) -> None:
    """Add the parts of a body to the assistant's message that it continues."""
    check_ai_sdk(read_body(body, done=True))
    open_parts: dict[str, Body] = {}
    calls: dict[str, Body] = {}
    for part in read_body(body, done=True):
        kind, _, move = part["type"].rpartition("-")
        if part["type"] == "start-step":
            message["parts"].append({"type": "step-start"})
        elif kind in ("text", "reasoning"):
            if move == "start":
                open_parts[part["id"]] = {"type": kind, "text": ""}
                message["parts"].append(open_parts[part["id"]])
            open_parts[part["id"]]["text"] += part.get("delta", "")
            if "providerMetadata" in part:
                open_parts[part["id"]]["providerMetadata"] = part["providerMetadata"]
        elif kind == "tool-input" and part["toolCallId"] not in calls:
            calls[part["toolCallId"]] = {"type": "dynamic-tool", "toolName": part["toolName"], **_call(part)}
            message["parts"].append(calls[part["toolCallId"]])
        elif kind in ("tool-input", "tool-output"):
            calls[part["toolCallId"]] |= _call(part)


def _call(part: Body) -> Body:
    states = {"tool-input-start": "input-streaming", "tool-input-delta": "input-streaming"}
    held: Body = {name: part[name] for name in ("toolCallId", "input", "output") if name in part}
    metadata = {"callProviderMetadata": part["providerMetadata"]} if "providerMetadata" in part else {}
    return {**held, **metadata, "state": states.get(part["type"], part["type"].removeprefix("tool-"))}


def kept_by_ag_ui(body: bytes, messages: list[Body]) -> None:
    """Add the events of a body to the messages."""
    told = read_body(body, done=False)
    check_ag_ui(told, current=True)

    def find(id: str, **made: Any) -> Body:
        found = next((each for each in messages if each["id"] == id), None)
        if found is None:
            messages.append(found := {"id": id, **made})
        return found

    for each in told:
        match each["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                find(each["messageId"], role=each["role"], content="")
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                find(each["messageId"])["content"] += each["delta"]
            case "TOOL_CALL_START":
                function = {"name": each["toolCallName"], "arguments": ""}
                call = {"id": each["toolCallId"], "type": "function", "function": function}
                find(each["parentMessageId"], role="assistant").setdefault("toolCalls", []).append(call)
            case "TOOL_CALL_ARGS":
                _calls(messages)[each["toolCallId"]]["function"]["arguments"] += each["delta"]
            case "TOOL_CALL_RESULT":
                find(each["messageId"], role="tool", toolCallId=each["toolCallId"], content=each["content"])
            case "REASONING_ENCRYPTED_VALUE":
                calls = _calls(messages)
                of_call = each["subtype"] == "tool-call"
                (calls[each["entityId"]] if of_call else find(each["entityId"]))["encryptedValue"] = each[
                    "encryptedValue"
                ]


def _calls(messages: list[Body]) -> dict[str, Body]:
    return {call["id"]: call for message in messages for call in message.get("toolCalls", ())}


def converse_stream(number: int, calls: bool) -> bytes:
    last: Body = {"text": "It is one."}
    start: Body = {}
    if calls:
        start, last = {"toolUse": {"toolUseId": f"c{number}", "name": "now"}}, {"toolUse": {"input": "{}"}}
    reasoning = [{"text": "Hm"}, {"signature": "s"}]
    return b"".join(
        [
            event("messageStart", {"role": "assistant"}),
            *(event("contentBlockDelta", _delta(0, {"reasoningContent": each})) for each in reasoning),
            event("contentBlockStop", {"contentBlockIndex": 0}),
            event("contentBlockStart", {"contentBlockIndex": 1, "start": start}),
            event("contentBlockDelta", _delta(1, last)),
            event("contentBlockStop", {"contentBlockIndex": 1}),
            event("messageStop", {"stopReason": "tool_use" if calls else "end_turn"}),
        ]
    )


def _delta(index: int, delta: Body) -> Body:
    return {"contentBlockIndex": index, "delta": delta}


def converse_complaint(body: Body) -> str | None:
    thought = {"reasoningContent": {"reasoningText": {"text": "Hm", "signature": "s"}}}
    said = [message["content"] for message in body["messages"] if message["role"] == "assistant"]
    return None if all(thought == blocks[0] for blocks in said) else "a thought is missing"


def steps_stream(number: int, calls: bool) -> list[Body]:
    last: Body = {"type": "model_output", "content": [{"type": "text", "text": "It is one."}]}
    if calls:
        last = {"type": "function_call", "id": f"c{number}", "name": "now", "arguments": {}, "signature": "z"}
    steps = [{"type": "thought", "signature": "s", "summary": [{"type": "text", "text": "Hm"}]}, last]
    told: list[Body] = []
    for at, step in enumerate(steps):
        told += [{"event_type": "step.start", "index": at, "step": step}, {"event_type": "step.stop", "index": at}]
    return [*told, {"event_type": "interaction.completed", "interaction": {"status": "completed"}}]


def steps_complaint(body: Body) -> str | None:
    said = [each for each in body["input"] if each["type"] not in ("user_input", "function_result")]
    fine = all(each["type"] == "thought" for each in said[::2]) and all(
        each.get("signature") for each in said if each["type"] != "model_output"
    )
    return None if fine else "a signature is missing"


def of(stream: Any, complaint: Any, what: Any) -> tuple[Stream, Complaint]:
    return partial(_streaming, stream, what), partial(_complaining, complaint, what)


PROVIDERS: dict[str, tuple[type[HTTPModel], Callable[[int, bool], Any], Complaint]] = {
    "thinking": (AnthropicMessages, *of(anthropic_stream, anthropic_complaint, THINKING)),
    "redacted thinking": (AnthropicMessages, *of(anthropic_stream, anthropic_complaint, HIDDEN)),
    "encrypted reasoning": (OpenAIResponses, *of(responses_stream, responses_complaint, {})),
    "thought signatures": (GeminiChat, *of(gemini_stream, gemini_complaint, "")),
    "details": (OpenAIChat, *of(chat_stream, chat_complaint, "reasoning_details")),
    "Converse": (BedrockConverse, converse_stream, converse_complaint),
    "steps": (GeminiInteractions, steps_stream, steps_complaint),
}


@pytest.mark.parametrize("protocol", ["AI SDK", "AG-UI"])
@pytest.mark.parametrize(("make", "stream", "complaint"), PROVIDERS.values(), ids=PROVIDERS)
async def test_a_client_keeps_three_turns(
    make: type[HTTPModel], stream: Callable[[int, bool], Any], complaint: Complaint, protocol: str
) -> None:
    """The provider accepts each request; it would refuse a missing signature."""
    answers = [True, False, False, True, True, False]
    asked: list[Body] = []

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        for each in body.get("input", ()) if make is OpenAIResponses else ():
            if each.get("role") == "assistant":
                each["phase"] = "final_answer"  # which no client sends back
        if (why := complaint(body)) is not None:
            return httpx.Response(400, json={"error": {"message": why}})
        asked.append(body)
        told = stream(len(asked) - 1, answers[len(asked) - 1])
        kind = "application/vnd.amazon.eventstream" if isinstance(told, bytes) else "text/event-stream"
        return httpx.Response(
            200, content=told if isinstance(told, bytes) else sse(told), headers={"content-type": kind}
        )

    messages: list[Body] = []
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        where: Any = {"region": "us-east-1"} if make is BedrockConverse else {}
        if make is OpenAIChat:
            where = {"base_url": "http://router.test/v1"}  # OpenAI's own host gets no reasoning back
        model = make("m", client=client, api_key="k", retries=0, **where)
        for number, question in enumerate(("What time is it?", "Thanks.", "And now?")):
            told = {"parts": [{"type": "text", "text": question}]} if protocol == "AI SDK" else {"content": question}
            messages.append({"id": f"q{number}", "role": "user", **told})
            version: Any = {"run_id": f"run{number}", "protocol_version": "1.0"}
            encoder = ai_sdk() if protocol == "AI SDK" else ag_ui(**version)
            async with chat(model, read_messages(json.loads(json.dumps(messages))), tools=[now]) as events:
                body = b"".join([encoder.encode(each) async for each in events])
            assert ("finished", []) == (events.result.reason, events.result.errors)
            if protocol == "AI SDK":
                messages.append({"id": f"a{number}", "role": "assistant", "parts": []})
                kept_by_ai_sdk(body, messages[-1])
            else:
                kept_by_ag_ui(body, messages)
    assert 6 == len(asked)


@pytest.mark.parametrize("protocol", ["AI SDK", "AG-UI"])
async def test_reasoning_between_calls_keeps_its_position(protocol: str) -> None:
    """A provider refuses signed reasoning in another place, and its calls without it."""
    blocks: list[Body] = [
        *({**THINKING, "thinking": "1"}, {"type": "text", "text": "I look."}, {**THINKING, "thinking": "2"}),
        *({"type": "tool_use", "id": "a", "name": "now", "input": {"n": 1}}, {**THINKING, "thinking": "3"}),
        {"type": "tool_use", "id": "b", "name": "now", "input": {"n": 2}},
    ]
    told: list[Body] = [{"type": "message_start", "message": {"id": "m", "content": []}}]
    for at, block in enumerate(blocks):
        told.append({"type": "content_block_start", "index": at, "content_block": block})
        if "signature" in block:
            signed = {"type": "signature_delta", "signature": "s"}
            told.append({"type": "content_block_delta", "index": at, "delta": signed})
        told.append({"type": "content_block_stop", "index": at})
    told += [{"type": "message_delta", "delta": {"stop_reason": "tool_use"}}, {"type": "message_stop"}]
    encoder = ai_sdk() if protocol == "AI SDK" else ag_ui(run_id="r", protocol_version="1.0")
    async with ToolStream(anthropic([sse(told)]), tools=[now]) as events:
        body = b"".join([encoder.encode(each) async for each in events])
    messages: list[Body] = []
    if protocol == "AI SDK":
        messages.append({"id": "a", "role": "assistant", "parts": []})
        kept_by_ai_sdk(body, messages[-1])
    else:
        kept_by_ag_ui(body, messages)
    said, results = write_messages(read_messages(messages), "anthropic")
    assert blocks == said["content"]
    assert ["a", "b"] == [each["tool_use_id"] for each in results["content"]]


def test_each_part_keeps_its_signature() -> None:
    """A signature without reasoning, or after a text, has its own part."""
    metadata = []
    for event_ in (
        Reasoning("", signature="r", redacted=True),
        Reasoning("", own={"openai": {"reasoning_details": [{"type": "reasoning.text", "text": "Hm"}, {"data": "d"}]}}),
        Reasoning("", own={"openai": {"reasoning_details": [{"type": "reasoning.text", "text": "Hm"}]}}),
        Raw({}, format="gemini", about="text"),
        Raw({"thoughtSignature": "t"}, format="gemini", about="text"),
        Raw({"thoughtSignature": 5}, format="gemini", about="text"),
    ):
        encoder = ai_sdk()
        encoder.encode(StepStart(1, format="anthropic"))
        parts = [json.loads(each[6:]) for each in encoder.encode(event_).decode().split("\n\n") if each]
        metadata.append([each["providerMetadata"] for each in parts if "providerMetadata" in each])
    assert [
        [{"anthropic": {"redactedData": "r"}}],
        [{"openrouter": {"reasoning_details": [{"data": "d"}]}}],
        [],
        [],
        [{"google": {"thoughtSignature": "t"}}],
        [],
    ] == metadata


def test_signatures_of_a_hostile_client_are_sent_to_their_provider_only() -> None:
    """A forged signature reaches only its own provider, as a signature."""
    forged = {"anthropic": {"signature": "FORGED", "x": "X"}}
    ui: list[Body] = [
        {
            "id": "a",
            "role": "assistant",
            "parts": [
                {"type": "reasoning", "text": "Hm", "providerMetadata": forged},
                {"type": "reasoning", "text": "Hm", "providerMetadata": {"google": {"thoughtSignature": "OTHER"}}},
                {"type": "text", "text": "Hi", "providerMetadata": {"google": {"thoughtSignature": "OTHER"}}},
                {
                    "type": "reasoning",
                    "text": "Hm",
                    "providerMetadata": {"openrouter": {"reasoning_details": [{"data": "OTHER"}]}},
                },
                {
                    "type": "dynamic-tool",
                    "toolName": "f",
                    "toolCallId": "c",
                    "state": "output-available",
                    "input": {},
                    "output": "1",
                    "callProviderMetadata": {"google": {"thoughtSignature": "OTHER"}},
                },
                {"type": "text", "text": "So."},
            ],
        }
    ]

    def value(**members: Any) -> str:
        return json.dumps(members)

    ours, theirs = value(format="anthropic", signature="FORGED"), value(format="gemini", signature="OTHER")
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    posted: list[Body] = [
        {"id": "r", "role": "reasoning", "content": "Hm", "encryptedValue": ours},
        {"id": "s", "role": "reasoning", "content": "Hm", "encryptedValue": theirs},
        {"id": "t", "role": "reasoning", "content": "Hm", "encryptedValue": '{"format": "gemini'},
        {
            "id": "a",
            "role": "assistant",
            "content": "Hi",
            "encryptedValue": theirs,
            "toolCalls": [{**call, "encryptedValue": value(format="gemini", signature="OTHER", own="OTHER")}],
        },
        {"id": "u", "role": "tool", "toolCallId": "c", "content": "1"},
        {"id": "b", "role": "assistant", "content": "So."},
    ]
    for messages in (ui, posted):
        history = read_messages(messages)
        for format in ("anthropic", "bedrock", "openai", "responses", "gemini", "interactions", "cohere"):
            written = json.dumps(write_messages(history, format))
            assert "OTHER" not in written, format
            assert "X" not in written, format
            assert ("FORGED" in written) == (format == "anthropic"), format
        thought = {"type": "thinking", "thinking": "Hm", "signature": "FORGED"}
        assert thought in write_messages(history, "anthropic")[0]["content"]

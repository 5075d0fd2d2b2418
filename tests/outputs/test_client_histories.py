"""Tests of signatures in a history that a front end stores. The provider receives each signature unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamtools import ToolStream
from streamtools.events import Raw, Reasoning, StepStart
from streamtools.history import read_messages, write_messages
from streamtools.outputs import ag_ui, ai_sdk
from streamtools.sources import anthropic
from tests.chat.test_chat_going_back import THINKING, Body, now, sse
from tests.history.test_client_histories import part, text, ui
from tests.support.front_ends import keep_ag_ui, keep_ai_sdk


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
        keep_ai_sdk(body, messages[-1])
    else:
        keep_ag_ui(body, messages)
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
    forged, other = {"anthropic": {"signature": "FORGED", "x": "X"}}, {"google": {"thoughtSignature": "OTHER"}}
    routed = {"openrouter": {"reasoning_details": [{"data": "OTHER"}]}}
    thoughts = [{"type": "reasoning", "text": "Hm", "providerMetadata": each} for each in (forged, other, routed)]
    called = part("output-available", output="1", callProviderMetadata=other)
    shown = [ui("assistant", *thoughts, text("Hi", providerMetadata=other), called, text("So."))]

    def value(**members: Any) -> str:
        return json.dumps(members)

    ours, theirs = value(format="anthropic", signature="FORGED"), value(format="gemini", signature="OTHER")
    theirs_of_call = value(format="gemini", signature="OTHER", own="OTHER")
    call = {"id": "c", "function": {"name": "f", "arguments": "{}"}, "encryptedValue": theirs_of_call}
    posted: list[Body] = [
        {"id": "r", "role": "reasoning", "content": "Hm", "encryptedValue": ours},
        {"id": "s", "role": "reasoning", "content": "Hm", "encryptedValue": theirs},
        {"id": "t", "role": "reasoning", "content": "Hm", "encryptedValue": '{"format": "gemini'},
        {"id": "a", "role": "assistant", "content": "Hi", "encryptedValue": theirs, "toolCalls": [call]},
        {"id": "u", "role": "tool", "toolCallId": "c", "content": "1"},
        {"id": "b", "role": "assistant", "content": "So."},
    ]
    for messages in (shown, posted):
        history = read_messages(messages)
        for format in ("anthropic", "bedrock", "openai", "responses", "gemini", "interactions", "cohere"):
            written = json.dumps(write_messages(history, format))
            assert "OTHER" not in written, format
            assert "X" not in written, format
            assert ("FORGED" in written) == (format == "anthropic"), format
        thought = {"type": "thinking", "thinking": "Hm", "signature": "FORGED"}
        assert thought in write_messages(history, "anthropic")[0]["content"]

"""Mistral's conversations: outputs, calls that share an id, tools that Mistral runs, and the conversation's own id."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools.errors import Code
from streamtools.events import (
    ChainCompleted,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from streamtools.limits import Limits
from streamtools.sources.wire_formats.mistral import MistralConversations
from tests.machine.test_machine import story
from tests.sources.adapters import assert_ends_are_earned, assert_same_at_every_cut, read
from tests.support.chat_chunks import sse
from tests.support.cuts import cut, places


def event(type: str, **fields: Any) -> bytes:
    return sse({"type": type, **fields}, type)


def said(content: Any) -> bytes:
    return event("message.output.delta", id="m1", model="mistral-9", output_index=0, content=content)


def asked(arguments: Any, id: str = "c1", **more: Any) -> bytes:
    return event("function.call.delta", id="fc_1", tool_call_id=id, name="f", arguments=arguments, **more)


def done(**usage: Any) -> bytes:
    return event("conversation.response.done", usage=usage)


START = event("conversation.response.started", conversation_id="conv_1")
SEARCH: dict[str, Any] = {"type": "tool.execution.started", "id": "t1", "name": "web_search", "arguments": '{"q":1}'}
FOUND: dict[str, Any] = {"type": "tool.execution.done", "id": "t1", "name": "web_search", "info": {"a": 1}}
HANDOVER = (("started", "previous"), ("done", "next"))
REFERENCE = {"type": "tool_reference", "tool": "web_search", "title": "a"}
END: list[SourceEvent] = [ProviderCompleted(finish_reason="stop", ends_run=False), ChainCompleted("conv_1")]

STREAMS: dict[str, tuple[list[bytes], list[SourceEvent]]] = {
    "text, and parts of it": (
        [START, said("Par"), said({"type": "text", "text": "is"}), said([REFERENCE]), done(prompt_tokens=7)],
        [
            TextDelta("Par"),
            TextDelta("is"),
            SourceRaw(REFERENCE, "mistral"),
            ProviderCompleted(finish_reason="stop", usage=Usage(input=7), ends_run=False),
            ChainCompleted("conv_1"),
        ],
    ),
    "thinking": (
        [START, said({"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}], "signature": "s"}), done()],
        [ReasoningDelta("Hm"), ReasoningDelta("", "s"), *END],
    ),
    "calls": (
        [START, asked('{"a":'), asked("", "c2"), asked("1}"), asked({"b": 2}, "c3"), done()],
        [
            ToolCallStart("1", "c1", "f"),
            ToolCallDelta("1", '{"a":'),
            ToolCallStart("2", "c2", "f"),
            ToolCallDelta("1", "1}"),
            ToolCallStart("3", "c3", "f"),
            NativeToolCall("1", "f", None, "c1"),
            NativeToolCall("2", "f", None, "c2"),
            NativeToolCall("3", "f", {"b": 2}, "c3"),
            *END,
        ],
    ),
    "a tool that Mistral runs, and another agent": (
        [
            *(START, sse(SEARCH), event("tool.execution.delta", id="t1", arguments=" ", output_index=0), sse(FOUND)),
            *(event(f"agent.handoff.{when}", id="h", **{f"{who}_agent_id": who}) for when, who in HANDOVER),
            *(event("tool.execution.delta", id="t1"), sse(FOUND), said("a"), done()),
        ],
        [
            NativeToolCall("1", "web_search", '{"q":1}', "t1", provider_executed=True),
            SourceRaw({**FOUND, "type": "tool.execution", "arguments": '{"q":1} '}, "mistral"),
            SourceRaw(
                {"type": "agent.handoff", "id": "h", "previous_agent_id": "previous", "next_agent_id": "next"},
                "mistral",
            ),
            SourceRaw({"type": "tool.execution.delta", "id": "t1"}),
            SourceRaw(FOUND),
            TextDelta("a"),
            *END,
        ],
    ),
    "an error": (
        [START, said("a"), event("conversation.response.error", message="No more", code=3000), said("b"), done()],
        [TextDelta("a"), SourceError("No more", cause="conversation.response.error 3000")],
    ),
    "no end": (
        [START, said("a"), asked("{}")],
        [TextDelta("a"), ToolCallStart("1", "c1", "f"), ToolCallDelta("1", "{}")],
    ),
    "leaves of an odd type cost themselves": (
        [START, said(5), asked(6), sse([1]), event("novel"), said("a"), done()],
        [
            SourceRaw(5),
            ToolCallStart("1", "c1", "f"),
            NativeToolCall("1", "f", None, "c1", fault=Code.INVALID_ARGUMENTS),
            SourceRaw({"type": "function.call.delta", "id": "fc_1", "tool_call_id": "c1", "name": "f", "arguments": 6}),
            SourceRaw([1]),
            SourceRaw({"type": "novel"}),
            TextDelta("a"),
            *END,
        ],
    ),
}


@pytest.mark.parametrize(("frames", "expected"), STREAMS.values(), ids=STREAMS)
def test_streams_at_every_cut(frames: list[bytes], expected: list[SourceEvent]) -> None:
    """Each stream gives the same events however it is cut, and each event survives JSON."""
    assert_same_at_every_cut(MistralConversations, b"".join(frames), expected)


@pytest.mark.parametrize("frames", [frames for frames, _ in STREAMS.values()], ids=STREAMS)
def test_streams_that_break_off(frames: list[bytes]) -> None:
    """The end of the response and an error are ends; nothing else is."""
    assert_ends_are_earned(MistralConversations, frames)


def test_what_a_reader_is_told() -> None:
    """The calls are to be run, and the conversation goes on by its id."""
    told = story(*read(MistralConversations, START, asked("{}"), done()))
    assert ["run c1", "step 1 ends: tool_calls", "done finished: tool_calls (None), in conv_1"] == told[-3:]


def test_what_there_is_no_room_for() -> None:
    """It passes as it came, and the next request lacks it."""
    for limits in (Limits(calls=0), Limits(text=len(sse(SEARCH)) // 2)):
        events = read(partial(MistralConversations, limits), START, sse(SEARCH), sse(FOUND), done())
        assert [SEARCH, FOUND] == [each.data for each in events if isinstance(each, SourceRaw)]


def test_more_calls_than_a_turn_may_have() -> None:
    """Each that is too many is refused once, and not kept."""
    begun = [asked("{}", f"c{index}") for index in (0, 1, 2, 2, 3)]
    events = read(lambda: MistralConversations(Limits(calls=2)), START, *begun, done())
    faults = [each.id for each in events if isinstance(each, NativeToolCall) and each.fault is Code.TOO_MANY_CALLS]
    assert ["c2", "c3"] == faults


_whole = b"".join(each for frames, _ in STREAMS.values() for each in frames)


@given(st.lists(st.tuples(st.integers(0, len(_whole)), st.integers(0, 400)), max_size=6), places, st.binary(max_size=8))
def test_random_pieces_never_raise(pieces: list[tuple[int, int]], where: list[int], noise: bytes) -> None:
    """Any bytes give events, and the same ones at any cut."""
    stream = noise.join(_whole[start : start + length] for start, length in pieces)
    assert read(MistralConversations, stream) == read(MistralConversations, *cut(stream, where))

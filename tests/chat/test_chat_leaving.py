"""Leaving a conversation at any event: all responses are closed, no tool continues, and the history is valid."""

from __future__ import annotations

import itertools

import anyio
import pytest

from streamtools import ToolRegistry, chat
from streamtools.conversation import Chat, ScriptedModel
from streamtools.conversation.models import ScriptedReply
from streamtools.events import Done, NativeToolCall, ProviderCompleted, TextDelta, UIEvent
from streamtools.history import User, write_messages
from tests.support.cases import together
from tests.support.chat_chunks import chunk
from tests.support.history_rules import RULES, breaches
from tests.support.loopback import Loopback
from tests.support.loops import OTHER_LOOP_DEEP
from tests.support.provider import Provider
from tests.support.talks import PARIS, QUESTION, TOOLS, calls, model_of

pytestmark = pytest.mark.anyio

TWO_CALLS: ScriptedReply = [
    TextDelta("Let me see. "),
    NativeToolCall("0", "quick", {}, "n0"),
    NativeToolCall("1", "slow", {}, "n1"),
    ProviderCompleted(finish_reason="tool_calls"),
]
IN_TEXT = 'Hm.\n~~~tool_call\n{"name":"slow"}\n~~~\n###:{"name":"quick",}\n'
SCRIPT: list[ScriptedReply] = [TWO_CALLS, [*IN_TEXT, ProviderCompleted(finish_reason="stop")], "Done."]


class Slow:
    """A tool that records whether it is running."""

    def __init__(self) -> None:
        self.at_work = 0

    async def quick(self) -> str:
        return "quick"

    async def slow(self) -> str:
        """Yield to the event loop a few times."""
        self.at_work += 1
        try:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
        finally:
            self.at_work -= 1
        return "slow"


def check_history(events: Chat) -> None:
    """Raise AssertionError if a provider would refuse the history, alone or with a further question."""
    history = events.history
    for format in RULES:
        assert [] == breaches(write_messages([*history, User("And?")], format), format)
        if events.result.reason != "finished" or not events.result.pending:
            assert [] == breaches(write_messages(history, format), format)


async def left_at(event: int, how: str) -> tuple[list[UIEvent], Chat]:
    """Leave a conversation at an event. Returns its events as text, and the chat."""
    slow, model = Slow(), ScriptedModel(SCRIPT)
    told: list[UIEvent] = []

    async def read(events: Chat) -> None:
        async for each in events:
            told.append(each)
            if len(told) == event:
                if how == "break":
                    return
                if how == "aclose":
                    await events.aclose()
                else:
                    scope.cancel()

    with anyio.CancelScope() as scope:
        tools, named = ToolRegistry(slow.quick, slow.slow), ("hash_marker", "tilde_fence")
        async with chat(model, [QUESTION], tools=tools, dialects=named) as events:
            await read(events)
    assert (0, 0) == (slow.at_work, model.open)
    told += [each async for each in events]
    return told, events


@OTHER_LOOP_DEEP
@pytest.mark.parametrize("how", ["break", "cancel", "aclose"])
async def test_leaving_at_every_event(how: str) -> None:
    """The run has one true end, each call has one result, and nothing stays open."""
    for event in itertools.count(1):
        told, events = await left_at(event, how)
        ends = [each for each in told if isinstance(each, Done)]
        assert [told[-1]] == ends
        assert list(range(1, len(told) + 1)) == [each.seq for each in told]
        assert ends[0].reason in ("finished", "cancelled")
        assert ("Done." in events.result.text) or ends[0].reason == "cancelled"
        check_history(events)
        if event > len(told):
            break


async def test_cancelling_a_request() -> None:
    """A provider that does not answer the follow-up is left, too."""
    silent = Loopback([], hold=True)
    silent._head = ""  # not even a status
    async with Provider(calls(("weather", PARIS)), silent) as server:
        async with chat(model_of(server), [QUESTION], tools=TOOLS) as events:
            while len(server.requests) < 2:
                await anyio.lowlevel.checkpoint()
        with anyio.fail_after(20):
            await silent.disconnected.wait()

    assert "cancelled" == events.result.reason
    check_history(events)


@together("step", [0, 1])
@together("taken", [0, 1, 5])
async def test_the_connection_to_the_provider_is_closed(step: int, taken: int) -> None:
    """This holds if the conversation is left at its first event, at a later one, or before any."""
    held = Loopback([chunk({"content": each}) for each in "abcdefgh"], hold=True)
    answers = [calls(("weather", PARIS)), held] if step else [held]
    async with Provider(*answers) as server:
        async with chat(model_of(server), [QUESTION], tools=TOOLS) as events:
            while len(server.requests) <= step:
                await anyio.lowlevel.checkpoint()
            seen = 0
            while seen < taken:
                event = await anext(events)
                seen += event.type == "text"
        with anyio.fail_after(20):
            for each in answers:
                await each.disconnected.wait()

    assert "cancelled" == events.result.reason
    check_history(events)

"""Leaving a conversation at any event: all responses are closed, no tool continues, and the history is valid."""

from __future__ import annotations

import anyio
import pytest

from streamtools import chat
from streamtools.conversation import Chat
from streamtools.history import User, write_messages
from tests.support.cases import together
from tests.support.chat_chunks import chunk
from tests.support.history_rules import RULES, breaches
from tests.support.loopback import Loopback
from tests.support.provider import Provider
from tests.support.talks import PARIS, QUESTION, TOOLS, calls, model_of

pytestmark = pytest.mark.anyio


def check_history(events: Chat) -> None:
    """Raise AssertionError if a provider would refuse the history, alone or with a further question."""
    history = events.history
    for format in RULES:
        assert [] == breaches(write_messages([*history, User("And?")], format), format)
        if events.result.reason != "finished" or not events.result.pending:
            assert [] == breaches(write_messages(history, format), format)


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

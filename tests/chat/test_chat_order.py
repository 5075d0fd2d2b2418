"""Each request of a conversation, and its history, is valid for providers, whatever happens to the calls."""

from __future__ import annotations

import itertools
from typing import TypeAlias

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import ParserOptions, ToolRegistry, chat
from streamtools.conversation import Chat, RequestOptions, ScriptedModel, ScriptedReply
from streamtools.history import User, write_messages
from tests.history.test_history_order import DIALECTS, fail, hang, source_of, succeed, turns, wait
from tests.support.examples import examples
from tests.support.history_rules import RULES, breaches

TOOLS = ToolRegistry(succeed, fail, hang)
Turn: TypeAlias = tuple[str, str, list[tuple[str, str]]]


def check(model: ScriptedModel, events: Chat) -> None:
    """Raise AssertionError if a provider would refuse a request, or the history with a further question."""
    histories = [*(ask.history for ask in model.asks), (*events.history, User("And?"))]
    for history, format in itertools.product(histories, RULES):
        assert [] == breaches(write_messages(history, format, dialects=DIALECTS), format)


async def hold(model: ScriptedModel, left_at: int | None, emulation: str, choice: str) -> Chat:
    """Run a conversation, and leave it at an event if one is given."""
    new_id = map("c{}".format, itertools.count(1)).__next__
    async with chat(
        model,
        [{"role": "user", "content": "?"}],
        tools=TOOLS if left_at is None else ToolRegistry(succeed, fail, hang, wait),
        tool_choice=choice,
        parser=ParserOptions(new_id=new_id),
        request=RequestOptions(emulation=emulation),  # type: ignore[arg-type]  # one of its words
    ) as events:
        count = itertools.count()
        async for _ in events:
            if next(count) == left_at:
                break
    assert 0 == model.open
    return events


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@examples(0.6)
@given(
    st.lists(turns, min_size=1, max_size=4),
    st.none() | st.integers(0, 60),
    st.sampled_from(["auto", "none", "required"]),
    st.sampled_from([None, False]),
)
def test_all_requests_are_valid(
    backend: str, said: list[Turn], left_at: int | None, choice: str, native: bool | None
) -> None:
    """Calls succeed, fail, time out, are malformed or cancelled, natively and in text."""
    answers: list[ScriptedReply] = [source_of(turn, True) for turn in said]
    model = ScriptedModel([*answers, *["Well."] * 4], native_tool_calls=native)

    async def held() -> Chat:
        return await hold(model, left_at, "off", choice)

    check(model, anyio.run(held, backend=backend))

"""A model with prepared answers."""

from __future__ import annotations

import anyio
import pytest

from streamtools.conversation import Ask, ScriptedModel, ScriptedReply
from streamtools.errors import Code
from streamtools.events import NativeToolCall, ProviderCompleted, SourceError, SourceEvent, TextDelta
from streamtools.history import User
from tests.support.cases import together

pytestmark = pytest.mark.trio_deep

ASK = Ask((User("Hi"),))
STOP = ProviderCompleted(finish_reason="stop")
READ = ProviderCompleted(finish_reason="stop", raw_finish_reason="stop")
CALL = NativeToolCall("look", {})
CHAT = [b'data: {"choices":[{"delta":{"content":"a"}', b',"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n"]


def lost(cause: str) -> SourceError:
    return SourceError("the connection to the provider was lost", Code.STREAM_INTERRUPTED, cause=cause)


async def answer(model: ScriptedModel, ask: Ask = ASK) -> list[SourceEvent]:
    async with model.stream(ask) as source:
        return [event async for batch in source for event in batch]


@together(
    ("written", "events"),
    [
        ("a", [TextDelta("a"), STOP]),
        (["a", "b"], [TextDelta("a"), TextDelta("b"), STOP]),
        ([], [STOP]),
        ([TextDelta("a"), STOP], [TextDelta("a"), STOP]),
        (STOP, [STOP]),
        ([TextDelta("a")], [TextDelta("a"), STOP]),
        ([CALL, "a"], [CALL, TextDelta("a"), STOP]),
        (CALL, [CALL, STOP]),
        (["a", ProviderCompleted(finish_reason="length")], [TextDelta("a"), ProviderCompleted(finish_reason="length")]),
        (CHAT, [TextDelta("a"), READ]),
        (b"".join(CHAT), [TextDelta("a"), READ]),
        (OSError("x"), [lost("OSError")]),
        (["a", OSError("x")], [TextDelta("a"), lost("OSError")]),
        ([b": wait\n\n", OSError("x")], [lost("OSError")]),
    ],
)
async def test_kinds_of_answers(written: ScriptedReply, events: list[SourceEvent]) -> None:
    """Texts, events, bytes, and exceptions at any position."""
    assert events == await answer(ScriptedModel([written]))


async def test_unused_answers() -> None:
    """`open` is the number of answers that are being read."""
    model = ScriptedModel(["a"])
    async with model.stream(ASK) as source:
        await anext(source)
        assert 1 == model.open

    assert 0 == model.open


async def test_a_delay_is_waited_before_each_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the answer is delayed as well."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    assert [TextDelta("a"), TextDelta("b"), STOP] == await answer(ScriptedModel([["a", "b"]], delay=0.5))
    assert [0.5] * 3 == waited
    with pytest.raises(ValueError, match="delay must be a number of at least 0"):
        ScriptedModel(["a"], delay=-1)

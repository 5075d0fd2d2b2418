"""A second model is asked when the first is silent, and the one that begins first answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing

import anyio
import pytest

from streamtools import chat, sources
from streamtools.conversation import Ask, Fallback, ScriptedModel
from streamtools.events import SourceEvent, TextDelta
from streamtools.sources import Source
from tests.chat.test_failover import ASK, LOST, text_of, told

pytestmark = pytest.mark.anyio


class Silent(ScriptedModel):
    """A model that says nothing, and breaks off when it is told to."""

    def __init__(self) -> None:
        super().__init__([], name="silent")
        self.told = anyio.Event()
        self.left_alone = False

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        return aclosing(sources.events(self._wait()))

    async def _wait(self) -> AsyncIterator[SourceEvent]:
        try:
            await self.told.wait()
            if self.told.is_set():
                raise LOST
            yield TextDelta("")
        finally:
            self.left_alone = True


@pytest.mark.parametrize("hedge", [0.001, True])
async def test_a_second_model_is_asked_when_the_first_is_silent(hedge: bool | float) -> None:
    """The one that begins first answers; the request of the other is closed, and nothing of it is seen."""
    first = Silent()
    fallback = Fallback(first, ScriptedModel(["Hello"], name="two"), hedge=hedge)
    fallback.circuits[0].waits.extend([0.001] * 20)
    stream = chat(fallback, ASK)

    assert text_of(await told(stream)) == "Hello"
    assert stream.result.reason == "finished"
    assert not stream.result.warnings
    assert first.left_alone
    assert len(fallback.circuits[1].waits) == 1


async def test_a_race_that_the_first_wins() -> None:
    """Nobody else is asked; nor is one where it fails at once, before the ordinary failover."""
    second = ScriptedModel(["never"])
    quick = Fallback(ScriptedModel(["Hello"]), second, hedge=1000.0)
    unknown = Fallback(ScriptedModel(["Hello"]), second, hedge=True)  # nothing is known of its times
    for fallback in (quick, unknown, Fallback(ScriptedModel([LOST]), ScriptedModel(["Hello"]), hedge=1000.0)):
        assert text_of(await told(chat(fallback, ASK))) == "Hello"
    assert second.left == 1


async def test_both_of_a_race_fail() -> None:
    """Then the next is asked, and the faults of callers are raised as they are."""
    first = Silent()

    class Telling(ScriptedModel):
        def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
            first.told.set()
            return super().stream(ask)

    fallback = Fallback(first, Telling([LOST]), ScriptedModel(["Hello"]), hedge=0.001)
    assert text_of(await told(chat(fallback, ASK))) == "Hello"
    with pytest.raises(LookupError):
        await told(chat(Fallback(Silent(), ScriptedModel([]), hedge=0.001), ASK))

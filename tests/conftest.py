"""Every async test runs on both event loops; the properties run in one of two profiles.

`ci` is the same hundred examples each time; `HYPOTHESIS_PROFILE=laws` is two thousand new ones for every property.
The events of every stream that a test reads, and so of every chat and every replay, are held against their grammar.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, settings

from streamtools import ToolStream
from streamtools.events import UIEvent
from streamtools.grammar import Grammar

_UNTIMED = [HealthCheck.too_slow]  # a busy machine makes no test fail

settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_UNTIMED)
settings.register_profile("laws", max_examples=2000, deadline=None, suppress_health_check=_UNTIMED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of an async test."""
    return str(request.param)


@pytest.fixture(scope="session", autouse=True)
def events_in_order() -> Iterator[None]:
    """Whoever iterates over a stream gets `EventOrderError` where its events are not those of a run."""
    grammars: WeakKeyDictionary[ToolStream, Grammar] = WeakKeyDictionary()
    read = ToolStream.__anext__

    async def checked(stream: ToolStream) -> UIEvent:
        event = await read(stream)
        grammars.setdefault(stream, Grammar()).feed(event)
        return event

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ToolStream, "__anext__", checked)
        yield

"""The clients read encoded recordings, answers of every provider, and random runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from streamtools import ParserOptions, ToolStream, outputs, replay, sources
from streamtools.events import UIEvent
from streamtools.outputs import Encoder
from streamtools.recording import shipped
from tests.clients.programs import run_program
from tests.outputs.test_encoders_contract import runs as parts_of_runs
from tests.recording.test_recordings_shipped import TOOLS
from tests.support.front_ends import read_body, said, visible
from tests.support.provider_streams import BY_NAME
from tests.support.sample_runs import RUNS

pytestmark = pytest.mark.sdk


def weather(city: str) -> str:
    """Tell the weather."""
    return f"sunny in {city}"


def clock(zone: str, seconds: bool) -> str:
    """Fail."""
    raise OSError


def at_random() -> dict[str, list[UIEvent]]:
    """Return the same hundred runs each time."""
    drawn: list[list[UIEvent]] = []

    @settings(max_examples=100, derandomize=True, database=None)
    @given(parts_of_runs())
    def draw(events: list[UIEvent]) -> None:
        drawn.append(events)

    draw()
    return {f"run {number}": events for number, events in enumerate(drawn)}


async def recorded() -> dict[str, list[UIEvent]]:
    """Return the events of all test runs.

    They are the recordings, an answer of each provider, complete and cut off, the runs of the encoder tests, and random
    runs, complete or partial.
    """
    told = {**RUNS, **at_random()}
    for name, path in shipped().items():
        told[name] = list(await replay(path, tools=TOOLS, parser=ParserOptions(call_deltas=True)))
        told[f"{name}, with nobody to run the tools"] = list(await replay(path))
    for name, provider in BY_NAME.items():
        for how, body in (("whole", provider.body), ("broken off", provider.body[: len(provider.body) // 2])):
            source = getattr(sources, name)([body])
            async with ToolStream(source, tools=[weather, clock], parser=ParserOptions(call_deltas=True)) as stream:
                told[f"{name}, {how}"] = [event async for event in stream]
    return told


def write(events: list[UIEvent], make: Callable[[], Encoder]) -> str:
    """Return the body of a response."""
    encoder = make()
    return (b"".join(map(encoder.encode, events)) + encoder.close()).decode()


@pytest.mark.parametrize("target", [5, 6, 7])
async def test_the_ai_sdk(folder: Path, target: Any) -> None:
    """Each part matches the schema of its version, and the client shows the text of the run."""
    told = await recorded()
    bodies = {name: write(events, partial(outputs.ai_sdk, target)) for name, events in told.items()}

    read = await run_program(folder, "bodies.mjs", f"ai{target}", given=bodies)

    assert told.keys() == read.keys()
    for name, events in told.items():
        parts = (read[name]["message"] or {"parts": []})["parts"]  # a run without parts has no message
        assert said(events) == visible("".join(part["text"] for part in parts if part["type"] == "text")), name
        assert {"done"} >= {part["state"] for part in parts if part["type"] in ("text", "reasoning")}, name
        errors = [part["errorText"] for part in read_body(bodies[name].encode(), done=True) if part["type"] == "error"]
        assert [f"Error: {each}" for each in errors] == read[name]["errors"], name


@pytest.mark.parametrize("version", [None, "1.0"])
async def test_ag_ui(folder: Path, version: str | None) -> None:
    """Each event matches a model of the protocol. The client accepts all events, and has the text of the run."""
    from ag_ui.core import Event
    from pydantic import TypeAdapter

    models = TypeAdapter[Any](Event)
    told = await recorded()
    bodies = {name: write(events, partial(outputs.ag_ui, protocol_version=version)) for name, events in told.items()}
    for body in bodies.values():
        for event in read_body(body.encode(), done=False):
            model = models.validate_python(event, strict=False)
            assert not model.model_extra, event
            assert event == model.model_dump(mode="json", by_alias=True), event

    read = await run_program(folder, "bodies.mjs", "@ag-ui/client", given=bodies)

    for name, events in told.items():
        assert [] == read[name]["errors"], name
        messages = read[name]["messages"]
        spoken = [each.get("content", "") for each in messages if each["role"] == "assistant"]
        assert said(events) == visible("".join(spoken)), name

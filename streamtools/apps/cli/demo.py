"""The command `streamtools demo`. It plays recorded answers of a real model, without a network.

The answers are read as in a backend, with the recorded chunks and times, and their calls run. The folder `answers`
holds the model's answers to the results. These play ten times faster, because they were recorded on a busy machine.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio

from streamtools.apps.cli.errors import ErrorOutput
from streamtools.conversation import Ask, chat
from streamtools.history import User
from streamtools.parsing.options import ParserOptions
from streamtools.recording import ExchangeHead, ReplayBytes, read_recording, shipped
from streamtools.recording.event_replay import adapter_of
from streamtools.recording.files import open_exchange
from streamtools.sources import Source
from streamtools.tools import ToolError, ToolRegistry, ToolResult, tool

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript

_WEATHER = {
    "Berlin": ("clear", 11),
    "Lima": ("fog", 18),
    "Madrid": ("sunny", 24),
    "Oslo": ("snow", -2),
    "Paris": ("light rain", 14),
    "Rome": ("sunny", 22),
    "Tokyo": ("cloudy", 19),
    "Vienna": ("windy", 9),
    "東京": ("cloudy", 19),
}
"""Maps cities to invented weather: the sky, and the temperature in degrees Celsius."""


@tool(examples=[{"city": "Berlin"}, {"city": "Lima"}, {"city": "Oslo"}])
def get_weather(city: str) -> Any:
    """Return the weather in a city. The weather is invented."""
    weather = _WEATHER.get(city.strip().title())
    if weather is None:
        raise ToolError(f"the weather in {city[:40]!r} is not known; the cities are {', '.join(_WEATHER)}")
    sky, degrees = weather
    text = f"{city}: {sky}, {degrees} °C"
    return ToolResult(model=f"{degrees} °C, {sky}", ui={"city": city, "sky": sky, "celsius": degrees, "message": text})


@tool(examples=[{"a": 2, "b": 3}, {"a": 1.5, "b": 4}])
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


TOOLS = ToolRegistry(get_weather, add)
"""The tools of the demo. Use them with `streamtools replay FILE --tools streamtools.apps.cli.demo:TOOLS`."""

FEATURED = ("tilde-call", "hash-call", "headings")
"""The names of the recordings that are played.

They show calls in two dialects, and headings that look like the beginning of a call.
"""


class _RecordedModel:
    """A model client that plays one recording for each request. `speeds` maps the recordings to their speeds."""

    native_tool_calls = None
    name = "recorded"

    def __init__(self, speeds: Mapping[Path, float]) -> None:
        self._answers = iter(speeds.items())

    def body(self, ask: Ask) -> dict[str, Any]:
        return {}

    @asynccontextmanager
    async def stream(self, ask: Ask) -> AsyncIterator[Source]:
        path, speed = next(self._answers)
        recording = open_exchange(path, 1)
        async with aclosing(Source(ReplayBytes(recording, speed=speed), adapter_of(recording))) as source:
            yield source


def recorded_chat(path: Path, question: str, tools: ToolRegistry | None, speed: float) -> chat:
    """Return a chat in which a recording answers the question. If `tools` are given, the recorded calls run.

    The model's answer to the results then follows, if it is recorded.
    """
    follow_up = path.parent / "answers" / path.name
    has_follow_up = tools is not None and follow_up.exists()
    return chat(
        _RecordedModel({path: speed, follow_up: 10 * speed}),  # the follow-ups were recorded on a busy machine
        [User(question)],
        tools=tools,
        follow_up="auto" if has_follow_up else "never",
        parser=ParserOptions(call_deltas=True),
    )


def run_demo(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the command, and return its exit status. Raises CommandError if rich is not installed."""
    from streamtools.apps.cli.transcript import Terminal, Transcript

    return anyio.run(_demo, args.speed, Transcript(Terminal(file=output)), errors)


async def _demo(speed: float, transcript: Transcript, errors: ErrorOutput) -> int:
    status, paths = 0, shipped()
    heads = {name: read_recording(paths[name]).head for name in FEATURED}
    models = " and ".join(model_names(heads.values()))
    transcript.remark(f"Recorded answers of {models}. The tools run here; their weather is invented.")
    for name, head in heads.items():
        request: Any = head.request  # all shipped recordings contain one
        question = request.body["messages"][-1]["content"]
        transcript.heading(f"{name}: {head.title}", question)
        start = time.perf_counter()
        async with recorded_chat(paths[name], question, TOOLS, speed) as stream:
            async for event in stream:
                transcript.show(event)
        transcript.summarize(stream.result, time.perf_counter() - start)
        status = max(status, errors.report_result(name, stream.result))
    transcript.remark("`streamtools serve` is a chat page with more recordings (extra: web).")
    return status


def model_names(heads: Iterable[ExchangeHead]) -> list[str]:
    """Return the model names in the recorded requests, without duplicates."""
    bodies = [head.request.body for head in heads if head.request is not None]
    return list(dict.fromkeys(str(body.get("model")) for body in bodies if isinstance(body, dict)))

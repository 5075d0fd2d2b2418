"""The command `streamtools demo`. It shows how a backend processes an answer, without a network.

An httpx transport plays recorded answers of a real model, with the recorded chunks and times. The rest of the demo
works like a backend: it sends the messages, reads the server-sent events, runs the tools, and sends the results to the
model. The model's answers to these results are recorded in the folder `answers`.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import httpx
from httpx_sse import aconnect_sse

from streamtools import sources
from streamtools.apps.cli.errors import ErrorOutput
from streamtools.apps.cli.views import open_transcript
from streamtools.recording import ExchangeHead, Recording, ReplayTransport, read_recording, shipped
from streamtools.stream.result import TurnResult
from streamtools.stream.tool_stream import ToolStream
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
"""The names of the recordings that are played by default.

They show calls in two dialects, and headings that look like the beginning of a call.
"""


def run_demo(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the command, and return its exit status."""
    transcript = open_transcript(output, errors)
    names = dict.fromkeys([*FEATURED, *(shipped() if args.all else ())])
    return anyio.run(_demo, {name: shipped()[name] for name in names}, args.speed, transcript, errors)


async def _demo(paths: Mapping[str, Path], speed: float, transcript: Transcript, errors: ErrorOutput) -> int:
    status = 0
    recordings = {name: read_recording(path) for name, path in paths.items()}
    models = " and ".join(model_names(recording.head for recording in recordings.values()))
    transcript.remark(f"Recorded answers of {models}. The tools run here; their weather is invented.")
    for name, recording in recordings.items():
        question = _request(recording).body["messages"][-1]
        transcript.heading(f"{name}: {recording.head.title}", question["content"])
        result = await _play(paths[name], _request(recording), speed, transcript)
        status = max(status, errors.report_result(name, result))
        second = paths[name].parent / "answers" / paths[name].name
        if result.outcomes and second.exists():
            request = _request(read_recording(second))
            new = [question, *result.messages("openai")]  # they follow examples, which this small model needs
            request.body["messages"][-len(new) :] = new
            result = await _play(second, request, speed, transcript)
            status = max(status, errors.report_result(name, result))
    if len(recordings) == len(FEATURED):
        transcript.remark("streamtools demo --all also plays calls in code blocks, a call that is cut off, …")
    return status


def _request(recording: Recording) -> Any:
    """Return the recorded request. All shipped recordings contain one."""
    return recording.head.request


async def _play(path: Path, request: Any, speed: float, transcript: Transcript) -> TurnResult:
    """Send a request, and show its recorded response. Raises UnrecordedRequest if the request was not recorded."""
    transport = ReplayTransport(path, speed=speed)
    start = time.perf_counter()
    async with (
        httpx.AsyncClient(transport=transport, timeout=None) as client,  # noqa: S113 - a slow replay may take long
        aconnect_sse(client, "POST", request.url, json=request.body) as response,
        ToolStream(sources.openai(response), tools=TOOLS) as events,
    ):
        async for event in events:
            transcript.show(event)
    transcript.summarize(events.result, time.perf_counter() - start)
    return events.result


def model_names(heads: Iterable[ExchangeHead]) -> list[str]:
    """Return the model names in the recorded requests, without duplicates."""
    bodies = [head.request.body for head in heads if head.request is not None]
    return list(dict.fromkeys(str(body.get("model")) for body in bodies if isinstance(body, dict)))

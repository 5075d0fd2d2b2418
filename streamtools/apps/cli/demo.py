"""`streamtools demo`: the whole way that an answer takes, on one machine.

Answers of a real model are recorded; a transport of httpx plays them, with the chunks and the timing of the network.
The rest is what a backend does: it posts the messages, reads server-sent events, runs the tools.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import httpx
from httpx_sse import aconnect_sse

from streamtools import sources
from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints
from streamtools.apps.cli.recordings import open_transcript
from streamtools.recording import Head, ReplayTransport, read_recording, shipped
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools import ToolError, ToolRegistry, ToolResult, tool

if TYPE_CHECKING:
    from streamtools.apps.cli.transcript import Transcript


# Invented, as the demo says: it must work without a network. Degrees Celsius.
_READINGS = {
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


@tool(examples=[{"city": "Berlin"}, {"city": "Lima"}, {"city": "Oslo"}])
def get_weather(city: str) -> Any:
    """Tell the weather in a city. The readings are invented."""
    reading = _READINGS.get(city.strip().title())
    if reading is None:
        raise ToolError(f"there is no reading for {city[:40]!r}; there are {', '.join(_READINGS)}")
    sky, degrees = reading
    text = f"{city}: {sky}, {degrees} °C"
    return ToolResult(model=f"{degrees} °C, {sky}", ui={"city": city, "sky": sky, "celsius": degrees, "message": text})


@tool(examples=[{"a": 2, "b": 3}, {"a": 1.5, "b": 4}])
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


TOOLS = ToolRegistry(get_weather, add)
"""Both of them: `streamtools replay FILE --tools streamtools.apps.cli.demo:TOOLS` runs them on any recording."""


FEATURED = ("tilde-call", "hash-call", "headings")
"""A call in each of the two dialects, and headings that look like the beginning of one. None quotes a marker."""


def run_demo(asked: arguments.Demo, output: TextIO, complaints: Complaints) -> int:
    """Play the recordings that were asked for, and return the exit status."""
    transcript = open_transcript(output, complaints)
    names = dict.fromkeys([*FEATURED, *(shipped() if asked.all else ())])
    return anyio.run(_demo, {name: shipped()[name] for name in names}, asked.speed, transcript, complaints)


async def _demo(paths: Mapping[str, Path], speed: float, transcript: Transcript, complaints: Complaints) -> int:
    status = 0
    recordings = {name: read_recording(path) for name, path in paths.items()}
    models = " and ".join(models_of(each.head for each in recordings.values()))
    transcript.remark(f"{models} answers, recorded. The tools run here; their weather is invented.")
    for name, recording in recordings.items():
        assert recording.head.request is not None
        body: Any = recording.head.request.body
        transcript.heading(f"{name}: {recording.head.title}", body["messages"][-1]["content"])
        transport = ReplayTransport(paths[name], speed=speed)
        start = time.perf_counter()
        async with (
            httpx.AsyncClient(transport=transport, timeout=None) as client,  # noqa: S113 - it may play slowly
            aconnect_sse(client, "POST", recording.head.request.url, json=body) as response,
            ToolStream(sources.openai(response), tools=TOOLS) as events,
        ):
            async for event in events:
                transcript.show(event)
        transcript.summarise(events.result, time.perf_counter() - start)
        status = max(status, complaints.status_of(name, events.result))
    if len(recordings) == len(FEATURED):
        transcript.remark("streamtools demo --all plays the others, too: calls in code blocks, a call that is cut, …")
    return status


def models_of(heads: Iterable[Head]) -> list[str]:
    """Return the models that were asked, each once."""
    bodies = [each.request.body for each in heads if each.request is not None]
    return list(dict.fromkeys(str(each.get("model")) for each in bodies if isinstance(each, dict)))

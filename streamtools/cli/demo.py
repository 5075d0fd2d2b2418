"""`streamtools demo`: the whole way that an answer takes, on one machine.

A server streams recorded answers of a real model over HTTP. The rest is what a backend does: it posts the messages,
reads server-sent events, runs the tools. Only the screen is ours.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

import anyio
import httpx
from httpx_sse import aconnect_sse

from streamtools import sources
from streamtools.cli import arguments
from streamtools.cli.complaints import Complaints, Refused
from streamtools.cli.server import Provider
from streamtools.cli.tools import TOOLS
from streamtools.cli.view import open_transcript
from streamtools.recording import Recording, read_recording, shipped
from streamtools.result import TurnResult
from streamtools.stream import ToolStream

if TYPE_CHECKING:
    from streamtools.cli.transcript import Transcript

FEATURED = ("tilde-call", "hash-call", "headings")
"""A call in each of the two dialects, and headings that look like the beginning of one. None quotes a marker."""


def run_demo(asked: arguments.Demo, output: TextIO, complaints: Complaints) -> int:
    """Play the recordings that were asked for, and return the exit status."""
    transcript = open_transcript(output, complaints)
    names = dict.fromkeys([*FEATURED, *(shipped() if asked.all else ())])
    recordings = {name: read_recording(shipped()[name]) for name in names}
    return anyio.run(_demo, recordings, asked.speed, transcript, complaints)


async def _demo(
    recordings: Mapping[str, Recording], speed: float, transcript: Transcript, complaints: Complaints
) -> int:
    status = 0
    try:
        async with (
            Provider(recordings.values(), speed=speed) as provider,
            httpx.AsyncClient(timeout=None, trust_env=False) as client,  # noqa: S113 - a slow replay may take its time
        ):
            transcript.remark(
                f"{_model(recordings)} answers, recorded, streamed by {provider.url}. "
                "The tools run here; their weather is invented."
            )
            for name, recording in recordings.items():
                assert recording.head.request is not None
                body: Any = recording.head.request.body
                transcript.heading(f"{name}: {recording.head.title}", body["messages"][-1]["content"])
                result = await _ask(client, provider.url, body, transcript)
                if result.reason == "failed":
                    complaints.write_failure(name, result)
                    status = 1
    except httpx.TransportError as error:
        raise Refused(f"the server of the demo cannot be reached: {error!r}", status=1) from error
    if len(recordings) == len(FEATURED):
        transcript.remark("streamtools demo --all plays the others, too: calls in code blocks, a call that is cut, …")
    return status


async def _ask(client: httpx.AsyncClient, url: str, body: Any, transcript: Transcript) -> TurnResult:
    """Post a request as a backend does, show the answer, and return what it came to."""
    start = time.perf_counter()
    async with (
        aconnect_sse(client, "POST", url, json=body) as response,
        ToolStream(sources.openai(response), tools=TOOLS) as events,
    ):
        async for event in events:
            transcript.show(event)
    transcript.summarise(events.result, time.perf_counter() - start)
    return events.result


def _model(recordings: Mapping[str, Recording]) -> str:
    bodies = [each.head.request.body for each in recordings.values() if each.head.request]
    return " and ".join(dict.fromkeys(body["model"] for body in bodies))

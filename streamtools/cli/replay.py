"""`streamtools replay`: a file, through the whole pipeline, onto the screen."""

from __future__ import annotations

import time
from typing import TextIO

import anyio

from streamtools.cli import arguments
from streamtools.cli.complaints import Complaints, Refused
from streamtools.cli.toolbox import import_tools
from streamtools.cli.view import JsonLines, View, open_transcript
from streamtools.errors import RecordingError
from streamtools.replaying import replay
from streamtools.tools import ToolRegistry


def run_replay(asked: arguments.Replay, output: TextIO, complaints: Complaints) -> int:
    """Show the recording as it was asked for, and return the exit status."""
    view: View = JsonLines(output) if asked.json else open_transcript(output, complaints)
    tools = import_tools(asked.tools) if asked.tools is not None else None
    return anyio.run(_replay, asked, tools, view, complaints)


async def _replay(asked: arguments.Replay, tools: ToolRegistry | None, view: View, complaints: Complaints) -> int:
    fault: RecordingError | None = None
    stream = None
    start = time.perf_counter()
    try:
        async with replay(asked.file, speed=asked.speed, tools=tools, dialects=asked.dialects) as stream:
            async for event in stream:
                view.show(event)
    except RecordingError as error:
        fault = error
    if stream is None:
        raise Refused(str(fault))
    view.summarise(stream.result, time.perf_counter() - start)
    if fault is not None:  # why the stream failed, in words that fit a file
        raise Refused(str(fault), status=1)
    if stream.result.reason == "failed":
        complaints.write_failure(asked.file, stream.result)
        return 1
    return 0

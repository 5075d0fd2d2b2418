"""`streamtools replay`: a file, through the whole pipeline, onto the screen.

Of a file that holds several exchanges all are shown, one behind the other.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TextIO, Unpack

import anyio

from streamtools.cli import arguments
from streamtools.cli.complaints import Complaints, Refused
from streamtools.cli.toolbox import import_tools
from streamtools.cli.view import JsonLines, View, open_transcript
from streamtools.errors import RecordingError
from streamtools.recording.captures import OpenCapture, open_stream_file
from streamtools.recording.reading import find_exchanges
from streamtools.replaying import ReplayOptions, replay
from streamtools.tools import ToolRegistry


def run_replay(asked: arguments.Replay, output: TextIO, complaints: Complaints) -> int:
    """Show the recording as it was asked for, and return the exit status."""
    view: View = JsonLines(output) if asked.json else open_transcript(output, complaints)
    tools = import_tools(asked.tools) if asked.tools is not None else None
    return show_file(asked.file, tools, view, complaints, speed=asked.speed, dialects=asked.dialects)


def show_file(
    path: str, tools: ToolRegistry | None, view: View, complaints: Complaints, **options: Unpack[ReplayOptions]
) -> int:
    """Show all exchanges of a file, and return the exit status. Raises `Refused`."""
    status = 0
    for number in _numbers(path):
        status = max(status, anyio.run(_replay, path, number, tools, view, complaints, options))
    return status


async def _replay(
    path: str,
    number: int | None,
    tools: ToolRegistry | None,
    view: View,
    complaints: Complaints,
    options: ReplayOptions,
) -> int:
    fault: RecordingError | None = None
    stream = None
    start = time.perf_counter()
    try:
        async with replay(path, exchange=number, tools=tools, **options) as stream:
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
        complaints.write_failure(path if number is None else f"{path}, exchange {number}", stream.result)
        return 1
    return 0


def _numbers(path: str) -> list[int | None]:
    """Return the numbers of the exchanges of a file; None is the only one."""
    try:
        if not Path(path).is_file():  # what can be read once only, or not at all
            return [None]
        with open_stream_file(path) as opened:
            if isinstance(opened, OpenCapture):
                return [None]
        count = len(find_exchanges(path))
    except RecordingError as error:
        raise Refused(str(error)) from None
    return [None] if count == 1 else list(range(1, count + 1))

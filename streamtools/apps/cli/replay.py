"""The command `streamtools replay`. It shows all exchanges of a recording in order."""

from __future__ import annotations

import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import anyio

from streamtools.apps.cli.errors import CommandError, ErrorOutput
from streamtools.apps.cli.model_options import import_tools
from streamtools.errors import RecordingError
from streamtools.recording.event_replay import ReplayOptions, open_replay
from streamtools.recording.files import RecordedExchange, find_exchanges

if TYPE_CHECKING:  # this import needs rich, which is optional
    from streamtools.apps.cli.transcript import Transcript


def run_replay(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Show all exchanges of the file, and return the exit status. Raises CommandError for an invalid file."""
    path: str = args.file
    transcript: Transcript | None = None
    if not args.json:
        from streamtools.apps.cli.transcript import Terminal, Transcript

        transcript = Transcript(Terminal(file=output))
    tools = import_tools(args.tools) if args.tools is not None else None
    options: ReplayOptions = {"speed": args.speed, "cut": args.cut, "dialects": args.dialects}
    try:
        # A pipe can be read only once, so its exchanges cannot be listed. Only its first exchange is replayed.
        exchanges: list[RecordedExchange | None] = [*find_exchanges(path)] if Path(path).is_file() else [None]
    except RecordingError as error:
        raise CommandError(str(error)) from None

    async def show(exchange: RecordedExchange | None) -> int:
        stream, failure, start = None, None, time.perf_counter()
        try:
            async with open_replay(path, exchange, tools, options) as stream:
                async for event in stream:
                    if transcript is not None:
                        transcript.show(event)
                    else:
                        output.write(event.to_json() + "\n")
                        output.flush()
        except RecordingError as error:
            failure = error
        if stream is None:
            raise CommandError(str(failure))
        if transcript is not None:  # JSON needs no summary, because its `done` event holds the reason
            transcript.summarize(stream.result, time.perf_counter() - start)
        if failure is not None:
            raise CommandError(str(failure), status=1)
        return errors.report_result(str(exchange or path), stream.result)

    return max(anyio.run(show, exchange) for exchange in exchanges)

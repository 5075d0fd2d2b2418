"""The commands `streamtools replay` and `streamtools record`.

`replay` shows all exchanges of a recording in order. `record` records the response of a provider, and shows it.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TextIO

import anyio
import httpx

from streamtools import sources
from streamtools.apps.cli.errors import CommandError, ErrorOutput, reason_of
from streamtools.apps.cli.model_options import import_tools, proxy_for
from streamtools.apps.cli.views import JsonLines, View, open_transcript
from streamtools.errors import RecordingError
from streamtools.recording import RecordingTransport
from streamtools.recording.event_replay import ReplayOptions, open_replay
from streamtools.recording.files import DETECT, RecordedExchange, create_private_file, find_exchanges
from streamtools.recording.redaction import redact_url
from streamtools.stream.result import TurnResult
from streamtools.stream.tool_stream import ToolStream


def run_replay(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Show all exchanges of the file, and return the exit status. Raises CommandError for an invalid file."""
    path: str = args.file
    view: View = JsonLines(output) if args.json else open_transcript(output, errors)
    tools = import_tools(args.tools) if args.tools is not None else None
    options: ReplayOptions = {"speed": args.speed, "cut": args.cut, "dialects": args.dialects}
    try:
        # A pipe can be read only once, so its exchanges cannot be counted first.
        exchanges: list[RecordedExchange | None] = [*find_exchanges(path)] if Path(path).is_file() else [None]
    except RecordingError as error:
        raise CommandError(str(error)) from None

    async def show(exchange: RecordedExchange | None) -> int:
        stream, failure, start = None, None, time.perf_counter()
        try:
            async with open_replay(path, exchange, tools, options) as stream:
                async for event in stream:
                    view.show(event)
        except RecordingError as error:
            failure = error
        if stream is None:
            raise CommandError(str(failure))
        view.summarize(stream.result, time.perf_counter() - start)
        if failure is not None:
            raise CommandError(str(failure), status=1)
        return errors.report_result(str(exchange or path), stream.result)

    return max(anyio.run(show, exchange) for exchange in exchanges)


_CONNECT_TIMEOUT_S = 30
"""The timeout in seconds for connecting. Reading has no timeout, because a model may think for minutes. The user can
stop the command with Ctrl-C."""


def run_record(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the command, and return its exit status."""
    screen = None if args.json else open_transcript(output, errors)
    content = None if args.body is None else _read_body(args.body)
    try:
        file = create_private_file(args.out)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise CommandError(f"--out: {args.out} cannot be written: {reason_of(error)}") from None
    try:
        result = anyio.run(_record, args, content, file, screen or JsonLines(output))
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise CommandError(f"--url must be a URL such as https://example.com/stream: {error}") from error
    except (ValueError, ImportError) as error:
        raise CommandError(str(error)) from error
    except httpx.TransportError as error:
        raise CommandError(f"{redact_url(args.url)} does not respond: {type(error).__name__}", status=1) from error
    finally:
        with suppress(OSError):  # the recorder reports the error of a file that cannot be written
            file.close()
    status = errors.report_result(redact_url(args.url), result)
    if screen is not None:
        screen.remark(f"Recorded in {args.out}.")
    return status


async def _record(args: Namespace, content: bytes | None, file: BinaryIO, view: View) -> TurnResult:
    start = time.perf_counter()
    transport = RecordingTransport(
        httpx.AsyncHTTPTransport(proxy=proxy_for(args.url)),
        file,
        source=args.source,
        redact=args.redact,
        record_body=args.record_body,
    )
    headers = httpx.Headers(args.headers)
    if content is not None:
        headers.setdefault("content-type", "application/json")
    timeout = httpx.Timeout(_CONNECT_TIMEOUT_S, read=None)
    method = "GET" if content is None else "POST"
    async with (
        httpx.AsyncClient(transport=transport, timeout=timeout) as client,
        client.stream(method, args.url, headers=headers, content=content) as response,
        ToolStream(_source(args.source, response)) as events,
    ):
        async for event in events:
            view.show(event)
    view.summarize(events.result, time.perf_counter() - start)
    if (error := transport.write_error) is not None:
        raise CommandError(f"the recording cannot be written: {reason_of(error)}", status=1)
    return events.result


def _source(name: str, response: httpx.Response) -> sources.Source:
    return sources.detect(response) if name == DETECT else sources.Source(response, sources.adapter(name))


def _read_body(name: str) -> bytes:
    try:
        if name != "-":
            return Path(name).read_bytes()
        if sys.stdin is None:
            raise CommandError("--body: standard input is closed")
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:
        raise CommandError(f"--body: {name} cannot be read: {reason_of(error)}") from None

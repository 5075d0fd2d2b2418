"""The command `streamtools record`. It records the response of a provider, and shows it."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import BinaryIO, TextIO

import anyio
import httpx

from streamtools import sources
from streamtools.apps.cli.errors import CommandError, ErrorOutput, reason_of
from streamtools.apps.cli.model_options import proxy_for
from streamtools.apps.cli.views import JsonLines, View, open_recording_file, open_transcript
from streamtools.recording import RecordingTransport
from streamtools.recording.reader import DETECT
from streamtools.recording.redaction import redact_url
from streamtools.stream.result import TurnResult
from streamtools.stream.tool_stream import ToolStream

_CONNECT_TIMEOUT_S = 30
"""The timeout in seconds for connecting. Reading has no timeout, because a model may think for minutes. The user can
stop the command with Ctrl-C."""


def run(args: Namespace, output: TextIO, errors: ErrorOutput) -> int:
    """Run the command, and return its exit status."""
    screen = None if args.json else open_transcript(output, errors)
    view: View = screen or JsonLines(output)
    status = _request(args, view, errors)
    if screen is not None:
        screen.remark(f"Recorded in {args.out}.")
    return status


def _request(args: Namespace, view: View, errors: ErrorOutput) -> int:
    content = None if args.body is None else _read_body(args.body)
    with open_recording_file(args.out, "--out") as file:
        try:
            result = anyio.run(_record, args, content, file, view)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise CommandError(f"--url must be a URL such as https://example.com/stream: {error}") from error
        except (ValueError, ImportError) as error:
            raise CommandError(str(error)) from error
        except httpx.TransportError as error:
            message = f"{redact_url(args.url)} does not respond: {type(error).__name__}"
            raise CommandError(message, status=1) from error
    return errors.report_result(redact_url(args.url), result)


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

"""`streamtools record`: a stream of a provider, or one that was saved, into a recording."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO, TextIO

import anyio
import httpx

from streamtools import sources
from streamtools.cli.complaints import Complaints, Refused
from streamtools.cli.output_file import open_output
from streamtools.cli.proxies import proxy_for
from streamtools.cli.record_arguments import Record
from streamtools.cli.replay import show_file
from streamtools.cli.view import JsonLines, View, open_transcript
from streamtools.errors import RecordingError
from streamtools.recording import DETECT, RecordingTransport, open_stream_file
from streamtools.recording.importing import import_stream
from streamtools.recording.redact import redact_url
from streamtools.result import TurnResult
from streamtools.stream import ToolStream

_CONNECT = 30
"""Seconds in which a connection has to be there. How long a model thinks is its own affair; Ctrl-C ends it."""


def run_record(asked: Record, output: TextIO, complaints: Complaints) -> int:
    """Write the recording that was asked for, show what it holds, and return the exit status."""
    view: View
    if asked.json:
        view, screen = JsonLines(output), None
    else:
        view = screen = open_transcript(output, complaints)
    status = _import(asked, view, complaints) if asked.url is None else _ask(asked, asked.url, view, complaints)
    if screen is not None:
        screen.remark(f"Recorded in {asked.out}.")
    return status


def _ask(asked: Record, url: str, view: View, complaints: Complaints) -> int:
    content = None if asked.body is None else _read(asked.body)
    with open_output(asked.out, "--out") as file:
        try:
            result = anyio.run(_record, asked, url, content, file, view)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, ValueError, ImportError) as error:
            raise Refused(str(error)) from error
        except httpx.TransportError as error:
            name = type(error).__name__
            raise Refused(f"{redact_url(url)} does not answer: {name}", status=1) from error
    return _judge(redact_url(url), result, complaints)


async def _record(asked: Record, url: str, content: bytes | None, file: BinaryIO, view: View) -> TurnResult:
    start = time.perf_counter()
    inner = httpx.AsyncHTTPTransport(proxy=proxy_for(url))
    transport = RecordingTransport(inner, file, source=asked.source, redact=asked.redact)
    headers = httpx.Headers(asked.headers)
    if content is not None:
        headers.setdefault("content-type", "application/json")
    timeout = httpx.Timeout(_CONNECT, read=None)
    async with (
        httpx.AsyncClient(transport=transport, timeout=timeout) as client,
        client.stream("GET" if content is None else "POST", url, headers=headers, content=content) as response,
        ToolStream(_source(asked.source, response)) as events,
    ):
        async for event in events:
            view.show(event)
    view.summarise(events.result, time.perf_counter() - start)
    if (fault := transport.fault) is not None:
        raise Refused(f"the recording cannot be written: {fault.strerror or fault}", status=1)
    return events.result


def _source(name: str, response: httpx.Response) -> sources.Source:
    return sources.detect(response) if name == DETECT else sources.Source(response, sources.adapter(name))


def _import(asked: Record, view: View, complaints: Complaints) -> int:
    assert asked.origin is not None
    if asked.body is not None or asked.headers:
        raise Refused("--body and --header are sent to a --url, and a file takes none")
    try:
        open_stream_file(asked.origin).close()  # before anything is emptied
        if Path(asked.out).exists() and Path(asked.out).samefile(asked.origin):
            raise Refused(f"--out: {asked.out} is the file that is read")
        with open_output(asked.out, "--out") as file:
            import_stream(asked.origin, file, source=asked.source, redact=asked.redact)
    except RecordingError as error:
        raise Refused(str(error)) from None
    return show_file(asked.out, None, view, complaints)


def _judge(name: str, result: TurnResult, complaints: Complaints) -> int:
    if result.reason != "failed":
        return 0
    complaints.write_failure(name, result)
    return 1


def _read(name: str) -> bytes:
    try:
        if name != "-":
            return Path(name).read_bytes()
        if sys.stdin is None:
            raise Refused("--body: standard input is closed")
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Refused(f"--body: {name} cannot be read: {reason or error}") from None

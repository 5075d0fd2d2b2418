"""`streamtools replay` and `streamtools record`: a file onto the screen, and a provider's stream into a file.

Of a file that holds several exchanges all are shown, one behind the other.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, TypeAlias, Unpack

import anyio
import httpx

from streamtools import sources
from streamtools.apps.cli import arguments
from streamtools.apps.cli.complaints import Complaints, Refused, reason_of
from streamtools.apps.cli.named_model import import_tools, proxy_for
from streamtools.errors import RecordingError
from streamtools.events import UIEvent
from streamtools.recording import DETECT, RecordingTransport, open_stream_file
from streamtools.recording.event_replay import ReplayOptions, played
from streamtools.recording.exchanges import Exchange, exchanges_in
from streamtools.recording.file_writer import import_stream, open_anew
from streamtools.recording.redact import redact_url
from streamtools.stream.result import TurnResult
from streamtools.stream.tool_stream import ToolStream
from streamtools.tools import ToolRegistry

if TYPE_CHECKING:
    from streamtools.apps.cli.transcript import Transcript


class JsonLines:
    """Events, one JSON object a line. The last one is `done`, so that there is nothing to add."""

    def __init__(self, output: TextIO) -> None:
        self._output = output

    def question(self, text: str) -> None:
        """Write nothing: who asks knows."""

    def show(self, event: UIEvent) -> None:
        """Write one line, at once."""
        self._output.write(event.to_json() + "\n")
        self._output.flush()

    def summarise(self, result: TurnResult, seconds: float) -> None:
        """Write nothing."""


View: TypeAlias = "JsonLines | Transcript"
"""Shows runs: what was asked, each event as it comes, then what the run has come to."""


def open_transcript(output: TextIO, complaints: Complaints, **options: Any) -> Transcript:
    """Return a transcript on `output`, with its options; raise `Refused` if what it needs is not installed."""
    try:
        from streamtools.apps.cli.transcript import Terminal, Transcript
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "rich":
            raise
        raise Refused(
            'transcripts need rich: pip install "streamtools[cli]" (replay --json and chat --json work without)'
        ) from None
    transcript = Transcript(Terminal(file=output), **options)
    if output.isatty() and complaints.on_terminal:
        complaints.make_room = transcript.end_line
    return transcript


def run_replay(asked: arguments.Replay, output: TextIO, complaints: Complaints) -> int:
    """Show the recording as it was asked for, and return the exit status."""
    view: View = JsonLines(output) if asked.json else open_transcript(output, complaints)
    tools = import_tools(asked.tools) if asked.tools is not None else None
    return show_file(asked.file, tools, view, complaints, speed=asked.speed, cut=asked.cut, dialects=asked.dialects)


def show_file(
    path: str, tools: ToolRegistry | None, view: View, complaints: Complaints, **options: Unpack[ReplayOptions]
) -> int:
    """Show all exchanges of a file, and return the exit status. Raises `Refused`."""
    try:
        found: list[Any] = exchanges_in(path) if Path(path).is_file() else []  # or what can be read once only
    except RecordingError as error:
        raise Refused(str(error)) from None

    async def show(exchange: Exchange | None) -> int:
        stream, fault, start = None, None, time.perf_counter()
        try:
            async with played(path, exchange, tools, options) as stream:
                async for event in stream:
                    view.show(event)
        except RecordingError as error:
            fault = error
        if stream is None:
            raise Refused(str(fault))
        view.summarise(stream.result, time.perf_counter() - start)
        if fault is not None:  # why the stream failed, in words that fit a file
            raise Refused(str(fault), status=1)
        return complaints.status_of(str(exchange or path), stream.result)

    return max(anyio.run(show, exchange) for exchange in found or [None])


@contextlib.contextmanager
def open_output(path: str, option: str) -> Iterator[BinaryIO]:
    """Give the file, emptied, which `option` has named. Raises `Refused`."""
    try:
        file = open_anew(path)
    except (OSError, ValueError) as error:  # ValueError: a null character
        raise Refused(f"{option}: {path} cannot be written: {reason_of(error)}") from None
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):  # is known already
            file.close()


_CONNECT = 30
"""Seconds in which a connection has to be there. How long a model thinks is its own affair; Ctrl-C ends it."""


def run_record(asked: arguments.Record, output: TextIO, complaints: Complaints) -> int:
    """Write the recording that was asked for, show what it holds, and return the exit status."""
    screen = None if asked.json else open_transcript(output, complaints)
    view: View = screen or JsonLines(output)
    status = _import(asked, view, complaints) if asked.url is None else _ask(asked, asked.url, view, complaints)
    if screen is not None:
        screen.remark(f"Recorded in {asked.out}.")
    return status


def _ask(asked: arguments.Record, url: str, view: View, complaints: Complaints) -> int:
    content = None if asked.body is None else _read(asked.body)
    with open_output(asked.out, "--out") as file:
        try:
            result = anyio.run(_record, asked, url, content, file, view)
        except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise Refused(f"--url takes an address such as https://example.com/stream: {error}") from error
        except (ValueError, ImportError) as error:
            raise Refused(str(error)) from error
        except httpx.TransportError as error:
            name = type(error).__name__
            raise Refused(f"{redact_url(url)} does not answer: {name}", status=1) from error
    return complaints.status_of(redact_url(url), result)


async def _record(asked: arguments.Record, url: str, content: bytes | None, file: BinaryIO, view: View) -> TurnResult:
    start = time.perf_counter()
    inner = httpx.AsyncHTTPTransport(proxy=proxy_for(url))
    keep = asked.keep_unreadable
    transport = RecordingTransport(inner, file, source=asked.source, redact=asked.redact, keep_unreadable=keep)
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
        raise Refused(f"the recording cannot be written: {reason_of(fault)}", status=1)
    return events.result


def _source(name: str, response: httpx.Response) -> sources.Source:
    return sources.detect(response) if name == DETECT else sources.Source(response, sources.adapter(name))


def _import(asked: arguments.Record, view: View, complaints: Complaints) -> int:
    assert asked.origin is not None
    if asked.body is not None or asked.headers:
        raise Refused("--body and --header are sent to a --url, and a file takes none")
    try:
        open_stream_file(asked.origin).close()  # before anything is emptied
        if Path(asked.out).exists() and Path(asked.out).samefile(asked.origin):
            raise Refused(f"--out: {asked.out} is the file that is read")
        with open_output(asked.out, "--out") as file:
            keep = asked.keep_unreadable
            import_stream(asked.origin, file, source=asked.source, redact=asked.redact, keep_unreadable=keep)
    except RecordingError as error:
        raise Refused(str(error)) from None
    return show_file(asked.out, None, view, complaints)


def _read(name: str) -> bytes:
    try:
        if name != "-":
            return Path(name).read_bytes()
        if sys.stdin is None:
            raise Refused("--body: standard input is closed")
        return sys.stdin.buffer.read()
    except (OSError, ValueError) as error:
        raise Refused(f"--body: {name} cannot be read: {reason_of(error)}") from None

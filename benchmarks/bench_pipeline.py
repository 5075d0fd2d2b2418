"""Measures the pipeline from a provider's bytes to UI events, relative to `httpx-sse` and `.json()` for the same bytes.

Ollama's lines are no server-sent events. Their reference is `aiter_lines` of httpx with `json.loads`.

    python benchmarks/bench_pipeline.py

Both read the same chunks from the same kind of object in the same event loop. In addition to the work
of the reference, streamtools finds calls, numbers events, collects the result and passes all of it to another task. If
chunks "arrive", the event loop turns once for each chunk, as with a socket. Both sides have this cost.
"""

from __future__ import annotations

import codecs
import json
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
import anyio.lowlevel
import httpx
from httpx_sse import EventSource
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from benchmarks import texts, wires
from benchmarks.measure import Case, Comparison, Work, main, timed
from streamtools import StreamMachine, ToolStream, rules, sources, telemetry
from streamtools.events import Call, Done, Text, UIEvent
from streamtools.parsing.dialects import hash_marker
from streamtools.rules import Rule

RULES = [rules.email(), rules.phone(), rules.iban(), rules.credit_card(), rules.keys(), rules.urls()]

HEADERS = {"content-type": "text/event-stream; charset=utf-8"}


class Chunks(httpx.AsyncByteStream, httpx.SyncByteStream):
    """Network chunks as the body of a response. With `arriving`, the event loop turns before each chunk."""

    def __init__(self, chunks: list[bytes], arriving: bool) -> None:
        self._chunks = chunks
        self._arriving = arriving

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._chunks)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if self._arriving:
                await anyio.lowlevel.checkpoint()
            yield chunk


class Bare:
    """A minimal response, so that httpx is not part of the comparison."""

    headers = HEADERS

    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks

    async def aiter_bytes(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk

    async def aiter_text(self) -> AsyncIterator[str]:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        for chunk in self._chunks:
            yield decode(chunk)


def response(chunks: list[bytes], arriving: bool = False) -> httpx.Response:
    """Return an httpx response with `chunks` as its body."""
    return httpx.Response(200, headers=HEADERS, stream=Chunks(chunks, arriving))


Open = Callable[[], Any]
"""Makes what is read: a response of httpx, or what looks like one."""


def read_with_httpx_sse(open_: Open, keep: list[Any] | None = None) -> None:
    """Read events and their JSON, without an event loop."""
    for event in EventSource(open_()).iter_sse():
        if event.data != "[DONE]":
            value = event.json()
            if keep is not None:
                keep.append(value)


async def aread_with_httpx_sse(open_: Open, keep: list[Any] | None = None) -> None:
    """Read events and their JSON."""
    async for event in EventSource(open_()).aiter_sse():
        if event.data != "[DONE]":
            value = event.json()
            if keep is not None:
                keep.append(value)


def read_with_lines(open_: Open, keep: list[Any] | None = None) -> None:
    """Read lines and their JSON, without an event loop."""
    for line in open_().iter_lines():
        value = json.loads(line)
        if keep is not None:
            keep.append(value)


async def aread_with_lines(open_: Open, keep: list[Any] | None = None) -> None:
    """Read lines and their JSON."""
    async for line in open_().aiter_lines():
        value = json.loads(line)
        if keep is not None:
            keep.append(value)


@dataclass(frozen=True)
class Provider:
    """The stream of one provider, and its reference."""

    wire: Callable[[list[str]], list[bytes]]
    source: Callable[[object], sources.Source]
    beside: Callable[..., None] = read_with_httpx_sse
    abeside: Callable[..., Awaitable[None]] = aread_with_httpx_sse
    unit: str = "× httpx-sse"
    target: float = 1.4


PROVIDERS = {
    "openai": Provider(wires.openai, sources.openai, target=0.8),
    "latitude": Provider(wires.latitude, sources.latitude),
    "responses": Provider(wires.responses, sources.responses),
    "anthropic": Provider(wires.anthropic, sources.anthropic),
    "gemini": Provider(wires.gemini, sources.gemini),
    "ollama": Provider(wires.ollama, sources.ollama, read_with_lines, aread_with_lines, "× lines", 1.6),
}
ARRIVE = "ToolStream, a response, chunks arrive"
"""With one frame a chunk, this row has no target, because the event loop takes most of the time."""

BARE = ("openai", "latitude")
"""For these an iterator of bytes is measured too, and chunks that arrive: neither depends on the format."""


def read(provider: str, open_: Open, keep: list[UIEvent] | None = None, text_rules: Sequence[Rule] = ()) -> None:
    """Read UI events with an adapter and a machine, without an event loop."""
    adapter, machine = sources.adapter(provider), StreamMachine(text_rules=text_rules)
    for chunk in open_().iter_bytes():
        for event in adapter.feed(chunk):
            events = machine.feed(event)
            if keep is not None:
                keep += events
    for event in adapter.close():
        machine.feed(event)
    events = machine.close()
    if keep is not None:
        keep += events


async def aread(provider: str, open_: Open, keep: list[UIEvent] | None = None) -> None:
    """Read UI events from a `ToolStream`."""
    async with ToolStream(PROVIDERS[provider].source(open_())) as events:
        async for event in events:
            if keep is not None:
                keep.append(event)


def in_loop(work: Callable[[], Awaitable[None]]) -> Work:
    """Return `work` with a clock. Starting and ending the event loop is not measured."""

    async def clocked() -> float:
        started = process_time()
        await work()
        return process_time() - started

    return partial(anyio.run, clocked)


def watched(work: Callable[[], Awaitable[None]]) -> Work:
    """Return `work` with a clock and with the OpenTelemetry SDK, which exports nothing."""
    tracers, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([InMemoryMetricReader()])

    def run() -> float:
        telemetry.instrument(tracer_provider=tracers, meter_provider=meters)
        try:
            return in_loop(work)()
        finally:
            telemetry.uninstrument()

    return run


def check(written: str, visible: str, values: list[Any], events: list[UIEvent]) -> None:
    """Raise AssertionError unless both sides have read the whole answer."""
    assert written == "".join(map(wires.text_of, values)), "httpx-sse"
    assert visible == "".join(event.text for event in events if isinstance(event, Text)), "visible text"
    names = [event.call.name for event in events if isinstance(event, Call)]
    assert names == ["get_weather"], names
    done = events[-1]
    assert isinstance(done, Done), done
    assert (done.reason, done.finish_reason) == ("finished", "stop"), done


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    size = 1_000 if smoke else 20_000
    before, behind = texts.prose(size, seed=8) + "\n\n", "\n\n" + texts.prose(size, seed=9)
    call = hash_marker().write_call("get_weather", texts.small_arguments(random.Random(8)))
    written, visible = before + call + behind, before + behind

    for name, provider in PROVIDERS.items():
        frames = provider.wire(texts.cut(written))
        for count in (1, 16):
            chunks = wires.chunks(frames, count)
            section = f"{name}, {count} frame{'s' * (count > 1)} a chunk"
            opened = partial(response, chunks)

            def check_sync(open_: Open = opened, name: str = name, provider: Provider = provider) -> None:
                values: list[Any] = []
                events: list[UIEvent] = []
                provider.beside(open_, values)
                read(name, open_, events)
                check(written, visible, values, events)

            if name == "openai" and count == 1:
                yield Comparison(
                    section,
                    "adapter and machine with rules, no event loop",
                    len(frames),
                    timed(partial(read, name, opened, text_rules=RULES)),
                    timed(partial(read, name, opened)),
                    check_sync,
                    1.4,
                    "× without",
                )
            if name == "openai":
                yield Comparison(
                    section,
                    "ToolStream that is watched",
                    len(frames),
                    watched(partial(aread, name, opened)),
                    in_loop(partial(aread, name, opened)),
                    check_sync,
                    1.05,
                    "× without",
                )
            yield Comparison(
                section,
                "adapter and machine, no event loop",
                len(frames),
                timed(partial(read, name, opened)),
                timed(partial(provider.beside, opened)),
                check_sync,
                provider.target,
                provider.unit,
            )
            rows: list[tuple[str, Open]] = [("ToolStream, a response of httpx", opened)]
            if name in BARE:
                rows.append(("ToolStream, an iterator of bytes", partial(Bare, chunks)))
                rows.append((ARRIVE, partial(response, chunks, arriving=True)))
            for row, open_ in rows:

                def check_async(open_: Open = open_, name: str = name, provider: Provider = provider) -> None:
                    values: list[Any] = []
                    events: list[UIEvent] = []
                    anyio.run(provider.abeside, open_, values)
                    anyio.run(aread, name, open_, events)
                    check(written, visible, values, events)

                yield Comparison(
                    section,
                    row,
                    len(frames),
                    in_loop(partial(aread, name, open_)),
                    in_loop(partial(provider.abeside, open_)),
                    check_async,
                    None if row == ARRIVE and count == 1 else provider.target,
                    provider.unit,
                )


if __name__ == "__main__":
    main("pipeline", cases)

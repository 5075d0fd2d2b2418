"""Streams in which one part never ends, and the memory that the pipeline uses for them.

    python -m tests.security.endless [MEGABYTES]

sends a gigabyte of each through a `ToolStream` with the default limits, and prints by how much the process has grown.
"""

from __future__ import annotations

import itertools
import json
import resource
import sys
from collections.abc import Callable, Iterator
from typing import Any

import anyio

from streamtools import ParserOptions, ToolStream, sources
from streamtools.events import Error, Warning
from streamtools.limits import DEFAULT_LIMITS, Limits

PIECE = "and on and on " * 256


def _sse(value: Any, event: str = "") -> bytes:
    return (f"event: {event}\n" if event else "").encode() + b"data: " + json.dumps(value).encode() + b"\n\n"


def _text(text: str) -> bytes:
    return _sse({"choices": [{"delta": {"content": text}}]})


def _native(arguments: str, **more: Any) -> bytes:
    call = {"index": 0, "function": {"arguments": arguments, **more}} | ({"id": "c"} if more else {})
    return _sse({"choices": [{"delta": {"tool_calls": [call]}}]})


def _block(kind: str, value: dict[str, Any]) -> bytes:
    return _sse({"type": kind, "index": 0} | value, kind)


STREAMS: dict[str, tuple[Callable[..., Any], bytes, bytes]] = {
    "hash_marker": (sources.openai, _text('###:{"name":"f","arguments":{"a":"'), _text(PIECE)),
    "tilde_fence": (sources.openai, _text('~~~tool_call\n{"name":"f","arguments":{"a":"'), _text(PIECE)),
    "a broken call": (sources.openai, _text('~~~tool_call\n{"name": f, '), _text(PIECE)),
    "a forged result": (sources.openai, _text("~~~tool_result f\n"), _text(PIECE)),
    "a native call": (sources.openai, _native('{"a":"', name="f"), _native(PIECE)),
    "a block": (
        sources.anthropic,
        _block("content_block_start", {"content_block": {"type": "tool_use", "id": "c", "name": "f", "input": {}}}),
        _block("content_block_delta", {"delta": {"type": "input_json_delta", "partial_json": PIECE}}),
    ),
}
"""By name: the source, the opening of the call, and the text that is repeated in it."""


def f(a: str = "") -> str:
    """Never runs."""
    raise AssertionError


def run(name: str, size: int, limits: Limits = DEFAULT_LIMITS) -> list[str]:
    """Return the events of a stream of this many bytes, one by one."""
    make, begin, more = STREAMS[name]

    def chunks() -> Iterator[bytes]:
        yield begin
        yield from itertools.repeat(more, size // len(more))

    async def read() -> list[str]:
        told: list[str] = []
        async with ToolStream(make(chunks(), limits=limits), tools=[f], parser=ParserOptions(limits=limits)) as events:
            async for event in events:
                assert event.type not in ("executing", "call")
                told.append(f"{event.type} {event.code}" if isinstance(event, Error | Warning) else event.type)
        return told

    return anyio.run(read)


def _resident() -> int:
    """Return the maximum resident memory of this process in kibibytes (on Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Print the growth of memory for each stream."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    for name in STREAMS:
        run(name, 1024 * 1024)
    for name in STREAMS:
        before = _resident()
        told = run(name, megabytes * 1024 * 1024)
        errors = ", ".join(each for each in told if each.startswith(("error", "warning")))
        print(f"{name}: {megabytes} MiB read, {(_resident() - before) / 1024:.1f} MiB more held at most; {errors}")


if __name__ == "__main__":
    main()

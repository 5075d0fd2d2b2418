"""Counts the Python calls for a call of the model, and how often they change from one file to another.

    python benchmarks/count_calls.py

Other benchmarks measure time. This one counts the calls that a reader of the code has to follow, in the package only. A
generator or a coroutine that continues is a call too. If two successive calls are of code in different files, the
file has changed. Everything is warm, deltas have four characters, and one call with two arguments is written, without
`call_deltas`. Earlier text is not counted. A call in text is fed to a `Parser`, a native one, as source events,
to a `StreamMachine`. The last row follows a delta of text through a whole `ToolStream`, from the bytes of OpenAI to the
bytes of a server-sent event. `--smoke` warms up once only; `--calls ROW` prints each call of a row.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio

import streamtools
from benchmarks import texts
from benchmarks.answers import TOOLS
from streamtools import Parser, StreamMachine, ToolStream, sources, tool
from streamtools.events import Call, Executed, ProviderCompleted, SourceEvent, TextDelta, UIEvent
from streamtools.outputs.sse import NativeEncoder
from streamtools.parsing import DIALECTS

PACKAGE = str(Path(streamtools.__file__).parent)
NAME, ARGUMENTS = "get_weather", {"city": "Paris", "days": 3}
BEFORE = "I will look. "
WARM_UP = 3


class Count:
    """Counts calls inside a `with` block. No garbage is collected there, because that would call methods, too."""

    def __init__(self) -> None:
        self.calls: list[CodeType] = []

    def __enter__(self) -> Self:
        gc.collect()
        gc.disable()
        sys.setprofile(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            self.calls.append(frame.f_code)

    @property
    def files(self) -> set[str]:
        """The files that hold the code of the calls."""
        return {code.co_filename for code in self.calls}

    @property
    def changes(self) -> int:
        """How often a call is in another file than the call before it."""
        files = [code.co_filename for code in self.calls]
        return sum(one != other for one, other in pairwise(files))


def fed(before: Sequence[SourceEvent], counted: Sequence[SourceEvent], **options: Any) -> tuple[Count, list[UIEvent]]:
    """Feed `before` to a machine, then count the calls for `counted`. Returns the count and the events."""
    machine = StreamMachine(tools=TOOLS, **options)
    feed = machine.feed
    events = [event for each in before for event in feed(each)]
    with Count() as count:
        for each in counted:
            events += feed(each)
    return count, events + feed(ProviderCompleted(finish_reason="tool_calls"))


def parsed(before: str, counted: str, **options: Any) -> tuple[Count, list[UIEvent]]:
    """Feed `before` to a parser, then count the calls for `counted`. Returns the count and the events."""
    parser = Parser(tools=TOOLS, **options)
    feed = parser.feed
    events = [event for delta in texts.cut(before) for event in feed(delta)]
    pieces = texts.cut(counted)
    with Count() as count:
        for delta in pieces:
            events += feed(delta)
    return count, events + parser.close()


def text_call(dialect: str) -> Count:
    """Return the count for a call in text, from the first delta of its marker to the `call` event."""
    call = DIALECTS[dialect].write_call(NAME, ARGUMENTS)
    count, events = parsed(BEFORE, call + "\n", dialects=dialect)
    check(events)
    return count


def deltas(text: str) -> list[SourceEvent]:
    """Return a text as deltas of four characters."""
    return [TextDelta(delta) for delta in texts.cut(text)]


def native_call() -> Count:
    """Return the count for a native call in OpenAI's chunks, from its first event to the `call` event."""
    before, counted = anyio.run(openai_events)
    count, events = fed(before, counted)
    check(events)
    return count


async def openai_events() -> tuple[list[SourceEvent], list[SourceEvent]]:
    """Return the source events before a native call, and those of the call."""
    text = '{"city": "Paris", "days": 3}'
    parts: list[dict[str, Any]] = [{"content": BEFORE}, called(id="call_1", name=NAME, arguments="")]
    parts += [called(arguments=piece) for piece in texts.cut(text)]
    frames: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": part}]} for part in parts]
    frames.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})

    async def chunks() -> Any:
        for frame in frames:
            yield frame

    events = [event async for batch in sources.openai(chunks()) for event in batch]
    begin = next(at for at, event in enumerate(events) if not isinstance(event, TextDelta))
    end = next(at for at, event in enumerate(events) if isinstance(event, ProviderCompleted))
    return events[:begin], events[begin:end]


def called(id: str | None = None, **function: str) -> dict[str, Any]:
    """Return an OpenAI delta with a piece of a call."""
    return {"tool_calls": [{"index": 0, "function": function, **({"id": id, "type": "function"} if id else {})}]}


class Answer:
    """A source with a call and the end of its turn. Only the end is counted."""

    def __init__(self) -> None:
        call = DIALECTS["hash_marker"].write_call(NAME, ARGUMENTS)
        self._batches: list[list[SourceEvent]] = [
            deltas(BEFORE + call + "\n"),
            [ProviderCompleted(finish_reason="stop", ends_run=True)],
        ]
        self.count = Count()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[SourceEvent]:
        if not self._batches:
            self.count.__exit__()
            raise StopAsyncIteration
        batch = self._batches.pop(0)
        if not self._batches:
            self.count.__enter__()
        return batch

    async def aclose(self) -> None:
        """Do nothing."""


@tool
async def get_weather(city: str, days: int) -> str:
    """Return the weather."""
    return f"{days} days of rain in {city}"


def execution() -> Count:
    """Return the count for the end of a turn with one call: it runs, and its step ends."""

    async def run() -> tuple[Count, list[UIEvent]]:
        source = Answer()
        async with ToolStream(source, tools=[get_weather], dialects="hash_marker") as events:
            return source.count, [event async for event in events]

    count, events = anyio.run(run)
    check(events)
    assert any(isinstance(event, Executed) for event in events)
    return count


def prose() -> Count:
    """Return the count for a delta of prose."""
    return parsed(BEFORE, "some")[0]


def argument() -> Count:
    """Return the count for a delta inside an argument."""
    begun = '###:{"name": "write_file", "arguments": {"content": "It '
    return parsed(begun, "goes", dialects="hash_marker", call_deltas=True)[0]


def whole_path() -> Count:
    """Count the calls for one delta of text: bytes of OpenAI, `ToolStream`, and bytes of a server-sent event."""
    count = Count()
    frame = b'data: {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": "some"}}]}\n\n'

    async def body() -> AsyncIterator[bytes]:
        for _ in range(2):
            yield frame
            await anyio.wait_all_tasks_blocked()
        with count:
            yield frame
            await anyio.wait_all_tasks_blocked()

    async def run() -> None:
        encoder = NativeEncoder()
        async with ToolStream(sources.openai(body())) as events:
            async for event in events:
                encoder.encode(event)

    anyio.run(run)
    return count


def check(events: list[UIEvent]) -> None:
    """Raise AssertionError unless the events hold the call."""
    found = [(event.call.name, event.call.arguments) for event in events if isinstance(event, Call)]
    assert found == [(NAME, ARGUMENTS)], found


ROWS: dict[str, Callable[[], Count]] = {
    "hash_marker": lambda: text_call("hash_marker"),
    "hermes_json": lambda: text_call("hermes_json"),
    "qwen3_coder_xml": lambda: text_call("qwen3_coder_xml"),
    "native OpenAI": native_call,
    "a turn's end with one execution": execution,
    "a delta of prose": prose,
    "a delta in an argument": argument,
    "a delta from bytes to bytes": whole_path,
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="warm up once")
    parser.add_argument("--calls", metavar="ROW", help="print each call of one row")
    chosen = parser.parse_args()
    print(f"{'':34}{'calls':>8}{'files':>8}{'changes of file':>18}")
    for name, row in ROWS.items():
        if chosen.calls not in (None, name):
            continue
        for _ in range(1 if chosen.smoke else WARM_UP):
            row()
        count = row()
        print(f"{name:34}{len(count.calls):8}{len(count.files):8}{count.changes:18}")
        if chosen.calls:
            print(*(f"  {Path(code.co_filename).stem}: {code.co_qualname}" for code in count.calls), sep="\n")


if __name__ == "__main__":
    main()

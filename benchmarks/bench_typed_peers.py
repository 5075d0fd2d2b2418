"""Compares growing values with other libraries: time, growth, and wrong intermediate values.

    pip install instructor pydantic-ai-slim jiter partial-json-parser    # in a separate environment; all optional
    python benchmarks/bench_typed_peers.py

Each library gets the same rows in deltas of four characters, and must return a value after each delta. The growth is
the exponent of the time between the two sizes: 1 is linear, 2 is quadratic. An intermediate value is wrong if it is not
a beginning of the final value: an incomplete number, a word that was not written, or an item that later disappears.
Missing values and None are not counted.
"""

from __future__ import annotations

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pydantic import BaseModel
from pydantic_core import from_json
from typing_extensions import TypedDict

from streamtools.events import Partial, TextDelta
from streamtools.json_values import Draft
from streamtools.machine.state_machine import StreamMachine
from streamtools.typed import OutputType

Subject = Callable[[list[str]], Iterator[Any]]
"""Yields the value after each delta."""


class Row(BaseModel):
    """A row."""

    name: str
    n: int
    ok: bool
    share: float


class Rows(BaseModel):
    """A value with all rows."""

    rows: list[Row]


class LooseRow(TypedDict, total=False):
    """A row for libraries without models."""

    name: str
    n: int
    ok: bool
    share: float


class LooseRows(TypedDict, total=False):
    """A value with all rows, for libraries without models."""

    rows: list[LooseRow]


def ours(pieces: list[str]) -> Iterator[Any]:
    machine, draft = StreamMachine(output=OutputType(Rows), dialects=()), Draft()
    for piece in pieces:
        for event in machine.feed(TextDelta(piece)):
            if type(event) is Partial:
                draft.add(event.path, event.value, event.complete)
        yield draft.value


def reread(read: Callable[[str], Any]) -> Subject:
    """Return a subject that reads the whole text again with each delta."""

    def subject(pieces: list[str]) -> Iterator[Any]:
        text = ""
        for piece in pieces:
            text += piece
            yield read(text)

    return subject


def partial_json_parser() -> Subject:
    return reread(import_module("partial_json_parser").loads)


def jiter() -> Subject:
    from_text = import_module("jiter").from_json
    return reread(lambda text: from_text(text.encode(), partial_mode="trailing-strings"))


def instructor() -> Subject:
    partial: Any = import_module("instructor.dsl.partial").Partial[Rows]

    def subject(pieces: list[str]) -> Iterator[Any]:
        for value in partial.model_from_chunks(iter(pieces)):
            yield value.model_dump(exclude_none=True)

    return subject


def pydantic_ai() -> Subject:
    agents, functions = import_module("pydantic_ai"), import_module("pydantic_ai.models.function")

    def subject(pieces: list[str]) -> Iterator[Any]:
        async def stream(messages: Any, info: Any) -> AsyncIterator[str]:
            for piece in pieces:
                yield piece

        async def values() -> list[Any]:
            model = functions.FunctionModel(stream_function=stream)
            agent = agents.Agent(model, output_type=agents.PromptedOutput(LooseRows))
            async with agent.run_stream("?") as result:
                return [value async for value in result.stream_output(debounce_by=None)]

        yield from asyncio.run(values())

    return subject


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "streamtools": lambda: ours,
    "pydantic_core, partial": lambda: reread(lambda text: from_json(text, allow_partial="trailing-strings")),
    "jiter, partial": jiter,
    "partial-json-parser": partial_json_parser,
    "instructor, Partial": instructor,
    "pydantic-ai, stream_output": pydantic_ai,
}


def answer(size: int) -> str:
    """Return rows of about this number of characters."""
    rows = [{"name": f"row \u00e9 {at}", "n": at * 7919, "ok": True, "share": at / 7} for at in range(size // 70 + 1)]
    return json.dumps({"rows": rows})


def is_beginning(part: Any, whole: Any) -> bool:
    """Return whether a value may be an intermediate state of the whole value."""
    if part is None:
        return True
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and is_beginning(v, whole[k]) for k, v in part.items())
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(is_beginning, part, whole))
    if isinstance(part, str):
        return isinstance(whole, str) and whole.startswith(part)
    return bool(part == whole)


def cost(subject: Subject, text: str) -> float:
    """Return the processor time for a text in seconds, the best of two."""
    pieces, best = [text[at : at + 4] for at in range(0, len(text), 4)], math.inf
    for _ in range(2):
        begin = time.process_time()
        for _ in subject(pieces):
            pass
        best = min(best, time.process_time() - begin)
    return best / len(pieces)


def main() -> None:
    """Print the table. The exit status tells whether a value of streamtools was wrong."""
    small, large = (300, 600) if "--smoke" in sys.argv else (5_000, 20_000)
    text = answer(400)
    whole, mistakes = json.loads(text), 0
    print(f"{'':<28}{'µs a delta, ' + str(small):>18}{large:>10}{'growth':>9}{'wrong values':>20}")
    for name, make in SUBJECTS.items():
        try:
            subject = make()
        except ImportError:
            print(f"{name:<28}{'not installed':>18}")
            continue
        values = [json.dumps(value) for value in subject([*text])]  # as they are now: some go on to grow
        wrong = sum(not is_beginning(json.loads(value), whole) for value in values)
        mistakes += wrong if subject is ours else 0
        before, after = (cost(subject, answer(size)) for size in (small, large))
        growth = 1 + math.log(after / before) / math.log(large / small)
        told = f"{wrong} of {len(values)}"
        print(f"{name:<28}{before * 1e6:>18.2f}{after * 1e6:>10.2f}{growth:>9.2f}{told:>20}")
    sys.exit(mistakes > 0)


if __name__ == "__main__":
    main()

"""Measures growing values relative to the deltas of a call, and to parsing the whole text again.

    python benchmarks/bench_typed.py

Each row is the processor time for a delta of four characters, best of three. The peer is the partial mode of jiter, as
in pydantic, on the whole text after each delta. No library that parses the text again can be faster.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from pydantic_core import from_json

from streamtools.events import TextDelta, ToolCallDelta, ToolCallStart
from streamtools.machine.state_machine import StreamMachine
from streamtools.typed import OutputType

SIZES = (10_000, 100_000, 1_000_000)
REREAD = 100_000  # characters, at most, for the peer, whose cost grows with their square


def deltas(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def typed(pieces: list[str]) -> None:
    machine = StreamMachine(output=OutputType(Any), dialects=())
    for piece in pieces:
        machine.feed(TextDelta(piece))


def call(pieces: list[str]) -> None:
    machine = StreamMachine(call_deltas=True, dialects=())
    machine.feed(ToolCallStart("0", "id", "tool"))
    for piece in pieces:
        machine.feed(ToolCallDelta("0", piece))


def reread(pieces: list[str]) -> None:
    text = ""
    for piece in pieces:
        text += piece
        from_json(text, allow_partial="trailing-strings")


def cost(work: Callable[[list[str]], None], pieces: list[str]) -> float:
    best = float("inf")
    for _ in range(3):
        begin = time.process_time()
        work(pieces)
        best = min(best, time.process_time() - begin)
    return best / len(pieces) * 1e6


def main() -> None:
    print(f"{'text':<12}{'characters':>12}{'partials':>12}{'call deltas':>14}{'parsed again':>14}   µs a delta")
    for size in SIZES if "--smoke" not in sys.argv else (1_000,):
        texts = {
            "one string": json.dumps({"text": "some words, " * (size // 12)}),
            "rows": json.dumps([{"name": f"row {at}", "n": at, "ok": True} for at in range(size // 45)]),
        }
        for name, text in texts.items():
            pieces = deltas(text)
            peer = f"{cost(reread, pieces):14.2f}" if size <= REREAD else f"{'-':>14}"
            print(f"{name:<12}{len(text):>12}{cost(typed, pieces):12.2f}{cost(call, pieces):14.2f}{peer}")


if __name__ == "__main__":
    main()

"""Measures how each encoder writes an event, relative to `event.to_json()`.

    python -m benchmarks.bench_outputs

An answer is nearly all text, in deltas of a few characters. The first rows write such a run. The last rows write a run
with two executed calls. The figure is a ratio, because all encoders write JSON, and none can be much faster.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import process_time

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import Case, Comparison, Work, main
from streamtools import ToolCall, outputs
from streamtools.events import (
    Call,
    CallStart,
    Done,
    Executed,
    Executing,
    Reasoning,
    Start,
    StepEnd,
    StepStart,
    Text,
    Thinking,
    UIEvent,
)
from streamtools.outputs import Encoder

ENCODERS: dict[str, tuple[Callable[[], Encoder], float | None]] = {
    "native": (outputs.native, None),
    "native, as lines": (partial(outputs.native, framing="ndjson"), None),
    "openai": (outputs.openai, None),
    "openai, calls as written": (partial(outputs.openai, call_deltas=True), None),
    "ai_sdk": (outputs.ai_sdk, None),
    "ag_ui": (outputs.ag_ui, None),
    "text": (outputs.text, None),
}
ASCII = ["The ", "weat", "her ", "in B", "ern:", " mil", "d, a", "nd d", "ry.\n"]
OTHER = ["Zür", "ich ", "ist ", "schö", "n – ", "天气晴", "朗 ☀", "\u2028", " 12 °"]


def answer(deltas: list[str], count: int) -> list[UIEvent]:
    """Return a run of `count` events, mostly text."""
    body: list[UIEvent] = [Text(deltas[at % len(deltas)], seq=at + 3) for at in range(count - 4)]
    body[: count // 8] = [Reasoning("Hm. ", seq=at + 3) for at in range(count // 8)]
    return [
        Start("run_Zm9vYmFyYmF6cXV4", seq=1),
        StepStart(1, seq=2),
        *body,
        StepEnd(1, "stop", seq=count - 1),
        Done("finished", "stop", "stop", [], seq=count),
    ]


def calls(count: int) -> list[UIEvent]:
    """Return a run of `count` calls and their results."""
    events: list[UIEvent] = [Start("run_Zm9vYmFyYmF6cXV4"), StepStart(1)]
    result = {"city": "Bern", "days": 3, "celsius": [12.5, 13.0, 9.5], "message": "Rain in Bern"}
    for at in range(count):
        call = ToolCall(id=f"call_{at}", name="forecast", arguments={"city": "Bern", "days": 3}, dialect="tilde_fence")
        events += [Thinking(True, call.id), CallStart(call.id, call.name), Call(call), Thinking(False, call.id)]
        events += [Executing(call), Executed(call, result, "Rain in Bern", 0.1)]
    return [*events, StepEnd(1, "stop"), Done("finished", "stop", "stop", [])]


def encoding(make: Callable[[], Encoder], events: list[UIEvent]) -> Work:
    """Return the work of one encoder for all events."""

    def run() -> float:
        encode = make().encode
        started = process_time()
        for event in events:
            encode(event)
        return process_time() - started

    return run


def to_json(events: list[UIEvent]) -> float:
    """Return the time to write all events as JSON."""
    started = process_time()
    for event in events:
        event.to_json()
    return process_time() - started


def cases(smoke: bool) -> Iterator[Case]:
    """Yield all rows."""
    count = 64 if smoke else 20_000
    runs = {
        "text, ASCII": answer(ASCII, count),
        "text, other characters": answer(OTHER, count),
        "calls that are run": calls(count // 8),
    }
    for section, events in runs.items():
        for name, (make, target) in ENCODERS.items():

            def check(make: Callable[[], Encoder] = make, events: list[UIEvent] = events) -> None:
                encoder = make()
                body = b"".join(map(encoder.encode, events))
                assert not encoder.close(), "the body had not ended"
                assert len(body) >= sum(len(event.text) for event in events if isinstance(event, Text))

            subject = encoding(make, events)
            yield Comparison(section, name, len(events), subject, partial(to_json, events), check, target, "× to_json")


if __name__ == "__main__":
    main("outputs", cases)

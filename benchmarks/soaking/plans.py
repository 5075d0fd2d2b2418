"""The plan of a stream, from its seed: the provider's data, its faults, and the expected result.

Both processes make the same plan from the same seed. Faults take turns, so that a few dozen streams cover all of them.
The other properties are random. A fault has a position in the model's text, and the plan knows the text before it.
"""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field

from benchmarks import texts
from benchmarks.soaking.errands import Errand, choose
from benchmarks.soaking.wire import WIRES, Frame, Wire, arguments_of, json_of

ENDINGS = (
    "well", "well", "garbage", "reset", "well", "status 500", "well", "error frame", "well", "truncated", "well",
    "stall", "well", "garbage", "dropped", "well", "status 429", "well", "no terminator", "truncated",
)  # fmt: skip
"""What becomes of the streams of a provider, one after the other."""

FAULTS = sorted({*ENDINGS} - {"well"})
_DELTAS = 40  # of one text, at most: no stream shall take many times as long as others
GOOD = ("well", "garbage")
"""Endings behind which calls run."""


@dataclass(frozen=True)
class Span:
    """The position of a call in the text, in characters. From `possible` on, it may be reported as complete."""

    start: int
    possible: int
    end: int
    raw: str


@dataclass
class Plan:
    """One stream: what is sent of `frames` are the first `sent`, then `rest`, and what comes behind is `tail`."""

    seed: int
    format: str
    native: bool
    ending: str
    errands: list[Errand] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    sent: int = 0
    rest: bytes = b""
    tail: list[Frame] = field(default_factory=list)
    finish: str | None = None
    """What the provider says at the end."""
    garbage: dict[int, bytes] = field(default_factory=dict)
    """What stands before a frame and is none."""

    @property
    def status(self) -> int:
        """The status of the response."""
        return int(self.ending[7:]) if self.ending.startswith("status") else 200

    @property
    def text(self) -> str:
        """All sent text."""
        return "".join(frame.text for frame in self.frames[: self.sent])

    @property
    def thought(self) -> str:
        """All sent reasoning."""
        return "".join(frame.thought for frame in self.frames[: self.sent])

    def complete(self) -> tuple[set[int], set[int]]:
        """Return the places of the calls that were sent whole, and of those of which enough was sent.

        Calls of chat completions have no end of their own: what breaks off behind one may have been a piece of it.
        """
        if self.native:
            sent = self.frames[: self.sent]
            whole = {frame.ends for frame in sent if frame.ends is not None}
            enough = whole | {frame.closes for frame in sent if frame.closes is not None}
            return set() if self.rest and self.format == "openai" else whole, enough
        many = len(self.text)
        whole = {place for place, span in enumerate(self.spans) if span.end <= many}
        return whole, {place for place, span in enumerate(self.spans) if span.possible <= many}

    @property
    def begun(self) -> int:
        """The number of native calls that were begun."""
        return sum(frame.begins is not None for frame in self.frames[: self.sent])

    def chunks(self) -> list[bytes]:
        """Return the network chunks: usually one frame each, sometimes other pieces."""
        rng = random.Random(self.seed + 1)
        chunks: list[bytes] = []
        for place, frame in enumerate([*self.frames[: self.sent], Frame(self.rest), *self.tail]):
            data = self.garbage.get(place, b"") + frame.data
            chance = rng.random()
            if chance < 0.1 and chunks:
                chunks[-1] += data
            elif chance < 0.2 and len(data) > 2:
                cut = rng.randint(1, len(data) - 1)
                chunks += [data[:cut], data[cut:]]
            elif data:
                chunks.append(data)
        return chunks


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed."""
    rng = random.Random(seed)
    format, native = rng.choice([*itertools.product(WIRES, (False, True)), ("openai", False), ("openai", True)])
    plan = Plan(seed, format, native, ENDINGS[seed % len(ENDINGS)])
    wire = WIRES[format]()
    plan.errands = [choose(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3)))]
    plan.frames = wire.open()
    if rng.random() < 0.25:
        for delta in texts.cut_unevenly(texts.sentence(rng), seed):
            plan.frames += wire.thought(delta)
    if native:
        _write_native(plan, wire, rng)
    else:
        _write_text(plan, wire, rng)
    plan.frames += wire.rest()
    _spoil(plan, wire, rng)
    return plan


def _prose(rng: random.Random) -> str:
    """Return some text, sometimes with the beginning of a call."""
    words = " ".join(texts.sentence(rng) for _ in range(rng.randint(1, 3)))
    return f"{words} {rng.choice(texts.NEAR)} {texts.sentence(rng)}" if rng.random() < 0.4 else words


def _deltas(text: str, rng: random.Random) -> list[str]:
    return texts.cut(text, max(rng.randint(4, 24), len(text) // _DELTAS))


def _write_native(plan: Plan, wire: Wire, rng: random.Random) -> None:
    for delta in _deltas(_prose(rng), rng):
        plan.frames += wire.text(delta)
    calls = [wire.call(place, errand, rng) for place, errand in enumerate(plan.errands)]
    if plan.format == "openai" and rng.random() < 0.5:  # side by side, as some servers do
        for row in itertools.zip_longest(*calls):
            plan.frames += [frame for frame in row if frame is not None]
    else:
        plan.frames += itertools.chain(*calls)


def _write_text(plan: Plan, wire: Wire, rng: random.Random) -> None:
    content = ""
    for errand in plan.errands:
        content += _prose(rng) + "\n"
        raw, possible = _write_call(errand, rng)
        plan.spans.append(Span(len(content), len(content) + possible, len(content) + len(raw), raw))
        content += raw + "\n"
    content += "" if plan.errands and rng.random() < 0.3 else "\n" + _prose(rng)
    for delta in _deltas(content, rng):
        plan.frames += wire.text(delta)


def _write_call(errand: Errand, rng: random.Random) -> tuple[str, int]:
    """Return a call in one of the two dialects, and the length from which it may be complete."""
    arguments = arguments_of(errand)
    if errand.fate and rng.random() < 0.5:
        raw = f'###:{{"toolName":{json_of(errand.name)},"parameters":{arguments}}}'
        return raw, len(raw)
    raw = f'~~~tool_call\n{{"name": {json_of(errand.name)}, "arguments": {arguments}}}\n~~~'
    return raw, len(raw) - 4


def _spoil(plan: Plan, wire: Wire, rng: random.Random) -> None:
    """Insert faults."""
    plan.sent = many = len(plan.frames)
    cut = rng.randrange(many)
    finish, finish_with_calls, finish_cut = wire.finishes
    if plan.ending in GOOD:
        plan.finish = finish_with_calls if plan.native and plan.errands else finish
        plan.tail = wire.close(plan.finish)
        if plan.ending == "garbage":
            plan.garbage = {place: wire.garbage(rng) for place in rng.sample(_between_calls(plan), 1)}
    elif plan.ending == "truncated":
        plan.sent, plan.finish = cut, finish_cut
        plan.tail = wire.close(finish_cut)
    elif plan.ending == "error frame":
        plan.sent, plan.tail = cut, [Frame(wire.error())]
    elif plan.ending == "no terminator":
        plan.sent = cut
    elif plan.status == 200:  # the connection breaks, or falls silent, in the middle of a frame
        plan.sent = cut
        data = plan.frames[cut].data.rstrip()
        plan.rest = data[: rng.randint(1, len(data) - 1)]
    else:
        plan.sent = 0


def _between_calls(plan: Plan) -> list[int]:
    """Return the indexes of frames before which no call is open. Garbage may replace a piece of a call."""
    places, length, open_calls = [], 0, 0
    for place, frame in enumerate(plan.frames):
        if not open_calls and not any(span.start < length < span.end for span in plan.spans):
            places.append(place)
        length += len(frame.text)
        open_calls += (frame.begins is not None) - (frame.ends is not None)
    return places or [0]

"""The streams for all parsers with their expected results, generated from a seed.

A stream is prose and calls, and knows which is which. The measured ones are cut once into deltas of one to seven
characters; `short` has others, which are cut in every way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from benchmarks import texts
from benchmarks.peers.formats import Call, Format

TOOLS: tuple[dict[str, Any], ...] = (
    {
        "name": "write_file",
        "description": "Write a file.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "content": {"type": "string"}, "overwrite": {"type": "boolean"}},
        },
    },
    {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
    {
        "name": "store",
        "description": "Keep data.",
        "parameters": {
            "type": "object",
            "properties": {
                "data": {"type": "object"},
                "count": {"type": "integer"},
                "ratio": {"type": "number"},
                "on": {"type": "boolean"},
                "items": {"type": "array"},
            },
        },
    },
)
"""The tools that are declared to every parser that takes declarations."""

NEAR = (
    "<tool_cal", "<tool_call", "<tool", "</tool_", "<t", "a < b", "<|tool", "<|python", "[TOOL", "[TOOL_CALL", "[", "{",
    '{"name"', "[1]", "x[i]", "###", "### :", "##", "~~~", "~~", "</", "<function", "C#", "f(x)", "<br>", "[link](y)",
)  # fmt: skip
"""Beginnings of markers, and what looks like one."""


@dataclass(frozen=True)
class Stream:
    """A text with its visible text and its calls."""

    name: str
    format: Format
    text: str
    visible: tuple[str, ...]  # its pieces, in order
    spans: tuple[tuple[int, int], ...]  # where they stand
    calls: tuple[Call, ...]

    @property
    def shown(self) -> str:
        """All visible text."""
        return "".join(self.visible)

    def certain_at(self) -> tuple[int, int] | None:
        """Return where the first call's name ends, and where the first value of its arguments begins, if both do."""
        if not self.calls or self.format.only_json:
            return None
        name, arguments = self.calls[0]
        begin = self.spans[0][1] if self.spans and self.spans[0][0] == 0 else 0
        named = self.text.index(name, begin) + len(name)
        first = next((value for value in arguments.values() if isinstance(value, str) and value), None)
        if first is None:
            return None
        return named, self.text.index(first[:4], named)


def make(name: str, format: Format, pieces: Sequence[str | Sequence[Call]]) -> Stream:
    """Return a stream of alternating texts and calls."""
    text = ""
    visible: list[str] = []
    spans: list[tuple[int, int]] = []
    calls: list[Call] = []
    for piece in pieces:
        if isinstance(piece, str):
            visible.append(piece)
            spans.append((len(text), len(text) + len(piece)))
            text += piece
        else:
            calls += piece
            text += format.write(piece)
    return Stream(name, format, text, tuple(visible), tuple(spans), tuple(calls))


PROSE = ("prose_10k", "prose_100k", "near_40K", "near_400K")
ARGUMENTS = ("arg_1K", "arg_10K", "arg_100K", "arg_1M")
CASES = ("prose_10k", "prose_100k", "prose_1call", *ARGUMENTS, "calls_100", "near_40K", "near_400K", "deep_80",
         "wide_2000", "tag_in_str")  # fmt: skip
"""What is measured. The numbers of prose count deltas, those of near-markers and arguments characters."""


def case(name: str, format: Format, *, small: bool = False) -> Stream | None:
    """Return a stream to be measured, or None if the format does not support it. `small` streams are much shorter."""
    part = 200 if small else 1
    kind, _, size = name.partition("_")
    if format.only_json and kind not in ("arg", "wide"):
        return None
    if kind == "prose" and size != "1call":
        return make(name, format, [texts.prose(4 * 1000 * int(size.rstrip("k")) // part, seed=11)])
    if kind == "near":
        return make(name, format, [near(1000 * int(size.rstrip("K")) // part)])
    if kind == "calls":
        return _many_calls(name, format, 100 // (10 if small else 1))
    call = _call(name, part)
    if kind == "tag":
        if not format.closing:
            return None
        call = ("write_file", {"path": "notes.txt", "content": f"It ends with {format.closing} in most answers."})
    if kind == "prose":
        if not format.before:
            return None
        before, behind = texts.prose(5000 // part, seed=12) + "\n\n", "\n\n" + texts.prose(5000 // part, seed=13)
        call = ("get_weather", texts.small_arguments(random.Random(14)))
        if not format.behind:
            before, behind = behind.strip() + "\n\n" + before, ""
        return make(name, format, [before, [call], *([behind] if behind else [])])
    return make(name, format, around(format, "I will do that.\n", call, "\nDone."))


def _call(name: str, part: int) -> Call:
    kind, _, size = name.partition("_")
    if kind == "deep":
        data: dict[str, Any] = {"leaf": "x"}
        for _ in range(int(size) - 2):
            data = {"a": data}
        return "store", {"data": data}
    if kind == "wide":
        rng = random.Random(15)
        return "store", {f"key_{at}": rng.choice(texts.WORDS) for at in range(int(size) // part)}
    if kind == "arg":
        length = {"1K": 1000, "10K": 10_000, "100K": 100_000, "1M": 1_000_000}[size]
        return "write_file", texts.arguments(max(length // part, 400), seed=16)
    return "get_weather", {}


def near(size: int) -> str:
    """Return text in which every second word looks like the beginning of a marker. None is one."""
    rng = random.Random(17)
    words: list[str] = []
    length = 0
    while length < size:
        words += [rng.choice(texts.WORDS), rng.choice(NEAR)]
        if rng.random() < 0.1:
            words[-1] = rng.choice(texts.WORDS) + "\n" + rng.choice(texts.WORDS)
        length += len(words[-1]) + len(words[-2]) + 2
    return " ".join(words) + " end"


def _many_calls(name: str, format: Format, count: int) -> Stream:
    rng = random.Random(18)
    sentences = [texts.sentence(rng) + "\n" for _ in range(count)]
    calls: list[Call] = [("get_weather", texts.small_arguments(rng)) for _ in range(count)]
    if not format.among:
        return make(name, format, ["".join(sentences), calls] if format.before and not format.only_json else [calls])
    pieces: list[str | Sequence[Call]] = []
    for sentence, call in zip(sentences, calls, strict=True):
        pieces += [sentence, [call], "\n"]
    return make(name, format, pieces)


def around(format: Format, before: str, call: Call, behind: str) -> list[str | Sequence[Call]]:
    """Return the pieces of a stream with one call, and text around it as far as the format allows."""
    return [*([before] if format.before else []), [call], *([behind] if format.behind else [])]


def deltas_of(text: str, sizes: Sequence[int]) -> list[str]:
    """Return the text in deltas of these lengths."""
    ends = list(accumulate(sizes))
    return [text[end - size : end] for size, end in zip(sizes, ends, strict=True)]

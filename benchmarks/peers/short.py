"""Short streams, each with one difficulty, and all ways to cut them.

Deltas such as a server sends that gives each token as it comes are small; others come from whoever gathers them on the
way. A parser that says what a text means does not depend on either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import texts
from benchmarks.peers.formats import Call, Format
from benchmarks.peers.streams import Stream, around, make, near


def short_streams(format: Format) -> list[Stream]:
    """Return the short streams of a format."""
    if format.only_json:
        return []
    weather: Call = ("get_weather", {"city": "Kraków", "days": 3})
    path, told = "src/größe.py", 'say("hi")\n\tif a < b and c[0] == {"x": 1}: \\ \'q\' </p> 🌍'
    written: Call = ("write_file", {"path": path, "content": told, "overwrite": False})
    data: dict[str, Any] = {"a": [1, -2.5, 1e3, True, None, {}, []], "b": {"c": {"d": "}]"}}}
    kept: Call = ("store", {"data": data, "count": 12, "ratio": 0.25, "on": True, "items": ["x", {"y": [0]}]})
    empty: Call = ("get_weather", {})
    streams = [
        make("one call", format, around(format, "I will look it up.\n", weather, "\nIt is 18 °C. Anything else?")),
        make("strings", format, around(format, "Here is the file:\n", written, "\nDone.")),
        make("values", format, around(format, "Kept:\n", kept, "\nAll of it.")),
        make("no arguments", format, around(format, "Now.\n", empty, "\nThat was it.")),
        make("several calls", format, _several(format, [weather, kept, weather])),
        make("near-markers", format, around(format, near(160) + "\n", weather, "\n" + near(80))),
        make("unfinished marker", format, [f"It is written {format.marker[:-1] or format.marker}"]),
    ]
    if format.closing:
        tagged: Call = ("write_file", {"path": "a.txt", "content": f"one {format.closing} two {format.closing}"})
        streams.append(make("marker in a string", format, around(format, "So:\n", tagged, "\nRight.")))
    return streams


def _several(format: Format, calls: Sequence[Call]) -> list[str | Sequence[Call]]:
    if not format.among:
        return ["First, second, third.\n", calls] if format.before else [calls]
    pieces: list[str | Sequence[Call]] = []
    for at, call in enumerate(calls):
        pieces += [f"Number {at + 1}:\n", [call], "\n"]
    return [*pieces, "That was all."]


LARGE = ("whole", "in two")
"""How the cuttings are called whose deltas are larger than those of a server that sends each token as it comes."""


def cuttings(stream: Stream) -> Iterator[tuple[str, list[int]]]:
    """Yield ways to cut a short stream, as lengths of deltas: first at token boundaries, then elsewhere."""
    text = stream.text
    yield "tokens", [len(token) for token in tokens(stream)]
    yield "whole", [len(text)]
    for size in range(1, 14):
        yield f"every {size}", [min(size, len(text) - at) for at in range(0, len(text), size)]
    for seed in range(10):
        yield f"seed {seed}", [len(delta) for delta in texts.cut_unevenly(text, seed)]
    step = max(1, len(text) // 40)
    for at in range(1, len(text), step):
        yield f"in two at {at}", [at, len(text) - at]


def tokens(stream: Stream) -> list[str]:
    """Return the text in token-like pieces: special tokens whole, other text in up to six letters."""
    special = "".join(re.escape(token) + "|" for token in stream.format.tokens)
    return re.findall(special + r" ?\w{1,6}|\s+|[^\w\s]{1,2}", stream.text)

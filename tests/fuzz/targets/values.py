"""Values that grow, and answers that go on with others: the same however they are cut, and as a whole reader has them.

A value that is read to its end is what Python's own decoder makes of it, and one that is refused as no JSON is none. Of
an answer that goes on, what is taken out stood at the end of what was shown, or was the white space there.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from streamtools.apps.web.dissection import dissect
from streamtools.conversation.continuation import SHORTEST, Continuation
from streamtools.errors import Code
from streamtools.events import SourceEvent, TextDelta
from streamtools.json_values import Draft
from streamtools.parsing.value_reader import ValueReader
from streamtools.recording.format import Chunk, ExchangeHead, StreamEnd
from streamtools.recording.reader import Chunks, OpenRecording
from streamtools.stream.collector import Collector
from streamtools.typed import OutputType
from tests.fuzz.growth import LONG, NUMBER, Grammar
from tests.fuzz.target import Input, Target, encode, pieces, seeds
from tests.machine.test_machine_laws import run

_HOW = {"how": ("instructed", "prefilled", "echoed"), "part": tuple(range(1, 9)), "size": (1, 2, 3, 7)}


def _read(parts: list[str]) -> tuple[Any, Code | None, ValueReader]:
    reader, draft = ValueReader(), Draft()
    told = [each for part in parts for each in reader.feed(part)]
    for each in [*told, *reader.close()]:
        draft.add(*each)
    return draft.value, reader.fault.code if reader.fault else None, reader


def check_value(given: Input) -> Iterator[object]:
    """Read one text as a value."""
    text = given.text
    value, fault, reader = _read([text])
    for size in (1, 3):
        cut, code, _ = _read(pieces(text, size))
        assert (repr(cut), code) == (repr(value), fault), "it depends on the cut"
    try:
        known, _ = json.JSONDecoder(strict=False).raw_decode(text.lstrip(" \t\r\n"))
    except (ValueError, RecursionError):
        assert fault is not None, "what is no JSON was read"
    else:
        if fault is None:
            assert repr(known) == repr(value)
        elif fault is Code.TRUNCATED:
            raise AssertionError("a whole value counts as cut")
    yield fault, type(value), reader.repaired, min(len(text), 40)


def check_continuation(given: Input) -> Iterator[object]:
    """Read one answer that goes on with another, which is the beginning of the same text."""
    chosen, text = given.choose_all(_HOW), given.text
    at = len(text) * chosen["part"] // 8
    shown, answer = text[:at], text[max(0, at - 20 * (chosen["part"] % 3)) :]

    def read(size: int) -> str:
        continuation = Continuation(shown, chosen["how"])
        return "".join(map(continuation.feed, pieces(answer, size))) + continuation.close()

    whole = read(len(answer) or 1)
    assert read(chosen["size"]) == whole, "it depends on the cut"
    assert answer.endswith(whole), "something was added"
    gone = answer[: len(answer) - len(whole)]
    if chosen["how"] == "instructed":
        assert not gone or (len(gone) >= SHORTEST and shown.endswith(gone)), "no repetition was taken out"
    elif chosen["how"] == "prefilled":
        assert not gone.strip(), "text was taken out"
    yield chosen["how"], bool(gone), len(gone) > SHORTEST


def make_values() -> Target:
    """Return the target of values."""
    bodies = [
        '{"a": [1, "x\\n", null]}',
        '"\\ud83d\\ude00"',
        "[-1.5e3, true, {}]",
        '{"a": "b\\',
        " 12 ",
        "[1,]",
        '{"a":1,"a":2}',
    ]
    words = ['{"a":', "[", "]", "}", '"', "\\u00e9", "\\", ",", ":", "true", "nul", "-0.1e5", "1e999", "\n", "NaN"]
    return Target("values", check_value, lambda: list(seeds(bodies, {})), [encode(word) for word in words])


def make_continuations() -> Target:
    """Return the target of continuations."""
    bodies = ["The capital of France is Paris. It lies on the Seine, and has bridges.", "na " * 30, "a\n \n" * 20, ""]
    words = ["the ", " \n", "aaaaaaaaaaaaaaaa", "word ", "It lies on the Seine"]
    return Target(
        "continuations", check_continuation, lambda: list(seeds(bodies, _HOW)), [encode(word) for word in words]
    )


MAKE = {"values": make_values, "continuations": make_continuations}


# Growth.

_ROWS: OutputType = OutputType(dict[str, list[str | int | None]])


def _grow_value(output: OutputType, size: int, parts: list[str]) -> None:
    source: list[SourceEvent] = [*map(TextDelta, pieces("".join(parts), size))]
    collector = Collector(())
    collector.take(run(source, output=output))
    collector.read()


def _grow_answer(how: Any, size: int, parts: list[str]) -> None:
    """Go on with an answer whose beginning is all of what was shown, and with one that ends as that does."""
    text = "".join(parts)
    for shown, answer in ((text, text * 2), (text, text[len(text) // 2 :]), ("x" + text, text)):
        continuation = Continuation(shown, how)
        for piece in pieces(answer, size):
            continuation.feed(piece)
        continuation.close()


def _debug(size: int, parts: list[str]) -> None:
    texts = pieces("".join(parts), size)
    frames = [b'data: {"choices":[{"delta":{"content":%b}}]}\n\n' % encode(each) for each in map(json.dumps, texts)]

    def chunks() -> Chunks:
        yield Chunk(0.0, b"".join(frames))
        return StreamEnd("end", 0.0)

    nothing: Any = io.BytesIO()
    dissect(OpenRecording("", ExchangeHead(source="openai"), chunks(), nothing))


GRAMMARS: dict[str, Grammar] = {
    "values": Grammar(
        [
            *(
                '{"a": [',
                f'"k{NUMBER}": [',
                '"k": ',
                "{",
                "[",
                "]",
                "}",
                '"',
                "x",
                "\\",
                "\\n",
                "\\ud83d",
                ",",
                "1",
                "null",
            ),
            *(" ", "\n", "```json\n", "```", f'"{LONG}"', LONG, '"x", '),
        ],
        [partial(_grow_value, output, size) for output in (OutputType(Any), _ROWS) for size in (1, 8, 10**9)],
        first=['{"a": ['],
    ),
    "continuations": Grammar(
        [" ", "\n", "a", "ab", "na na ", "It lies on the Seine. ", NUMBER + " ", LONG],
        [partial(_grow_answer, how, size) for how in _HOW["how"] for size in (1, 8, 10**9)],
    ),
    "debugger": Grammar(
        ['###:{"name":"f"}', "~~~tool_result f\na\n~~~\n", "`", "</tool_call>", "\n", " ", "漢😀", LONG],
        [partial(_debug, size) for size in (8, 10**9)],
    ),
}
"""Of values that are asked for, of answers that go on with others, and of what the debugger shows."""

"""The laws are tested themselves: faults that a parser could well have are planted, and a law must catch each.

The properties of `test_laws` are run as they are, a hundred examples each, on a parser that is wrong in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from streamtools import Parser
from streamtools.events import Text, Thinking, UIEvent
from streamtools.parsing.closings import Closing
from streamtools.parsing.dialects import DEFAULT_DIALECTS
from streamtools.parsing.json_text import State
from streamtools.parsing.markdown import IN_CODE, Markdown
from streamtools.parsing.output import Output
from streamtools.parsing.prose import CallBegun, Prose
from streamtools.parsing.reader import Reader
from streamtools.parsing.span import Span
from tests.test_laws import LAWS

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def no_flush_at_close(patch: pytest.MonkeyPatch) -> None:
    """What is held back at the end is never shown."""
    close = Parser.close

    def forget(parser: Parser) -> list[UIEvent]:
        return [event for event in close(parser) if not isinstance(event, Text)]

    patch.setattr(Parser, "close", forget)


def marker_left_in_text(patch: pytest.MonkeyPatch) -> None:
    """The call is found, and its marker is shown all the same."""
    open_call = Prose._open

    def show_too(prose: Prose, *found: Any) -> CallBegun:
        begun = open_call(prose, *found)
        prose._show(begun.marker)
        return begun

    patch.setattr(Prose, "_open", show_too)


def braces_counted_without_strings(patch: pytest.MonkeyPatch) -> None:
    """The JSON ends at the brace that balances the first, in a string or not."""

    def count(span: Span, *, lines: object = None, envelope: object = None) -> Generator[None, None, State]:
        span.begin_call(span.place)
        depth = 0
        while True:
            while span.at == len(span.text):
                if span.ended:
                    return State.OPEN
                yield
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(span.text[span.at], 0)
            span.at += 1
            if not depth:
                span.end_call(span.place)
                return State.ENDED

    patch.setattr(Span, "json", count)


def hold_back_one_too_long(patch: pytest.MonkeyPatch) -> None:
    """A candidate that has failed is released with the character after."""
    marker_at = Prose._marker_at

    def linger(prose: Prose, text: str, at: int) -> Any:
        found = marker_at(prose, text, at)
        waits = found is False and not prose._ended and at + 1 < len(text)
        return None if waits and marker_at(prose, text[:-1], at) is None else found

    patch.setattr(Prose, "_marker_at", linger)


def context_ignored(patch: pytest.MonkeyPatch) -> None:
    """Markdown is followed, and nobody asks."""
    choose, place = Markdown._choose, Markdown.place

    def look_everywhere(markdown: Markdown) -> None:
        choose(markdown)
        markdown.search, markdown._may_begin = markdown._heads.text_search, markdown._heads.inline

    patch.setattr(Markdown, "_choose", look_everywhere)
    patch.setattr(Markdown, "place", lambda markdown, char: place(markdown, char) & ~IN_CODE)


def a_delta_begins_a_line(patch: pytest.MonkeyPatch) -> None:
    """Where the provider cuts the text, a line is taken to begin."""
    feed = Parser.feed

    def forget(parser: Parser, delta: str) -> list[UIEvent]:
        parser._prose.markdown.resume(True, several_lines=True)
        return feed(parser, delta)

    patch.setattr(Parser, "feed", forget)


def thinking_never_ends(patch: pytest.MonkeyPatch) -> None:
    """The interface is not told that the call is over."""
    add = Output.add

    def wait(output: Output, event: Callable[..., UIEvent], *fields: Any, **named: Any) -> None:
        if event is not Thinking or fields[0]:
            add(output, event, *fields, **named)

    patch.setattr(Output, "add", wait)


def half_a_closing_is_content(patch: pytest.MonkeyPatch) -> None:
    """The beginning of a closing tag, at the end of a delta, is taken for a part of the value."""

    def content(reader: Reader, closing: Closing, take: Callable[[str], None]) -> Generator[None, None, bool]:
        while True:
            found = closing.search(reader.text, reader.at)
            begin = found.start() if found and found.lastindex else len(reader.text)
            take(reader.text[reader.at : begin])
            reader.at = begin
            if found and found.lastindex:
                reader.before_closing, reader.at = reader.base + begin, found.end(1)
                return True
            if reader.ended:
                return False
            yield

    patch.setattr(Reader, "content", content)


def escapes_written_twice(patch: pytest.MonkeyPatch) -> None:
    """A converted value is quoted as if it were not JSON yet."""
    write = Span.write
    patch.setattr(Span, "write", lambda span, text: write(span, text.replace("\\", "\\\\")))


Ids: TypeAlias = tuple[str, ...]

JSON: list[Ids] = [DEFAULT_DIALECTS, ("hash_marker",), ("tilde_fence",), ("hermes_json",)]
NAMED: list[Ids] = [("kimi_k2",), ("mistral_args",)]
TEXT_IN_TAGS: list[Ids] = [("qwen3_coder_xml",), ("glm_xml",), ("minimax_m2_xml",), ("kimi_k3_xtml",)]
CONVERTED: list[Ids] = [*TEXT_IN_TAGS, ("minimax_m3_xml",), ("lfm2_pythonic",), ("gemma4",)]
EVERY = [*JSON, *NAMED, *CONVERTED]
"""Sets of dialects, by how their arguments are written."""

FAULTS: list[tuple[Plant, str, list[Ids]]] = [
    (no_flush_at_close, "test_conservation", EVERY),
    (marker_left_in_text, "test_conservation", EVERY),
    (braces_counted_without_strings, "test_what_is_written_is_read", JSON + NAMED),
    (half_a_closing_is_content, "test_what_is_written_is_read", TEXT_IN_TAGS),
    (escapes_written_twice, "test_what_is_written_is_read", CONVERTED),
    (hold_back_one_too_long, "test_promptness", EVERY),
    (context_ignored, "test_promptness", JSON + NAMED),
    (a_delta_begins_a_line, "test_chunk_invariance", JSON + NAMED),
    (thinking_never_ends, "test_paired_lifecycle", EVERY),
]


@pytest.mark.parametrize(
    ("plant", "law", "ids"),
    [
        pytest.param(plant, law, ids, id=f"{plant.__name__}-{'+'.join(ids)}")
        for plant, law, sets in FAULTS
        for ids in sets
    ],
)
def test_a_planted_fault_is_caught(plant: Plant, law: str, ids: Ids, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred examples of one law are enough to tell a faulty parser, whichever dialects are armed."""
    plant(monkeypatch)

    @settings(max_examples=100, derandomize=True, database=None, phases=[Phase.generate], report_multiple_bugs=False)
    @given(st.data())
    def look(data: st.DataObject) -> None:
        LAWS[law](ids, data)

    with pytest.raises(AssertionError):
        look()

"""Faults that a parser could have. Each function plants one fault, and a law must catch it.

Most faults change the arguments or the results of `Parser`, so that they do not depend on its implementation. The
faults after the comment "Inside the parser" change its implementation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

import pytest

from streamtools import Parser
from streamtools.events import Call, CallDelta, Text, Thinking, UIEvent
from streamtools.parsing.bodies import keyword_calls, literals
from streamtools.parsing.json_scanner import ScanState
from streamtools.parsing.reader import Closing, Reader
from streamtools.parsing.span import Span
from tests.support.patching import before
from tests.support.variants import KNOWN

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]
Change: TypeAlias = Callable[[Parser, list[UIEvent]], list[UIEvent]]


def _change_events(patch: pytest.MonkeyPatch, change: Change, *, at_close: Change | None = None) -> None:
    """Apply `change` to the events of `feed`, and `at_close`, or else `change`, to the events of `close`."""
    feed, close, last = Parser.feed, Parser.close, at_close or change
    patch.setattr(Parser, "feed", lambda parser, delta: change(parser, feed(parser, delta)))
    patch.setattr(Parser, "close", lambda parser: last(parser, close(parser)))


def pending_text_is_lost(patch: pytest.MonkeyPatch) -> None:
    """Pending text at the end is never shown."""
    _change_events(
        patch, lambda _, events: events, at_close=lambda _, events: [each for each in events if type(each) is not Text]
    )


def a_marker_is_shown(patch: pytest.MonkeyPatch) -> None:
    """The beginning of a call is also shown."""

    def show_too(_: Parser, events: list[UIEvent]) -> list[UIEvent]:
        shown: list[UIEvent] = []
        for event in events:
            if isinstance(event, Call):
                shown.append(Text(event.call.raw[:3]))
            shown.append(event)
        return shown

    _change_events(patch, show_too)


def a_failed_candidate_is_late(patch: pytest.MonkeyPatch) -> None:
    """A failed candidate is shown one delta too late."""
    feed, close, held = Parser.feed, Parser.close, Parser.pending
    delayed: dict[Parser, list[UIEvent]] = {}

    def holds(parser: Parser) -> str:
        late = "".join(each.text for each in delayed.get(parser, ()) if isinstance(each, Text))
        return late + str(held.__get__(parser))

    def linger(parser: Parser, delta: str) -> list[UIEvent]:
        late, waited = delayed.pop(parser, []), held.__get__(parser)
        events = feed(parser, delta)
        if waited and events and all(type(each) is Text for each in events):
            delayed[parser] = events
            return late
        return late + events

    patch.setattr(Parser, "feed", linger)
    patch.setattr(Parser, "close", lambda parser: delayed.pop(parser, []) + close(parser))
    patch.setattr(Parser, "pending", property(holds))


def text_is_late(patch: pytest.MonkeyPatch) -> None:
    """Visible text is returned one delta too late."""
    delayed: dict[Parser, list[UIEvent]] = {}

    def wait(parser: Parser, events: list[UIEvent]) -> list[UIEvent]:
        late = delayed.pop(parser, [])
        if events and type(events[-1]) is Text:
            delayed[parser] = [events.pop()]
        return late + events

    _change_events(patch, wait, at_close=lambda parser, events: delayed.pop(parser, []) + events)


def a_call_is_late(patch: pytest.MonkeyPatch) -> None:
    """A complete call is reported one delta too late."""
    delayed: dict[Parser, list[UIEvent]] = {}

    def wait(parser: Parser, events: list[UIEvent]) -> list[UIEvent]:
        late = delayed.pop(parser, [])
        begun = next((at for at, each in enumerate(events) if isinstance(each, Call)), len(events))
        delayed[parser] = events[begun:]
        return late + events[:begun]

    _change_events(patch, wait, at_close=lambda parser, events: delayed.pop(parser, []) + events)


def thinking_never_ends(patch: pytest.MonkeyPatch) -> None:
    """The end of `thinking` is not reported."""
    _change_events(patch, lambda _, events: [each for each in events if not isinstance(each, Thinking) or each.active])


def a_piece_of_arguments_is_lost(patch: pytest.MonkeyPatch) -> None:
    """Pieces of arguments with a brace are not reported."""
    _change_events(
        patch, lambda _, events: [each for each in events if not isinstance(each, CallDelta) or "{" not in each.text]
    )


def a_lone_surrogate_raises(patch: pytest.MonkeyPatch) -> None:
    """The text is encoded, which fails for a lone surrogate."""
    feed = Parser.feed
    patch.setattr(Parser, "feed", lambda parser, delta: feed(parser, delta.encode().decode()))


def limits_are_ignored(patch: pytest.MonkeyPatch) -> None:
    begin = Parser.__init__

    def forget(parser: Parser, *given: Any, **options: Any) -> None:
        begin(parser, *given, **{name: value for name, value in options.items() if name != "limits"})

    patch.setattr(Parser, "__init__", forget)


def context_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A call in Markdown code counts."""
    begin = Parser.__init__

    def look_everywhere(parser: Parser, *given: Any, **options: Any) -> None:
        begin(parser, *given, **options | {"in_code": "call"})

    patch.setattr(Parser, "__init__", look_everywhere)


# Inside the parser.


def a_delta_begins_a_line(patch: pytest.MonkeyPatch) -> None:
    """Each delta is read as the beginning of a line."""
    before(patch, Parser, "feed", lambda parser, delta: parser._prose.markdown.end_line())


def braces_in_strings_are_counted(patch: pytest.MonkeyPatch) -> None:

    def count(span: Span, *, lines: object = None, envelope: object = None) -> Generator[None, None, ScanState]:
        span.begin_call(span.place)
        depth = 0
        while True:
            while span.at == len(span.text):
                if span.ended:
                    return ScanState.OPEN
                yield
            depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(span.text[span.at], 0)
            span.at += 1
            if not depth:
                span.end_call(span.place)
                return ScanState.ENDED

    patch.setattr(Span, "json", count)


def half_a_closing_tag_is_content(patch: pytest.MonkeyPatch) -> None:
    """The beginning of a closing tag at the end of a delta is read as part of the value."""
    content = Reader.content

    def see_whole_ones(reader: Reader, closing: Closing, take: Callable[[str], None]) -> Generator[None, None, int]:
        blind, search = copy.copy(closing), closing.search
        blind.search = lambda *at: found if (found := search(*at)) is None or found.lastindex else None
        return content(reader, blind, take)

    patch.setattr(Reader, "content", see_whole_ones)


def escapes_are_written_twice(patch: pytest.MonkeyPatch) -> None:
    write_piece = Span.write
    patch.setattr(Span, "write", lambda span, text: write_piece(span, text.replace("\\", "\\\\")))

    def read_literals(write: Callable[[str], None], *given: Any, **options: Any) -> literals.Literals:
        return literals.Literals(lambda text: write(text.replace("\\", "\\\\")), *given, **options)

    patch.setattr(keyword_calls, "Literals", read_literals)


IN_TAGS = frozenset((
    "qwen3_coder_xml", "kimi_k3_xtml", "deepseek_dsml", "glm_xml", "minimax_m2_xml", "minimax_m3_xml", "seed_oss_xml",
    "anthropic_xml", "hunyuan_xml", "step3_xml", "poolside_xml", "minicpm5_xml", "morph_xml", "k_exaone2_xml",
    "atem_xml", "gigachat35", "dots_xml", "iquest_q1", "k2_horizon", "solar_open2", "hunyuan4_xml", "iquest_coder2",
    "longcat_xml", "telechat4_xml", "zaya_xml",
))  # fmt: skip
"""Dialects in which a value is the text between two tags."""

CONVERTED = IN_TAGS | {
    "pythonic", "pythonic_llama4", "olmo3_pythonic", "lfm2_pythonic", "gemma4", "functiongemma", "minicpm4_python",
    "tool_code", "granite_lines", "sarashina_list",
}  # fmt: skip
"""Dialects with arguments that are not JSON."""

EVERY = frozenset(KNOWN)
AT_START = frozenset(("llama3_json", "pythonic", "raw_json", "json_array", "granite_lines"))
"""Dialects without a marker. A call counts only at the start of a message, so no code can precede it."""


class Fault(NamedTuple):
    """A fault, the law that it breaks, and the dialects in which it can appear."""

    plant: Plant
    law: str
    dialects: frozenset[str] = EVERY


FAULTS = {
    each.plant.__name__: each
    for each in (
        Fault(a_lone_surrogate_raises, "totality"),
        Fault(a_delta_begins_a_line, "chunk_invariance", EVERY - AT_START - {"xlam_json"}),
        Fault(text_is_late, "deltas_are_only_batching"),
        Fault(pending_text_is_lost, "conservation"),
        Fault(a_marker_is_shown, "conservation"),
        Fault(a_failed_candidate_is_late, "promptness"),
        Fault(context_is_ignored, "promptness", EVERY - AT_START),
        Fault(thinking_never_ends, "paired_lifecycle"),
        Fault(a_piece_of_arguments_is_lost, "deltas_hold_the_arguments"),
        Fault(limits_are_ignored, "limits"),
        Fault(braces_in_strings_are_counted, "written_calls_are_read", EVERY - CONVERTED),
        Fault(half_a_closing_tag_is_content, "written_calls_are_read", IN_TAGS),
        Fault(escapes_are_written_twice, "written_calls_are_read", CONVERTED),
        Fault(a_call_is_late, "a_complete_call_is_reported"),
    )
}
"""Maps the name of each function to its fault."""

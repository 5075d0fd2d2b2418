"""The laws of parsing, which hold for every text, every dialect and all chunk boundaries.

A law is a rule for the events of a parser, such as: each character is in exactly one event. For each law, a function
raises AssertionError if the law is broken. `assert_laws` checks all laws for a dialect, with random texts that contain
valid and malformed calls and are split at random positions.

The functions use only the public results of a parser or a machine: its events, buffered text and calls. `sections`
reconstructs the text from the events. `may_become` decides whether a text is the beginning of a marker. Except for
`Header`, it does not use the regular expressions of the parser, so that it can find errors in them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from streamtools import events as ui_events
from streamtools.errors import Code
from streamtools.events import ProviderCompleted, TextDelta, UIEvent, coalesce
from streamtools.json_values import Draft
from streamtools.limits import Limits
from streamtools.loading import require_packages
from streamtools.machine.event_order import validate
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing import Parser, parse
from streamtools.parsing.bodies import REFUSED
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Dialect, choose_dialects
from streamtools.parsing.dialects.neutralizing import neutralize, restore
from streamtools.parsing.markers import Header, LineEnd, Maybe, OneOf, Pattern

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamtools.testing.random_texts import Document, Parts


def cut(text: str, places: Iterable[int]) -> list[str]:
    """Split `text` at the positions in `places`, which need not be sorted."""
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(bounds)]


def feed(deltas: Iterable[str], **options: Any) -> list[UIEvent]:
    """Feed a parser with `deltas`, and return its events. `options` are the options of `Parser`."""
    parser = Parser(**options)
    events = [event for delta in deltas for event in parser.feed(delta)]
    return events + parser.close()


class FeedStep(NamedTuple):
    """The state of a parser after one delta."""

    delta: str
    """The delta."""
    new: list[UIEvent]
    """The events that the parser returned for the delta."""
    fed: str
    """The text of all deltas up to this one."""
    events: list[UIEvent]
    """The events of all deltas up to this one."""
    pending: str
    """The text that the parser buffers."""


def steps(deltas: Iterable[str], **options: Any) -> Iterator[FeedStep]:
    """Yield the state of a parser after each delta. All states share one list `events`, which later deltas extend."""
    parser = Parser(**options)
    fed, events = "", []
    for delta in deltas:
        new = parser.feed(delta)
        fed += delta
        events += new
        yield FeedStep(delta, new, fed, events, parser.pending)


LIMITS = (Code.TOO_LARGE, Code.TOO_DEEP, Code.TOO_MANY_CALLS)
"""The codes of errors that are reported before the end of the call."""

MALFORMED = {
    *(Code.INVALID_JSON, Code.MISSING_TOOL_NAME, Code.INVALID_ARGUMENTS, Code.CONFLICTING_FIELDS, Code.TRUNCATED),
    *(Code.UNRECOGNISED_TOOL_CALL, Code.DUPLICATE_KEY, Code.NOT_A_NUMBER, Code.NUMBER_TOO_LONG, Code.LONE_SURROGATE),
    *LIMITS,
}
"""The codes of malformed calls."""


def assert_chunk_invariant(text: str, ways: Iterable[Sequence[str]], **options: Any) -> list[UIEvent]:
    """Check that `text` gives the same coalesced events for every way to split it. Return these events.

    Each item of `ways` holds the deltas of one way to split the text.
    """
    expected = coalesce(feed([text], **options))
    for deltas in ways:
        assert expected == coalesce(feed(deltas, **options)), f"cut as {deltas!r}"
    return expected


def assert_defined_per_character(deltas: Sequence[str], **options: Any) -> None:
    """Check the events and the buffered text after each delta.

    They must be equal to the events and the buffered text after the same text is fed character by character.
    """
    by_character = steps("".join(deltas), **options)
    for step in steps(deltas, **options):
        if step.delta:
            expected = next(state for state in by_character if state.fed == step.fed)
            assert coalesce(expected.events) == coalesce(step.events), f"after {step.fed!r}"
            assert expected.pending == step.pending


Kind: TypeAlias = Literal["text", "reasoning", "tag", "space", "call", "refused", "result", "skipped"]
"""The kind of a section. `tag` is markup, `space` is markup of white space only. `call` is a valid or malformed call.
`refused` is a malformed call that is shown as text, and `result` is a tool result that the model invented. `skipped` is
text of a call that exceeds a limit."""


class InputSection(NamedTuple):
    """A section of the input text, and the kind of event that contains it."""

    kind: Kind
    text: str


def sections(text: str, events: Iterable[UIEvent], previous: Kind | None = None) -> list[InputSection]:
    """Split `text` into sections, one for each event with text. Fails if the events contain other text.

    `previous` is the kind of the section before `text`, or None if `text` is the beginning.
    """
    found: list[InputSection] = []
    position = 0
    refused = False  # True if the next text event contains a malformed call
    for event in events:
        kind: Kind
        match event:
            case ui_events.Text(text=piece) | ui_events.Warning(code=Code.HIDDEN_AFTER_CALL, raw=str(piece)):
                kind = "refused" if refused else "text"
            case ui_events.Reasoning(text=piece):
                kind = "reasoning"
            case ui_events.Markup(text=piece):
                kind = "tag" if piece.strip() else "space"
            case ui_events.Call(call=call):
                kind, piece = "call", call.raw
            case ui_events.Error(raw=str(piece)):
                kind = "call"
            case ui_events.Warning(code=Code.FORGED_RESULT, raw=str(piece)):
                kind = "result"
            case ui_events.Warning(code=Code.SKIPPED, count=int(count)):
                kind = "text" if previous == "text" else "skipped"  # the rest of a hidden text, or of a call
                piece = text[position : position + count]
                assert count == len(piece), f"{count} characters are skipped, but only {len(piece)} remain"
            case ui_events.Warning(code=code) if code in MALFORMED:
                refused = True
                continue
            case _:
                continue
        assert piece == text[position : position + len(piece)], f"at {position}: {event}"
        position += len(piece)
        refused = False
        previous = kind
        found.append(InputSection(kind, piece))
    return found


def assert_conserved(text: str, events: Iterable[UIEvent], *, stopped: bool = False) -> None:
    """Check that every character of `text` is in exactly one event, in order. The parser needs `keep_markup=True`.

    With `stopped=True`, the parser stopped after a call, so text after this call must be missing.
    """
    found = sections(text, events)
    rest = text[sum(len(piece.text) for piece in found) :]
    if stopped:
        assert rest.strip(" \t\r\n"), "stopped without a reason"
        assert any(piece.kind == "call" for piece in found), "stopped before any call"
    else:
        assert not rest, f"in no event: {rest!r}"


def assert_deltas_match_arguments(events: Iterable[UIEvent]) -> None:
    """Check that the joined call deltas of each call are the JSON of its arguments.

    If a call has `Partial` events, check that they build the same arguments.
    """
    written: dict[str, str] = defaultdict(str)
    drafts: dict[str, Draft] = defaultdict(Draft)
    for event in events:
        if isinstance(event, ui_events.CallDelta):
            written[event.call_id] += event.text
        elif isinstance(event, ui_events.Partial):
            assert event.call_id is not None
            drafts[event.call_id].add(event.path, event.value, event.complete)
        elif isinstance(event, ui_events.Call):
            text = written[event.call.id]
            assert event.call.arguments == (json.loads(text, strict=False) if text else {})
            if event.call.id in drafts:
                assert event.call.arguments == (drafts[event.call.id].value or {})


_LINE_ENDS = OneOf(("\n", "\r\n"))


def may_become(text: str, parts: Parts) -> bool:
    """Return True if `text` is the beginning of the marker with these parts, but not the whole marker."""
    if not parts:
        return False
    if not text:
        return True
    first, rest = parts[0], parts[1:]
    match first:
        case str():
            if len(text) < len(first):
                return first.startswith(text)
            return text.startswith(first) and may_become(text[len(first) :], rest)
        case LineEnd():
            return may_become(text, (_LINE_ENDS, *rest))
        case OneOf(words):
            return any(may_become(text, (word, *rest) if word else rest) for word in words)
        case Maybe(inner):
            return may_become(text, (*inner, *rest)) or may_become(text, rest)
        case Header():
            return Pattern(*parts).startswith(text)
    # `first` is a `Some`: from `least` to `most` of its characters
    run = re.compile(f"[{first.characters}]{{0,{first.most}}}").match(text)
    assert run is not None
    length = run.end()
    return length == len(text) or any(may_become(text[count:], rest) for count in range(first.least, length + 1))


# The first event for text that is not shown has one of these types.
_HIDDEN = (ui_events.Call, ui_events.Error, ui_events.Thinking, ui_events.Warning)
_LOW_LIMITS = Limits(call=160, depth=3, digits=5, calls=2)


def assert_laws(dialect: Dialect | str, *, examples: int = 100) -> None:
    """Check that a dialect keeps all laws. `dialect` is a dialect or the id of a dialect.

    Raises AssertionError if a law is broken. The notes of its `__cause__` contain the shortest text that breaks it.

    Each law is checked with `examples` random texts, which are the same in each test run:

    - Totality: no text raises an exception.
    - Chunk invariance: the chunk boundaries do not change the events.
    - Conservation: each character is in exactly one event.
    - Promptness: only text that may become a marker is buffered. A call is reported with its last character.
    - Paired lifecycle: each call that starts also ends.
    - One ending: a run ends with one `done`, which has the correct reason.
    - Limits: calls and errors do not exceed the limits.
    - Round trip: a call that the dialect writes is read with the same name and arguments.
    - Results: a result that the dialect writes contains no call.
    - Neutralization: no text contains a call after `reserved` was neutralized in it.

    The texts call tools with arguments of all types. Some strings in them hold the tags of the dialect. If the `read`
    of `text_calls` refuses a call that the dialect writes, the law of the round trip is broken. In any text, it may
    raise only ValueError, LookupError, TypeError and AttributeError. Raises ImportError if hypothesis is not installed,
    and ValueError for an unknown id.
    """
    __tracebackhide__ = True
    with require_packages("assert_laws"):
        import hypothesis

        from streamtools.testing import random_texts

    (dialect,) = choose_dialects([dialect])
    signatures = Declared(random_texts.TOOLS).signatures(parameters=True)
    inputs = random_texts.Material(dialect, signatures)
    if not inputs.openers:
        raise ValueError(f"dialect {dialect.id!r} has no openers for the tools {', '.join(random_texts.NAMES)}")
    silent = [each.marker.search_pattern() for each in inputs.openers if each.kind == "result" or not each.announces]
    check = _Laws(dialect, random_texts.TOOLS, random_texts.markers(dialect, signatures), silent)
    settings = hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],  # without the explain phase, which is slow
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    def assert_hold(given: SearchStrategy[Any], *laws: Callable[[Any, list[int]], None]) -> None:
        __tracebackhide__ = True
        law = ""  # the law that is checked now; after the search, the law that the shortest text breaks

        def refuse(error: Exception, _: str | None) -> None:
            if law == "round trip" or not isinstance(error, ValueError | LookupError | TypeError | AttributeError):
                raise AssertionError(f"`read` of text_calls raised {error!r}") from error

        @settings
        @hypothesis.given(given, random_texts.cuts)
        def check_laws(text: Any, places: list[int]) -> None:
            nonlocal law
            REFUSED.set(refuse)
            for check_law in laws:
                # `promptness_of_calls` is also the law of promptness.
                law = check_law.__name__.partition("_of_")[0].replace("_", " ")
                check_law(text, places)

        try:
            copy_context().run(check_laws)
        except Exception as error:
            raise AssertionError(f"dialect {dialect.id!r} breaks the law of {law}: {error}") from error

    assert_hold(  # the simplest laws first, because an error in a dialect may break several laws
        inputs.texts,
        *(check.totality, check.conservation, check.chunk_invariance, check.promptness),
        *(check.paired_lifecycle, check.one_ending, check.limits),
    )
    assert_hold(inputs.documents, check.round_trip, check.promptness_of_calls, check.results, check.neutralization)


class _Laws:
    """Has one method for each law. A method gets a text or a document, and the positions at which to split it."""

    def __init__(self, dialect: Dialect, tools: Any, markers: Sequence[Parts], silent: Sequence[str]) -> None:
        self._dialect = dialect
        self._options: dict[str, Any] = {"dialects": [dialect], "tools": tools}
        self._markers = markers
        self._silent = silent  # patterns of markers that hide text, but begin no call: invented results, wrappers

    def totality(self, text: str, places: list[int]) -> None:
        feed(cut(text, places), **self._options)

    def chunk_invariance(self, text: str, places: list[int]) -> None:
        assert_chunk_invariant(text, [list(text), cut(text, places)], keep_markup=True, **self._options)
        assert_defined_per_character(cut(text, places), **self._options)

    def conservation(self, text: str, places: list[int]) -> None:
        assert_conserved(text, feed(cut(text, places), keep_markup=True, **self._options))

    def promptness(self, text: str, places: list[int]) -> None:
        """Check that only the beginnings of markers are buffered.

        Reasoning tags are disabled, so that only the dialect buffers text.
        """
        hidden = False  # True after the first event for text that is not shown
        shown = 0
        for step in steps(text, keep_markup=True, reasoning="off", **self._options):
            if step.pending:
                is_marker_start = any(may_become(step.pending, parts) for parts in self._markers)
                assert is_marker_start, f"buffered, but not the beginning of a marker: {step.pending!r}"
            hidden = hidden or any(isinstance(event, _HIDDEN) for event in step.new)
            shown += sum(len(getattr(event, "text", "")) for event in step.new)
            if not hidden:
                pending = step.fed[shown:]
                silent = any(re.match(pattern, pending) for pattern in self._silent)
                assert silent or pending == step.pending, f"neither shown nor buffered: {pending!r}"

    def paired_lifecycle(self, text: str, places: list[int]) -> None:
        events = feed(cut(text, places), call_deltas=True, call_partials=True, **self._options)
        validate(events, run=False)
        assert_deltas_match_arguments(events)

    def one_ending(self, text: str, places: list[int]) -> None:
        for is_complete in (True, False):
            machine = StreamMachine(**self._options)
            events: list[UIEvent] = machine.start()
            for delta in cut(text, places):
                events += machine.feed(TextDelta(delta))
            if is_complete:
                events += machine.feed(ProviderCompleted(finish_reason="stop"))
            events += machine.close()
            validate(events)
            done = events[-1]
            assert isinstance(done, ui_events.Done)
            assert done.reason == ("finished" if is_complete else "failed"), f"wrong ending: {done.reason}"

    def limits(self, text: str, places: list[int]) -> None:
        events = feed(cut(text, places), **self._options, limits=_LOW_LIMITS)
        kept = [event.raw or "" for event in events if isinstance(event, ui_events.Error)]
        calls = [event.call for event in events if isinstance(event, ui_events.Call)]
        assert all(len(raw) <= _LOW_LIMITS.call for raw in kept), f"an error keeps {max(map(len, kept))} characters"
        assert all(len(call.raw) <= _LOW_LIMITS.call for call in calls), "a call is longer than the limit"
        assert len(calls) <= _LOW_LIMITS.calls, f"{len(calls)} calls, but the limit is {_LOW_LIMITS.calls}"

    def round_trip(self, document: Document, places: list[int]) -> None:
        result = parse(cut(document.text, places), **self._options)
        read = [(call.name, restore(call.arguments, [self._dialect])) for call in result.calls]
        assert document.calls == read, f"wrote {document.calls}, read {read}"
        assert not result.errors, f"a written call is an error: {result.errors[0]}"
        assert document.prose == result.content, f"the visible text is {result.content!r}, expected {document.prose!r}"

    def promptness_of_calls(self, document: Document, places: list[int]) -> None:
        parser = Parser(**self._options)
        written = 0
        for part in document.parts:
            parser.feed(part if isinstance(part, str) else part.text)
            written += not isinstance(part, str)
            assert written == len(parser.calls), "a complete call is not reported"

    def results(self, document: Document, places: list[int]) -> None:
        for name in (part.name for part in document.parts if not isinstance(part, str)):
            written = self._dialect.write_result(name, "It is done.")
            assert not parse(cut(written, places), **self._options).calls, f"a result contains a call: {written!r}"

    def neutralization(self, document: Document, places: list[int]) -> None:
        text = neutralize(document.text, [self._dialect])
        assert not parse(cut(text, places), **self._options).calls, f"`reserved` leaves a call in {text!r}"

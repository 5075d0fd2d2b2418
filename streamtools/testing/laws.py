"""The laws that hold for every text, every dialect and every cut: for each a function that fails where it is broken.

`assert_laws` checks a dialect over texts with its calls, good and bad, cut anywhere. Only the events of a parser or a
machine are checked; `pieces` puts them together to the text that was read. `may_become` is the law of promptness: it
reads a marker part by part, independently of the regular expressions of the parser, to be compared with them.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from streamtools.errors import Code, EventOrderError
from streamtools.events import ProviderCompleted, TextDelta, UIEvent, ui_events
from streamtools.events.coalescing import coalesce
from streamtools.json_values import Draft
from streamtools.limits import Limits
from streamtools.machine.event_order import validate
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing import Parser, parse
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Dialect, choose_dialects
from streamtools.parsing.dialects.neutralising import restore
from streamtools.parsing.markers import LineEnd, Maybe, OneOf

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamtools.testing.material import Document, Parts


def cut(text: str, places: Iterable[int]) -> list[str]:
    """Return `text` cut at `places`, which may lie anywhere and come in any order."""
    bounds = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(bounds)]


def feed(deltas: Iterable[str], **options: Any) -> list[UIEvent]:
    """Return the events of a whole text that comes in `deltas`. The options are those of `Parser`."""
    parser = Parser(**options)
    events = [event for delta in deltas for event in parser.feed(delta)]
    return events + parser.close()


class Step(NamedTuple):
    """What one feed gave, and the state behind it: all that was fed, all that was said, what is held back."""

    delta: str
    new: list[UIEvent]
    fed: str
    events: list[UIEvent]
    held: str


def steps(deltas: Iterable[str], **options: Any) -> Iterator[Step]:
    """Yield the state behind each delta of a text that goes on. `events` of a step grow with the next ones."""
    parser = Parser(**options)
    fed, events = "", []
    for delta in deltas:
        new = parser.feed(delta)
        fed += delta
        events += new
        yield Step(delta, new, fed, events, parser.held)


LIMITS = (Code.TOO_LARGE, Code.TOO_DEEP, Code.TOO_MANY_CALLS)
"""What is reported while the call that it is about goes on."""

MALFORMED = {
    *(Code.INVALID_JSON, Code.MISSING_TOOL_NAME, Code.INVALID_ARGUMENTS, Code.CONFLICTING_FIELDS, Code.TRUNCATED),
    *(Code.UNRECOGNISED_TOOL_CALL, Code.DUPLICATE_KEY, Code.NOT_A_NUMBER, Code.NUMBER_TOO_LONG, Code.LONE_SURROGATE),
    *LIMITS,
}
"""What is wrong with a call that a model wrote badly."""


def assert_chunk_invariant(text: str, ways: Iterable[Sequence[str]], **options: Any) -> list[UIEvent]:
    """However `text` is cut, the coalesced events are the same. Returns them."""
    expected = coalesce(feed([text], **options))
    for deltas in ways:
        assert expected == coalesce(feed(deltas, **options)), f"cut as {deltas!r}"
    return expected


def assert_defined_per_character(deltas: Sequence[str], **options: Any) -> None:
    """At each cut the same has been said, and is held, as if every character had been fed alone."""
    alone = steps("".join(deltas), **options)
    for step in steps(deltas, **options):
        if step.delta:
            single = next(each for each in alone if each.fed == step.fed)
            assert coalesce(single.events) == coalesce(step.events), f"behind {step.fed!r}"
            assert single.held == step.held


Kind: TypeAlias = Literal["text", "reasoning", "tag", "space", "call", "refused", "result", "skipped"]


class Piece(NamedTuple):
    """A section of the input, and what became of it."""

    kind: Kind
    text: str


def pieces(text: str, events: Iterable[UIEvent], before: Kind | None = None) -> list[Piece]:
    """Return the beginning of `text` as the pieces that `events` hold; fails where they hold anything else.

    `before` is the kind of the piece that comes before `text`.
    """
    found: list[Piece] = []
    at = 0
    refused = False  # a malformed call comes as text
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
                kind = "text" if before == "text" else "skipped"
                piece = text[at : at + count]
                assert count == len(piece), f"{count} characters skipped, and there are {len(piece)}"
            case ui_events.Warning(code=code) if code in MALFORMED:
                refused = True
                continue
            case _:
                continue
        assert piece == text[at : at + len(piece)], f"at {at}: {event}"
        at += len(piece)
        refused = False
        before = kind
        found.append(Piece(kind, piece))
    return found


def assert_conserved(text: str, events: Iterable[UIEvent], *, stopped: bool = False) -> None:
    """Every character of `text` is in exactly one event, in order. Needs `keep_markup`.

    A parser that `stopped` has left unread what stands behind a call and is more than white space.
    """
    found = pieces(text, events)
    rest = text[sum(len(piece.text) for piece in found) :]
    if stopped:
        assert rest.strip(" \t\r\n"), "stopped for nothing"
        assert any(piece.kind == "call" for piece in found), "stopped before any call"
    else:
        assert not rest, f"in no event: {rest!r}"


def assert_in_order(events: Iterable[UIEvent], *, run: bool = True) -> None:
    """These are the events of one whole run, by the grammar of events; with `run=False`, those of a parser."""
    try:
        validate(events, run=run)
    except EventOrderError as error:
        raise AssertionError(str(error)) from None


def assert_deltas_tell_the_arguments(events: Iterable[UIEvent]) -> None:
    """With `call_deltas`, the pieces of a good call's arguments are together the JSON of its arguments; with
    `call_partials`, what they add is together the arguments.
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
    """Tell whether `text` is not all of a marker, but the beginning of one."""
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
    run = re.compile(f"[{first.characters}]{{0,{first.most}}}").match(text)
    assert run is not None
    length = run.end()
    return length == len(text) or any(may_become(text[count:], rest) for count in range(first.least, length + 1))


_HIDDEN = (ui_events.Call, ui_events.Error, ui_events.Thinking, ui_events.Warning)
_LIMITS = Limits(call=160, depth=3, digits=5, calls=2)
_MISSING = "assert_laws needs hypothesis, which comes with the extra `test`: pip install 'streamtools[test]'"


def assert_laws(
    dialect: Dialect | str,
    *,
    tools: Any = None,
    calls: SearchStrategy[tuple[str, dict[str, Any]]] | None = None,
    examples: int = 100,
) -> None:
    """Fail where a dialect, or the one of this id, breaks one of the laws, with the shortest text that shows it.

    Checked are, with so many `examples` each: totality (no text makes it raise), chunk invariance (it does not matter
    how the text is cut), conservation (each character is in exactly one event), promptness (nothing is held back but
    what may become a marker, and a call is reported with its last character), the paired lifecycle of calls, one
    truthful ending of a run, limits, that what it writes, it reads, and that the results that it writes call nothing.

    `calls` is a hypothesis strategy of names and arguments, for a dialect that cannot write any, and `tools` declares
    their tools; without, there are tools with arguments of all types. The texts are the same each time.
    Raises ImportError without hypothesis, ValueError for an id that there is not.
    """
    __tracebackhide__ = True
    try:
        import hypothesis
    except ImportError as error:
        raise ImportError(_MISSING) from error
    from streamtools.testing import material

    if (tools is None) is not (calls is None):
        raise ValueError("tools and calls go together: calls are of the tools that are declared")
    (dialect,) = choose_dialects([dialect])
    declared = material.TOOLS if tools is None else tools
    signatures = dict(Declared(declared).signatures(parameters=True))
    matter = material.Material(dialect, signatures, calls if calls is not None else material.usual_calls())
    silent = [each.marker.search_pattern() for each in matter.openers if each.kind == "result" or not each.announces]
    check = _Laws(dialect, declared, material.markers(dialect, signatures), silent)
    settings = hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],  # the phase that explains takes the longest
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    def hold(given: SearchStrategy[Any], *laws: Callable[[Any, list[int]], None]) -> None:
        __tracebackhide__ = True
        law = ""  # the one that is looked at, and at last the one that the shortest text breaks

        @settings
        @hypothesis.given(given, material.cuts)
        def look(text: Any, places: list[int]) -> None:
            nonlocal law
            for each in laws:
                law = each.__name__.partition("_of_")[0].replace("_", " ")
                each(text, places)

        try:
            look()
        except Exception as error:
            raise AssertionError(f"dialect {dialect.id!r} breaks the law of {law}: {error}") from error

    hold(  # the plainest first, for a fault may break several
        matter.texts,
        *(check.totality, check.conservation, check.chunk_invariance, check.promptness),
        *(check.paired_lifecycle, check.one_ending, check.limits),
    )
    hold(matter.documents, check.round_trip, check.promptness_of_calls, check.results)


class _Laws:
    """Each law, by its name, as a function of a text, or of a document whose calls are known, and of places to cut."""

    def __init__(self, dialect: Dialect, tools: Any, markers: Sequence[Parts], silent: Sequence[str]) -> None:
        self._dialect = dialect
        self._options: dict[str, Any] = {"dialects": [dialect], "tools": tools}
        self._markers = markers
        self._silent = silent  # patterns of what hides what follows, and begins no call: a forged result, a section

    def totality(self, text: str, places: list[int]) -> None:
        feed(cut(text, places), **self._options)

    def chunk_invariance(self, text: str, places: list[int]) -> None:
        assert_chunk_invariant(text, [list(text), cut(text, places)], keep_markup=True, **self._options)
        assert_defined_per_character(cut(text, places), **self._options)

    def conservation(self, text: str, places: list[int]) -> None:
        assert_conserved(text, feed(cut(text, places), keep_markup=True, **self._options))

    def promptness(self, text: str, places: list[int]) -> None:
        """Without the usual tags of reasoning, so that only the dialect holds anything back."""
        hidden = False  # something has come that is not shown character by character
        said = 0
        for step in steps(text, keep_markup=True, reasoning="off", **self._options):
            if step.held:
                wanted = any(may_become(step.held, parts) for parts in self._markers)
                assert wanted, f"held for nothing: {step.held!r}"
            hidden = hidden or any(isinstance(event, _HIDDEN) for event in step.new)
            said += sum(len(getattr(event, "text", "")) for event in step.new)
            if not hidden:
                pending = step.fed[said:]
                silent = any(re.match(pattern, pending) for pattern in self._silent)
                assert silent or pending == step.held, f"neither shown nor held: {pending!r}"

    def paired_lifecycle(self, text: str, places: list[int]) -> None:
        events = feed(cut(text, places), call_deltas=True, call_partials=True, **self._options)
        assert_in_order(events, run=False)
        assert_deltas_tell_the_arguments(events)

    def one_ending(self, text: str, places: list[int]) -> None:
        for ends in (True, False):
            machine = StreamMachine(**self._options)
            events: list[UIEvent] = machine.start()
            for delta in cut(text, places):
                events += machine.feed(TextDelta(delta))
            if ends:
                events += machine.feed(ProviderCompleted(finish_reason="stop"))
            events += machine.close()
            assert_in_order(events)
            done = events[-1]
            assert isinstance(done, ui_events.Done)
            assert done.reason == ("finished" if ends else "failed"), f"{done.reason} is not how the run ended"

    def limits(self, text: str, places: list[int]) -> None:
        events = feed(cut(text, places), **self._options, limits=_LIMITS)
        kept = [event.raw or "" for event in events if isinstance(event, ui_events.Error)]
        calls = [event.call for event in events if isinstance(event, ui_events.Call)]
        assert all(len(raw) <= _LIMITS.call for raw in kept), f"an error keeps {max(map(len, kept))} characters"
        assert all(len(call.raw) <= _LIMITS.call for call in calls), "a call is longer than the limit"
        assert len(calls) <= _LIMITS.calls, f"{len(calls)} calls, of {_LIMITS.calls}"

    def round_trip(self, document: Document, places: list[int]) -> None:
        result = parse(cut(document.text, places), **self._options)
        read = [(call.name, restore(call.arguments, [self._dialect])) for call in result.calls]
        assert document.calls == read, f"written {document.calls}, and read {read}"
        assert not result.errors, f"what was written is an error: {result.errors[0]}"
        assert document.prose == result.content, f"{result.content!r} is shown of the prose {document.prose!r}"

    def promptness_of_calls(self, document: Document, places: list[int]) -> None:
        parser = Parser(**self._options)
        written = 0
        for part in document.parts:
            parser.feed(part if isinstance(part, str) else part.text)
            written += not isinstance(part, str)
            assert written == len(parser.calls), "a call is complete, and not reported"

    def results(self, document: Document, places: list[int]) -> None:
        for name in (part.name for part in document.parts if not isinstance(part, str)):
            written = self._dialect.write_result(name, "It is done.")
            assert not parse(cut(written, places), **self._options).calls, f"a result calls a tool: {written!r}"

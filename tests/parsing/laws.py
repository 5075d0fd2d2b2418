"""The laws of parsing. All laws check one text, and share its readings.

A law is a function of a case, and raises if the case breaks it. A case reads its text whole, character by character and
cut. No law reads the text again, because generating and reading texts takes most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from streamtools import Parser, coalesce, parse
from streamtools.errors import Code
from streamtools.events import Call, Error, Text, UIEvent, Warning
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.machine.event_order import validate
from streamtools.parsing.dialects import TAUGHT_DIALECTS, choose_dialects
from streamtools.parsing.dialects.neutralizing import restore
from streamtools.testing.laws import LIMITS, MALFORMED, FeedStep, assert_conserved, assert_deltas_match_arguments, cut
from tests.families import MARKERS, MARKUP
from tests.support.bounds import assert_within_limits
from tests.support.promptness import assert_steps_prompt
from tests.support.reference import examples
from tests.support.strategies import AUTO, TOOLS, Document, Options, Written, cuts, documents, enabled, options, texts
from tests.support.variants import KNOWN, VARIANTS

Ids: TypeAlias = tuple[str, ...]

FEW = 3
"""Texts that are drawn for a set of dialects in the quick tests: each planted fault is caught by so many."""

SHARED = ("<tool_call>", "<function_calls>", "<tool_calls", "<function=", "[TOOL_CALLS]", "<｜")
"""Beginnings of markers that several dialects share."""


def _sets() -> Iterator[Ids]:
    yield from ((each,) for each in KNOWN)
    yield TAUGHT_DIALECTS
    yield tuple(VARIANTS)
    for beginning in SHARED:
        yield tuple(each for each in AUTO if _begins(each, beginning))
    yield AUTO


def _begins(dialect: str, beginning: str) -> bool:
    return any(text.startswith(beginning) for marker in MARKERS[dialect] for text in examples(marker.parts))


SETS = {"auto" if ids == AUTO else "+".join(ids): ids for ids in _sets()}
"""The sets of dialects that are enabled, by the ids of their tests."""


class Reading:
    """A text that is fed in some deltas, and the events and the state after each delta."""

    def __init__(self, deltas: Sequence[str], how: Options) -> None:
        parser = Parser(**how)
        self.deltas = deltas
        self._fed = [(delta, parser.feed(delta), parser.pending) for delta in deltas]
        self._last = parser.close()
        self.stopped = parser.stopped

    @property
    def steps(self) -> Iterator[FeedStep]:
        """The state after each delta. The list `events` of a step grows with later deltas."""
        fed, events = "", list[UIEvent]()
        for delta, new, held in self._fed:
            fed += delta
            events += new
            yield FeedStep(delta, new, fed, events, held)

    @cached_property
    def events(self) -> list[UIEvent]:
        """All events."""
        return [event for _, new, _ in self._fed for event in new] + self._last

    @cached_property
    def coalesced(self) -> list[UIEvent]:
        """The events in a form that does not depend on the cuts."""
        return coalesce(self.events)


@dataclass(frozen=True)
class Case:
    """A text, the options for reading it, a document with known calls, and positions to cut both at."""

    text: str
    how: Options
    document: Document = field(default_factory=lambda: Document([]))
    places: Sequence[int] = (1, 6, 20)
    others: Sequence[int] = (2, 11)

    @cached_property
    def whole(self) -> Reading:
        """The text in one delta."""
        return self.read([self.text])

    @cached_property
    def alone(self) -> Reading:
        """Each character in its own delta."""
        return self.read(list(self.text))

    @cached_property
    def cut(self) -> Reading:
        """The text in some deltas."""
        return self.read(cut(self.text, self.places))

    @cached_property
    def cut_otherwise(self) -> Reading:
        """The text in other deltas."""
        return self.read(cut(self.text, self.others))

    @cached_property
    def with_deltas(self) -> Reading:
        """Each character in its own delta, with `call_deltas` and without markup events."""
        return Reading(list(self.text), self.how | {"call_deltas": True, "call_partials": True})

    @cached_property
    def reported(self) -> Reading:
        """The text in some deltas. Each malformed call is an error."""
        if self.how.get("on_malformed", "error") == "error":
            return self.cut
        return Reading(self.cut.deltas, self.how | {"on_malformed": "error"})

    def read(self, deltas: Sequence[str]) -> Reading:
        """Read the text with markup events."""
        return Reading(deltas, self.how | {"keep_markup": True})


def totality(case: Case) -> None:
    """No text makes a parser raise, including lone surrogates and control characters."""
    for _ in (case.whole, case.alone, case.cut, case.cut_otherwise, case.with_deltas, case.reported):
        pass


def chunk_invariance(case: Case) -> None:
    """All cuts of a text give the same events."""
    for each in (case.alone, case.cut, case.cut_otherwise):
        assert case.whole.coalesced == each.coalesced, f"cut as {each.deltas!r}"


def deltas_are_only_batching(case: Case) -> None:
    """At each cut, the events and the pending text so far are the same."""
    alone = iter(case.alone.steps)
    for step in case.cut.steps:
        if step.delta:
            single = next(each for each in alone if each.fed == step.fed)
            assert coalesce(single.events) == coalesce(step.events), f"after {step.fed!r}"
            assert single.pending == step.pending, f"after {step.fed!r}"


def conservation(case: Case) -> None:
    """All events together hold every character of the text, in order."""
    assert_conserved(case.text, case.cut.events, stopped=case.cut.stopped)


def promptness(case: Case) -> None:
    """Only text that can still become a marker is pending, at any cuts."""
    assert_steps_prompt(case.alone.steps, **case.how)
    assert_steps_prompt(case.cut.steps, **case.how)


def paired_lifecycle(case: Case) -> None:
    """Each call is announced once and ends once, with its events in order."""
    validate(case.cut.events, run=False)
    validate(case.with_deltas.events, run=False)


def deltas_hold_the_arguments(case: Case) -> None:
    """The `call-delta` events of a valid call join to its arguments."""
    assert_deltas_match_arguments(case.with_deltas.events)


def limits(case: Case) -> None:
    """No stored call exceeds the limit, and no turn has more calls than the limit."""
    assert_within_limits(case.reported.events, case.how.get("limits", DEFAULT_LIMITS))


def written_calls_are_read(case: Case) -> None:
    """Valid calls between prose are read with their names and arguments. Only the prose is visible."""
    document, enabled_dialects = case.document, case.how["dialects"]
    dialects = choose_dialects(enabled_dialects)
    for deltas in (cut(document.text, case.places), list(document.text)):
        result = parse(deltas, dialects=enabled_dialects, tools=TOOLS)
        read = [(call.dialect, call.name, restore(call.arguments, dialects)) for call in result.calls]
        assert [call[1:] for call in document.calls] == [call[1:] for call in read], f"cut as {deltas!r}"
        for written, (found, *call) in zip(document.calls, read, strict=True):
            writers = (KNOWN[found].write_call, KNOWN[written[0]].write_call)  # two dialects may write the same text
            assert written[0] == found or writers[0](*call) == writers[1](*call), f"cut as {deltas!r}"
        assert document.prose == result.content, f"cut as {deltas!r}"
        assert [] == result.errors, f"cut as {deltas!r}"


def a_complete_call_is_reported(case: Case) -> None:
    """A complete call is reported without any text after it.

    If a raw value holds tags, the text after the call decides where the value ends.
    """
    parser = Parser(dialects=case.how["dialects"], tools=TOOLS)
    written = read = 0
    undecided = False
    for part in case.document.parts:
        if isinstance(part, Written):
            undecided = undecided or bool(KNOWN[part.dialect].strays and "<" in str(part.arguments))
        elif part.strip():
            undecided = False
        events = parser.feed(part if isinstance(part, str) else part.text)
        written += isinstance(part, Written)
        read += sum(isinstance(event, Call) for event in events)
        assert undecided or written == read == len(parser.calls), f"after {part!r}"


Law: TypeAlias = Callable[[Case], None]

LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        totality, chunk_invariance, deltas_are_only_batching, conservation, promptness, paired_lifecycle,
        deltas_hold_the_arguments, limits, written_calls_are_read, a_complete_call_is_reported,
    )
}  # fmt: skip
"""By their names; what makes a parser raise breaks the first, and then nothing can be said of the others."""


class LawBroken(AssertionError):
    """A case breaks laws. The message names each law and the reason."""


def hold(case: Case, laws: Collection[str] = tuple(LAWS)) -> None:
    """Raise `LawBroken` if a case breaks one of these laws."""
    broken: dict[str, Exception] = {}
    for name in laws:
        try:
            LAWS[name](case)
        except Exception as error:
            broken[name] = error
            if name == totality.__name__:
                break
    if broken:
        message = "\n".join(f"{name}: {type(error).__name__}: {error}" for name, error in broken.items())
        raise LawBroken(message) from next(iter(broken.values()))


_WILD = st.text(st.characters(), max_size=30) | st.text('#~:{}[]"\\`\n\r tolcarsuen_<>/hik', max_size=60)


@cache
def cases(ids: Ids) -> st.SearchStrategy[Case]:
    """Return cases for a set of dialects: mostly text that resembles calls, and sometimes any text."""
    near, wild = texts(ids), st.lists(_WILD | texts(ids, max_size=3), max_size=6).map("".join)
    return st.builds(Case, st.one_of(*[near] * 6, wild), options(ids), documents(ids), cuts, cuts)


def corners(ids: Ids) -> Iterator[Case]:
    """Yield the corner cases: a call in prose and in code, cut calls, near misses, and texts over the limits."""
    for each in ids[: 2 if settings().max_examples <= 15 else 5]:
        at_start = any(marker.where == "start" for marker in MARKERS[each])
        opening = "\n" if at_start else "A sentence.\n"
        given = {"a": "}}}" + " ".join(MARKUP[each]), "city": "\\", "place": {"x": "{"}}
        rich = Written(KNOWN[each].write_call("f", given), "f", given, each)
        call = KNOWN[each].write_call("f", {})
        half = next(examples(MARKERS[each][0].parts))[:-1]
        how: Options = {"dialects": enabled(ids), "tools": TOOLS}
        document = Document([opening, rich, "\nAnd on.\n"])
        begin = len(opening)
        yield Case(document.text, how, document, (begin + 1, begin + 3, begin + len(rich.text) - 2))
        yield Case(f"{opening}{half}", how)
        yield Case(f"{opening}{half[: len(half) // 2]}", how)
        yield Case(f"{opening}{half[:1]}", how)
        yield Case(f"{opening}{half}x y", how)
        yield Case(f"`x {call}` {call}", how | {"in_code": "text"}, places=(1, 3, 20))
        yield Case(f"```\n{call}\n```\n\ud83d", how | {"in_code": "text"})
        yield Case(f"x{call}", how, places=(1, 4))
        yield Case(f"{call}\n{call}\n", how | {"limits": Limits(call=12)})
        yield Case(f"{call}\n{call}\n", how | {"limits": Limits(calls=0)})


def check(ids: Ids, examples: int, laws: Collection[str] = tuple(LAWS), **how: Any) -> None:
    """Check these laws for the corner cases of a set of dialects and for generated cases."""
    for case in corners(ids):
        hold(case, laws)

    @settings(max_examples=examples, **how)
    @given(cases(ids))
    def look(case: Case) -> None:
        hold(case, laws)

    look()


def traits(reading: Reading) -> list[str]:
    """Return the traits of a reading: calls, released candidates, errors."""
    found = set()
    events: list[UIEvent] = []
    held = ""
    for step in reading.steps:
        events = step.events
        if held and any(isinstance(each, Text) for each in step.new):
            found.add("a released candidate")
        held = step.pending
    if any(isinstance(each, Call) for each in events):
        found.add("a committed call")
    codes = {each.code for each in events if isinstance(each, Error | Warning)} & MALFORMED
    if codes:
        found.add("an error")
    if codes & set(LIMITS):
        found.add("a limit")
    if codes - {*LIMITS, Code.INVALID_JSON}:
        found.add("an error of its own")
    return sorted(found)

"""The laws of parsing: one text is held against all of them, by a few readings that they share.

A law is a function of a case, and fails where the case breaks it. A text is read whole, character by character and
cut, and no law reads it again: generating and reading is what the properties cost.
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
from streamtools.parsing.dialects import TAUGHT_DIALECTS, choose_dialects
from streamtools.parsing.dialects.neutralising import restore
from streamtools.testing.laws import (
    LIMITS,
    MALFORMED,
    FeedStep,
    assert_conserved,
    assert_deltas_tell_the_arguments,
    assert_in_order,
    cut,
)
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
    """A text that is fed in some deltas, and what comes of each."""

    def __init__(self, deltas: Sequence[str], how: Options) -> None:
        parser = Parser(**how)
        self.deltas = deltas
        self._fed = [(delta, parser.feed(delta), parser.pending) for delta in deltas]
        self._last = parser.close()
        self.stopped = parser.stopped

    @property
    def steps(self) -> Iterator[FeedStep]:
        """The state behind each delta. `events` of a step grow with the next ones."""
        fed, events = "", list[UIEvent]()
        for delta, new, held in self._fed:
            fed += delta
            events += new
            yield FeedStep(delta, new, fed, events, held)

    @cached_property
    def events(self) -> list[UIEvent]:
        """All of them."""
        return [event for _, new, _ in self._fed for event in new] + self._last

    @cached_property
    def coalesced(self) -> list[UIEvent]:
        """What does not depend on the cuts."""
        return coalesce(self.events)


@dataclass(frozen=True)
class Case:
    """A text and a way to read it, a document whose calls are known, and places to cut both at."""

    text: str
    how: Options
    document: Document = field(default_factory=lambda: Document([]))
    places: Sequence[int] = (1, 6, 20)
    others: Sequence[int] = (2, 11)

    @cached_property
    def whole(self) -> Reading:
        """The text at once."""
        return self.read([self.text])

    @cached_property
    def alone(self) -> Reading:
        """Each character by itself."""
        return self.read(list(self.text))

    @cached_property
    def cut(self) -> Reading:
        """In pieces."""
        return self.read(cut(self.text, self.places))

    @cached_property
    def cut_otherwise(self) -> Reading:
        """In other pieces."""
        return self.read(cut(self.text, self.others))

    @cached_property
    def told(self) -> Reading:
        """Each character by itself, as an interface reads that shows calls while they are written: without markup."""
        return Reading(list(self.text), self.how | {"call_deltas": True, "call_partials": True})

    @cached_property
    def reported(self) -> Reading:
        """In pieces, with each malformed call as an error."""
        if self.how.get("on_malformed", "error") == "error":
            return self.cut
        return Reading(self.cut.deltas, self.how | {"on_malformed": "error"})

    def read(self, deltas: Sequence[str]) -> Reading:
        """Read the text with its markup."""
        return Reading(deltas, self.how | {"keep_markup": True})


def totality(case: Case) -> None:
    """No text whatever makes a parser raise, half pairs of surrogates and control characters included."""
    for _ in (case.whole, case.alone, case.cut, case.cut_otherwise, case.told, case.reported):
        pass


def chunk_invariance(case: Case) -> None:
    """One by one, and however else it is cut, a text gives the same events."""
    for each in (case.alone, case.cut, case.cut_otherwise):
        assert case.whole.coalesced == each.coalesced, f"cut as {each.deltas!r}"


def deltas_are_only_batching(case: Case) -> None:
    """Not only in the end but at each cut, the same has been said and the same is held."""
    alone = iter(case.alone.steps)
    for step in case.cut.steps:
        if step.delta:
            single = next(each for each in alone if each.fed == step.fed)
            assert coalesce(single.events) == coalesce(step.events), f"behind {step.fed!r}"
            assert single.pending == step.pending, f"behind {step.fed!r}"


def conservation(case: Case) -> None:
    """All events together hold every character of the text, in order."""
    assert_conserved(case.text, case.cut.events, stopped=case.cut.stopped)


def promptness(case: Case) -> None:
    """Only what can still become a marker is held back, whether the text comes one by one or in pieces."""
    assert_steps_prompt(case.alone.steps, **case.how)
    assert_steps_prompt(case.cut.steps, **case.how)


def paired_lifecycle(case: Case) -> None:
    """Each call is announced once and ends once, in the order that interfaces rely on."""
    assert_in_order(case.cut.events, run=False)
    assert_in_order(case.told.events, run=False)


def deltas_tell_the_arguments(case: Case) -> None:
    """The pieces of a good call's arguments are together its arguments."""
    assert_deltas_tell_the_arguments(case.told.events)


def limits(case: Case) -> None:
    """No call, good or bad, is kept beyond the limit, and no turn has more calls than are allowed."""
    assert_within_limits(case.reported.events, case.how.get("limits", DEFAULT_LIMITS))


def what_is_written_is_read(case: Case) -> None:
    """Good calls between prose come out with their names and arguments, and the prose is all that is visible."""
    document, enabled_dialects = case.document, case.how["dialects"]
    dialects = choose_dialects(enabled_dialects)
    for deltas in (cut(document.text, case.places), list(document.text)):
        result = parse(deltas, dialects=enabled_dialects, tools=TOOLS)
        assert document.calls == [
            (call.dialect, call.name, restore(call.arguments, dialects)) for call in result.calls
        ], f"cut as {deltas!r}"
        assert document.prose == result.content, f"cut as {deltas!r}"
        assert [] == result.errors, f"cut as {deltas!r}"


def a_complete_call_is_told(case: Case) -> None:
    """Nothing has to follow a call for it to be told."""
    parser = Parser(dialects=case.how["dialects"], tools=TOOLS)
    written = told = 0
    for part in case.document.parts:
        events = parser.feed(part if isinstance(part, str) else part.text)
        written += isinstance(part, Written)
        told += sum(isinstance(event, Call) for event in events)
        assert written == told == len(parser.calls), f"behind {part!r}"


Law: TypeAlias = Callable[[Case], None]

LAWS: dict[str, Law] = {
    law.__name__: law
    for law in (
        totality, chunk_invariance, deltas_are_only_batching, conservation, promptness, paired_lifecycle,
        deltas_tell_the_arguments, limits, what_is_written_is_read, a_complete_call_is_told,
    )
}  # fmt: skip
"""By their names; what makes a parser raise breaks the first, and then nothing can be said of the others."""


class LawBroken(AssertionError):
    """A case breaks laws: each is named, with what it says."""


def hold(case: Case, laws: Collection[str] = tuple(LAWS)) -> None:
    """Fail where a case breaks one of these laws."""
    broken: dict[str, Exception] = {}
    for name in laws:
        try:
            LAWS[name](case)
        except Exception as error:
            broken[name] = error
            if name == totality.__name__:
                break
    if broken:
        told = "\n".join(f"{name}: {type(error).__name__}: {error}" for name, error in broken.items())
        raise LawBroken(told) from next(iter(broken.values()))


_WILD = st.text(st.characters(), max_size=30) | st.text('#~:{}[]"\\`\n\r tolcarsuen_<>/hik', max_size=60)


@cache
def cases(ids: Ids) -> st.SearchStrategy[Case]:
    """Cases for a set of dialects: what comes near to calls, and now and then any text at all."""
    near, wild = texts(ids), st.lists(_WILD | texts(ids, max_size=3), max_size=6).map("".join)
    return st.builds(Case, st.one_of(*[near] * 6, wild), options(ids), documents(ids), cuts, cuts)


def corners(ids: Ids) -> Iterator[Case]:
    """Yield what no choice may leave out: a call in prose and in code, cut, half, nearly one, and beyond the limits."""
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
    """Hold the corners of a set of dialects and so many cases that are drawn against these laws."""
    for case in corners(ids):
        hold(case, laws)

    @settings(max_examples=examples, **how)
    @given(cases(ids))
    def look(case: Case) -> None:
        hold(case, laws)

    look()


def traits(reading: Reading) -> list[str]:
    """Return what a reading shows: calls, candidates that came to nothing, errors."""
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

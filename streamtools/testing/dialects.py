"""The laws for a dialect of one's own, as properties over texts that hold its calls, good and bad, cut anywhere."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from streamtools.events import Call, Done, Error, ProviderCompleted, TextDelta, Thinking, UIEvent, Warning
from streamtools.limits import Limits
from streamtools.machine import StreamMachine
from streamtools.parsing import Parser, parse
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects import Dialect, choose_dialects
from streamtools.parsing.dialects.base import restore
from streamtools.testing.beginnings import Parts, markers, may_become, openers
from streamtools.testing.feeding import cut, feed, steps
from streamtools.testing.laws import (
    assert_chunk_invariant,
    assert_conserved,
    assert_defined_per_character,
    assert_deltas_tell_the_arguments,
    assert_in_order,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from streamtools.testing.material import Document

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
    what may become a marker, and a call is told with its last character), the paired lifecycle of calls, one truthful
    ending of a run, limits, that what it writes, it reads, and that the results that it writes call nothing.

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
    results = [opener for opener in openers(dialect, signatures) if opener.kind == "result"]
    check = _Laws(dialect, declared, markers(dialect, signatures), [each.marker.search_pattern() for each in results])
    settings = hypothesis.settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],  # the phase that explains takes the longest
        suppress_health_check=list(hypothesis.HealthCheck),
    )

    def hold(laws: Mapping[str, Callable[[Any, list[int]], None]], given: SearchStrategy[Any]) -> None:
        __tracebackhide__ = True
        law = ""  # the one that is looked at, and at last the one that the shortest text breaks

        @settings
        @hypothesis.given(given, material.cuts)
        def look(text: Any, places: list[int]) -> None:
            nonlocal law
            for law, check in laws.items():  # noqa: B007 - is read below
                check(text, places)

        try:
            look()
        except Exception as error:
            raise AssertionError(f"dialect {dialect.id!r} breaks the law of {law}: {error}") from error

    hold(check.of_texts, matter.texts)
    hold(check.of_documents, matter.documents)


class _Laws:
    """Each law as a function of a text, or of a document whose calls are known, and of places to cut it at."""

    def __init__(self, dialect: Dialect, tools: Any, markers: Sequence[Parts], results: Sequence[str]) -> None:
        self._dialect = dialect
        self._options: dict[str, Any] = {"dialects": [dialect], "tools": tools}
        self._markers = markers
        self._results = results  # patterns of what begins a result that the model forges, which is hidden

    @property
    def of_texts(self) -> dict[str, Callable[[str, list[int]], None]]:
        """The laws for any text, by their names; the plainest first, for a fault may break several."""
        return {
            "totality": self.totality,
            "conservation": self.conservation,
            "chunk invariance": self.chunk_invariance,
            "promptness": self.promptness,
            "paired lifecycle": self.paired_lifecycle,
            "one ending": self.one_ending,
            "limits": self.limits,
        }

    @property
    def of_documents(self) -> dict[str, Callable[[Document, list[int]], None]]:
        """The laws for texts of which it is known what they mean."""
        return {
            "round trip": self.round_trip,
            "promptness": self.calls_are_prompt,
            "results": self.results_call_nothing,
        }

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
            hidden = hidden or any(isinstance(event, Call | Error | Thinking | Warning) for event in step.new)
            said += sum(len(getattr(event, "text", "")) for event in step.new)
            if not hidden:
                pending = step.fed[said:]
                forged = any(re.match(pattern, pending) for pattern in self._results)
                assert forged or pending == step.held, f"neither shown nor held: {pending!r}"

    def paired_lifecycle(self, text: str, places: list[int]) -> None:
        events = feed(cut(text, places), call_deltas=True, **self._options)
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
            assert isinstance(done, Done)
            assert done.reason == ("finished" if ends else "failed"), f"{done.reason} is not how the run ended"

    def limits(self, text: str, places: list[int]) -> None:
        events = feed(cut(text, places), **self._options, limits=_LIMITS)
        kept = [event.raw or "" for event in events if isinstance(event, Error)]
        calls = [event.call for event in events if isinstance(event, Call)]
        assert all(len(raw) <= _LIMITS.call for raw in kept), f"an error keeps {max(map(len, kept))} characters"
        assert all(len(call.raw) <= _LIMITS.call for call in calls), "a call is longer than the limit"
        assert len(calls) <= _LIMITS.calls, f"{len(calls)} calls, of {_LIMITS.calls}"

    def round_trip(self, document: Document, places: list[int]) -> None:
        result = parse(cut(document.text, places), **self._options)
        read = [(call.name, restore(call.arguments, [self._dialect])) for call in result.calls]
        assert document.calls == read, f"written {document.calls}, and read {read}"
        assert not result.errors, f"what was written is an error: {result.errors[0]}"
        assert document.prose == result.content, f"{result.content!r} is shown of the prose {document.prose!r}"

    def calls_are_prompt(self, document: Document, places: list[int]) -> None:
        parser = Parser(**self._options)
        written = 0
        for part in document.parts:
            parser.feed(part if isinstance(part, str) else part.text)
            written += not isinstance(part, str)
            assert written == len(parser.calls), "a call is complete, and not told"

    def results_call_nothing(self, document: Document, places: list[int]) -> None:
        for name in (part.name for part in document.parts if not isinstance(part, str)):
            written = self._dialect.write_result(name, "It is done.")
            assert not parse(cut(written, places), **self._options).calls, f"a result calls a tool: {written!r}"

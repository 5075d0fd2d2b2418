"""A hidden section of text, from a marker to the place where the grammar of its dialect ends it.

A grammar reads from a `Span` and reports to it. The span keeps the text, and reports each fact about a call as soon as
the grammar, or the JSON scanner that the grammar starts, has read it. After a limit, the span reports that once and
the grammar goes on only to find the end.

    def body(span):                       # {"name": …, "arguments": {…}}</call>
        if (yield from span.json()) is ENDED and (yield from span.accept(CLOSING)):
            span.close()
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.events import CallDelta, UIEvent, Warning
from streamtools.json_values import Rejected
from streamtools.parsing.call_events import CallDraft, CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.json_scanner import (
    ARGUMENTS,
    BEGIN,
    BLAME,
    BROKEN,
    DEEP,
    END,
    FIELD,
    LINE,
    NAME,
    OPEN,
    PIECE,
    Arguments,
    JsonScanner,
    ScanState,
)
from streamtools.parsing.markers import Pattern
from streamtools.parsing.reader import Closing, Reader, always
from streamtools.parsing.span_calls import SpanCalls

_FINISHED = object()
_milestone = re.compile(r'\\(?:.|\Z)|\n[ \t\r]{0,256}(?:(\n)|(\Z))|[\n"{}\[\]]', re.DOTALL).search


class Span(Reader):
    """A hidden section of text, read by the grammar of one dialect: its text, and the calls in it."""

    def __init__(
        self,
        marker: str,
        dialect: str | None,
        output: CallEvents,
        declared: Declared,
        show_text: Callable[[str], bool],
        announces: bool = True,
    ) -> None:
        """Begin after `marker`. Without a `dialect`, the span is a tool result that the model wrote itself.

        If it `announces` a call, a call begins with the marker. `show_text` shows a malformed call as text, if that is
        the policy, and returns whether that stops the turn.
        """
        limits = output.options.limits
        super().__init__(marker, limits.call)
        self._output = output
        self.calls = SpanCalls(output, dialect, show_text)
        self.declared = declared
        self.depth = limits.depth  # the deepest nesting of JSON that is allowed
        self.call_id: str | None = None  # the call whose arguments follow, if text becomes its deltas unchanged
        self.scanner: JsonScanner | None = None  # reads the JSON value inside which the grammar is paused
        self._state = OPEN  # the state of the scanner
        self._broken: JsonScanner | None = None  # the scanner of the JSON that turned out to be broken
        self.finished = False  # the grammar has returned
        self.several_lines = False  # the span holds a line feed; known at the end
        if dialect is not None and announces:
            self.calls.begin(0)
            if self.calls.too_many:
                self.exceed(Code.TOO_MANY_CALLS)

    # For the parser.

    def skim(self, text: str) -> list[UIEvent] | None:
        """Accept text in which `leaves` finds nothing. Returns None, and accepts nothing, if a limit is exceeded."""
        if len(text) > self.room and self.stores:
            return None
        self.add(text)
        if self.call_id is not None:
            return [CallDelta(self.call_id, text)]
        events: list[UIEvent] = []
        self._output.events = events
        if self.take is not None:
            self.take(text)
        return events

    def read(self, text: str, body: Iterator[None]) -> bool:
        """Read the text that arrived, with the grammar `body`. Returns whether the span continues after it.

        The grammar is resumed only when it has to decide. It is not resumed while the pattern that it `waits` for may
        still match, or inside the JSON that it asked for. Text that was read or skimmed before is no longer in `text`.
        """
        place = self.add(text)
        scanner = self.scanner
        if scanner is not None:  # all earlier text has been read
            if scanner.passes and text and scanner.pass_over(text, place):  # the end of the stream has no text
                self.leaves = scanner.leaves
                if self.call_id is not None:
                    self._output.events.append(CallDelta(self.call_id, text))
                elif (take := self.take) is not None:
                    take(text)
                return True
        else:
            if self.at < len(self.text):
                rest = self.text[self.at :]
                text = rest + text
                place -= len(rest)
            if (waits := self.waits) is not None and not self.ended:
                begun = waits(text)
                if begun is not None and not begun.lastindex:
                    self.text, self.at, self.base = text, 0, place
                    return True
        self.text, self.at, self.base = text, 0, place
        while True:
            if scanner is not None:
                self._state = state = scanner.scan(self)
                if scanner.facts:
                    self._apply_facts(scanner)
                if state is OPEN and not self.ended:
                    self.leaves = scanner.leaves
                    self._choose_sink(scanner)
                    return True
                self.leaves = always
            if next(body, _FINISHED) is _FINISHED:
                self.finished = True
                if self.calls.drafts:  # the grammar has returned without closing the span
                    self.close(Code.UNRECOGNISED_TOOL_CALL)
                return False
            scanner = self.scanner
            if scanner is None:
                return True

    def lose(self) -> None:
        """Mark a gap: a part of the stream is missing here, and a call around the gap must not run."""
        self.calls.lose()

    def discard(self) -> None:
        """End the calls as superseded, because another model continues the answer."""
        self.calls.discard("".join(self.parts) if self.stores else "")

    def _choose_sink(self, scanner: JsonScanner) -> None:
        """Choose what accepts text in which the scanner's `leaves` finds nothing."""
        self.call_id = self.take = None
        wanted, call = scanner.want, self.calls.current
        if wanted == FIELD:
            self.take = scanner.kept.append if self.stores else scanner.take
        elif wanted and call is not None:
            if call.flows:
                self.call_id = call.id
            elif self._output.call_deltas:
                self.take = partial(self._output.report_arguments, call)

    def _apply_facts(self, scanner: JsonScanner) -> None:
        """Apply the facts about calls that the scanner has read in JSON."""
        for kind, value in scanner.facts:
            call = self.calls.current
            if kind == BEGIN and (call is None or call.json_begin >= 0):
                self.begin_call(value)
            elif call is None:
                pass
            elif kind == PIECE:
                if self._output.call_deltas:
                    self._output.report_arguments(call, value)
            elif kind in (BEGIN, ARGUMENTS):
                call.json_begin = value
            elif kind == NAME:
                if self._output.options.on_malformed == "error":  # otherwise the call may turn out to be text
                    self._output.start_call(call, value)
            elif kind == END:
                call.json_end = value
            elif kind == BLAME:
                self.blame(Code.MISSING_TOOL_NAME, value)
            else:
                self.call(value)
        scanner.facts.clear()

    # For grammars: the calls.

    @property
    def current(self) -> CallDraft | None:
        """The call that is being written, or that was written last."""
        return self.calls.current

    @property
    def in_call(self) -> bool:
        """Whether the last call is incomplete."""
        call = self.calls.current
        return call is not None and not call.complete

    def begin_call(self, place: int) -> None:
        """Begin a call at `place`. The first call is the one that began with the marker."""
        calls = self.calls
        if not calls.are_calls:
            return
        if calls.current is None or calls.current.json_begin >= 0:
            if not self.stores:
                return
            calls.begin(place)
            if calls.too_many:
                self.exceed(Code.TOO_MANY_CALLS, place + 1)
        if calls.current is not None:
            calls.current.json_begin = place

    def end_call(self, place: int | None = None) -> None:
        """Complete the last call at `place`, or here."""
        if (call := self.calls.current) is not None:
            call.json_end = self.place if place is None else place

    def call(self, name: str) -> None:
        """Set the tool of the last call, whose JSON is the arguments alone."""
        if (call := self.calls.current) is not None:
            call.name = name
            self.name_call(name)

    def name_call(self, name: str) -> None:
        """Report the name of the last call, unless the call may still turn out to be text."""
        call = self.calls.current
        if call is not None and self._output.options.on_malformed == "error" and name.strip():
            self._output.start_call(call, name)

    def identify(self, provider_id: str) -> None:
        """Set the id that the model has written for the last call."""
        if (call := self.calls.current) is not None:
            call.provider_id = provider_id

    def blame(self, code: Code, message: str) -> None:
        """Make the last call an error. The first reason counts."""
        if (call := self.calls.current) is not None and call.fault is None:
            call.fault = Rejected(code, message)

    def convert(self) -> None:
        """Take the arguments of the last call from `write`, because the span does not hold them as JSON."""
        if (call := self.calls.current) is not None:
            call.converted = True

    def write(self, text: str) -> None:
        """Append a piece of JSON to the arguments of the last call, after `convert`."""
        if (call := self.calls.current) is not None:
            call.pieces.append(text)
            if self._output.call_deltas:
                self._output.report_arguments(call, text)

    def warn(self, code: Code, message: str) -> None:
        """Add a warning that repeats no text."""
        if self.stores:
            self._output.add(Warning, code, message)

    # For grammars: the end.

    def exceed(self, code: Code, place: int | None = None) -> None:
        """Report that a limit is exceeded at `place`, or after the text that arrived. Later text is not kept."""
        place = self.received if place is None else place
        if not (self.kept_from or self.calls.drafts):  # in a wrapper, before its first call
            self.begin_call(0)
            if not self.stores:
                return
        raw = self.kept_to(place)
        self.skip_from(place)
        self._resolve(raw, self.kept_from, code, survivors=True)
        self.take = self.call_id = None

    def close(self, code: Code | None = None, *, survivors: bool = False) -> None:
        """End the span here, and turn each draft into a call or an error.

        With `code`, all calls become errors of that code, except complete ones if there are `survivors`.
        """
        if self.stores:
            raw = self.kept_to(self.place)
            self.several_lines = self.several_lines or "\n" in raw
            self._resolve(raw, self.kept_from, code, survivors=survivors)
        else:
            self.several_lines = True  # unknown, but likely
            count = self.skipped
            if count < 0:  # the grammar was looking ahead when the limit was exceeded, and that was reported
                self.at, count = self.at - count, 0
            if count and not self.calls.stopped:
                self._output.add(Warning, Code.SKIPPED, f"{count} characters of a call were skipped", count=count)

    def finish(self, code: Code | None = None) -> None:
        """End the last call here as `close` does. The span continues."""
        if self.stores:
            begin = self.kept_from
            raw = self.take_read()
            self.several_lines = self.several_lines or "\n" in raw
            self._resolve(raw, begin, code, survivors=False)
            if self.calls.stopped:
                self.skip_from(self.place)

    def _resolve(self, raw: str, begin: int, code: Code | None, *, survivors: bool) -> None:
        closing = self.before_closing
        self.calls.resolve(raw, begin, code, survivors=survivors, ended=self.ended, closing=closing)

    # For grammars: JSON.

    def json(
        self, *, lines: Pattern | None = None, envelope: type[JsonScanner] = JsonScanner
    ) -> Generator[None, None, ScanState]:
        """Read a JSON object, or an array of objects. Returns ENDED, OPEN at the end of the stream, or BROKEN.

        A line that begins with `lines` ends the span, in strings too. `envelope` is the scanner class, which knows how
        the value holds its calls.
        """
        self.scanner = scanner = envelope(depth=self.depth, lines=lines is not None)
        while True:
            yield  # `read` scans the text
            state = self._state
            if state is DEEP:
                if self.stores:
                    self.exceed(Code.TOO_DEEP, self.place)
            elif state is LINE:
                assert lines is not None
                self.scanner = None
                while (found := lines.match(self.text, self.at, self.ended)) is None:
                    yield
                if found:
                    state = BROKEN
                    break
                self.scanner, scanner.escaped, scanner.over_line = scanner, True, True
            else:
                break
        self.scanner = self.call_id = self.take = None
        self._broken = scanner if state is BROKEN else None
        return state

    def arguments(self) -> Generator[None, None, ScanState]:
        """Read the JSON object of the last call's arguments. Returns the same as `json`."""
        return (yield from self.json(envelope=Arguments))

    def recover(self) -> Generator[None, None, None]:
        """After broken JSON, read up to the place where its brackets balance, or to the next blank line.

        A blank line counts in strings too, because the missing quote that broke the JSON must not hide the rest of the
        answer. A line of more than 256 blanks is not blank. The end of the stream ends everything.
        """
        assert self._broken is not None
        depth, in_string = self._broken.depth, self._broken.in_string
        self._broken = None
        while True:
            found = _milestone(self.text, self.at)
            if found is None:
                self.at = len(self.text)
            elif found[1]:
                self.at = found.start() + 1
                return
            elif found[0] == "\\" or found[2] is not None:
                self.at = found.start()
            else:
                mark = found[0]
                self.at = found.start() + 1 if mark[0] == "\\" and not in_string else found.end()
                if mark == '"':
                    in_string = not in_string
                elif not in_string and mark in "{[":
                    depth += 1
                elif not in_string and mark in "}]":
                    depth -= 1
                    if depth <= 0:
                        return
                continue
            if self.ended:
                self.at = len(self.text)
                return
            yield

    def recover_at(self, closing: Closing) -> Generator[None, None, bool]:
        """After broken JSON, read up to the end of the next `closing`. Returns False at the end of the stream.

        The string that was read last is searched too. It may have begun in the wrong place, because a quote is missing.
        Another span that began in that string would have ended it with its first quote, so no text is read thrice.
        """
        if self._broken is not None and self.stores and 0 <= self._broken.string_begin < self.place:
            self.rewind(self._broken.string_begin)
        self._broken = None
        return (yield from self.until(closing))

    def at_end_in(self, *words: str) -> bool:
        """Read the rest if the stream was cut inside one of `words`. Returns whether it was."""
        rest = self.text[self.at :] if self.ended else None
        if rest is None or not any(word.startswith(rest) for word in words):
            return False
        self.at = len(self.text)
        return True


Body: TypeAlias = Callable[[Span], Generator[None, None, None]]
"""A grammar: reads one span from the end of its marker to its own end, and yields when it needs more text."""

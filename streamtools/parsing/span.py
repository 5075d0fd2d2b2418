"""A hidden section of text, from a marker to wherever the grammar of its dialect ends it.

A grammar reads from a span and reports to it. The span keeps its text, and reports at once what the grammar, or the
JSON that it asks for, reads of a call. Over a limit it reports that once, and goes on only to find its end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.events import CallDelta, UIEvent
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.call_life import WrittenCalls
from streamtools.parsing.declared import Declared
from streamtools.parsing.json_parts import ARGUMENTS, BEGIN, BLAME, END, FIELD, NAME, PIECE
from streamtools.parsing.json_text import BROKEN, DEEP, LINE, OPEN, Arguments, JsonText, State
from streamtools.parsing.markers import Pattern
from streamtools.parsing.reader import Closing, always

_FINISHED = object()
_milestone = re.compile(r'\\(?:.|\Z)|\n[ \t\r]{0,256}(?:(\n)|(\Z))|[\n"{}\[\]]', re.DOTALL).search


class Span(WrittenCalls):
    """A hidden section of text, read by the grammar of one dialect."""

    __slots__ = ("_broken", "_state", "declared", "depth", "finished", "scanner")

    def __init__(
        self,
        marker: str,
        dialect: str | None,
        output: CallEvents,
        declared: Declared,
        show: Callable[[str], bool],
        announces: bool = True,
    ) -> None:
        """Begin behind `marker`; a span without a `dialect` is no call but a result that the model wrote itself.

        A call begins with the marker if it `announces` one. `show` takes the text of a malformed call that is to be
        text, and returns whether that ends everything.
        """
        limits = output.options.limits
        self.text = self.marker = marker
        self.at = length = len(marker)
        self.base = self.before_closing = self.origin = self._skipped_from = 0
        self.ended = False
        self.leaves = always
        self.take = self.waits = None
        self.parts = [marker]
        self._most = limits.call
        self._length = max(self._most, length)  # the marker is kept in any case
        self.room = self._length - length
        self.stores = True
        self._before = ""
        self.declared = declared
        self.call_id = None
        self.scanner: JsonText | None = None  # at work, if the grammar has paused inside a JSON value
        self.finished = False
        self.several_lines = False  # known at the end
        self.depth = limits.depth  # how deep JSON may nest
        self._state = OPEN  # what `scanner` has come to
        self._broken: JsonText | None = None
        self._dialect = dialect
        self._output = output
        self._show = show
        self._calls = []
        self._lost_from = self.current = None
        self.found = self.stopped = False
        if dialect is not None and announces:
            self.current = call = output.begin_call()
            self._calls.append(call)
            if output.count > limits.calls:
                self.exceed(Code.TOO_MANY_CALLS)

    # What the parser asks for.

    def skim(self, text: str) -> list[UIEvent] | None:
        """Take text in which `leaves` finds nothing; None if a limit is met, and nothing was taken."""
        room = self.room - len(text)
        if room >= 0:
            self.parts.append(text)
        elif self.stores:
            return None
        else:
            self.keep_end(text)
        self.room = room
        output = self._output
        if self.call_id is not None:
            return [CallDelta(self.call_id, text)]
        events: list[UIEvent] = []
        output.events = events
        if self.take is not None:
            self.take(text)
        return events

    def read(self, text: str, body: Iterator[None]) -> bool:
        """Read text behind what there is; return whether the span goes on behind it.

        The `body` is asked only where it has to decide: not while what it `waits` for may still come, nor inside the
        JSON that it has asked for. What has been read, or skimmed, is no longer at hand.
        """
        room = self.room
        place = self._length - room
        if room >= 0:
            self.parts.append(text)
        else:
            self.keep_end(text)
        self.room = room - len(text)
        scanner = self.scanner
        if scanner is not None:  # what came before has all been read
            if scanner.passes and text and scanner.pass_over(text, place):  # the end has no text
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
                    self._note(scanner)
                if state is OPEN and not self.ended:
                    self.leaves = scanner.leaves
                    self.call_id = self.take = None
                    want, call = scanner.want, self.current
                    if want == FIELD:
                        self.take = scanner.kept.append if self.stores else scanner.take
                    elif want and call is not None:
                        if call.flows:
                            self.call_id = call.id
                        elif self._output.call_deltas:
                            self.take = partial(self._output.tell_arguments, call)
                    return True
                self.leaves = always
            if next(body, _FINISHED) is _FINISHED:
                self.finished = True
                if self._calls:  # a grammar has returned without a word about them
                    self.close(Code.UNRECOGNISED_TOOL_CALL)
                return False
            scanner = self.scanner
            if scanner is None:
                return True

    def _note(self, scanner: JsonText) -> None:
        """Apply what has been read of calls in JSON."""
        for kind, value in scanner.facts:
            call = self.current
            if kind == BEGIN and (call is None or call.json_begin >= 0):
                self.begin_call(value)
            elif call is None:
                pass
            elif kind == PIECE:
                if self._output.call_deltas:
                    self._output.tell_arguments(call, value)
            elif kind in (BEGIN, ARGUMENTS):
                call.json_begin = value
            elif kind == NAME:
                if self._output.options.on_malformed == "error":  # else it may yet turn out to be text
                    self._output.start_call(call, value)
            elif kind == END:
                call.json_end = value
            elif kind == BLAME:
                self.blame(Code.MISSING_TOOL_NAME, value)
            else:
                self.call(value)
        scanner.facts.clear()

    # What grammars ask for.

    def json(
        self, *, lines: Pattern | None = None, envelope: type[JsonText] = JsonText
    ) -> Generator[None, None, State]:
        """Read a JSON object, or an array of them; return ENDED, OPEN at the end of the stream, or BROKEN.

        `lines` closes the span wherever a line begins with it, in strings too. `envelope` says how the value holds its
        calls, where that is not the usual way.
        """
        self.scanner = scanner = envelope(depth=self.depth, lines=lines is not None)
        while True:
            yield  # `read` goes over the text
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

    def arguments(self) -> Generator[None, None, State]:
        """Read the JSON object that the arguments of the last call are; return what `json` returns."""
        return (yield from self.json(envelope=Arguments))

    def recover(self) -> Generator[None, None, None]:
        """Behind broken JSON, read to where its brackets balance, or to the next blank line.

        A blank line ends it in strings too: the missing quote that broke the text must not swallow the rest of the
        answer. A line of more than 256 blanks is none; the end of the stream ends everything.
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
        """Behind broken text, read up to the end of the first `closing`; return False at the end of the stream.

        The string that was read last may have begun in the wrong place, where a quote was missing, so it is searched
        as well. Another span that began in it would have ended it with its own first quote: nothing is read thrice.
        """
        if self._broken is not None and self.stores and 0 <= self._broken.string_begin < self.place:
            self.rewind(self._broken.string_begin)
        self._broken = None
        return (yield from self.until(closing))

    def at_end_in(self, *words: str) -> bool:
        """Whether only the beginning of one of `words` comes any more, in which the stream was cut; it is read then."""
        rest = self.text[self.at :] if self.ended else None
        if rest is None or not any(word.startswith(rest) for word in words):
            return False
        self.at = len(self.text)
        return True


Body: TypeAlias = Callable[[Span], Generator[None, None, None]]
"""A grammar: reads one span from behind its marker to its end, and yields where it needs more text."""

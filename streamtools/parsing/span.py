"""A hidden stretch of text, from a marker to wherever the grammar of its dialect ends it.

A span is what a grammar reads from, and what it reports to. Its text is kept (`raw_text`), and what the grammar or the
envelope of a call tells while it is being written is passed on (`drafts`). Over a limit the span reports that once, and
goes on only to find where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from streamtools.errors import Code
from streamtools.events import Markup, UIEvent, Warning
from streamtools.json_values import Rejected
from streamtools.parsing.broken_json import skip_broken
from streamtools.parsing.closings import Closing
from streamtools.parsing.declared import Declared
from streamtools.parsing.drafts import Draft, Drafts
from streamtools.parsing.envelope import FIELD, Arguments, Envelope
from streamtools.parsing.json_text import BROKEN, DEEP, LINE, OPEN, JsonText, State
from streamtools.parsing.markers import Pattern
from streamtools.parsing.options import Options
from streamtools.parsing.output import Output
from streamtools.parsing.raw_text import RawText


class Span(RawText):
    """A hidden stretch of text, read by the grammar of one dialect."""

    __slots__ = (
        "_broken",
        "_drafts",
        "_options",
        "_output",
        "_tells",
        "declared",
        "depth",
        "scanner",
        "several_lines",
        "state",
        "told",
    )

    def __init__(
        self,
        marker: str,
        drafts: Drafts | None,
        options: Options,
        output: Output,
        declared: Declared,
    ) -> None:
        """Begin behind `marker`; a span without `drafts` is no call but a result that the model wrote itself."""
        RawText.__init__(self, marker, options.limits.call)  # `super()` would look for it each time
        self.declared = declared
        self.told: str | None = None  # the call whose arguments go on, and may be told at once
        self.scanner: JsonText | None = None  # at work, if the grammar has paused inside a JSON value
        self.state = OPEN  # what it has come to
        self.several_lines = False  # known at the end
        self.depth = options.limits.depth  # how deep JSON may nest
        self._options = options
        self._output = output
        self._broken: JsonText | None = None
        self._tells = options.call_deltas
        self._drafts = drafts
        if drafts is not None and not drafts.begin(0):
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
        return self.tell(text)

    def tell(self, text: str) -> list[UIEvent]:
        """Return the events of such text, which is kept already."""
        if self.told is not None:
            return [self._output.make_delta(self.told, text)]
        events: list[UIEvent] = []
        if self.take is not None:
            self._output.events = events
            self.take(text)
        return events

    def scan(self, text: str) -> list[UIEvent] | None:
        """Take text that is no matter of the grammar: JSON, of which `scanner` finds the end, or what it `waits` for.

        Behind it, a `state` that is not OPEN means that the grammar has to go on. None if it has to anyway, or if a
        limit is met; nothing was taken then.
        """
        scanner = self.scanner
        room = self.room - len(text)
        if room < 0:
            return None
        if scanner is None:
            if self.waits is None:
                return None
            unread = self.text[self.at :] + text
            if self.waits.match(unread, 0, False) is not None:
                return None
            self.parts.append(text)
            self.room = room
            self.text, self.base, self.at = unread, self.base + self.at, 0
            return []
        place = self._length - self.room
        self.room = room
        self.parts.append(text)
        if scanner.passes and scanner.pass_over(text, place):
            self.leaves = scanner.leaves
            if self.told is None:
                return self.tell(text)
            make_delta = self._output.make_delta
            return [make_delta(self.told, text)]
        self.text, self.at, self.base = text, 0, place  # what came before has all been read
        events: list[UIEvent] = []
        self._output.events = events
        self.state = state = scanner.scan(self)
        if state is OPEN:
            if scanner.passes or scanner.leaves is not None:
                self._pause(scanner)
            else:
                self.leaves = None  # so that nothing is skimmed
        return events

    def lose(self) -> None:
        """Take note that a part of the stream is missing behind what has come."""
        if self._drafts is not None:
            self._drafts.lose()

    def _pause(self, scanner: JsonText) -> None:
        """Choose what becomes of text that has no other consequences."""
        self.leaves = scanner.leaves
        self.told = self.take = None
        want = scanner.envelope.want
        if want == FIELD:
            self.take = scanner.envelope.kept.append if self.stores else scanner.envelope.take
        elif want and self._tells and self._drafts is not None and (draft := self._drafts.last) is not None:
            if draft.announced:
                self.told = draft.id
            else:
                self.take = draft.waiting.append

    def exceed(self, code: Code, place: int | None = None) -> None:
        """Report that a limit is met at `place`, or behind all that has come; from there on nothing is stored."""
        if place is None:
            place = self.received
        raw = self.kept_to(place)
        self.skip_from(place)
        self._settle(raw, self.origin, code, True)
        self.told = self.take = None

    # What grammars ask for.

    def json(self, *, lines: Pattern | None = None, envelope: Envelope | None = None) -> Generator[None, None, State]:
        """Read a JSON object, or an array of them; return ENDED, OPEN at the end of the stream, or BROKEN.

        `lines` closes the span wherever a line begins with it, in strings too. `envelope` says how the value holds its
        calls, where that is not the usual way.
        """
        self.scanner = scanner = JsonText(envelope or Envelope(self), depth=self.depth, lines=lines is not None)
        drafts = self._drafts
        if drafts is None or drafts.last is None or drafts.last.json_begin >= 0:
            scanner.usual = None  # a further call begins, with an event, at its first character, not at its name
        over_line = False
        while True:
            if self.state is OPEN:
                self.state = scanner.scan(self, over_line)
                over_line = False
            if self.state is OPEN and not self.ended:
                self._pause(scanner)
                yield
                continue
            self.leaves = None
            state, self.state = self.state, OPEN
            if state is DEEP:
                if self.stores:
                    self.exceed(Code.TOO_DEEP, self.place)
            elif state is LINE:
                assert lines is not None
                while (found := lines.match(self.text, self.at, self.ended)) is None:
                    self.scanner = None
                    yield
                self.scanner = scanner
                if found:
                    state = BROKEN
                    break
                over_line = True
            else:
                break
        self.scanner = self.told = self.take = None
        self._broken = scanner if state is BROKEN else None
        return state

    def arguments(self) -> Generator[None, None, State]:
        """Read the JSON object that the arguments of the last call are; return what `json` returns."""
        return (yield from self.json(envelope=Arguments(self)))

    def recover(self) -> Generator[None, None, None]:
        """Behind broken JSON, read to where its brackets balance, or to the next blank line."""
        assert self._broken is not None
        yield from skip_broken(self, self._broken)
        self._broken = None

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

    @property
    def in_call(self) -> bool:
        """Whether the last call of the span, or what should be one, is not complete."""
        draft = self._draft
        return draft is not None and not draft.complete

    def close(self, code: Code | None = None, *, survivors: bool = False) -> None:
        """End the span here: its calls are settled, see `Drafts.settle`."""
        if self.stores:
            raw = self.kept_to(self.base + self.at)
            self.several_lines = self.several_lines or "\n" in raw
            self._settle(raw, self.origin, code, survivors)
        else:
            self.several_lines = True  # not known, and likely
            count = self.skipped
            if count < 0:  # the limit was met while the grammar looked at what follows: that has been reported
                self.at, count = self.at - count, 0
            if count and not (self._drafts and self._drafts.stopped):
                self._output.add(Warning, Code.SKIPPED, f"{count} characters of a call were skipped", count=count)

    def finish(self, code: Code | None = None) -> None:
        """End the last call here and hand it out, where the span goes on; it is what `close` would make of it."""
        if self.stores:
            origin = self.origin
            raw = self.hand_out()
            self.several_lines = self.several_lines or "\n" in raw
            self._settle(raw, origin, code, False)
            if self._drafts is not None and self._drafts.stopped:
                self.skip_from(self.place)

    def warn(self, code: Code, message: str) -> None:
        """Add a warning that repeats no text."""
        if self.stores:
            self._output.add(Warning, code, message)

    @property
    def _draft(self) -> Draft | None:
        return None if self._drafts is None else self._drafts.last

    def _settle(self, raw: str, origin: int, code: Code | None, survivors: bool) -> None:
        if self._drafts is None:
            self._output.add(Warning, Code.FORGED_RESULT, "the model wrote a tool result itself", raw=raw)
            return
        if self._options.keep_markup:
            draft = self._drafts.first
            before = raw if draft is None else raw[: draft.begin - origin]
            if before:
                self._output.add(Markup, before)
        self._drafts.settle(raw, origin, code, survivors, self.ended, self.before_closing - origin)

    # What grammars and the envelope tell of calls.

    def begin_call(self, place: int) -> None:
        """A call, or what stands in its place, begins; the first is the one that the marker began."""
        drafts = self._drafts
        if drafts is None:
            return
        draft = drafts.last
        if draft is None or draft.json_begin >= 0:
            if self.stores and not drafts.begin(place):
                self.exceed(Code.TOO_MANY_CALLS, place + 1)
            draft = drafts.last
        if draft is not None:
            draft.json_begin = place

    def begin_arguments(self, place: int) -> None:
        """The JSON of its arguments begins."""
        if self._draft is not None:
            self._draft.json_begin = place

    def end_call(self, place: int | None = None) -> None:
        """It is complete at `place`, or here."""
        drafts = self._drafts
        if drafts is not None and drafts.last is not None:
            drafts.last.json_end = self.place if place is None else place

    def convert(self) -> None:
        """The arguments of the last call come as the pieces that `write` is given, and not as JSON of the span."""
        if self._draft is not None and self._draft.pieces is None:
            self._draft.pieces = []

    def write(self, text: str) -> None:
        """Add a piece to the JSON text of the last call's arguments, which are not written as JSON."""
        draft = self._draft
        if draft is not None:
            assert draft.pieces is not None
            draft.pieces.append(text)
            self.tell_arguments(text)

    def identify(self, provider_id: str) -> None:
        """Take note of the id that the model gave to the last call."""
        if self._draft is not None:
            self._draft.provider_id = provider_id

    def blame(self, code: Code, message: str) -> None:
        """What makes the last call an error, whatever comes; the first reason counts."""
        draft = self._draft
        if draft is not None and draft.fault is None:
            draft.fault = Rejected(code, message)

    def name_call(self, name: str) -> None:
        """Its name is certain, and stands in its JSON."""
        if self._drafts is not None:
            self._drafts.name(name)

    def call(self, name: str) -> None:
        """The last call is of this tool; its JSON holds no name, but its arguments."""
        if self._drafts is not None:
            self._drafts.name(name, outside=True)

    def tell_arguments(self, text: str) -> None:
        """A piece of its arguments, as JSON text."""
        if self._tells and text and self._drafts is not None and (draft := self._drafts.last) is not None:
            if draft.announced:
                output = self._output
                make_delta = output.make_delta
                output.events.append(make_delta(draft.id, text))
            else:
                draft.waiting.append(text)


Body: TypeAlias = Callable[[Span], Generator[None, None, None]]
"""A grammar: reads one span from behind its marker to its end, and yields where it needs more text."""

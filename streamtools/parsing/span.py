"""One call that is being written: everything from its marker to its end, hidden from the reader.

A span is what a dialect's grammar reads, and what it reports to. It keeps the raw text, announces the calls in it as
they become certain, and at its end turns each of them into a `call` or an `error` that holds its part of that text, so
that nothing is lost. Over a limit it reports once and goes on without storing, only to find where it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator

from streamtools.calls import Limits, Rejected, ToolCall, decode_json, read_envelope
from streamtools.errors import Code
from streamtools.events import Call, CallDelta, CallStart, Error, Thinking, UIEvent, Warning
from streamtools.parsing.envelope import Envelope
from streamtools.parsing.json_text import JsonText, State, recover
from streamtools.parsing.markers import Pattern
from streamtools.parsing.options import Options
from streamtools.parsing.output import Output
from streamtools.parsing.reader import Reader

_MESSAGES = {
    Code.INVALID_JSON: "the call is not valid JSON",
    Code.TRUNCATED: "the call was cut off",
    Code.TOO_LARGE: "the call is too long",
    Code.TOO_DEEP: "the call nests too deeply",
    Code.TOO_MANY_CALLS: "the answer holds too many calls",
    Code.UNRECOGNISED_TOOL_CALL: "there is no call where one should be",
}
_LOOK_BACK = 320  # pieces of text that are kept while skipping: more than any blank line that is looked back for


class Slot:
    """One call of a span: where its text begins, where its JSON is, what has been told of it."""

    __slots__ = ("begin", "id", "json_begin", "json_end", "told", "waiting")

    def __init__(self, call_id: str, begin: int) -> None:
        self.id = call_id
        self.begin = begin
        self.json_begin = -1
        self.json_end = -1
        self.told = False  # call-start has gone out
        self.waiting: list[str] = []  # arguments that came before it


class Span(Reader):
    """A hidden stretch of text, read by the grammar of one dialect."""

    def __init__(
        self,
        marker: str,
        *,
        dialect: str,
        forged: bool,
        options: Options,
        output: Output,
        show: Callable[[str], bool],
    ) -> None:
        """Begin behind `marker`; a `forged` span is no call but a result that the model wrote itself.

        `show` takes the text of a malformed call that is to be text, and returns whether that is the end of everything.
        """
        super().__init__(marker, len(marker), ended=False)
        self.forged = forged
        self.leaves: Callable[[str], object] | None = None  # see `JsonText.leaves`; None where the grammar must see
        self.several_lines = False  # known at the end
        self.counts = False  # it was a call, or an error in the place of one
        self._dialect = dialect
        self._options = options
        self._output = output
        self._show = show
        self._stopped = False  # what is still read will not be known when the text is cut elsewhere
        self._limits: Limits = options.limits
        self.parts: list[str] | deque[str] = [marker]
        self._length = max(self._limits.call, len(marker))  # how much may be stored
        self.room = self._length - len(marker)  # how much more; negative while nothing is
        self._skipped_from = -1  # the place from which on nothing is stored
        self._slots: list[Slot] = []
        self._announces = options.on_malformed == "error"
        self._tells = options.call_deltas and not forged
        self.scanner: JsonText | None = None  # at work, if the grammar has paused inside a JSON value
        self.state = State.OPEN  # what it has come to
        self.escaped = False  # it has paused inside an escape
        self.told: str | None = None  # the call whose arguments go on, and may be told at once
        self._capture: Callable[[str], None] | None = None  # takes text that goes on otherwise
        self._make_delta = output.make_delta
        self._broken: JsonText | None = None
        if not forged:
            self._begin_slot(0)

    # What the parser asks for.

    @property
    def stores(self) -> bool:
        """Whether text is kept, since no limit has been met."""
        return self._skipped_from < 0

    def push(self, text: str) -> None:
        """Add text behind what there is; what has been read, or skimmed, is forgotten."""
        self.parts.append(text)
        self.room -= len(text)
        self.text = self.text[self.at :] + text if self.at < len(self.text) else text
        self.at = 0
        self.base = self._length - self.room - len(self.text)

    def skim(self, text: str) -> list[UIEvent] | None:
        """Take text that only continues an open string; None if a limit is met, and nothing was taken."""
        room = self.room - len(text)
        if room < 0 and self._skipped_from < 0:
            return None
        self.room = room
        self.parts.append(text)
        if self.told is not None:
            return [self._make_delta(self.told, text)]
        if self._capture is not None:
            self._capture(text)
        return []

    def scan(self, text: str) -> list[UIEvent] | None:
        """Take text while `scanner` is at work; None if a limit is met, and nothing was taken.

        Behind it, a `state` that is not OPEN means that the grammar has to go on.
        """
        scanner = self.scanner
        if scanner is None or self._skipped_from >= 0 or len(text) > self.room:
            return None
        if scanner.hop(text):
            self.leaves = scanner.leaves
            return self.skim(text)
        self.push(text)
        events: list[UIEvent] = []
        self._output.events = events
        self.state = scanner.scan(self)
        self._pause(scanner)
        return events

    def follow(self, text: str) -> None:
        """Take note of an escape that begins or ends at the end of skimmed text."""
        scanner = self.scanner
        if scanner is not None:
            scanner.skim(text)
            self.escaped = scanner.escaped
            self.leaves = scanner.leaves

    def _pause(self, scanner: JsonText) -> None:
        """Choose what becomes of text that has no other consequences."""
        self.leaves = scanner.leaves if scanner.in_string else None
        self.escaped = scanner.escaped
        self.told, self._capture = None, scanner.capture
        if self._tells and scanner.telling:
            slot = self._slots[-1]
            if slot.told:
                self.told = slot.id
            else:
                self._capture = slot.waiting.append

    @property
    def last(self) -> str:
        """The character before the place that has been read to, as far as it is still known."""
        return self.text[self.at - 1 : self.at] if self.at else ""

    def exceed(self, code: Code, place: int | None = None) -> None:
        """Report that a limit is met at `place`, or behind all that has come; from there on nothing is stored."""
        if place is None:
            place = self._length - self.room
        raw = "".join(self.parts)[:place]
        self._skipped_from = place
        self.parts = deque([self.text], maxlen=_LOOK_BACK)
        self._report(raw, code, survivors=True)
        self._tells = False
        self.told = self._capture = None

    # What grammars ask for.

    def json(self, *, lines: Pattern | None = None) -> Generator[None, None, State]:
        """Read a JSON object, or an array of them; return ENDED, OPEN at the end of the stream, or BROKEN.

        `lines` closes the span wherever a line begins with it, in strings too.
        """
        self.scanner = scanner = JsonText(Envelope(self), depth=self._limits.depth, lines=lines is not None)
        over_line = False
        while True:
            if self.state is State.OPEN:
                self.state = scanner.scan(self, over_line=over_line)
                over_line = False
            if self.state is State.OPEN and not self.ended:
                self._pause(scanner)
                yield
                continue
            self.leaves = None
            state, self.state = self.state, State.OPEN
            if state is State.DEEP:
                if self._skipped_from < 0:
                    self.exceed(Code.TOO_DEEP, self.place)
            elif state is State.LINE:
                assert lines is not None
                while (found := lines.match(self.text, self.at, self.ended)) is None:
                    self.scanner = None
                    yield
                self.scanner = scanner
                if found:
                    state = State.BROKEN
                    break
                over_line = True
            else:
                break
        self.scanner = self._capture = None
        self._broken = scanner if state is State.BROKEN else None
        return state

    def recover(self) -> Generator[None, None, None]:
        """Behind broken JSON, read to where its brackets balance, or to the next blank line."""
        assert self._broken is not None
        yield from recover(self, self._broken)
        self._broken = None

    @property
    def at_line_start(self) -> bool:
        """Whether only blanks stand between the last line feed and here."""
        behind = self.text[: self.at]
        parts = iter(reversed(self.parts))
        unread = len(self.text) - self.at
        while not (stripped := behind.rstrip(" \t")):
            part = next(parts, None)
            if part is None:
                return False
            behind, unread = part[: max(0, len(part) - unread)], max(0, unread - len(part))
        return stripped[-1] == "\n"

    @property
    def in_call(self) -> bool:
        """Whether the last call of the span, or what should be one, is not complete."""
        return bool(self._slots) and self._slots[-1].json_end < 0

    def close(self, code: Code | None = None, *, survivors: bool = False) -> None:
        """End the span here.

        Without `code`, each call in it is a call or what it is itself to blame for; with it all are errors, except, if
        there are `survivors`, those of which the JSON is complete.
        """
        end = self.place
        if self._skipped_from < 0:
            raw = "".join(self.parts)[:end]
            self.several_lines = "\n" in raw
            self._report(raw, code, survivors=survivors)
        else:
            self.several_lines = True  # not known, and likely
            if (count := end - self._skipped_from) and not self._stopped:
                self._output.add(Warning, Code.SKIPPED, f"{count} characters of a call were skipped", count=count)

    def warn(self, code: Code, message: str) -> None:
        """Add a warning that repeats no text."""
        if self._skipped_from < 0:
            self._output.add(Warning, code, message)

    # What the envelope tells.

    def begin_call(self, place: int) -> None:
        if self._slots and self._slots[-1].json_begin >= 0:
            self._begin_slot(place)
        if self._slots:
            self._slots[-1].json_begin = place

    def end_call(self, place: int) -> None:
        if self._slots:
            self._slots[-1].json_end = place

    def name_call(self, name: str) -> None:
        if self._slots and self._announces:
            self._tell(self._slots[-1], name)

    def tell_arguments(self, text: str) -> None:
        if self._tells and text:
            slot = self._slots[-1]
            if slot.told:
                self._output.events.append(self._make_delta(slot.id, text))
            else:
                slot.waiting.append(text)

    def _begin_slot(self, place: int) -> None:
        slot = Slot(self._options.new_id(), place)
        self._slots.append(slot)
        self._output.add(Thinking, True, slot.id)
        self._output.count += 1
        if self._output.count > self._limits.calls:
            self.exceed(Code.TOO_MANY_CALLS, place + 1 if place else None)

    def _tell(self, slot: Slot, name: str) -> None:
        slot.told = True
        self._output.add(CallStart, slot.id, name)
        if slot.waiting:
            self._output.add(CallDelta, slot.id, "".join(slot.waiting))
            slot.waiting.clear()

    def _report(self, raw: str, code: Code | None, *, survivors: bool) -> None:
        """Turn `raw` into the calls and the errors that its slots are."""
        if self.forged:
            self._output.add(Warning, Code.FORGED_RESULT, "the model wrote a tool result itself", raw=raw)
            return
        ends = [slot.begin for slot in self._slots[1:]] + [len(raw)]
        for slot, end in zip(self._slots, ends, strict=True):
            own = raw[slot.begin : end]
            try:
                if code and not (survivors and slot.json_end >= 0):
                    raise Rejected(code, _MESSAGES[code])
                if slot.json_end < 0:
                    raise Rejected(Code.UNRECOGNISED_TOOL_CALL, _MESSAGES[Code.UNRECOGNISED_TOOL_CALL])
                call = self._read(slot, raw[slot.json_begin : slot.json_end], own)
            except Rejected as rejected:
                self._reject(slot, rejected.code, rejected.message, own)
            else:
                self.counts = True
                if not slot.told:
                    self._tell(slot, call.name)
                self._output.calls.append(call)
                self._output.add(Call, call)
                self._output.add(Thinking, False, slot.id)
        self._slots.clear()

    def _read(self, slot: Slot, text: str, raw: str) -> ToolCall:
        strict, limits = self._options.strict, self._limits
        decoded = decode_json(text, strict=strict, limits=limits)
        envelope = read_envelope(decoded.value, strict=strict, limits=limits)
        return ToolCall(
            id=slot.id,
            name=envelope.name,
            arguments=envelope.arguments,
            dialect=self._dialect,
            raw=raw,
            repaired=decoded.repaired or envelope.repaired,
            provider_id=envelope.provider_id,
        )

    def _reject(self, slot: Slot, code: Code, message: str, raw: str) -> None:
        if self._announces:
            self.counts = True
            error = Error(code, message, call_id=slot.id, raw=raw, seq=self._output.number())
            if len(self._output.errors) <= self._limits.calls:  # a hostile stream has no end of them
                self._output.errors.append(error)
            self._output.events.append(error)
            self._output.add(Thinking, False, slot.id)
        else:
            self._output.add(Thinking, False, slot.id)
            self._output.add(Warning, code, message)
            self._stopped = self._show(raw)

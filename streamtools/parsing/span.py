"""A span: a section of text that holds calls. It begins with a marker and ends where the dialect's grammar ends it.

The text of a span is hidden from the user. A grammar is a generator function that reads from a `Span` and calls its
methods to report calls. The span stores the text. It reports each fact about a call as soon as the grammar, or the JSON
scanner that the grammar starts, has read it. If the text exceeds a limit, the span reports one error. From then on, the
grammar reads text only to find the end of the span, and the span does not store that text.

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
from streamtools.events import CallDelta, Warning
from streamtools.json_values import Rejected
from streamtools.parsing.call_events import CallDraft, CallEvents
from streamtools.parsing.declared import Declared
from streamtools.parsing.json_scanner import BROKEN, DEEP, FIELD, LINE, OPEN, Arguments, JsonScanner, ScanState
from streamtools.parsing.markers import Pattern
from streamtools.parsing.reader import LOOK_BACK, Closing, Reader, always
from streamtools.parsing.span_calls import MESSAGES, SpanCalls

_FINISHED = object()
# Finds the next escape, quote, bracket or line feed. Group 1 matches if a blank line follows the line feed. Group 2
# matches if the text ends before this can be decided.
_milestone = re.compile(r'\\(?:.|\Z)|\n[ \t\r]{0,256}(?:(\n)|(\Z))|[\n"{}\[\]]', re.DOTALL).search


class Span(Reader):
    """The text of one span and the calls in it. The grammar of one dialect reads the text.

    A grammar is a generator function. Each read is a `yield from`, and waits until enough text has arrived. It reads a
    text or a `Pattern` that follows (`accept`, `choose`, `expect`), a word (`word`), text up to an end (`until`,
    `content`, `recover_at`), or JSON (`arguments`, `json`). A read of JSON returns `ENDED`, `BROKEN`, or `OPEN` if the
    answer has ended inside of it. The grammar ends with `close()`, or with the code of an error if the call is broken
    or cut off. A marker consists of texts, and of `Some`, `OneOf`, `Maybe`, `SPACES`, `BLANKS` and `LINE_END`.

    >>> import json
    >>> from streamtools import parse
    >>> from streamtools.parsing import ENDED, SPACES, Dialect, Opener, Some
    >>> name = "a-z_"  # the characters of a name, as in a regular expression
    >>> def read_call(span):
    ...     span.set_name((yield from span.word(name)))
    ...     yield from span.accept(")")  # the marker ensures that it follows
    ...     state = yield from span.arguments()
    ...     yield from span.peek()  # skips white space
    ...     if state is ENDED and (yield from span.accept("END")):
    ...         span.close()
    ...     elif state is OPEN or span.at_end_in("END"):  # the answer ends inside of the call
    ...         span.close(Code.TRUNCATED)
    ...     else:
    ...         yield from span.recover_at(Closing("END", blank_line=True))
    ...         span.close(Code.INVALID_JSON)
    >>> own = Dialect(
    ...     id="own",
    ...     openers=(Opener(("CALL(",), read_call, ahead=(Some(name, 1, 64), ")", SPACES, "{")),),
    ...     write_call=lambda name, arguments: f"CALL({name}){json.dumps(arguments)}END",
    ...     reserved=("CALL(",),
    ... )
    >>> answer = parse('CALL(now){"zone": "UTC"}END and CALL(now){"zone": UTC}END, done.', dialects=own)
    >>> print(answer.content, "|", answer.calls[0].arguments, answer.errors[0].code)
     and , done. | {'zone': 'UTC'} invalid_json
    """

    def __init__(
        self,
        marker: str,
        dialect: str | None,
        output: CallEvents,
        declared: Declared,
        show_text: Callable[[str], bool],
        announces: bool = True,
    ) -> None:
        """Begin a span after `marker`. With `dialect=None`, the span reports no calls: it is a tool result that the
        model wrote itself, or a call in reasoning.

        With `announces`, a call begins with the marker. `show_text` shows a malformed call as text, as the option
        `on_malformed="text"` requires. It returns True if showing the text stops the turn.
        """
        limits = output.options.limits
        super().__init__(marker, limits.call)
        self._output = output
        self.calls = SpanCalls(output, dialect, declared, show_text)
        self.declared = declared
        self.depth = limits.depth  # the deepest nesting of JSON that is allowed
        self.call_id: str | None = None  # the next text is a delta of this call; None if the text must be read
        self.scanner: JsonScanner | None = None  # reads a JSON value while the grammar waits for the end of the value
        self.open_json: JsonScanner | None = None  # like `scanner`, but also set while `json` matches `lines`
        self._state = OPEN  # the last result of `scanner.scan`
        self._broken: JsonScanner | None = None  # the scanner that found broken JSON; None after `recover_at`
        self.finished = False  # whether the grammar has returned
        self.several_lines = False  # whether the span holds a line feed; set at the end of the span
        if dialect is not None and announces and not self.calls.begin(0):
            self.exceed(Code.TOO_MANY_CALLS)

    # For the parser.

    def read(self, text: str, body: Iterator[None]) -> bool:
        """Read new text with the grammar `body`. Returns False if the span has ended.

        The grammar is resumed only if it has a decision to make. It stays paused while a JSON scanner reads a value. It
        also stays paused while the pattern `self.waits` may still match. Text that was read by an earlier call of this
        method is removed from `self.text`.
        """
        room = self.room
        if room >= 0:
            self.parts.append(text)
        else:
            self.parts = ["".join(self.parts)[-LOOK_BACK:], text]
        self.room = room - len(text)
        place = self._max_received - room
        scanner = self.scanner
        if scanner is not None:  # The scanner has read all earlier text. `text` is empty at the end of the stream.
            if scanner.can_pass_over and text and scanner.pass_over(text, place):
                self.find_change = scanner.find_change
                if self.call_id is not None:
                    self._output.events.append(CallDelta(self.call_id, text))
                elif (take := self.take) is not None:
                    take(text)
                return True
        else:
            rest = self.text[self.at :]
            text, place = rest + text, place - len(rest)
        self.text, self.at, self.base = text, 0, place
        if (waits := self.waits) is not None and not self.ended:
            begun = waits(text)
            if begun is not None and not begun.lastindex:
                return True
            self.waits = None
        while True:
            if scanner is not None:
                self._state = state = scanner.scan(self)
                if state is OPEN and not self.ended:
                    self.find_change = scanner.find_change
                    self.call_id = self.take = None
                    if (text_kind := scanner.text_kind) == FIELD:
                        self.take = scanner.kept.append if self.stores else scanner.take
                    elif text_kind and (call := self.calls.current) is not None:
                        if call.only_deltas:
                            self.call_id = call.id
                        else:
                            self.take = partial(self._output.report_arguments, call)
                    return True
                self.find_change = always
            if next(body, _FINISHED) is _FINISHED:
                self.finished = True
                if self.calls.drafts:  # the grammar has returned without calling `close`
                    self.close(Code.UNRECOGNISED_TOOL_CALL)
                return False
            scanner = self.scanner
            if scanner is None:
                return True

    # For the scanner of JSON.

    def begin_arguments(self, place: int) -> None:
        """Record that the arguments of the most recent call begin at the position `place`."""
        if (call := self.calls.current) is not None:
            call.json_begin = place

    def report_name(self, name: str) -> None:
        """Report the name of the most recent call's tool. The name is read again from the JSON of the call."""
        if (call := self.calls.current) is not None and self._output.options.on_malformed == "error":
            self._output.start_call(call, name)  # otherwise a malformed call is shown as text

    def report_arguments(self, text: str) -> None:
        """Report a piece of the arguments of the most recent call, as JSON text."""
        if (call := self.calls.current) is not None:
            self._output.report_arguments(call, text)

    # For grammars: the calls.

    @property
    def current(self) -> CallDraft | None:
        """The most recent call of the span, complete or not. None before the first call."""
        return self.calls.current

    @property
    def in_call(self) -> bool:
        """Whether the span has a call, and its most recent call is incomplete."""
        call = self.calls.current
        return call is not None and not call.complete

    def begin_call(self, place: int) -> None:
        """Begin a call whose JSON begins at the position `place`. If a marker has begun the call, set the position."""
        calls = self.calls
        if calls.dialect is None:
            return
        if calls.current is None or calls.current.json_begin >= 0:
            if not self.stores:
                return
            if not calls.begin(place):
                self.exceed(Code.TOO_MANY_CALLS, place + 1)
        if calls.current is not None:
            calls.current.json_begin = place

    def end_call(self, place: int | None = None) -> None:
        """Complete the most recent call at the position `place`. The default is the current position."""
        if (call := self.calls.current) is not None:
            call.json_end = self.base + self.at if place is None else place

    def set_name(self, name: str) -> None:
        """Set and report the name of the most recent call's tool. Needed if the JSON holds only the arguments."""
        if not isinstance(name, str):
            raise TypeError(f"the name of a call must be a str, got {name!r}")
        if (call := self.calls.current) is not None:
            call.name = name
            if name.strip():
                self.report_name(name)

    def withdraw(self, text: str) -> None:
        """Turn earlier calls of the turn into errors, because a call may have ended inside a value.

        `text` is the evidence: it begins with the closing tag of a value, but no call is open.
        """
        if (dialect := self.calls.dialect) is not None and not self._output.final:
            self._output.withdraw(text, dialect)

    def identify(self, provider_id: str) -> None:
        """Set `provider_id`, the id that the model wrote for the most recent call."""
        if (call := self.calls.current) is not None:
            call.provider_id = provider_id

    def fail_call(self, code: Code, message: str) -> None:
        """Turn the most recent call into an error with `code` and `message`. A later error of that call is ignored."""
        if (call := self.calls.current) is not None and call.fault is None:
            call.fault = Rejected(code, message)

    def convert(self) -> None:
        """Announce that `write` will deliver the arguments of the most recent call as JSON.

        A grammar calls this if the model wrote the arguments in another format than JSON.
        """
        if (call := self.calls.current) is not None:
            call.converted = True

    def write(self, text: str) -> None:
        """Append a piece of JSON to the arguments of the most recent call. Call `convert` first."""
        if (call := self.calls.current) is not None:
            call.pieces.append(text)
            if self._output.call_deltas:
                self._output.report_arguments(call, text)

    def warn(self, code: Code, message: str) -> None:
        """Add a warning event without the text of the span. Does nothing after a limit was exceeded."""
        if self.stores:
            self._output.add(Warning, code, message)

    # For grammars: the end.

    def exceed(self, code: Code, place: int | None = None) -> None:
        """Turn the incomplete call into an error. `code` names the limit that the call exceeds at the position `place`.

        The default of `place` is the end of the received text. From `place` on, only the end of the text is stored.
        """
        place = self.received if place is None else place
        if not (self.kept_from or self.calls.drafts):  # a tag around several calls is open, and no call has begun
            self.begin_call(0)
            if not self.stores:
                return
        raw = "".join(self.parts)[: place - self.kept_from]
        self.skip_from(place)
        self._resolve(raw, self.kept_from, code, survivors=True)
        self.take = self.call_id = None

    def _resolve(self, raw: str, begin: int, code: Code | None, *, survivors: bool = False) -> None:
        self.several_lines = self.several_lines or "\n" in raw
        self.calls.resolve(raw, begin, code, survivors=survivors, ended=self.ended, closing=self.before_closing)

    def close(self, code: Code | None = None, *, survivors: bool = False) -> None:
        """End the span at the current position, and turn each draft into a call or an error.

        With `code`, the calls become errors with this code. With `survivors=True`, only incomplete calls become errors.
        Raises ValueError if `code` is not a key of `MESSAGES`.
        """
        if code is not None and code not in MESSAGES:
            raise ValueError(f"`code` must be one of {', '.join(MESSAGES)}, got {code!r}")
        if self.stores:
            raw = "".join(self.parts)[: self.base + self.at - self.kept_from]
            self._resolve(raw, self.kept_from, code, survivors=survivors)
        else:
            self.several_lines = True  # not certain, but very likely in a span of this length
            count = self.place - self._skipped_from
            if count < 0:  # the error holds the text up to the limit; the grammar has not reached it
                self.at, count = self.at - count, 0
            if count and not self.calls.stopped:
                self._output.add(Warning, Code.SKIPPED, f"{count} characters of a call were skipped", count=count)

    def finish(self, code: Code | None = None) -> None:
        """Turn each draft into a call or an error, as `close` does, but continue the span."""
        if self.stores:
            begin = self.kept_from
            self._resolve(self.take_read(), begin, code)
            if self.calls.stopped:
                self.skip_from(self.place)

    # For grammars: JSON.

    def json(
        self, *, lines: Pattern | None = None, envelope: type[JsonScanner] = JsonScanner
    ) -> Generator[None, None, ScanState]:
        """Read a JSON object, or an array of objects. Returns ENDED or BROKEN.

        Returns OPEN if the stream or the message ends before the value. At a line feed in a string, the pattern `lines`
        is matched. If it matches, the JSON is BROKEN and reading stops before the line feed. `envelope` is the scanner
        class, which knows where the calls are in the JSON.
        """
        self.scanner = self.open_json = scanner = envelope(self, depth=self.depth, lines=lines is not None)
        scanner.reports_arguments = self._output.call_deltas
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
        self.scanner = self.open_json = self.call_id = self.take = None
        if state is BROKEN and not scanner.in_string and (yield from self.at_turn_end()):
            state = OPEN
        self._broken = scanner if state is BROKEN else None
        return state

    def arguments(self) -> Generator[None, None, ScanState]:
        """Read the arguments of the most recent call as a JSON object. Returns a state, as `json` does."""
        return (yield from self.json(envelope=Arguments))

    def recover(self) -> Generator[None, None, None]:
        """After broken JSON, read until its brackets balance, or up to a blank line or the end of the stream.

        A blank line also ends the reading inside a string, because a missing quote must not hide the rest of the
        answer. A line of more than 256 spaces does not count as blank.
        """
        assert self._broken is not None
        depth, in_string = self._broken.depth, self._broken.in_string
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

    def recover_at(self, closing: str | Closing) -> Generator[None, None, bool]:
        """After broken JSON, read up to the end of the next `closing`. Returns False if the stream ends first.

        If a quote is missing, the scanner has read the closing as part of a JSON string. So the search begins at the
        most recent JSON string. No text is read more than twice, because a later string cannot begin inside this one.
        """
        if self._broken is not None and self.stores and 0 <= self._broken.string_begin < self.place:
            self.rewind(self._broken.string_begin)
        self._broken = None
        return (yield from self.until(closing))

    def at_end_in(self, *tags: str | Pattern) -> bool:
        """Return True if the stream has ended, and the unread text is empty or the beginning of one of `tags`.

        If so, the unread text counts as read.
        """
        rest = self.text[self.at :] if self.ended else None
        if rest is None or not any(tag.startswith(rest) for tag in tags):
            return False
        self.at = len(self.text)
        return True


Body: TypeAlias = Callable[[Span], Generator[None, None, None]]
"""A grammar: a generator function that reads one span, from the end of its marker. It yields to wait for more text."""

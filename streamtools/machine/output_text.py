"""The value that the text of a turn is, event by event: what each delta adds to it, and whether it is valid. Sans-IO.

White space and a Markdown fence around the value are passed over, and so is what stands behind it. A turn with calls
may say anything else: text that is no JSON from its first character on is a fault only of a turn without calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from streamtools.errors import Code
from streamtools.events import Partial, Text, UIEvent, Warning
from streamtools.json_values import compact
from streamtools.limits import Limits
from streamtools.parsing.value_reader import Added, ValueReader
from streamtools.typed import OutputType

_LONGEST_FENCE = 32  # characters of the line that opens one
_INVALID = "the answer is not what was asked for: "


class OutputText:
    """Reads the text events of one turn after the other."""

    def __init__(self, output: OutputType, number: Callable[[], int], limits: Limits) -> None:
        self._output = output
        self._number = number
        self._limits = limits
        self.begin()

    def begin(self) -> None:
        """Begin a turn."""
        self._reader = ValueReader(self._output.shape, limits=self._limits)
        self._head: str | None = ""  # what comes before the value; None behind it
        self._text: list[str] = []
        self._begun = self._warned = False

    def add_to(self, events: list[UIEvent]) -> list[UIEvent]:
        """Add to events what the texts among them add to the value; return them."""
        reader = self._reader
        if reader.flows and len(events) == 1 and type(event := events[0]) is Text:
            text = event.text
            if '"' not in text and "\\" not in text:  # the commonest of all: a string goes on
                self._text.append(text)
                if not text.isprintable():
                    reader.note_controls(text)
                events.append(Partial(reader.place, text, False, self._number()))
                return events
        for event in events.copy():
            if type(event) is Text and not self._reader.ended and self._reader.fault is None:
                self._feed(event.text, events)
        return events

    def end(self, *, has_calls: bool) -> list[UIEvent]:
        """Return what the end of the turn makes certain."""
        out: list[UIEvent] = []
        if not self._reader.ended and (self._begun or not has_calls):
            self._add(self._reader.close(), out)
            if self._reader.fault is not None and not self._warned:
                self._tell(self._reader.fault.message, out)
        return out

    def _feed(self, text: str, out: list[UIEvent]) -> None:
        if self._head is not None:
            text = self._behind_head(self._head + text)
        if not text:
            return
        self._text.append(text)
        self._add(self._reader.feed(text), out)
        if self._reader.fault is not None and self._begun:
            self._tell(self._reader.fault.message, out)

    def _behind_head(self, head: str) -> str:
        """Return the text behind white space and the opening line of a fence, as soon as it begins."""
        text = head.lstrip()
        fenced = text.startswith("```"[: len(text)])
        if not text or (fenced and "\n" not in text and len(text) <= _LONGEST_FENCE):
            self._head = text
            return ""
        if fenced and "\n" in text:
            text = text.partition("\n")[2].lstrip()
            self._head = None if text else ""
            return text
        self._head = None
        return text

    def _add(self, added: Sequence[Added], out: list[UIEvent]) -> None:
        for each in added:
            self._begun = True
            partial = Partial(each.path, each.value, each.complete, self._number())
            out.append(partial)
            if each.complete and not each.path:
                self._validate(partial, out)

    def _validate(self, partial: Partial, out: list[UIEvent]) -> None:
        if self._reader.rest:
            self._text[-1] = self._text[-1].removesuffix(self._reader.rest)
        text = "".join(self._text)
        try:
            if self._reader.repaired:  # a string holds control characters, which JSON does not allow there
                text = compact(json.loads(text, strict=False))
            partial.keep(self._output.validate(text))
        except (ValueError, RecursionError) as fault:
            self._tell(str(fault), out)

    def _tell(self, message: str, out: list[UIEvent]) -> None:
        self._warned = True
        out.append(Warning(Code.INVALID_OUTPUT, _INVALID + message, seq=self._number()))

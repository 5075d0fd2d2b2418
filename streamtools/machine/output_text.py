"""Reads an answer that must be a JSON value, because the caller requested an output type. Sans-IO.

For each delta of text, `OutputText` adds `partial` events with the new parts of the value. It validates the complete
value. White space and a Markdown fence around the value are skipped, and so is any text after the value. The text of a
turn with tool calls may be prose. In a turn without calls, prose instead of JSON is reported as invalid output.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from streamtools.errors import Code
from streamtools.events import Partial, Text, UIEvent, ValidPartial, Warning
from streamtools.json_values import compact
from streamtools.limits import Limits
from streamtools.parsing.value_reader import Added, ValueReader
from streamtools.typed import OutputType

_MAX_FENCE_LINE = 32  # characters: a longer first line is not the opening line of a fence
_INVALID = "the answer does not match the output type: "


class OutputText:
    """Reads the text events of each turn, and adds `partial` events. Call `begin` before each turn."""

    def __init__(self, output: OutputType, limits: Limits) -> None:
        self._output = output
        self._limits = limits
        self.begin()

    def begin(self) -> None:
        """Reset for a new turn."""
        self._reader = ValueReader(limits=self._limits)
        self._head: str | None = ""  # text before the value; None after the value has begun
        self._text: list[str] = []
        self._has_additions = False  # whether a part of the value was read
        self.fault = ""
        """Why the turn contains no valid value, after a warning has reported it."""

    def add_to(self, events: list[UIEvent]) -> list[UIEvent]:
        """Read the text events in `events`, and append `partial` events for the value to the list. Returns `events`."""
        for event in events.copy():
            if type(event) is Text:
                self._feed(event.text, events)
        return events

    def end(self, *, has_calls: bool) -> list[UIEvent]:
        """Return the last events of the turn: the rest of the value, or a warning that it is invalid.

        With `has_calls=True`, a turn that contains no value is valid.
        """
        out: list[UIEvent] = []
        if not self._reader.ended and (self._has_additions or not has_calls):
            self._add(self._reader.close(), out)
            if self._reader.fault is not None and not self.fault:
                self._warn(self._reader.fault.message, out)
        return out

    def _feed(self, text: str, out: list[UIEvent]) -> None:
        if self._head is not None:
            text = self._skip_head(self._head + text)
        if text:
            self._read(text, out)

    def _read(self, text: str, out: list[UIEvent]) -> None:
        reader, fault = self._reader, self._reader.fault
        if reader.ended or fault is not None:
            return
        self._text.append(text)
        if added := reader.feed(text):
            self._add(added, out)
        if reader.fault is not None and self._has_additions:
            self._warn(reader.fault.message, out)

    def _skip_head(self, head: str) -> str:
        """Return `head` without white space and the opening line of a fence before the value.

        Returns "" if the value has not begun. The next call then gets the same head with more text.
        """
        text = head.lstrip()
        fenced = text.startswith("```"[: len(text)])  # a fence, such as "```json", or its first characters
        if not text or (fenced and "\n" not in text and len(text) <= _MAX_FENCE_LINE):
            self._head = text
            return ""
        if fenced and "\n" in text:
            text = text.partition("\n")[2].lstrip()
        self._head = None if text else ""
        return text

    def _add(self, added: Sequence[Added], out: list[UIEvent]) -> None:
        self._has_additions = True
        for path, value, complete in added:
            if complete and not path:
                self._validate(value, out)
            else:
                out.append(Partial(path, value, complete))

    def _validate(self, value: Any, out: list[UIEvent]) -> None:
        """Add the last `partial` event, which contains `value`, and validate the complete JSON text."""
        last = ValidPartial([], value, True)
        out.append(last)
        if self._reader.rest:
            self._text[-1] = self._text[-1].removesuffix(self._reader.rest)
        text = "".join(self._text)
        try:
            if self._reader.repaired:  # strings contain control characters, which strict JSON does not allow
                text = compact(json.loads(text, strict=False))
            last.set_written(self._output.validate(text))
        except (ValueError, RecursionError) as fault:
            self._warn(str(fault), out)

    def _warn(self, message: str, out: list[UIEvent]) -> None:
        self.fault = _INVALID + message
        out.append(Warning(Code.INVALID_OUTPUT, self.fault))

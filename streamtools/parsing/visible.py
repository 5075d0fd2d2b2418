"""Applies the options `after_call` and `trim` to visible text.

`after_call` hides text after a call, or stops the turn there, because weak models invent the result of the tool. `trim`
removes white space next to a call. With the defaults of both options, `Prose` shows text without this class.
"""

from __future__ import annotations

from streamtools.errors import Code
from streamtools.events import Markup, Text, Warning
from streamtools.parsing.call_events import CallEvents
from streamtools.parsing.options import Options
from streamtools.parsing.reader import not_white_space


class Visible:
    """Shows, hides or trims the text that is not a call."""

    def __init__(self, output: CallEvents, options: Options) -> None:
        self._output = output
        self._after_call = options.after_call
        self._trim = options.trim
        self._keep_markup = options.keep_markup
        self._limit = options.limits.call  # how many characters of hidden text, or of white space, are stored
        self.reset()

    def reset(self) -> None:
        """Begin a turn."""
        self._called = False  # whether the turn has had a call
        self._right_after_call = False  # whether only white space has followed the last call
        self._space: list[str] = []  # pending white space; it is removed if a call follows
        self._space_length = 0
        self._hidden: list[str] = []  # hidden text, up to the limit
        self._hidden_length = 0  # the length of all hidden text
        self.stopped = False  # whether text after a call has stopped the turn

    def show(self, text: str) -> None:
        """Show text that is not a call."""
        if self._called and self._after_call != "show":
            self._withhold(text)
        elif self._trim:
            self._show_trimmed(text)
        else:
            self._output.add(Text, text)

    def show_raw(self, text: str) -> bool:
        """Show the raw text of a malformed call. Returns True if the turn is stopped."""
        if self._called and self._after_call != "show":
            self._withhold(text)
            self._report_hidden()
        else:
            self._output.add(Text, text)
        return self.stopped

    @property
    def shows(self) -> bool:
        """Whether text is now shown. False if `after_call` hides it or stops the turn."""
        return not self._called or self._after_call == "show"

    @property
    def refuses(self) -> bool:
        """Whether the next text other than white space stops the turn."""
        return self._called and self._after_call == "stop"

    def begin_call(self) -> None:
        """Drop the white space before a call, and report the hidden text."""
        self._report_hidden()
        self._drop(self._take_space())

    def end_call(self) -> None:
        """Record that a call has ended. Text from here on is text after a call."""
        self._called = self._right_after_call = True

    def flush(self) -> None:
        """Show pending white space, and report hidden text, because neither text nor a call follows."""
        self._report_hidden()
        if self._space:
            self._output.add(Text, self._take_space())

    def _withhold(self, text: str) -> None:
        if self._after_call == "hide":
            if self._hidden_length < self._limit:
                self._hidden.append(text[: self._limit - self._hidden_length])
            self._hidden_length += len(text)
            return
        found = not_white_space(text)
        space = text[: found.start()] if found else text
        self.stopped = found is not None
        if space:
            self._drop(space) if self._trim else self._output.add(Text, space)

    def _show_trimmed(self, text: str) -> None:
        if self._right_after_call:
            found = not_white_space(text)
            self._drop(text[: found.start()] if found else text)
            if not found:
                return
            self._right_after_call = False
            text = text[found.start() :]
        shown = text.rstrip(" \t\r\n")
        if shown:
            self._output.add(Text, self._take_space() + shown)
        self._keep_space(text[len(shown) :])

    def _keep_space(self, space: str) -> None:
        """Buffer white space. If there is more than the limit, show a part of it immediately."""
        if space:
            self._space.append(space)
            self._space_length += len(space)
        if self._space_length > self._limit:
            kept = self._space_length % (self._limit + 1)  # as if each character had arrived separately
            text = self._take_space()
            self._output.add(Text, text[: len(text) - kept])
            self._keep_space(text[len(text) - kept :])

    def _take_space(self) -> str:
        space = "".join(self._space)
        self._space, self._space_length = [], 0
        return space

    def _drop(self, space: str) -> None:
        if space and self._keep_markup:
            self._output.add(Markup, space)

    def _report_hidden(self) -> None:
        if self._hidden_length:
            raw = "".join(self._hidden)
            self._output.add(Warning, Code.HIDDEN_AFTER_CALL, "text after a call was hidden", raw=raw)
            if rest := self._hidden_length - len(raw):
                self._output.add(Warning, Code.SKIPPED, f"{rest} characters after a call were skipped", count=rest)
        self._hidden, self._hidden_length = [], 0

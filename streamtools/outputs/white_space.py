"""White space at the end of a text that grows: held back until it is known what follows. Sans-IO.

Models set a call apart with line feeds. In a format that moves calls out of the text, they would be left standing. What
is held can be seen by nobody, so nobody waits for it; and because what becomes of a stretch of white space depends on
its length and its neighbours alone, it does not matter how the text was cut.
"""

from __future__ import annotations

BOUND = 1024
"""Characters of one stretch of white space that are held; a longer one is meant, and shown."""

WHITE = " \t\r\n"


class TrailingSpace:
    """Lets a text through but for the white space at its end."""

    def __init__(self) -> None:
        self._held = ""
        self._too_long = False  # the stretch that the text ends in is, and is shown
        self._behind_call = False  # nothing but white space has come since a call

    def feed(self, text: str) -> str:
        """Return what may be shown now."""
        body = text.rstrip(WHITE)
        shown = ""
        if body:
            shown = self._held + body
            self._held = ""
            self._too_long = self._behind_call = False
        space = text[len(body) :]
        if self._too_long:
            return shown + space
        self._held += space
        if len(self._held) > BOUND:
            shown += self._held
            self._held = ""
            self._too_long = True
        return shown

    def meet_call(self) -> None:
        """Drop what is held, because a call follows; and what follows the call, if nothing else does."""
        self.drop()
        self._behind_call = True

    def drop(self) -> None:
        """Drop what is held."""
        self._held = ""
        self._too_long = False

    def close(self) -> str:
        """Return what is left to be shown at the end of the text."""
        return "" if self._behind_call else self._held

"""A call that is a message of its own, addressed to the tool: its header names the tool, its content is the arguments.

The content is one JSON object, up to the token that ends the message. A message without content has no arguments.
Anything else, like the code that a model sends to an interpreter, cannot be arguments and is an error, up to the same
token. A message may also be ended by the next one: models stop at the token that ends a call, and servers cut it off.
"""

from __future__ import annotations

import re
from collections.abc import Generator

from streamtools.errors import Code
from streamtools.parsing.bodies.members import Members
from streamtools.parsing.closings import closing
from streamtools.parsing.json_text import State
from streamtools.parsing.markers import SPACES, OneOf, Pattern
from streamtools.parsing.span import Span

_NULL = Pattern("null")


class AddressedCall:
    """The grammar: `ends` are the tokens that end a message, `begins` those that begin another one.

    `recipient` finds the tool in the header, which is the marker of the span; its first group is the name.
    """

    def __init__(self, recipient: str, *, ends: tuple[str, ...], begins: tuple[str, ...]) -> None:
        self._recipient = re.compile(recipient).search
        self._tokens = (*ends, *begins)
        self._at_once = Pattern(SPACES, OneOf(ends))
        self._end, self._next = Pattern(OneOf(ends)), Pattern(OneOf(begins))
        self._closing = closing(*ends, before=begins)
        self._missing = f"the call lacks its closing {ends[0]}"

    def __call__(self, span: Span) -> Generator[None, None, None]:
        found = self._recipient(span.marker)
        span.call(found[1] if found else "")
        char = yield from span.peek()
        code: Code | None = Code.TRUNCATED
        if char == "{":
            state = yield from span.arguments()
            if state is not State.OPEN:
                done = state is State.ENDED and (yield from self._close(span))
                code = None if done else Code.INVALID_JSON
        elif char:
            code = yield from self._read_other(span)
        if code is Code.INVALID_JSON:
            yield from span.recover_at(self._closing)
        if code is not None:
            span.close(code)

    def result(self, span: Span) -> Generator[None, None, None]:
        """Read a message that is no call but the result of one, up to its end."""
        yield from span.until(self._closing)
        span.close()

    def _read_other(self, span: Span) -> Generator[None, None, Code | None]:
        """Read what is no object: nothing, which is as good as an empty one, or anything else, which is an error."""
        yield from span.accept(_NULL)
        Members(span).end()
        span.end_call()
        if (yield from self._close(span)):
            return None
        span.blame(Code.INVALID_ARGUMENTS, "the arguments are no JSON object")
        if not (yield from span.until(self._closing)):
            return Code.TRUNCATED
        span.close()
        return None

    def _close(self, span: Span) -> Generator[None, None, bool]:
        """Read the end of the message and close the span; return False where something else stands."""
        if (yield from span.accept(self._at_once)):  # as a rule
            span.close()
            return True
        yield from span.peek()
        place = span.place
        found = yield from span.choose(self._end, self._next)
        if found < 0 and not span.at_end_in(*self._tokens):
            return False
        if found > 0:
            span.go_back(place)
        span.close()
        if found:
            span.warn(Code.MISSING_CLOSE, self._missing)
        return True

"""`<get_weather><city>Paris</city><days><item>1</item></days></get_weather>`

The name of the tag is that of the tool, those in it are names of its parameters: a form that is taught by a prompt, to
models that know no other. Only declared tools have tags, and where a tool declares parameters, the first tag inside has
to be one of them: else it is an answer that holds HTML.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.elements import Elements
from streamtools.parsing.bodies.endings import End, complete, settle, skip_rest
from streamtools.parsing.bodies.tags import section
from streamtools.parsing.closings import closing
from streamtools.parsing.dialects.base import Dialect, Opener
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.json_text import State
from streamtools.parsing.markers import SPACES, OneOf, Part, Pattern
from streamtools.parsing.span import Span

_is_name = re.compile(r"[^\W\d][\w.\-]{0,127}").fullmatch
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
_BEHIND_NAME = (">", "/", " ", "\n", "\r", "\t")
_ELEMENTS = Elements(xml=True)


def morph_xml() -> Dialect:
    """Return the dialect."""
    return Dialect(
        id="morph_xml",
        openers=(),
        openers_of=_openers_of,
        write_call=_write_call,
        write_result=write_response,
        reserved=("<tool_response", "</tool_response"),
        auto=False,
        notes="The name of the outer tag is the name of the tool, those of the inner tags are its parameters.",
    )


def _openers_of(name: str, parameters: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return how a call of one tool begins."""
    if not _is_name(name):
        return ()
    words = [parameter + behind for parameter in parameters if _is_name(parameter) for behind in _BEHIND_NAME]
    first = OneOf(tuple(words)) if parameters else OneOf(tuple(_LETTERS))
    opened: tuple[Part, ...] = (f"<{name}", SPACES, ">", SPACES)
    body = _Call(name)
    openers = [
        Opener(opened, body.read, ahead=("{", SPACES, '"')),
        Opener(opened, body.read, ahead=("</", SPACES, name, SPACES, ">")),
        Opener((f"<{name}", SPACES, "/>"), body.end),
    ]
    if words or not parameters:
        openers.append(Opener(opened, body.read, ahead=("<", first)))
    return tuple(openers)


class _Call:
    """The grammar of the calls of one tool."""

    def __init__(self, name: str) -> None:
        self._name = name
        close: tuple[Part, ...] = ("</", SPACES, name, SPACES, ">")
        self._close = Pattern(*close)
        self._closing = closing(close)

    def end(self, span: Span) -> Generator[None, None, None]:
        """Read a call that is one tag."""
        span.call(self._name)
        span.convert()
        span.write("{}")
        span.end_call()
        span.close()
        yield from ()

    def read(self, span: Span) -> Generator[None, None, None]:
        """Read a call, from behind its opening tag."""
        span.call(self._name)
        char = yield from span.peek()
        if char == "{":
            end = yield from self._read_json(span)
        else:
            end = yield from _ELEMENTS.read(span, self._name, span.declared.arguments(self._name))
            end = End.BROKEN if end is End.UNCLOSED else end
            span.end_call()
        yield from skip_rest(span, end, self._closing)
        settle(span, end, f"</{self._name}>")

    def _read_json(self, span: Span) -> Generator[None, None, End]:
        state = yield from span.arguments()
        if state is not State.ENDED:
            return End.BROKEN_JSON if state is State.BROKEN else End.CUT
        span.end_call()
        if not (yield from span.peek()):
            return End.UNCLOSED
        if (yield from span.accept(self._close)):
            return End.CLOSED
        return complete(span, End.CUT) if span.at_end_in(f"</{self._name}>") else End.BROKEN


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    written = "".join(f"<{key}>{_write(value)}</{key}>" for key, value in arguments.items())
    return f"<{name}>{written}</{name}>"


def _write(value: Any) -> str:
    return section(value if isinstance(value, str) else compact(value))

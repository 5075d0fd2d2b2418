"""The answer is a chain of messages to recipients, `all` being the user:

    all
    Let me see.>>>get_weather
    {"city": "Paris"}

The first of them lacks its `>>>`, because the template has written it. Such a line looks like prose, so only the names
of declared tools count. Source: the chat template of meetkai/functionary-small-v3.2.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from streamtools.json_values import compact
from streamtools.parsing.bodies.named_json import Identity, NamedCall, bare
from streamtools.parsing.declared import Declared
from streamtools.parsing.dialects.base import Dialect, Opener, Tag, ends_of_turn
from streamtools.parsing.dialects.hermes import write_response
from streamtools.parsing.markers import BLANKS, LINE_END, SPACES, OneOf
from streamtools.parsing.span import Span

_EVERYONE = "all"


def functionary_v32() -> Dialect:
    """Return the dialect."""
    return Dialect(
        id="functionary_v32",
        openers=(),
        openers_for=_openers_for,
        write_call=_write_call,
        write_result=write_response,
        reserved=(">>>",),
        tags=(
            Tag((">>>" + _EVERYONE, LINE_END)),
            Tag((_EVERYONE, LINE_END), where="start"),
            *ends_of_turn("<|eot_id|>", "<|eom_id|>"),
        ),
        auto=False,
        models=("functionary.*v3.2",),
    )


def _openers_for(names: tuple[str, ...]) -> tuple[Opener, ...]:
    """Return the openers; names take time to compile, so all that begin alike stand in one."""
    known = [name for name in names if name != _EVERYONE]
    marked = [(">>>", OneOf(tuple(known)))] if known else []
    unmarked = [
        (first, OneOf(tuple(name[1:] for name in known if name[0] == first)))
        for first in dict.fromkeys(name[0] for name in known)
    ]
    return (
        *(Opener((*begin, BLANKS, LINE_END, SPACES), _read, ahead=("{",)) for begin in marked),
        *(Opener((*begin, BLANKS, LINE_END, SPACES), _read, ahead=("{",), where="start") for begin in unmarked),
    )


def _read(span: Span) -> Generator[None, None, None]:
    """Read one call; the marker has held the name."""
    name = span.marker.removeprefix(">>>").rstrip(" \t\r\n")
    return bare(NamedCall(identify=partial(_is_named, name)))(span)


def _is_named(name: str, word: str, declared: Declared) -> Identity:
    """Return the name."""
    return Identity(name)


def _write_call(name: str, arguments: dict[str, Any]) -> str:
    return f">>>{name}\n{compact(arguments)}"

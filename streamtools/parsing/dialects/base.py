"""What a dialect is: one object that reads calls and writes them.

Reading is a few openers, each with the grammar of what follows it. Writing is how a call and a result stand in the
history that goes back to the model, so that what a dialect writes, it reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from streamtools.parsing.markers import Marker, Part
from streamtools.parsing.span import Span

Body: TypeAlias = Callable[[Span], Generator[None, None, None]]
"""A grammar: reads one span from behind its marker to its end, and yields where it needs more text."""

_TEMPLATE_MARK = (
    r"<[|\uff5c][^<>\n]{1,256}[|\uff5c]>"  # ChatML, Llama 3, DeepSeek, Phi, Kimi and their kin
    r"|</?(?:start_of_turn|end_of_turn|s|bos|eos|unk|pad|sop|eop)>|<</?SYS>>"  # Gemma, Llama 2, GLM
    r"|\[/?(?:INST|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|SYSTEM_PROMPT|gMASK)\]"  # Mistral, Llama 2, GLM
)


@dataclass(frozen=True)
class Opener:
    """A marker, the grammar of what follows it, and whether that is a call or a result that the model forges.

    The other parameters are those of `Marker`; what is `ahead` is read again by `body`.
    """

    parts: tuple[Part, ...]
    body: Body
    ahead: tuple[Part, ...] = ()
    where: Literal["anywhere", "line_start"] = "anywhere"
    not_after: str = ""
    kind: Literal["call", "result"] = "call"
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        marker = Marker(self.parts, ahead=self.ahead, where=self.where, not_after=self.not_after)
        object.__setattr__(self, "marker", marker)


@dataclass(frozen=True)
class Dialect:
    """One way in which models write calls into their text.

    `in_code` says what a complete call inside a Markdown fence, code span or quote is. `write_call` and `write_result`
    return a block of text for a call's name and arguments, and for a tool's name and what the model gets of its result.
    """

    id: str
    openers: tuple[Opener, ...]
    write_call: Callable[[str, dict[str, Any]], str]
    write_result: Callable[[str, str], str]
    in_code: Literal["text", "call"] = "text"
    reserved: tuple[str, ...] = ()
    """What must not stand in a result that travels as text: it would end the result, or be taken for a call."""


def neutralise(text: str, dialects: Iterable[Dialect]) -> str:
    """Return `text` with a word joiner (U+2060) behind the first character of whatever could be taken for structure.

    That is what the dialects reserve, and the tokens of chat templates: a tool's result is data, and a model that
    repeats it must not thereby call a tool or begin a turn. Defence in depth, not a boundary.
    """
    words = [re.escape(word) for dialect in dialects for word in dialect.reserved]
    return re.sub("|".join([*words, _TEMPLATE_MARK]), lambda found: found[0][0] + "\u2060" + found[0][1:], text)


def compact(value: Any) -> str:
    """Return `value` as JSON without white space, characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

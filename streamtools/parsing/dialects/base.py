"""The parts of a dialect.

A `Dialect` reads calls with its openers: each is a marker and the grammar of the text after it. It writes calls and
results with two functions, and it reads what it writes. At the end of this module are parts that many dialects have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from streamtools.json_values import compact
from streamtools.parsing.dialects.neutralising import finds_structure
from streamtools.parsing.dialects.writing import write_response
from streamtools.parsing.markers import Marker, Part, Some, Where
from streamtools.parsing.span import Body

ALONE = "A call is the whole answer: nothing comes before it."


@dataclass(frozen=True, eq=False)
class Opener:
    """A marker and the grammar of the text after it: a call, or a tool result that the model made up.

    The commit point is the end of `parts` and `ahead`. The grammar in `body` starts after `parts`, so it reads the text
    of `ahead` too. `where` and `not_after` are those of `Marker`.
    """

    parts: tuple[Part, ...]
    body: Body
    ahead: tuple[Part, ...] = ()
    where: Where = "anywhere"
    not_after: str = ""
    kind: Literal["call", "result"] = "call"
    line_feeds: int = 0
    """The template writes up to this many line feeds before the marker. They are markup, not text."""
    auto: bool | Where = True
    """Whether `dialects="auto"` includes this opener.

    False for a marker of another dialect that reads it as well. A place (`"line_start"`) narrows `where`: a marker that
    begins with a letter would be looked for at each occurrence of that letter.
    """
    announces: bool = True
    """Whether a call begins with this marker. False for a wrapper whose grammar begins each call inside it."""
    unless: str = ""
    """The id of a dialect that reads the same text. While that dialect is enabled, this opener is not."""
    tag: int | None = None
    """How many of `parts` are a complete tag. A stream that ends after that tag cut off a call: see `Marker`."""
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        tag = self.tag if self.kind == "call" else 0
        marker = Marker(self.parts, ahead=self.ahead, where=self.where, not_after=self.not_after, tag=tag)
        object.__setattr__(self, "marker", marker)


@dataclass(frozen=True, eq=False)
class Tag:
    """A tag of the chat template that is no part of a call. It is hidden."""

    parts: tuple[Part, ...]
    closings: tuple[str, ...] = ()
    """With closings, the tag opens reasoning, which ends with the first of them. Without, only the tag is hidden."""
    before: tuple[str, ...] = ()
    """Texts that end the reasoning as well, but are not part of it: they are read again."""
    where: Where = "anywhere"
    auto: bool = True
    """Whether `dialects="auto"` includes this tag. False for words that other models write as text."""
    ends_turn: bool = False
    """Whether the tag ends the message."""
    line_feeds: int = 0
    """Up to this many line feeds before the tag are hidden too.

    At the start of a message, one line feed before a tag that opens reasoning is always hidden.
    """
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marker", Marker(self.parts, where=self.where, tag=0))


@dataclass(frozen=True, eq=False)
class NearMiss:
    """A faulty opener: text that looks like a call but is not. It stays text, and a warning `says` what is wrong.

    The last part is the character that decides, and it belongs to no call. A near miss must cost nothing in prose. So
    it begins with the first character of an opener, or it counts only at the start of a line.
    """

    parts: tuple[Part, ...]
    says: str
    where: Where = "anywhere"
    not_after: str = ""
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marker", Marker(self.parts, where=self.where, not_after=self.not_after))


@dataclass(frozen=True, eq=False)
class Dialect:
    """One way in which models write calls into their text.

    `write_call` takes a tool name and arguments. `write_result` takes a tool name and the text of the result. Both
    return the block of text that represents it in the history. Raises ValueError if the id is empty, or if one marker
    begins with another one.
    """

    id: str
    openers: tuple[Opener, ...]
    write_call: Callable[[str, dict[str, Any]], str]
    write_result: Callable[[str, str], str] = write_response
    in_code: Literal["text", "call"] = "text"
    """What a complete call inside a Markdown fence, a code span or a quote is."""
    in_reasoning: Literal["text", "call"] = "text"
    """What an opener inside reasoning is: a part of it, or, for models that forget its closing tag, a call."""
    reserved: tuple[str, ...] = ()
    """Texts that a result must not contain, because they would end the result or begin a call."""
    unmarked: tuple[tuple[str, str], ...] = ()
    """The same for calls without a marker: for each a pattern of the first character, and one of the rest."""
    tags: tuple[Tag, ...] = ()
    """The tags that its template puts around text and reasoning."""
    space_at_start: bool = False
    """Whether a space before the first tag of a message, or before a call there, is markup."""
    openers_for: Callable[[tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Makes openers from the names of the declared tools."""
    openers_of: Callable[[str, tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Makes openers from the name of one declared tool and the names of its parameters."""
    auto: bool | Literal["marked"] = True
    """Whether `dialects="auto"` includes this dialect: its markers are unmistakable.

    `"marked"` includes only the calls that have a marker.
    """
    near: tuple[NearMiss, ...] = ()
    """Faulty forms of its openers. An opener in code or in a quote is a near miss without being listed here."""
    has_nonce: bool = False
    """Whether its markers contain a secret of the conversation, so that only the model can have written a call."""
    notes: str = ""
    """What the instructions add to an example."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("`id` of a dialect is empty; give it a name")
        reserved: object = self.reserved
        if isinstance(reserved, str):
            raise TypeError(f"`reserved` must be a tuple of strings, got {reserved!r}; write ({reserved!r},)")
        forms = [opener.parts + opener.ahead for opener in self.openers] + [tag.parts for tag in self.tags]
        entries = [(parts, pieces(parts)) for parts in forms]
        for one in entries:
            for other in entries:
                if one is not other and other[1][: len(one[1])] == one[1]:
                    raise ValueError(f"in dialect {self.id!r} the marker {_show(other[0])} begins with {_show(one[0])}")

    def instructions(self, name: str = "get_weather", arguments: Mapping[str, Any] | None = None) -> str:
        """Return a prompt that teaches a model to call a tool in this dialect. It does not list the tools.

        The example in it calls the tool `name` with `arguments`.
        """
        call = self.write_call(name, {"city": "Paris"} if arguments is None else dict(arguments))
        rules = [*self._rules(name, call), "Stop after your calls: the results come in the next message, in this form:"]
        parts = [
            "To call a tool, write a call in this form, with the name of the tool and its arguments:",
            call,
            " ".join(rules),
            self.write_result(name, compact({"result": "..."})),
        ]
        return "\n\n".join(parts) + "\n"

    def _rules(self, name: str, call: str) -> Iterator[str]:
        """Yield the rules that the example does not show."""
        openers = (*self.openers, *(self.openers_for((name,)) if self.openers_for is not None else ()))
        places = {opener.where for opener in openers if re.match(opener.marker.search_pattern(), call)}
        if places == {"start"} and ALONE not in self.notes:
            yield ALONE
        if places == {"line_start"}:
            yield "A call begins on a line of its own."
        if self.in_code == "text" and "```" not in call:
            yield "Put no code block around it."
        if self.notes:
            yield self.notes

    @property
    def teachable(self) -> bool:
        """Whether instructions can teach it. No prompt can write a call that holds tokens of a chat template."""
        example = self.write_call("f", {"a": "b"})
        return not ("<|" in example or "<\uff5c" in example or finds_structure(()).search(example))


def pieces(parts: tuple[Part, ...]) -> list[Part]:
    """Split the literals of a marker into characters; keep its other parts."""
    return [piece for part in parts for piece in (part if isinstance(part, str) else (part,))]


def _show(parts: tuple[Part, ...]) -> str:
    return repr("".join(part if isinstance(part, str) else "…" for part in parts))


# Parts that many dialects have.

AFTER_WRAPPER: Final = (Some(r"^ \t\r\n", 1, 1),)
"""Any character after the opening tag of a wrapper. If the message ends there instead, a call was cut off."""

NO_JSON: Final = Some(r"^ \t\r\n\[{<", 1, 1)
"""A character that begins no JSON. After a special token, which certainly begins a call, the call is malformed."""


def ends_of_turn(*tokens: str) -> tuple[Tag, ...]:
    """Return tags for the tokens that end a message. They are hidden after a call; elsewhere they may be text."""
    return tuple(Tag((token,), where="behind_call", ends_turn=True) for token in tokens)


def closed_again(*tags: str) -> tuple[Tag, ...]:
    """Return tags for closing tags that some models repeat after a call. They are hidden there."""
    return tuple(Tag((tag,), where="behind_call") for tag in tags if tag)


ROLE_END = Tag(("<|role_end|>",))
"""The token that ends a message of inclusionAI/Ling."""

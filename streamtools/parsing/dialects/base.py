"""What a dialect is: one object that reads calls and writes them.

Reading is a few openers, each with the grammar of what follows it. Writing is how a call and a result stand in the
history that goes back to the model, so that what a dialect writes, it reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streamtools.json_values import compact
from streamtools.parsing.dialects.neutralising import holds_joiner, put_joiners, structure, take_joiners
from streamtools.parsing.markers import Marker, Part, Where
from streamtools.parsing.span import Body

_ALONE = "A call is the whole answer: nothing comes before it."


@dataclass(frozen=True, eq=False)
class Opener:
    """A marker, and the grammar of what follows it.

    That is a call, or a result that the model forges. What is `ahead` belongs to the commit point and is read again by
    `body`. Up to `line_feeds` before it are put there by the model's template: they are markup, not text. The other
    parameters are those of `Marker`.
    """

    parts: tuple[Part, ...]
    body: Body
    ahead: tuple[Part, ...] = ()
    where: Where = "anywhere"
    not_after: str = ""
    kind: Literal["call", "result"] = "call"
    line_feeds: int = 0
    auto: bool | Where = True
    """Whether `dialects="auto"` arms it: not where it is the marker of another dialect that reads it as well.

    Or where it counts then: one that begins with a letter is looked for at each of them.
    """
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        marker = Marker(self.parts, ahead=self.ahead, where=self.where, not_after=self.not_after)
        object.__setattr__(self, "marker", marker)


@dataclass(frozen=True, eq=False)
class Tag:
    """A tag of the model's template that is no part of a call: it is hidden.

    With `closings`, what follows it is reasoning, to the end of the first of them; `before` ends it too, and is read
    again. Without, it only goes away.
    """

    parts: tuple[Part, ...]
    closings: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    where: Where = "anywhere"
    auto: bool = True
    """Whether `dialects="auto"` arms it: not where it is words that other models write as well."""
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marker", Marker(self.parts, where=self.where))


@dataclass(frozen=True, eq=False)
class NearMiss:
    """What a model writes that means an opener of the dialect and has a fault: text, and a warning which `says` that.

    It ends with the character that decides it, which is no part of a call's body. It begins with a character with which
    an opener begins too, or stands at the start of a line; so it costs nothing in prose.
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

    `write_call` and `write_result` return a block of text for a call's name and arguments, and for a tool's name and
    what the model gets of its result.

    Raises ValueError for an empty id, and where one of two openers begins with the other: which is meant?
    """

    id: str
    openers: tuple[Opener, ...]
    write_call: Callable[[str, dict[str, Any]], str]
    write_result: Callable[[str, str], str]
    in_code: Literal["text", "call"] = "text"
    """What a complete call inside a Markdown fence, code span or quote is."""
    in_reasoning: Literal["text", "call"] = "text"
    """Whether an opener inside open reasoning is a part of it, or ends it, as models do that forget the closing tag."""
    reserved: tuple[str, ...] = ()
    """What must not stand in a result that travels as text: it would end the result, or be taken for a call."""
    tags: tuple[Tag, ...] = ()
    """What its template puts around text and reasoning."""
    openers_for: Callable[[tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Openers that are made of the names of the declared tools."""
    openers_of: Callable[[str, tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Openers that are made of the name of one declared tool and the names of its parameters."""
    auto: bool = True
    """Whether its markers are unmistakable, so that `dialects="auto"` arms it."""
    near: tuple[NearMiss, ...] = ()
    """What comes near to its openers; an opener in code or a quote is such a thing without being named here."""
    has_nonce: bool = False
    """Whether its markers hold a secret of the conversation, so that nobody but the model can have written a call."""
    models: tuple[str, ...] = ()
    """Patterns of the names of models that write so, in lower case."""
    notes: str = ""
    """What a model has to be told beyond an example."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a dialect has an id")
        entries = [(opener.parts, opener.ahead) for opener in self.openers] + [(tag.parts, ()) for tag in self.tags]
        for one in entries:
            for other in entries:
                if one is not other and _begins(other[0] + other[1], one[0] + one[1]):
                    raise ValueError(f"in dialect {self.id!r} the marker {_show(*other)} begins with {_show(*one)}")

    def instructions(self, name: str = "get_weather", arguments: Mapping[str, Any] | None = None) -> str:
        """Return what teaches a model to call a tool in this way, by an example; what tools there are comes on top."""
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
        """Yield what the example does not show."""
        openers = (*self.openers, *(self.openers_for((name,)) if self.openers_for is not None else ()))
        places = {opener.where for opener in openers if re.match(opener.marker.search_pattern(), call)}
        if places == {"start"} and _ALONE not in self.notes:
            yield _ALONE
        if places == {"line_start"}:
            yield "A call begins on a line of its own."
        if self.in_code == "text" and "```" not in call:
            yield "Put no code block around it."
        if self.notes:
            yield self.notes

    @property
    def teachable(self) -> bool:
        """Whether instructions can teach it: its calls hold no tokens of a chat template, which no prompt can write."""
        example = self.write_call("f", {"a": "b"})
        return not ("<|" in example or "<\uff5c" in example or structure().search(example))


def neutralise(text: str, dialects: Iterable[Dialect]) -> str:
    """Return `text` with a word joiner (U+2060) behind the first character of whatever could be taken for structure.

    That is what the dialects reserve, and the tokens of chat templates: a tool's result is data, and a model that
    repeats it must not thereby call a tool or begin a turn. Defence in depth, not a boundary.
    """
    return put_joiners(text, _structure(dialects))


def restore(value: Any, dialects: Iterable[Dialect]) -> Any:
    """Return `value`, a text or JSON that holds texts, as it was before `neutralise`: for what a model repeats."""
    return take_joiners(value, _structure(dialects)) if holds_joiner(value) else value


def _structure(dialects: Iterable[Dialect]) -> re.Pattern[str]:
    return structure(word for dialect in dialects for word in dialect.reserved)


def _begins(parts: tuple[Part, ...], with_parts: tuple[Part, ...]) -> bool:
    """Whether the marker begins with another one, or is the same."""
    flat, begin = ([piece for part in each for piece in _pieces(part)] for each in (parts, with_parts))
    return flat[: len(begin)] == begin


def _pieces(part: Part) -> Iterable[object]:
    """Return what a part consists of: characters, or the part itself."""
    return part if isinstance(part, str) else (part,)


def _show(parts: tuple[Part, ...], ahead: tuple[Part, ...]) -> str:
    return repr("".join(part if isinstance(part, str) else "…" for part in parts + ahead))


def ends_of_turn(*tokens: str) -> tuple[Tag, ...]:
    """Return the tokens that end a message as tags, which go away behind a call; elsewhere they may be text."""
    return tuple(Tag((token,), where="behind_call") for token in tokens)

"""Defines `Dialect` and the classes of its fields.

A `Dialect` reads calls with its openers. An opener consists of a marker and the grammar of the text after the marker.
Two functions of a dialect write calls and results. The dialect must be able to read the calls that it writes. A marker
consists of parts: strings, and objects of `streamtools.parsing.markers`, such as `Some`. The end of this module
contains marker parts and tags that many dialects share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Final, Literal

from streamtools.json_values import compact
from streamtools.parsing.bodies import Strays, TextCalls, wrapper
from streamtools.parsing.dialects.neutralizing import JOINER, structure_of
from streamtools.parsing.dialects.writing import name_and_json, write_response
from streamtools.parsing.markers import SENTENCE, TURN_ENDS, Marker, OneOf, Part, Some, Where, check_tuple
from streamtools.parsing.reader import Word
from streamtools.parsing.span import Body

ALONE = "A call is the whole answer: nothing comes before it."
"""A sentence of the prompt for a dialect whose calls are read only at the start of a message."""


@dataclass(frozen=True, eq=False)
class Opener:
    """A marker, and the grammar of the text after it.

    `parts` is the marker. It is recognized only if `ahead` matches the text after it. `body` is the grammar. It reads
    from the end of `parts`, so it also reads the text of `ahead`. `where` is the position at which the marker is
    recognized. The marker is not recognized after a character that the pattern `not_after` matches. `kind` tells
    whether the text is a call, a tool result that the model invented, or the rest of a call that ended too early. A
    rest is recognized only after a call.
    """

    parts: tuple[Part, ...]
    body: Body
    ahead: tuple[Part, ...] = ()
    where: Where = "anywhere"
    not_after: str = ""
    kind: Literal["call", "result", "rest"] = "call"
    line_feeds: int = 0
    """The largest number of line feeds that the chat template writes before the marker. They are hidden."""
    auto: bool | Where = True
    """True if `dialects="auto"` includes this opener.

    It is False, for example, if another dialect of `"auto"` already reads this marker. A value such as
    `"line_start"` includes the opener and replaces `where`. This makes the search for a marker cheaper if the marker
    begins with a letter.
    """
    announces: bool = True
    """True if a call begins with this marker. False for a wrapper, whose grammar reports the start of each call."""
    unless_enabled: str = ""
    """The id of another dialect that reads the same text. If that dialect is enabled, this opener is ignored."""
    tag_parts: int | None = None
    """The number of `parts` that form a complete tag. If the stream ends after this tag, a call was cut off.

    With None, `Marker` finds the end of the tag.
    """
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        if not callable(self.body):
            raise TypeError(f"`body` of an Opener must be a grammar, such as json_calls('END'), got {self.body!r}")
        tag_parts = self.tag_parts if self.kind == "call" else 0
        marker = Marker(self.parts, ahead=self.ahead, where=self.where, not_after=self.not_after, tag_parts=tag_parts)
        object.__setattr__(self, "marker", marker)
        if isinstance(self.body, TextCalls):
            object.__setattr__(self, "body", TextCalls(self.body.close, self.body.read, Marker(self.parts, self.ahead)))


@dataclass(frozen=True, eq=False)
class Tag:
    """A tag of the chat template that is not part of a call. The parser hides it."""

    parts: tuple[Part, ...]
    closings: tuple[str, ...] = ()
    """The tags that end the reasoning which this tag opens. () if this tag does not open reasoning."""
    closing_parts: tuple[Part, ...] = ()
    """The parts of another closing tag, which is not a fixed text. () if there is none."""
    before: tuple[str, ...] = ()
    """Texts that also end the reasoning. They are not part of the reasoning, so the parser reads them again."""
    where: Where = "anywhere"
    auto: bool = True
    """True if `dialects="auto"` includes this tag. False for words that other models write as ordinary text."""
    ends_turn: bool = False
    """True if the tag ends the message."""
    line_feeds: int = 0
    """The largest number of line feeds before the tag that are hidden with it.

    At the start of a message, one line feed before a tag that opens reasoning is always hidden.
    """
    ahead: tuple[Part, ...] = ()
    """The text that must follow the tag. It is not part of the tag."""
    marker: Marker = field(init=False)
    ends: tuple[Marker, ...] = field(init=False)
    """The markers of all closing tags."""

    def __post_init__(self) -> None:
        ends = [Marker(parts) for parts in (*((text,) for text in self.closings), self.closing_parts) if parts]
        object.__setattr__(self, "ends", tuple(ends))
        object.__setattr__(self, "marker", Marker(self.parts, ahead=self.ahead, where=self.where, tag_parts=0))


@dataclass(frozen=True, eq=False)
class NearMiss:
    """A faulty form of an opener: text that looks like a call but is not. It is kept as text, with a warning.

    `message` is the text of the warning. Text that matches all `parts` is a near miss. To keep the search in prose
    fast, a near miss should begin with the first character of an opener, or have `where="line_start"`.
    """

    parts: tuple[Part, ...]
    message: str
    where: Where = "anywhere"
    not_after: str = ""
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marker", Marker(self.parts, where=self.where, not_after=self.not_after))


@dataclass(frozen=True, eq=False, repr=False)
class Dialect:
    """One way in which models write calls into their text.

    `write_call` takes a tool name and arguments. `write_result` takes a tool name and the text of the result. Each
    returns the text of the call or the result for the message history. Raises ValueError if the id is empty, if there
    are no openers, tags, near misses or reserved patterns, or if one marker begins with another marker.

    If a value contains all closing tags of its call, the call ends too early. The real closing tags then make it an
    error. In these cases it runs with a shortened value:

    - The real closing tags are in Markdown code.
    - `execute="eager"` or `after_call="stop"` acts before the real closing tags arrive.
    - The real closing tags are missing.
    - A complete call follows the closing tags in the value, and ends the message.
    - The tags in the value also begin another value, such as `x</parameter><parameter=b>y`. This reads as two values.
    """

    id: str
    openers: tuple[Opener, ...]
    write_call: Callable[[str, dict[str, Any]], str]
    write_result: Callable[[str, str], str] = write_response
    in_code: Literal["text", "call"] = "text"
    """How a complete call inside Markdown code or a quote is read: as `"text"` or as a `"call"`."""
    reserved: tuple[str, ...] = None  # type: ignore[assignment]  # `__post_init__` replaces it
    """The texts that a tool result must not contain, because they would end the result or begin a call.

    By default, these are the fixed texts with which the `openers` and `strays` begin.
    """
    reserved_patterns: tuple[tuple[str, str], ...] = ()
    """Like `reserved`, for calls that do not begin with a fixed text, such as bare JSON.

    Each item is a pair: a pattern for the first character, and a pattern for the text after it.
    """
    tags: tuple[Tag, ...] = ()
    """The tags that the chat template puts around text and reasoning."""
    strays: Strays = ()
    """Tags that belong inside a call. After a call, they show that a value contained its own closing tags.

    All complete calls of the turn then become errors if they may contain such a value: their arguments may be
    incomplete. Each item is a pair of tags and an end. The tags and the text after them are hidden, up to the end. If
    the end is (), only the tags are hidden. `text_calls` adds its own.
    """
    space_at_start: bool = False
    """True if a space before a tag or a call at the start of a message is hidden."""
    openers_for: Callable[[tuple[str, ...]], tuple[Opener, ...]] | None = None
    """A function that takes the names of the declared tools and returns more openers."""
    openers_of: Callable[[str, tuple[str, ...]], tuple[Opener, ...]] | None = None
    """A function that takes the name and the parameter names of one declared tool and returns more openers."""
    auto: bool | Literal["marked"] = True
    """True if `dialects="auto"` includes this dialect, because its markers hardly ever occur in ordinary text.

    `"auto"` never includes the openers of `openers_for`. `"marked"` is for a dialect that also reads calls without a
    fixed text. `"auto"` does not read these calls, so it includes the dialect without its `reserved_patterns`.
    """
    near: tuple[NearMiss, ...] = ()
    """Faulty forms of the openers. Openers in code or in quotes are near misses, too, but are not listed here."""
    has_nonce: bool = False
    """True if the markers contain a nonce, a secret of the conversation. Authors without it cannot write a call."""
    notes: str = ""
    """A text that `instructions` adds after its example."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("`id` of a dialect is empty; give it a name")
        if not callable(self.write_call) or not callable(self.write_result):
            raise TypeError("`write_call` and `write_result` of a dialect must be functions that return a text")
        check_tuple("`openers` of a dialect", self.openers, Opener)
        if not any((self.openers, self.openers_for, self.openers_of, self.tags, self.near, self.reserved_patterns)):
            raise ValueError(f"dialect {self.id!r} can read no call: it needs `openers`, such as those of `named_json`")
        strays = [*self.strays, *(stray for each in self.openers for stray in getattr(each.body, "strays", ()))]
        object.__setattr__(self, "strays", tuple(dict.fromkeys(strays)))
        if self.reserved is None:
            reserved = [*(opener.marker.literal for opener in self.openers), *(str(tags[0]) for tags, _ in strays)]  # type: ignore[unreachable]
            object.__setattr__(self, "reserved", tuple(dict.fromkeys(reserved)))
        for name, kind in (("tags", Tag), ("near", NearMiss), ("reserved", str)):
            check_tuple(f"`{name}` of a dialect", getattr(self, name), kind)
        markers = [*(opener.marker for opener in self.openers), *(tag.marker for tag in self.tags)]
        forms = [marker.parts + marker.ahead for marker in markers]
        for (head, begun), (long, whole) in permutations([(parts, pieces(parts)) for parts in forms], 2):
            if whole[: len(begun)] == begun:
                raise ValueError(f"in dialect {self.id!r} the marker {_show(long)} begins with {_show(head)}")

    def __repr__(self) -> str:
        return f"<Dialect {self.id}>"

    def instructions(self, name: str = "get_weather", arguments: Mapping[str, Any] | None = None) -> str:
        """Return a prompt that teaches a model to call tools in this dialect. It does not list the tools.

        The prompt contains an example call of the tool `name` with `arguments`.
        """
        call = self.write_call(name, {"city": "Paris"} if arguments is None else dict(arguments))
        introduction = "To call a tool, write a call in this form, with the name of the tool and its arguments:"
        rules = [*self._rules(name, call), "Stop after your calls: the results come in the next message, in this form:"]
        result = self.write_result(name, compact({"result": "..."}))
        return "\n\n".join([introduction, call, " ".join(rules), result]) + "\n"

    def _rules(self, name: str, call: str) -> Iterator[str]:
        """Yield the rules that the example call does not show."""
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
        """True if a prompt can teach this dialect: its calls contain no tokens of a chat template."""
        example = self.write_call("f", {"a": "b"})
        return not ("<|" in example or "<\uff5c" in example or structure_of(()).first.search(example))


def named_json(id: str, before: str, between: str = "", after: str = "", **fields: Any) -> Dialect:
    """Return a dialect whose calls have the name in the marker, and then the JSON of the arguments.

    A call is `before`, the name, `between`, a JSON object and `after`: `named_json("house", "CALL(", ")", "END")` reads
    and writes `CALL(now){"zone": "UTC"}END`. White space may stand between these parts. If `after` is empty, a call
    ends with its JSON. `fields` are other fields of `Dialect`. Raises ValueError if `before` is empty, or if the name
    cannot be distinguished from `between`.
    """
    from streamtools.parsing.bodies import named_json as forms  # imported here to keep `import streamtools` fast

    if not all(isinstance(text, str) for text in (before, between, after)):
        raise TypeError(f"`before`, `between` and `after` must be texts, got {(before, between, after)!r}")
    begin, separator, end = before.strip(), between.strip(), after.strip()
    if not begin or re.match(r"\w", between):
        raise ValueError(f"`before` must have text, and `between` must not begin as a name: {before!r}, {between!r}")
    # Without the joiner: it must break a call even if `before` is one character.
    characters = forms.NAME_CHARACTERS + re.escape(between[:1].strip()) + JOINER
    call = forms.NamedCall(separator, word=Word(characters))
    body = forms.Enclosed(call, begin, end) if end else forms.bare(call, begin)
    tail = (separator, forms.GAP) if separator else ()
    ahead = (Some(characters, 1, 96), forms.GAP, *tail, OneOf(("{", end)) if end else "{")
    opener = Opener((begin, forms.GAP), body, ahead=ahead)
    return Dialect(id, (opener,), name_and_json(before, between, after.rstrip()), **fields)


def pieces(parts: tuple[Part, ...]) -> list[Part]:
    """Split the strings in `parts` into characters. Other parts are kept."""
    return [piece for part in parts for piece in (part if isinstance(part, str) else (part,))]


def _show(parts: tuple[Part, ...]) -> str:
    return repr("".join(part if isinstance(part, str) else "…" for part in parts))


# Marker parts and tags that many dialects share.

AFTER_WRAPPER: Final = (Some(r"^ \t\r\n", 1, 1),)
"""Any character except white space, for `ahead` of a wrapper. If no such character follows, a call was cut off."""

NO_JSON: Final = Some(r"^ \t\r\n\[{<", 1, 1)
"""A character that begins neither a call in JSON nor a tag.

After a special token that always begins a call, it makes the call malformed.
"""


def before_sentence(tag: tuple[Part, ...], *calls: Opener) -> tuple[Opener, ...]:
    """Return openers that recognize the opening `tag` of a wrapper if a sentence and then one of `calls` follow.

    The tag is hidden, and the sentence is shown. `calls` are the openers of the calls themselves.
    """
    aheads = [(*SENTENCE, *call.parts, *call.ahead) for call in calls]
    return tuple(Opener(tag, wrapper, ahead, announces=False, tag_parts=parts_of_token(tag)) for ahead in aheads)


def parts_of_token(tag: tuple[Part, ...]) -> int | None:
    """Return the `tag_parts` of a marker with a sentence after `tag`.

    If the stream ends in the sentence, the text only mentions the tag. But answers do not mention special tokens.
    """
    return None if str(tag[0])[-2:] in ("|>", "\uff5c>") else 0


ENDS_OF_TURN: Final = tuple(Tag((token,), where="after_call", ends_turn=True) for token in TURN_ENDS)
"""The tokens that end a message. The parser hides them only after a call."""


def closing_tags(*tags: str) -> tuple[Tag, ...]:
    """Return tags for the closing tags that some models repeat after a call. Elsewhere, the parser shows them."""
    return tuple(Tag((tag,), where="after_call") for tag in tags if tag)


ROLE_END = Tag(("<|role_end|>",))
"""The token that ends a message of inclusionAI/Ling."""

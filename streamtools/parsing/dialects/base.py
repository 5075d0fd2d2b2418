"""What a dialect is: one object that reads calls and writes them.

Reading is a few openers, each with the grammar of what follows it. Writing is how a call and a result stand in the
history that goes back to the model, so that what a dialect writes, it reads. Beside it stands what dialects share: how
templates write values and results, how text is kept from being taken for structure, and the nonces of markers.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final, Literal

from streamtools.json_values import compact, with_texts
from streamtools.parsing.markers import Marker, Part, Some, Where
from streamtools.parsing.span import Body

BEHIND: Final = (Some(r"^ \t\r\n", 1, 1),)
"""What follows the tag of a wrapper: if only the end of the message does, a call was cut off."""

NO_JSON: Final = Some(r"^ \t\r\n\[{<", 1, 1)
"""What makes a call behind a special token one gone bad: the token is certain to begin one."""

ALONE = "A call is the whole answer: nothing comes before it."

_JOINER = "\u2060"  # the word joiner, which nobody sees


def write_json(name: str, arguments: dict[str, Any]) -> str:
    """Return a call as JSON, with the keys that most templates write."""
    return compact({"name": name, "arguments": arguments})


def write_response(name: str, text: str) -> str:
    """Return a result as most templates write it, which do not name the tool."""
    return f"<tool_response>\n{text}\n</tool_response>"


def write_value(value: Any, *tags: str) -> str:
    """Return a string as it is, but kept from `tags`; anything else as JSON without them."""
    if isinstance(value, str):
        return keep_from(value, *tags)
    text = compact(value)
    return text.replace("<", "\\u003c") if any(tag in text for tag in tags) else text


def keep_from(text: str, *tags: str) -> str:
    """Return `text` with a word joiner behind the first character of each of `tags`, as `neutralise` puts it."""
    for tag in tags:
        text = text.replace(tag, tag[0] + _JOINER + tag[1:])
    return text


def as_object(text: str, key: str) -> dict[str, Any]:
    """Return the JSON object that `text` is, or one that holds under `key` what else it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {key: value}


UNMARKED_JSON: Final = (('"', '(?:name|toolName|tool_name|tool|function)"'),)
"""How the names of calls in bare JSON begin, for `Dialect.unmarked`."""


def both_tags(*names: str) -> tuple[str, ...]:
    """Return how the opening and the closing tags of these names begin, to be reserved."""
    return tuple(bracket + name for name in names for bracket in ("<", "</"))


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
    """Whether `dialects="auto"` includes it: not where it is the marker of another dialect that reads it as well.

    Or where it counts then: one that begins with a letter is looked for at each of them.
    """
    announces: bool = True
    """Whether a call begins with it, and not only a wrapper, whose grammar begins each call in it."""
    unless: str = ""
    """The id of a dialect that reads what follows by itself: where that is enabled as well, this does not count."""
    tag: int | None = None
    """How many of its parts are a complete tag, behind which the end of the stream cuts off a call: see `Marker`."""
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        tag = self.tag if self.kind == "call" else 0
        marker = Marker(self.parts, ahead=self.ahead, where=self.where, not_after=self.not_after, tag=tag)
        object.__setattr__(self, "marker", marker)


@dataclass(frozen=True, eq=False)
class Tag:
    """A tag of the model's template that is no part of a call: it is hidden.

    With `closings`, what follows it is reasoning, to the end of the first of them; `before` ends it too, and is read
    again. Without, it only goes away. Up to `line_feeds` before it go with it, and at the start of a message one before
    a tag that opens reasoning.
    """

    parts: tuple[Part, ...]
    closings: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    where: Where = "anywhere"
    auto: bool = True
    """Whether `dialects="auto"` includes it: not where it is words that other models write as well."""
    ends_turn: bool = False
    """The message ends with it."""
    line_feeds: int = 0
    marker: Marker = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "marker", Marker(self.parts, where=self.where, tag=0))


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
    what the model gets of its result, the latter in `<tool_response>` where nothing else is said.

    Raises ValueError for an empty id, and where one of two openers begins with the other: which is meant?
    """

    id: str
    openers: tuple[Opener, ...]
    write_call: Callable[[str, dict[str, Any]], str]
    write_result: Callable[[str, str], str] = write_response
    in_code: Literal["text", "call"] = "text"
    """What a complete call inside a Markdown fence, code span or quote is."""
    in_reasoning: Literal["text", "call"] = "text"
    """Whether an opener inside open reasoning is a part of it, or ends it, as models do that forget the closing tag."""
    reserved: tuple[str, ...] = ()
    """What must not stand in a result that travels as text: it would end the result, or be taken for a call."""
    unmarked: tuple[tuple[str, str], ...] = ()
    """How calls begin that have no marker, to be neutralised as well: patterns of a first character and of the rest."""
    tags: tuple[Tag, ...] = ()
    """What its template puts around text and reasoning."""
    space_at_start: bool = False
    """Whether a space before the first of them in a message, or before a call there, is markup."""
    openers_for: Callable[[tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Openers that are made of the names of the declared tools."""
    openers_of: Callable[[str, tuple[str, ...]], tuple[Opener, ...]] | None = None
    """Openers that are made of the name of one declared tool and the names of its parameters."""
    auto: bool | Literal["marked"] = True
    """Whether its markers are unmistakable, so that `dialects="auto"` includes it; `"marked"`: what has one."""
    near: tuple[NearMiss, ...] = ()
    """What comes near to its openers; an opener in code or a quote is such a thing without being named here."""
    has_nonce: bool = False
    """Whether its markers hold a secret of the conversation, so that nobody but the model can have written a call."""
    notes: str = ""
    """What instructions say beyond an example."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ValueError("a dialect has an id")
        reserved: object = self.reserved
        if isinstance(reserved, str):
            raise TypeError(f"`reserved` is a tuple of strings, and not {reserved!r}: one is ({reserved!r},)")
        forms = [opener.parts + opener.ahead for opener in self.openers] + [tag.parts for tag in self.tags]
        entries = [(parts, pieces(parts)) for parts in forms]
        for one in entries:
            for other in entries:
                if one is not other and other[1][: len(one[1])] == one[1]:
                    raise ValueError(f"in dialect {self.id!r} the marker {_show(other[0])} begins with {_show(one[0])}")

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
        """Whether instructions can teach it: its calls hold no tokens of a chat template, which no prompt can write."""
        example = self.write_call("f", {"a": "b"})
        return not ("<|" in example or "<\uff5c" in example or _structure(()).search(example))


def pieces(parts: tuple[Part, ...]) -> list[Part]:
    """Return the characters of a marker, and its parts that are no literals."""
    return [piece for part in parts for piece in (part if isinstance(part, str) else (part,))]


def _show(parts: tuple[Part, ...]) -> str:
    return repr("".join(part if isinstance(part, str) else "…" for part in parts))


def ends_of_turn(*tokens: str) -> tuple[Tag, ...]:
    """Return the tokens that end a message as tags, which go away behind a call; elsewhere they may be text."""
    return tuple(Tag((token,), where="behind_call", ends_turn=True) for token in tokens)


def closed_again(*tags: str) -> tuple[Tag, ...]:
    """Return closing tags that some models write once more behind a call: there they go away."""
    return tuple(Tag((tag,), where="behind_call") for tag in tags if tag)


ROLE_END = Tag(("<|role_end|>",))
"""The token that ends a message of inclusionAI/Ling."""


# A joiner stands behind the first character of whatever the dialects reserve, and of each token of a chat template.
# These may overlap, and one may hold another: `<|[INST]|>` is two of them. So what is looked for is where one begins,
# and nothing is passed over. A joiner goes again if, without any joiner, something begins in its place.

_TOKENS = (
    ("<", r"[|\uff5c][^<>\n]{1,256}[|\uff5c]>"),  # ChatML, Llama 3, DeepSeek, Phi, Kimi, Cohere and their kin
    ("<", r"[|\uff5c][\w:.-]{1,64}>|/?[\w:.-]{1,64}[|\uff5c]>"),  # Gemma 4
    ("<", r"/?[|\uff5c]DSML[|\uff5c]"),  # DeepSeek V3.2
    ("<", r"/?(?:start_of_turn|end_of_turn|s|bos|eos|unk|pad|sop|eop|seed:[be]os)>|</?SYS>>"),  # Gemma, Llama 2, GLM
    ("<", r"(?:(?:BOS|EOS|EOP|PAD|UNK|MASK)_TOKEN|CLS|SEP|(?:extra_id|SPECIAL)_\d{1,4})>"),  # Cohere, Nemotron
    # Mistral
    (r"\[", r"/?(?:INST|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|MODEL_SETTINGS)\]"),
    # GLM, Kimi, EXAONE, MiniMax
    (r"\[", r"(?:[gs]MASK|BOS|EOS|EOT|(?:start|end)_header_id|\|[^\[\]\n]{1,64}\|)\]|e~\["),
    (r"\]", r"~!?b[\[\]]"),  # MiniMax
)
"""Tokens of chat templates: the first character of each, and the rest."""

_PIECE = 64 * 1024  # characters that are looked through in one go
_AHEAD = 4 * 1024  # characters behind them in which what begins there may end


def neutralise(text: str, dialects: Iterable[Dialect]) -> str:
    """Return `text` with a word joiner (U+2060) behind the first character of whatever could be taken for structure.

    That is what the dialects reserve, and the tokens of chat templates: a tool's result is data, and a model that
    repeats it must not thereby call a tool or begin a turn. Defence in depth, not a boundary.
    """
    return _plain(text, _structure(dialects))


def _plain(text: str, found: re.Pattern[str]) -> str:
    if len(text) <= _PIECE:
        return found.sub(rf"\g<0>{_JOINER}", text)
    places = [0]
    for begin in range(0, len(text), _PIECE):  # so that others have the interpreter meanwhile
        ends = (match.end() for match in found.finditer(text, begin, begin + _PIECE + _AHEAD))
        places += takewhile((begin + _PIECE).__ge__, ends)
    return _JOINER.join(text[at:end] for at, end in zip(places, (*places[1:], None), strict=True))


def neutralise_all(value: Any, dialects: Iterable[Dialect]) -> Any:
    """Return JSON with its texts as `neutralise` returns them, names included."""
    found = _structure(dialects)
    return with_texts(value, lambda text: _plain(text, found))


def restore(value: Any, dialects: Iterable[Dialect]) -> Any:
    """Return `value`, a text or JSON that holds texts, as it was before `neutralise`: for what a model repeats."""
    return _restore(value, _structure(dialects)) if _holds_joiner(value) else value


def _structure(dialects: Iterable[Dialect]) -> re.Pattern[str]:
    """Return what finds the first character of whatever could be taken for structure."""
    known = tuple(dialects)
    words = frozenset(word for dialect in known for word in dialect.reserved)
    return _made(words, tuple(pair for dialect in known for pair in dialect.unmarked))


@lru_cache(maxsize=64)
def _made(reserved: frozenset[str], unmarked: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    behind: dict[str, list[str]] = {}  # each first character, with what may follow it: looked for all at once
    for first in sorted({re.escape(word[0]) for word in reserved}):
        behind[first] = [_any_of({word[1:] for word in reserved if re.escape(word[0]) == first})]
    for first, rest in (*unmarked, *_TOKENS):
        behind.setdefault(first, []).append(rest)
    return re.compile("|".join(f"{first}(?={'|'.join(rest)})" for first, rest in behind.items()))


def _any_of(words: set[str]) -> str:
    """Return the pattern of texts that begin with one of `words`, which looks at each character once."""
    firsts = sorted({word[:1] for word in words})  # where "" is a word, nothing more has to follow
    ways = [re.escape(first) + _any_of({word[1:] for word in words if word[:1] == first}) for first in firsts if first]
    return "" if "" in firsts else ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


def _holds_joiner(value: Any) -> bool:
    if isinstance(value, str):
        return _JOINER in value
    if isinstance(value, dict):
        return any(map(_holds_joiner, value)) or any(map(_holds_joiner, value.values()))
    return isinstance(value, list) and any(map(_holds_joiner, value))


def _restore(value: Any, found: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return _without_joiners(value, found) if _JOINER in value else value
    if isinstance(value, dict):
        keys = [_restore(key, found) for key in value]
        keys = keys if len(set(keys)) == len(keys) else list(value)  # two must not become one
        return {key: _restore(each, found) for key, each in zip(keys, value.values(), strict=True)}
    return [_restore(each, found) for each in value] if isinstance(value, list) else value


def _without_joiners(text: str, found: re.Pattern[str]) -> str:
    first, *rest = text.split(_JOINER)
    ends = {each.end() for each in found.finditer(first + "".join(rest))}
    pieces, at = [first], len(first)
    for piece in rest:
        pieces.append(piece if at in ends else _JOINER + piece)
        at += len(piece)
    return "".join(pieces)


# A nonce is a secret of the conversation in its markers: `###k7:{…}`, `~~~tool_call k7`. Who plants a call in a page or
# a document, for a model that quotes it, cannot know the secret, which stands in the system prompt. A marker without
# it, or with another one, is text.

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"  # without those that look like others
_LENGTH = 6  # 2**29 of them
_NONCE = re.compile("[A-Za-z0-9]{1,16}")

ANY: Final = Some("A-Za-z0-9", 1, 16)
"""What may be a nonce, in a marker."""


def new_nonce() -> str:
    """Return six letters and digits that cannot be guessed: one for each conversation, kept with its history.

    >>> len(new_nonce())
    6
    """
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def checked(nonce: str | None) -> str:
    """Return a nonce, or "" for none. Raises ValueError for anything but 1 to 16 letters and digits of ASCII."""
    if nonce is None:
        return ""
    if not _NONCE.fullmatch(nonce):
        raise ValueError(f"a nonce has 1 to 16 of the characters A-Z, a-z and 0-9, and this one is {nonce!r}")
    return nonce

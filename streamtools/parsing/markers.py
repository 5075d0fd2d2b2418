"""Markers: the text that begins a call, a tag or a header, matched while text arrives.

A marker is a sequence of literals and bounded repetitions. It is compiled to a regular expression that also accepts an
incomplete marker at the end of the text: `ab` becomes `a(?:\\Z|b())`. So one match has three possible results: the
marker is complete, more text is needed to decide, or there is no marker. Every repetition has an upper bound, which
also limits pending text and backtracking.

`Markers` searches for several markers in one pass. It groups the markers by their first characters. One expression
decides whether any marker of a group may begin at a position. Only then are the markers of the group tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, get_args

T = TypeVar("T")
Search: TypeAlias = Callable[..., re.Match[str] | None]


@dataclass(frozen=True)
class Some:
    """Between `least` and `most` of the `characters`, which have the syntax inside `[...]` of a regular expression.

    The repetition is greedy. It backtracks only if the next part is a literal that begins with one of `characters`.
    """

    characters: str
    least: int
    most: int


@dataclass(frozen=True)
class LineEnd:
    """LF or CR LF. The end of the stream also counts as a line end."""


@dataclass(frozen=True)
class OneOf:
    """One of several literals: the longest literal that matches. One of the literals may be empty."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        check_tuple("`words` of OneOf", self.words, str)


@dataclass(frozen=True)
class Maybe:
    """An optional sequence of parts."""

    parts: tuple[str | Some | OneOf, ...]


@dataclass(frozen=True)
class Header:
    """The text of a header: `characters` and a few `tokens`. Between two tokens are at most `most` characters.

    A line feed may precede each token.

    A header extends to the first text that cannot belong to it. It contains no match of the regular expression
    `without`.
    """

    characters: str
    tokens: tuple[str, ...]
    without: str = ""
    most: int = 96

    def text_pattern(self, *, backtracks: bool = False) -> str:
        """Return a pattern for the text. It ignores `without`. If `backtracks` is False, it is possessive."""
        characters = f"[{self.characters}]{{0,{self.most}}}"
        token = f"\n?(?:{'|'.join(map(re.escape, self.tokens))})"
        if backtracks:  # it ends with characters, because `re` finds a literal after them fast
            return f"(?:{characters}+{token}){{0,{_TOKENS_IN_HEADER}}}{characters}"
        return f"{characters}+(?:{token}{characters}+){{0,{_TOKENS_IN_HEADER}}}+"

    @property
    def begun_pattern(self) -> str:
        """A pattern for a header that the end of the text cuts off. It ignores `without`."""
        return f"{self.text_pattern()}\n?(?:{'|'.join(map(beginning, self.tokens))})?\\Z"

    def excludes(self, part: Part) -> bool:
        """Return whether no header contains the text of `part`."""
        return not any(re.fullmatch(self.text_pattern(), word) for word in _words(part))

    @property
    def check_pattern(self) -> str:
        """A negative lookahead for `without`, or ""."""
        return f"(?!{self.text_pattern(backtracks=True)}(?:{self.without}))" if self.without else ""


BLANKS = Some(r" \t", 0, 32)  # white space within a line
SPACES = Some(r" \t\r\n", 0, 32)  # white space with line ends
LINE_END = LineEnd()
SENTENCE: Final[tuple[Part, ...]] = (SPACES, Some(r"^<>{}\[\]\s", 1, 1), Some("^<>{}", 0, 160))
"""White space and a sentence, which models write between the tag of a wrapper and the first call."""
TURN_ENDS: Final = (
    *("<|im_end|>", "<|end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|EOT|>", "<|eos|>", "</s>"),
    *("<|end_of_text|>", "<|endoftext|>", "<|endofturn|>", "<|stop|>", "<|END_OF_TURN_TOKEN|>", "<|assistant_end|>"),
    *("<end_of_turn>", "<turn|>", "<|tool_response>", "<|user|>", "<|observation|>", "<|role_end|>", "[e~["),
    *("<｜end▁of▁sentence｜>", "<|end▁of▁sentence|>", "<seed:eos>", "</longcat_s>", "<SPECIAL_12>"),
    *("<|content_model_end_sampling|>", "<|end_of_msg|>", "<|im:end|>", "[unused10]", "<eos>", "<|end_of_sentence|>"),
    *("[|endofturn|]", "[EOS]", "<|return|>"),
)
"""The tokens with which models end a message. Some servers do not remove them."""

Part: TypeAlias = str | Some | LineEnd | OneOf | Maybe | Header


def check_tuple(name: str, value: object, kind: Any) -> None:
    """Raise TypeError unless `value` is a tuple of objects of the type `kind`, which may be `Part`."""
    if not isinstance(value, tuple) or not all(isinstance(each, kind) for each in value):
        advice = f"; write ({value!r:.80},)" if isinstance(value, kind) else ""
        kinds = "texts and other parts" if kind is Part else f"{kind.__name__} objects"
        raise TypeError(f"{name} must be a tuple of {kinds}, got {value!r:.80}{advice}")


PartPattern: TypeAlias = "Callable[[Part, Part | None], str]"
"""A function that returns the regular expression of a part. Its second argument is the part after it, or None."""
Where: TypeAlias = Literal["anywhere", "line_start", "start", "after_call"]

HEAD = 4  # markers are grouped by this number of first characters
_TOKENS_IN_HEADER = 8
_MARK = "()"
"""An empty group. It takes part in a match only if the match has reached the position of the group."""
_NEVER = "(?!)"  # matches nothing


@dataclass(frozen=True)
class Marker:
    """The text that begins a span, and the positions at which it is recognized.

    `parts` are the text of the marker. `ahead` must follow it, but is not read as a part of the marker.

    `where` is the position of the marker. "anywhere" allows every position. "line_start" is the start of a line after
    indentation. "start" is the start of a message after white space. "after_call" is the first text after a call and
    white space.

    `not_after` is a pattern for one character. The marker is not recognized after such a character.

    `tag_parts` is the number of first parts, in `parts` and then `ahead`, that form a complete tag, such as
    `<tool_call>`. If the stream ends after the tag but inside the marker, a call was cut off. With None, the tag
    extends to the first literal that ends with its bracket: `]` if the marker begins with `[`, and `>` if it begins
    with `<` or `]`. With 0, the marker has no tag.

    Raises ValueError if the marker does not begin with a literal, or does not end with a literal, a line end, or one
    character of a class.
    """

    parts: tuple[Part, ...]
    ahead: tuple[Part, ...] = ()
    where: Where = "anywhere"
    not_after: str = ""
    tag_parts: int | None = None

    def __post_init__(self) -> None:
        check_tuple("`parts` of a marker", self.parts, Part)
        check_tuple("`ahead` of a marker", self.ahead, Part)
        if self.where not in get_args(Where):
            raise ValueError(f"`where` must be one of {', '.join(map(repr, get_args(Where)))}, got {self.where!r}")
        if not self.parts or not isinstance(self.parts[0], str) or "" in self.parts + self.ahead:
            raise ValueError(f"a marker must begin with a literal, got {self.parts!r}; no part may be empty")
        *before, last = self.parts + self.ahead
        for end in [word or before[-1] for word in last.words] if isinstance(last, OneOf) else [last]:
            if not isinstance(end, str | LineEnd) and not (isinstance(end, Some) and end.least == end.most == 1):
                raise ValueError(f"a marker must end with a literal or a line end, got {end!r}")

    @property
    def first(self) -> str:
        """The first character of the marker."""
        return self.head[0]

    @property
    def head(self) -> str:
        """The first characters of the marker, at most four. They end before the first part that is not a literal."""
        fixed = takewhile(lambda part: isinstance(part, str), self.parts + self.ahead)
        return "".join(map(str, fixed))[:HEAD]

    @property
    def last(self) -> str:
        """A pattern for the last part of `parts + ahead`."""
        last = (self.parts + self.ahead)[-1]
        if isinstance(last, OneOf):
            return "|".join(map(re.escape, last.words))
        return "\n" if isinstance(last, LineEnd) else complete(last)

    def cut_pattern(self) -> str:
        """Return a pattern for a marker that the end of the text cuts off after its complete tag.

        The pattern has no groups. It matches nothing if the marker has no tag.
        """
        tag = (self.parts + self.ahead)[: self.tag_length]
        return f"(?={_joined(tag, complete)}){self.begun_pattern()}" if tag else _NEVER

    @property
    def tag_length(self) -> int:
        """How many of the first `parts` and `ahead` form a complete tag. 0 if the marker has no tag."""
        return _length_of_tag(self.parts + self.ahead) if self.tag_parts is None else self.tag_parts

    def after_space(self, *white: Part, where: Where | None = None) -> Marker:
        """Return this marker with the white space `white` before it. `where` may replace its position."""
        tag_parts = self.tag_length + len(white) if self.tag_length else 0
        return Marker((*white, *self.parts), ahead=self.ahead, where=where or self.where, tag_parts=tag_parts)

    def parts_pattern(self) -> str:
        """Return a pattern for the complete marker, without its `ahead`. The pattern has no groups."""
        return self.lookbehind + _joined(self.parts, complete)

    def search_pattern(self) -> str:
        """Return a pattern for the complete marker, which matches only if `ahead` follows. It has no groups."""
        before = "(?:^[ \\t]{0,32})" if self.where == "line_start" else ""
        parts, ahead = (_joined(sequence, complete_while_open) for sequence in (self.parts, self.ahead))
        return before + self.lookbehind + parts + (f"(?={ahead})" if ahead else "")

    def begun_pattern(self) -> str:
        """Return a pattern for an incomplete marker at the end of the text. The pattern has no groups."""
        return self.lookbehind + partial_pattern(self.parts + self.ahead, _NEVER)

    @property
    def lookbehind(self) -> str:
        """A negative lookbehind for `not_after`, or "" if every character may precede the marker."""
        return f"(?<!{self.not_after})" if self.not_after else ""


def _length_of_tag(parts: Sequence[Part]) -> int:
    """Return how many of the first `parts` form a complete tag in brackets. 0 if the tag is not found."""
    first = str(parts[0])
    bracket = "]" if first[0] == "[" else ">" if first[0] in "<]" else None  # "[TAG]", "<tag>" or "]<]minimax[><tag>"
    ends = (count for count, part in enumerate(parts, 1) if isinstance(part, str) and part[-1:] == bracket)
    return next(ends, 0)


class Pattern:
    """A sequence of parts, matched while text arrives. It is compiled on first use."""

    def __init__(self, *parts: Part) -> None:
        check_tuple("a Pattern", parts, Part)
        self.parts = parts

    @cached_property
    def partial(self) -> Search:
        """Matches all parts, or their beginning at the end of the text. The group takes part only in a full match."""
        return re.compile(partial_pattern(self.parts, _MARK)).match

    @cached_property
    def final(self) -> Search:
        """Matches all parts when the stream has ended. The group is the same as for `partial`."""
        return re.compile(_joined(self.parts, complete) + _MARK).match

    def startswith(self, text: str) -> bool:
        """Return whether the parts begin with `text`, as `str.startswith` does. False if `text` holds all parts."""
        found = self.partial(text)
        return text == "" or (found is not None and not found.lastindex)

    def match(self, text: str, at: int, ended: bool) -> int | Literal[False] | None:
        """Match the parts at `at`. Returns their end, None if more text is needed to decide, or False for no match.

        `ended` is True if the stream has ended.
        """
        match = self.final if ended else self.partial
        found = match(text, at)
        if found is None:
            return None if at == len(text) and not ended else False
        return found.end() if found.lastindex else None


def _words(part: Part) -> Sequence[str]:
    """Return the literals of which `part` is one. For a part without literals, returns one empty literal."""
    return part.words if isinstance(part, OneOf) else [part if isinstance(part, str) else ""]


def _least_length(part: Part) -> int:
    return part.least if isinstance(part, Some) else min(map(len, _words(part)))


def partial_pattern(parts: Sequence[Part], rest: str = "") -> str:
    """Return a pattern for `parts` and then `rest`. It also matches if the text ends before all of them."""
    for part, following in reversed(_in_pairs(parts)):
        rest = _followed(part, following, rest)
    return rest


def any_partial(sequences: Iterable[tuple[Part, ...]]) -> str:
    """Return a pattern for any of the `sequences` of parts. It also matches if the text ends before all of its parts.

    Sequences with the same beginning share the pattern of that beginning.
    """
    alike: dict[Part | None, list[tuple[Part, ...]]] = {}
    for parts in sorted(sequences, key=_has_check):  # checks take time, so patterns without them are tried first
        first = parts[0] if parts else None
        alike.setdefault(first[0] if isinstance(first, str) else first, []).append(parts)
    return "|".join(
        partial_pattern(group[0], _MARK) if len(group) == 1 else _partial_group(group) for group in alike.values()
    )


def _has_check(parts: tuple[Part, ...]) -> bool:
    return any(isinstance(part, Header) and part.without != "" for part in parts)


def _partial_group(sequences: list[tuple[Part, ...]]) -> str:
    if not sequences[0]:
        return _MARK
    shared = sequences[0][0]
    if isinstance(shared, str):
        columns = zip(*(str(first) for first, *_ in sequences), strict=False)
        shared = "".join(column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns))
        rests = [(str(first).removeprefix(shared), *others) for first, *others in sequences]
        rests = [rest if rest[0] else rest[1:] for rest in rests]
    else:
        rests = [rest[1:] for rest in sequences]
    following = next((rest[0] for rest in rests if rest and complete(shared, rest[0]) != complete(shared)), None)
    return _followed(shared, following, f"(?:{any_partial(rests)})")


def _followed(part: Part, following: Part | None, rest: str) -> str:
    """Return a pattern for `part` and then `rest`. It also matches if the text ends before all of them."""
    if isinstance(part, LineEnd):
        return rf"(?:\r?\Z|\r?\n{_or_end(rest)})"
    if isinstance(part, Maybe):
        return f"(?:{partial_pattern(part.parts, '')})?{_or_end(rest)}"
    if isinstance(part, Header):
        text = part.text_pattern(backtracks=_gives_back(part, following))
        return f"{part.check_pattern}(?:{part.begun_pattern}|{text}{rest})"
    if isinstance(part, OneOf):
        short = "".join(f"{beginning(word)}\\Z|" for word in part.words if len(word) > 1)
        return f"(?:{short}{complete(part, following)}{_or_end(rest)})"
    if isinstance(part, Some):
        short = f"[{part.characters}]{{0,{part.least - 1}}}\\Z|" if part.least else ""
        return f"(?:{short}{complete(part, following)}{_or_end(rest)})"
    if len(part) < 2:
        return re.escape(part) + _or_end(rest) if part else rest
    # The complete literal is tried first, because most text does not end inside a literal.
    first, others = re.escape(part[0]), re.escape(part[1:])
    begun = f"(?:{beginning(part[1:])})?" if len(part) > 2 else ""
    return f"{first}(?:{others}{_or_end(rest)}|(?!{others}){begun}\\Z)"


def _or_end(rest: str) -> str:
    return rest if rest in (_MARK, _NEVER) else f"(?:\\Z|{rest})"


def whole_pattern(marker: Marker, pattern: PartPattern) -> str:
    """Return a pattern for a marker, its `not_after` and its `ahead`. `pattern` returns the pattern of each part.

    The result has two empty groups: one after the marker, and one after its `ahead`.
    """
    return marker.lookbehind + _joined(marker.parts, pattern) + _MARK + _joined(marker.ahead, pattern) + _MARK


def _joined(parts: Sequence[Part], pattern: PartPattern) -> str:
    return "".join(pattern(part, following) for part, following in _in_pairs(parts))


def _in_pairs(parts: Sequence[Part]) -> list[tuple[Part, Part | None]]:
    """Return each part with the part that follows it."""
    return list(zip(parts, (*parts[1:], None), strict=False))


def complete_while_open(part: Part, following: Part | None) -> str:
    """Return a pattern for a complete `part` while the stream continues."""
    if isinstance(part, OneOf):  # no match while a longer literal may still arrive
        longer = [word for word in part.words if any(word != other and word.startswith(other) for other in part.words)]
        begun = [beginning(word) for word in longer if len(word) > 1] + [""] * ("" in part.words)
        return f"(?!(?:{'|'.join(begun)})\\Z){complete(part)}" if begun else complete(part)
    return r"\r?\n" if isinstance(part, LineEnd) else complete(part, following)


def complete(part: Part, following: Part | None = None) -> str:
    """Return a pattern for a complete `part` when the stream has ended."""
    if isinstance(part, LineEnd):
        return r"\r?(?:\n|\Z)"
    if isinstance(part, Some):
        return f"[{part.characters}]{{{part.least},{part.most}}}{'' if _gives_back(part, following) else '+'}"
    if isinstance(part, Maybe):
        return f"(?:{_joined(part.parts, complete)})?"
    if isinstance(part, Header):
        return part.check_pattern + part.text_pattern(backtracks=_gives_back(part, following))
    if isinstance(part, OneOf):
        return "(?:" + "|".join(map(re.escape, sorted(part.words, key=len, reverse=True))) + ")"
    return re.escape(part)


def _gives_back(part: Some | Header, following: Part | None) -> bool:
    """Return whether the part must backtrack, because the literal after it begins with one of its characters."""
    if not isinstance(following, str):
        return False
    characters = part.characters
    return following.startswith(characters) if len(characters) == 1 else bool(re.match(f"[{characters}]", following))


def beginning(word: str) -> str:
    """Return a pattern for every incomplete beginning of `word`. The word has at least two characters."""
    pattern = ""
    for character in reversed(word[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(word[0]) + pattern


class Markers(Generic[T]):
    """Several markers that are searched for in one pass. Each marker has a meaning, an object of the caller."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        # `_groups` maps the next characters of the text to a group of markers that may begin there. The key has HEAD
        # characters, or fewer at the end of the text. Groups are made on first use. `_short_groups` holds the markers
        # whose literal beginning is shorter than HEAD. It is used if `_groups` has no group.
        self._entries = [(marker.head, (marker, meaning)) for marker, meaning in entries]
        heads = {head for head, _ in self._entries}
        self._beginnings = {head[:length] for head in heads for length in range(1, HEAD + 1)}
        self._groups: dict[str, Group[T]] = {}
        short = [head for head in heads if len(head) < HEAD]
        self._short_groups = {
            head: Group([entry for begin, entry in self._entries if head.startswith(begin)]) for head in short
        }
        self._lengths = sorted({len(head) for head in self._short_groups}, reverse=True)

    def match(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | None:
        """Return the meaning of the marker at index `at`, and the index of its end.

        Returns None if more text is needed to decide, and False if there is no marker. `text` must also hold the
        character before `at`, if there is one.
        """
        found = self.find(text, at, ended)
        return None if isinstance(found, Group) else found

    def find(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | Group[T]:
        """Return the result of `match`, but the group of possible markers instead of None."""
        head = text[at : at + HEAD]
        group = self._groups.get(head)
        if group is None and head in self._beginnings:
            group = self._groups[head] = self._beginning_with(head)
        if group is None:
            for length in self._lengths:
                if (group := self._short_groups.get(head[:length])) is not None:
                    break
            else:
                return False
        return group.find(text, at, ended)

    def _beginning_with(self, begun: str) -> Group[T]:
        """Return the group of markers whose head begins with `begun`, or is the beginning of `begun`."""
        alike = [(head, entry) for head, entry in self._entries if head.startswith(begun) or begun.startswith(head)]
        shorter = any(len(head) <= len(begun) for head, _ in alike)
        entries = [entry for _, entry in alike]
        return Group(entries) if shorter else Group(entries, len(begun), self)


class Group(Generic[T]):
    """Markers with the same beginning. Their patterns are compiled on first use, because few texts need many."""

    def __init__(self, entries: Sequence[tuple[Marker, T]], shared_length: int = 0, markers: Markers[T] | None = None):
        """With `markers`, this group is for a text of at most `shared_length` characters, with which all entries begin.

        `markers` then has smaller groups for longer texts.
        """
        self._entries = entries
        self._markers = markers
        self.shared_length = shared_length
        self._checks: tuple[Search, int, Search, int] | None = None  # not a cached property, which is slower to read
        self.in_header: Search | None = None
        """Matches a text that ends in a header. No marker is then complete, and only more text can decide."""

    def _compile_checks(self) -> tuple[Search, int, Search, int]:
        """Compile the fast checks of `find`, and store them in `_checks`.

        Returns a match for a complete or incomplete marker, the shortest length of a marker, a search for the last part
        of a marker, and the first index in the marker at which its last part may begin.
        """
        sequences = [marker.parts + marker.ahead for marker, _ in self._entries]
        alike: dict[str, list[tuple[Part, ...]]] = {}
        for (marker, _), parts in zip(self._entries, sequences, strict=True):
            alike.setdefault(marker.lookbehind, []).append(parts)
        begun = re.compile("|".join(f"{before}(?:{any_partial(group)})" for before, group in alike.items())).match
        ends = re.compile("|".join(sorted({marker.last for marker, _ in self._entries}))).search
        least, before_last = (min(sum(map(_least_length, parts[:end])) for parts in sequences) for end in (None, -1))
        self._checks = begun, least, ends, before_last
        headers = [
            re.escape(str(first)) + header.begun_pattern
            for first, header in dict.fromkeys(parts[:2] for parts in alike.get("", ()) if len(parts) > 1)
            if isinstance(header, Header) and not header.without
            if all(any(map(header.excludes, parts[1:])) for parts in sequences)
        ]
        if headers:
            self.in_header = re.compile("|".join(headers)).match
        return self._checks

    @cached_property
    def _allowed(self) -> Search:
        """Matches if the character before the position allows at least one marker of the group."""
        return re.compile("|".join(dict.fromkeys(marker.lookbehind for marker, _ in self._entries))).match

    @cached_property
    def _complete(self) -> Search:
        return self._compile(complete_while_open)

    @cached_property
    def _cuts(self) -> list[tuple[Search, T]]:  # one pattern for all of them would take ten times the memory
        return [(re.compile(marker.cut_pattern()).match, meaning) for marker, meaning in self._entries]

    def find(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | Group[T]:
        """Return the meaning and the end of the marker at index `at`, as `Markers.find` does."""
        if self._markers is not None:  # Fast path: saves 80 ms of compiling the markers that begin with `<`
            if len(text) - at > self.shared_length:
                return self._markers.find(text, at, ended)
            return self if not ended and self._allowed(text, at) else False
        begun, least, ends, before_last = self._checks or self._compile_checks()
        if not ended and (len(text) - at < least or ends(text, at + before_last) is None):
            return False if begun(text, at) is None else self
        whole = self._complete
        found = shorter = whole(text, at)
        while shorter is not None:  # choose the marker that is complete first, wherever the text is cut
            found, end = shorter, shorter.end() - 1
            shorter = whole(text, at, end) if ends(text, at + before_last, end) else None
        if found is None and ended and begun(text, at) is not None:
            found = self._compile(complete)(text, at)
        if found is None:
            return False if ended or begun(text, at) is None else self
        group = found.lastindex or 0  # each marker has two groups
        return self._entries[group // 2 - 1][1], found.start(group - 1)

    def cut(self, text: str, at: int) -> T | None:
        """Return the meaning of a marker at `at` that is cut off by the end of the stream after its complete tag.

        Returns None if there is no such marker.
        """
        return next((meaning for match, meaning in self._cuts if match(text, at)), None)

    def _compile(self, pattern: PartPattern) -> Search:
        return re.compile("|".join(whole_pattern(marker, pattern) for marker, _ in self._entries)).match

"""Markers: the texts that begin calls, tags and headers. They are matched while text arrives.

A marker is a sequence of parts, such as literals and repetitions. It is compiled to a regular expression that also
matches an incomplete marker at the end of the text. For example, the parts `a` and `b` become `a(?:\\Z|b())`. The empty
group takes part in a match only if the marker is complete. So a match at a position has one of three results:

- The expression matches with the group: the marker is complete.
- The expression matches without the group: more text is needed to decide.
- The expression does not match: there is no marker at this position.

Every repetition has an upper bound. These bounds limit pending text and backtracking.

`Markers` decides which of several markers is at a position. The first characters at the position select a `Group`: the
markers that may begin with these characters. As long as the text after the position does not contain the last part of
any marker, no marker is complete. One expression then decides whether a marker may have begun. Otherwise the markers of
the group are tried.
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
    """Between `least` and `most` characters of one class.

    `characters` is the class, as it is written between `[` and `]` in a regular expression. The repetition is greedy.
    It backtracks only if the next part is a literal whose first character is in the class.
    """

    characters: str
    least: int
    most: int


@dataclass(frozen=True)
class LineEnd:
    """A line end: LF or CR LF. The end of the stream also counts as a line end."""


@dataclass(frozen=True)
class OneOf:
    """One of several literals. If several of them match, the longest one is used. One of them may be empty."""

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        check_tuple("`words` of OneOf", self.words, str)


@dataclass(frozen=True)
class Maybe:
    """An optional sequence of parts."""

    parts: tuple[str | Some | OneOf, ...]


@dataclass(frozen=True)
class Header:
    """The text of a header: up to eight of the `tokens`, and other characters before, between and after the tokens.

    `characters` is the class of the other characters, written as for `Some`. At most `most` of these characters
    stand in each of these places. A line feed may precede each token.

    A header ends before the first text that cannot belong to it. If the regular expression `without` matches at a
    position in the header or at its end, the text is no header.
    """

    characters: str
    tokens: tuple[str, ...]
    without: str = ""
    most: int = 96

    def text_pattern(self, *, backtracks: bool = False) -> str:
        """Return a pattern for the text. It ignores `without`, and is possessive unless `backtracks` is True."""
        characters = f"[{self.characters}]{{0,{self.most}}}"
        token = f"\n?(?:{'|'.join(map(re.escape, self.tokens))})"
        if backtracks:  # the repeated class is the last part: `re` is fast at finding the literal after it
            return f"(?:{characters}+{token}){{0,{_TOKENS_IN_HEADER}}}{characters}"
        return f"{characters}+(?:{token}{characters}+){{0,{_TOKENS_IN_HEADER}}}+"

    @property
    def begun_pattern(self) -> str:
        """A pattern for a header that extends to the end of the text. The last token may be incomplete.

        The pattern ignores `without`.
        """
        return f"{self.text_pattern()}\n?(?:{'|'.join(map(beginning, self.tokens))})?\\Z"

    def excludes(self, part: Part) -> bool:
        """Return whether no literal of `part` could be the whole text of a header. False if `part` has no literals."""
        return not any(re.fullmatch(self.text_pattern(), word) for word in _words(part))

    @property
    def check_pattern(self) -> str:
        """A negative lookahead that fails if `without` matches in the header. Empty if `without` is empty."""
        return f"(?!{self.text_pattern(backtracks=True)}(?:{self.without}))" if self.without else ""


BLANKS = Some(r" \t", 0, 32)  # white space within a line
SPACES = Some(r" \t\r\n", 0, 32)  # white space with line ends
LINE_END = LineEnd()
NO_TAG: Final[tuple[Part, ...]] = ("<", Some(r"^\s\S", 1, 1))
"""The tag of a wrapper that a dialect does not have. It matches no text."""
SENTENCE: Final[tuple[Part, ...]] = (SPACES, Some(r"^<>{}\[\]\s", 1, 1), Some("^<>{}", 0, 160))
"""White space and a sentence. Models write such a sentence between the tag of a wrapper and the first call."""
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
    """Raise TypeError unless `value` is a tuple whose items have the type `kind`. `kind` may also be `Part`."""
    if not isinstance(value, tuple) or not all(isinstance(each, kind) for each in value):
        advice = f"; write ({value!r:.80},)" if isinstance(value, kind) else ""
        kinds = "texts and other parts" if kind is Part else f"{kind.__name__} objects"
        raise TypeError(f"{name} must be a tuple of {kinds}, got {value!r:.80}{advice}")


PartPattern: TypeAlias = "Callable[[Part, Part | None], str]"
"""A function that returns the regular expression of a part. Its arguments are the part and the next part, or None."""
Where: TypeAlias = Literal["anywhere", "line_start", "start", "after_call"]

HEAD = 4  # `Markers` groups markers by at most this number of first characters
_TOKENS_IN_HEADER = 8  # the maximum number of tokens in a header
_MARK = "()"
"""An empty group. It takes part in a match only if the match has reached the position of the group."""
_NEVER = "(?!)"  # a pattern that matches nothing


@dataclass(frozen=True)
class Marker:
    """The text that begins a span, and the positions at which it is recognized.

    `parts` describe the text of the marker. `ahead` describes the text that must follow the marker. The marker does not
    include this text.

    `where` is the position at which the marker is recognized:

    - "anywhere": at every position.
    - "line_start": at the start of a line. Indentation may precede the marker.
    - "start": at the start of a message. White space may precede the marker.
    - "after_call": directly after a call. White space may stand between the call and the marker.

    `not_after` is a pattern for one character. The marker is not recognized after such a character.

    The first `tag_parts` parts of `parts + ahead` form a complete tag, such as `<tool_call>`. If the stream ends after
    this tag but inside the marker, a call was cut off. With None, the tag ends with the first literal that ends with a
    closing bracket. This bracket is `]` if the marker begins with `[`, and `>` if it begins with `<` or `]`. With 0,
    the marker has no tag.

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
        """The first characters of `literal`, at most four."""
        return self.literal[:HEAD]

    @property
    def literal(self) -> str:
        """The text of the marker before its first part that is no literal."""
        return "".join(map(str, takewhile(lambda part: isinstance(part, str), self.parts + self.ahead)))

    @property
    def last(self) -> str:
        """A pattern for the last part of `parts + ahead`. Of a line end, it matches only the LF."""
        last = (self.parts + self.ahead)[-1]
        if isinstance(last, OneOf):
            return "|".join(map(re.escape, last.words))
        return "\n" if isinstance(last, LineEnd) else complete(last)

    def cut_pattern(self) -> str:
        """Return a pattern for an incomplete marker with a complete tag, at the end of the text.

        The pattern has no groups. It matches nothing if the marker has no tag.
        """
        tag = (self.parts + self.ahead)[: self.tag_length]
        return f"(?={_joined(tag, complete)}){self.begun_pattern()}" if tag else _NEVER

    @property
    def tag_length(self) -> int:
        """How many parts of `parts + ahead`, from the first on, form the complete tag. 0 if the marker has no tag."""
        return _length_of_tag(self.parts + self.ahead) if self.tag_parts is None else self.tag_parts

    def after_space(self, *white: Part, where: Where | None = None) -> Marker:
        """Return a marker that begins with the white space `white` and continues with the parts of this marker.

        If `where` is given, it replaces the `where` of this marker. The returned marker has no `not_after`.
        """
        tag_parts = self.tag_length + len(white) if self.tag_length else 0
        return Marker((*white, *self.parts), ahead=self.ahead, where=where or self.where, tag_parts=tag_parts)

    def parts_pattern(self) -> str:
        """Return a pattern for all `parts`, without `ahead`, when the stream has ended. The pattern has no groups."""
        return self.lookbehind + _joined(self.parts, complete)

    def search_pattern(self) -> str:
        """Return a pattern for all `parts`, with `ahead` after them, while the stream continues.

        The pattern has no groups. With `where="line_start"`, it also matches the indentation.
        """
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
    """Return how many parts, from the first on, form a complete tag in brackets. Returns 0 if there is no such tag."""
    first = str(parts[0])
    bracket = "]" if first[0] == "[" else ">" if first[0] in "<]" else None  # "[TAG]", "<tag>" or "]<]minimax[><tag>"
    ends = (count for count, part in enumerate(parts, 1) if isinstance(part, str) and part[-1:] == bracket)
    return next(ends, 0)


class Pattern:
    """A sequence of parts that is matched while text arrives. The regular expressions are compiled on first use."""

    def __init__(self, *parts: Part) -> None:
        check_tuple("a Pattern", parts, Part)
        self.parts = parts

    @cached_property
    def partial(self) -> Search:
        """Matches all parts, or an incomplete sequence at the end of the text.

        The group takes part in the match only if all parts match.
        """
        return re.compile(partial_pattern(self.parts, _MARK)).match

    @cached_property
    def final(self) -> Search:
        """Matches all parts when the stream has ended. The group takes part in every match."""
        return re.compile(_joined(self.parts, complete) + _MARK).match

    def startswith(self, text: str) -> bool:
        """Return whether `text` is a beginning of the parts, like `str.startswith`. False if `text` holds all parts."""
        found = self.partial(text)
        return text == "" or (found is not None and not found.lastindex)

    def match(self, text: str, at: int, ended: bool) -> int | Literal[False] | None:
        """Match the parts at the index `at`. Returns the index of their end, or False if they do not match.

        Returns None if more text is needed to decide. `ended` is True if the stream has ended.
        """
        match = self.final if ended else self.partial
        found = match(text, at)
        if found is None:
            return None if at == len(text) and not ended else False
        return found.end() if found.lastindex else None


def _words(part: Part) -> Sequence[str]:
    """Return the literals that `part` can match. For a part that has no literals, returns one empty literal."""
    return part.words if isinstance(part, OneOf) else [part if isinstance(part, str) else ""]


def _least_length(part: Part) -> int:
    return part.least if isinstance(part, Some) else min(map(len, _words(part)))


def partial_pattern(parts: Sequence[Part], rest: str = "") -> str:
    """Return a pattern for `parts` and then the pattern `rest`.

    It also matches if the text ends before this sequence is complete.
    """
    for part, following in reversed(_in_pairs(parts)):
        rest = _followed(part, following, rest)
    return rest


def any_partial(sequences: Iterable[tuple[Part, ...]]) -> str:
    """Return a pattern for any of the `sequences` of parts. A group takes part in the match of a complete sequence.

    The pattern also matches if the text ends before a sequence is complete. Sequences that begin alike share the
    pattern of their common beginning.
    """
    alike: dict[Part | None, list[tuple[Part, ...]]] = {}
    for parts in sorted(sequences, key=_has_check):  # lookaheads for `without` take time, so they are last
        first = parts[0] if parts else None
        alike.setdefault(first[0] if isinstance(first, str) else first, []).append(parts)
    return "|".join(
        partial_pattern(group[0], _MARK) if len(group) == 1 else _partial_group(group) for group in alike.values()
    )


def _has_check(parts: tuple[Part, ...]) -> bool:
    return any(isinstance(part, Header) and part.without != "" for part in parts)


def _partial_group(sequences: list[tuple[Part, ...]]) -> str:
    """Do the same as `any_partial` for several sequences with a common beginning, or for several empty sequences.

    Either the first parts are equal, or they are literals with the same first character.
    """
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
    # The first part after the shared part for which the shared part must backtrack. None if there is none.
    following = next((rest[0] for rest in rests if rest and complete(shared, rest[0]) != complete(shared)), None)
    return _followed(shared, following, f"(?:{any_partial(rests)})")


def _followed(part: Part, following: Part | None, rest: str) -> str:
    """Return a pattern for `part` and then the pattern `rest`. `following` is the part after `part`, or None.

    The pattern also matches if the text ends before this sequence is complete.
    """
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
    """Return a pattern for the end of the text or `rest`. `_MARK` and `_NEVER` are returned unchanged."""
    return rest if rest in (_MARK, _NEVER) else f"(?:\\Z|{rest})"


def whole_pattern(marker: Marker, pattern: PartPattern) -> str:
    """Return a pattern for all `parts` of a marker, with its `ahead` after them. `pattern` is applied to each part.

    The result has two empty groups: one after `parts`, and one after `ahead`.
    """
    return marker.lookbehind + _joined(marker.parts, pattern) + _MARK + _joined(marker.ahead, pattern) + _MARK


def _joined(parts: Sequence[Part], pattern: PartPattern) -> str:
    return "".join(pattern(part, following) for part, following in _in_pairs(parts))


def _in_pairs(parts: Sequence[Part]) -> list[tuple[Part, Part | None]]:
    """Return each part with the part that follows it, and the last part with None."""
    return list(zip(parts, (*parts[1:], None), strict=False))


def complete_while_open(part: Part, following: Part | None) -> str:
    """Return a pattern for a complete `part` while the stream continues."""
    if isinstance(part, OneOf):  # does not match while a longer literal may still arrive
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
    """Return whether `part` must backtrack: the part after it is a literal whose first character is in its class."""
    if not isinstance(following, str):
        return False
    characters = part.characters
    return following.startswith(characters) if len(characters) == 1 else bool(re.match(f"[{characters}]", following))


def beginning(word: str) -> str:
    """Return a pattern for the beginnings of `word`, from its first character to all characters but the last.

    `word` has at least two characters.
    """
    pattern = ""
    for character in reversed(word[1:-1]):
        pattern = f"(?:{re.escape(character)}{pattern})?"
    return re.escape(word[0]) + pattern


class Markers(Generic[T]):
    """Several markers that are matched together at one position. The caller gives each marker a meaning, any object."""

    def __init__(self, entries: Sequence[tuple[Marker, T]]) -> None:
        # `_groups` maps the next HEAD characters of the text, or fewer at its end, to the group of markers that may
        # begin with them. A group is created on first use, and only if its key is in `_beginnings`, the beginnings of
        # all heads. `_short_groups` is used for other text. It maps each head with fewer than HEAD characters to the
        # group of markers whose head is this head, or a beginning of it.
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
        """Return the meaning of the marker at the index `at`, and the index of its end.

        Returns None if more text is needed to decide, and False if there is no marker. If a character precedes the
        position, `text` must hold this character, too. `ended` is True if the stream has ended.
        """
        found = self.find(text, at, ended)
        return None if isinstance(found, Group) else found

    def find(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | Group[T]:
        """Do the same as `match`, but instead of None, return the group of the markers that are still possible."""
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
        """Return the group of the markers that may begin with `begun`.

        Either the head of such a marker begins with `begun`, or `begun` begins with the head.
        """
        alike = [(head, entry) for head, entry in self._entries if head.startswith(begun) or begun.startswith(head)]
        shorter = any(len(head) <= len(begun) for head, _ in alike)
        entries = [entry for _, entry in alike]
        return Group(entries) if shorter else Group(entries, len(begun), self)


class Group(Generic[T]):
    """Markers that begin alike. A pattern is compiled on first use, because most texts need only a few patterns."""

    def __init__(self, entries: Sequence[tuple[Marker, T]], shared_length: int = 0, markers: Markers[T] | None = None):
        """Create a group. With `markers`, all entries have the same first `shared_length` characters.

        Such a group decides only while no more than these characters have arrived. For a longer text, it calls
        `markers`, which has smaller groups.
        """
        self._entries = entries
        self._markers = markers
        self.shared_length = shared_length
        self._checks: tuple[Search, int, Search, int] | None = None  # not a cached property, which is slower to read
        self.in_header: Search | None = None
        """Matches a text that ends inside a header. Then no marker of the group is complete: more text must decide.

        None if no header allows this conclusion, or if the checks are not yet compiled.
        """

    def _compile_checks(self) -> tuple[Search, int, Search, int]:
        """Compile the fast checks of `find`. Store them in `_checks`, and return them. Also set `in_header`.

        The checks are: a function that matches a complete or incomplete marker, the minimum length of a marker, a
        function that searches for the last part of a marker, and the first index at which this part may begin. The
        index counts from the start of the marker.
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
        """Matches if at least one marker of the group is recognized after the character before the position."""
        return re.compile("|".join(dict.fromkeys(marker.lookbehind for marker, _ in self._entries))).match

    @cached_property
    def _complete(self) -> Search:
        """Matches a complete marker while the stream continues."""
        return self._compile(complete_while_open)

    @cached_property
    def _cuts(self) -> list[tuple[Search, T]]:  # one pattern for all markers would take ten times the memory
        return [(re.compile(marker.cut_pattern()).match, meaning) for marker, meaning in self._entries]

    def find(self, text: str, at: int, ended: bool) -> tuple[T, int] | Literal[False] | Group[T]:
        """Return the meaning and the end of the marker at the index `at`, as `Markers.find` does."""
        if self._markers is not None:  # Fast path: saves the 80 ms of compiling all markers that begin with `<`
            if len(text) - at > self.shared_length:
                return self._markers.find(text, at, ended)
            return self if not ended and self._allowed(text, at) else False
        begun, least, ends, before_last = self._checks or self._compile_checks()
        # Fast path: without its last part, no marker is complete.
        if not ended and (len(text) - at < least or ends(text, at + before_last) is None):
            return False if begun(text, at) is None else self
        whole = self._complete
        found = shorter = whole(text, at)
        # Choose the marker with the first end, `ahead` included. So the cuts between deltas do not change the result.
        while shorter is not None:
            found, end = shorter, shorter.end() - 1
            shorter = whole(text, at, end) if ends(text, at + before_last, end) else None
        # At the end of the stream, more markers are complete: neither a longer literal nor a line feed can arrive.
        if found is None and ended and begun(text, at) is not None:
            found = self._compile(complete)(text, at)
        if found is None:
            return False if ended or begun(text, at) is None else self
        group = found.lastindex or 0  # the pattern of each marker has two groups
        return self._entries[group // 2 - 1][1], found.start(group - 1)

    def cut(self, text: str, at: int) -> T | None:
        """Return the meaning of the marker at `at` if the stream ends inside this marker, but after its complete tag.

        Returns None if there is no such marker.
        """
        return next((meaning for match, meaning in self._cuts if match(text, at)), None)

    def _compile(self, pattern: PartPattern) -> Search:
        return re.compile("|".join(whole_pattern(marker, pattern) for marker, _ in self._entries)).match

"""Defines `Rule`: the patterns that are searched for in visible text, and the action for a match.

A pattern is a literal text or a regular expression. Only regular expressions that an automaton can match in one pass
are supported. They may have literals, classes (`[a-z]`, `\\d`, `.`), alternatives, groups, repetition with an upper
bound, `\\b` and `\\B`, and lookahead and lookbehind of one character. For other patterns, such as unbounded repetition
or a reference to a group, `Rule` raises ValueError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from streamtools.errors import Checked, described


class Character(NamedTuple):
    """Matches one character. `source` is a regular expression for the class of the character."""

    source: str
    flags: int


class Words(NamedTuple):
    """Matches one of several words. A word is a sequence of characters."""

    words: tuple[tuple[Character, ...], ...]


class InOrder(NamedTuple):
    """Matches all parts in order."""

    parts: tuple[Tree, ...]


class Choice(NamedTuple):
    """Matches one of the parts."""

    parts: tuple[Tree, ...]


class Repeat(NamedTuple):
    """Matches a part, repeated `least` to `most` times."""

    part: Tree
    least: int
    most: int


class Lookaround(NamedTuple):
    """An assertion about the next character (`ahead`) or the previous one.

    With `wanted`, that character must be in the class `one`. Otherwise it must not be in this class. The start and the
    end of the text are in no class.
    """

    one: Character
    ahead: bool
    wanted: bool


class WordBoundary(NamedTuple):
    """Asserts a word boundary. With `wanted=False`, asserts that there is no word boundary."""

    wanted: bool


Tree: TypeAlias = Character | Words | InOrder | Choice | Repeat | Lookaround | WordBoundary

_COUNT = re.compile(r"\{(?!\})([0-9]*+)(,?)([0-9]*+)\}")  # {3}, {3,}, {,5} or {3,5}
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.){0,4000}+\]", re.DOTALL)  # [a-z], [^"] or []a]
# A class, a special character, a code point or an escaped symbol: \d, \n, \x41 or \*.
_ESCAPED = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[dDwWsStrnfva]|[^A-Za-z0-9])", re.DOTALL)
_LOOK = re.compile(r"\(\?(<?)([=!])")  # (?=, (?!, (?<= or (?<!
_GROUP = re.compile(r"\((?:\?:|\?P<\w{1,64}>)?(?!\?)")  # (, (?: or (?P<name>
_REFERENCE = re.compile(r"\\[1-9][0-9]?|\(\?P=\w{1,64}\)")  # \1 or (?P=name)
_FLAGS = re.IGNORECASE | re.UNICODE
_LOOKS_LIKE_PATTERN = re.compile(r"\\[dswDSW][+*{]|\[(?:0-9|[aA]-[zZ])[^\]]{0,20}\][+*{]")  # \d{6} or [a-z]+


@lru_cache(maxsize=4096)
def _one(character: str, flags: int) -> Character:
    """Return the class of a literal character, normalized so that classes with the same characters are usually
    equal."""
    lower = character.lower()
    if lower == character.upper():
        flags = 0
    return Character(re.escape(lower if flags and len(lower) == 1 else character), flags)


def literal(text: str) -> Tree:
    """Return the tree for a literal text."""
    return InOrder(tuple([_one(character, 0) for character in text]))


def choose(parts: Sequence[Tree]) -> Tree:
    """Return the tree that matches one of the parts. The words with the same trees around them become one `Words`."""
    words: dict[tuple[InOrder, InOrder], list[tuple[Any, ...]]] = {}
    trees: list[Tree] = []
    for part in parts:
        items = part.parts if isinstance(part, InOrder) else (part,)
        at = [index for index, item in enumerate(items) if isinstance(item, Character)]
        begin, end = (at[0], at[-1] + 1) if at else (0, 0)
        if len(at) == end - begin:
            words.setdefault((InOrder(items[:begin]), InOrder(items[end:])), []).append(items[begin:end])
        else:
            trees.append(part)
    for (before, after), several in words.items():
        trees.append(InOrder((before, Words(tuple(several)) if len(several) > 1 else InOrder(several[0]), after)))
    return trees[0] if len(trees) == 1 else Choice(tuple(trees))


def read(pattern: re.Pattern[str]) -> Tree:
    """Return the tree for a regular expression. Raises ValueError if rules do not support the expression."""
    if not isinstance(getattr(pattern, "pattern", None), str):
        raise ValueError(f"a rule needs a str or a compiled pattern of a str, got {pattern!r}")
    if pattern.flags & ~_FLAGS:
        raise ValueError(f"{pattern.pattern!r} has other flags than re.IGNORECASE, which a rule does not support")
    reader = _Reader(pattern.pattern, pattern.flags & re.IGNORECASE)
    tree = reader.choice()
    if reader.at < len(reader.text):
        reader.refuse("unbalanced `)`")
    return tree


class _Reader:
    """Parses a regular expression. `at` is the index of the next character."""

    def __init__(self, text: str, flags: int) -> None:
        self.text = text
        self.at = 0
        self._flags = flags

    def refuse(self, why: str) -> NoReturn:
        raise ValueError(f"a rule does not support the pattern {self.text!r}, at character {self.at}: {why}")

    def choice(self) -> Tree:
        parts = [self._in_order()]
        while self.text.startswith("|", self.at):
            self.at += 1
            parts.append(self._in_order())
        return parts[0] if len(parts) == 1 else choose(parts)

    def _in_order(self) -> Tree:
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self._repeated(self._part()))
        return parts[0] if len(parts) == 1 else InOrder(tuple(parts))

    def _repeated(self, part: Tree) -> Tree:
        found = _COUNT.match(self.text, self.at)
        if self.text.startswith("?", self.at):
            least, most, self.at = 0, 1, self.at + 1
        elif found and (found[3] or not found[2]):
            least, most, self.at = int(found[1] or 0), int(found[3] or found[1]), found.end()
        elif found or self.text.startswith(("*", "+"), self.at):
            self.refuse("a repetition needs an upper bound, such as {1,64}, because pending text needs one")
        else:
            return part
        if most < least or most == 0:
            self.refuse("the upper bound of a repetition must not be 0, or below the lower bound")
        if self.text.startswith(("?", "+", "*", "{"), self.at):
            self.refuse("repetition cannot be lazy or possessive; put a repetition into a group to repeat it")
        if isinstance(part, Lookaround | WordBoundary):
            self.refuse("an assertion cannot be repeated")
        return Repeat(part, least, most)

    def _part(self) -> Tree:
        text, at = self.text, self.at
        if look := _LOOK.match(text, at):
            self.at = look.end()
            one = self._part()
            if not isinstance(one, Character) or not text.startswith(")", self.at):
                self.refuse("lookahead and lookbehind support one character or class")
            self.at += 1
            return Lookaround(one, not look[1], look[2] == "=")
        if group := _GROUP.match(text, at):
            self.at = group.end()
            tree = self.choice()
            if not text.startswith(")", self.at):
                self.refuse("unbalanced `(`")
            self.at += 1
            return tree
        if reference := _REFERENCE.match(text, at):
            self.refuse(f"the backreference `{reference[0]}` is not supported")
        if text.startswith("(?", at):
            self.refuse(f"the group `{text[at : at + 3]}` is not supported")
        if text[at] in "*+?^$":
            self.refuse(f"`{text[at]}` is not supported here; write a literal one as `\\{text[at]}`")
        if text.startswith(("\\b", "\\B"), at):
            self.at += 2
            return WordBoundary(text[at + 1] == "b")
        found = {"[": _CLASS, "\\": _ESCAPED}.get(text[at])
        if found is None:
            self.at += 1
            return Character(".", 0) if text[at] == "." else _one(text[at], self._flags)
        whole = found.match(text, at)
        if whole is None:
            self.refuse(f"the escape or class `{text[at : at + 2]}` is not supported")
        self.at = whole.end()
        return Character(whole[0], self._flags)


class Extent(NamedTuple):
    """The size of a tree."""

    least: int
    most: int
    """The tree matches between `least` and `most` characters."""
    states: int
    """About how many states the automaton of the tree has."""
    looks_ahead: bool
    """Whether a match depends on the character after it."""


def measure(tree: Tree) -> Extent:
    """Return the size of a tree."""
    match tree:
        case Character():
            return Extent(1, 1, 1, False)
        case Repeat(part, least, most):
            one = measure(part)
            return Extent(one.least * least, one.most * most, most * (1 + one.states), one.looks_ahead)
        case Words(words):
            sizes = [len(word) for word in words]
            return Extent(min(sizes), max(sizes), sum(sizes), False)
        case InOrder(parts) | Choice(parts):
            extents = [measure(part) for part in parts]
            shortest, longest = (sum, sum) if isinstance(tree, InOrder) else (min, max)
            size = shortest(one.least for one in extents), longest(one.most for one in extents)
            states, ahead = len(extents) + sum(one.states for one in extents), any(one.looks_ahead for one in extents)
            return Extent(*size, states, ahead)
    return Extent(0, 0, 1, isinstance(tree, WordBoundary) or tree.ahead)


Action: TypeAlias = Literal["replace", "remove", "mark", "stop", "fail"]
"""The action for a match. `replace` replaces it with another text. `remove` removes it. `mark` removes it, and reports
it with the `fields` of its `matched` event. `stop` ends the turn before the match, and complete calls are executed.
`fail` ends the run before the match with an error."""

What: TypeAlias = "str | re.Pattern[str] | Iterable[str | re.Pattern[str]]"
"""The patterns of a rule: a literal text, a compiled regular expression, or several of these."""

MAX_SIZE = 8192
"""The maximum number of characters in a match.

A rule's automaton may have this many states, and two more for each character of the patterns. So only repetitions can
exceed the limit of states."""


@dataclass(frozen=True)
class Searched:
    """The part of a rule that decides which text matches. Rules with equal parts share an automaton."""

    what: Sequence[str | re.Pattern[str]]
    check: Callable[[str], bool] | None
    tree: Tree = field(repr=False, compare=False)


@dataclass(frozen=True, kw_only=True)
class Rule(Checked):
    """One rule. The functions of `streamtools.rules` create the most common rules.

    `what` are the patterns. `check(text)` returns whether to accept a match. `by` replaces a match. It is a text, or a
    function that receives the match and returns a text. `fields(text)` returns the fields of the `matched` event.

    If matches overlap, the one that begins first wins, then the longest, then the match of the first rule.

    Raises ValueError for an unknown action, for no patterns, and for a pattern that is not supported, that matches the
    empty text, or that is too large.
    """

    name: str
    """The name of the rule in events."""
    what: Sequence[str | re.Pattern[str]] = field(hash=False)  # hashing many patterns takes long
    action: Action = "replace"
    by: str | Callable[[str], str] = ""
    check: Callable[[str], bool] | None = None
    fields: Callable[[str], Mapping[str, Any]] | None = None
    restores: bool = False
    """True if `by` restores the values of a `Vault`. The rule then also applies to reasoning, and `by` returns an
    unknown placeholder unchanged."""
    holds: int = field(init=False)
    """How many characters may be pending at most. Only text that may become a match is pending."""
    searched: Searched = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        trees = [literal(pattern) if isinstance(pattern, str) else read(pattern) for pattern in self.what]
        if not trees:
            raise ValueError(f"the rule {self.name!r} has no pattern")
        for text in self.what:
            if isinstance(text, str) and _LOOKS_LIKE_PATTERN.search(text):
                fixed = re.sub(r"(?<!\\)[+*]", lambda found: "{1,64}" if found[0] == "+" else "{0,64}", text)
                raise ValueError(f"the rule {self.name!r} has a str, which is literal text: use re.compile({fixed!r})")
        tree = choose(trees)
        extent = measure(tree)
        if not extent.least:
            raise ValueError(f"the rule {self.name!r} matches the empty text")
        written = sum(len(pattern if isinstance(pattern, str) else pattern.pattern) for pattern in self.what)
        if extent.most > MAX_SIZE or extent.states > MAX_SIZE + 2 * written:
            raise ValueError(
                f"the rule {self.name!r} needs {extent.states} states for matches of up to {extent.most} characters, "
                "which is too many: lower the bounds of its repetitions, or divide it into several rules"
            )
        what, holds = tuple(self.what), extent.most - (not extent.looks_ahead)
        self.__dict__.update(what=what, searched=Searched(what, self.check, tree), holds=holds)

    @property
    def redacts(self) -> bool:
        """Whether a match is also removed from errors and other events that quote it. False for the action `mark`."""
        return self.action != "mark"

    def text_for(self, match: str) -> str:
        """Return the text that replaces a match."""
        if self.action != "replace":
            return ""
        return self.by if isinstance(self.by, str) else self.by(match)


def check_rules(given: object) -> None:
    """Raise ValueError if `given` is not a sequence of rules."""
    wrong = [rule for rule in given if not isinstance(rule, Rule)] if isinstance(given, Sequence) else [given]
    if wrong:
        got = repr(wrong[0]) if isinstance(wrong[0], str) else described(wrong[0])
        raise ValueError(f"the rules must be a list of rules, such as [rules.email()], got {got}")


def _rule(name: str | None, default_name: str, what: What, action: Action, **more: Any) -> Rule:
    patterns = (what,) if isinstance(what, str | re.Pattern) else tuple(what)
    return Rule(name=name or default_name, what=patterns, action=action, **more)


def kind(name: str, what: What) -> Rule:
    """Return a rule for a `Vault`: placeholders of the kind `name` replace each match. Elsewhere, `[name]` does.

    The name consists of letters and `_`.
    """
    return _rule(name, name, what, "replace", by=f"[{name}]")


def replace(what: What, by: str | Callable[[str], str], *, name: str | None = None) -> Rule:
    """Return a rule that replaces each match by `by`: a text, or a function that receives the match."""
    return _rule(name, "replace", what, "replace", by=by)


def remove(what: What, *, name: str | None = None) -> Rule:
    """Return a rule that removes each match."""
    return _rule(name, "remove", what, "remove")


def mark(what: What, fields: Callable[[str], Mapping[str, Any]] | None = None, *, name: str | None = None) -> Rule:
    """Return a rule that removes each match. The event that reports the match holds the result of `fields(match)`."""
    return _rule(name, "mark", what, "mark", fields=fields)


def stop(what: What, *, name: str | None = None) -> Rule:
    """Return a rule that ends the turn before a match, as a provider's stop sequence does."""
    return _rule(name, "stop", what, "stop")


def fail(what: What, *, name: str | None = None) -> Rule:
    """Return a rule that ends the run before a match, with the error `guard_failed`."""
    return _rule(name, "fail", what, "fail")

"""A rule: what is looked for in the text that a reader sees, and what becomes of it.

What is looked for is read into a tree: regular expressions of a subset that an automaton can match in one pass.
Literals, classes (`[a-z]`, `\\d`, `.`), alternatives, groups, repetition with an upper bound, `\\b` and `\\B`, and a
look ahead or behind of one character. What has no bound, and what an automaton cannot do (references to groups, looks
of more than a character), is refused with the reason, when the rule is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias, get_args


class One(NamedTuple):
    """One character; `source` is the regular expression of its class."""

    source: str
    flags: int


class Row(NamedTuple):
    """One part behind the other."""

    parts: list[Tree]


class Choice(NamedTuple):
    """One of the parts."""

    parts: list[Tree]


class Repeat(NamedTuple):
    """A part, at least and at most so many times."""

    part: Tree
    least: int
    most: int


class Look(NamedTuple):
    """What stands before or behind this place; at an end of the text stands nothing, which is in no class."""

    one: One
    ahead: bool
    wanted: bool


class Edge(NamedTuple):
    """The edge of a word, or, not `wanted`, none."""

    wanted: bool


Tree: TypeAlias = One | Row | Choice | Repeat | Look | Edge

_COUNT = re.compile(r"\{(\d{1,5})(,)?(\d{1,5})?\}")
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.){0,4000}+\]", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[dDwWsStrnfva]|[^A-Za-z0-9])", re.DOTALL)
_LOOK = re.compile(r"\(\?(<?)([=!])")
_GROUP = re.compile(r"\((?:\?:|\?P<\w{1,64}>)?(?!\?)")
_FLAGS = re.IGNORECASE | re.UNICODE


def literal(text: str) -> Tree:
    """Return the tree of a text that stands for itself."""
    return Row([One(re.escape(character), 0) for character in text])


def read(pattern: re.Pattern[str]) -> Tree:
    """Return the tree of a regular expression. Raises ValueError for one that is not of the subset."""
    if not isinstance(pattern.pattern, str):
        raise ValueError(f"a rule reads text, and {pattern.pattern!r} is a pattern of bytes")
    if pattern.flags & ~_FLAGS:
        raise ValueError(f"{pattern.pattern!r} has flags; a rule knows re.IGNORECASE and no other")
    reader = _Reader(pattern.pattern, pattern.flags & re.IGNORECASE)
    tree = reader.choice()
    if reader.at < len(reader.text):
        reader.refuse("a `)` closes nothing")
    return tree


class _Reader:
    def __init__(self, text: str, flags: int) -> None:
        self.text = text
        self.at = 0
        self._flags = flags

    def refuse(self, why: str) -> NoReturn:
        raise ValueError(f"{self.text!r} is no pattern of a rule, at character {self.at}: {why}")

    def choice(self) -> Tree:
        parts = [self._row()]
        while self.text.startswith("|", self.at):
            self.at += 1
            parts.append(self._row())
        return parts[0] if len(parts) == 1 else Choice(parts)

    def _row(self) -> Tree:
        parts = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            parts.append(self._repeated(self._part()))
        return parts[0] if len(parts) == 1 else Row(parts)

    def _repeated(self, part: Tree) -> Tree:
        found = _COUNT.match(self.text, self.at)
        if self.text.startswith("?", self.at):
            least, most, self.at = 0, 1, self.at + 1
        elif found and (found[3] or not found[2]):
            least, most, self.at = int(found[1]), int(found[3] or found[1]), found.end()
        elif found or self.text.startswith(("*", "+"), self.at):
            self.refuse("a repetition has an upper bound, such as {1,64}, so that what is held back has one")
        else:
            return part
        if most < least or most == 0:
            self.refuse("a repetition counts from less to more")
        if self.text.startswith(("?", "+", "*", "{"), self.at):
            self.refuse("a repetition is repeated in a group, and never lazy or possessive: the longest match counts")
        if isinstance(part, Look | Edge):
            self.refuse("what has no length is not repeated")
        return Repeat(part, least, most)

    def _part(self) -> Tree:
        text, at = self.text, self.at
        if look := _LOOK.match(text, at):
            self.at = look.end()
            one = self._part()
            if not isinstance(one, One) or not text.startswith(")", self.at):
                self.refuse("a look ahead or behind is one character or class")
            self.at += 1
            return Look(one, not look[1], look[2] == "=")
        if group := _GROUP.match(text, at):
            self.at = group.end()
            tree = self.choice()
            if not text.startswith(")", self.at):
                self.refuse("a `(` is not closed")
            self.at += 1
            return tree
        if text[at] in "(*+?^$":
            self.refuse(f"`{text[at]}` is not known here; a literal one is `\\{text[at]}`")
        if text.startswith(("\\b", "\\B"), at):
            self.at += 2
            return Edge(text[at + 1] == "b")
        found = {"[": _CLASS, "\\": _ESCAPED}.get(text[at])
        if found is None:
            self.at += 1
            return One("." if text[at] == "." else re.escape(text[at]), self._flags)
        whole = found.match(text, at)
        if whole is None:
            self.refuse("this escape or class is not known; references to groups are not")
        self.at = whole.end()
        return One(whole[0], self._flags)


class Extent(NamedTuple):
    """How large a tree is."""

    least: int
    most: int
    """Characters that it matches."""
    states: int
    """Those that an automaton has for it, about."""
    looks_ahead: bool
    """Whether it looks at the character behind it, with which a match is certain."""


def measure(tree: Tree) -> Extent:
    """Return how large a tree is."""
    match tree:
        case One():
            return Extent(1, 1, 1, False)
        case Repeat(part, least, most):
            one = measure(part)
            return Extent(one.least * least, one.most * most, most * (1 + one.states), one.looks_ahead)
        case Row(parts) | Choice(parts):
            each = [measure(part) for part in parts]
            shortest, longest = (sum, sum) if isinstance(tree, Row) else (min, max)
            size = shortest(one.least for one in each), longest(one.most for one in each)
            states, ahead = len(each) + sum(one.states for one in each), any(one.looks_ahead for one in each)
            return Extent(*size, states, ahead)
    return Extent(0, 0, 1, isinstance(tree, Edge) or tree.ahead)


Action: TypeAlias = Literal["replace", "remove", "mark", "stop", "fail"]
"""What becomes of a match: another text is shown in its place; nothing is; nothing is, and the `matched` event has what
is known of it; the turn ends before it, and its complete calls run; the run ends before it, as failed."""

What: TypeAlias = "str | re.Pattern[str] | Iterable[str | re.Pattern[str]]"
"""What a rule looks for: texts, which stand for themselves, and compiled patterns of the subset; one or several."""

LONGEST = 8192
"""Characters of the longest match of a rule, and states of its automaton."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule, most easily made by a function of `streamtools.rules`.

    `what` is looked for; where that is not enough to tell a match, `check` gets it and says. `by` is what is shown in
    place of a match, a text or a function of the match, and `fields` makes what the event of a match tells of it. The
    longest match that begins first counts, and of equal ones that of the first rule.

    Raises ValueError for a pattern that is not of the subset, that matches the empty text, or that is too large.
    """

    name: str
    """What the events call it."""
    what: Sequence[str | re.Pattern[str]]
    action: Action = "replace"
    by: str | Callable[[str], str] = ""
    check: Callable[[str], bool] | None = None
    fields: Callable[[str], Mapping[str, Any]] | None = None
    holds: int = field(init=False)
    """Characters that it holds back at most: of a text that is the beginning of a match, and no other."""
    tree: Tree = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise ValueError(f"action is one of {', '.join(map(repr, get_args(Action)))}, not {self.action!r}")
        trees = [literal(each) if isinstance(each, str) else read(each) for each in self.what]
        if not trees:
            raise ValueError(f"the rule {self.name!r} looks for nothing")
        tree = trees[0] if len(trees) == 1 else Choice(trees)
        extent = measure(tree)
        if not extent.least:
            raise ValueError(f"the rule {self.name!r} matches the empty text")
        if max(extent.most, extent.states) > LONGEST:
            raise ValueError(
                f"the rule {self.name!r} needs {extent.states} states for matches of up to {extent.most} characters, "
                f"and may have {LONGEST}: bound its repetitions lower, or make several rules of it"
            )
        self.__dict__.update(what=tuple(self.what), tree=tree, holds=extent.most - (not extent.looks_ahead))

    @property
    def redacts(self) -> bool:
        """Whether nobody is to see a match; one that is only marked is a secret to nobody."""
        return self.action != "mark"

    def text_for(self, match: str) -> str:
        """Return what is shown in place of a match."""
        if self.action != "replace":
            return ""
        return self.by if isinstance(self.by, str) else self.by(match)


def _rule(name: str | None, usual: str, what: What, action: Action, **more: Any) -> Rule:
    each = (what,) if isinstance(what, str | re.Pattern) else tuple(what)
    return Rule(name=name or usual, what=each, action=action, **more)


def replace(what: What, by: str | Callable[[str], str], *, name: str | None = None) -> Rule:
    """Return a rule that shows `by` in place of what it finds: a text, or what a function makes of the match."""
    return _rule(name, "replace", what, "replace", by=by)


def remove(what: What, *, name: str | None = None) -> Rule:
    """Return a rule that shows nothing in place of what it finds."""
    return _rule(name, "remove", what, "remove")


def mark(what: What, fields: Callable[[str], Mapping[str, Any]] | None = None, *, name: str | None = None) -> Rule:
    """Return a rule that takes what it finds out of the text, and tells of it by an event with `fields(match)`."""
    return _rule(name, "mark", what, "mark", fields=fields)


def stop(what: What, *, name: str | None = None) -> Rule:
    """Return a rule that ends the turn before what it finds, as a provider's stop sequence does."""
    return _rule(name, "stop", what, "stop")


def fail(what: What, *, name: str | None = None) -> Rule:
    """Return a rule that ends the run before what it finds, with the error `guard_failed`."""
    return _rule(name, "fail", what, "fail")

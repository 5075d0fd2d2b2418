"""A rule: what is looked for in the text that a reader sees, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from streamtools.rules.pattern import Choice, Tree, lengths, literal, read, size, waits

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
        tree = trees[0] if len(trees) == 1 else Choice(trees)
        least, most = lengths(tree)
        if not least:
            raise ValueError(f"the rule {self.name!r} matches the empty text")
        if most > LONGEST or size(tree) > LONGEST:
            raise ValueError(
                f"the rule {self.name!r} needs {size(tree)} states for matches of up to {most} characters, and may "
                f"have {LONGEST}: bound its repetitions lower, or make several rules of it"
            )
        object.__setattr__(self, "what", tuple(self.what))
        object.__setattr__(self, "tree", tree)
        object.__setattr__(self, "holds", most - (not waits(tree)))

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

"""All rules as one automaton, which reads each character once: the longest match of those that begin first.

A match may begin at every character, so several candidates are read side by side, in the order in which they begin, and
each is a set of states. A state that an earlier candidate is in counts for no later one: if it leads to a match, the
earlier candidate takes the text, and if it does not, the later one has nothing of it either. So all candidates together
are at most as many as there are states, and what they become with the next character depends on nothing but them and
the character before: that is one step of an automaton whose states are made when they are met (and forgotten when they
are too many). A candidate that has matched and may still match more is not decided; later ones go on behind its match,
for the case that it stands. So nothing is read again, whatever the rules and the text.

What a `check` says depends on the text of a candidate too. Steps in which one is asked are kept by what they said, and
states of rules with a check count for every candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, final

from streamtools.rules.rule import Choice, Edge, Look, One, Repeat, Row, Rule, Tree

_STEPS: Final = 20_000
"""Steps that are kept, with characters, and as many with pieces of text. One is some hundred bytes."""
BEGINNING: Final = 3
"""Characters of the beginning of a match that are looked for at once; the first two of them stand in many words."""
_WORD: Final = One(r"\w", 0)

Group: TypeAlias = tuple[int, ...]
"""The states of a candidate."""
Key: TypeAlias = tuple[int, tuple[Group, ...]]
"""What stands before, as the classes that it is in, and the candidates."""
Asked: TypeAlias = tuple[bool, int, int]
"""A match that is to be checked: whether it ends behind the character, its candidate, and its rule."""


class Step(NamedTuple):
    """What becomes of the candidates with a character, and the state behind it."""

    asked: tuple[Asked, ...]
    """The matches on which it depends; with any, the rest is empty."""
    before: tuple[int, int] | None
    """The candidate that has matched without the character, and its rule."""
    sources: tuple[int, ...]
    """The candidates that go on; -1 is one that begins with the character."""
    behind: tuple[int, int] | None
    """The one of those that has matched with the character, and its rule."""
    ends: bool
    """Whether the last of them can match no more."""
    matches: bool
    """Whether something has matched, or may have."""
    state: State


@final
class State(dict[str, "State | Step"]):
    """A state, with the steps that are known, by character: the next state alone where the candidates stay the same."""

    __slots__ = ("_automaton", "_outcomes", "key", "pieces")

    def __init__(self, automaton: Automaton, key: Key) -> None:
        self._automaton = automaton
        self._outcomes: dict[tuple[int, frozenset[Asked]], Step] = {}
        self.key = key
        self.pieces: dict[str, tuple[State, Sequence[int], str | None, str]] = {}
        """What comes of a whole piece of text in which nothing matches: the next state, where the candidates begin in
        it, the text before them, and theirs; or the candidates as in `learn`, and None, if earlier ones go on. Texts of
        models are made of few different pieces."""

    def __missing__(self, character: str) -> State | Step:
        automaton = self._automaton
        step = automaton.step(self.key, automaton.classes(character), None)
        same = not step.matches and step.sources == tuple(range(len(self.key[1])))
        found = self[character] = step.state if same else step
        automaton.count()
        return found

    def decide(self, character: str, passed: frozenset[Asked]) -> Step:
        """Return the step that depends on checks, of which these have passed."""
        automaton = self._automaton
        classes = automaton.classes(character)
        found = self._outcomes.get((classes, passed))
        if found is None:
            found = self._outcomes[classes, passed] = automaton.step(self.key, classes, passed)
            automaton.count()
        return found

    def learn(self, piece: str, state: State, sources: Sequence[int]) -> None:
        """Take note of what comes of a piece of text: the candidates that go on, and, as `~n`, that begin at `n`."""
        if not sources:
            self.pieces[piece] = state, (), piece, ""
        elif sources[0] < 0:  # and so are the others, which begin later
            at = ~sources[0]
            self.pieces[piece] = state, [~each for each in sources], piece[:at], piece[at:]
        else:
            self.pieces[piece] = state, sources, None, ""
        self._automaton.count_piece()

    def forget(self) -> None:
        self.clear()
        self.pieces.clear()
        self._outcomes.clear()


class Automaton:
    """The automaton of some rules, in their order. It belongs to nobody: texts that are read keep their own place."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._checked = frozenset(at for at, rule in enumerate(rules) if rule.check is not None)
        self._ones: dict[One, int] = {}
        self._tests: list[re.Pattern[str]] = []
        self._word = self._bit(_WORD)
        self._looked = 0  # the classes in which it matters whether a character is when it has been read
        self._classes: dict[str, int] = {}
        # The states: what one character leads on (its class, the next state, its rule), what is passed without one, and
        # the rule that ends there.
        self._reads: dict[int, tuple[int, int, int]] = {}
        self._passes: dict[int, list[tuple[Look | Edge | None, int, int]]] = {}
        self._ends: dict[int, int] = {}
        self._count = 0
        starts = []
        for at, rule in enumerate(self.rules):
            end = self._new()
            self._ends[end] = at
            starts.append(self._build(rule.tree, end, at))
        self._starts: Group = tuple(starts)
        self._states: dict[Key, State] = {}
        self.begins = _beginnings_of(rules)
        """Finds the first place of a text behind no candidate at which a match may begin, also if the text ends within
        its first `BEGINNING` characters; None if the rules are not all of texts that stand for themselves."""
        self.idle = self.begin("")
        """The state of such rules in which nothing is a candidate."""
        self._steps = self._pieces = 0

    # What the states are made of.

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _bit(self, one: One) -> int:
        if one not in self._ones:
            self._ones[one] = 1 << len(self._ones)
            self._tests.append(re.compile(one.source, one.flags))
        return self._ones[one]

    def _build(self, tree: Tree, behind: int, rule: int) -> int:
        """Add the states of a tree, behind which another state stands; return the first."""
        match tree:
            case One():
                state = self._new()
                self._reads[state] = self._bit(tree), behind, rule
                return state
            case Row(parts):
                for part in reversed(parts):
                    behind = self._build(part, behind, rule)
                return behind
            case Choice(parts):
                return self._pass(*((None, 0, self._build(part, behind, rule)) for part in parts))
            case Repeat(part, least, most):
                state = behind
                for count in range(most, 0, -1):
                    state = self._build(part, state, rule)
                    if count > least:
                        state = self._pass((None, 0, state), (None, 0, behind))
                return state
            case Look(one, ahead):
                bit = self._bit(one)
                self._looked |= 0 if ahead else bit
                return self._pass((tree, bit, behind))
        self._looked |= self._word
        return self._pass((tree, self._word, behind))

    def _pass(self, *ways: tuple[Look | Edge | None, int, int]) -> int:
        state = self._new()
        self._passes[state] = list(ways)
        return state

    # A step.

    def classes(self, character: str) -> int:
        """Return the classes that a character is in, as bits; none at an end of the text, which is ""."""
        found = self._classes.get(character)
        if found is None:
            found = 0
            if character:
                found = sum(1 << at for at, test in enumerate(self._tests) if test.match(character))
            if len(self._classes) >= _STEPS:
                self._classes.clear()
            self._classes[character] = found
        return found

    def state(self, key: Key) -> State:
        return self._states.get(key) or self._states.setdefault(key, State(self, key))

    def begin(self, before: str) -> State:
        """Return the state in which nothing is a candidate, behind a character."""
        return self.state((self.classes(before) & self._looked, ()))

    def count(self) -> None:
        """Forget all steps if they have become too many."""
        self._steps += 1
        if self._steps > _STEPS:
            self._steps = 0
            for state in list(self._states.values()):  # threads share it
                state.forget()
            self._states = {}

    def count_piece(self) -> None:
        """Forget all pieces if they have become too many."""
        self._pieces += 1
        if self._pieces > _STEPS:
            self._pieces = 0
            for state in list(self._states.values()):  # threads share it
                state.pieces.clear()

    def step(self, key: Key, now: int, passed: frozenset[Asked] | None) -> Step:
        """Return what a character of these classes makes of a key. Of checks, those that have `passed` are known."""
        before, groups = key
        last = len(groups)
        asked: list[Asked] = []

        def best(ends: set[int], behind: bool, at: int) -> int | None:
            """Return the first rule that has matched."""
            for rule in sorted(ends):
                if rule not in self._checked or (passed is not None and (behind, at, rule) in passed):
                    return rule
                if passed is None:
                    asked.append((behind, at, rule))
            return None

        seen: set[int] = set()
        matched: tuple[int, int] | None = None
        grown: tuple[int, int] | None = None
        sources: list[int] = []
        new: list[Group] = []
        at = 0
        while at <= last:
            reads, ends, _ = self._follow(groups[at] if at < last else self._starts, before, now)
            rule = best(ends, False, at) if ends else None
            if rule is not None:
                matched = at, rule
            following: set[int] = set()
            for one, state, owner in reads:
                if one & now and state not in seen:
                    following.add(state)
                    if owner not in self._checked:
                        seen.add(state)
            if following:
                _, ends, goes_on = self._follow(following, now, None)
                rule = best(ends, True, at) if ends else None
                if goes_on or rule is not None:
                    sources.append(at if at < last else -1)
                    new.append(tuple(sorted(following)) if goes_on else ())
                if rule is not None:
                    grown = len(sources) - 1, rule
                    break
            at = max(at + 1, last) if matched is not None else at + 1
        if asked:
            return Step(tuple(asked), None, (), None, False, True, self.state(key))
        ended = bool(new) and not new[-1]
        if ended:
            new.pop()
        matches = matched is not None or grown is not None
        behind = self.state((now & self._looked, tuple(new)))
        return Step((), matched, tuple(sources), grown, ended, matches, behind)

    def _follow(
        self, group: Sequence[int] | set[int], before: int, now: int | None
    ) -> tuple[list[tuple[int, int, int]], set[int], bool]:
        """Return what a candidate reads next, which rules end here, and whether it goes on; at a place between two
        characters of these classes, or, with None, before one that has not come.
        """
        reads: list[tuple[int, int, int]] = []
        ends: set[int] = set()
        goes_on = False
        seen = set(group)
        todo = list(seen)
        while todo:
            state = todo.pop()
            if state in self._reads:
                reads.append(self._reads[state])
                goes_on = True
            elif state in self._ends:
                ends.add(self._ends[state])
            else:
                for look, bit, behind in self._passes[state]:
                    holds = look is None or self._holds(look, bit, before, now)
                    goes_on |= holds is None
                    if holds and behind not in seen:
                        seen.add(behind)
                        todo.append(behind)
        return reads, ends, goes_on

    def _holds(self, look: Look | Edge, bit: int, before: int, now: int | None) -> bool | None:
        """Return whether an assertion holds; None if that is not known yet."""
        if isinstance(look, Look) and not look.ahead:
            return bool(before & bit) is look.wanted
        if now is None:
            return None
        if isinstance(look, Look):
            return bool(now & bit) is look.wanted
        return (bool(before & bit) is not bool(now & bit)) is look.wanted


def _beginnings_of(rules: Sequence[Rule]) -> Callable[..., re.Match[str] | None] | None:
    tree: dict[str, Any] = {}
    for rule in rules:
        for what in rule.what:
            if not isinstance(what, str):
                return None
            place = tree
            for character in what[:BEGINNING]:
                place = place.setdefault(character, {})
            place[""] = {}  # all of it, or enough
    return re.compile(_pattern(tree)).search if tree else None


def _pattern(tree: Mapping[str, Any]) -> str:
    """Return the pattern of texts as a tree of their characters, which the end may cut behind the first one."""
    if "" in tree:
        return ""
    ways = ((re.escape(each), _pattern(more)) for each, more in tree.items())
    return "|".join(f"{each}(?:{more}|\\Z)" if more else each for each, more in ways)


@lru_cache(maxsize=64)
def _made(rules: tuple[Rule, ...]) -> Automaton:
    return Automaton(rules)


def automaton_of(rules: Sequence[Rule]) -> Automaton:
    """Return the automaton of rules, which is made once for the same ones."""
    try:
        return _made(tuple(rules))
    except TypeError:  # a function of theirs has no hash
        return Automaton(rules)

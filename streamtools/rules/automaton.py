"""All rules as one automaton, which reads each character once. It finds the longest match of those that begin first.

A match may begin at every character. So there are several candidates, in the order in which they begin, and each is a
set of states. A state of an earlier candidate does not count for a later one. If the state leads to a match, the
earlier candidate takes the text. If not, the later one cannot match by it either. So the candidates together are at
most as many as the states. The next character and the character before decide what becomes of them: this is one
transition of an automaton, which is made when it is first needed. A candidate that has matched and may still grow is
undecided. Later candidates continue after its match. So no text is read twice.

The result of a rule's `check` depends on the text of a candidate. Transitions with checks are stored by the results,
and states of rules with a check count for every candidate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, final

from streamtools.rules.rule import Character, Choice, InOrder, Lookaround, Repeat, Rule, Tree, WordBoundary

_STEPS: Final = 20_000
"""The limit of stored transitions of characters, and of pieces of text. One takes some hundred bytes."""
BEGINNING: Final = 3
"""Characters of a match that the search for its beginning uses; the first two stand in many words."""
_WORD: Final = Character(r"\w", 0)

Group: TypeAlias = tuple[int, ...]
"""The states of a candidate."""
Key: TypeAlias = tuple[int, tuple[Group, ...]]
"""The classes of the character before, and the candidates."""
Check: TypeAlias = tuple[bool, int, int]
"""A match to check: whether it ends after the current character, its candidate, and its rule."""


class Transition(NamedTuple):
    """The candidates after a character, and the next state."""

    checks: tuple[Check, ...]
    """The checks that decide it. If there are any, the other fields are empty."""
    before: tuple[int, int] | None
    """The candidate that matched before the character, and its rule."""
    sources: tuple[int, ...]
    """The candidates that continue; -1 is one that begins with the character."""
    after: tuple[int, int] | None
    """The one of `sources` that matched with the character, and its rule."""
    ends: bool
    """Whether the last of them cannot grow."""
    matches: bool
    """Whether there is a match, or a check for one."""
    state: AutomatonState


@final
class AutomatonState(dict[str, "AutomatonState | Transition"]):
    """A state, and its transitions by character. If the candidates stay the same, only the next state is stored."""

    __slots__ = ("_automaton", "_outcomes", "key", "pieces")

    def __init__(self, automaton: Automaton, key: Key) -> None:
        self._automaton = automaton
        self._outcomes: dict[tuple[int, frozenset[Check]], Transition] = {}
        self.key = key
        self.pieces: dict[str, tuple[AutomatonState, Sequence[int], str | None, str]] = {}
        """The transitions of pieces of text without a match, because models write few different tokens.

        Each has the next state, the places where candidates begin in the piece, the text before them, and their text.
        If earlier candidates continue, it has the sources as in `learn`, and None."""

    def __missing__(self, character: str) -> AutomatonState | Transition:
        automaton = self._automaton
        step = automaton.step(self.key, automaton.classes(character), None)
        same = not step.matches and step.sources == tuple(range(len(self.key[1])))
        found = self[character] = step.state if same else step
        automaton.count()
        return found

    def decide(self, character: str, passed: frozenset[Check]) -> Transition:
        """Return the transition for the checks that have `passed`."""
        automaton = self._automaton
        classes = automaton.classes(character)
        found = self._outcomes.get((classes, passed))
        if found is None:
            found = self._outcomes[classes, passed] = automaton.step(self.key, classes, passed)
            automaton.count()
        return found

    def learn(self, piece: str, state: AutomatonState, sources: Sequence[int]) -> None:
        """Store the transition of a piece. `sources` are earlier candidates, or `~n` for one that begins at `n`."""
        if not sources:
            self.pieces[piece] = state, (), piece, ""
        elif sources[0] < 0:  # the others begin later, so they are negative too
            at = ~sources[0]
            self.pieces[piece] = state, [~source for source in sources], piece[:at], piece[at:]
        else:
            self.pieces[piece] = state, sources, None, ""
        self._automaton.count()

    def clear_all(self) -> None:
        self.clear()
        self.pieces.clear()
        self._outcomes.clear()


class Automaton:
    """The automaton of several rules, in order. Matchers share it, and each keeps its own position."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)
        self._checked = frozenset(at for at, rule in enumerate(rules) if rule.check is not None)
        self._ones: dict[Character, int] = {}
        self._tests: list[re.Pattern[str]] = []
        self._word = self._bit(_WORD)
        self._before_classes = 0  # the classes that matter for the character before
        self._classes: dict[str, int] = {}
        # The states: reads of one character (its class, the next state, its rule), transitions without a character, and
        # the rule of which a match ends there.
        self._reads: dict[int, tuple[int, int, int]] = {}
        self._passes: dict[int, list[tuple[Lookaround | WordBoundary | None, int, int]]] = {}
        self._ends: dict[int, int] = {}
        self._count = 0
        starts = []
        for at, rule in enumerate(self.rules):
            end = self._new()
            self._ends[end] = at
            starts.append(self._build(rule.tree, end, at))
        self._starts: Group = tuple(starts)
        self._states: dict[Key, AutomatonState] = {}
        self.begins = _beginnings_of(rules)
        """Finds the first place where a match may begin, if there is no candidate. The text may end within the first
        `BEGINNING` characters of the match. None if a rule has a pattern that is not a literal text."""
        self.idle = self.begin("")
        """The state without candidates of such rules."""
        self._steps = 0

    # Construction.

    def _new(self) -> int:
        self._count += 1
        return self._count

    def _bit(self, one: Character) -> int:
        if one not in self._ones:
            self._ones[one] = 1 << len(self._ones)
            self._tests.append(re.compile(one.source, one.flags))
        return self._ones[one]

    def _build(self, tree: Tree, after: int, rule: int) -> int:
        """Add the states of a tree that leads to the state `after`. Returns its first state."""
        match tree:
            case Character():
                state = self._new()
                self._reads[state] = self._bit(tree), after, rule
                return state
            case InOrder(parts):
                for part in reversed(parts):
                    after = self._build(part, after, rule)
                return after
            case Choice(parts):
                return self._pass(*((None, 0, self._build(part, after, rule)) for part in parts))
            case Repeat(part, least, most):
                state = after
                for count in range(most, 0, -1):
                    state = self._build(part, state, rule)
                    if count > least:
                        state = self._pass((None, 0, state), (None, 0, after))
                return state
            case Lookaround(one, ahead):
                bit = self._bit(one)
                self._before_classes |= 0 if ahead else bit
                return self._pass((tree, bit, after))
        self._before_classes |= self._word
        return self._pass((tree, self._word, after))

    def _pass(self, *ways: tuple[Lookaround | WordBoundary | None, int, int]) -> int:
        state = self._new()
        self._passes[state] = list(ways)
        return state

    # Transitions.

    def classes(self, character: str) -> int:
        """Return the classes of a character as bits. The end of the text, "", is in none."""
        found = self._classes.get(character)
        if found is None:
            found = 0
            if character:
                found = sum(1 << at for at, test in enumerate(self._tests) if test.match(character))
            if len(self._classes) >= _STEPS:
                self._classes.clear()
            self._classes[character] = found
        return found

    def state(self, key: Key) -> AutomatonState:
        return self._states.get(key) or self._states.setdefault(key, AutomatonState(self, key))

    def begin(self, before: str) -> AutomatonState:
        """Return the state without candidates, after the character `before`."""
        return self.state((self.classes(before) & self._before_classes, ()))

    def count(self) -> None:
        """Count a stored transition of a character or a piece, and drop all of them at the limit."""
        self._steps += 1
        if self._steps > _STEPS:
            self._steps = 0
            for state in list(self._states.values()):  # other threads may change it
                state.clear_all()
            self._states = {}

    def step(self, key: Key, now: int, passed: frozenset[Check] | None) -> Transition:
        """Return the transition of a key with a character of the classes `now`. `passed` are the checks that passed."""
        before, groups = key
        last = len(groups)
        checks: list[Check] = []

        def best(ends: set[int], after: bool, at: int) -> int | None:
            """Return the first rule that matched."""
            for rule in sorted(ends):
                if rule not in self._checked or (passed is not None and (after, at, rule) in passed):
                    return rule
                if passed is None:
                    checks.append((after, at, rule))
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
                _, ends, continues = self._follow(following, now, None)
                rule = best(ends, True, at) if ends else None
                if continues or rule is not None:
                    sources.append(at if at < last else -1)
                    new.append(tuple(sorted(following)) if continues else ())
                if rule is not None:
                    grown = len(sources) - 1, rule
                    break
            at = max(at + 1, last) if matched is not None else at + 1
        if checks:
            return Transition(tuple(checks), None, (), None, False, True, self.state(key))
        ended = bool(new) and not new[-1]
        if ended:
            new.pop()
        matches = matched is not None or grown is not None
        after = self.state((now & self._before_classes, tuple(new)))
        return Transition((), matched, tuple(sources), grown, ended, matches, after)

    def _follow(
        self, group: Sequence[int] | set[int], before: int, now: int | None
    ) -> tuple[list[tuple[int, int, int]], set[int], bool]:
        """Return the reads of a candidate, the rules that end here, and whether it continues.

        `before` and `now` are the classes of the characters around the place. `now` is None if it has not arrived.
        """
        reads: list[tuple[int, int, int]] = []
        ends: set[int] = set()
        continues = False
        seen = set(group)
        todo = list(seen)
        while todo:
            state = todo.pop()
            if state in self._reads:
                reads.append(self._reads[state])
                continues = True
            elif state in self._ends:
                ends.add(self._ends[state])
            else:
                for assertion, bit, after in self._passes[state]:
                    is_true = assertion is None or self._is_true(assertion, bit, before, now)
                    continues |= is_true is None
                    if is_true and after not in seen:
                        seen.add(after)
                        todo.append(after)
        return reads, ends, continues

    def _is_true(self, look: Lookaround | WordBoundary, bit: int, before: int, now: int | None) -> bool | None:
        """Return whether an assertion is_true; None if the next character decides."""
        if isinstance(look, Lookaround) and not look.ahead:
            return bool(before & bit) is look.wanted
        if now is None:
            return None
        if isinstance(look, Lookaround):
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
            place[""] = {}  # the whole text, or enough of it
    return re.compile(_pattern(tree)).search if tree else None


def _pattern(tree: Mapping[str, Any]) -> str:
    """Return the pattern of a tree of characters. The end of the text may cut it after the first one."""
    if "" in tree:
        return ""
    ways = ((re.escape(character), _pattern(more)) for character, more in tree.items())
    return "|".join(f"{first}(?:{more}|\\Z)" if more else first for first, more in ways)


@lru_cache(maxsize=64)
def _made(rules: tuple[Rule, ...]) -> Automaton:
    return Automaton(rules)


def automaton_of(rules: Sequence[Rule]) -> Automaton:
    """Return the automaton of rules. Equal rules share one."""
    try:
        return _made(tuple(rules))
    except TypeError:  # a function of a rule is not hashable
        return Automaton(rules)

"""Compiles all rules to one automaton, which reads each character of the text once.

The automaton chooses the match that begins first. Of several matches that begin at the same character, it chooses the
longest. With rules for `cat` and `cats`, the text `a cats.` is read like this:

    a, space    no match has begun
    c, a        one candidate, which may become `cat` or `cats`
    t           the candidate matches `cat`, but may still become longer
    s           the candidate matches `cats` and cannot become longer, so this match is certain

The automaton has states of two levels. A rule is compiled to rule states, as in a nondeterministic automaton. The rule
`cat` has one state before each of its characters, and one at its end. A candidate is a possible match that begins at
one position. It is the set of rule states that the text from this position has reached. A match may begin at every
character. So there may be several candidates, in the order of their positions.

The states of a list of words are not stored, because 50,000 words would take much memory. Instead, `_WordList` sorts
the words, and finds each prefix by binary search. A prefix of a word is a state. As in the algorithm of Aho and
Corasick, words with the same prefix share the state.

If several candidates reach the same rule state, only the first candidate keeps it. If this state leads to a match, the
match of the first candidate is chosen, because it begins first. If it leads to no match, no candidate needs it. So
rules without a check never have more candidates than rule states.

An `AutomatonState` stands for all current candidates and for the class of the last character. The next character leads
to the next `AutomatonState`. This transition is computed when it is first needed (`Automaton.step`), and then stored.
So reading a character is usually one lookup in a dict. The state does not know positions: a `Matcher` stores where each
candidate begins.

A candidate that has matched may still become longer. Until this is decided, candidates that begin after its match are
also followed. So no text is read twice.

A rule may have a `check`, which is a function of the text of a match. Its result is not known to the automaton. So a
transition with checks is stored for each set of results. For a rule with a check, each candidate keeps all of its
states, because the check may reject the match of the first candidate.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias, final

from streamtools.rules.rule import Character, Choice, InOrder, Lookaround, Repeat, Searched, Tree, WordBoundary, Words

_MAX_TRANSITIONS: Final = 20_000
"""This number plus the number of words is the limit of stored transitions. A transition is for a character or a piece
of text, and takes some hundred bytes. This number also limits the cached results of `Automaton.classes`."""
_BEGINNING: Final = 3
"""How many of the first characters of a literal are searched for. Two characters would occur in many words."""
_MAX_SEARCHED: Final = 1000
"""With more patterns, no beginnings are searched for, because they would occur in most words of a text."""
_WORD: Final = Character(r"\w", 0)

Group: TypeAlias = tuple[int, ...]
"""The rule states of a candidate, in order."""
Key: TypeAlias = tuple[int, tuple[Group, ...]]
"""The identity of an `AutomatonState`: the classes of the last character as bits, and the candidates."""
Check: TypeAlias = tuple[bool, int, int]
"""A match that the `check` of its rule must accept.

The fields are: whether the match includes the current character, the index of its candidate, and the index of its rule.
"""


class Transition(NamedTuple):
    """Describes how a character changes the candidates, and the next state. Indexes identify candidates and rules."""

    checks: tuple[Check, ...]
    """The checks that are needed to compute the transition.

    If there are any, the other fields except `matches` are placeholders.
    """
    before: tuple[int, int] | None
    """The candidate whose match ends before the character, and the rule of that match. None if there is none."""
    sources: tuple[int, ...]
    """The old candidates that the character extends, in order. -1 is a new candidate that begins with the character."""
    after: tuple[int, int] | None
    """The index in `sources` of the candidate whose match ends with the character, and the rule of that match.

    None if there is none."""
    ends: bool
    """Whether the last candidate in `sources` cannot become longer."""
    matches: bool
    """Whether the transition holds a match or a check."""
    state: AutomatonState
    """The next state."""


@final
class AutomatonState(dict[str, "AutomatonState | Transition"]):
    """A state of the automaton. As a dict, it maps characters to transitions.

    If a transition has no match and no check, and neither adds nor removes a candidate, the dict holds only the `state`
    of the transition.
    """

    __slots__ = ("_automaton", "_outcomes", "key", "pieces")

    def __init__(self, automaton: Automaton, key: Key) -> None:
        self._automaton = automaton
        self._outcomes: dict[tuple[int, frozenset[Check]], Transition] = {}
        self.key = key
        self.pieces: dict[str, tuple[AutomatonState, Sequence[int], str | None, str]] = {}
        """Fast path: the transitions for whole pieces of text without a match, because models repeat the same tokens.
        Without it, prose with 20 literal rules costs 2.2 times as much, and with the ready-made rules 2.4 times.

        A value holds the next state, the indexes in the piece at which candidates begin, the text before the first
        index, and the text from this index on. If candidates from before the piece continue, the second item holds the
        `sources` of `learn`, and the third item is None."""

    def __missing__(self, character: str) -> AutomatonState | Transition:
        automaton = self._automaton
        step = automaton.step(self.key, automaton.classes(character), None)
        same = not step.matches and step.sources == tuple(range(len(self.key[1])))
        found = self[character] = step.state if same else step
        automaton.count_transition()
        return found

    def decide(self, character: str, passed: frozenset[Check]) -> Transition:
        """Return the transition for `character`, after its checks were made. `passed` holds the accepted matches."""
        automaton = self._automaton
        classes = automaton.classes(character)
        found = self._outcomes.get((classes, passed))
        if found is None:
            found = self._outcomes[classes, passed] = automaton.step(self.key, classes, passed)
            automaton.count_transition()
        return found

    def learn(self, piece: str, state: AutomatonState, sources: Sequence[int]) -> None:
        """Store the transition for a piece of text, which leads to `state`.

        For each candidate after the piece, `sources` holds the index of the old candidate, or `~n` if the candidate
        begins at the index `n` of the piece.
        """
        if not sources:
            self.pieces[piece] = state, (), piece, ""
        elif sources[0] < 0:  # new candidates come last, so all are new
            at = ~sources[0]
            self.pieces[piece] = state, [~source for source in sources], piece[:at], piece[at:]
        else:
            self.pieces[piece] = state, sources, None, ""
        self._automaton.count_transition()


class _WordList(NamedTuple):
    """The rule states of a list of words. Each prefix is one state, which all words with this prefix share.

    A binary search finds a prefix. So only the fields `words` and `states` need memory.
    """

    words: list[str]
    """The words in order. Each character stands for a class: its code is the `bit_length()` of the bit of the class."""
    states: list[int]
    """A number for each word.

    The state of a prefix is the number of the first word that begins with the prefix, plus the length of the prefix.
    """
    after: int
    """The state after the last character of a word."""
    rule: int

    def follow(self, state: int, now: int) -> tuple[bool, bool, list[int]]:
        """Return whether a word ends in `state`, whether a word continues there, and the next states.

        `now` holds the classes of the next character as bits.
        """
        words, states = self.words, self.states
        at = bisect_right(states, state) - 1
        prefix = words[at][: state - states[at]]
        ends = words[at] == prefix
        at += ends
        if at == len(words) or not words[at].startswith(prefix):
            return ends, False, []
        following = []
        while now:
            size = now.bit_length()
            now ^= 1 << size - 1
            longer = prefix + chr(size)
            found = bisect_left(words, longer, at)
            if found < len(words) and words[found].startswith(longer):
                following.append(states[found] + len(longer))
        return ends, True, following


class Automaton:
    """The automaton of several rules. Several matchers may share it, because each matcher stores its own state."""

    def __init__(self, rules: Sequence[Searched]) -> None:
        self.checks = [rule.check for rule in rules]
        """The check of each rule, or None."""
        self._rules_with_check = frozenset(at for at, check in enumerate(self.checks) if check is not None)
        self._bits: dict[Character, int] = {}  # the bit of each class of characters
        self._literal_bits: dict[str, int] = {}  # maps a character to the bit of the class that contains only it
        self._tests: list[tuple[re.Pattern[str], int]] = []  # the pattern and the bit of each other class
        self._word = self._bit(_WORD)
        self._before_classes = 0  # the classes that assertions test on the previous character, as bits
        self._classes: dict[str, int] = {}  # the results of `classes`
        # The rule states, by number. A state in `_reads` reads one character: the value is the class of the character,
        # the next state and the rule. A state in `_branches` reads no character: it leads to other states, under
        # conditions. A state in `_ends` is the end of a match: the value is the rule.
        self._reads: dict[int, tuple[int, int, int]] = {}
        self._branches: dict[int, list[tuple[Lookaround | WordBoundary | None, int, int]]] = {}
        self._ends: dict[int, int] = {}
        # All other states are prefixes of words. `_first_states` holds the first state of each list, in the same order.
        self._word_lists: list[_WordList] = []
        self._first_states: list[int] = []
        self._rule_state_count = 0  # how many rule states there are
        starts = []
        for at, rule in enumerate(rules):
            end = self._new()
            self._ends[end] = at
            starts.append(self._build(rule.tree, end, at))
        self._starts: Group = tuple(starts)
        self._states: dict[Key, AutomatonState] = {}
        self.search_beginning = _search_for_beginnings(rules)
        """A search for the first position where a match may begin, for use while there is no candidate.

        It also finds a beginning that is cut off by the end of the text. None if there are no rules, if a pattern is
        not a literal text, or if there are more than `_MAX_SEARCHED` patterns."""
        self._max_transitions = _MAX_TRANSITIONS + sum(len(one.words) for one in self._word_lists)
        self._transition_count = 0  # how many transitions are stored

    # Construction.

    def _new(self) -> int:
        self._rule_state_count += 1
        return self._rule_state_count

    def _bit(self, one: Character) -> int:
        bit = self._bits.get(one)
        if bit is None:
            bit = self._bits[one] = 1 << len(self._bits)
            if not one.flags and one.source == re.escape(one.source[-1]):
                self._literal_bits[one.source[-1]] = bit
            else:
                self._tests.append((re.compile(one.source, one.flags), bit))
        return bit

    def _build(self, tree: Tree, after: int, rule: int) -> int:
        """Add the rule states for a tree. Its last states lead to the state `after`. Returns its first state."""
        match tree:
            case Character():
                state = self._new()
                self._reads[state] = self._bit(tree), after, rule
                return state
            case Words(words):
                first = self._rule_state_count + 1
                coded = sorted({"".join([chr(self._bit(one).bit_length()) for one in word]) for word in words})
                *states, end = accumulate((len(word) + 1 for word in coded), initial=first)
                self._rule_state_count = end - 1
                self._word_lists.append(_WordList(coded, states, after, rule))
                self._first_states.append(first)
                return first
            case InOrder(parts):
                for part in reversed(parts):
                    after = self._build(part, after, rule)
                return after
            case Choice(parts):
                return self._add_branch(*((None, 0, self._build(part, after, rule)) for part in parts))
            case Repeat(part, least, most):
                state = after
                for count in range(most, 0, -1):
                    state = self._build(part, state, rule)
                    if count > least:
                        state = self._add_branch((None, 0, state), (None, 0, after))
                return state
            case Lookaround(one, ahead):
                bit = self._bit(one)
                self._before_classes |= 0 if ahead else bit
                return self._add_branch((tree, bit, after))
        self._before_classes |= self._word
        return self._add_branch((tree, self._word, after))

    def _add_branch(self, *ways: tuple[Lookaround | WordBoundary | None, int, int]) -> int:
        """Add a state that reads no character. Each of `ways` has a condition, its class, and the next state."""
        state = self._new()
        self._branches[state] = list(ways)
        return state

    # Transitions.

    def classes(self, character: str) -> int:
        """Return the classes of a character as bits. The empty string, which is the end of the text, has no class."""
        found = self._classes.get(character)
        if found is None:
            found = self._literal_bits.get(character, 0)
            if character:
                found |= sum(bit for test, bit in self._tests if test.match(character))
            if len(self._classes) >= _MAX_TRANSITIONS:
                self._classes.clear()
            self._classes[character] = found
        return found

    def state(self, key: Key) -> AutomatonState:
        """Return the state with this identity."""
        return self._states.get(key) or self._states.setdefault(key, AutomatonState(self, key))

    def begin(self, before: str) -> AutomatonState:
        """Return the state without candidates, after the character `before`."""
        return self.state((self.classes(before) & self._before_classes, ()))

    def count_transition(self) -> None:
        """Count one more stored transition. At the limit, delete all stored transitions."""
        self._transition_count += 1
        if self._transition_count > self._max_transitions:
            self._transition_count = 0
            for state in list(self._states.values()):  # a copy, because other threads may add states
                state.clear()
                state.pieces.clear()
                state._outcomes.clear()
            self._states = {}

    def step(self, key: Key, now: int, passed: frozenset[Check] | None) -> Transition:
        """Compute the transition from the state `key` with a character of the classes `now`.

        `passed` holds the accepted checks, or None if no checks were made yet.
        """
        before, groups = key
        last = len(groups)
        checks: list[Check] = []

        def best(ends: set[int], includes_current: bool, candidate: int) -> int | None:
            """Return the first rule in `ends` whose match needs no check or has passed it, else None.

            Without `passed`, the checks before this rule are added to `checks`.
            """
            for rule in sorted(ends):
                check = includes_current, candidate, rule
                if rule not in self._rules_with_check or (passed is not None and check in passed):
                    return rule
                if passed is None:
                    checks.append(check)
            return None

        seen: set[int] = set()
        match_before: tuple[int, int] | None = None
        match_after: tuple[int, int] | None = None
        sources: list[int] = []
        new: list[Group] = []
        at = 0
        while at <= last:
            reads, ends, _ = self._follow(groups[at] if at < last else self._starts, before, now)
            rule = best(ends, False, at) if ends else None
            if rule is not None:
                match_before = at, rule
            following: set[int] = set()
            for one, state, owner in reads:
                if one & now and state not in seen:
                    following.add(state)
                    if owner not in self._rules_with_check:
                        seen.add(state)
            if following:
                _, ends, continues = self._follow(following, now, None)
                rule = best(ends, True, at) if ends else None
                if continues or rule is not None:
                    sources.append(at if at < last else -1)
                    new.append(tuple(sorted(following)) if continues else ())
                if rule is not None:
                    match_after = len(sources) - 1, rule
                    break
            at = max(at + 1, last) if match_before is not None else at + 1  # after a match, try only a new candidate
        if checks:
            return Transition(tuple(checks), None, (), None, False, True, self.state(key))
        ended = bool(new) and not new[-1]
        if ended:
            new.pop()
        matches = match_before is not None or match_after is not None
        after = self.state((now & self._before_classes, tuple(new)))
        return Transition((), match_before, tuple(sources), match_after, ended, matches, after)

    def _follow(
        self, group: Sequence[int] | set[int], before: int, now: int | None
    ) -> tuple[list[tuple[int, int, int]], set[int], bool]:
        """Follow a candidate through all states that read no character.

        Returns an entry as in `_reads` for each state that reads the next character, the rules whose matches end here,
        and whether the candidate may continue. An entry for a word has the class -1, because `follow` has already
        compared the character. `before` and `now` are the classes of the characters before and after the position.
        `now` is None if the next character has not arrived.
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
            elif state not in self._branches:
                words = self._word_lists[bisect_right(self._first_states, state) - 1]
                is_whole, is_prefix, longer = words.follow(state, now or 0)
                reads += [(-1, prefix, words.rule) for prefix in longer]
                continues |= is_prefix
                if is_whole and words.after not in seen:
                    seen.add(words.after)
                    todo.append(words.after)
            else:
                for assertion, bit, after in self._branches[state]:
                    is_true = assertion is None or self._is_true(assertion, bit, before, now)
                    continues |= is_true is None
                    if is_true and after not in seen:
                        seen.add(after)
                        todo.append(after)
        return reads, ends, continues

    def _is_true(self, look: Lookaround | WordBoundary, bit: int, before: int, now: int | None) -> bool | None:
        """Return whether an assertion is true. Returns None if it depends on a character that has not arrived."""
        if isinstance(look, Lookaround) and not look.ahead:
            return bool(before & bit) is look.wanted
        if now is None:
            return None
        if isinstance(look, Lookaround):
            return bool(now & bit) is look.wanted
        return (bool(before & bit) is not bool(now & bit)) is look.wanted


def _search_for_beginnings(rules: Sequence[Searched]) -> Callable[..., re.Match[str] | None] | None:
    literals = [what for rule in rules for what in rule.what]
    if not literals or len(literals) > _MAX_SEARCHED or not all(isinstance(what, str) for what in literals):
        return None
    return re.compile(_pattern({str(what)[:_BEGINNING] for what in literals})).search


def _pattern(words: set[str]) -> str:
    """Return a pattern for one of `words`. It also matches if the text ends after one or more of the characters."""
    ways = []
    for first in sorted({word[0] for word in words}):
        rests = {word[1:] for word in words if word[0] == first}
        ways.append(re.escape(first) + ("" if "" in rests else f"(?:{_pattern(rests)}|\\Z)"))
    return "|".join(ways)

"""Finds the matches of rules in text that arrives in pieces.

matcher = Matcher(rules)
found = matcher.feed(delta)    # returns text, or a list of text and matches in order
found = matcher.close()        # returns the pending text and matches

The module `automaton` explains candidates, states and transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from streamtools.errors import check_kind
from streamtools.rules.automaton import Automaton, AutomatonState, Check, Transition
from streamtools.rules.rule import Rule, Searched

_PIECE: Final = 16
"""The maximum length of a piece of text whose transition is stored in `AutomatonState.pieces`."""


class Match(NamedTuple):
    """A match: its rule, its text, and the position of its first character in the text since `Matcher.begin`."""

    rule: Rule
    text: str
    position: int


TextAndMatches: TypeAlias = "str | list[str | Match]"
"""Text without matches, or text and matches in order."""


class Matcher:
    """Searches text for matches of rules. `feed` returns the text and matches that later text cannot change."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._automaton = automaton = _automaton_of(rules)
        self.search_beginning = automaton.search_beginning
        """A search for the beginning of a match, for use while no text is pending; see `Automaton`. It may be None.

        Fast path: if the search finds nothing in a text, a caller may add the length of the text to `position` instead
        of calling `feed`."""
        self.begin()

    def begin(self) -> None:
        """Begin a new text at position 0."""
        self.position = 0
        """How many characters have arrived."""
        self.pending = ""
        """Text that may be the beginning of a match."""
        self.state = self._automaton.begin("")
        # The candidates, in one of two forms. If `_plain` is True, no candidate has matched yet. An item is then the
        # position at which the candidate begins, minus `_origin`. Otherwise an item is a list of four values: the
        # position at which the candidate begins, the rule of its match or None, the end of this match, and the matches
        # after this end. The matches after the end count only if the match of the candidate is chosen.
        self._candidates: Sequence[Any] = ()
        self._origin = 0
        self._plain = True

    def feed(self, text: str) -> TextAndMatches:
        """Return the text and the matches that are certain after `text`."""
        known = self.state.pieces.get(text)
        if known is None or not self._plain:
            return self._read(text)
        position, pending = self.position, self.pending
        before: str | None
        self.state, begins, before, rest = known
        self.position = position + len(text)
        if before is None:  # candidates that began before this text continue
            begins = self._begun(begins, position)
            text = pending + text
            at = len(pending) + begins[0]
            pending, before, rest = "", text[:at], text[at:]
        self._origin, self._candidates, self.pending = position, begins, rest
        return pending + before

    def close(self) -> TextAndMatches:
        """End the text. Returns the pending text and matches.

        `feed` may then begin another text, in which no match continues. `position` is not reset.
        """
        decided: list[tuple[int, int, int]] = []
        if self._candidates:
            step = self.state[""]  # the transition for the end of the text
            if isinstance(step, Transition):
                if step.checks:
                    step = self.state.decide("", self._check(step, 0))
                decided = self._take(step, self.position)
            self._candidates = ()
        self.state = self._automaton.begin("")
        self._plain = True
        return self._release(decided, self.position)

    def _begun(self, sources: Sequence[int], position: int) -> list[int]:
        """Return the positions at which the candidates begin, minus `position`.

        `sources` holds the index of an old candidate, or `~n` for a new one, as for `AutomatonState.learn`.
        """
        shift, old = self._origin - position, self._candidates
        return [old[source] + shift if source >= 0 else ~source for source in sources]

    def _read(self, text: str) -> TextAndMatches:
        """Read a piece character by character."""
        at, size = 0, len(text)
        state, position, search = self.state, self.position, self.search_beginning
        self.pending += text
        if self._plain:  # Fast path: reads up to the first match
            sources: Sequence[int] = range(len(self._candidates))
            while at < size:
                if search is not None and not state.key[1]:  # without candidates, skip to the next possible beginning
                    found = search(text, at)
                    at = size if found is None else found.start()
                    if at == size:
                        break
                step = state[text[at]]
                if type(step) is AutomatonState:
                    state = step
                elif step.matches:
                    break
                else:
                    state, new = step.state, step.sources
                    if not new:
                        sources = ()
                    elif len(new) == 1:
                        sources = (sources[new[0]] if new[0] >= 0 else ~at,)
                    else:
                        sources = [sources[source] if source >= 0 else ~at for source in new]
                at += 1
            if at == size <= _PIECE:
                self.state.learn(text, state, sources)
            self._candidates, self._origin = self._begun(sources, position), position
        decided: list[tuple[int, int, int]] = []
        while at < size:
            step = state[text[at]]
            if type(step) is AutomatonState:
                state = step
            else:
                self.position = position + at
                if step.checks:
                    step = state.decide(text[at], self._check(step, size - at))
                decided += self._take(step, self.position)
                state = step.state
            at += 1
        self.state, self.position = state, position + size
        if not self._candidates:
            return self._release(decided, self.position)
        first = self._candidates[0]
        return self._release(decided, first + self._origin if self._plain else first[0])

    def _check(self, step: Transition, after: int) -> frozenset[Check]:
        """Return the checks of the transition that accept their match.

        `after` is the number of pending characters after the position of the transition.
        """
        passed = []
        end = len(self.pending) - after
        begins = [begin + self._origin if self._plain else begin[0] for begin in self._candidates]
        for needed in step.checks:
            includes_current, candidate, rule = needed
            begin = begins[candidate] if candidate < len(begins) else self.position
            check = self._automaton.checks[rule]
            if check is not None and check(self.pending[begin - self.position + end : end + includes_current]):
                passed.append(needed)
        return frozenset(passed)

    def _take(self, step: Transition, at: int) -> list[tuple[int, int, int]]:
        """Apply the transition for the character at position `at`.

        Returns the matches that are now certain. Each is a tuple of its begin, its end and the index of its rule.
        """
        if self._plain and not step.matches:
            origin, old = self._origin, self._candidates
            self._candidates = [old[source] if source >= 0 else at - origin for source in step.sources]
            return []
        candidates = list(self._candidates)
        if self._plain:
            candidates = [[begin + self._origin, None, 0, []] for begin in candidates]
        if step.before is not None:
            place, rule = step.before
            candidates[place][1:] = rule, at, []
            del candidates[place + 1 :]
        decided: list[tuple[int, int, int]] = []
        new: list[list[Any]] = []
        place = 0
        # The match of a candidate that does not continue is added to the matches after the previous candidate's end. If
        # there is no previous candidate, the match is certain.
        for source in (*step.sources, len(candidates)):
            while place < (len(candidates) if source < 0 else source):
                (new[-1][3] if new else decided).extend(_decide(candidates[place]))
                place += 1
            if source < 0:
                new.append([at, None, 0, []])
            elif place < len(candidates):
                new.append(candidates[place])
                place += 1
        if step.after is not None:
            place, rule = step.after
            new[place][1:] = rule, at + 1, []
        if step.ends:
            last = _decide(new.pop())
            (new[-1][3] if new else decided).extend(last)
        self._plain = not any(rule is not None or after for _, rule, _, after in new)
        self._candidates = [candidate[0] - self._origin for candidate in new] if self._plain else new
        return decided

    def _release(self, decided: list[tuple[int, int, int]], stop: int) -> TextAndMatches:
        """Return the pending text up to the position `stop`, with the matches `decided` in it."""
        pending, base = self.pending, self.position - len(self.pending)
        if not decided:
            self.pending = pending[stop - base :]
            return pending[: stop - base]
        pieces: list[str | Match] = []
        at = base
        for begin, end, rule in decided:
            if at < begin:
                pieces.append(pending[at - base : begin - base])
            pieces.append(Match(self._rules[rule], pending[begin - base : end - base], begin))
            at = end
        if at < stop:
            pieces.append(pending[at - base : stop - base])
        self.pending = pending[stop - base :]
        return pieces


def _decide(candidate: list[Any]) -> list[tuple[int, int, int]]:
    """Return the match of a candidate that cannot become longer, and the matches after it."""
    begin, rule, end, after = candidate
    return after if rule is None else [(begin, end, rule), *after]


@lru_cache(maxsize=64)
def _shared_automaton(rules: tuple[Searched, ...]) -> Automaton:
    return Automaton(rules)


def _automaton_of(rules: Sequence[Rule]) -> Automaton:
    """Return the automaton for `rules`. Recently used automatons are cached. Equal patterns and checks share one."""
    searched = tuple([rule.searched for rule in rules])
    try:
        return _shared_automaton(searched)
    except TypeError:  # a check is not hashable
        return Automaton(searched)


def shown(rules: Sequence[Rule], text: str) -> str:
    """Apply rules to a complete text. Returns the text that a user would see."""
    check_kind("text", text, str)
    matcher = Matcher(rules)
    return replace_matches(matcher.feed(text)) + replace_matches(matcher.close())


def replace_matches(pieces: TextAndMatches) -> str:
    """Join text and matches to the text that a user sees. Each match is replaced as its rule defines."""
    return "".join(piece if isinstance(piece, str) else piece.rule.text_for(piece.text) for piece in pieces)

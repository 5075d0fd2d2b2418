"""A text that comes in pieces, and what rules find in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from streamtools.rules.automaton import Asked, Automaton, Step, automaton_of
from streamtools.rules.rule import Rule


class Found(NamedTuple):
    """A match: its rule, its text, and where that begins."""

    rule: Rule
    text: str
    position: int


Pieces: TypeAlias = "list[str | Found]"


class Matcher:
    """Looks for the rules in a text that comes in pieces; `feed` and `close` return what is certain, in order."""

    __slots__ = ("_automaton", "_base", "_candidates", "_held", "_quick", "_state", "position")

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._quick = automaton.quick.search
        self.begin()

    def begin(self) -> None:
        """Begin a text."""
        self.position = 0
        """How many characters have come."""
        self._held = ""
        self._base = 0  # the position of what is held
        self._state = self._automaton.begin("")
        self._candidates: list[list[Any]] = []  # of each where it begins, its rule if it has matched, where that match
        # ends, and the matches behind it that are decided if it is

    @property
    def held(self) -> str:
        """Text that is the beginning of a match."""
        return self._held

    def feed(self, text: str) -> Pieces:
        """Return what is certain now that `text` has come."""
        first = 0
        if not self._candidates:
            found = self._quick(text)
            first = found.start() if found else len(text)
            if first:
                self._state = self._automaton.begin(text[first - 1])
                if first == len(text):
                    self.position = self._base = self.position + first
                    return [text] if text else []
        self._held += text
        state, at, decided = self._state, self.position + first, []
        for character in text[first:] if first else text:
            following, step = state[character]
            if step is not None:
                if following is None:
                    following, step = state.decide(character, self._check(step, at, at + 1))
                decided += self._take(step, at)
            assert following is not None
            state = following
            at += 1
        self._state, self.position = state, at
        return self._release(decided, self._candidates[0][0] if self._candidates else at)

    def close(self) -> Pieces:
        """Return the rest, at the end of the text. What comes next begins a text, whose positions go on."""
        decided: list[tuple[int, int, int]] = []
        if self._candidates:
            following, step = self._state[""]
            if following is None and step is not None:
                following, step = self._state.decide("", self._check(step, self.position, self.position))
            if step is not None:
                decided = self._take(step, self.position)
            self._candidates.clear()
        self._state = self._automaton.begin("")
        return self._release(decided, self.position)

    def _check(self, step: Step, at: int, behind: int) -> frozenset[Asked]:
        """Ask the checks on which a step depends."""
        passed = []
        for asked in step.asked:
            is_behind, candidate, rule = asked
            begin = self._candidates[candidate][0] if candidate < len(self._candidates) else at
            text = self._held[begin - self._base : (behind if is_behind else at) - self._base]
            check = self._automaton.rules[rule].check
            if check is not None and check(text):
                passed.append(asked)
        return frozenset(passed)

    def _take(self, step: Step, at: int) -> list[tuple[int, int, int]]:
        """Take a step; return the matches that are decided with it: where they begin and end, and their rules."""
        candidates = self._candidates
        if step.before is not None:
            place, rule = step.before
            candidates[place][1:] = rule, at, []
            del candidates[place + 1 :]
        decided: list[tuple[int, int, int]] = []
        new: list[list[Any]] = []
        place = 0
        for source in (*step.sources, len(candidates)):
            while place < (len(candidates) if source < 0 else source):
                (new[-1][3] if new else decided).extend(_decide(candidates[place]))
                place += 1
            if source < 0:
                new.append([at, None, 0, []])
            elif place < len(candidates):
                new.append(candidates[place])
                place += 1
        if step.behind is not None:
            place, rule = step.behind
            new[place][1:] = rule, at + 1, []
        if step.ends:
            last = _decide(new.pop())
            (new[-1][3] if new else decided).extend(last)
        self._candidates = new
        return decided

    def _release(self, decided: list[tuple[int, int, int]], stop: int) -> Pieces:
        """Return the text up to a position, and the matches in it."""
        held, base = self._held, self._base
        pieces: Pieces = []
        at = base
        for begin, end, rule in decided:
            if at < begin:
                pieces.append(held[at - base : begin - base])
            pieces.append(Found(self._automaton.rules[rule], held[begin - base : end - base], begin))
            at = end
        if at < stop:
            pieces.append(held[at - base : stop - base])
        self._held, self._base = held[stop - base :], stop
        return pieces


def _decide(candidate: list[Any]) -> list[tuple[int, int, int]]:
    """Return the matches that are left of a candidate that can match no more."""
    begin, rule, end, behind = candidate
    return behind if rule is None else [(begin, end, rule), *behind]


def shown(rules: Sequence[Rule], text: str) -> str:
    """Return a whole text as its reader is shown it."""
    matcher = Matcher(automaton_of(rules))
    pieces = matcher.feed(text) + matcher.close()
    return "".join(each if isinstance(each, str) else each.rule.text_for(each.text) for each in pieces)

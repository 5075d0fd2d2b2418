"""A text that comes in pieces, and what rules find in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from streamtools.rules.automaton import BEGINNING, Asked, Automaton, State, Step, automaton_of
from streamtools.rules.rule import Rule

_PIECE: Final = 16
"""Characters of a piece of text of which it is kept what becomes of the candidates with it."""


class Match(NamedTuple):
    """A match: its rule, its text, and where that begins."""

    rule: Rule
    text: str
    position: int


Pieces: TypeAlias = "str | list[str | Match]"
"""Text without matches, or text and matches in order."""


class Matcher:
    """Looks for the rules in a text that comes in pieces; `feed` and `close` return what is certain, in order."""

    __slots__ = ("_automaton", "_candidates", "_origin", "_plain", "begins", "pending", "position", "state")

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.begins = automaton.begins
        """Finds nothing in text behind nothing held in which no match begins; None if that is not to be told so."""
        self.begin()

    def begin(self) -> None:
        self.position = 0
        """How many characters have come."""
        self.pending = ""
        """Text that is the beginning of a match."""
        self.state = self._automaton.begin("")
        # Where each begins, counted from the origin; if they are not `plain`, a list with that, its rule if it has
        # matched, where that match ends, and the matches behind it that are decided if it is.
        self._candidates: Sequence[Any] = ()
        self._origin = 0
        self._plain = True

    def feed(self, text: str) -> Pieces:
        """Return what is certain now that `text` has come: a text, if there is no match."""
        known = self.state.pieces.get(text)
        if known is None or not self._plain:
            return self._meet(text)
        position, held = self.position, self.pending
        before: str | None
        self.state, begins, before, rest = known
        self.position = position + len(text)
        if before is None:  # earlier candidates go on
            begins = self._begun(begins, position)
            text = held + text
            at = len(held) + begins[0]
            held, before, rest = "", text[:at], text[at:]
        self._origin, self._candidates, self.pending = position, begins, rest
        return held + before

    def _meet(self, text: str) -> Pieces:
        """Take a piece that has not been met here."""
        begins = self.begins
        if begins is None or not self._plain or len(self.pending) >= BEGINNING:
            return self._read(text)
        before = len(self.pending)
        whole = self.pending + text
        found = begins(whole)
        at = found.start() if found is not None else len(whole)
        if not at or at < before:
            return self._read(text)
        # What was held goes on to no match, and before this place none begins.
        state, position = self.state, self.position
        self.state, self._candidates, self.pending = self._automaton.idle, [], ""
        self.position += at - before
        rest = self.feed(whole[at:]) if at < len(whole) else ""
        if not isinstance(rest, str):
            return [whole[:at], *rest]
        if self._plain and len(text) <= _PIECE:
            back = self._origin - position
            state.learn(text, self.state, [~(each + back) for each in self._candidates])
        return whole[:at] + rest

    def close(self) -> Pieces:
        """Return the rest, at the end of the text. What comes next begins a text, whose positions go on."""
        decided: list[tuple[int, int, int]] = []
        if self._candidates:
            step = self.state[""]
            if isinstance(step, Step):
                if step.asked:
                    step = self.state.decide("", self._check(step, 0))
                decided = self._take(step, self.position)
            self._candidates = ()
        self.state = self._automaton.begin("")
        self._plain = True
        return self._release(decided, self.position)

    def _begun(self, sources: Sequence[int], position: int) -> list[int]:
        """Return where candidates begin, counted from a position."""
        back, old = position - self._origin, self._candidates
        return [old[each] - back if each >= 0 else ~each for each in sources]

    def _read(self, text: str) -> Pieces:
        at, size = 0, len(text)
        state, position, begins = self.state, self.position, self.begins
        self.pending += text
        if self._plain:  # until something matches
            sources: Sequence[int] = range(len(self._candidates))
            while at < size:
                if begins is not None and not state.key[1]:
                    found = begins(text, at)
                    at = size if found is None else found.start()
                    if at == size:
                        break
                step = state[text[at]]
                if type(step) is State:
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
                        sources = [sources[each] if each >= 0 else ~at for each in new]
                at += 1
            if at == size <= _PIECE:
                self.state.learn(text, state, sources)
            self._candidates, self._origin = self._begun(sources, position), position
        decided: list[tuple[int, int, int]] = []
        while at < size:
            step = state[text[at]]
            if type(step) is State:
                state = step
            else:
                self.position = position + at
                if step.asked:
                    step = state.decide(text[at], self._check(step, size - at))
                decided += self._take(step, self.position)
                state = step.state
            at += 1
        self.state, self.position = state, position + size
        if not self._candidates:
            return self._release(decided, self.position)
        first = self._candidates[0]
        return self._release(decided, first + self._origin if self._plain else first[0])

    def _check(self, step: Step, behind: int) -> frozenset[Asked]:
        """Ask the checks on which a step depends, so many characters before the end of what is held."""
        passed = []
        end = len(self.pending) - behind
        begins = [each + self._origin if self._plain else each[0] for each in self._candidates]
        for asked in step.asked:
            is_behind, candidate, rule = asked
            begin = begins[candidate] if candidate < len(begins) else self.position
            check = self._automaton.rules[rule].check
            if check is not None and check(self.pending[begin - self.position + end : end + is_behind]):
                passed.append(asked)
        return frozenset(passed)

    def _take(self, step: Step, at: int) -> list[tuple[int, int, int]]:
        """Take a step; return the matches that are decided with it: where they begin and end, and their rules."""
        if self._plain and not step.matches:
            origin, old = self._origin, self._candidates
            self._candidates = [old[each] if each >= 0 else at - origin for each in step.sources]
            return []
        candidates = list(self._candidates)
        if self._plain:
            candidates = [[each + self._origin, None, 0, []] for each in candidates]
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
        self._plain = not any(rule is not None or behind for _, rule, _, behind in new)
        self._candidates = [each[0] - self._origin for each in new] if self._plain else new
        return decided

    def _release(self, decided: list[tuple[int, int, int]], stop: int) -> Pieces:
        """Return the text up to a position, and the matches in it."""
        held, base = self.pending, self.position - len(self.pending)
        if not decided:
            self.pending = held[stop - base :]
            return held[: stop - base]
        pieces: list[str | Match] = []
        at = base
        for begin, end, rule in decided:
            if at < begin:
                pieces.append(held[at - base : begin - base])
            pieces.append(Match(self._automaton.rules[rule], held[begin - base : end - base], begin))
            at = end
        if at < stop:
            pieces.append(held[at - base : stop - base])
        self.pending = held[stop - base :]
        return pieces


def _decide(candidate: list[Any]) -> list[tuple[int, int, int]]:
    """Return the matches that are left of a candidate that can match no more."""
    begin, rule, end, behind = candidate
    return behind if rule is None else [(begin, end, rule), *behind]


def shown(rules: Sequence[Rule], text: str) -> str:
    """Return a whole text as its reader is shown it."""
    matcher = Matcher(automaton_of(rules))
    return in_place(matcher.feed(text)) + in_place(matcher.close())


def in_place(pieces: Pieces) -> str:
    """Return what is shown of text and of matches."""
    return "".join(each if isinstance(each, str) else each.rule.text_for(each.text) for each in pieces)

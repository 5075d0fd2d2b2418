"""When enough is enough: bounds on what one run may do, and the watch that holds a run against them.

A model that has lost its way repeats itself, calls without end, or fails turn after turn, and each turn costs money.
Each bound ends the run with a word of its own, which is the `finish_reason` of `done(stopped)`. The calls that were not
run for it are pending, so that whoever asks a person first can still run them.

A watch only counts and compares; it has no clock and ends nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.tools.outcome import ToolOutcome

Stop: TypeAlias = Literal[
    "repeated_call", "call_limit", "failed_turns", "token_limit", "time_limit", "max_steps", "tool_stop"
]
"""Why a run was stopped."""

_NO_FAULT_OF_THE_MODEL = frozenset((Code.TOOL_DENIED, Code.TOOL_CANCELLED))


@dataclass(frozen=True, kw_only=True)
class Guards:
    """What one run may do at most; None is no bound. Raises ValueError for a bound that is not positive."""

    repeated_calls: int | None = 5
    """The same call, name and arguments, so many times in a row: the last of them is not run (`repeated_call`)."""
    calls_per_turn: int | None = 32
    """Calls that are run in one turn; the others are not (`call_limit`)."""
    calls: int | None = 100
    """Calls that are run in all (`call_limit`)."""
    failed_turns: int | None = 3
    """Turns in a row with calls of which none succeeded, malformed ones counted (`failed_turns`). A turn without calls
    and calls that somebody has denied do not count."""
    tokens: int | None = None
    """Tokens of all turns, as far as the provider tells them: from there on, no call is run (`token_limit`)."""
    seconds: float | None = None
    """Time on the wall since the run began: then all of it stops where it stands (`time_limit`)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            bound = getattr(self, field.name)
            if bound is not None and not bound > 0:
                raise ValueError(f"{field.name} is a positive number or None, not {bound!r}")
        if self.repeated_calls == 1:
            raise ValueError("repeated_calls is at least 2: a call that comes once is not repeated")


class Watch:
    """How far a run has come towards its bounds. Several streams that share one are one run to it.

    `why` is None until the first bound is met; what was met first stays the reason.
    """

    def __init__(self, guards: Guards | None = None) -> None:
        self.guards = Guards() if guards is None else guards
        self.why: Stop | None = None
        self.last_turn = False  # no request follows that could take results, so no call is run
        self._last: str | None = None  # the fingerprint of the last call
        self._row = 0  # how many times it came
        self._calls = 0
        self._calls_of_turn = 0
        self._failed_turns = 0
        self._began: float | None = None

    @classmethod
    def of(cls, guards: Guards | Watch | None) -> Watch:
        """Return what a user passed as `guards=` as a watch; a watch is returned itself."""
        if not isinstance(guards, Guards | Watch | None):
            raise ValueError(f"guards is a Guards, not {guards!r}")
        return guards if isinstance(guards, Watch) else cls(guards)

    def begin(self, now: float) -> float | None:
        """Return how many seconds the run has left, from its first stream's beginning; None: as many as it needs."""
        if self._began is None:
            self._began = now
        return None if self.guards.seconds is None else max(0.0, self._began + self.guards.seconds - now)

    def trip(self, why: Stop) -> None:
        """Take note that something has ended the run."""
        self.why = self.why or why

    def admit(self, calls: Sequence[ToolCall], tokens: int | None = None) -> int:
        """Return how many of the next calls of the turn, from the first on, may run; `tokens` is the cost so far."""
        self.count_tokens(tokens)
        for number, call in enumerate(calls):
            self._count(call)
            if self.why is not None:
                return number
        return len(calls)

    def count_tokens(self, tokens: int | None) -> None:
        """Compare what the run has cost so far."""
        if _is_met(tokens, self.guards.tokens):
            self.trip("token_limit")

    def end_turn(self, outcomes: Sequence[ToolOutcome], malformed: int = 0) -> None:
        """Take note of what came of the calls of a turn, of which so many were malformed."""
        self._calls_of_turn = 0
        if any(outcome.error is None for outcome in outcomes):
            self._failed_turns = 0
        elif malformed or any(outcome.error not in _NO_FAULT_OF_THE_MODEL for outcome in outcomes):
            self._failed_turns += 1
            if _is_met(self._failed_turns, self.guards.failed_turns):
                self.trip("failed_turns")

    def _count(self, call: ToolCall) -> None:
        if self.why is not None:
            return
        said = call.fingerprint()
        self._row = self._row + 1 if said == self._last else 1
        self._last = said
        if _is_met(self._row, self.guards.repeated_calls):
            self.trip("repeated_call")
        elif self.last_turn:
            self.trip("max_steps")
        elif _is_met(self._calls, self.guards.calls) or _is_met(self._calls_of_turn, self.guards.calls_per_turn):
            self.trip("call_limit")
        else:
            self._calls += 1
            self._calls_of_turn += 1


def _is_met(count: int | None, bound: int | None) -> bool:
    return count is not None and bound is not None and count >= bound

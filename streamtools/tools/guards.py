"""The limits of one run. A model that has lost its way repeats itself, never stops calling, or fails turn after turn.

Each limit ends the run with its own reason, the `finish_reason` of `done(stopped)`. The calls that did not run because
of it are pending, so that the application can still run them. A `GuardTracker` only counts and compares: it has no
clock and ends nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from streamtools.calls import ToolCall
from streamtools.errors import Code
from streamtools.tools.results import ToolOutcome

Stop: TypeAlias = Literal[
    "repeated_call", "call_limit", "failed_turns", "token_limit", "time_limit", "size_limit", "max_steps", "tool_stop"
]
"""Why a run was stopped."""

_NOT_THE_MODELS_FAULT = frozenset((Code.TOOL_DENIED, Code.TOOL_CANCELLED))


@dataclass(frozen=True, kw_only=True)
class Guards:
    """The limits of one run; None means no limit. Raises ValueError for a limit that is not positive."""

    repeated_calls: int | None = 5
    """Identical calls (name and arguments) in a row. The call that reaches this number does not run
    (`repeated_call`)."""
    calls_per_turn: int | None = 32
    """Calls that run in one turn; further ones do not (`call_limit`)."""
    calls: int | None = 100
    """Calls that run in the whole run (`call_limit`)."""
    failed_turns: int | None = 3
    """Consecutive turns in which every call failed or was malformed (`failed_turns`). Turns without calls and denied
    calls do not count."""
    tokens: int | None = None
    """Tokens of all turns, as the provider reports them. No call runs once they are used (`token_limit`)."""
    seconds: float | None = None
    """Wall-clock seconds since the run began. The run stops immediately (`time_limit`)."""
    size: int | None = 16 * 1024 * 1024
    """Characters of text, reasoning and calls in one stream. The run stops a few hundred events later at most
    (`size_limit`)."""

    def __post_init__(self) -> None:
        for field in fields(self):
            limit = getattr(self, field.name)
            if limit is not None and not limit > 0:
                raise ValueError(f"{field.name} must be a positive number or None, got {limit!r}")
        if self.repeated_calls == 1:
            raise ValueError("repeated_calls must be at least 2, because a single call is not a repetition")


class GuardTracker:
    """Compares one run with its `Guards`. Several streams that share a tracker count as one run.

    `why` is None until the first limit is reached, and then stays the reason.
    """

    def __init__(self, guards: Guards | None = None) -> None:
        self.guards = Guards() if guards is None else guards
        self.why: Stop | None = None
        self.last_turn = False  # no request follows that could take results, so no call runs
        self._last_fingerprint: str | None = None
        self._repetitions = 0
        self._calls = 0
        self._calls_of_turn = 0
        self._failed_turns = 0
        self._began: float | None = None

    @classmethod
    def of(cls, guards: Guards | GuardTracker | None) -> GuardTracker:
        """Return a tracker for what a user passed as `guards=`; a tracker is returned as it is."""
        if not isinstance(guards, Guards | GuardTracker | None):
            raise ValueError(f"guards must be a Guards, got {guards!r}")
        return guards if isinstance(guards, GuardTracker) else cls(guards)

    def begin(self, now: float) -> float | None:
        """Return the seconds that the run has left since its first stream began, or None if it has no time limit."""
        if self._began is None:
            self._began = now
        return None if self.guards.seconds is None else max(0.0, self._began + self.guards.seconds - now)

    def trip(self, why: Stop) -> None:
        """Record that a limit was reached."""
        self.why = self.why or why

    def admit(self, calls: Sequence[ToolCall], tokens: int | None = None) -> int:
        """Return how many of the turn's next calls may run, counted from the first.

        `tokens` is the number of tokens that the run has used.
        """
        self.count_tokens(tokens)
        for number, call in enumerate(calls):
            if self.why is None:
                self._count(call)
            if self.why is not None:
                return number
        return len(calls)

    def count_tokens(self, tokens: int | None) -> None:
        """Compare the tokens that the run has used with their limit."""
        if tokens is not None and tokens >= (self.guards.tokens or math.inf):
            self.trip("token_limit")

    def end_turn(self, outcomes: Sequence[ToolOutcome], malformed: int = 0) -> None:
        """Count a turn with the outcomes of its calls and the number of its malformed calls."""
        self._calls_of_turn = 0
        if any(outcome.error is None for outcome in outcomes):
            self._failed_turns = 0
        elif malformed or any(outcome.error not in _NOT_THE_MODELS_FAULT for outcome in outcomes):
            self._failed_turns += 1
            if self._failed_turns >= (self.guards.failed_turns or math.inf):
                self.trip("failed_turns")

    def _count(self, call: ToolCall) -> None:
        guards, fingerprint = self.guards, call.fingerprint()
        self._repetitions = self._repetitions + 1 if fingerprint == self._last_fingerprint else 1
        self._last_fingerprint = fingerprint
        if self._repetitions >= (guards.repeated_calls or math.inf):
            self.trip("repeated_call")
        elif self.last_turn:
            self.trip("max_steps")
        elif self._calls >= (guards.calls or math.inf) or self._calls_of_turn >= (guards.calls_per_turn or math.inf):
            self.trip("call_limit")
        else:
            self._calls += 1
            self._calls_of_turn += 1

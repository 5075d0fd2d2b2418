"""Limits a run of a model that repeats its calls, makes too many calls, or fails in consecutive turns.

If a limit is reached, the run ends. The final event is then `done`, with the reason `stopped` and with a value of
`Stop` as its `finish_reason`. The calls that the limit prevented are reported as pending, so that the application can
still run them. A `GuardTracker` only counts and compares. It does not read a clock, and the caller ends the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal, TypeAlias

from streamtools.calls import ToolCall
from streamtools.errors import Checked, Code, check_number
from streamtools.tools.results import ToolOutcome

Stop: TypeAlias = Literal[
    "repeated_call", "call_limit", "failed_turns", "token_limit", "time_limit", "size_limit", "max_steps", "tool_stop"
]
"""The reason for which a run was stopped."""

_NOT_THE_MODELS_FAULT = frozenset((Code.TOOL_DENIED, Code.TOOL_CANCELLED))


@dataclass(frozen=True, kw_only=True)
class Guards(Checked):
    """The limits of one run. None means no limit.

    Raises ValueError for a limit that is not a positive number, and for `repeated_calls=1`.

    - `repeated_calls`: the number of consecutive calls with the same name and arguments at which the run stops. The
      last of these calls does not run (`repeated_call`).
    - `calls_per_turn`: the maximum number of calls that run in one turn. Further calls do not run (`call_limit`).
    - `calls`: the maximum number of calls in the whole run, also invalid ones. Further calls do not run (`call_limit`).
    - `failed_turns`: the number of consecutive turns in which every call failed or was malformed, after which the run
      stops (`failed_turns`). Turns without calls, and turns in which all calls were denied or cancelled, are ignored.
    - `tokens`: the maximum number of tokens of all turns, as reported by the provider. After that, no call runs
      (`token_limit`).
    - `seconds`: the maximum duration of the run, in seconds. After that, the run stops immediately (`time_limit`).
    - `size`: the maximum number of characters of text, reasoning and calls in one stream. After that, the run stops
      within a few hundred events (`size_limit`).
    """

    repeated_calls: int | None = 5
    calls_per_turn: int | None = 32
    calls: int | None = 100
    failed_turns: int | None = 3
    tokens: int | None = None
    seconds: float | None = None
    size: int | None = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        for field in fields(self):
            check_number(field.name, getattr(self, field.name), optional=True)
        if self.repeated_calls == 1:
            raise ValueError("repeated_calls must be at least 2, because a single call is not a repetition")


class GuardTracker:
    """Counts the calls, tokens and failures of one run and compares them with its `Guards`.

    `why` is the reason that was first passed to `trip`, or None. The stream itself enforces the limits of time and
    size, and does not record them here.
    """

    def __init__(self, guards: Guards | None = None) -> None:
        self.guards = Guards() if guards is None else guards
        self.why: Stop | None = None
        self.last_turn = False  # True if no request follows that could send results, so no call may run
        self._last_fingerprint: str | None = None
        self._repetitions = 0
        self._calls = 0
        self._calls_of_turn = 0
        self._failed_turns = 0

    def trip(self, why: Stop) -> None:
        """Record that the run must stop, for the reason `why`."""
        self.why = self.why or why

    def admit(self, calls: Sequence[ToolCall], tokens: int | None = None) -> int:
        """Return how many of `calls` may run. These are the first ones in the list.

        `calls` are the next calls of the current turn. `tokens` is the number of tokens that the run has used, or None
        if unknown.
        """
        self.check_tokens(tokens)
        for number, call in enumerate(calls):
            if self.why is None:
                self._count_or_stop(call)
            if self.why is not None:
                return number
        return len(calls)

    def check_tokens(self, tokens: int | None) -> None:
        """Stop the run if `tokens`, the number of tokens that it has used, has reached the limit."""
        if tokens is not None and tokens >= (self.guards.tokens or math.inf):
            self.trip("token_limit")

    def end_turn(self, outcomes: Sequence[ToolOutcome], malformed: int = 0) -> None:
        """End the current turn.

        `outcomes` are the outcomes of its calls, and `malformed` is the number of malformed calls.
        """
        self._calls_of_turn = 0
        if any(outcome.error is None for outcome in outcomes):
            self._failed_turns = 0
        elif malformed or any(outcome.error not in _NOT_THE_MODELS_FAULT for outcome in outcomes):
            self._failed_turns += 1
            if self._failed_turns >= (self.guards.failed_turns or math.inf):
                self.trip("failed_turns")

    def _count_or_stop(self, call: ToolCall) -> None:
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

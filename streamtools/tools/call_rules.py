"""Which calls of a turn may run: those that the request's `tool_choice` allows, and as many as the guards admit.

Providers write the same four choices in their own ways; a user may pass any of them. Because text dialects and
emulation know no provider that would enforce the choice, it is checked here, for all calls alike, before the first one
runs.

A model that has lost its way repeats itself, calls without end, or fails turn after turn, and each turn costs money.
Each bound ends the run with a reason of its own, which is the `finish_reason` of `done(stopped)`. The calls that were
not run for it are pending, so that whoever asks a person first can still run them. A watch only counts and compares; it
has no clock and ends nothing itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

from streamtools.calls import ToolCall, ToolChoice
from streamtools.errors import Code
from streamtools.tools.call import ToolOutcome

Mode: TypeAlias = Literal["auto", "none", "required", "tool"]

_MODES: dict[str, Mode] = {"auto": "auto", "none": "none", "required": "required", "any": "required"}
_GEMINI_MODES: dict[str, Mode] = {"AUTO": "auto", "NONE": "none", "ANY": "required", "VALIDATED": "auto"}


def parse_choice(value: ToolChoice | str | Mapping[str, Any] | None) -> ToolChoice:
    """Return what a `tool_choice` means, in the spelling of OpenAI (chat and Responses), Anthropic or Gemini.

    A word that is no mode is the name of a tool. Raises ValueError for what has no meaning here.

    >>> parse_choice("any")
    ToolChoice(mode='required', name=None)
    >>> parse_choice({"type": "function", "function": {"name": "weather"}})
    ToolChoice(mode='tool', name='weather')
    """
    if value is None:
        return ToolChoice()
    if isinstance(value, ToolChoice):
        return value
    if isinstance(value, str) and value:
        return ToolChoice(_MODES[value]) if value in _MODES else ToolChoice("tool", value)
    if isinstance(value, Mapping):
        for key in ("toolConfig", "tool_config", "functionCallingConfig", "function_calling_config"):
            if isinstance(value.get(key), Mapping):
                return parse_choice(value[key])
        choice = _gemini(value) if "mode" in value and "type" not in value else _typed(value)
        if choice is not None:
            return choice
    raise ValueError(f"tool_choice is auto, none, required or a tool's name, and not {value!r}")


def check_choice(choice: ToolChoice, names: Sequence[str], *, eager: bool = False) -> None:
    """Raise ValueError for a choice that no answer could keep to with the tools of these `names`, or that we could not
    enforce. `eager`: calls run before the answer is complete, when nobody knows yet how many there will be.
    """
    if choice.mode in ("auto", "none"):
        return
    if choice.mode == "tool" and choice.name not in names:
        raise ValueError(f"tool_choice names {choice.name!r}; there are {', '.join(names) or 'no tools'}")
    if not names:
        raise ValueError("tool_choice requires a call, and there are no tools")
    if eager:
        raise ValueError('tool_choice can only be enforced on a complete turn: with execute="eager" it is auto or none')


def _typed(value: Mapping[str, Any]) -> ToolChoice | None:
    """Read `{"type": …}` of OpenAI and Anthropic; a bare `function` counts too."""
    function = value.get("function")
    kind = value.get("type", "function" if function else None)
    if kind not in ("function", "tool"):
        return ToolChoice(_MODES[kind]) if kind in _MODES else None
    name = function.get("name") if isinstance(function, Mapping) else function or value.get("name")
    return ToolChoice("tool", name) if isinstance(name, str) and name else None


def _gemini(value: Mapping[str, Any]) -> ToolChoice | None:
    """Read a `functionCallingConfig`. One allowed name with ANY is a named tool; a longer list is no choice of ours."""
    mode = _GEMINI_MODES.get(str(value["mode"]).upper())
    allowed = value.get("allowedFunctionNames") or value.get("allowed_function_names") or []
    if mode is None or not allowed:
        return None if mode is None else ToolChoice(mode)
    return ToolChoice("tool", allowed[0]) if mode == "required" and len(allowed) == 1 else None


# The bounds of a run.

Stop: TypeAlias = Literal[
    "repeated_call", "call_limit", "failed_turns", "token_limit", "time_limit", "size_limit", "max_steps", "tool_stop"
]
"""Why a run was stopped."""

_NO_FAULT_OF_THE_MODEL = frozenset((Code.TOOL_DENIED, Code.TOOL_CANCELLED))


@dataclass(frozen=True, kw_only=True)
class Guards:
    """What one run may do at most; None is no bound. Raises ValueError for a bound that is not positive."""

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

    @property
    def admits(self) -> bool:
        """Whether a call may run, as far as that is known before it is complete."""
        return self.why is None and not self.last_turn

    def trip(self, why: Stop) -> None:
        """Take note that something has ended the run."""
        self.why = self.why or why

    def admit(self, calls: Sequence[ToolCall], tokens: int | None = None) -> int:
        """Return how many of the next calls of the turn, from the first on, may run; `tokens` is the cost so far."""
        self.count_tokens(tokens)
        for number, call in enumerate(calls):
            if self.why is None:
                self._count(call)
            if self.why is not None:
                return number
        return len(calls)

    def count_tokens(self, tokens: int | None) -> None:
        """Take note of what the run has cost so far."""
        if tokens is not None and tokens >= (self.guards.tokens or math.inf):
            self.trip("token_limit")

    def end_turn(self, outcomes: Sequence[ToolOutcome], malformed: int = 0) -> None:
        """Take note of what came of the calls of a turn, of which so many were malformed."""
        self._calls_of_turn = 0
        if any(outcome.error is None for outcome in outcomes):
            self._failed_turns = 0
        elif malformed or any(outcome.error not in _NO_FAULT_OF_THE_MODEL for outcome in outcomes):
            self._failed_turns += 1
            if self._failed_turns >= (self.guards.failed_turns or math.inf):
                self.trip("failed_turns")

    def _count(self, call: ToolCall) -> None:
        guards, fingerprint = self.guards, call.fingerprint()
        self._row = self._row + 1 if fingerprint == self._last else 1
        self._last = fingerprint
        if self._row >= (guards.repeated_calls or math.inf):
            self.trip("repeated_call")
        elif self.last_turn:
            self.trip("max_steps")
        elif self._calls >= (guards.calls or math.inf) or self._calls_of_turn >= (guards.calls_per_turn or math.inf):
            self.trip("call_limit")
        else:
            self._calls += 1
            self._calls_of_turn += 1

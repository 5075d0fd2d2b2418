"""What is the same for all requests of a gateway. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from streamtools.calls import IdFactory
from streamtools.conversation.circuits import Circuits
from streamtools.conversation.prompts import Example
from streamtools.gateway.fallbacks import FallbackUpstream
from streamtools.gateway.plan import Mode, Modes, teaching
from streamtools.gateway.upstream_requests import Upstream
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.policies import Options
from streamtools.rules.rule import Rule

if TYPE_CHECKING:
    from streamtools.stream.judging import TextJudge


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for all requests; see `Rewrite`."""

    mode: Modes = "text"
    dialects: Dialects = None
    few_shot: bool | Sequence[Example] = False
    on_malformed: Literal["text", "error"] = "error"
    ask_again: int = 0
    upstream: Upstream = "openai"
    text_rules: Sequence[Rule] = ()
    text_judge: TextJudge | None = None
    fallbacks: Sequence[FallbackUpstream] = ()
    limits: Limits = DEFAULT_LIMITS
    new_id: IdFactory | None = None
    new_answer_id: IdFactory | None = None
    now: Callable[[], int] | None = None
    parsing: Mapping[str, Any] = field(default_factory=dict)
    circuits: Circuits = field(init=False, repr=False, compare=False)
    """Of the upstream, and of its `fallbacks`."""
    logged: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """What the log has been told once: why requests have left the way of the template, and options that are dropped."""

    def __post_init__(self) -> None:
        modes = list(self.mode.values()) if isinstance(self.mode, Mapping) else [self.mode]
        for name, kinds, given in (("mode", Mode, modes), ("upstream", Upstream, [self.upstream])):
            if wrong := [each for each in given if each not in get_args(kinds)]:
                raise ValueError(f"{name} is one of {', '.join(get_args(kinds))}, not {wrong[0]!r}")
        if self.on_malformed not in ("text", "error"):
            raise ValueError(f"on_malformed is 'text' or 'error', not {self.on_malformed!r}")
        Options(text_rules=self.text_rules)
        if self.text_judge is not None:
            from streamtools.stream.judging import TextJudge  # loaded when it is used

            if not isinstance(self.text_judge, TextJudge):
                raise ValueError(f"text_judge is a TextJudge, not {self.text_judge!r}")
            if self.ask_again or self.fallbacks:
                raise ValueError("text_judge: what is said once more is not judged: leave out ask_again and fallbacks")
        if "text" in modes or (isinstance(self.mode, Mapping) and "*" not in self.mode):
            teaching(self.dialects)
        object.__setattr__(self, "circuits", Circuits(1 + len(self.fallbacks)))

"""The option objects of `ToolStream` and `chat`: one frozen dataclass for each subject, checked when it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, TypedDict

from streamtools.calls import ToolChoice
from streamtools.errors import check_word, did_you_mean
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.options import Options, ParserKeywords, ParserOptions
from streamtools.tools.approvals import Decision, Suspension
from streamtools.tools.guards import Guards, GuardTracker
from streamtools.tools.ledger import CallLedger
from streamtools.tools.runner import RESULT_LIMIT, OnToolError, OnToolResult

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule
    from streamtools.stream.text_judge import TextJudge

Decisions: TypeAlias = Mapping[str, Decision | bool]
"""Decisions by call id. True approves a call, False denies it."""


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """How tools run. Raises ValueError for a value that is out of range."""

    execute: Literal["completed", "eager", "never"] = "completed"
    """When calls run: after their turn is complete, as soon as the call is complete, or never. Calls that do not run
    are `pending`."""
    concurrency: int = 8
    """The number of tools that run at the same time."""
    timeout: float = 60.0
    """Seconds for tools without a `timeout` of their own."""
    state: Any = None
    """The `state` in the `ToolContext` of each tool, such as the user of the request."""
    result_limit: int | None = RESULT_LIMIT
    """Characters of one result that the model gets. The interface gets all of it. None is no limit."""
    on_result: OnToolResult | None = None
    """`on_result(call, outcome)` is called for each outcome. Its exceptions are logged and change nothing."""
    on_error: OnToolError | None = None
    """`on_error(call, exception)` is called when a tool fails. Its exceptions are logged and change nothing."""
    ledger: CallLedger | None = None
    """Where calls and their outcomes are recorded, so that no call runs twice."""
    self_contained: bool = False
    """Whether the source is an agent that runs its own tools. No call of its answer counts."""

    def __post_init__(self) -> None:
        check_word("execute", self.execute, ("completed", "eager", "never"))
        if not (isinstance(self.concurrency, int) and self.concurrency >= 1):
            raise ValueError(f"concurrency must be an integer of at least 1, got {self.concurrency!r}")
        if self.result_limit is not None and not (isinstance(self.result_limit, int) and self.result_limit >= 1):
            raise ValueError(f"result_limit must be None or an integer of at least 1, got {self.result_limit!r}")
        if not (isinstance(self.timeout, int | float) and self.timeout > 0):
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout!r}")


@dataclass(frozen=True, kw_only=True)
class ApprovalOptions:
    """How calls that need a decision get one. Raises ValueError for a value that is not allowed."""

    ask: Literal["later", "now"] = "later"
    """`"later"` ends the run with these calls pending; another run continues with `resume`. `"now"` makes the run wait
    for `approve`, `deny` or `answer`."""
    timeout: float | None = None
    """Seconds until an undecided call is denied. None means five minutes for `"now"` and a day for `"later"`;
    `math.inf` means no limit."""
    decisions: Decisions = field(default_factory=dict)
    """Decisions about the calls of the suspension in `resume`, by call id."""

    def __post_init__(self) -> None:
        check_word("ask", self.ask, ("later", "now"))
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {self.timeout!r}")

    @classmethod
    def of(cls, given: ApprovalOptions | Decisions | None) -> ApprovalOptions:
        """Return `given` as options; a mapping holds decisions by call id."""
        if isinstance(given, ApprovalOptions):
            return given
        if given is None or isinstance(given, Mapping):
            return cls(decisions=given or {})
        raise TypeError(f"approvals must be an ApprovalOptions or a mapping of decisions, got {given!r}")


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """What is changed or held back before it is shown. Raises ValueError for a value that is not allowed."""

    rules: Sequence[Rule] = ()
    """Rules that find and replace, remove or mark parts of the visible text. `streamtools.rules` creates them."""
    rules_in_reasoning: bool = False
    """Whether the rules apply to reasoning too, separately from the text."""
    rules_in_arguments: bool = False
    """Whether events show the arguments of calls as the rules leave them. Tools get the original arguments. There
    are no `call-delta` events."""
    judge: TextJudge | None = None
    """A `TextJudge`, which approves text before it is shown. When it refuses, the run stops and no call runs."""
    history: Literal["as_written", "as_shown"] = "as_written"
    """Whether the history sent back to the model holds the text as the model wrote it, or as the rules left it."""
    pace: Literal["as_it_comes", "words", "graphemes"] = "as_it_comes"
    """How visible text is split: as it arrives, in whole words, or in whole graphemes (no half emoji)."""

    def __post_init__(self) -> None:
        Options(text_rules=self.rules, history=self.history, pace=self.pace)


@dataclass(frozen=True)
class OutputOptions:
    """The type of the answer, and what happens if the answer is not of this type."""

    type: Any
    """A pydantic model, a dataclass, a TypedDict, another type, or a JSON schema."""
    _: KW_ONLY
    retries: int = 0
    """How often a chat requests the answer again if it is not valid."""

    @classmethod
    def of(cls, given: Any) -> OutputOptions:
        """Return `given` as options; anything else is the type."""
        return given if isinstance(given, OutputOptions) else cls(given)


class StreamOptions(TypedDict, total=False):
    """The keyword parameters of `ToolStream` except `tools`, for functions that pass them on."""

    dialects: Dialects
    native_tool_calls: bool | None
    tool_choice: ToolChoice | str | Mapping[str, Any] | None
    output: Any
    guards: Guards | GuardTracker | None
    resume: Suspension | str | None
    run_id: str | None
    parser: ParserOptions
    runner: RunnerOptions
    approvals: ApprovalOptions | Decisions | None
    text: TextOptions


MOVED: dict[str, tuple[str, str, str]] = {
    **{option.name: ("parser", "ParserOptions", option.name) for option in fields(ParserOptions)},
    **{name: ("runner", "RunnerOptions", name) for name in ("execute", "concurrency", "result_limit")},
    **{name: ("runner", "RunnerOptions", name) for name in ("ledger", "self_contained")},
    "tool_timeout": ("runner", "RunnerOptions", "timeout"),
    "tool_state": ("runner", "RunnerOptions", "state"),
    "on_tool_result": ("runner", "RunnerOptions", "on_result"),
    "on_tool_error": ("runner", "RunnerOptions", "on_error"),
    "ask": ("approvals", "ApprovalOptions", "ask"),
    "decision_timeout": ("approvals", "ApprovalOptions", "timeout"),
    "decisions": ("approvals", "ApprovalOptions", "decisions"),
    "text_rules": ("text", "TextOptions", "rules"),
    "text_judge": ("text", "TextOptions", "judge"),
    **{name: ("text", "TextOptions", name) for name in ("rules_in_reasoning", "rules_in_arguments", "history", "pace")},
}
"""Parameters that are fields of an option object: the parameter that takes the object, its class, and the field."""


def refuse_unknown(where: str, given: Iterable[str], known: Iterable[str], advice: str = "") -> NoReturn:
    """Raise TypeError for the first parameter that does not exist, and name the one to use instead."""
    name = next(iter(given))
    if name in MOVED:
        parameter, kind, field = MOVED[name]
        raise TypeError(f"{where} has no parameter {name!r}; write {parameter}={kind}({field}=...)")
    raise TypeError(f"{where} has no parameter {name!r}{did_you_mean(name, [*known, *MOVED])}{advice}")


def check_kind(name: str, given: object, kind: type) -> None:
    """Raise TypeError for an option object of another class."""
    if not isinstance(given, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {given!r}")


def parser_keywords(parser: ParserOptions, text: TextOptions) -> ParserKeywords:
    """Return the options as the keyword parameters of a `StreamMachine`."""
    return {
        **{option.name: getattr(parser, option.name) for option in fields(ParserOptions)},  # type: ignore[typeddict-item]
        "text_rules": text.rules,
        "rules_in_reasoning": text.rules_in_reasoning,
        "history": text.history,
        "pace": text.pace,
    }

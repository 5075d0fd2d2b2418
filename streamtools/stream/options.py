"""Defines the option objects of `ToolStream` and `chat`. They are frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from streamtools.calls import ToolChoice
from streamtools.errors import Checked, check_kind, check_methods, check_number
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.options import Options, ParserKeywords, ParserOptions
from streamtools.stream.text_judge import TextJudge
from streamtools.tools.approvals import DecidedRun, Decision, Suspension
from streamtools.tools.guards import Guards
from streamtools.tools.runner import RunnerOptions
from streamtools.tools.schemas import check_keywords
from streamtools.typed import OutputType

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule
    from streamtools.rules.vault import Vault
    from streamtools.stream.lost_run import LostRun

Decisions: TypeAlias = Mapping[str, Decision | bool]
"""A mapping of call ids to decisions. True approves a call, False denies it."""


@dataclass(frozen=True, kw_only=True)
class ApprovalOptions(Checked):
    """Options for calls that need a decision. Raises ValueError for a value that is not allowed.

    - `ask`: with `"later"`, the run ends while the calls are pending, and another run continues with `resume`. With
      `"now"`, the run waits for `approve`, `deny` or `answer`.
    - `timeout`: the time in seconds after which an undecided call is denied. None means five minutes for `"now"` and a
      day for `"later"`. `math.inf` means no limit but the ledger's `keep`.
    - `decisions`: maps call ids to decisions about the calls of the suspension in `resume`.
    """

    ask: Literal["later", "now"] = "later"
    timeout: float | None = None
    decisions: Decisions = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_number("timeout", self.timeout, optional=True)


@dataclass(frozen=True, kw_only=True)
class TextOptions(Checked):
    """Options for the text of the model. Raises ValueError or TypeError for a value that is not allowed.

    - `rules`: rules from `streamtools.rules`, which replace, remove or mark parts of the visible text.
    - `rules_in_reasoning`: True if the rules also apply to reasoning, separately from the text.
    - `rules_in_arguments`: True if the rules also apply to the call arguments in events. Tools get the original
      arguments. If True, there are no `call-delta` events.
    - `judge`: a `TextJudge`, which approves text before it is shown. When it refuses a piece of text, the run stops,
      and its remaining calls do not run.
    - `history`: the text in the history for the model: `"as_written"` is the original text of the model, `"as_shown"`
      is the text after the rules, and, with `rules_in_arguments`, the arguments after them. With a `vault`, the text is
      always the text after the rules.
    - `vault`: a `Vault`, copied for each stream. It restores values in text, reasoning, arguments and typed answers. A
      `chat` also replaces the values in its requests. `rules` that change text then also apply to each value. There are
      no `call-delta` events.
    """

    rules: Sequence[Rule] = ()
    rules_in_reasoning: bool = False
    rules_in_arguments: bool = False
    judge: TextJudge | None = None
    history: Literal["as_written", "as_shown"] = "as_written"
    vault: Vault | None = None

    def __post_init__(self) -> None:
        Options(text_rules=self.rules)
        check_methods("vault", self.vault, "a vault, such as rules.Vault([rules.email()])", "replace", optional=True)
        check_kind("judge", self.judge, TextJudge, optional=True)

    def for_run(self, earlier: LostRun | None = None) -> TextOptions:
        """Return the options with a copy of the vault, with the values of an earlier process of the run, if any.

        Raises ValueError if only that process had a vault.
        """
        state = None if earlier is None or earlier.vault is None else earlier.vault.state
        if state is not None and self.vault is None:
            raise ValueError("The run has a vault: write text=TextOptions(vault=…), with the rules of that vault.")
        return self if self.vault is None else replace(self, vault=self.vault.copy(state))


@dataclass(frozen=True)
class OutputOptions(Checked):
    """The type of the answer, and the number of retries if the answer does not have this type.

    - `type`: the type of the answer: a pydantic model, a dataclass, a TypedDict, another type, or a JSON schema.
    - `retries`: how often a chat asks the model again after an answer that does not have this type.
    """

    type: Any
    _: KW_ONLY
    retries: int = 0

    def __post_init__(self) -> None:
        check_number("retries", self.retries, 0, whole=True)

    @classmethod
    def of(cls, given: Any) -> OutputOptions:
        """Convert `given` to options. A value that is not an `OutputOptions` is the type of the answer."""
        return given if isinstance(given, OutputOptions) else cls(given)


def output_type(kind: Any) -> OutputType | None:
    """Convert the `type` of an `OutputOptions` to an `OutputType`. Returns None for None.

    Raises ValueError if a keyword of a JSON schema has an invalid value.
    """
    if kind is None:
        return None
    if isinstance(kind, Mapping):
        check_keywords(kind)
    return kind if isinstance(kind, OutputType) else OutputType(kind)


class StreamOptions(TypedDict, total=False):
    """The options that `ToolStream` and `chat` share. Annotates `**options` that a function passes to one of them.

    - `dialects`: the notations of calls in text that are read: a name, a list of names, `"auto"`, or `()` for none.
    - `native_tool_calls`: True if calls arrive in the provider's field for calls. Text is then never a call. False if
      the model writes calls into its text. None if unknown: both are read.
    - `tool_choice`: `"auto"`, `"none"`, `"required"` or the name of a tool. It is checked before a call runs.
    - `output`: the type of the answer, such as a pydantic model or a JSON schema, or an `OutputOptions`.
    - `guards`: the `Guards` that limit the run.
    - `resume`: the `suspension` of the run that continues, or its JSON, or a decided `Run`.
    - `run_id`: the id of the run. By default, the stream makes one.
    - `parser`: a `ParserOptions`, with the options for reading text.
    - `runner`: a `RunnerOptions`, with the options for running tools, such as a timeout or a ledger.
    - `approvals`: an `ApprovalOptions`, or the decisions about the calls in `resume`: a mapping of call ids.
    - `text`: a `TextOptions`, with rules for the visible text.
    """

    dialects: Dialects
    native_tool_calls: bool | None
    tool_choice: ToolChoice | str | Mapping[str, Any] | None
    output: Any
    guards: Guards | None
    resume: Suspension | DecidedRun | str | None
    run_id: str | None
    parser: ParserOptions
    runner: RunnerOptions
    approvals: ApprovalOptions | Decisions | None
    text: TextOptions


def homes_of(holders: Mapping[str, Any]) -> dict[str, str]:
    """Map the name of each field of the classes in `holders` to example code that sets the field."""
    return {
        option.name: f"{parameter}={kind.__name__}({option.name}=...)"
        for parameter, kind in holders.items()
        for option in fields(kind)
    }


HOLDERS: dict[str, Any] = {
    "approvals": ApprovalOptions,
    "output": OutputOptions,
    "parser": ParserOptions,
    "runner": RunnerOptions,
    "text": TextOptions,
}
"""The classes of option objects, by the parameters that accept them."""
HOMES = homes_of(HOLDERS)
"""Maps the name of each option field to example code that sets the field, for error messages."""
HOMES["text_rules"] = HOMES["rules"]  # `Parser` calls it `text_rules`


def parser_keywords(parser: ParserOptions, text: TextOptions, *, is_typed: bool = False) -> ParserKeywords:
    """Convert the options to keyword parameters of a `StreamMachine`. `is_typed` says whether the answer has a type."""
    restoring = [] if text.vault is None else [text.vault.rule(text.rules, in_json=is_typed)]
    return {
        **{option.name: getattr(parser, option.name) for option in fields(ParserOptions)},  # type: ignore[typeddict-item]
        "text_rules": [*restoring, *text.rules],
        "rules_in_reasoning": text.rules_in_reasoning,
        "history": "as_shown" if restoring else text.history,
    }

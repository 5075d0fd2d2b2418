"""The options of a parser, with their defaults.

Dialects define which text is a call. Options define how calls and text are handled: where calls are recognized, what
events hold, and whether JSON is repaired. An option applies to all dialects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from streamtools.calls import IdFactory, new_call_id
from streamtools.errors import Checked, check_function, check_kind
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.parsing.json_repair import load_library

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule


@dataclass(frozen=True, kw_only=True)
class ParserOptions(Checked):
    """The options that control how text is read. The defaults fit a model that learned its dialect from the prompt.

    - `in_reasoning`: whether the prompt template has already opened the reasoning, so that the text starts inside it.
    - `call_deltas`: whether `call-delta` events report arguments while they arrive, as pieces of their JSON.
    - `call_partials`: whether `partial` events with the call's id report arguments while they arrive, as parsed values.
    - `reasoning`: where tags such as `<think>` begin reasoning. `start`: at the start of the text and after a call.
      `anywhere`: everywhere except in code. `off`: nowhere.
    - `on_malformed`: how a malformed call is reported. `error`: by an `error` event, and its text is hidden. `text`: by
      a `warning` event, and its text is shown.
    - `after_call`: what happens to text after a call, where weak models invent the tool's result. `show`: it is shown.
      `hide`: it is hidden. `stop`: the answer ends.
    - `in_code`: whether a complete call inside Markdown code or a quote is text or a call. With None, each dialect
      decides.
    - `repair`: whether the malformed JSON of a call is repaired by guessing (extra `repair`). A call that was cut off
      is never repaired. Raw control characters inside JSON strings are always accepted.
    - `calls_at`: where dialects without a marker find calls. `start`: only at the start of a message and directly after
      a call. `anywhere`: also after prose. Even then, a call in a Markdown fence or in Python syntax must begin a line.
    - `keep_markup`: whether hidden text, such as markers and tags, is reported by `markup` events. The events then hold
      every character that was read, except characters over a limit.
    - `limits`: the size limits for the text of a model.
    - `new_id`: a function that returns a new call id. A deterministic function makes replays repeatable.
    """

    in_reasoning: bool = False
    call_deltas: bool = False
    call_partials: bool = False
    reasoning: Literal["start", "anywhere", "off"] = "start"
    on_malformed: Literal["error", "text"] = "error"
    after_call: Literal["show", "hide", "stop"] = "show"
    in_code: Literal["text", "call"] | None = None
    repair: bool = False
    calls_at: Literal["start", "anywhere"] = "start"
    keep_markup: bool = False
    limits: Limits = DEFAULT_LIMITS
    new_id: IdFactory = new_call_id

    def __post_init__(self) -> None:
        check_kind("limits", self.limits, Limits)
        if self.new_id is not new_call_id:  # checking a function takes time
            check_function("new_id", self.new_id)
        if self.repair:
            load_library()


@dataclass(frozen=True, kw_only=True)
class Options(ParserOptions):
    """All options of a `Parser`. They control how text is read, and how the visible text is changed.

    - `text_rules`: rules that find parts of the visible text, and replace, remove or mark them. Create rules with the
      functions of `streamtools.rules`.
    - `rules_in_reasoning`: whether the rules also apply to reasoning. A match cannot span text and reasoning.
    - `history`: the text in the history that is sent back to the model. `as_written`: the model's original text.
      `as_shown`: the text after the rules.
    """

    text_rules: Sequence[Rule] = ()
    rules_in_reasoning: bool = False
    history: Literal["as_written", "as_shown"] = "as_written"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.text_rules:
            from streamtools.rules.rule import check_rules  # few parsers use it

            check_rules(self.text_rules)

    @property
    def reasoning_rules(self) -> Sequence[Rule]:
        """The rules that apply to reasoning."""
        return [rule for rule in self.text_rules if self.rules_in_reasoning or rule.restores]


class ParserKeywords(TypedDict, total=False):
    """The fields of `Options`, as keyword arguments."""

    in_reasoning: bool
    call_deltas: bool
    reasoning: Literal["start", "anywhere", "off"]
    on_malformed: Literal["error", "text"]
    after_call: Literal["show", "hide", "stop"]
    in_code: Literal["text", "call"] | None
    calls_at: Literal["start", "anywhere"]
    call_partials: bool
    repair: bool
    keep_markup: bool
    limits: Limits
    new_id: IdFactory
    text_rules: Sequence[Rule]
    rules_in_reasoning: bool
    history: Literal["as_written", "as_shown"]

"""The policies of a parser: explicit, few, and with defaults.

What a text holds is a question of dialects; what becomes of it (where calls count, what is shown of markup, whether
JSON is repaired) is a question of policy, and each policy holds for all dialects alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from streamtools.calls import IdFactory, new_call_id
from streamtools.errors import check_word
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.parsing.json_repair import load_library

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule


@dataclass(frozen=True, kw_only=True)
class ParserOptions:
    """How text is read. Every field has the default that fits a model which is taught a dialect."""

    in_reasoning: bool = False
    """Whether the prompt template has already opened the reasoning, so that the text starts inside it."""
    call_deltas: bool = False
    """Whether `call-delta` events report arguments while they arrive, as pieces of their JSON."""
    call_partials: bool = False
    """Whether `partial` events with the call's id report arguments while they arrive, as parsed values."""
    reasoning: Literal["start", "anywhere", "off"] = "start"
    """Where tags like `<think>` count: where the text or what follows a call starts; anywhere but in code; never."""
    on_malformed: Literal["error", "text"] = "error"
    """Whether a malformed call is an `error` and stays hidden, or a `warning` and is shown as the text that it is."""
    after_call: Literal["show", "hide", "stop"] = "show"
    """What happens to text after a call, where weak models invent the tool's result: it is shown, it is hidden, or the
    answer ends."""
    in_code: Literal["text", "call"] | None = None
    """Whether a complete call inside Markdown code or a quote is text or a call; None leaves it to each dialect."""
    strict: bool = False
    """Whether raw control characters inside JSON strings are an error. Accepting them is the only repair that is on by
    default."""
    repair: bool = False
    """Whether malformed JSON of a call is repaired by a guess (extra `repair`). A call that was cut off never is."""
    calls_at: Literal["start", "anywhere"] = "start"
    """Where a dialect without a marker finds calls: only at the start of a message, or after prose too."""
    trim: bool = False
    """Whether white space next to a call is removed from the visible text."""
    keep_markup: bool = False
    """Whether the parser yields `markup` events too, so that its events together hold every character."""
    limits: Limits = DEFAULT_LIMITS
    """Size limits on what a model sends."""
    new_id: IdFactory = new_call_id
    """A function that returns a new call id. A deterministic one makes replays repeatable."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            check_word(name, getattr(self, name), allowed)
        if not isinstance(self.limits, Limits):
            raise ValueError(f"limits is a Limits, not {self.limits!r}")
        if not callable(self.new_id):
            raise ValueError(f"new_id is a function, not {self.new_id!r}")
        if self.repair:
            load_library()


@dataclass(frozen=True, kw_only=True)
class Options(ParserOptions):
    """All options of a `Parser`: how text is read, and what is changed in the visible text."""

    text_rules: Sequence[Rule] = ()
    """Rules that find and replace, remove or mark parts of the visible text. `streamtools.rules` creates them."""
    rules_in_reasoning: bool = False
    """Whether the rules apply to reasoning too, separately from the text."""
    history: Literal["as_written", "as_shown"] = "as_written"
    """Whether the history sent back to the model holds the text as the model wrote it, or as the rules left it."""
    pace: Literal["as_it_comes", "words", "graphemes"] = "as_it_comes"
    """How visible text is split: as it arrives, in whole words, or in whole graphemes (no half emoji)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in _TEXT_CHOICES.items():
            check_word(name, getattr(self, name), allowed)
        if self.text_rules:
            _check_rules(self.text_rules)


def _check_rules(given: object) -> None:
    from streamtools.rules.rule import Rule  # loaded when it is used

    if not (isinstance(given, Sequence) and all(isinstance(each, Rule) for each in given)):
        raise ValueError(f"text_rules is a list of rules, which `streamtools.rules` makes, not {given!r}")


_CHOICES: dict[str, tuple[object, ...]] = {
    "reasoning": ("start", "anywhere", "off"),
    "on_malformed": ("error", "text"),
    "after_call": ("show", "hide", "stop"),
    "in_code": ("text", "call", None),
    "calls_at": ("start", "anywhere"),
}
_TEXT_CHOICES: dict[str, tuple[object, ...]] = {
    "history": ("as_written", "as_shown"),
    "pace": ("as_it_comes", "words", "graphemes"),
}


class OtherOptions(TypedDict, total=False):
    """The fields of `Options` that have no parameter of their own, for functions that pass them on."""

    reasoning: Literal["start", "anywhere", "off"]
    on_malformed: Literal["error", "text"]
    after_call: Literal["show", "hide", "stop"]
    in_code: Literal["text", "call"] | None
    calls_at: Literal["start", "anywhere"]
    call_partials: bool
    strict: bool
    repair: bool
    trim: bool
    keep_markup: bool
    limits: Limits
    new_id: IdFactory
    text_rules: Sequence[Rule]
    rules_in_reasoning: bool
    history: Literal["as_written", "as_shown"]
    pace: Literal["as_it_comes", "words", "graphemes"]


class ParserKeywords(OtherOptions, total=False):
    """All fields of `Options`, for functions that pass them on."""

    in_reasoning: bool
    call_deltas: bool

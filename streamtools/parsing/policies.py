"""The policies of a parser: explicit, few, and with defaults.

What a text holds is a question of dialects; what becomes of it (where calls count, what is shown of markup, whether
JSON is repaired) is a question of policy, and each policy holds for all dialects alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from streamtools.calls import IdFactory, new_call_id
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.parsing.json_parts import load_library

if TYPE_CHECKING:
    from streamtools.rules.rule import Rule


@dataclass(frozen=True, kw_only=True)
class Options:
    """How text is read. Every field has the default that fits a model which is taught a dialect."""

    in_reasoning: bool = False
    """The template has already opened the reasoning, so the text starts inside it."""
    call_deltas: bool = False
    """Report arguments while they arrive, as pieces of their JSON."""
    call_partials: bool = False
    """Report what each piece of them adds to the arguments as a value: `partial` events with the call's id."""
    reasoning: Literal["start", "anywhere", "off"] = "start"
    """Where tags like `<think>` count: where the text or what follows a call starts; anywhere but in code; never."""
    on_malformed: Literal["error", "text"] = "error"
    """Whether a malformed call is an `error` and stays hidden, or a `warning` and is shown as the text that it is."""
    after_call: Literal["show", "hide", "stop"] = "show"
    """What becomes of text behind a call: weak models invent the tool's result there."""
    in_code: Literal["text", "call"] | None = None
    """What a complete call in a fence, a code span or a quote is; None leaves it to each dialect."""
    strict: bool = False
    """Refuse raw control characters inside JSON strings, the only repair that is on by default."""
    repair: bool = False
    """Put the JSON of malformed calls right where that can be guessed; needs the extra `repair`. Never of cut calls."""
    calls_at: Literal["start", "anywhere"] = "start"
    """Where calls count in dialects without a marker: at the start of a message, or behind prose as well."""
    trim: bool = False
    """Take white space next to a call out of the visible text."""
    keep_markup: bool = False
    """Yield `markup` events too, so that all events together hold every character."""
    limits: Limits = DEFAULT_LIMITS
    """What one model may make us hold."""
    new_id: IdFactory = new_call_id
    """Makes the ids of calls; inject one to make replays repeat."""
    text_rules: Sequence[Rule] = ()
    """What is looked for in the visible text, and what becomes of it; `streamtools.rules` makes them."""
    rules_in_reasoning: bool = False
    """Whether the rules read what the model thinks, too, apart from the text."""
    history: Literal["as_written", "as_shown"] = "as_written"
    """Whether the history that goes back to the model has what rules have found, or what was shown."""
    pace: Literal["as_it_comes", "words", "links", "graphemes"] = "as_it_comes"
    """Whether visible text comes as it does, in whole words, in these and whole links, or in whole graphemes: no half
    emoji, no mark apart."""

    def __post_init__(self) -> None:
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}, not {getattr(self, name)!r}")
        if not isinstance(self.limits, Limits):
            raise ValueError(f"limits is a Limits, not {self.limits!r}")
        if not callable(self.new_id):
            raise ValueError(f"new_id is a function, not {self.new_id!r}")
        if self.text_rules:
            _check_rules(self.text_rules)
        if self.repair:
            load_library()


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
    "history": ("as_written", "as_shown"),
    "pace": ("as_it_comes", "words", "links", "graphemes"),
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
    pace: Literal["as_it_comes", "words", "links", "graphemes"]


class ParserOptions(OtherOptions, total=False):
    """All fields of `Options`, for functions that pass them on."""

    in_reasoning: bool
    call_deltas: bool

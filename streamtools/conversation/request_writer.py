"""Writes the request for each answer of a chat: its history, tools, taught dialect and output type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from streamtools.conversation.emulation import Emulation
from streamtools.conversation.models.model import Ask, Model, instruct, takes_schema, with_type_in_prompt
from streamtools.conversation.prompts import add_teaching, augment_system_prompt
from streamtools.conversation.reply import paired
from streamtools.errors import Checked, check_methods
from streamtools.history import Message, calls_as_text
from streamtools.logs import Logger
from streamtools.parsing.dialects import ByName, Dialect, Dialects, enabled_dialects, is_default
from streamtools.tools import ToolRegistry

log = Logger(__name__)

_NO_CALLS = "Do not call tools now. Give your final answer."


@dataclass(frozen=True, kw_only=True)
class RequestOptions(Checked):
    """Options for every request of a chat. Raises ValueError or TypeError for a value that is not allowed.

    - `body`: fields that are merged into the body of each request.
    - `teach`: whether the system prompt teaches a dialect. `"auto"` teaches models whose `native_tool_calls` is False.
    - `emulation`: whether a separate request asks the model which tools to call. This is for models that make no calls.
      `"fallback"` asks after an answer without a call, and `"force"` instead of a normal request.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    teach: Literal["auto", "always", "never"] = "auto"
    emulation: Emulation = "off"

    def __post_init__(self) -> None:
        check_methods("body", self.body, 'a dict, such as {"temperature": 0}', "keys")
        if misplaced := [name for name in self.body if name in self.__dataclass_fields__]:
            raise TypeError(f"write request=RequestOptions({misplaced[0]}=...): it is not a field of the body")


class RequestWriter:
    """Adapts a request (`Ask`) to a model, depending on how the model calls tools and accepts an output type."""

    def __init__(
        self,
        options: RequestOptions,
        registry: ToolRegistry,
        dialects: Dialects,
        native_tool_calls: bool | None,
        output: Any,
        by_model: bool,
    ) -> None:
        """Create a writer. `output` is the `OutputType` of the answer, or None for an answer without a type.

        With `by_model`, the `native_tool_calls` of a model replaces the given value, unless it is None.
        """
        self.native_tool_calls = native_tool_calls
        """Whether the model makes native calls; None if unknown."""
        self.dialects = enabled_dialects(dialects, native_tool_calls)
        """The enabled dialects."""
        self._options = options
        self._registry = registry
        self._output = output
        self._by_model = by_model
        self._taught = _taught_dialect(dialects, self.dialects)
        self._can_teach = self._taught is not None and self._taught.teachable
        if native_tool_calls is False and options.teach == "auto" and not self._can_teach and len(registry):
            advice = "leave native_tool_calls unset, or pass another dialect"
            log.warning("tools_not_told", dialect=self._taught and self._taught.id, advice=advice)
        if options.teach == "always":
            self._teach(())  # raises ValueError if no prompt can teach the dialect

    def write(self, ask: Ask, model: Model) -> Ask:
        """Return the request for `model`."""
        teach, history, native = self._options.teach, paired(ask), self.native_tool_calls
        if self._by_model and model.native_tool_calls is not None:
            native = model.native_tool_calls
        if teach == "always" or (teach == "auto" and native is False and self._can_teach):
            history = self._teach(history)
        has_no_choice = getattr(model, "format", None) in ("bedrock", "ollama")  # their requests cannot forbid calls
        if ask.tool_choice.mode == "none" and ask.tools and (native is False or teach == "always" or has_no_choice):
            history = instruct(history, _NO_CALLS)
        if native is False:
            ask, history = replace(ask, tools=()), calls_as_text(history, self._taught, reserved=self.dialects)
        return self.with_type(replace(ask, history=tuple(history)), model)

    def with_type(self, ask: Ask, model: Model) -> Ask:
        """Return `ask` with the output type, as a schema or in the system prompt."""
        if self._output is None:
            return ask
        calls_natively = not len(self._registry) or bool(ask.tools)  # a call in text does not fit a schema
        if calls_natively and takes_schema(model, self._output, ask.options, tools=bool(ask.tools)):
            return replace(ask, output=self._output)
        return replace(ask, history=with_type_in_prompt(ask.history, self._output))

    def _teach(self, history: Sequence[Message]) -> Sequence[Message]:
        """Return a history whose system prompt teaches how to call tools."""
        if self._taught is None:
            return history
        taught_first = self._taught, *(dialect for dialect in self.dialects if dialect.id != self._taught.id)
        return add_teaching(history, augment_system_prompt(None, self._registry, taught_first))


def _taught_dialect(choice: Dialects, enabled: Sequence[Dialect]) -> Dialect | None:
    """Return the dialect that a prompt teaches, or None if no dialect is enabled.

    The first choice is the dialect that is known for the model's name. The second is `tilde_fence`, if the caller named
    no dialects. The third is the first enabled dialect.
    """
    may_default = is_default(choice) or choice == "auto"
    default = [dialect for dialect in enabled if dialect.id == "tilde_fence" and may_default]
    best = [choice.taught] if isinstance(choice, ByName) and enabled else default
    return next(filter(None, [*best, *default, *enabled]), None)

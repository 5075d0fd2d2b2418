"""How the model of one request is to call tools: natively, or in which text, and what it is told of that. Sans-IO.

What is told and how the history is written depends on the messages alone, each on its own: the next request of the
conversation begins with this one, and the upstream finds it in its cache. Only what is wished of this one answer stands
at its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from streamtools.calls import ToolCall
from streamtools.conversation.models.http_model import calls_natively_at
from streamtools.conversation.prompts import Example, augment_system_prompt, few_shot, put_section
from streamtools.gateway.client_requests import Asked, as_tools, definitions_of, remembered, tools_of
from streamtools.history import Assistant, Message, System, User, calls_as_text, plain_said, read_messages, settle
from streamtools.logs import Logger
from streamtools.parsing.dialects import DIALECTS, Dialect, Dialects, choose_dialects, dialects_for, for_model
from streamtools.parsing.dialects.neutralising import neutralise

_log = Logger(__name__)

Mode: TypeAlias = Literal["text", "native", "auto"]
"""How models are made to call: taught in text, by the upstream, or by the upstream unless calls leak into its text."""

Modes: TypeAlias = Mode | Mapping[str, Mode]
"""One for all models, or by patterns of their names."""

WRITTEN = "text_"
"""What the ids of calls in text hold: a history tells by them that its calls are none that the upstream has made."""


class Plan(NamedTuple):
    """How the calls of one answer are asked for, and read."""

    dialects: tuple[Dialect, ...]
    """Those that are read."""
    taught: Dialect | None
    """The one that is taught, and in which the history is written; None: the upstream is sent the tools."""
    alone: bool = False
    """Whether the answer is to be a call as JSON alone, to which the upstream keeps its model."""

    @property
    def native(self) -> bool | None:
        """Whether native calls count: as the machine wants to know it."""
        return False if self.taught else None if self.dialects else True


def mode_of(modes: Modes, model: str) -> Mode:
    """Return the mode of the first pattern that fits a name; `"text"` if none does.

    A pattern with `*`, `?` or `[` fits a whole name, and any other one a part of it.

    >>> mode_of({"gemma": "text", "*": "native"}, "google/Gemma-3-4b")
    'text'
    """
    if isinstance(modes, str):
        return modes
    name = model.lower()
    patterns = ((each.lower() if set(each) & set("*?[") else f"*{each.lower()}*", mode) for each, mode in modes.items())
    return next((mode for pattern, mode in patterns if fnmatchcase(name, pattern)), "text")


def make_plan(mode: Mode, dialects: Dialects, asked: Asked, host: str | None) -> Plan:
    """Return how this request is to be answered by the upstream at `host`."""
    if mode == "text":
        return teaching(dialects, asked.model)
    if mode == "native":
        return Plan(() if dialects is None else choose_dialects(dialects), None)
    if calls_natively_at(host or "") or any(WRITTEN not in call.id for call in calls_in(asked.history)):
        return Plan((), None)  # in the history, by ids that are not ours
    if dialects is None:
        dialects = dialects_for(asked.model) or _tell_unknown(asked.model)
    return Plan(choose_dialects(dialects), None)


@lru_cache(maxsize=256)
def _tell_unknown(model: str) -> tuple[str, ...]:
    """Log, once for each name, that calls in the text of this model are not found: nobody knows how it writes them."""
    _log.warning("model_unknown", model=model, advice="name its dialects: mode 'auto' finds no call in its text")
    return ()


def teaching(dialects: Dialects, model: str = "") -> Plan:
    """Return the plan of mode `"text"`: the first of the dialects is taught. Raises ValueError for one that cannot.

    Where none is named, it is the one that models of this name write, if it has a marker, and else `tilde_fence`.
    """
    if dialects is None:
        usual = for_model(model, False)
        taught = (usual and usual.taught) or DIALECTS["tilde_fence"]
        return Plan((taught, *(each for each in choose_dialects(usual) if each.id != taught.id)), taught)
    chosen = choose_dialects(dialects)
    if not chosen or not chosen[0].teachable:
        named = f"{chosen[0].id!r} cannot" if chosen else "none can"
        advice = "'tilde_fence' can, and mode 'native' only reads them"
        raise ValueError(f"mode 'text' teaches the first of the dialects, and {named} be taught; {advice}")
    return Plan(chosen, chosen[0])


def calls_in(history: Iterable[Message]) -> Iterator[ToolCall]:
    return (call for each in history if isinstance(each, Assistant) for call in each.calls)


def history_for(asked: Asked, plan: Plan, examples: bool | Sequence[Example]) -> list[Message]:
    """Return the history as the upstream is to read it."""
    history = [_plain(each, plan.dialects) for each in asked.history] if plan.dialects else asked.history
    if plan.taught is None:
        return history
    taught = _teach(settle(history, "cancelled"), asked, plan.dialects, examples)
    return calls_as_text(taught, plan.taught, reserved=plan.dialects)


def _plain(message: Message, dialects: Sequence[Dialect]) -> Message:
    """Return a message whose text the model may repeat without calling anything; results are neutralised in place."""
    if isinstance(message, User):
        content = message.content
        if isinstance(content, str):
            return replace(message, content=neutralise(content, dialects))
        texts = [(each, each.get("text")) for each in content]
        parts = [each | {"text": neutralise(text, dialects)} if isinstance(text, str) else each for each, text in texts]
        return replace(message, content=parts)
    if isinstance(message, Assistant):
        return plain_said(message, dialects)
    return message


def _teach(
    history: list[Message], asked: Asked, enabled: tuple[Dialect, ...], examples: bool | Sequence[Example]
) -> list[Message]:
    """Return the history with the tools in its system prompt, unless none may be called."""
    if asked.choice.mode == "none" or not asked.tools:
        return history
    tools = as_tools(asked.tools)
    first = history[0] if history else None
    base, rest = (first.text, history[1:]) if isinstance(first, System) else (None, history)
    names = {tool.name for tool in tools}
    given = () if isinstance(examples, bool) else [each for each in examples if each.name in names]
    shown = read_messages(few_shot(enabled, tools, given)) if examples else []
    return [System(put_section(base, _section(definitions_of(asked.tools), enabled))), *shown, *rest]


@remembered
def _section(definitions: bytes, enabled: tuple[Dialect, ...]) -> str:
    """Return what the system prompt says of the tools."""
    return augment_system_prompt(None, tools_of(definitions), enabled)


def wish_of(asked: Asked, plan: Plan) -> str:
    """Return what a model is told of this one answer; "" if there is nothing to be told."""
    if not asked.tools or asked.choice.mode == "none":
        return ""
    sentences = []
    if asked.allowed is not None:
        sentences.append(f"Of the tools, use none but these in your answer: {', '.join(asked.allowed)}.")
    several = "an array of JSON objects" if asked.parallel and not asked.choice.name else "a JSON object"
    form = ", in the form that you were told" if plan.taught else ""
    if plan.alone:
        form = f', as {several} with "name" and "arguments", and nothing else'
    if asked.choice.mode == "tool":
        sentences.append(f"Your answer has to be a call of the tool {asked.choice.name}{form}.")
    elif asked.choice.mode == "required":
        sentences.append(f"Your answer has to call a tool{form}.")
    if not asked.parallel:
        sentences.append("Make one call at most.")
    return " ".join(sentences)


def add_wish(messages: list[dict[str, Any]], wish: str) -> None:
    """Put what is wished of this answer behind the user's last words, or behind all, if those are not the last."""
    last = messages[-1] if messages else {}
    if not wish:
        return
    if last.get("role") != "user":
        messages.append({"role": "user", "content": wish})
    elif isinstance(last["content"], str):
        last["content"] = f"{last['content']}\n\n{wish}"
    else:
        last["content"].append({"type": "text", "text": wish})

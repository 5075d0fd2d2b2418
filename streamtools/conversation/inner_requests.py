"""The requests that emulation makes beside the caller's own: how they are written, and which errors lead to them.

They offer no tools, so the calls and results of earlier turns stand in them as plain text: providers refuse a history
with calls in a request without tools, and a model that cannot see results asks for them again. Options are a
provider's own, and a model has some that no request names; so what must not be sent is taken out by a None.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from streamtools.conversation.decision import write_question
from streamtools.conversation.models.base import AUTO, Ask
from streamtools.events import SourceError
from streamtools.history import System, calls_as_text

_OF_TOOLS = ("tools", "tool_choice", "toolConfig", "tool_config", "parallel_tool_calls", "functions", "function_call")
_OF_THE_ANSWER = (
    *("stop", "stop_sequences", "stopSequences", "max_tokens", "max_completion_tokens", "max_output_tokens"),
    *("maxOutputTokens", "num_predict", "response_format", "format", "text", "responseMimeType", "responseSchema"),
)
"""Options that would cut or shape a decision, in every provider's spelling."""
_INSIDE = ("options", "generationConfig")  # objects of Ollama and of Gemini that hold them

_OTHER_FAULTS = (401, 402, 403, 408, 409, 429)  # which say nothing about tools, whatever their words
_TOOLS = r"\b(?:tool(?:s|[ _-]?(?:use|call|calls|calling|choice))?|function(?:s|[ _-]?(?:call|calls|calling))?)\b"
_refusal = re.compile(
    rf"{_TOOLS}[^.\n]{{0,60}}(?:\bnot|n't|\bun)[ -]?(?:\w+ ){{0,2}}(?:support|available|enabled)"  # are not supported
    rf"|(?:\b(?:not|no)\b|n't|\bun(?=support))[^.\n]{{0,60}}support[^.\n]{{0,60}}{_TOOLS}"  # does not support tools
    rf"|{_TOOLS}[^.\n]{{0,20}} requires? --",  # an option of the server's
    re.IGNORECASE,
)


def ask_for_decision(ask: Ask, *, quote_system: bool, options: Mapping[str, Any]) -> Ask:
    """Return the request whether tools are needed to answer `ask`; its own `options` come last."""
    system = "\n\n".join(message.text for message in ask.history if isinstance(message, System))
    question = write_question(ask.tools, ask.tool_choice, system if quote_system else "")
    history = [message for message in calls_as_text(ask.history) if not isinstance(message, System)]
    kept = without(ask.options, _OF_TOOLS + _OF_THE_ANSWER)
    return Ask(
        history=(System(question), *history),
        options={name: value for name, value in kept.items() if name not in options} | dict(options),
        dialects=ask.dialects,
    )


def ask_without_tools(ask: Ask) -> Ask:
    """Return the request that is answered where no tool is needed."""
    history = tuple(calls_as_text(ask.history))
    return replace(ask, history=history, tools=(), tool_choice=AUTO, options=without(ask.options, _OF_TOOLS))


def without(options: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return options that take `names` out of a request, those of the model too.

    >>> without({"stop": ["a"], "options": {"stop": "b", "seed": 1}}, ("stop",))
    {'stop': None, 'options': {'seed': 1}}
    """
    kept: dict[str, Any] = dict.fromkeys(names)
    for name, value in options.items():
        if name in _INSIDE and isinstance(value, Mapping):
            kept[name] = {inner: each for inner, each in value.items() if inner not in names}
        elif name not in names:
            kept[name] = value
    return kept


def refuses_tools(error: SourceError) -> bool:
    """Return whether a provider says that its model, or its server, knows no tools.

    >>> refuses_tools(SourceError("registry.ollama.ai/library/phi3:latest does not support tools", status=400))
    True
    """
    if error.status in _OTHER_FAULTS or "schema" in error.message.lower():
        return False
    return _refusal.search(error.message) is not None

"""Anthropic's Messages."""

from __future__ import annotations

from typing import Any

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.body import complete, definitions
from streamtools.conversation.models.http import HTTPModel
from streamtools.history import system_prompt, write_messages
from streamtools.tools import ToolChoice

MAX_TOKENS = 8192
"""Of an answer, where no option says otherwise; the provider has no default."""

_NAMES = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
_MODES = {"none": "none", "required": "any"}


class AnthropicMessages(HTTPModel):
    """A model behind `/v1/messages`; the key is that of `ANTHROPIC_API_KEY`."""

    format = "anthropic"
    _home = "https://api.anthropic.com"
    _key_names = ("ANTHROPIC_API_KEY",)

    def body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.name, "max_tokens": MAX_TOKENS}
        if system := system_prompt(ask.history):
            body["system"] = system
        body |= {"messages": write_messages(ask.history, "anthropic", dialects=ask.dialects), "stream": True}
        if ask.tools:
            body["tools"] = definitions(ask, "anthropic")
            if ask.tool_choice.mode != "auto":
                body["tool_choice"] = _choice(ask.tool_choice)
        body = complete(body, self.options, ask.options, names=_NAMES)
        body.setdefault("max_tokens", MAX_TOKENS)  # without it nothing is answered
        return body

    def _path(self) -> str:
        return "/v1/messages"

    def _authorise(self, key: str) -> dict[str, str]:
        return {"x-api-key": key}

    def _extra_headers(self) -> dict[str, str]:
        return {"anthropic-version": "2023-06-01"}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode == "tool":  # it means one call
        return {"type": "tool", "name": choice.name, "disable_parallel_tool_use": True}
    return {"type": _MODES[choice.mode]}

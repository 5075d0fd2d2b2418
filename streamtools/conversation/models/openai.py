"""Chat completions: of OpenAI, and of the many servers that speak like it (vLLM, llama.cpp, SGLang, OpenRouter, …)."""

from __future__ import annotations

from typing import Any

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.body import definitions, merge
from streamtools.conversation.models.http import HTTPModel
from streamtools.history import write_messages
from streamtools.tools import ToolChoice


class OpenAIChat(HTTPModel):
    """A model behind `/chat/completions`; the key is that of `OPENAI_API_KEY`.

    The request asks for usage at the end of the stream. A server that refuses the option it is asked with gets none
    with `stream_options=None`.
    """

    format = "openai"
    _home = "https://api.openai.com/v1"
    _key_names = ("OPENAI_API_KEY",)

    def body(self, ask: Ask) -> dict[str, Any]:
        return chat_body(self.name, ask, self.options)

    def _path(self) -> str:
        return "/chat/completions"


def chat_body(model: str, ask: Ask, options: dict[str, Any]) -> dict[str, Any]:
    """Return the body of a chat completion request."""
    body: dict[str, Any] = {
        "model": model,
        "messages": write_messages(ask.history, "openai", dialects=ask.dialects),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if ask.tools:
        body["tools"] = definitions(ask, "openai")
        if ask.tool_choice.mode != "auto":
            body["tool_choice"] = _choice(ask.tool_choice)
    return merge(body, options, ask.options)


def _choice(choice: ToolChoice) -> str | dict[str, Any]:
    return choice.mode if choice.mode != "tool" else {"type": "function", "function": {"name": choice.name}}

"""Ollama's own `/api/chat`, which tells more than its imitation of OpenAI: thoughts, the time to load, the context."""

from __future__ import annotations

from typing import Any

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.body import complete, definitions
from streamtools.conversation.models.http import HTTPModel
from streamtools.history import write_messages

_NAMES = {
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
    "num_predict": "num_predict",
    "num_ctx": "num_ctx",
    "stop": "stop",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "seed": "seed",
    "repeat_penalty": "repeat_penalty",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}


class OllamaChat(HTTPModel):
    """A model of an Ollama server, by default of the one on this machine; the key is that of `OLLAMA_API_KEY`.

    Ollama has no `tool_choice`: for `none` no tools are sent, for a named tool only that one.
    """

    format = "ollama"
    _home = "http://127.0.0.1:11434"
    _key_names = ("OLLAMA_API_KEY",)

    def body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "messages": write_messages(ask.history, "ollama", dialects=ask.dialects),
            "stream": True,
        }
        choice = ask.tool_choice
        offered = [] if choice.mode == "none" else definitions(ask, "ollama")
        if choice.mode == "tool":
            offered = [each for each in offered if each["function"]["name"] == choice.name]
        if offered:
            body["tools"] = offered
        return complete(body, self.options, ask.options, inside="options", names=_NAMES)

    def _path(self) -> str:
        return "/api/chat"

"""OpenAI's Responses."""

from __future__ import annotations

from typing import Any

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.body import complete, definitions
from streamtools.conversation.models.http import HTTPModel
from streamtools.history import write_messages

_NAMES = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}


class OpenAIResponses(HTTPModel):
    """A model behind `/responses`; the key is that of `OPENAI_API_KEY`.

    The whole history is sent each time. Whether the provider keeps it is the provider's default: `store=False` forbids
    it, and models that reason then need `include=["reasoning.encrypted_content"]` to be told what they thought.
    """

    format = "responses"
    _home = "https://api.openai.com/v1"
    _key_names = ("OPENAI_API_KEY",)

    def body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.name,
            "input": write_messages(ask.history, "responses", dialects=ask.dialects),
            "stream": True,
        }
        if ask.tools:
            body["tools"] = definitions(ask, "responses")
            if ask.tool_choice.mode == "tool":
                body["tool_choice"] = {"type": "function", "name": ask.tool_choice.name}
            elif ask.tool_choice.mode != "auto":
                body["tool_choice"] = ask.tool_choice.mode
        return complete(body, self.options, ask.options, names=_NAMES)

    def _path(self) -> str:
        return "/responses"

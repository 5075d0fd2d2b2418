"""Models whose requests are steps of a conversation: Google's Interactions, and Mistral's conversations.

Both can keep a conversation. With Google a request may name the last interaction (`previous_id`); to Mistral the whole
history is sent each time, and nothing is kept unless `store=True` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from streamtools.conversation.models.http_model import Ask, Body, HTTPModel, complete, offer
from streamtools.history import system_prompt
from streamtools.tools import ToolChoice

_IN_CONFIG = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "max_output_tokens"),
    **dict.fromkeys(("stop", "stop_sequences"), "stop_sequences"),
    **{name: name for name in ("temperature", "top_p", "seed", "thinking_level", "thinking_summaries")},
}
_IN_ARGUMENTS = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens"), "max_tokens"),
    **dict.fromkeys(("seed", "random_seed"), "random_seed"),
    **{name: name for name in ("stop", "temperature", "top_p", "presence_penalty", "frequency_penalty")},
    **{name: name for name in ("response_format", "reasoning_effort", "prediction")},
}


class GeminiInteractions(HTTPModel):
    """A model of Google's behind `/interactions`; the key is that of `GOOGLE_API_KEY`, or else of `GEMINI_API_KEY`.

    The whole history is sent each time, unless `previous_id` says that requests go on with the last interaction.
    Google keeps interactions unless `store=False` forbids it.
    """

    format = "interactions"
    _stream = "gemini"
    _home = "https://generativelanguage.googleapis.com/v1beta"
    _endpoint = "/interactions"
    key_names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    _key_header = "x-goog-api-key"
    _own_headers: ClassVar[Mapping[str, str]] = {"Api-Revision": "2026-05-20"}
    _previous = "previous_interaction_id"

    def body(self, ask: Ask) -> Body:
        def choose(choice: ToolChoice) -> Body:
            mode = "none" if choice.mode == "none" else "any"
            allowed = {"allowed_tools": {"mode": mode, "tools": [choice.name]}}
            return {"generation_config": {"tool_choice": allowed if choice.mode == "tool" else mode}}

        previous, written = self._write(ask)
        body: Body = {"model": self.name, **previous, "input": written, "stream": True}
        if system := system_prompt(ask.history):
            body["system_instruction"] = system
        body = offer(body, ask, "interactions", choose)
        return complete(body, self.options, ask.options, inside="generation_config", names=_IN_CONFIG)


class MistralConversations(HTTPModel):
    """A model behind Mistral's `/conversations`; the key is that of `MISTRAL_API_KEY`.

    With the option `agent_id` an agent is asked, which has a model of its own. For a named tool, only that one is sent.
    """

    format = "mistral"
    _home = "https://api.mistral.ai/v1"
    _endpoint = "/conversations"
    key_names = ("MISTRAL_API_KEY",)

    def body(self, ask: Ask) -> Body:
        if ask.tool_choice.mode == "tool":
            ask = replace(ask, tools=tuple(each for each in ask.tools if each.name == ask.tool_choice.name))
        _, written = self._write(ask)
        body: Body = {"model": self.name, "inputs": written, "stream": True, "store": False}
        if system := system_prompt(ask.history):
            body["instructions"] = system
        wish = "none" if ask.tool_choice.mode == "none" else "required"
        body = offer(body, ask, "mistral", lambda _: {"completion_args": {"tool_choice": wish}})
        body = complete(body, self.options, ask.options, inside="completion_args", names=_IN_ARGUMENTS)
        if body.get("agent_id"):
            body.pop("model", None)
        return body

"""Gemini models behind the Interactions API, which stores conversations if the application allows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streamtools.conversation.models.http_model import Ask, Body, HTTPModel, complete, offer
from streamtools.history import system_prompt
from streamtools.tools import ToolChoice

_IN_CONFIG = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "max_output_tokens"),
    **dict.fromkeys(("stop", "stop_sequences"), "stop_sequences"),
    **{name: name for name in ("temperature", "top_p", "seed", "thinking_level", "thinking_summaries")},
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

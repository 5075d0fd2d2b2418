"""Gemini's `streamGenerateContent`."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from streamtools.conversation.models.base import Ask
from streamtools.conversation.models.body import complete, definitions
from streamtools.conversation.models.http import HTTPModel
from streamtools.history import system_prompt, write_messages
from streamtools.tools import ToolChoice

_NAMES = {
    "max_tokens": "maxOutputTokens",
    "max_completion_tokens": "maxOutputTokens",
    "maxOutputTokens": "maxOutputTokens",
    "stop": "stopSequences",
    "stopSequences": "stopSequences",
    "temperature": "temperature",
    "top_p": "topP",
    "topP": "topP",
    "top_k": "topK",
    "topK": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "thinkingConfig": "thinkingConfig",
    "responseMimeType": "responseMimeType",
    "responseSchema": "responseSchema",
}


class GeminiChat(HTTPModel):
    """A model of Google's; the key is that of `GOOGLE_API_KEY`, or else of `GEMINI_API_KEY`, never in the URL."""

    format = "gemini"
    _home = "https://generativelanguage.googleapis.com/v1beta"
    _key_names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")

    def body(self, ask: Ask) -> dict[str, Any]:
        body: dict[str, Any] = {"contents": write_messages(ask.history, "gemini", dialects=ask.dialects)}
        if system := system_prompt(ask.history):
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if ask.tools:
            body["tools"] = definitions(ask, "gemini")
            if ask.tool_choice.mode != "auto":
                body["toolConfig"] = {"functionCallingConfig": _choice(ask.tool_choice)}
        return complete(body, self.options, ask.options, inside="generationConfig", names=_NAMES)

    def _path(self) -> str:
        kind, slash, name = self.name.partition("/")
        if not slash or kind not in ("models", "tunedModels"):
            kind, name = "models", self.name
        return f"/{kind}/{quote(name, safe='')}:streamGenerateContent?alt=sse"

    def _authorise(self, key: str) -> dict[str, str]:
        return {"x-goog-api-key": key}


def _choice(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode == "tool":
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": "NONE" if choice.mode == "none" else "ANY"}

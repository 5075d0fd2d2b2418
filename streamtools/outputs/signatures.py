"""Signatures of reasoning, text and calls, and encrypted reasoning, on their way through a client.

A provider needs them back in the next request. A client may keep them, because it cannot forge them; other data of the
provider stays on the server. Each is sent with the format of its provider, which alone accepts it: under the AI SDK's
names of providers and fields, or as one opaque string for AG-UI.

Source: the AI SDK's packages `@ai-sdk/anthropic`, `amazon-bedrock`, `google`, `openai`, `openai-compatible`, and
`@openrouter/ai-sdk-provider`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamtools.calls import ToolCall
from streamtools.events import Raw, Reasoning
from streamtools.outputs.sse import present, to_json

_AI_SDK_PROVIDERS = {"responses": "openai", "gemini": "google", "openai": "openaiCompatible"}
"""Providers that the AI SDK names differently from the format."""


class Signature(NamedTuple):
    """What protects one part of a turn: a signature, or the encrypted entries of `reasoning_details`."""

    format: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    details: list[dict[str, Any]] | None = None
    is_reasoning: bool = False

    def as_metadata(self) -> dict[str, dict[str, Any]]:
        """Return it as `providerMetadata` of the AI SDK."""
        if self.details is not None:
            return {"openrouter": {"reasoning_details": self.details}}
        if self.format == "responses":
            fields = present(itemId=self.id, reasoningEncryptedContent=self.signature)
        elif self.redacted:
            fields = {"redactedData": self.signature}
        else:
            name = "signature" if self.is_reasoning and self.format != "gemini" else "thoughtSignature"
            fields = {name: self.signature}
        return {_AI_SDK_PROVIDERS.get(self.format, self.format): fields}

    def as_string(self) -> str:
        """Return it as one string."""
        fields = present(format=self.format, signature=self.signature, id=self.id, reasoning_details=self.details)
        return to_json(fields | ({"redacted": True} if self.redacted else {})).decode()


def reasoning_signature(event: Reasoning, format: str | None) -> Signature | None:
    """Return the signature of a piece of reasoning of this format, None if it has none or the format is unknown."""
    if event.signature and format:
        return Signature(format, event.signature, event.id, event.redacted, is_reasoning=True)
    details = (event.own or {}).get("openai", {}).get("reasoning_details")
    entries = [entry for entry in details if entry.get("data") or entry.get("signature")] if details else []
    return Signature("openai", details=entries, is_reasoning=True) if entries else None


def text_signature(event: Raw) -> Signature | None:
    """Return the signature of the text before this event. Only Gemini signs text."""
    signature = event.data.get("thoughtSignature") if isinstance(event.data, dict) else None
    return Signature("gemini", signature) if isinstance(signature, str) and signature else None


def call_signature(call: ToolCall, format: str | None) -> Signature | None:
    return Signature(format, call.signature) if call.signature and format else None

"""Writes the signatures of reasoning, text and calls, and encrypted reasoning, for clients to keep.

The provider requires them in the next request. The client may keep them, because it cannot forge them. Other data that
the next request must contain is not sent to clients. Each signature is sent together with the message format of its
provider, because no other provider accepts it. The AI SDK has its own names for providers and fields. For AG-UI, a
signature is one opaque string.

Source: the AI SDK's packages `@ai-sdk/anthropic`, `amazon-bedrock`, `google`, `openai`, `openai-compatible`, and
`@openrouter/ai-sdk-provider`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamtools.calls import ToolCall
from streamtools.events import Raw, Reasoning
from streamtools.outputs.sse import present, to_json

_AI_SDK_PROVIDERS = {"responses": "openai", "gemini": "google", "openai": "openaiCompatible"}
"""Maps a format to the name of the provider in the AI SDK, if it differs from the format."""


class Signature(NamedTuple):
    """A signature of one part of a turn, or encrypted reasoning.

    `format` is the message format of the provider. `signature` is the signature, or the encrypted text if `redacted` is
    True. For OpenRouter, `details` holds the signed or encrypted entries of `reasoning_details` instead. `id` is the id
    of the part, if the provider has sent one. `is_reasoning` is False for the signature of a text or a call.
    """

    format: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    details: list[dict[str, Any]] | None = None
    is_reasoning: bool = False

    def as_metadata(self) -> dict[str, dict[str, Any]]:
        """Return the signature as `providerMetadata` of the AI SDK."""
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
        """Return the signature and its format as one JSON string."""
        fields = present(format=self.format, signature=self.signature, id=self.id, reasoning_details=self.details)
        return to_json(fields | ({"redacted": True} if self.redacted else {})).decode()


def reasoning_signature(event: Reasoning, format: str | None) -> Signature | None:
    """Return the signature of a reasoning event, or None. `format` is the message format of the provider, or None."""
    if event.signature and format:
        return Signature(format, event.signature, event.id, event.redacted, is_reasoning=True)
    details = (event.own or {}).get("openai", {}).get("reasoning_details")
    entries = [entry for entry in details if entry.get("data") or entry.get("signature")] if details else []
    return Signature("openai", details=entries, is_reasoning=True) if entries else None


def text_signature(event: Raw) -> Signature | None:
    """Return the signature in `event` for the text before the event, or None. Only Gemini signs text."""
    signature = event.data.get("thoughtSignature") if isinstance(event.data, dict) else None
    return Signature("gemini", signature) if isinstance(signature, str) and signature else None


def call_signature(call: ToolCall, format: str | None) -> Signature | None:
    return Signature(format, call.signature) if call.signature and format else None

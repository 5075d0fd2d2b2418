"""What comes back through a client: signatures of reasoning, of texts and of calls, and reasoning that is encrypted.

Nobody can forge it, so the next request may hold it although a client has kept it meanwhile; what else a provider puts
into a turn stays on the server. It goes out with the format of its provider, because it is for that one alone: under
the AI SDK's names of providers and fields, or as one opaque text, for AG-UI.

Source: the AI SDK's packages `@ai-sdk/anthropic`, `amazon-bedrock`, `google`, `openai`, `openai-compatible`, and
`@openrouter/ai-sdk-provider`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamtools.calls import ToolCall
from streamtools.events import Raw, Reasoning
from streamtools.outputs.encoder import present, to_json

_PROVIDERS = {"responses": "openai", "gemini": "google", "openai": "openaiCompatible"}
"""Whose names differ from that of the format."""


class Protected(NamedTuple):
    """What one part of a turn is protected by: a signature, or the encrypted entries of `reasoning_details`."""

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
            held = present(itemId=self.id, reasoningEncryptedContent=self.signature)
        elif self.redacted:
            held = {"redactedData": self.signature}
        else:
            name = "signature" if self.is_reasoning and self.format != "gemini" else "thoughtSignature"
            held = {name: self.signature}
        return {_PROVIDERS.get(self.format, self.format): held}

    def as_value(self) -> str:
        """Return it as one text."""
        rest = {"redacted": True} if self.redacted else {}
        held = present(format=self.format, signature=self.signature, id=self.id, reasoning_details=self.details)
        return to_json(held | rest).decode()


def of_reasoning(event: Reasoning, format: str | None) -> Protected | None:
    """Return what protects a piece of reasoning of this format; None if nothing does, or the format is not known."""
    if event.signature and format:
        return Protected(format, event.signature, event.id, event.redacted, is_reasoning=True)
    details = (event.own or {}).get("openai", {}).get("reasoning_details")
    entries = [each for each in details if each.get("data") or each.get("signature")] if details else []
    return Protected("openai", details=entries, is_reasoning=True) if entries else None


def of_text(event: Raw) -> Protected | None:
    """Return what signs the text before this event; only Gemini signs texts."""
    signature = event.data.get("thoughtSignature") if isinstance(event.data, dict) else None
    return Protected("gemini", signature) if isinstance(signature, str) and signature else None


def of_call(call: ToolCall, format: str | None) -> Protected | None:
    return Protected(format, call.signature) if call.signature and format else None

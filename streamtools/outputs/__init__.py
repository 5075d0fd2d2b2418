"""UI events to the wire: encoders for front ends, sans-IO.

Each of these makes an `Encoder` for one response. `outputs.asgi`, which sends them, needs the extra `web` and is
imported by its own name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from streamtools.machine.event_order import Grammar, validate
from streamtools.outputs.ag_ui import AGUIEncoder
from streamtools.outputs.ai_sdk_parts import AISDKEncoder
from streamtools.outputs.anthropic_events import AnthropicEncoder
from streamtools.outputs.encoder import Encoder, NativeEncoder
from streamtools.outputs.openai_chunks import OpenAIEncoder
from streamtools.outputs.plain_text import TextEncoder
from streamtools.outputs.responses_events import ResponsesEncoder

__all__ = [
    "FORMATS", "Encoder", "Format", "Grammar", "ag_ui", "ai_sdk", "anthropic", "make_encoder", "native", "openai",
    "responses", "text", "validate",
]  # fmt: skip


native = NativeEncoder
ai_sdk = AISDKEncoder
ag_ui = AGUIEncoder
openai = OpenAIEncoder
responses = ResponsesEncoder
anthropic = AnthropicEncoder
text = TextEncoder

FORMATS: dict[str, Callable[[], Encoder]] = {
    "native": native,
    "ai_sdk": ai_sdk,
    "ag_ui": ag_ui,
    "openai": openai,
    "responses": responses,
    "anthropic": anthropic,
    "text": text,
}
"""What makes the encoder of each format, as it is without options."""

Format: TypeAlias = str | Callable[[], Encoder] | Encoder
"""A format by its name, a function that makes an encoder, or an encoder."""


def make_encoder(format: Format) -> Encoder:
    """Return an encoder for one response. Raises ValueError for a name that is none of a format."""
    if isinstance(format, str):
        if format not in FORMATS:
            raise ValueError(f"format is one of {', '.join(FORMATS)}, or makes an encoder, and not {format!r}")
        return FORMATS[format]()
    return format() if callable(format) else format


def check_superseding(encoder: Encoder, run_or_stream: object) -> None:
    """Raise ValueError if a stream may take back steps that its reader has seen, and an encoder cannot tell that."""
    if getattr(run_or_stream, "supersedes", False) and not getattr(encoder, "replaces", False):
        raise ValueError(
            f"{type(encoder).__name__} cannot take back what its reader has seen, as on_break='restart_step' asks for; "
            "use the native format, or on_break='continue'"
        )

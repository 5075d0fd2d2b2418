"""Encoders, which convert UI events to the bytes of a front end's protocol. Sans-IO.

Each class is an `Encoder` for one response. The module `outputs.asgi` sends the bytes. It needs the extra `web`, so
import it separately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from streamtools.errors import check_function, check_word, described, has_methods
from streamtools.loading import load_later
from streamtools.machine.event_order import Grammar, validate
from streamtools.outputs.ag_ui_events import AGUIEncoder as ag_ui
from streamtools.outputs.ai_sdk_parts import AISDKEncoder as ai_sdk
from streamtools.outputs.anthropic_events import AnthropicEncoder as anthropic
from streamtools.outputs.custom import CustomEncoder as custom
from streamtools.outputs.custom import Message
from streamtools.outputs.openai_chunks import OpenAIEncoder as openai
from streamtools.outputs.responses_events import ResponsesEncoder as responses
from streamtools.outputs.sse import Encoder
from streamtools.outputs.sse import NativeEncoder as native
from streamtools.outputs.sse import TextEncoder as text

if TYPE_CHECKING:
    from streamtools.outputs import asgi as asgi

__all__ = [
    "FORMATS", "Encoder", "Format", "Grammar", "Message", "ag_ui", "ai_sdk", "anthropic", "custom", "make_encoder",
    "native", "openai", "responses", "text", "validate",
]  # fmt: skip

load_later(globals(), {"asgi": "asgi"}, asgi="starlette")


FORMATS: dict[str, Callable[[], Encoder]] = {
    "native": native,
    "ai_sdk": ai_sdk,
    "ag_ui": ag_ui,
    "openai": openai,
    "responses": responses,
    "anthropic": anthropic,
    "text": text,
}
"""Maps the name of a format to a function that makes its encoder with default options."""

Format: TypeAlias = str | Callable[[], Encoder] | Encoder
"""The name of a format, a function that makes an encoder, or an encoder."""


def make_encoder(format: Format) -> Encoder:
    """Return an encoder for one response.

    Raises ValueError for an unknown name, and TypeError for a value that makes no encoder.
    """
    if isinstance(format, str):
        check_word("format", format, FORMATS)
        return FORMATS[format]()
    if callable(format):
        check_function("format", format, advice="; for your own protocol, write format=outputs.custom(send)")
    encoder: Any = format() if callable(format) else format
    if not has_methods(encoder, "encode", "close"):
        raise TypeError(f"format must be a name, an encoder or a function that makes one, got {described(encoder)}")
    return encoder  # type: ignore[no-any-return]


def check_can_replace_steps(encoder: Encoder, run_or_stream: object) -> None:
    """Raise ValueError if a stream may replace steps that were already sent, but the encoder cannot report that."""
    if getattr(run_or_stream, "_supersedes", False) and not getattr(encoder, "replaces", False):
        raise ValueError(
            f"{type(encoder).__name__} cannot report a replaced step, but on_break='restart_step' may replace steps. "
            "Use the native format or on_break='continue'."
        )

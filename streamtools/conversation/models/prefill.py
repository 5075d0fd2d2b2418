"""Which servers go on with an answer whose beginning they are given, and how each is told to. Sans-IO.

Nobody else does: a provider that is not in the table takes the last message of the assistant for a finished one, or
refuses it. Sources, as of 2026:

    vllm       the parameters of its chat completions (docs.vllm.ai, OpenAI-compatible server)
    sglang     the same (docs.sglang.ai, OpenAI APIs)
    llama.cpp  ggml-org/llama.cpp pull requests 13174 and 23012; before 23089 it sent the beginning once more
    deepseek   api-docs.deepseek.com, guide to chat prefix completion; below `/beta` alone
    mistral    docs.mistral.ai, `prefix` of the assistant's message; it sends the beginning once more
    anthropic  platform.claude.com, prefill; models before 4.6, without thinking, and with no white space at its end
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Prefill:
    """How a server is told to go on: by members of the body, or of the message; and whether it may send it again."""

    body: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    echoes: bool = False

    def write(self, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return the body of a request whose answer begins with `text`."""
        said = {"role": "assistant", "content": text, **self.message}
        return {**body, "messages": [*body["messages"], said], **self.body}


_GENERATION = {"continue_final_message": True, "add_generation_prompt": False}
PREFILLS: dict[str, Prefill] = {
    "vllm": Prefill(body=_GENERATION),
    "sglang": Prefill(body=_GENERATION),
    "llama.cpp": Prefill(body=_GENERATION, echoes=True),
    "deepseek": Prefill(message={"prefix": True}),
    "mistral": Prefill(message={"prefix": True}, echoes=True),
    "anthropic": Prefill(),
}
_CLAUDE = re.compile(
    r"claude-(?:(?:opus|sonnet|haiku)-4(?:-[015])?(?:-2\d{7})?|3-[a-z0-9-]{1,40}|(?:instant|2)\b.{0,40})"
)


def known_prefill(format: str, url: str, model: str) -> str | None:
    """Return the row of a model at an address, if it is known to go on; the servers of one's own have to be named."""
    parts = urlsplit(url)
    if format == "anthropic":
        name = model.removesuffix("-latest").removesuffix("-0")
        return "anthropic" if parts.hostname == "api.anthropic.com" and _CLAUDE.fullmatch(name) else None
    if format != "openai":
        return None
    if parts.hostname == "api.deepseek.com" and parts.path.startswith("/beta/"):
        return "deepseek"
    return "mistral" if parts.hostname == "api.mistral.ai" else None


def prefill_of(model: object, *options: Mapping[str, Any]) -> Prefill | None:
    """Return how a model is told to go on with an answer in a request with such `options`; None if it is not."""
    name = getattr(model, "prefill", None)
    row = PREFILLS.get(name) if isinstance(name, str) else None
    if row is None:
        return None
    thinking = [each["thinking"] for each in (getattr(model, "options", {}), *options) if "thinking" in each]
    thinks = bool(thinking) and isinstance(thinking[-1], Mapping) and thinking[-1].get("type") != "disabled"
    return None if name == "anthropic" and thinks else row

"""Servers that continue an answer whose beginning they are given, and how requests ask for it.

All other providers take the last message of the assistant for a complete one, or refuse it. Sources, as of 2026:

    vllm       the parameters of its chat completions (docs.vllm.ai, OpenAI-compatible server)
    sglang     the same (docs.sglang.ai, OpenAI APIs)
    llama.cpp  ggml-org/llama.cpp pull requests 13174 and 23012; before 23089 it repeated the beginning
    deepseek   api-docs.deepseek.com, guide to chat prefix completion; only below `/beta`
    mistral    docs.mistral.ai, `prefix` of the assistant's message; it repeats the beginning
    anthropic  platform.claude.com, prefill; models before 4.6, without thinking, and without white space at the end
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Prefill:
    """Members of body and last message that make a server continue; `echoes`: it may repeat the beginning."""

    body: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    echoes: bool = False

    def write(self, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return the body of a request whose answer begins with `text`."""
        message = {"role": "assistant", "content": text, **self.message}
        return {**body, "messages": [*body["messages"], message], **self.body}


_CONTINUE_FINAL = {"continue_final_message": True, "add_generation_prompt": False}
PREFILLS: dict[str, Prefill] = {
    "vllm": Prefill(body=_CONTINUE_FINAL),
    "sglang": Prefill(body=_CONTINUE_FINAL),
    "llama.cpp": Prefill(body=_CONTINUE_FINAL, echoes=True),
    "deepseek": Prefill(message={"prefix": True}),
    "mistral": Prefill(message={"prefix": True}, echoes=True),
    "anthropic": Prefill(),
}
_CLAUDE_BEFORE_4_6 = re.compile(
    r"claude-(?:(?:opus|sonnet|haiku)-4(?:-[015])?(?:-2\d{7})?|3-[a-z0-9-]{1,40}|(?:instant|2)\b.{0,40})"
)


def known_prefill(format: str, url: str, model: str) -> str | None:
    """Return the row of `PREFILLS` for a model at a provider's address. Other servers have to be named."""
    parts = urlsplit(url)
    if format == "anthropic":
        name = model.removesuffix("-latest").removesuffix("-0")
        supported = parts.hostname == "api.anthropic.com" and _CLAUDE_BEFORE_4_6.fullmatch(name)
        return "anthropic" if supported else None
    if format != "openai":
        return None
    if parts.hostname == "api.deepseek.com" and parts.path.startswith("/beta/"):
        return "deepseek"
    return "mistral" if parts.hostname == "api.mistral.ai" else None


def prefill_of(model: object, *options: Mapping[str, Any]) -> Prefill | None:
    """Return how a request with these `options` makes a model continue an answer; None if it cannot."""
    name = getattr(model, "prefill", None)
    row = PREFILLS.get(name) if isinstance(name, str) else None
    if row is None:
        return None
    thinking = [given["thinking"] for given in (getattr(model, "options", {}), *options) if "thinking" in given]
    thinks = bool(thinking) and isinstance(thinking[-1], Mapping) and thinking[-1].get("type") != "disabled"
    return None if name == "anthropic" and thinks else row

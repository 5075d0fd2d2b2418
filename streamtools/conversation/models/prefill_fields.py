"""Lists the servers that support a prefill, and the fields with which a request asks for it.

A *prefill* is the beginning of an answer. It is the last message of the request, and the server's model continues it.
Servers that are not in the list refuse this message, or treat it as a complete answer. Sources, as of 2026:

    vllm       parameters of chat completions (docs.vllm.ai, OpenAI-compatible server)
    sglang     the same parameters as vllm (docs.sglang.ai, OpenAI APIs)
    llama.cpp  ggml-org/llama.cpp pull requests 13174 and 23012; builds before 23089 repeat the prefill
    deepseek   api-docs.deepseek.com, guide to chat prefix completion; only in URLs below `/beta`
    mistral    docs.mistral.ai, field `prefix` of the assistant message; repeats the prefill
    anthropic  platform.claude.com, prefill; only models before 4.6, without thinking, no white space at the end
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Prefill:
    """How a request asks a server to continue a prefill.

    `body` and `message` are the fields that are added to the request's body and to its last message. `echoes` says
    whether the server may repeat the prefill at the beginning of its answer.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    message: Mapping[str, Any] = field(default_factory=dict)
    echoes: bool = False

    def write(self, body: Mapping[str, Any], text: str) -> dict[str, Any]:
        """Return `body` with the prefill `text`."""
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


def known_prefill(format: str, url: str) -> str | None:
    """Return the key in `PREFILLS` for the server at `url`; None if it is not known to support prefills.

    `format` is the format of the model's requests. vLLM, SGLang and llama.cpp have no fixed URL, and of Anthropic's
    models, only those before 4.6 support prefills. So they are never returned. Applications name them with `prefill=`.
    """
    parts = urlsplit(url)
    if format != "openai":
        return None
    if parts.hostname == "api.deepseek.com" and parts.path.startswith("/beta/"):
        return "deepseek"
    return "mistral" if parts.hostname == "api.mistral.ai" else None


def prefill_of(model: object, options: Mapping[str, Any]) -> Prefill | None:
    """Return the fields for a prefill in a request with these `options`; None if `model` cannot continue a prefill."""
    name = getattr(model, "prefill", None)
    prefill = PREFILLS.get(name) if isinstance(name, str) else None
    if prefill is None:
        return None
    given = {**getattr(model, "options", {}), **options}
    return None if name == "anthropic" and thinks(given) else prefill


def thinks(options: Mapping[str, Any]) -> bool:
    """Return whether the options of a request to Anthropic enable thinking."""
    thinking = options.get("thinking")
    return isinstance(thinking, Mapping) and thinking.get("type") != "disabled"

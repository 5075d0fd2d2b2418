"""The names of OpenTelemetry's conventions for generative AI, by their version.

Up to 1.41 they stood among the general conventions, and what reads telemetry today (dashboards, other libraries) knows
those names. Since then they are written in a repository of their own, `semantic-conventions-genai`, which has not had a
release; its names are those of its schema 1.42.0-dev, as of October 2026. What differs is what `Names` holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Version: TypeAlias = Literal["1.41", "1.42-dev"]

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The bounds of the buckets of times, which the conventions name."""
TOKENS = tuple(4**power for power in range(14))
"""And of numbers of tokens."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """What is called differently, or is not there, in some version."""

    schema: str
    duration: str
    """How long a request to a model takes."""
    first_chunk: str
    output_chunk: str
    tokens: str | None
    """The histogram of input and output, told apart by `gen_ai.token.type`; None where there are counters instead."""
    tokens_by_kind: Mapping[str, str]
    """The counters: their names by the field of `Usage`."""
    cache_write: str
    """The attribute of a span with the tokens that were written to a cache."""


CONVENTIONS: Mapping[Version, Names] = {
    "1.41": Names(
        schema="https://opentelemetry.io/schemas/1.41.0",
        duration="gen_ai.client.operation.duration",
        first_chunk="gen_ai.client.operation.time_to_first_chunk",
        output_chunk="gen_ai.client.operation.time_per_output_chunk",
        tokens="gen_ai.client.token.usage",
        tokens_by_kind={},
        cache_write="gen_ai.usage.cache_creation.input_tokens",
    ),
    "1.42-dev": Names(
        schema="https://opentelemetry.io/schemas/gen-ai-dev/1.42.0-dev",
        duration="gen_ai.client.inference.duration",
        first_chunk="gen_ai.client.inference.time_to_first_chunk",
        output_chunk="gen_ai.client.inference.time_per_output_chunk",
        tokens=None,
        tokens_by_kind={
            "input": "gen_ai.client.inference.usage.input_tokens",
            "output": "gen_ai.client.inference.usage.output_tokens",
            "cache_read": "gen_ai.client.inference.usage.cache_read.input_tokens",
            "cache_write": "gen_ai.client.inference.usage.cache_write.input_tokens",
            "reasoning": "gen_ai.client.inference.usage.reasoning.output_tokens",
        },
        cache_write="gen_ai.usage.cache_write.input_tokens",
    ),
}

TOOL_DURATION = "gen_ai.execute_tool.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
"""New since 1.41, and told in both: nothing else says how long a tool and a run take."""

PROVIDERS = {
    "openai": "openai",
    "responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gcp.gemini",
    "interactions": "gcp.gemini",
    "bedrock": "aws.bedrock",
    "cohere": "cohere",
    "mistral": "mistral_ai",
}
"""`gen_ai.provider.name` by the format of an answer; a format that they do not know is its own name."""

HOSTS = {
    "deepseek.com": "deepseek",
    "groq.com": "groq",
    "mistral.ai": "mistral_ai",
    "moonshot.ai": "moonshot_ai",
    "moonshot.cn": "moonshot_ai",
    "openai.azure.com": "azure.ai.openai",
    "perplexity.ai": "perplexity",
    "x.ai": "x_ai",
    "aiplatform.googleapis.com": "gcp.vertex_ai",
}
"""The same by the end of the host, where several speak OpenAI's format."""


def provider_name(format: str | None, host: str | None) -> str:
    """Return what the conventions call a provider, as far as format and host tell.

    >>> provider_name("openai", "api.groq.com"), provider_name("openai", "127.0.0.1"), provider_name(None, None)
    ('groq', 'openai', '_OTHER')
    """
    named = (name for end, name in HOSTS.items() if host and (host == end or host.endswith((f".{end}", f"-{end}"))))
    return next(named, PROVIDERS.get(format or "", format or "_OTHER"))

"""Names from OpenTelemetry's semantic conventions for generative AI, version 1.41.

Version 1.41 is the latest release, and the one that dashboards read. Its successor is still in development, in the
repository `semantic-conventions-genai`.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

REQUEST_DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
OUTPUT_CHUNK = "gen_ai.client.operation.time_per_output_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"  # noqa: S105 - no password

TOOL_DURATION = "gen_ai.execute_tool.duration"
AGENT_DURATION = "gen_ai.invoke_agent.duration"
"""The duration of a tool and of a run. Version 1.41 has no metric for them; these names are from its successor."""

DURATION_BUCKETS_S = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BUCKETS = tuple(4**power for power in range(14))

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
"""`gen_ai.provider.name` by the wire format. A format that the conventions do not know keeps its own name."""

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
"""`gen_ai.provider.name` by the end of the host name, for the providers that share OpenAI's format."""


def provider_name(format: str | None, host: str | None) -> str:
    """Return `gen_ai.provider.name` for a wire format and a host.

    >>> provider_name("openai", "api.groq.com"), provider_name("openai", "127.0.0.1"), provider_name(None, None)
    ('groq', 'openai', '_OTHER')
    """
    for domain, name in HOSTS.items():
        if host and (host == domain or host.endswith((f".{domain}", f"-{domain}"))):
            return name
    return PROVIDERS.get(format or "", format or "_OTHER")

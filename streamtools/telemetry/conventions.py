"""Names from OpenTelemetry's semantic conventions for generative AI, version 1.41.

Version 1.41 is the latest release, and the one that dashboards read. Its successor is still in development, in the
repository `semantic-conventions-genai`.
"""

from __future__ import annotations

SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"

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

"""Names from OpenTelemetry's semantic conventions for generative AI, version 1.41.

Version 1.41 is the latest release. Dashboards expect it. The next version is still in development, in the repository
`semantic-conventions-genai`.
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
"""Maps a wire format to `gen_ai.provider.name`. The name of a format that is missing here is used unchanged."""

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
"""Maps a domain to `gen_ai.provider.name`. Subdomains and regional prefixes also match."""


def provider_name(format: str | None, host: str | None) -> str:
    """Return the `gen_ai.provider.name` of a provider with this wire format and this host name.

    >>> provider_name("openai", "api.groq.com"), provider_name("openai", "127.0.0.1"), provider_name(None, None)
    ('groq', 'openai', '_OTHER')
    """
    for domain, name in HOSTS.items():
        if host and (host == domain or host.endswith((f".{domain}", f"-{domain}"))):
            return name
    return PROVIDERS.get(format or "", format or "_OTHER")

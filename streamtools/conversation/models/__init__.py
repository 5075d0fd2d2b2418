"""Models: one class for each provider, and `ScriptedModel` for tests."""

from streamtools.conversation.models.http_model import HTTPModel, Timeouts
from streamtools.conversation.models.model import Ask, Model
from streamtools.conversation.models.providers import (
    AnthropicMessages,
    BedrockConverse,
    CohereChat,
    GeminiChat,
    GeminiInteractions,
    OllamaChat,
    OpenAIChat,
    OpenAIResponses,
    latitude_request,
)
from streamtools.conversation.models.scripted import ScriptedModel, ScriptedReply

__all__ = [
    "AnthropicMessages", "Ask", "BedrockConverse", "CohereChat", "GeminiChat", "GeminiInteractions", "HTTPModel",
    "Model", "OllamaChat", "OpenAIChat", "OpenAIResponses", "ScriptedModel", "ScriptedReply", "Timeouts",
    "latitude_request",
]  # fmt: skip

"""The chat loop, its models and prompts, failover, and tool calls for models that make none (emulation).

`latitude_request` writes the request body for a run on Latitude, which has no model class here.

async with chat(model, messages, tools=tools) as events:
    async for event in events:
        ...
"""

from streamtools.conversation.chat_stream import Chat, chat
from streamtools.conversation.failover import Fallback
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
from streamtools.conversation.prompts import augment_system_prompt
from streamtools.conversation.request_writer import RequestOptions
from streamtools.loading import load_later
from streamtools.parsing.dialects.hash_and_tilde import new_nonce

__all__ = [
    "AnthropicMessages", "Ask", "BedrockConverse", "Chat", "CohereChat", "Fallback", "GeminiChat",
    "GeminiInteractions", "HTTPModel", "Model", "OllamaChat", "OpenAIChat", "OpenAIResponses", "RequestOptions",
    "ScriptedModel", "ScriptedReply", "Timeouts", "augment_system_prompt", "chat", "latitude_request", "new_nonce",
]  # fmt: skip

load_later(globals())

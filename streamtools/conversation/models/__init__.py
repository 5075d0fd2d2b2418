"""Models: what is asked, and who is asked, one file a provider.

    model = OpenAIChat("qwen3", base_url="http://127.0.0.1:8000/v1")
    async with model.stream(Ask((User("Hello"),))) as source:
        ...

`Ask` is the same for all; each client writes it as its provider wants it, and streams the answer as source events.
"""

from streamtools.conversation.models.anthropic import AnthropicMessages
from streamtools.conversation.models.base import Ask, Model
from streamtools.conversation.models.gemini import GeminiChat
from streamtools.conversation.models.http import HTTPModel
from streamtools.conversation.models.latitude import latitude_request
from streamtools.conversation.models.ollama import OllamaChat
from streamtools.conversation.models.openai import OpenAIChat
from streamtools.conversation.models.response import Timeouts
from streamtools.conversation.models.responses import OpenAIResponses
from streamtools.conversation.models.scripted import ScriptedModel, ScriptedReply

__all__ = [
    "AnthropicMessages",
    "Ask",
    "GeminiChat",
    "HTTPModel",
    "Model",
    "OllamaChat",
    "OpenAIChat",
    "OpenAIResponses",
    "ScriptedModel",
    "ScriptedReply",
    "Timeouts",
    "latitude_request",
]

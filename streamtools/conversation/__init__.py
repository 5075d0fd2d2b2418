"""Around one stream: prompts, requests, and the conversation that goes on until the model is done.

    async with chat(model, messages, tools=tools) as events:
        async for event in events:
            ...

The names are looked up when they are first used: a result imports `messages`, and `chat` imports results.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamtools.conversation.chatting import Chat, Review, chat
    from streamtools.conversation.emulation import Emulation
    from streamtools.conversation.messages import (
        Assistant,
        Message,
        Results,
        System,
        User,
        calls_as_text,
        read_messages,
        system_prompt,
        without_reasoning,
        write_messages,
    )
    from streamtools.conversation.models import (
        AnthropicMessages,
        Ask,
        GeminiChat,
        Model,
        OllamaChat,
        OpenAIChat,
        OpenAIResponses,
        ScriptedModel,
        Timeouts,
        latitude_request,
    )
    from streamtools.conversation.prompts import Example, augment_system_prompt, few_shot, new_nonce

_HOMES = {
    "chatting": ("Chat", "Review", "chat"),
    "emulation": ("Emulation",),
    "messages": (
        *("Assistant", "Message", "Results", "System", "User"),
        *("calls_as_text", "read_messages", "system_prompt", "without_reasoning", "write_messages"),
    ),
    "models": (
        *("AnthropicMessages", "Ask", "GeminiChat", "Model", "OllamaChat", "OpenAIChat", "OpenAIResponses"),
        *("ScriptedModel", "Timeouts", "latitude_request"),
    ),
    "prompts": ("Example", "augment_system_prompt", "few_shot", "new_nonce"),
}

__all__ = [
    "AnthropicMessages",
    "Ask",
    "Assistant",
    "Chat",
    "Emulation",
    "Example",
    "GeminiChat",
    "Message",
    "Model",
    "OllamaChat",
    "OpenAIChat",
    "OpenAIResponses",
    "Results",
    "Review",
    "ScriptedModel",
    "System",
    "Timeouts",
    "User",
    "augment_system_prompt",
    "calls_as_text",
    "chat",
    "few_shot",
    "latitude_request",
    "new_nonce",
    "read_messages",
    "system_prompt",
    "without_reasoning",
    "write_messages",
]

if not TYPE_CHECKING:  # to a type checker it would say that every name is there

    def __getattr__(name: str) -> Any:
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{home}"), name)

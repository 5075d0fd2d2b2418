"""The model that a command line names, and chats with it: what `chat` and `serve` have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from streamtools.cli.complaints import Refused
from streamtools.cli.model_arguments import API, ModelArguments
from streamtools.conversation import (
    AnthropicMessages,
    GeminiChat,
    Message,
    OllamaChat,
    OpenAIChat,
    OpenAIResponses,
    System,
    chat,
)
from streamtools.conversation.models import HTTPModel
from streamtools.recording.redact import redact_url
from streamtools.tools import ToolRegistry

_CLIENTS: dict[API, type[HTTPModel]] = {
    "openai": OpenAIChat,
    "responses": OpenAIResponses,
    "anthropic": AnthropicMessages,
    "ollama": OllamaChat,
    "gemini": GeminiChat,
}


class NamedModel:
    """The model that a command line names. Raises `Refused` at once for what is of no use."""

    def __init__(self, asked: ModelArguments, tools: ToolRegistry | None) -> None:
        self._asked = asked
        self._tools = tools
        with refusals():
            self.chat(self.beginning, self.model())

    @property
    def beginning(self) -> list[Message]:
        """What stands before the first question."""
        return [System(self._asked.system)] if self._asked.system else []

    @property
    def told(self) -> str:
        """Who answers, and where."""
        return f"{self._asked.model} at {redact_url(self.model().url)}"

    def model(self, client: httpx.AsyncClient | None = None) -> HTTPModel:
        """Return who answers. Raises ValueError for an address that is none."""
        asked = self._asked
        native = None if asked.dialect is None else False
        return _CLIENTS[asked.api](asked.model or "", base_url=asked.url, client=client, native_tool_calls=native)

    def chat(self, history: Sequence[Message], model: HTTPModel, **options: Any) -> chat:
        """Return the answer to a history, not yet entered."""
        asked = self._asked
        taught = asked.dialect is not None and self._tools is not None
        return chat(
            model,
            history,
            tools=self._tools,
            dialects=None if asked.dialect is None else (asked.dialect,),
            teach="always" if taught else "auto",
            few_shot=asked.few_shot,
            emulation=asked.emulate,
            request=asked.options,
            **options,
        )


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Refuse what the library refuses: addresses, keys and choices that are of no use, proxies that need a package."""
    try:
        yield
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        raise Refused(str(error)) from error

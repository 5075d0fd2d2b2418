"""Models: one class for each provider, and one whose answers are written beforehand, which asks no network.

    model = OpenAIChat("qwen3", base_url="http://127.0.0.1:8000/v1")
    async with model.stream(Ask((User("Hello"),))) as source:
        ...

`Ask` is the same for all; each client writes it as its provider wants it, and streams the answer as source events; what
they share is in `http_model`, and how a request is sent in `sending`. Chat completions are those of OpenAI and of the
many servers that speak like it (vLLM, llama.cpp, SGLang, OpenRouter, …). Ollama's own `/api/chat` says more than its
imitation of OpenAI: thoughts, the time to load, the context.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeAlias
from urllib.parse import quote

import anyio.lowlevel

from streamtools.conversation.models.converse import BedrockConverse
from streamtools.conversation.models.http_model import Ask, Body, HTTPModel, Model, complete, define, offer
from streamtools.conversation.models.sending import Timeouts
from streamtools.conversation.models.stepwise import GeminiInteractions
from streamtools.events import ProviderCompleted, SourceEvent, TextDelta
from streamtools.history import Message, container_of, read_messages, system_prompt, write_messages
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.sources import Source, adapter, detect, events
from streamtools.tools import ToolChoice, ToolRegistry, ToolsLike

__all__ = [
    "AnthropicMessages", "Ask", "BedrockConverse", "CohereChat", "GeminiChat", "GeminiInteractions", "HTTPModel",
    "Model", "OllamaChat", "OpenAIChat", "OpenAIResponses", "ScriptedModel", "ScriptedReply",
    "Timeouts", "latitude_request",
]  # fmt: skip

MAX_TOKENS = 8192
"""Of an answer of Anthropic's, where no option says otherwise; the provider has no default."""


# Options by the names of OpenAI and of the provider, each with that of the provider.
_RESPONSES = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_ANTHROPIC = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
_GEMINI = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "maxOutputTokens"), "maxOutputTokens"),
    **dict.fromkeys(("stop", "stopSequences"), "stopSequences"),
    **dict.fromkeys(("top_p", "topP"), "topP"),
    **dict.fromkeys(("top_k", "topK"), "topK"),
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    **{name: name for name in ("temperature", "seed", "thinkingConfig", "responseMimeType", "responseSchema")},
}
OLLAMA_NAMES = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "num_predict"), "num_predict"),
    **{name: name for name in ("num_ctx", "stop", "temperature", "top_p", "top_k", "min_p", "seed")},
    **{name: name for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
}


_COHERE = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens", "top_p": "p", "top_k": "k"}


class OpenAIChat(HTTPModel):
    """A model behind `/chat/completions`; the key is that of `OPENAI_API_KEY`.

    The request asks for usage at the end of the stream. A server that refuses the option it is asked with gets none
    with `stream_options=None`.
    """

    format = "openai"
    _home = "https://api.openai.com/v1"
    _endpoint = "/chat/completions"
    key_names = ("OPENAI_API_KEY",)

    def body(self, ask: Ask) -> Body:
        how = {"send_reasoning": self.send_reasoning, "reasoning_field": self.reasoning_field}
        return _chat_body(self.name, ask, self.options, provider=self.origin, **how)


def _chat_body(model: str, ask: Ask, options: Mapping[str, Any], **how: Any) -> Body:
    def choose(choice: ToolChoice) -> Body:
        named = {"type": "function", "function": {"name": choice.name}}
        return {"tool_choice": named if choice.mode == "tool" else choice.mode}

    body: Body = {
        "model": model,
        "messages": write_messages(ask.history, "openai", dialects=ask.dialects, **how),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return complete(offer(body, ask, "openai", choose), options, ask.options)


class OpenAIResponses(HTTPModel):
    """A model behind `/responses`; the key is that of `OPENAI_API_KEY`.

    The whole history is sent each time, unless `previous_id` says that requests go on with the last response, which the
    provider has kept. Whether it keeps them is its own default: `store=False` forbids it, and models that reason then
    need `include=["reasoning.encrypted_content"]` to be told what they thought.
    """

    format = "responses"
    _home = "https://api.openai.com/v1"
    _endpoint = "/responses"
    key_names = ("OPENAI_API_KEY",)
    _previous = "previous_response_id"

    def body(self, ask: Ask) -> Body:
        def choose(choice: ToolChoice) -> Body:
            named = {"type": "function", "name": choice.name}
            return {"tool_choice": named if choice.mode == "tool" else choice.mode}

        previous, written = self._write(ask)
        body = offer({"model": self.name, **previous, "input": written, "stream": True}, ask, "responses", choose)
        return complete(body, self.options, ask.options, names=_RESPONSES)


class AnthropicMessages(HTTPModel):
    """A model behind `/v1/messages`; the key is that of `ANTHROPIC_API_KEY`."""

    format = "anthropic"
    _home = "https://api.anthropic.com"
    _endpoint = "/v1/messages"
    key_names = ("ANTHROPIC_API_KEY",)
    _own_headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
    _key_header = "x-api-key"

    def body(self, ask: Ask) -> Body:
        def choose(choice: ToolChoice) -> Body:
            if choice.mode == "tool":  # it means one call
                return {"tool_choice": {"type": "tool", "name": choice.name, "disable_parallel_tool_use": True}}
            return {"tool_choice": {"type": "none" if choice.mode == "none" else "any"}}

        body: Body = {"model": self.name, "max_tokens": MAX_TOKENS}
        if system := system_prompt(ask.history):
            body["system"] = system
        written = write_messages(ask.history, "anthropic", dialects=ask.dialects, provider=self.origin)
        body |= {"messages": written, "stream": True}
        container = container_of(ask.history, self.origin)
        if _is_later(container.get("expires_at")) and isinstance(container.get("id"), str):
            body["container"] = container["id"]
        body = complete(offer(body, ask, "anthropic", choose), self.options, ask.options, names=_ANTHROPIC)
        body.setdefault("max_tokens", MAX_TOKENS)  # without it nothing is answered
        return body


def _is_later(time: object) -> bool:
    """Return whether a time is still to come; one that cannot be read is over."""
    try:
        until = datetime.fromisoformat(str(time))
    except ValueError:
        return False
    return until.replace(tzinfo=until.tzinfo or UTC) > datetime.now(UTC)


class GeminiChat(HTTPModel):
    """A model of Google's; the key is that of `GOOGLE_API_KEY`, or else of `GEMINI_API_KEY`, never in the URL."""

    format = "gemini"
    _home = "https://generativelanguage.googleapis.com/v1beta"
    key_names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    _key_header = "x-goog-api-key"

    def body(self, ask: Ask) -> Body:
        def choose(choice: ToolChoice) -> Body:
            mode = {"mode": "NONE" if choice.mode == "none" else "ANY"}
            named = {"allowedFunctionNames": [choice.name]} if choice.mode == "tool" else {}
            return {"toolConfig": {"functionCallingConfig": mode | named}}

        body: Body = {"contents": write_messages(ask.history, "gemini", dialects=ask.dialects, provider=self.origin)}
        if system := system_prompt(ask.history):
            body["systemInstruction"] = {"parts": [{"text": system}]}
        body = offer(body, ask, "gemini", choose)
        return complete(body, self.options, ask.options, inside="generationConfig", names=_GEMINI)

    def _path(self) -> str:
        kind, slash, name = self.name.partition("/")
        if not slash or kind not in ("models", "tunedModels"):
            kind, name = "models", self.name
        return f"/{kind}/{quote(name, safe='')}:streamGenerateContent?alt=sse"


class CohereChat(HTTPModel):
    """A model behind Cohere's `/v2/chat`; the key is that of `CO_API_KEY`. For a named tool, only that one is sent."""

    format = "cohere"
    _home = "https://api.cohere.com"
    _endpoint = "/v2/chat"
    key_names = ("CO_API_KEY", "COHERE_API_KEY")

    def body(self, ask: Ask) -> Body:
        written = write_messages(ask.history, "cohere", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "messages": written, "stream": True}
        if ask.tool_choice.mode == "tool":
            ask = replace(ask, tools=tuple(each for each in ask.tools if each.name == ask.tool_choice.name))
        body = offer(
            body, ask, "cohere", lambda choice: {"tool_choice": "NONE" if choice.mode == "none" else "REQUIRED"}
        )
        return complete(body, self.options, ask.options, names=_COHERE)


class OllamaChat(HTTPModel):
    """A model of an Ollama server, by default of the one on this machine; the key is that of `OLLAMA_API_KEY`.

    Ollama has no `tool_choice`: for `none` no tools are sent, for a named tool only that one.
    """

    format = "ollama"
    _home = "http://127.0.0.1:11434"
    _endpoint = "/api/chat"
    key_names = ("OLLAMA_API_KEY",)

    def body(self, ask: Ask) -> Body:
        written = write_messages(ask.history, "ollama", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "messages": written, "stream": True}
        choice = ask.tool_choice
        offered = [] if choice.mode == "none" else define(ask, "ollama")
        if choice.mode == "tool":
            offered = [each for each in offered if each["function"]["name"] == choice.name]
        if offered:
            body["tools"] = offered
        return complete(body, self.options, ask.options, inside="options", names=OLLAMA_NAMES)


Piece: TypeAlias = str | bytes | SourceEvent | BaseException
ScriptedReply: TypeAlias = Piece | Sequence[Piece]
"""A text; a list of texts, which are its deltas, or of source events, or of the bytes of a provider's stream; and in
place of any, or among them, an exception that the transport raises there."""


class ScriptedModel:
    """Gives one answer after the other, and remembers what it was asked.

    A text ends as a provider's would; events end as they are written. Bytes are read as those of `format`, an adapter's
    name, or as what they look like. An exception is to the source what one of a network is: an error event.

    >>> model = ScriptedModel(["Hello!"])
    >>> model.asks
    []
    """

    def __init__(
        self,
        answers: Iterable[ScriptedReply],
        *,
        name: str = "scripted",
        native_tool_calls: bool | None = None,
        format: str | None = None,
        **options: Any,
    ) -> None:
        self.name = name
        self.native_tool_calls = native_tool_calls
        self.options = options
        self.asks: list[Ask] = []
        """What it was asked, in order."""
        self.open = 0
        """Answers that have been begun and not been left."""
        self._answers = list(answers)
        self._format = format

    @property
    def left(self) -> int:
        """How many answers nobody has asked for."""
        return len(self._answers) - len(self.asks)

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body that `OpenAIChat` would send."""
        return _chat_body(self.name, ask, self.options)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Give the next answer. Raises LookupError if the script is over."""
        if not self.left:
            raise LookupError(f"the script has {len(self._answers)} answers, and this is request {len(self.asks) + 1}")
        answer = self._answers[len(self.asks)]
        self.asks.append(ask)
        if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
            return self._give(answer)
        return self._give([answer])

    @asynccontextmanager
    async def _give(self, pieces: Sequence[Any]) -> AsyncIterator[Source]:
        if any(isinstance(piece, bytes) for piece in pieces):
            bytes_ = _play(pieces)
            source = Source(bytes_, adapter(self._format)) if self._format else detect(bytes_)
        else:
            written = [TextDelta(piece) if isinstance(piece, str) else piece for piece in pieces]
            if all(isinstance(piece, str) for piece in pieces):
                written.append(ProviderCompleted(finish_reason="stop"))
            source = events(_play(written))
        self.open += 1
        try:
            yield source
        finally:
            self.open -= 1
            await source.aclose()


async def _play(pieces: Iterable[Any]) -> AsyncIterator[Any]:
    for piece in pieces:
        await anyio.lowlevel.checkpoint()
        if isinstance(piece, BaseException):
            raise piece
        yield piece


# The request of a Latitude run, as the seed's chat front end sends it: to be posted to whoever runs the prompt.
#
# The whole history goes along although the run has an id: that is how it is done there. Calls come back as text behind
# `###:`, whose tools the request lists as `toolClients`; read the answer with `sources.latitude`.

PROMPT = "briefPlanner"
"""The prompt that is run if none is named."""


def latitude_request(
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    prompt_path: str | None = None,
    conversation_uuid: str | None = None,
    tools: ToolsLike | Iterable[Mapping[str, Any]] = None,
    media: Iterable[Any] = (),
    dialects: Dialects = None,
    **extras: Any,
) -> Body:
    """Return the body of the request.

    Messages that are dicts go along as they are. `tools` are ours, or dicts that are `toolClients` already. `extras`
    (`todos`, `briefs`, …) are the application's own, and pass. Raises ValueError for one that would replace ours.

    >>> latitude_request([{"role": "user", "content": "Hi"}], conversation_uuid="c1", todos=[])["todos"]
    []
    """
    given = list(messages)
    written = [dict(each) for each in given if isinstance(each, Mapping)]
    if len(written) < len(given):
        written = write_messages(read_messages(given), "openai", dialects=choose_dialects(dialects))
    body: Body = {"messages": written, "promptPath": prompt_path or PROMPT}
    if conversation_uuid is not None:
        body["conversationUuid"] = conversation_uuid
    offered = list(tools) if isinstance(tools, Iterable) and not isinstance(tools, Mapping) else tools
    ready = isinstance(offered, list) and bool(offered) and all(type(each) is dict for each in offered)
    ours: Body = {
        "media": list(media),
        "toolClients": copy.deepcopy(offered) if ready else ToolRegistry.of(offered).definitions("tool_clients"),
    }
    taken = {"conversationUuid", *body, *ours} & extras.keys()
    if taken:
        raise ValueError(f"{', '.join(sorted(taken))} is given by a parameter of its own")
    return body | extras | ours

"""Defines a model class for each provider API, except Amazon Bedrock's, which is in `bedrock`.

    model = OpenAIChat("qwen3", base_url="http://127.0.0.1:8000/v1")
    async with model.stream(Ask((User("Hello"),))) as source:
        ...

`OpenAIChat` works with every server that offers OpenAI's chat completions: vLLM, llama.cpp, SGLang, OpenRouter and
others. Ollama offers chat completions and its native `/api/chat`. `OllamaChat` uses the native API, which also reports
thoughts, the time to load the model, and the context size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

from streamtools.conversation.models.http_model import HTTPModel
from streamtools.conversation.models.model import Ask, Body, add_options, add_tools, tool_definitions
from streamtools.history import Message, read_messages, system_prompt, write_messages
from streamtools.history.anthropic_messages import container_of
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.tools import ToolChoice, ToolRegistry
from streamtools.tools.registry import ToolsLike

ANTHROPIC_MAX_TOKENS = 8192
"""The default of Anthropic's `max_tokens`, which every request must contain."""

# Each table maps the accepted names of options to the names that a provider uses.
_RESPONSES = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_ANTHROPIC = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
_COHERE = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens", "top_p": "p", "top_k": "k"}
_GEMINI = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "maxOutputTokens"), "maxOutputTokens"),
    **dict.fromkeys(("stop", "stopSequences"), "stopSequences"),
    **dict.fromkeys(("top_p", "topP"), "topP"),
    **dict.fromkeys(("top_k", "topK"), "topK"),
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    **{name: name for name in ("temperature", "seed", "thinkingConfig", "responseMimeType", "responseSchema")},
}
_INTERACTIONS = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_output_tokens"), "max_output_tokens"),
    **dict.fromkeys(("stop", "stop_sequences"), "stop_sequences"),
    **{name: name for name in ("temperature", "top_p", "seed", "thinking_level", "thinking_summaries")},
}
OLLAMA_OPTIONS = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "num_predict"), "num_predict"),
    **{name: name for name in ("num_ctx", "stop", "temperature", "top_p", "top_k", "min_p", "seed")},
    **{name: name for name in ("repeat_penalty", "presence_penalty", "frequency_penalty")},
}


def chat_completions_body(model: str, ask: Ask, options: Mapping[str, Any], **writing: Any) -> Body:
    """Return the body of a request for chat completions. `writing` is passed to `write_messages`."""

    def write_choice(choice: ToolChoice) -> Body:
        named = {"type": "function", "function": {"name": choice.name}}
        return {"tool_choice": named if choice.mode == "tool" else choice.mode}

    body: Body = {
        "model": model,
        "messages": write_messages(ask.history, "openai", dialects=ask.dialects, **writing),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return add_options(add_tools(body, ask, "openai", write_choice), ask, options)


class OpenAIChat(HTTPModel):
    """A model that is called at `/chat/completions`, with the key in `OPENAI_API_KEY`.

    The option `stream_options` requests the token usage at the end of the stream. If a server refuses this option,
    remove it with `stream_options=None`.
    """

    format = "openai"
    _default_base_url = "https://api.openai.com/v1"
    _endpoint = "/chat/completions"
    key_names = ("OPENAI_API_KEY",)

    def body(self, ask: Ask) -> Body:
        writing = {"send_reasoning": self.send_reasoning, "reasoning_field": self.reasoning_field}
        return chat_completions_body(self.name, ask, self.options, provider=self.origin, **writing)


class OpenAIResponses(HTTPModel):
    """A model that is called at `/responses`, with the key in `OPENAI_API_KEY`.

    Each request contains the whole history. But with `previous_id=True`, a request names the last response and contains
    only the messages after it. By default the provider stores responses, which `store=False` prevents. Reasoning models
    then need `include=["reasoning.encrypted_content"]`, so that later requests can contain their reasoning.
    """

    format = "responses"
    _default_base_url = "https://api.openai.com/v1"
    _endpoint = "/responses"
    key_names = ("OPENAI_API_KEY",)
    _previous_id_field = "previous_response_id"

    def body(self, ask: Ask) -> Body:
        def write_choice(choice: ToolChoice) -> Body:
            named = {"type": "function", "name": choice.name}
            return {"tool_choice": named if choice.mode == "tool" else choice.mode}

        previous, items = self._write_history(ask)
        body: Body = {"model": self.name, **previous, "input": items, "stream": True}
        body = add_tools(body, ask, "responses", write_choice)
        return add_options(body, ask, self.options, names=_RESPONSES)


class AnthropicMessages(HTTPModel):
    """A model that is called at `/v1/messages`, with the key in `ANTHROPIC_API_KEY`."""

    format = "anthropic"
    _default_base_url = "https://api.anthropic.com"
    _endpoint = "/v1/messages"
    key_names = ("ANTHROPIC_API_KEY",)
    _required_headers: ClassVar[Mapping[str, str]] = {"anthropic-version": "2023-06-01"}
    _key_header = "x-api-key"

    def body(self, ask: Ask) -> Body:
        def write_choice(choice: ToolChoice) -> Body:
            if choice.mode == "tool":  # a choice of one tool allows exactly one call
                return {"tool_choice": {"type": "tool", "name": choice.name, "disable_parallel_tool_use": True}}
            return {"tool_choice": {"type": "none" if choice.mode == "none" else "any"}}

        body: Body = {"model": self.name, "max_tokens": ANTHROPIC_MAX_TOKENS}
        if system := system_prompt(ask.history):
            body["system"] = system
        messages = write_messages(ask.history, "anthropic", dialects=ask.dialects, provider=self.origin)
        body |= {"messages": messages, "stream": True}
        container = container_of(ask.history, self.origin)
        if _is_in_future(container.get("expires_at")) and isinstance(container.get("id"), str):
            body["container"] = container["id"]
        body = add_options(add_tools(body, ask, "anthropic", write_choice), ask, self.options, names=_ANTHROPIC)
        body.setdefault("max_tokens", ANTHROPIC_MAX_TOKENS)  # required even if an option of None has removed it
        return body


def _is_in_future(time: object) -> bool:
    try:
        until = datetime.fromisoformat(str(time))
    except ValueError:
        return False
    return until.replace(tzinfo=until.tzinfo or UTC) > datetime.now(UTC)


class GeminiChat(HTTPModel):
    """A model of Google's Gemini API, with the key in `GOOGLE_API_KEY` or `GEMINI_API_KEY`.

    The key is sent in a header and is never part of the URL.
    """

    format = "gemini"
    _default_base_url = "https://generativelanguage.googleapis.com/v1beta"
    key_names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    _key_header = "x-goog-api-key"

    def body(self, ask: Ask) -> Body:
        def write_choice(choice: ToolChoice) -> Body:
            mode = {"mode": "NONE" if choice.mode == "none" else "ANY"}
            named = {"allowedFunctionNames": [choice.name]} if choice.mode == "tool" else {}
            return {"toolConfig": {"functionCallingConfig": mode | named}}

        body: Body = {"contents": write_messages(ask.history, "gemini", dialects=ask.dialects, provider=self.origin)}
        if system := system_prompt(ask.history):
            body["systemInstruction"] = {"parts": [{"text": system}]}
        body = add_tools(body, ask, "gemini", write_choice)
        return add_options(body, ask, self.options, inside="generationConfig", names=_GEMINI)

    def _path(self) -> str:
        kind, slash, name = self.name.partition("/")
        if not slash or kind not in ("models", "tunedModels"):
            kind, name = "models", self.name
        return f"/{kind}/{quote(name, safe='')}:streamGenerateContent?alt=sse"


class GeminiInteractions(HTTPModel):
    """A model of Google that is called at `/interactions`, with the key in `GOOGLE_API_KEY` or `GEMINI_API_KEY`.

    Each request contains the whole history. But with `previous_id=True`, a request names the last interaction and
    contains only the messages after it. By default Google stores interactions, which `store=False` prevents.
    """

    format = "interactions"
    _adapter = "gemini"
    _default_base_url = "https://generativelanguage.googleapis.com/v1beta"
    _endpoint = "/interactions"
    key_names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    _key_header = "x-goog-api-key"
    _required_headers: ClassVar[Mapping[str, str]] = {"Api-Revision": "2026-05-20"}
    _previous_id_field = "previous_interaction_id"

    def body(self, ask: Ask) -> Body:
        def write_choice(choice: ToolChoice) -> Body:
            mode = "none" if choice.mode == "none" else "any"
            allowed = {"allowed_tools": {"mode": mode, "tools": [choice.name]}}
            return {"generation_config": {"tool_choice": allowed if choice.mode == "tool" else mode}}

        previous, steps = self._write_history(ask)
        body: Body = {"model": self.name, **previous, "input": steps, "stream": True}
        if system := system_prompt(ask.history):
            body["system_instruction"] = system
        body = add_tools(body, ask, "interactions", write_choice)
        return add_options(body, ask, self.options, inside="generation_config", names=_INTERACTIONS)


class CohereChat(HTTPModel):
    """A model that is called at Cohere's `/v2/chat`, with the key in `CO_API_KEY` or `COHERE_API_KEY`.

    Cohere's `tool_choice` cannot name a tool. If a tool choice names a tool, the request contains only that tool.
    """

    format = "cohere"
    _default_base_url = "https://api.cohere.com"
    _endpoint = "/v2/chat"
    key_names = ("CO_API_KEY", "COHERE_API_KEY")

    def body(self, ask: Ask) -> Body:
        messages = write_messages(ask.history, "cohere", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "messages": messages, "stream": True}
        if ask.tool_choice.mode == "tool":
            ask = replace(ask, tools=tuple(tool for tool in ask.tools if tool.name == ask.tool_choice.name))
        mode = "NONE" if ask.tool_choice.mode == "none" else "REQUIRED"
        body = add_tools(body, ask, "cohere", lambda _: {"tool_choice": mode})
        return add_options(body, ask, self.options, names=_COHERE)


class OllamaChat(HTTPModel):
    """A model of an Ollama server, by default on this machine, with the key in `OLLAMA_API_KEY`.

    Ollama has no `tool_choice`. For the tool choice `none`, the request contains no tools. If the tool choice names a
    tool, the request contains only that tool. The tool choice `required` does not change the request.
    """

    format = "ollama"
    _default_base_url = "http://127.0.0.1:11434"
    _endpoint = "/api/chat"
    key_names = ("OLLAMA_API_KEY",)

    def body(self, ask: Ask) -> Body:
        messages = write_messages(ask.history, "ollama", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "messages": messages, "stream": True}
        choice = ask.tool_choice
        tools = [] if choice.mode == "none" else tool_definitions(ask, "ollama")
        if choice.mode == "tool":
            tools = [tool for tool in tools if tool["function"]["name"] == choice.name]
        if tools:
            body["tools"] = tools
        return add_options(body, ask, self.options, inside="options", names=OLLAMA_OPTIONS)


def latitude_request(
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    prompt_path: str = "briefPlanner",
    conversation_uuid: str | None = None,
    tools: ToolsLike = None,
    dialects: Dialects = None,
    **extras: Any,
) -> Body:
    """Return the body of the request that starts or continues a Latitude run. Read the answer with `sources.latitude`.

    The body contains the whole history, even if `conversation_uuid` names an earlier run. If all `messages` are dicts,
    they are sent unchanged. The body lists the tools as `toolClients`. The model writes calls as text after `###:`.
    `extras` are fields of the application, such as `todos` and `briefs`, and are sent unchanged.

    >>> latitude_request([{"role": "user", "content": "Hi"}], conversation_uuid="c1", todos=[])["todos"]
    []
    """
    given = list(messages)
    written = [dict(message) for message in given if isinstance(message, Mapping)]
    if len(written) < len(given):
        written = write_messages(read_messages(given), "openai", dialects=choose_dialects(dialects))
    body: Body = {"messages": written, "promptPath": prompt_path}
    if conversation_uuid is not None:
        body["conversationUuid"] = conversation_uuid
    return body | {"media": [], **extras, "toolClients": ToolRegistry.of(tools).definitions("tool_clients")}

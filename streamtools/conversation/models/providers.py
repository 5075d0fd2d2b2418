"""Defines a model class for each provider API.

    model = OpenAIChat("qwen3", base_url="http://127.0.0.1:8000/v1")
    async with model.stream(Ask((User("Hello"),))) as source:
        ...

`OpenAIChat` works with every server that offers OpenAI's chat completions: vLLM, llama.cpp, SGLang, OpenRouter and
others. Ollama offers chat completions and its native `/api/chat`. `OllamaChat` uses the native API, which also accepts
the context size (`num_ctx`).

Models of Amazon Bedrock are called through its Converse API, with an API key or with AWS credentials. With an API key,
no other package is required. Without an API key, botocore (the extra `bedrock`) signs each request. botocore finds AWS
credentials in its standard locations and renews them. The signing runs in a worker thread, because botocore may have to
request credentials from a server.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

import anyio.to_thread

from streamtools.conversation.models.http_model import HTTPModel, ModelRequest, send
from streamtools.conversation.models.model import Ask, Body, add_options, add_tools, tool_definitions
from streamtools.history import Assistant, Message, read_messages, system_prompt, write_messages
from streamtools.history.anthropic_messages import container_of
from streamtools.history.untrusted import neutralize_body
from streamtools.loading import require_packages
from streamtools.parsing.dialects import Dialects, choose_dialects
from streamtools.sources import Source
from streamtools.tools import ToolChoice, ToolRegistry
from streamtools.tools.registry import ToolsLike

ANTHROPIC_MAX_TOKENS = 8192
"""The default of Anthropic's `max_tokens`, which every request must contain."""

# Each table maps names of options to the names that a provider uses. Other options keep their names.
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

    `streamtools.conversation.HTTPModel` explains the parameters.
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

    Each request contains the whole history. With `store=False`, the provider stores no responses. Reasoning models then
    need `include=["reasoning.encrypted_content"]`, so that later requests can contain their reasoning.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

    format = "responses"
    _default_base_url = "https://api.openai.com/v1"
    _endpoint = "/responses"
    key_names = ("OPENAI_API_KEY",)

    def body(self, ask: Ask) -> Body:
        def write_choice(choice: ToolChoice) -> Body:
            named = {"type": "function", "name": choice.name}
            return {"tool_choice": named if choice.mode == "tool" else choice.mode}

        items = write_messages(ask.history, "responses", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "input": items, "stream": True}
        body = add_tools(body, ask, "responses", write_choice)
        return add_options(body, ask, self.options, names=_RESPONSES)


class AnthropicMessages(HTTPModel):
    """A model that is called at `/v1/messages`, with the key in `ANTHROPIC_API_KEY`.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

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
        body.setdefault("max_tokens", ANTHROPIC_MAX_TOKENS)  # required, also if `max_tokens=None` removed it
        return body


def _is_in_future(time: object) -> bool:
    try:
        until = datetime.fromisoformat(str(time))
    except ValueError:
        return False
    return until.replace(tzinfo=until.tzinfo or UTC) > datetime.now(UTC)


class _GoogleModel(HTTPModel):
    _default_base_url = "https://generativelanguage.googleapis.com/v1beta"
    key_names = ("GOOGLE_API_KEY", "GEMINI_API_KEY")
    _key_header = "x-goog-api-key"


class GeminiChat(_GoogleModel):
    """A model of Google's Gemini API, with the key in `GOOGLE_API_KEY` or `GEMINI_API_KEY`.

    The key is sent in a header and is never part of the URL.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

    format = "gemini"

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
        return f"/models/{quote(self.name.removeprefix('models/'), safe='')}:streamGenerateContent?alt=sse"


class GeminiInteractions(_GoogleModel):
    """A model of Google that is called at `/interactions`, with the key in `GOOGLE_API_KEY` or `GEMINI_API_KEY`.

    Each request contains the whole history. With `store=False`, Google stores no interactions.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

    format = "interactions"
    _adapter = "gemini"
    _endpoint = "/interactions"
    _required_headers: ClassVar[Mapping[str, str]] = {"Api-Revision": "2026-05-20"}

    def body(self, ask: Ask) -> Body:
        def write_choice(choice: ToolChoice) -> Body:
            mode = "none" if choice.mode == "none" else "any"
            allowed = {"allowed_tools": {"mode": mode, "tools": [choice.name]}}
            return {"generation_config": {"tool_choice": allowed if choice.mode == "tool" else mode}}

        steps = write_messages(ask.history, "interactions", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "input": steps, "stream": True}
        if system := system_prompt(ask.history):
            body["system_instruction"] = system
        body = add_tools(body, ask, "interactions", write_choice)
        return add_options(body, ask, self.options, inside="generation_config", names=_INTERACTIONS)


def _with_chosen_tools(ask: Ask) -> Ask:
    """If the tool choice names a tool, return the request with only that tool. Otherwise return an equal request.

    This is for APIs in which `tool_choice` cannot name a tool.
    """
    return replace(ask, tools=tuple(tool for tool in ask.tools if ask.tool_choice.name in (None, tool.name)))


class CohereChat(HTTPModel):
    """A model that is called at Cohere's `/v2/chat`, with the key in `CO_API_KEY` or `COHERE_API_KEY`.

    Cohere's `tool_choice` cannot name a tool. If a tool choice names a tool, the request contains only that tool.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

    format = "cohere"
    _default_base_url = "https://api.cohere.com"
    _endpoint = "/v2/chat"
    key_names = ("CO_API_KEY", "COHERE_API_KEY")

    def body(self, ask: Ask) -> Body:
        messages = write_messages(ask.history, "cohere", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "messages": messages, "stream": True}
        ask = _with_chosen_tools(ask)
        mode = "NONE" if ask.tool_choice.mode == "none" else "REQUIRED"
        body = add_tools(body, ask, "cohere", lambda _: {"tool_choice": mode})
        return add_options(body, ask, self.options, names=_COHERE)


class OllamaChat(HTTPModel):
    """A model of an Ollama server, by default on this machine, with the key in `OLLAMA_API_KEY`.

    Ollama has no `tool_choice`. For the tool choice `none`, the request contains no tools. If the tool choice names a
    tool, the request contains only that tool. The tool choice `required` does not change the request.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

    format = "ollama"
    _default_base_url = "http://127.0.0.1:11434"
    _endpoint = "/api/chat"
    key_names = ("OLLAMA_API_KEY",)

    def body(self, ask: Ask) -> Body:
        messages = write_messages(ask.history, "ollama", dialects=ask.dialects, provider=self.origin)
        body: Body = {"model": self.name, "messages": messages, "stream": True}
        if ask.tool_choice.mode != "none" and (tools := tool_definitions(_with_chosen_tools(ask), "ollama")):
            body["tools"] = tools
        return add_options(body, ask, self.options, inside="options", names=OLLAMA_OPTIONS)


def latitude_request(
    messages: Iterable[Mapping[str, Any] | Message],
    *,
    prompt_path: str = "briefPlanner",
    conversation_uuid: str | None = None,
    tools: ToolsLike | None = None,
    dialects: Dialects = None,
    **extras: Any,
) -> Body:
    """Return the body of the request that starts or continues a Latitude run. Read the answer with `sources.latitude`.

    The body contains the whole history, even if `conversation_uuid` names an earlier run. If all `messages` are dicts,
    they are sent unchanged. The body lists the tools as `toolClients`. The model writes calls as text after `###:`.
    The texts of the definitions are neutralized in the `dialects`. `extras` are fields of the application, such as
    `todos`. They are sent unchanged.

    >>> latitude_request([{"role": "user", "content": "Hi"}], conversation_uuid="c1", todos=[])["todos"]
    []
    """
    given, enabled = list(messages), choose_dialects(dialects)
    written = [dict(message) for message in given if isinstance(message, Mapping)]
    if len(written) < len(given):
        written = write_messages(read_messages(given), "openai", dialects=enabled)
    body: Body = {"messages": written, "promptPath": prompt_path}
    if conversation_uuid is not None:
        body["conversationUuid"] = conversation_uuid
    defined = {"toolClients": ToolRegistry.of(tools).definitions("tool_clients")}
    return body | {"media": [], **extras} | neutralize_body(defined, enabled)


# Maps the accepted names of options to the names that Converse uses.
_OPTIONS = {
    **dict.fromkeys(("max_tokens", "max_completion_tokens", "maxTokens"), "maxTokens"),
    **dict.fromkeys(("stop", "stop_sequences", "stopSequences"), "stopSequences"),
    **dict.fromkeys(("top_p", "topP"), "topP"),
    "temperature": "temperature",
}


class BedrockConverse(HTTPModel):
    """A model of Bedrock, with the key in `AWS_BEARER_TOKEN_BEDROCK` or with signed requests.

    The default of `region` is the region in the model's ARN, else `AWS_REGION`, else `AWS_DEFAULT_REGION`.
    `credentials` are credentials of botocore, or any object with the method `get_frozen_credentials`. If they are None,
    botocore finds credentials. Without `base_url`, the default of `native_tool_calls` is True. `options` are the other
    parameters of `HTTPModel`, and options of the request.

    The name of a model is its id, or the ARN of an inference profile. The URL path contains the name with the same
    escapes that botocore uses, because the signature covers the path.

    Converse has no tool choice `none`. For this tool choice, the request contains the tools only if the history
    contains calls, because Converse would refuse calls without their tools.

    `streamtools.conversation.HTTPModel` explains the parameters.
    """

    format = "bedrock"
    _default_base_url = ""  # empty, because the base URL depends on the region
    key_names = ("AWS_BEARER_TOKEN_BEDROCK",)

    def __init__(self, model: str, *, region: str | None = None, credentials: Any = None, **options: Any) -> None:
        """Raise ValueError if neither a region nor `base_url` is known. Also raises the errors of `HTTPModel`."""
        arn_region = model.split(":")[3] if model.startswith("arn:") and model.count(":") >= 5 else ""
        default_region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._region = region or arn_region or default_region or ""
        if options.get("base_url") is None:
            if not self._region:
                raise ValueError("The region is not known. Pass `region=`, or set AWS_REGION.")
            options["base_url"] = f"https://bedrock-runtime.{self._region}.amazonaws.com"
            if options.get("native_tool_calls") is None:
                options["native_tool_calls"] = True
        super().__init__(model, **options)
        self._credentials = credentials

    def body(self, ask: Ask) -> Body:
        body: Body = {"messages": write_messages(ask.history, "bedrock", dialects=ask.dialects, provider=self.origin)}
        if system := system_prompt(ask.history):
            body["system"] = [{"text": system}]
        choice = ask.tool_choice
        has_calls = any(isinstance(message, Assistant) and message.calls for message in ask.history)
        if ask.tools and (choice.mode != "none" or has_calls):
            config: Body = {"tools": tool_definitions(ask, "bedrock")}
            if choice.mode == "required":
                config["toolChoice"] = {"any": {}}
            elif choice.mode == "tool":
                config["toolChoice"] = {"tool": {"name": choice.name}}
            body["toolConfig"] = config
        return add_options(body, ask, self.options, inside="inferenceConfig", names=_OPTIONS)

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        request = self._request(ask)
        if any(name.lower() == "authorization" for name in request.headers):
            return send(request, self._client)
        return self._send_signed(request)

    @asynccontextmanager
    async def _send_signed(self, request: ModelRequest) -> AsyncIterator[Source]:
        headers = await anyio.to_thread.run_sync(self._sign, request)
        async with send(replace(request, headers=headers), self._client) as source:
            yield source

    def _path(self) -> str:
        return f"/model/{quote(self.name, safe='')}/converse-stream"

    def _sign(self, request: ModelRequest) -> Mapping[str, str]:
        """Return the headers of a request, with the signature. May request credentials from a server."""
        with require_packages("BedrockConverse without the key AWS_BEARER_TOKEN_BEDROCK"):
            from botocore.auth import SigV4Auth
            from botocore.awsrequest import AWSRequest
            from botocore.session import get_session
        if self._credentials is None:
            self._credentials = get_session().get_credentials()
        if self._credentials is None or not self._region:
            missing = "AWS credentials" if self._region else "a region"
            raise ValueError(f"Signing needs {missing}. To send an API key instead, set AWS_BEARER_TOKEN_BEDROCK.")
        signed = AWSRequest("POST", request.url, headers=dict(request.headers), data=request.content)
        SigV4Auth(self._credentials.get_frozen_credentials(), "bedrock", self._region).add_auth(signed)
        return dict(signed.headers.items())

"""What the upstream is asked, in chat completions or in Ollama's own `/api/chat`. Sans-IO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from streamtools.conversation.models import OLLAMA_NAMES
from streamtools.conversation.models.http_model import place
from streamtools.conversation.prompts import Example
from streamtools.gateway.client_requests import Asked, Refused
from streamtools.gateway.plan import Plan, add_wish, history_for, wish_of
from streamtools.history import Origin, write_messages
from streamtools.outputs.encoder import to_json
from streamtools.parsing.dialects.neutralising import neutralise_all

Upstream: TypeAlias = Literal["openai", "ollama", "llama.cpp", "vllm"]
"""What an upstream speaks: chat completions, or Ollama's own form; of the last two, the template can be had too."""


class UpstreamRequest(NamedTuple):
    """A POST of JSON to an endpoint of the upstream, or of one of its `fallbacks`, from 1 on."""

    endpoint: str
    body: bytes
    at: int = 0


def write_request(
    asked: Asked,
    plan: Plan,
    upstream: Upstream = "openai",
    *,
    examples: bool | Sequence[Example] = False,
    host: str | None = None,
    more: Sequence[dict[str, Any]] = (),
) -> UpstreamRequest:
    """Return the request for the upstream; `more` messages, of chat completions, go on with the conversation.

    Raises `Refused` for tools that cannot be taught, and for what the upstream has no place for.
    """
    history = history_for(asked, plan, examples)
    body: dict[str, Any] = {"model": asked.model} if asked.model else {}
    form: Literal["openai", "ollama"] = "ollama" if upstream == "ollama" else "openai"
    body["messages"] = write_messages(history, form, dialects=plan.dialects, provider=Origin(form, host))
    if plan.taught is not None or form == "ollama":
        add_wish(body["messages"], wish_of(asked, plan))
    body["messages"] += more
    if plan.taught is None:
        body |= neutralise_all(_tools(asked), plan.dialects) if plan.dialects else _tools(asked)
    if form == "openai":
        body |= asked.options | {"stream": asked.streamed}
        wanted = asked.body.get("stream_options") if asked.client == "openai" else None
        about = dict(wanted) if isinstance(wanted, dict) else {}
        if asked.include_usage:
            about["include_usage"] = True
        if asked.streamed and about:
            body["stream_options"] = about
    else:
        body |= _for_ollama(asked, body)
    return UpstreamRequest("api/chat" if form == "ollama" else "chat/completions", to_json(body))


def _tools(asked: Asked) -> dict[str, Any]:
    """Return what an upstream that calls natively is sent of tools."""
    if not asked.tools:
        return {}
    as_they_came = ("tools", "tool_choice", "parallel_tool_calls")
    if asked.client == "openai":
        return {name: asked.body[name] for name in as_they_came if asked.body.get(name) is not None}
    allowed = None if asked.allowed is None else frozenset(asked.allowed)
    tools = [each for each in asked.tools if allowed is None or each.name in allowed]
    named = {"type": "function", "function": {"name": asked.choice.name}}
    choice: Any = named if asked.choice.mode == "tool" else asked.choice.mode
    return {
        "tools": [each.definition for each in tools],
        **({} if choice == "auto" else {"tool_choice": choice}),
        **({} if asked.parallel else {"parallel_tool_calls": False}),
    }


def _for_ollama(asked: Asked, body: dict[str, Any]) -> dict[str, Any]:
    """Return the rest of a request for Ollama, which has no `tool_choice`, and its options in an object."""
    for name in ("n", "logprobs", "top_logprobs"):
        if asked.options.get(name) not in (None, False, 0, 1 if name == "n" else 0):
            raise Refused(f"{name} has no place in the upstream's form, which is Ollama's own", name)
    ours = ("response_format", "stream_options", "reasoning_effort", "n", "logprobs", "top_logprobs")
    options = {key: value for key, value in asked.options.items() if key not in ours}
    if (effort := asked.options.get("reasoning_effort")) is not None:
        options["think"] = False if effort == "none" else "low" if effort == "minimal" else effort
    form = asked.options.get("response_format")
    schema = form.get("json_schema") if isinstance(form, dict) else None
    if isinstance(schema, dict):
        options["format"] = schema.get("schema")
    elif isinstance(form, dict) and form.get("type") == "json_object":
        options["format"] = "json"
    tools = body.pop("tools", None) if asked.choice.mode == "none" else body.get("tools")
    if tools and asked.choice.mode == "tool":
        body["tools"] = [each for each in tools if each["function"]["name"] == asked.choice.name]
    for name in ("tool_choice", "parallel_tool_calls"):
        body.pop(name, None)
    return place(options, "options", OLLAMA_NAMES) | {"stream": asked.streamed}

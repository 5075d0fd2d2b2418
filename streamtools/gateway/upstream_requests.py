"""Writes the request for the upstream from a client's request. Sans-IO.

A `CallPlan` says in which dialects calls are read, and which dialect the prompt teaches. Each request of a conversation
begins like the previous request, so that the upstream can use its prompt cache. For this reason, instructions for a
single answer are appended at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from streamtools.calls import ToolCall
from streamtools.conversation.models.http_model import calls_natively_at
from streamtools.conversation.prompts import add_teaching, augment_system_prompt
from streamtools.gateway.client_requests import ClientRequest, as_tools, cached, definitions_of, tools_of
from streamtools.history import Assistant, Message, Origin, calls_as_text, write_messages
from streamtools.history.pairing import pair_results
from streamtools.history.untrusted import neutralize_body, neutralize_words
from streamtools.limits import DEFAULT_LIMITS
from streamtools.logs import Logger
from streamtools.outputs.sse import to_json
from streamtools.parsing.dialects import DIALECTS, Dialect, Dialects, choose_dialects, dialects_for, for_model
from streamtools.sources.provider_terms import object_in
from streamtools.tools.schemas import inline

_log = Logger(__name__)

Upstream: TypeAlias = Literal["openai", "ollama", "llama.cpp", "vllm"]
"""The server that answers chat completions. `"openai"` stands for any other server.

The other three servers can force an answer to match a schema. The gateway uses such a schema for forced calls."""

CallMode: TypeAlias = Literal["text", "native", "auto"]
"""How models call tools. `streamtools.gateway.exchange.Rewrite` describes the modes."""

CallModes: TypeAlias = CallMode | Mapping[str, CallMode]
"""One mode for all models, or a mapping from patterns of model names to modes."""

TEXT_CALL_ID = "text_"
"""A part of the id of each call in text. In a later history, it marks the calls that were not native."""


class UpstreamRequest(NamedTuple):
    """A POST request with the JSON `body` to an `endpoint`.

    `at` is the number of the upstream: 0 for the primary upstream, 1 for the first of the `fallbacks`, and so on.
    """

    endpoint: str
    body: bytes
    at: int = 0


class CallPlan(NamedTuple):
    """How the model is asked to call tools in one answer, and how its calls are read."""

    dialects: tuple[Dialect, ...]
    """The dialects in which calls are read, and in which the request is neutralized."""
    taught: Dialect | None
    """The dialect that the prompt teaches. None for native tools."""
    used: Dialect | None = None
    """The dialect in which calls and results in the history are written. None means `taught`."""
    only_call: bool = False
    """Whether a schema makes the upstream answer with only a call or an array of calls, in JSON without a marker."""

    @property
    def readable(self) -> list[Dialect]:
        """All dialects in which calls are read. With `only_call`, they include bare JSON."""
        bare = (DIALECTS["json_array"], DIALECTS["raw_json"]) if self.only_call else ()
        return list({dialect.id: dialect for dialect in (*self.dialects, *bare)}.values())

    @property
    def native(self) -> bool | None:
        """True if the model makes native calls, False if it makes none, None if this is not known."""
        return False if self.taught else None if self.dialects else True


def mode_of(modes: CallModes, model: str) -> CallMode:
    """Return the mode of the first pattern that matches the name `model`, or `"text"` if no pattern matches.

    A pattern with `*`, `?` or `[` must match the whole name. Any other pattern must be a part of the name. The case of
    letters is ignored.

    >>> mode_of({"gemma": "text", "*": "native"}, "google/Gemma-3-4b")
    'text'
    """
    if isinstance(modes, str):
        return modes
    name = model.lower()
    for pattern, mode in modes.items():
        glob = pattern.lower() if set(pattern) & set("*?[") else f"*{pattern.lower()}*"
        if fnmatchcase(name, glob):
            return mode
    return "text"


def make_plan(mode: CallMode, dialects: Dialects, request: ClientRequest, host: str | None) -> CallPlan:
    """Return the plan for one request to the upstream at `host`."""
    if mode == "text":
        return teaching_plan(dialects, request.model)
    if mode == "native":
        return CallPlan(() if dialects is None else choose_dialects(dialects), None)
    # The id of each call that was made in text contains `TEXT_CALL_ID`.
    made_natively = (TEXT_CALL_ID not in call.id for call in calls_in(request.history))
    if calls_natively_at(host or "") or any(made_natively):
        return CallPlan((), None)
    if dialects is None:
        dialects = dialects_for(request.model) or _warn_of_unknown_model(request.model)
    return CallPlan(choose_dialects(dialects), None)


@lru_cache(maxsize=256)
def _warn_of_unknown_model(model: str) -> tuple[str, ...]:
    """Log a warning, once for each name, that the gateway reads no calls in the text of this model."""
    _log.warning("model_unknown", model=model, advice="name its dialects: mode 'auto' finds no call in its text")
    return ()


def teaching_plan(dialects: Dialects, model: str = "") -> CallPlan:
    """Return the plan for the mode `"text"`, which teaches the first of the `dialects`.

    If `dialects` is None, it teaches the dialect known for the model's name, or `tilde_fence`. Raises ValueError for a
    dialect that cannot be taught.
    """
    if dialects is None:
        known = for_model(model, native_tool_calls=False)
        taught = (known and known.taught) or DIALECTS["tilde_fence"]
        return CallPlan((taught, *(dialect for dialect in choose_dialects(known) if dialect.id != taught.id)), taught)
    chosen = choose_dialects(dialects)
    if not chosen or not chosen[0].teachable:
        problem = f"{chosen[0].id!r} cannot be taught" if chosen else "`dialects` is empty"
        advice = "Put a dialect such as 'tilde_fence' first, or use mode 'native', which teaches no dialect."
        raise ValueError(f"Mode 'text' teaches the first dialect, but {problem}. {advice}")
    return CallPlan(chosen, chosen[0])


def calls_in(history: Iterable[Message]) -> Iterator[ToolCall]:
    return (call for message in history if isinstance(message, Assistant) for call in message.calls)


# The request.


def write_request(request: ClientRequest, plan: CallPlan, *, host: str | None = None) -> UpstreamRequest:
    """Return the request for the upstream at `host`. Raises `InvalidRequest` for a tool whose definition is invalid."""
    history = _history_for(request, plan)
    body: dict[str, Any] = {"model": request.model} if request.model else {}
    body["messages"] = write_messages(history, "openai", dialects=plan.dialects, provider=Origin("openai", host))
    if plan.taught is not None:
        _append_instructions(body["messages"], instructions_for(request, plan))
    else:
        body |= _tools(request)
    body |= request.options | {"stream": request.streamed}
    stream_options = dict(object_in(request.body, "stream_options")) if request.client == "openai" else {}
    if request.include_usage:
        stream_options["include_usage"] = True
    if request.streamed and stream_options:
        body["stream_options"] = stream_options
    return UpstreamRequest("chat/completions", to_json(neutralize_body(body, plan.dialects)))


def _tools(request: ClientRequest) -> dict[str, Any]:
    """Return the fields for the tools and the tool choice, for a model that makes native calls."""
    if not request.tools:
        return {}
    if request.client == "openai":
        names = ("tools", "tool_choice", "parallel_tool_calls")
        return {name: request.body[name] for name in names if request.body.get(name) is not None}
    tools = [tool for tool in request.tools if request.allowed is None or tool.name in request.allowed]
    named = {"type": "function", "function": {"name": request.choice.name}}
    choice: Any = named if request.choice.mode == "tool" else request.choice.mode
    return {
        "tools": [tool.definition for tool in tools],
        **({} if choice == "auto" else {"tool_choice": choice}),
        **({} if request.parallel else {"parallel_tool_calls": False}),
    }


# The history.


def _history_for(request: ClientRequest, plan: CallPlan) -> list[Message]:
    """Return the history for the upstream, neutralized.

    If the plan teaches a dialect, the system prompt describes the tools, and calls and results are written as text.
    """
    history = request.history
    if plan.dialects:
        history = neutralize_words(history, plan.dialects)
    if plan.taught is None:
        return history
    taught = _teach(pair_results(history, "cancelled"), request, plan.dialects)
    return calls_as_text(taught, plan.used or plan.taught, reserved=plan.dialects)


def _teach(history: list[Message], request: ClientRequest, enabled: tuple[Dialect, ...]) -> list[Message]:
    """Return the history with the tools in its system prompt. If no tool may be called, return it unchanged."""
    if request.choice.mode == "none" or not request.tools:
        return history
    return add_teaching(history, _tool_section(definitions_of(request.tools), enabled))


@cached
def _tool_section(definitions: bytes, enabled: tuple[Dialect, ...]) -> str:
    """Return the section of the system prompt that describes the tools."""
    return augment_system_prompt(None, tools_of(definitions), enabled)


# Instructions for one answer.


def instructions_for(request: ClientRequest, plan: CallPlan) -> str:
    """Return the instructions about tool calls that apply only to the next answer, or "" if there are none."""
    if not request.tools or request.choice.mode == "none":
        return ""
    sentences = []
    if request.allowed is not None:
        sentences.append(f"In your answer, use only these tools: {', '.join(request.allowed)}.")
    several = "an array of JSON objects" if request.parallel and not request.choice.name else "a JSON object"
    suffix = ", in the form that was described"
    if plan.only_call:
        suffix = f', as {several} with "name" and "arguments", and nothing else'
    if request.choice.mode == "tool":
        sentences.append(f"Your answer has to be a call of the tool {request.choice.name}{suffix}.")
    elif request.choice.mode == "required":
        sentences.append(f"Your answer has to call a tool{suffix}.")
    if not request.parallel:
        sentences.append("Make one call at most.")
    return " ".join(sentences)


def _append_instructions(messages: list[dict[str, Any]], instructions: str) -> None:
    """Append instructions to the last message if it is a user message, else as a new user message."""
    last = messages[-1] if messages else {}
    if not instructions:
        return
    if last.get("role") != "user":
        messages.append({"role": "user", "content": instructions})
    elif isinstance(last["content"], str):
        last["content"] = f"{last['content']}\n\n{instructions}"
    else:
        last["content"].append({"type": "text", "text": instructions})


# Forced calls: even if a call is required, a model that calls in text may write no call. Some servers can force an
# answer to match a schema, so they get the schema of the call. The answer is then JSON, whichever dialect the prompt
# teaches.

SCHEMA_REFUSED = (400, 422, 500, 501)
"""Statuses with which servers refuse a request whose schema they do not support."""

_ENFORCE_SCHEMAS = ("llama.cpp", "vllm", "ollama")


def force_call(request: ClientRequest, plan: CallPlan, upstream: str) -> tuple[ClientRequest, CallPlan]:
    """Add the schema of the call if a call is forced, the plan teaches a dialect, and the upstream supports schemas.

    Returns the request and the plan, which are unchanged if no schema is added. No schema is added if the client's
    request already has a `response_format`. Raises `InvalidRequest` for a tool whose definition is invalid.
    """
    forced = request.choice.mode in ("required", "tool")
    if plan.taught is None or not forced or upstream not in _ENFORCE_SCHEMAS or request.options.get("response_format"):
        return request, plan
    schema = {"name": "call", "schema": _schema_of_call(request)}
    options = {**request.options, "response_format": {"type": "json_schema", "json_schema": schema}}
    return request._replace(options=options), plan._replace(only_call=True)


def without_schema(request: ClientRequest, plan: CallPlan) -> tuple[ClientRequest, CallPlan]:
    """Return the request and the plan without the schema that `force_call` added."""
    options = {name: value for name, value in request.options.items() if name != "response_format"}
    return request._replace(options=options), plan._replace(only_call=False)


def _schema_of_call(request: ClientRequest) -> dict[str, Any]:
    """Return the schema of one call, or of an array of calls if the client accepts several calls."""
    names = {request.choice.name} if request.choice.name else None if request.allowed is None else {*request.allowed}
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": inline(tool.parameters)},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in as_tools(request.tools)
        if names is None or tool.name in names
    ]
    one = calls[0] if len(calls) == 1 else {"anyOf": calls}
    if request.choice.name or not request.parallel:
        return one
    return {"type": "array", "items": one, "minItems": 1, "maxItems": DEFAULT_LIMITS.calls}

"""Defines `Model`, the interface of all models, and `Ask`, one request to a model.

An `Ask` is independent of the provider, and so are the chat, emulation and failover that create it. The model class of
a provider converts an `Ask` to the body of that provider's request.

The output type of an answer is added to a request in the provider's schema parameter, or in the prompt. Providers that
accept a schema constrain the model's output to it. Only OpenAI accepts a schema and tools in one request, so other
providers get a schema only in requests without tools. Anthropic's models must call a tool whose argument is the answer.
The arguments of this call become the text of the answer. Anthropic does not allow forced tool calls while thinking is
enabled. In this case, and for all other models, the prompt describes the type.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from streamtools.conversation.models.prefill_fields import thinks
from streamtools.errors import check_names, described, did_you_mean, has_methods, nearest
from streamtools.events import NativeToolCall, ProviderCompleted, SourceEvent, TextDelta, ToolCallDelta, ToolCallStart
from streamtools.history import Message, Origin, System
from streamtools.history.untrusted import neutralize_body
from streamtools.parsing.dialects import Dialect
from streamtools.sources import Source
from streamtools.tools import Tool, ToolChoice, ToolRegistry
from streamtools.tools.definitions import ProviderFormat
from streamtools.typed import OutputType

AUTO = ToolChoice()

Body = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """One request to a model.

    `tools` are sent as native definitions. If they are empty, no `tool_choice` is sent. `options` are merged into the
    body after the options of the model. An option of None removes the field from the body. `dialects` are the enabled
    dialects, in which results of calls in text are written. `prefill` is the beginning of the answer, which the model
    continues. It is not sent if the model's server does not support prefills. `output` is the type of the answer, for a
    provider that accepts a schema. `hide` replaces the values of a vault in the history, directly before it is sent.
    """

    history: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    prefill: str = ""
    output: OutputType | None = None
    hide: Callable[[Iterable[Message]], list[Message]] | None = None

    def __repr__(self) -> str:
        return f"<Ask with {len(self.history)} messages and {len(self.tools)} tools>"


class Model(Protocol):
    """A model that answers requests. It keeps no state between requests."""

    @property
    def name(self) -> str:
        """The name by which the provider knows the model."""

    @property
    def native_tool_calls(self) -> bool | None:
        """True if calls arrive in the provider's field for calls, False if in the text, None if unknown."""

    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Has no side effects."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        A failure of the provider or the network is an event of the source. An exception means an error of the caller.
        """


def check_model(model: object) -> None:
    """Raise TypeError if `model` does not implement `Model`."""
    if not (has_methods(model, "stream") and hasattr(model, "native_tool_calls")):
        name = model if isinstance(model, str) else "qwen3"
        hint = f"such as OpenAIChat({name!r}) of streamtools.conversation"
        advice = ""
        if isinstance(model, list | tuple):
            has_models = any(has_methods(each, "stream") for each in model)
            advice = "; for several models, write Fallback(first, second)" if has_models else "; the model comes first"
        raise TypeError(f"`model` must be a model, {hint}, got {described(model)}{advice}.")


_OTHER_NAMES = dict.fromkeys(("url", "host", "endpoint", "api_base"), "base_url")
_OTHER_NAMES |= {"key": "api_key", "token": "api_key", "http_client": "client", "max_retries": "retries"}
"""Maps parameter names of other libraries to our names. No provider has an option with one of these names."""

_CHAT_OPTIONS = "dialects follow_up max_steps last_step output guards approvals resume parser runner"
_OF_CHAT = dict.fromkeys(("messages", "system"), "chat(model, messages)") | {"dialect": "chat(..., dialects=[...])"}
_OF_CHAT |= {name: f"chat(..., {name}=...)" for name in _CHAT_OPTIONS.split()}
"""Maps names that belong to `chat` to code that passes them. Some providers have an option `system`, too."""

_FIELDS = ("temperature", "max_tokens", "max_completion_tokens")
"""Body fields that most providers have. Servers ignore a misspelled field."""


def check_body_fields(model: type[Any], options: Mapping[str, Any]) -> None:
    """Raise TypeError if one of the `options` is a parameter of `chat`, or a misspelled parameter or name in `_FIELDS`.

    No provider has an option with a name similar to a parameter. Other options are fields of the request body. The
    field `tools` may hold the provider's own tools, but no functions.
    """
    annotated = {name for kind in model.__mro__ for name in getattr(kind.__init__, "__annotations__", ())}  # type: ignore[misc]
    parameters = sorted(annotated - {"model", "prefill", "options", "return"})
    homes = _OF_CHAT | {name: f"{ours}=..." for name, ours in _OTHER_NAMES.items() if ours in parameters}
    name = "name=..." if "name" in parameters else f"{model.__name__}(model)"
    homes |= dict.fromkeys(("name", "model_name", "model_id"), name)
    if getattr(model, "format", "") in ("anthropic", "bedrock"):
        del homes["system"]
    wrong = {name for name in options if name in homes or did_you_mean(name, parameters)}
    tools = options.get("tools") or ()
    if callable(tools) or any(map(callable, tools)):
        wrong.add("tools")
        homes["tools"] = "chat(..., tools=[...])"
    # "min_tokens" and "maxTokens" are fields of some servers.
    wrong |= {name for name in {*options} - {*_FIELDS} if name.islower() and nearest(name, _FIELDS, cutoff=0.85)}
    check_names(model.__name__, wrong, [*parameters, *_FIELDS], homes)


def origin_of(model: object) -> Origin:
    """Return the origin of a model's answers. For a model without an `origin`, the origin has only the model's name."""
    origin = getattr(model, "origin", None)
    return origin if isinstance(origin, Origin) else Origin(model=getattr(model, "name", None))


# Bodies of requests. Options have the provider's names. Common options may also have OpenAI's names: these are renamed,
# and moved to the object in which the provider expects them.


def add_tools(body: Body, ask: Ask, format: ProviderFormat, write_choice: Callable[[ToolChoice], Body]) -> Body:
    """Return `body` with the tools and the tool choice of `ask`. `write_choice` returns the fields of a tool choice."""
    if not ask.tools:
        return body
    choice = write_choice(ask.tool_choice) if ask.tool_choice.mode != "auto" else {}
    return body | {"tools": tool_definitions(ask, format)} | choice


def tool_definitions(ask: Ask, format: ProviderFormat) -> list[Body]:
    """Return the tools of `ask` in the format of a provider."""
    return ToolRegistry(*ask.tools).accepted_by(format).definitions(format)


def add_options(
    body: Body, ask: Ask, options: Mapping[str, Any], inside: str = "", names: Mapping[str, str] = MappingProxyType({})
) -> Body:
    """Return `body`, merged with `options` and then with the options of `ask`, under the provider's names.

    `names` maps accepted names to the provider's names. If `inside` is the name of an object, the options in `names`
    are moved into this object. If `names` contains `stop`, a single stop word becomes a list. All texts except the
    messages are neutralized in the dialects of `ask`, so that a model that repeats such a text makes no call.

    >>> add_options({"model": "m"}, Ask((), options={"seed": None}), {"stop": "E", "seed": 1}, names={"stop": "stops"})
    {'model': 'm', 'stops': ['E']}
    """
    merged = merge(body, *(place_options(each, inside, names) for each in (options, ask.options)))
    holder = merged.get(inside, {}) if inside else merged
    stop = names.get("stop", "")
    if isinstance(holder.get(stop), str):
        holder[stop] = [holder[stop]]
    if inside in merged and not holder:
        del merged[inside]
    return neutralize_body(merged, ask.dialects)


def place_options(options: Mapping[str, Any], inside: str, names: Mapping[str, str]) -> Body:
    """Return `options` under the provider's names. `inside` and `names` are the parameters of `add_options`.

    A value of None is kept, so that `merge` removes the field.

    >>> place_options({"max_tokens": 9, "think": True}, "options", {"max_tokens": "num_predict"})
    {'options': {'num_predict': 9}, 'think': True}
    """
    placed: Body = {}
    for key, value in options.items():
        if inside and (key in names or (key == inside and isinstance(value, Mapping))):
            placed[inside] = {**(placed.get(inside) or {}), **({names[key]: value} if key in names else value)}
        else:
            placed[names.get(key, key)] = value
    return placed


def merge(body: Body, *options: Mapping[str, Any]) -> Body:
    """Return `body` with the fields of `options`. Later values replace earlier values.

    Three values are special: an object is merged into an earlier object, `tools` are appended to earlier tools, and
    None removes the field.

    >>> merge({"stream": True, "stream_options": {"include_usage": True}}, {"stream_options": None, "seed": 1})
    {'stream': True, 'seed': 1}
    """
    merged = dict(body)
    for given in options:
        for key, value in given.items():
            present = merged.get(key)
            if value is None:
                merged.pop(key, None)
            elif isinstance(value, Mapping):
                merged[key] = merge(present if isinstance(present, dict) else {}, value)
            elif key == "tools" and isinstance(present, list):
                merged[key] = [*present, *copy.deepcopy(value)]
            else:
                merged[key] = copy.deepcopy(value)
    return merged


# The output type in a request.

ANSWER_TOOL = "answer"
"""The name of the tool that the model must call with its answer."""


def takes_schema(model: object, output: OutputType, options: Mapping[str, Any], *, tools: bool) -> bool:
    """Return whether a request with these options can carry the schema. `tools` says whether it also carries tools."""
    format = getattr(model, "format", None)
    if tools:
        return urlsplit(str(getattr(model, "url", ""))).hostname == "api.openai.com"
    if format == "anthropic":
        given = {**getattr(model, "options", {}), **options}
        can_choose_tool = not (thinks(given) or "tools" in given or "tool_choice" in given)
        return can_choose_tool and output.schema.get("type") == "object"
    return bool(schema_fields(format, output))


def schema_fields(format: str | None, output: OutputType) -> Body:
    """Return the body fields that hold the schema of the answer; none if the provider accepts no schema."""
    name = "".join(char if char.isalnum() and char.isascii() else "_" for char in output.name)[:64] or "output"
    schema = output.schema
    named = {"name": name, "schema": schema, "strict": False}  # strict mode supports only a subset of JSON Schema
    match format:
        case "openai":
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case "responses":
            return {"text": {"format": {"type": "json_schema", **named}}}
        case "gemini":
            return {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}}
        case "ollama":
            return {"format": schema}
        case "anthropic":
            tool = {"name": ANSWER_TOOL, "description": f"Takes your answer, a {name}.", "input_schema": schema}
            choice = {"type": "tool", "name": ANSWER_TOOL, "disable_parallel_tool_use": True}
            return {"tools": [tool], "tool_choice": choice}
    return {}


def with_type_in_prompt(history: tuple[Message, ...], output: OutputType) -> tuple[Message, ...]:
    """Return the history with a description of the answer's type in its system prompt."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    contract = f"Your final answer is one JSON value and nothing else, which fits this JSON schema:\n{schema}"
    return instruct(history, contract)


def instruct(history: Sequence[Message], text: str) -> tuple[Message, ...]:
    """Return the history with `text` at the end of its system prompt."""
    first = history[0] if history else None
    if isinstance(first, System):
        return (System(f"{first.text}\n\n{text}"), *history[1:])
    return (System(text), *history)


class AnswerToolReader:
    """Replaces a call of the answer tool with text events that hold its arguments. Sans-IO."""

    def __init__(self) -> None:
        self._has_deltas: dict[str, bool] = {}  # by call key: whether a delta of the arguments has arrived

    def read(self, batch: Sequence[SourceEvent]) -> Sequence[SourceEvent]:
        """Return the events of `batch`, with text events instead of events of the answer tool's call."""
        return [read for event in batch for read in self._read(event)]

    def _read(self, event: SourceEvent) -> tuple[SourceEvent, ...]:
        match event:
            case ToolCallStart(key, name=name) if name == ANSWER_TOOL:
                self._has_deltas[key] = False
                return ()
            case ToolCallDelta(key, text) if key in self._has_deltas:
                self._has_deltas[key] = self._has_deltas[key] or bool(text)
                return (TextDelta(text),)
            case NativeToolCall(name, arguments, key) if name == ANSWER_TOOL or key in self._has_deltas:
                if self._has_deltas.get(key) or arguments is None:
                    return ()
                return (TextDelta(arguments if isinstance(arguments, str) else json.dumps(arguments)),)
            case ProviderCompleted(tool_calls=calls) if self._has_deltas or calls:
                others = [call for call in calls or () if call.name != ANSWER_TOOL] or None
                finish = "stop" if event.finish_reason == "tool_calls" and not others else event.finish_reason
                return (replace(event, tool_calls=others, finish_reason=finish),)
        return (event,)

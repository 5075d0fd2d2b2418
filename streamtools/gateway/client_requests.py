"""Parses requests in the formats of chat completions, Responses and Anthropic's Messages. Sans-IO.

`read_request` converts each format to a `ClientRequest`: the history, the tools, the tool choice and the other options.
Options are stored under their names in chat completions, because nearly every server supports this format. The gateway
stores nothing between requests, and does not run the built-in tools of providers. A request that needs stored data or
built-in tools is refused. The error explains what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, TypeVarTuple

import msgspec

from streamtools.history import Message, read_messages
from streamtools.history.content import read_content, string_at, text_in
from streamtools.json_values import compact, decode, write_json
from streamtools.sources.provider_terms import object_in, objects
from streamtools.tools import Tool, ToolChoice
from streamtools.tools.schemas import REFUSED_AT_THE_TOP
from streamtools.tools.tool_choice import check_choice, parse_choice

Client: TypeAlias = Literal["openai", "responses", "anthropic"]
"""The format of a client's request and response: chat completions, Responses or Anthropic's Messages."""

Body = dict[str, Any]


class InvalidRequest(Exception):
    """The error for a request that the gateway refuses.

    Its text is for the client, and `param` is the name of the invalid field in the body.
    """

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class DeclaredTool(NamedTuple):
    """A tool in a client's request. `definition` has the format of chat completions.

    `custom` says whether the input of the tool is free text instead of JSON arguments.
    """

    name: str
    definition: Body
    custom: bool = False


class ClientRequest(NamedTuple):
    """One request of a client, independent of its format."""

    client: Client
    model: str
    history: list[Message]
    tools: tuple[DeclaredTool, ...]
    choice: ToolChoice
    allowed: tuple[str, ...] | None
    """The names of the tools that this answer may call; None if it may call all. A prompt that teaches a dialect also
    describes the other tools."""
    parallel: bool
    streamed: bool
    include_usage: bool
    options: Body
    """Other fields for the upstream, under their names in chat completions."""
    body: Body
    """The body that the client sent."""
    dropped: tuple[str, ...] = ()
    """The names of ignored options for which the gateway logs a warning, because they may change the answer.

    Chat completions have no such options."""


def read_body(content: bytes) -> Body:
    """Parse the JSON of a body, and check its `model`. Raises `InvalidRequest`."""
    try:
        body = decode(content)
    except ValueError as error:
        raise InvalidRequest(f"Invalid request body: it is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise InvalidRequest("Invalid request body: it must be a JSON object.")
    if not isinstance(body.get("model", ""), str):
        raise InvalidRequest("`model` must be a string.", "model")
    return body


def read_request(client: Client, body: Body) -> ClientRequest:
    """Parse a body that has the format `client`. Raises `InvalidRequest`."""
    return _READERS[client](body)


def _history(messages: object, param: str, system: object = None) -> list[Message]:
    """Return the history for `messages` with `system` as the system prompt. `param` names the field of the messages."""
    if not isinstance(messages, list) or not messages:
        raise InvalidRequest(f"`{param}` must be a list of at least one message.", param)
    first = [{"role": "system", "content": text}] if (text := text_in(read_content(system))) else []
    try:
        history = read_messages([*first, *messages], client=False)
    except ValueError as error:
        raise InvalidRequest(str(error), param) from None
    if not history:
        raise InvalidRequest(f"`{param}` holds only tool results. Send the calls that they answer, too.", param)
    return history


# Chat completions.

_CHAT_FIELDS = {
    "messages", "model", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "functions",
    "function_call", "store",
}  # fmt: skip
"""Fields of chat completions that are not in `ClientRequest.options`."""


def _read_chat(body: Body) -> ClientRequest:
    for deprecated in ("functions", "function_call"):
        if body.get(deprecated):
            raise InvalidRequest(f"`{deprecated}` is not supported. Send the functions as `tools`.", deprecated)
    modalities = body.get("modalities")
    if isinstance(modalities, list) and any(modality != "text" for modality in modalities):
        raise InvalidRequest("Only text answers are supported. Leave `modalities` out.", "modalities")
    return ClientRequest(
        **_common_fields("openai", body),
        history=_history(body.get("messages"), "messages"),
        include_usage=object_in(body, "stream_options").get("include_usage") is True,
        options={name: value for name, value in body.items() if name not in _CHAT_FIELDS},
    )


# Responses.

_NEEDS_STORAGE = {
    "previous_response_id": "Send the items of the conversation in `input`.",
    "conversation": "Send the items of the conversation in `input`.",
    "background": "Leave it out, and read the answer as it arrives.",
    "prompt": "Send the prompt itself, in `instructions` and `input`.",
}
"""Fields of Responses that need stored data, and the advice to the client for each field."""

_RESPONSES_FIELDS = {
    "input", "instructions", "model", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning",
    "max_output_tokens", "stream", "store", "include", "metadata", "max_tool_calls", "stream_options", "truncation",
    "context_management", *_NEEDS_STORAGE,
}  # fmt: skip
"""Fields of Responses that are not sent to the upstream unchanged.

They are converted, refused, or have no effect in a gateway. `_passed_options` selects from the other fields."""


def _read_responses(body: Body) -> ClientRequest:
    for name, advice in _NEEDS_STORAGE.items():
        if body.get(name):
            raise InvalidRequest(f"`{name}` is not supported: nothing is stored between requests. {advice}", name)
    common = _common_fields("responses", body)
    items = body.get("input")
    options = _passed_options(body, _RESPONSES_FIELDS) | _renamed(body, max_output_tokens="max_tokens")
    text = object_in(body, "text")
    options |= _renamed(text, "verbosity") | _renamed(object_in(body, "reasoning"), effort="reasoning_effort")
    answer_format = object_in(text, "format")
    if answer_format and (kind := answer_format.get("type")) != "text":
        schema = {name: value for name, value in answer_format.items() if name != "type"}
        options["response_format"] = {"type": kind} | ({"json_schema": schema} if kind == "json_schema" else {})
    return ClientRequest(
        **common,
        history=_history(
            [{"role": "user", "content": items}] if isinstance(items, str) else items, "input", body.get("instructions")
        ),
        include_usage=True,
        options=options,
        dropped=_dropped(body, "truncation", "context_management", "max_tool_calls"),
    )


# Anthropic's Messages.

_MESSAGES_FIELDS = {
    "messages", "model", "system", "tools", "tool_choice", "max_tokens", "stream", "stop_sequences", "metadata",
    "output_config", "output_format", "cache_control", "thinking", "context_management", "mcp_servers", "container",
}  # fmt: skip
"""Fields of Anthropic's Messages that `_passed_options` does not send."""
_RUN_BY_PROVIDER = ("mcp_servers", "container")  # fields for tools that only Anthropic can run


def _read_anthropic(body: Body) -> ClientRequest:
    if not isinstance(body.get("max_tokens"), int):
        raise InvalidRequest("`max_tokens` is required and must be an integer.", "max_tokens")
    for name in _RUN_BY_PROVIDER:
        if body.get(name):
            raise InvalidRequest(f"`{name}` is not supported: only Anthropic runs it. Declare a function tool.", name)
    common = _common_fields("anthropic", body)
    common["parallel"] = object_in(body, "tool_choice").get("disable_parallel_tool_use") is not True
    options = _passed_options(body, _MESSAGES_FIELDS) | _renamed(body, "max_tokens", stop_sequences="stop")
    config = object_in(body, "output_config")
    options |= _renamed(object_in(body, "metadata"), user_id="user") | _renamed(config, effort="reasoning_effort")
    answer_format = object_in(config, "format") or object_in(body, "output_format")
    if answer_format.get("type") == "json_schema":
        schema = {"name": "answer", "schema": answer_format.get("schema"), "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    return ClientRequest(
        **common,
        history=_history(body.get("messages"), "messages", body.get("system")),
        include_usage=True,
        options=options,
        dropped=_dropped(body, "thinking", "context_management"),
    )


_READERS: dict[str, Callable[[Body], ClientRequest]] = {
    "openai": _read_chat,
    "responses": _read_responses,
    "anthropic": _read_anthropic,
}


# Code that all formats share.


def _common_fields(client: Client, body: Body) -> dict[str, Any]:
    """Return the fields of a `ClientRequest` that all formats have."""
    listed = body.get("tools")
    if listed is not None and not isinstance(listed, list):
        raise InvalidRequest("`tools` must be a list of definitions.", "tools")
    tools = tuple(_read_tool(tool, client) for tool in listed or ())
    choice, allowed = _read_choice(body.get("tool_choice"), tools)
    return {
        "client": client,
        "model": body.get("model", ""),
        "tools": tools,
        "choice": choice,
        "allowed": allowed,
        "parallel": body.get("parallel_tool_calls") is not False,
        "streamed": body.get("stream") is True,
        "body": body,
    }


def _renamed(body: Body, *same: str, **renamed: str) -> Body:
    """Return some fields of a body under their names in chat completions. Null fields are omitted.

    The fields in `same` keep their names. `renamed` maps other fields to their names in chat completions.
    """
    names = {**dict.fromkeys(same), **renamed}
    return {(other or name): body[name] for name, other in names.items() if body.get(name) is not None}


def _passed_options(body: Body, known: set[str]) -> Body:
    """Return the options that are sent unchanged: they have the same name in chat completions, or are unknown.

    These are all fields except null fields and those in `known` and `_CHAT_FIELDS`. The fields `n`, `logprobs` and
    `top_logprobs` are excluded, too, because the gateway cannot convert their results.
    """
    excluded = known | _CHAT_FIELDS | {"n", "logprobs", "top_logprobs"}
    return {name: value for name, value in body.items() if name not in excluded and value is not None}


def _dropped(body: Body, *names: str) -> tuple[str, ...]:
    """Return the `names` of fields whose value is neither null nor "disabled" nor {"type": "disabled"}."""
    return tuple(name for name in names if body.get(name) not in (None, "disabled", {"type": "disabled"}))


# Tools.


def _read_tool(tool: object, client: Client) -> DeclaredTool:
    """Convert a tool to the format of chat completions.

    `tool` has the format `client`. Raises `InvalidRequest` for a built-in tool and for a tool without a name.
    """
    kind = tool.get("type", "custom" if client == "anthropic" else "function") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or kind not in ("function", "custom"):
        raise InvalidRequest(
            f"A tool of type {kind!r} is not supported: only its provider can run it. Declare a function and run it.",
            "tools",
        )
    inner = tool.get(kind) if client == "openai" else tool
    name = string_at(inner, "name")
    if not isinstance(inner, Mapping) or not name:
        raise InvalidRequest("A tool in `tools` has no name. Name it.", "tools")
    custom = kind == "custom" and client != "anthropic"
    description, syntax = string_at(inner, "description"), inner.get("format")
    schema = inner.get("input_schema" if client == "anthropic" else "parameters")
    if custom:
        schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        if string_at(syntax, "type") == "grammar":
            description = f"{description}\nThe input is a text in this form: {compact(syntax)}".lstrip()
    described = {"description": description} if description else {}
    parameters = {"type": "object", "properties": {}} if schema is None else schema
    definition: Body = {"name": name, **described, "parameters": parameters}
    if inner.get("strict") is True and not custom:
        definition["strict"] = True
    return DeclaredTool(name, {"type": "function", "function": definition}, custom)


def _read_choice(given_choice: Any, tools: tuple[DeclaredTool, ...]) -> tuple[ToolChoice, tuple[str, ...] | None]:
    """Return the tool choice, and the names of the allowed tools (None if the client allows all tools)."""
    allowed: tuple[str, ...] | None = None
    if isinstance(given_choice, dict) and given_choice.get("type") == "allowed_tools":
        # Chat completions nest the list: {"type": "allowed_tools", "allowed_tools": {"tools": …}}. Responses does not.
        holder = object_in(given_choice, "allowed_tools") or given_choice
        found = objects(holder.get("tools"))
        # {"type": "function", "name": …} or {"type": "function", "function": {"name": …}}
        names = (string_at(tool, "name") or string_at(tool.get(str(tool.get("type"))), "name") for tool in found)
        allowed = tuple(filter(None, names))
        given_choice = holder.get("mode", "auto")
    if isinstance(given_choice, dict) and given_choice.get("type") == "custom":
        given_choice = string_at(given_choice.get("custom"), "name") or string_at(given_choice, "name")
    known = {tool.name: tool for tool in tools}  # a list would be slow for many allowed tools
    try:
        choice = parse_choice(given_choice)
        for each in (choice, *(ToolChoice("tool", name) for name in allowed or ())):
            check_choice(each, known)
    except (ValueError, TypeError) as error:
        raise InvalidRequest(str(error), "tool_choice") from None
    return choice, allowed


_LONG_DEFINITIONS = 256 * 1024  # bytes

_More = TypeVarTuple("_More")
_Result = TypeVar("_Result")


def cached(function: Callable[[bytes, *_More], _Result]) -> Callable[[bytes, *_More], _Result]:
    """Add a cache to `function`. Its first argument is the JSON of tool definitions, which clients repeat.

    The cache keeps 64 results. A second cache keeps one result, for definitions over 256 KiB.
    """
    for_short, for_long = lru_cache(64)(function), lru_cache(1)(function)

    def find(definitions: bytes, *more: *_More) -> _Result:
        return (for_short if len(definitions) <= _LONG_DEFINITIONS else for_long)(definitions, *more)

    return find


def as_tools(declared: tuple[DeclaredTool, ...]) -> tuple[Tool[..., Any], ...]:
    """Convert declared tools to `Tool` objects. Raises `InvalidRequest` for an invalid definition."""
    return tools_of(definitions_of(declared))


def definitions_of(declared: tuple[DeclaredTool, ...]) -> bytes:
    """Return the functions of the declared tools as a JSON array."""
    return write_json([tool.definition["function"] for tool in declared])


@cached
def tools_of(definitions: bytes) -> tuple[Tool[..., Any], ...]:
    """Return the tools for a JSON array of definitions. Raises `InvalidRequest` for an invalid definition."""
    tools: dict[str, Tool[..., Any]] = {}
    for definition in msgspec.json.decode(definitions):
        name, description, schema = definition["name"], definition.get("description", ""), definition["parameters"]
        if isinstance(schema, dict):  # providers refuse these keywords at the top level
            schema = {key: value for key, value in schema.items() if key not in REFUSED_AT_THE_TOP}
        try:
            tools[name] = Tool.declared(name, description, schema)  # the last definition of a name is used
        except (ValueError, TypeError, AttributeError) as error:
            raise InvalidRequest(str(error), "tools") from None
    return tuple(tools.values())

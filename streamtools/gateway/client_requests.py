"""What a client asks for: a request of chat completions, Responses or Anthropic's Messages, in one form. Sans-IO.

Whatever format it came in, it is a history, the tools that are the client's own, what is said about calling them, and
the rest as `options` of chat completions, which nearly every server speaks. What needs something that is kept between
requests, or a tool that the provider runs, is refused, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, TypeVarTuple

import msgspec

from streamtools.history import Message, read_messages
from streamtools.history.content import given, read_content, text_in
from streamtools.json_values import compact, writable
from streamtools.sources.adapter import decode
from streamtools.tools import Tool, ToolChoice
from streamtools.tools.tool_choice import parse_choice

Client: TypeAlias = Literal["openai", "responses", "anthropic"]
"""The formats in which clients ask: chat completions, Responses, Anthropic's Messages."""

Body = dict[str, Any]


class Refused(Exception):
    """A request that cannot be answered; the message tells the client what to do, `param` what it is about."""

    def __init__(self, message: str, param: str | None = None, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status


class Declaration(NamedTuple):
    """A tool of the client's, as chat completions define it; the calls of a `custom` one hold a text."""

    name: str
    definition: Body
    custom: bool = False


class Asked(NamedTuple):
    """One request of a client's."""

    client: Client
    model: str
    history: list[Message]
    tools: tuple[Declaration, ...]
    choice: ToolChoice
    allowed: tuple[str, ...] | None
    """The tools of which alone calls are wanted, though the model knows all of them."""
    parallel: bool
    streamed: bool
    include_usage: bool
    options: Body
    """What goes to the upstream as it is, in the words of chat completions."""
    body: Body
    """The request as it came."""
    dropped: tuple[str, ...] = ()
    """Options for which chat completions have no word."""


def read_request(client: Client, content: bytes) -> Asked:
    """Return what a client asks for in this format. Raises `Refused`."""
    try:
        body = decode(content)
    except ValueError as error:
        raise Refused(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused("the body is no JSON object")
    if not isinstance(body.get("model", ""), str):
        raise Refused("the name of a model is a text", "model")
    return _READERS[client](body)


def model_in(content: bytes) -> str:
    """Return the model that a body asks for; "" if it names none."""
    return str((object_in(content) or {}).get("model", ""))


def object_in(content: bytes) -> Body | None:
    """Return the JSON object that bytes are, if they are one."""
    try:
        value = decode(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _history(messages: object, param: str, system: object = None) -> list[Message]:
    """Return the history that a list of messages is, with the system's words before it."""
    if not isinstance(messages, list) or not messages:
        raise Refused(f"{param} is a list of messages that is not empty", param)
    before = [{"role": "system", "content": text}] if (text := text_in(read_content(system))) else []
    try:
        history = read_messages([*before, *messages], client=False)
    except ValueError as error:
        raise Refused(str(error), param) from None
    if not history:
        raise Refused(f"{param} holds results alone, whose calls it does not hold", param)
    return history


# Chat completions.

_CHAT = {
    *("messages", "model", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options"),
    *("functions", "function_call", "store"),
}


def _read_chat(body: Body) -> Asked:
    for old in ("functions", "function_call"):
        if body.get(old):
            raise Refused(f"{old} is not taken; send the functions as `tools`", old)
    modalities = body.get("modalities")
    if isinstance(modalities, list) and any(each != "text" for each in modalities):
        raise Refused("an answer is a text, and nothing else is read of it: leave `modalities` out", "modalities")
    asked = _of_all("openai", body, "function")
    wanted = body.get("stream_options")
    return Asked(
        **asked,
        history=_history(body.get("messages"), "messages"),
        include_usage=isinstance(wanted, dict) and wanted.get("include_usage") is True,
        options={name: value for name, value in body.items() if name not in _CHAT},
    )


# Responses.

_KEPT = {
    "previous_response_id": "send the items of the conversation in `input`",
    "conversation": "send the items of the conversation in `input`",
    "background": "leave it out, and read the answer as it comes",
    "prompt": "send the prompt itself, in `instructions` and `input`",
}
"""What of Responses wants something that is kept here, and what to do instead."""

_RESPONSES = {
    *("input", "instructions", "model", "tools", "tool_choice", "parallel_tool_calls", "text", "reasoning"),
    *("max_output_tokens", "stream", "store", "include", "metadata"),
    *("max_tool_calls", "stream_options"),  # of tools of the provider's, and of padding, which nobody writes here
    *("truncation", "context_management"),
    *_KEPT,
}
"""What is read of Responses, and what holds for nothing here; the rest is the upstream's."""


def _read_responses(body: Body) -> Asked:
    for name, instead in _KEPT.items():
        if body.get(name):
            raise Refused(f"{name} is not taken, because nothing is kept between requests: {instead}", name)
    asked = _of_all("responses", body, "responses")
    items = body.get("input")
    _one_text(body)
    if isinstance(body.get("include"), list) and "message.output_text.logprobs" in body["include"]:
        raise Refused(_NO_LOGPROBS, "include")
    options = _rest(body, _RESPONSES) | _taken(body, max_output_tokens="max_tokens")
    effort = body.get("reasoning")
    if isinstance(effort, dict) and effort.get("effort"):
        options["reasoning_effort"] = effort["effort"]
    text = found if isinstance(found := body.get("text"), dict) else {}
    options |= _taken(text, "verbosity")
    if isinstance(form := text.get("format"), dict) and form.get("type") != "text":
        schema = {name: value for name, value in form.items() if name != "type"}
        is_schema = form.get("type") == "json_schema"
        options["response_format"] = {"type": form.get("type")} | ({"json_schema": schema} if is_schema else {})
    return Asked(
        **asked,
        history=_history(
            [{"role": "user", "content": items}] if isinstance(items, str) else items, "input", body.get("instructions")
        ),
        include_usage=True,
        options=options,
        dropped=_dropped(body, "truncation", "context_management"),
    )


# Anthropic's Messages.

_MESSAGES = {
    *("messages", "model", "system", "tools", "tool_choice", "max_tokens", "stream", "stop_sequences"),
    *("metadata", "output_config", "output_format", "cache_control", "thinking", "context_management"),
}
_ELSEWHERE = ("mcp_servers", "container")


def _read_anthropic(body: Body) -> Asked:
    if not isinstance(body.get("max_tokens"), int):
        raise Refused("max_tokens is a number, and required", "max_tokens")
    _one_text(body)
    for name in _ELSEWHERE:
        if body.get(name):
            raise Refused(f"{name} is run by its provider, who is not asked here; run it yourself, as a tool", name)
    asked = _of_all("anthropic", body, "anthropic")
    wish = body.get("tool_choice")
    asked["parallel"] = not (isinstance(wish, dict) and wish.get("disable_parallel_tool_use") is True)
    options = _rest(body, _MESSAGES) | _taken(body, "max_tokens", stop_sequences="stop")
    if isinstance(about := body.get("metadata"), dict):
        options |= _taken(about, user_id="user")
    config = body.get("output_config")
    if isinstance(config, dict):
        options |= _taken(config, effort="reasoning_effort")
    form = config.get("format") if isinstance(config, dict) else body.get("output_format")
    if isinstance(form, dict) and form.get("type") == "json_schema":
        schema = {"name": "answer", "schema": form.get("schema"), "strict": True}
        options["response_format"] = {"type": "json_schema", "json_schema": schema}
    return Asked(
        **asked,
        history=_history(body.get("messages"), "messages", body.get("system")),
        include_usage=True,
        options=options,
        dropped=_dropped(body, "thinking", "context_management"),
    )


_READERS: dict[str, Callable[[Body], Asked]] = {
    "openai": _read_chat,
    "responses": _read_responses,
    "anthropic": _read_anthropic,
}


def _taken(body: Body, *same: str, **renamed: str) -> Body:
    """Return members of a body that chat completions have too, some by another name."""
    names = {**dict.fromkeys(same), **renamed}
    return {(other or name): body[name] for name, other in names.items() if body.get(name) is not None}


_NO_LOGPROBS = "log probabilities have no place here; ask for chat completions, or leave them out"


def _one_text(body: Body) -> None:
    """Raise `Refused` for what the answer could not hold."""
    if (n := body.get("n")) not in (None, 1):
        raise Refused(f"n is 1, and not {n!r}: ask for chat completions, or several times", "n")
    for name in ("logprobs", "top_logprobs"):
        if body.get(name):
            raise Refused(_NO_LOGPROBS, name)


def _rest(body: Body, known: set[str]) -> Body:
    """Return what the upstream is sent as it is: what both formats have, and what only servers of their own know."""
    ours = known | _CHAT | {"n", "logprobs", "top_logprobs"}
    return {name: value for name, value in body.items() if name not in ours and value is not None}


def _dropped(body: Body, *names: str) -> tuple[str, ...]:
    """Return those of these options that wish for something."""
    return tuple(name for name in names if body.get(name) not in (None, "disabled", {"type": "disabled"}))


def _of_all(client: Client, body: Body, form: Literal["function", "responses", "anthropic"]) -> dict[str, Any]:
    """Return what is asked for in the same words in all formats."""
    listed = body.get("tools")
    if listed is not None and not isinstance(listed, list):
        raise Refused("tools is a list of definitions", "tools")
    tools = tuple(_declare(each, form) for each in listed or ())
    choice, allowed = _choice(body.get("tool_choice"), tools)
    called = {"tools": tools, "choice": choice, "allowed": allowed}
    parallel, streamed = body.get("parallel_tool_calls") is not False, body.get("stream") is True
    asked = {"client": client, "model": body.get("model", ""), "parallel": parallel, "streamed": streamed}
    return {**asked, **called, "body": body}


# Tools.


def _declare(tool: object, form: Literal["function", "responses", "anthropic"]) -> Declaration:
    """Return a tool as chat completions define it. Raises `Refused` for one that only the provider could run."""
    kind = tool.get("type", "custom" if form == "anthropic" else "function") if isinstance(tool, Mapping) else None
    if not isinstance(tool, Mapping) or kind not in ("function", "custom"):
        raise Refused(
            f"a tool of type {kind!r} is run by its provider, who is not asked here; "
            "declare a function, and run it yourself",
            "tools",
        )
    inner = tool.get(kind) if form == "function" else tool
    name = given(inner, "name")
    if not isinstance(inner, Mapping) or not name:
        raise Refused("a tool has a name", "tools")
    about = {"description": given(inner, "description")} if given(inner, "description") else {}
    if kind == "custom" and form != "anthropic":
        grammar = inner.get("format")
        wanted = f"The input is a text in this form: {compact(grammar)}" if isinstance(grammar, dict) else ""
        description = "\n".join(filter(None, [given(inner, "description"), wanted if "grammar" in wanted else ""]))
        text = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
        function = {"name": name, "description": description, "parameters": text}
        return Declaration(name, {"type": "function", "function": function}, custom=True)
    schema = inner.get("input_schema" if form == "anthropic" else "parameters")
    strict = {"strict": True} if inner.get("strict") is True else {}
    parameters = {"type": "object", "properties": {}} if schema is None else schema
    return Declaration(
        name, {"type": "function", "function": {"name": name, **about, "parameters": parameters, **strict}}
    )


def _choice(wish: Any, tools: tuple[Declaration, ...]) -> tuple[ToolChoice, tuple[str, ...] | None]:
    """Return what is wished of calls, and the tools that it is wished of if not all."""
    allowed: tuple[str, ...] | None = None
    if isinstance(wish, dict) and wish.get("type") == "allowed_tools":
        held = inner if isinstance(inner := wish.get("allowed_tools"), dict) else wish
        listed = held.get("tools")
        found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        names = (given(each, "name") or given(each.get(str(each.get("type"))), "name") for each in found)
        allowed = tuple(filter(None, names))
        wish = held.get("mode", "auto")
    if isinstance(wish, dict) and wish.get("type") == "custom":
        wish = given(wish.get("custom"), "name") or given(wish, "name")
    try:
        choice = parse_choice(wish)
    except (ValueError, TypeError):
        raise Refused(
            f"tool_choice is auto, none, required or a tool's name, and not {wish!r}", "tool_choice"
        ) from None
    known = {each.name for each in tools}
    for name in (*(allowed or ()), *([choice.name] if choice.name else [])):
        if name not in known:
            raise Refused(f"tool_choice names {name!r}, which is none of the tools", "tool_choice")
    if choice.mode == "required" and not tools:
        raise Refused("tool_choice requires a call, and there are no tools", "tool_choice")
    return choice, allowed


_REMEMBERED = 256 * 1024
_NOT_AT_THE_TOP = ("anyOf", "oneOf", "allOf", "not", "enum")

_More = TypeVarTuple("_More")
_Made = TypeVar("_Made")


def remembered(make: Callable[[bytes, *_More], _Made]) -> Callable[[bytes, *_More], _Made]:
    """Return `make` as one that keeps what it makes of definitions: a client sends the same with each request.

    Of those that are long, only the last are kept.
    """
    known, latest = lru_cache(64)(make), lru_cache(1)(make)

    def find(definitions: bytes, *more: *_More) -> _Made:
        return (known if len(definitions) <= _REMEMBERED else latest)(definitions, *more)

    return find


def as_tools(declared: tuple[Declaration, ...]) -> tuple[Tool[..., Any], ...]:
    """Return the tools that are declared, to be taught and told apart. Raises `Refused` for one that cannot be."""
    return tools_of(definitions_of(declared))


def definitions_of(declared: tuple[Declaration, ...]) -> bytes:
    return msgspec.json.encode(writable([each.definition["function"] for each in declared]))


@remembered
def tools_of(definitions: bytes) -> tuple[Tool[..., Any], ...]:
    """Return the tools of such JSON. Raises `Refused`."""
    made: dict[str, Tool[..., Any]] = {}
    for each in msgspec.json.decode(definitions):
        name, about, schema = each["name"], each.get("description", ""), each["parameters"]
        if isinstance(schema, dict):  # whose alternatives at the top are refused by providers, and told here by parts
            schema = {key: value for key, value in schema.items() if key not in _NOT_AT_THE_TOP}
        try:
            made[name] = Tool.declared(name, about, schema)
        except (ValueError, TypeError, AttributeError) as error:
            raise Refused(str(error), "tools") from None
    return tuple(made.values())

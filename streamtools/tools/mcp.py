"""Converts the tools of an MCP server to `Tool` objects.

The session may come from any SDK. Any object with the methods `list_tools` and `call_tool` works. The returned objects
must have the field names of the protocol (https://modelcontextprotocol.io/specification, "Tools"), in camel case or in
snake case: `inputSchema` or `input_schema`. In tool names, characters that providers refuse are replaced. A structured
result is returned as plain JSON values. The text of a result that is marked as an error is sent to the model. The text
of an exception of the session is not sent.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Protocol, Unpack

from pydantic_core import to_json

from streamtools.limits import TOOL_NAME
from streamtools.logs import Logger
from streamtools.tools.context import ToolContext
from streamtools.tools.results import ToolError, ToolResult
from streamtools.tools.tool import Tool, ToolOptions

log = Logger(__name__)

_INVALID_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_LENGTH = 8
_MAX_PAGES = 1000  # limit for a server whose list never ends
_MAX_TOOLS = 1000
_MAX_LENGTH = 1024 * 1024  # bytes of JSON of all names, descriptions and schemas, which each request contains


class MCPSession(Protocol):
    """The methods of an MCP client session that this module uses."""

    @property
    def list_tools(self) -> Callable[..., Awaitable[Any]]: ...
    @property
    def call_tool(self) -> Callable[..., Awaitable[Any]]: ...


async def tools_of(session: MCPSession, *, prefix: str = "", **options: Unpack[ToolOptions]) -> list[Tool]:
    """Return the tools of a server, in the order of the server. `options` apply to all of them.

    `prefix` is prepended to each name. A digest is added to a name that is already taken. A tool is skipped and logged
    if this name is also taken, or if providers refuse its schema. All tools after the first 1,000 are skipped, and so
    are all after 1 MiB of JSON of names, descriptions and schemas. This is logged once. Pages after the first 1,000 are
    not read. Raises the errors of the session.
    """
    tools: dict[str, Tool] = {}
    count, remaining = 0, _MAX_LENGTH
    async with aclosing(_list_tools(session)) as tools_listed:
        async for listed in tools_listed:
            name = _valid_name(prefix, listed.name, tools)
            parameters = _either(listed, "input_schema", "inputSchema") or {"type": "object", "properties": {}}
            description = getattr(listed, "description", None) or ""
            count += 1
            try:
                remaining -= len(to_json((name, description, parameters)))
                if count > _MAX_TOOLS or remaining < 0:
                    log.warning("mcp_tools_left_out", tool=name, tools=_MAX_TOOLS, characters=_MAX_LENGTH)
                    break
                if name in tools:
                    raise ValueError("the server lists this tool twice")
                if not isinstance(parameters, Mapping):
                    raise TypeError("the schema that the server declares is not an object")
                given: ToolOptions = {"description": description, **options, "name": name, "parameters": parameters}
                tools[name] = Tool(_make_function(session, listed.name), **given)
            except (TypeError, ValueError) as error:
                log.warning("mcp_tool_refused", tool=name, error=str(error)[:200])
    return list(tools.values())


async def _list_tools(session: MCPSession) -> AsyncGenerator[Any, None]:
    cursor_argument: dict[str, Any] = {}
    for _ in range(_MAX_PAGES):
        page = await session.list_tools(**cursor_argument)
        for listed in page.tools:
            yield listed
        cursor = _either(page, "next_cursor", "nextCursor")
        if not cursor:
            return
        cursor_argument = {"cursor": cursor}
        if "params" in inspect.signature(session.list_tools).parameters:  # newer versions of the SDK `mcp`
            from mcp.types import PaginatedRequestParams

            cursor_argument = {"params": PaginatedRequestParams(cursor=cursor)}


def _valid_name(prefix: str, name: str, tools: dict[str, Tool]) -> str:
    """Return `prefix + name` as a valid name for a tool.

    A digest is added if the name would be empty, too long or already in `tools`.
    """
    made = _INVALID_IN_NAMES.sub("_", prefix + name)
    if len(made) <= TOOL_NAME and made and made not in tools:
        return made
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{made[: TOOL_NAME - _DIGEST_LENGTH - 1]}_{digest}"


def _make_function(session: MCPSession, name: str) -> Callable[..., Awaitable[Any]]:
    takes_callback = "progress_callback" in inspect.signature(session.call_tool).parameters

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
            data = {"progress": progress, "total": total, "message": message}
            await context.progress({key: value for key, value in data.items() if value is not None})

        callback: dict[str, Any] = {"progress_callback": report} if takes_callback else {}
        return _read_result(await session.call_tool(name, arguments, **callback))

    return call


def _read_result(result: Any) -> Any:
    """Return the result of a call, from the object that the session returned.

    Raises `ToolError` if the server reported an error, and TypeError for an object without `content`.
    """
    if not hasattr(result, "content"):
        raise TypeError(f"call_tool of the MCP session returned {type(result)!r}, which has no `content`")
    blocks = list(result.content or ())
    text = "\n".join(map(_describe, blocks))
    if _either(result, "is_error", "isError"):
        raise ToolError(text or "the MCP server reported an error without a message")
    structured = _either(result, "structured_content", "structuredContent")
    if structured is not None:
        return structured
    if all(_kind(block) == "text" for block in blocks):
        return text
    return ToolResult(model=text, ui=[_plain(block) for block in blocks])


def _describe(block: Any) -> str:
    """Return a content block as text for the model."""
    kind = _kind(block)
    if kind == "text":
        return str(block.text)
    resource = getattr(block, "resource", block)
    if kind == "resource" and isinstance(text := getattr(resource, "text", None), str):
        return text
    label = _either(resource, "mime_type", "mimeType") or getattr(resource, "uri", None)
    return f"[{kind}: {label}]" if label else f"[{kind}]"


def _kind(block: Any) -> str:
    return str(getattr(block, "type", "unknown"))


def _plain(block: Any) -> Any:
    dump = getattr(block, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else {"type": _kind(block)}


def _either(value: Any, snake: str, camel: str) -> Any:
    """Return a field that has a snake case name in one version of the SDK, and a camel case name in the other."""
    return getattr(value, snake, None) if hasattr(value, snake) else getattr(value, camel, None)

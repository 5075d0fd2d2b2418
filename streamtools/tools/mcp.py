"""The tools of an MCP server, as tools like any other.

A session of any SDK will do, or anything else that has its `list_tools` and `call_tool`: what they return is read by
the names of the protocol (https://modelcontextprotocol.io/specification, "Tools") in either spelling, `inputSchema` or
`input_schema`. The server's names are made into such as providers take; its results are its own, structured where it
gives structure, and its errors are for the model to read, as the protocol has it.
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

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_LENGTH = 8
_PAGES = 1000  # of a list of tools; a server that has more has none that ends
_TOOLS = 1000
_CHARACTERS = 1024 * 1024  # of what the tools of a list say of themselves, which stands in each request


class Session(Protocol):
    """What is asked of a session with a server."""

    @property
    def list_tools(self) -> Callable[..., Awaitable[Any]]: ...
    @property
    def call_tool(self) -> Callable[..., Awaitable[Any]]: ...


async def tools_of(session: Session, *, prefix: str = "", **options: Unpack[ToolOptions]) -> list[Tool]:
    """Return the tools of a server, in its order; `options` are for all of them.

    A tool whose schema no provider would take is left out, and logged; so is all that comes behind the first thousand
    tools, or the first 1,048,576 characters of names, descriptions and schemas. Whatever the session raises is raised.
    """
    tools: dict[str, Tool] = {}
    count, room = 0, _CHARACTERS
    async with aclosing(_list(session)) as tools_listed:
        async for listed in tools_listed:
            name = _name(prefix, listed.name, tools)
            parameters = _either(listed, "input_schema", "inputSchema") or {"type": "object", "properties": {}}
            output = _either(listed, "output_schema", "outputSchema")
            said = getattr(listed, "description", None) or "", parameters, output  # any of which may be anything
            count += 1
            try:
                room -= len(to_json((name, said)))
                if count > _TOOLS or room < 0:
                    log.warning("mcp_tools_left_out", tool=name, tools=_TOOLS, characters=_CHARACTERS)
                    break
                if name in tools:
                    raise ValueError("the server has this tool twice")
                tools[name] = _make(session, listed.name, name, said, options)
            except (TypeError, ValueError) as error:
                log.warning("mcp_tool_refused", tool=name, error=str(error)[:200])
    return list(tools.values())


def _make(session: Session, known: str, name: str, said: tuple[Any, Any, Any], options: ToolOptions) -> Tool:
    """Return the tool that the server has `known`. Raises TypeError and ValueError for one that no provider takes."""
    description, parameters, output = said
    if not isinstance(parameters, Mapping) or not isinstance(output, Mapping | None):
        raise TypeError("a schema of the server's is no object")
    given: ToolOptions = {"description": description, **options, "name": name, "parameters": parameters}
    made: Tool = Tool(_caller(session, known), **given)
    made.output_schema = None if output is None else dict(output)
    return made


async def _list(session: Session) -> AsyncGenerator[Any, None]:
    wanted: dict[str, Any] = {}
    for _ in range(_PAGES):
        page = await session.list_tools(**wanted)
        for each in page.tools:
            yield each
        cursor = _either(page, "next_cursor", "nextCursor")
        if not cursor:
            return
        wanted = {"cursor": cursor}
        if "params" in inspect.signature(session.list_tools).parameters:  # in version 2 of the SDK
            from mcp.types import PaginatedRequestParams

            wanted = {"params": PaginatedRequestParams(cursor=cursor)}


def _name(prefix: str, name: str, taken: dict[str, Tool]) -> str:
    """Return a name that providers take, and that only the same tool of this server has."""
    made = _NOT_IN_NAMES.sub("_", prefix + name)
    if len(made) <= TOOL_NAME and made and made not in taken:
        return made
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{made[: TOOL_NAME - _DIGEST_LENGTH - 1]}_{digest}"


def _caller(session: Session, name: str) -> Callable[..., Awaitable[Any]]:
    reports = "progress_callback" in inspect.signature(session.call_tool).parameters

    async def call(arguments: dict[str, Any], context: ToolContext) -> Any:
        async def report(progress: float, total: float | None = None, message: str | None = None) -> None:
            known = {"progress": progress, "total": total, "message": message}
            await context.progress({key: value for key, value in known.items() if value is not None})

        more: dict[str, Any] = {"progress_callback": report} if reports else {}
        return _read(await session.call_tool(name, arguments, **more))

    return call


def _read(result: Any) -> Any:
    """Return a result in the forms for the interface and for the model. Raises `ToolError` for the server's errors, and
    TypeError for what is no result.
    """
    if not hasattr(result, "content"):
        raise TypeError(f"{type(result)!r} is no result of a tool")
    blocks = list(result.content or ())
    text = "\n".join(map(_describe, blocks))
    if _either(result, "is_error", "isError"):
        raise ToolError(text or "the tool failed and did not say why")
    structured = _either(result, "structured_content", "structuredContent")
    if structured is not None:
        return structured
    if all(_type(block) == "text" for block in blocks):
        return text
    return ToolResult(model=text, ui=[_plain(block) for block in blocks])


def _describe(block: Any) -> str:
    """Return a block of content as a text for the model."""
    kind = _type(block)
    if kind == "text":
        return str(block.text)
    resource = getattr(block, "resource", block)
    if kind == "resource" and isinstance(text := getattr(resource, "text", None), str):
        return text
    what = _either(resource, "mime_type", "mimeType") or getattr(resource, "uri", None)
    return f"[{kind}: {what}]" if what else f"[{kind}]"


def _type(block: Any) -> str:
    return str(getattr(block, "type", "unknown"))


def _plain(block: Any) -> Any:
    dump = getattr(block, "model_dump", None)
    return dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else {"type": _type(block)}


def _either(value: Any, snake: str, camel: str) -> Any:
    """Return a field under the name that this version of the SDK has for it."""
    return getattr(value, snake, None) if hasattr(value, snake) else getattr(value, camel, None)

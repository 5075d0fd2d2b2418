"""May a call run as it is, or has somebody to be asked first?

The rules stand in one place and fail closed. A tool that does not trust text is not run for a call that anybody could
have planted in what the model reads, and then quotes: only native calls, and calls under a marker with a nonce, are the
model's own beyond doubt. A predicate that breaks counts as one that asks.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeAlias

import structlog

from streamtools.calls import ToolCall
from streamtools.errors import ToolInputError
from streamtools.tools.definition import Tool
from streamtools.tools.failures import is_failure, loggable

log = structlog.get_logger(__name__)

Need: TypeAlias = Literal["nothing", "approval", "result", "native"]
"""What has to come before a tool runs: nothing, a person's yes, the result itself from elsewhere; or the call may not
run at all, because it did not come as a native one."""


async def need_of(tool: Tool | None, call: ToolCall, *, trusted: bool, asked: bool | None = None) -> Need:
    """Return what the call needs. `trusted`: nobody but the model can have written it. `asked`: somebody has been
    asked before, for approval (True) or for the result, and that question stands, whatever the tool says by now.

    A call that is refused anyway, because there is no such tool or its arguments do not fit, needs nothing.
    """
    if tool is None or (asked is None and tool.is_plain and (trusted or tool.trust == "text")):
        return "nothing"
    try:
        tool.read(call.arguments)
    except Exception as error:  # the runner says what is wrong
        if not isinstance(error, ToolInputError):
            log.warning("arguments_not_read", tool=tool.name, **loggable(error))
        return "nothing"
    if tool.trust == "native" and not trusted:
        return "native"
    if asked is not None:
        return "approval" if asked else "result"
    if tool.trust == "approved" and not trusted:
        return "approval"
    if await _wants_approval(tool.requires_approval, tool.name, call.arguments):
        return "approval"
    return "result" if tool.client else "nothing"


async def _wants_approval(
    wish: bool | Callable[[dict[str, Any]], bool | Awaitable[bool]], name: str, arguments: Mapping[str, Any]
) -> bool:
    if isinstance(wish, bool):
        return wish
    try:
        said = wish(dict(arguments))
        return bool(await said if inspect.isawaitable(said) else said)
    except BaseException as error:
        if not is_failure(error):
            raise
        log.warning("approval_not_decided", tool=name, **loggable(error))
        return True

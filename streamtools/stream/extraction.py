"""Finds the tool calls in a response that was not streamed.

A `StreamMachine` reads the response as a stream of one batch, so the rules for valid calls are the rules for streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Unpack

from streamtools.calls import ToolCall
from streamtools.events import Error
from streamtools.limits import DEFAULT_LIMITS
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.options import ParserKeywords
from streamtools.sources.finished import finished
from streamtools.tools import Tool, ToolRegistry


class Extracted(NamedTuple):
    """The valid calls in order, and the errors of the malformed, truncated and superseded calls.

    If a response has native calls and calls in its text, only one kind is valid. The calls of the other kind are
    superseded.
    """

    calls: list[ToolCall]
    errors: list[Error]


def extract_tool_calls(
    response: object,
    *,
    native_tool_calls: bool | None = None,
    dialects: Dialects = None,
    tools: Any = None,
    **options: Unpack[ParserKeywords],
) -> Extracted:
    """Return the calls of a response that was not streamed.

    `response` is a whole response of OpenAI (chat completions or Responses), Anthropic, Gemini or Ollama. It may also
    be a message, a list of content blocks, a list of calls, or a text. Responses and messages are dicts or objects of
    an SDK. None is a response without calls. `tools` is a registry, tools or functions, as for `ToolStream`. `tools`
    may also be definitions as dicts in the format of any provider. `StreamMachine` describes the other parameters.

    Raises `UnreadableSource` for any other response, and TypeError for invalid `tools`.

    >>> calls, errors = extract_tool_calls({"role": "assistant", "content": '###:{"name": "now"}'})
    >>> calls[0].name, errors
    ('now', [])
    """
    machine = StreamMachine(
        dialects=dialects, tools=_as_tools(tools), execute="never", native_tool_calls=native_tool_calls, **options
    )
    events = [out for event in finished(response, options.get("limits", DEFAULT_LIMITS)) for out in machine.feed(event)]
    events += machine.close()
    return Extracted(machine.pending, [event for event in events if isinstance(event, Error) and event.call_id])


def _as_tools(tools: Any) -> Any:
    """Convert the functions in `tools` to tools. Tool definitions are returned unchanged."""
    if isinstance(tools, Iterable) and not isinstance(tools, str | bytes | Mapping | ToolRegistry):
        return [_as_tools(item) for item in tools]
    return ToolRegistry(tools) if callable(tools) and not isinstance(tools, Tool) else tools

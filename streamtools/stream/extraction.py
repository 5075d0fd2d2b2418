"""The calls of a response that was not streamed.

A machine reads the response as a stream in one batch. So the rules of a stream decide which calls count and which are
malformed. `ToolRegistry.process_tool_calls` finds the same native calls. It differs because its results go back to the
provider: it reads no calls in text, runs none of an answer that was cut, and refuses null and Gemini's responses.
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
    """The calls that count, in order, and the errors of the others: malformed, truncated, or superseded."""

    calls: list[ToolCall]
    errors: list[Error]


def extract_tool_calls(
    response: object,
    *,
    native_tool_calls: bool | None = None,
    self_contained: bool = False,
    dialects: Dialects = None,
    tools: Any = None,
    **options: Unpack[ParserKeywords],
) -> Extracted:
    """Return the calls of a response that was not streamed.

    `response` is a whole response of OpenAI (chat completions or Responses), Anthropic, Gemini or Ollama, a message, a
    list of content blocks, a list of calls, or a text; as a dict or as an object of an SDK. None holds no calls.
    `tools` is what `ToolStream` takes (a registry, tools, functions, a mapping of names to functions), or definitions
    as dicts in the form of any provider. The other parameters are those of `StreamMachine`. Raises `UnreadableSource`
    for any other response, and TypeError for invalid `tools`.

    >>> calls, errors = extract_tool_calls({"role": "assistant", "content": '###:{"name": "now"}'})
    >>> calls[0].name, errors
    ('now', [])
    """
    machine = StreamMachine(
        dialects=dialects,
        tools=_declare(tools),
        execute="never",
        native_tool_calls=native_tool_calls,
        self_contained=self_contained,
        **options,
    )
    events = [out for event in finished(response, options.get("limits", DEFAULT_LIMITS)) for out in machine.feed(event)]
    events += machine.close()
    return Extracted(machine.pending, [event for event in events if isinstance(event, Error) and event.call_id])


def _declare(tools: Any) -> Any:
    """Return `tools` with functions as tools. Definitions stay as they are."""
    if isinstance(tools, Mapping):
        return ToolRegistry(tools) if all(map(callable, tools.values())) else tools
    if isinstance(tools, Iterable) and not isinstance(tools, str | bytes | ToolRegistry):
        return [_declare(item) for item in tools]
    return ToolRegistry(tools) if callable(tools) and not isinstance(tools, Tool) else tools

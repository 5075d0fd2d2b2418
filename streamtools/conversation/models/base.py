"""What is asked of a model, and what a model is: something that makes a request of it and streams the answer.

The request is one value for all providers, so that whoever asks, asks again and emulates knows none of them; how each
wants to be told stands in the module of its client.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamtools.history import Message
from streamtools.parsing.dialects import Dialect
from streamtools.sources import Source
from streamtools.tools import Tool, ToolChoice

AUTO = ToolChoice()


@dataclass(frozen=True)
class Ask:
    """One request.

    `tools` are the native definitions to send; without them there is no `tool_choice` either. `options` are merged into
    the body, after the model's own: a value of None takes out what would be sent. `dialects` write the results of calls
    that the history holds as text.
    """

    history: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()


class Model(Protocol):
    """Something that answers. It keeps nothing of one request for the next."""

    @property
    def name(self) -> str:
        """What its provider calls it."""

    @property
    def native_tool_calls(self) -> bool | None:
        """Whether it makes calls in its provider's own form; None where nobody knows."""

    def body(self, ask: Ask) -> dict[str, Any]:
        """Return the body of the request. Pure."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        What provider and network do is an event of the source; what is raised is the caller's fault.
        """

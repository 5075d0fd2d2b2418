"""Defines `Model`, the interface of all models, and `Ask`, one request to a model.

An `Ask` is independent of the provider, and so are the chat, emulation and failover that create it. The model class of
a provider converts an `Ask` to the body of that provider's request.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from streamtools.history import Message, Origin
from streamtools.parsing.dialects import Dialect
from streamtools.sources import Source
from streamtools.tools import Tool, ToolChoice
from streamtools.typed import OutputType

AUTO = ToolChoice()

Body = dict[str, Any]


@dataclass(frozen=True)
class Ask:
    """One request to a model.

    `tools` are sent as native definitions. If they are empty, no `tool_choice` is sent. `options` are merged into the
    body after the options of the model. An option of None removes the field from the body. `dialects` are the enabled
    dialects, in which results of calls in text are written. If `whole_history` is True, the request contains the whole
    history, even if the provider stores a part of it. `prefill` is the beginning of the answer, which the model
    continues if its server supports that. `output` is the type of the answer, for a provider that accepts a schema.
    """

    history: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    whole_history: bool = False
    prefill: str = ""
    output: OutputType | None = None


class Model(Protocol):
    """A model that answers requests. It keeps no state between requests."""

    @property
    def name(self) -> str:
        """The name by which the provider knows the model."""

    @property
    def native_tool_calls(self) -> bool | None:
        """Whether the model makes native calls; None if unknown."""

    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Has no side effects."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        A failure of the provider or the network is an event of the source. An exception means an error of the caller.
        """


def origin_of(model: object) -> Origin:
    """Return the origin of a model's answers. A model without an `origin` gets one with its name."""
    origin = getattr(model, "origin", None)
    return origin if isinstance(origin, Origin) else Origin(model=getattr(model, "name", None))

"""What a model is, and one request to it.

`Ask` is the same for all providers, so a chat, emulation and failover need to know none of them. The class of each
provider writes it in the provider's form.
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
    """One request.

    `tools` are sent as native definitions. Without them no `tool_choice` is sent. `options` are merged into the body
    after those of the model, and None removes a member. `dialects` write the results of calls in text. `whole` sends
    all of the history, even if the provider stores a part of it. A model whose server supports prefills begins its
    answer with `prefill`. `output` is the type of the answer, for a provider that accepts its schema.
    """

    history: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    options: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[Dialect, ...] = ()
    whole: bool = False
    prefill: str = ""
    output: OutputType | None = None


class Model(Protocol):
    """A model that answers requests. It keeps no state between them."""

    @property
    def name(self) -> str:
        """The provider's name of the model."""

    @property
    def native_tool_calls(self) -> bool | None:
        """Whether the model makes native calls; None if unknown."""

    def body(self, ask: Ask) -> Body:
        """Return the body of the request. Has no side effects."""

    def stream(self, ask: Ask) -> AbstractAsyncContextManager[Source]:
        """Send the request on entry, and close the response on exit.

        Faults of provider and network are events of the source. Exceptions are errors of the caller.
        """


def origin_of(model: object) -> Origin:
    """Return the origin of a model's answers."""
    origin = getattr(model, "origin", None)
    return origin if isinstance(origin, Origin) else Origin(model=getattr(model, "name", None))

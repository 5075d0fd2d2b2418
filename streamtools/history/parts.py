"""Defines the canonical form of a history: a list of messages. A turn of the model is a sequence of parts.

A part is text, reasoning, a native call, or a provider item. A provider item is a block or an output item that this
library does not interpret. It is sent back unchanged, at its position, to the provider that sent it.

A provider may also send additional JSON fields with a part, such as citations or the phase of a message. The attribute
`extra` of the part holds these fields. These fields are also sent back only to that provider. Other providers get no
provider items, no such fields, and no signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from streamtools.calls import NATIVE, ToolCall, read_arguments
from streamtools.errors import ListsNames
from streamtools.history.content import text_in
from streamtools.json_values import Rejected


class Origin(NamedTuple):
    """The provider that a turn comes from, or that a request is sent to.

    `format` is its message format, `host` the host name of its API, and `model` the model. Each is None if unknown.
    `client` is True if a client stored the turn. Messages of clients do not distinguish calls in text from native
    calls.
    """

    format: str | None = None
    host: str | None = None
    model: str | None = None
    client: bool = False

    def is_same(self, other: Origin) -> bool:
        """Return whether both have the same format and host. An unknown format or host equals any other."""
        same_format = self.format == other.format or self.format is None or other.format is None
        return same_format and (self.host == other.host or self.host is None or other.host is None)


UNKNOWN_ORIGIN = Origin()


class ProviderItem(NamedTuple):
    """JSON data that this library does not interpret. `format` is the message format of the provider that sent it."""

    format: str
    data: dict[str, Any]


class TextPart(NamedTuple):
    """A piece of a turn's text. `extra` holds the additional JSON fields that the provider sent with it."""

    text: str
    extra: ProviderItem | None = None


class Thought(NamedTuple):
    """One block of reasoning.

    `signature` is the provider's signature or encrypted content, and `id` the provider's id of the block. `redacted` is
    True if the provider sent only encrypted reasoning. `extra` holds the additional JSON fields that the provider sent.
    For chat completions, these are the message fields that held the reasoning. The same provider gets these values back
    unchanged, if its format has fields for them.
    """

    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    extra: ProviderItem | None = None


_EMPTY = ("", TextPart(""))

Part: TypeAlias = TextPart | Thought | ToolCall | ProviderItem


class CallResult(NamedTuple):
    """The result of one call, for the model.

    `dialect` and `name` are the dialect and the tool name of the call. `text` is the result as text. If the result has
    other content, such as images, `parts` holds the whole result, in the form of a user message. With
    `neutralize=True`, text that looks like a call is changed so that it is not parsed as one. `extra` holds the
    additional JSON fields of the provider's message.
    """

    dialect: str | None
    name: str
    text: str
    call_id: str
    neutralize: bool = True
    is_error: bool = False
    parts: tuple[dict[str, Any], ...] = ()
    extra: ProviderItem | None = None


@dataclass(frozen=True)
class System(ListsNames):
    """The system prompt, or a part of it.

    `extra` holds the additional JSON fields in the message of the provider, and the content if it is more than text.
    """

    text: str
    extra: ProviderItem | None = None


@dataclass(frozen=True)
class User(ListsNames):
    """A user message.

    `content` is text, or a list of texts, images and files in the form of OpenAI's chat messages. A part of an unknown
    type is sent unchanged. `extra` holds the additional JSON fields in the message of the provider, such as a name.
    """

    content: str | list[dict[str, Any]]
    extra: ProviderItem | None = None

    @property
    def text(self) -> str:
        """The texts of `content`, joined."""
        return text_in(self.content)


@dataclass(frozen=True, init=False)
class Assistant(ListsNames):
    """One turn of the model.

    `parts` holds its parts in order. `in_text` holds the calls that were parsed from its text. The text in `parts`
    includes these calls. `origin` is the provider. Turns that differ only in `origin` are equal.
    `Assistant(text, calls, thoughts)` creates a turn with the parts in the order reasoning, text, calls.
    """

    parts: tuple[Part, ...]
    in_text: tuple[ToolCall, ...]
    origin: Origin = field(compare=False)

    def __init__(
        self,
        text: str = "",
        calls: Iterable[ToolCall] = (),
        thoughts: Iterable[Thought] = (),
        in_text: Iterable[ToolCall] = (),
        *,
        parts: Iterable[Part | str] | None = None,
        origin: Origin = UNKNOWN_ORIGIN,
    ) -> None:
        given = (*thoughts, text, *calls) if parts is None else parts
        kept = [TextPart(part) if isinstance(part, str) else part for part in given if part not in _EMPTY]
        self.__dict__.update(parts=tuple(kept), in_text=tuple(in_text), origin=origin)

    @property
    def text(self) -> str:
        """The text of all text parts. For the format `responses`, these are separate messages, joined by line feeds."""
        texts = [part.text for part in self.parts if isinstance(part, TextPart) and part.text]
        return ("\n" if self.origin.format == "responses" else "").join(texts)

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        """All blocks of reasoning."""
        return tuple([part for part in self.parts if isinstance(part, Thought)])

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All native calls."""
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def items(self) -> tuple[ProviderItem, ...]:
        """All provider items."""
        return tuple([part for part in self.parts if isinstance(part, ProviderItem)])


@dataclass(frozen=True)
class Results(ListsNames):
    """The results of the calls of a turn."""

    results: tuple[CallResult, ...]


Message: TypeAlias = System | User | Assistant | Results


@dataclass
class Step:
    """One turn of the model, with the results of its calls in call order.

    In `turn`, a malformed native call has no arguments, and `in_text` contains no malformed calls.
    `response_id` is the provider's id of the response, or None if unknown.
    """

    turn: Assistant = field(default_factory=Assistant)
    results: list[CallResult] = field(default_factory=list)
    response_id: str | None = None


def steps_to_history(steps: Iterable[Step]) -> list[Message]:
    """Return the messages that the steps of a run add to the history.

    A turn that is empty or consists of reasoning only is omitted.
    """
    history: list[Message] = []
    for step in steps:
        if any(not isinstance(part, Thought) for part in step.turn.parts):
            history.append(step.turn)
        if step.results:
            history.append(Results(tuple(step.results)))
    return history


SEND_AGAIN = "; send the call again"
"""The last words of the error message that tells the model about its malformed call."""


_MAX_REREAD = 16 * 1024  # longest malformed call, in characters, that is parsed again to find the error


def fault_of(call: ToolCall) -> str | None:
    """Return the error message that the model gets for a malformed native call, or None if the call is not malformed.

    A malformed call has no arguments, and its `raw` holds the text that the model wrote as arguments.
    """
    if call.dialect != NATIVE or not call.raw:
        return None
    if len(call.raw) <= _MAX_REREAD:
        try:
            read_arguments(call.raw)
        except Rejected as fault:
            return fault.message + SEND_AGAIN
    return "the call cannot be read" + SEND_AGAIN

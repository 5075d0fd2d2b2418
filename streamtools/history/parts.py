"""The canonical form of a history: messages, and the parts of a model turn in their order.

A turn consists of text, reasoning, native calls and provider items. An item is a block or output item that this library
does not interpret. It goes back verbatim, and in its place, to the provider that sent it. So do the members that a
provider sends with an interpreted part, such as citations or the phase of a message: they are the part's `own`. Other
providers get neither, and no signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from streamtools.calls import NATIVE, ToolCall, read_arguments
from streamtools.json_values import Rejected


class Origin(NamedTuple):
    """Where a turn comes from, or a request goes: message format, host and model; None if unknown.

    `client`: a client has stored the turn. A client does not tell calls in text from native ones.
    """

    format: str | None = None
    host: str | None = None
    model: str | None = None
    client: bool = False

    def is_same(self, other: Origin) -> bool:
        """Return whether both are the same provider: same format and host. Unknown values count as the same."""
        return all(None in pair or pair[0] == pair[1] for pair in zip(self[:2], other[:2], strict=True))


UNKNOWN_ORIGIN = Origin()


class ProviderItem(NamedTuple):
    """Data of a provider with this format that this library does not interpret."""

    format: str
    data: dict[str, Any]


class TextPart(NamedTuple):
    """A piece of a turn's text. `own` holds the other members that its provider sent with it."""

    text: str
    own: ProviderItem | None = None


class Thought(NamedTuple):
    """One block of reasoning, with the data that goes back to its provider unchanged.

    `own` holds further members; for chat completions, the fields that held the reasoning.
    """

    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: ProviderItem | None = None


Part: TypeAlias = TextPart | Thought | ToolCall | ProviderItem


class CallResult(NamedTuple):
    """The result of one call, for the model.

    `parts` is its content if that is more than text, as in a user message. `own` holds the members of its provider.
    """

    dialect: str | None
    name: str
    text: str
    call_id: str
    neutralise: bool = True
    is_error: bool = False
    parts: tuple[dict[str, Any], ...] = ()
    own: ProviderItem | None = None


@dataclass(frozen=True)
class System:
    """The system prompt, or a part of it. `own` holds provider members, and the content if it is more than text."""

    text: str
    own: ProviderItem | None = None


@dataclass(frozen=True)
class User:
    """A user message: text, or a list of parts with images and files, in the form of OpenAI's chat.

    An unknown part belongs to a provider, and is sent unchanged. `own` holds further members, such as a name.
    """

    content: str | list[dict[str, Any]]
    own: ProviderItem | None = None


@dataclass(frozen=True, init=False)
class Assistant:
    """One turn of the model: its `parts` in order, and `in_text`, the calls that its text contains.

    `Assistant(text, calls, thoughts)` orders the parts as reasoning, text, calls. `origin` is the provider, and
    `response_id` the provider's id of the response. Turns that differ only in these two are equal. The text in `parts`
    includes the calls in text.
    """

    parts: tuple[Part, ...]
    in_text: tuple[ToolCall, ...]
    origin: Origin = field(compare=False)
    response_id: str | None = field(compare=False, repr=False)

    def __init__(
        self,
        text: str = "",
        calls: Iterable[ToolCall] = (),
        thoughts: Iterable[Thought] = (),
        in_text: Iterable[ToolCall] = (),
        *,
        parts: Iterable[Part | str] | None = None,
        origin: Origin = UNKNOWN_ORIGIN,
        response_id: str | None = None,
    ) -> None:
        given = (*thoughts, text, *calls) if parts is None else parts
        made = (TextPart(part) if isinstance(part, str) else part for part in given)
        kept = tuple(part for part in made if not (isinstance(part, TextPart) and part == ("", None)))
        self.__dict__.update(parts=kept, in_text=tuple(in_text), origin=origin, response_id=response_id)

    @property
    def text(self) -> str:
        """All text. Each text of Responses is a separate message, so these are joined by line breaks."""
        texts = (part.text for part in self.parts if isinstance(part, TextPart))
        return ("\n" if self.origin.format == "responses" else "").join(filter(None, texts))

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        """All blocks of reasoning."""
        return tuple(part for part in self.parts if isinstance(part, Thought))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All native calls."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def items(self) -> tuple[ProviderItem, ...]:
        """All provider items."""
        return tuple(part for part in self.parts if isinstance(part, ProviderItem))


@dataclass(frozen=True)
class Results:
    """The results of the calls of a turn."""

    results: tuple[CallResult, ...]


Message: TypeAlias = System | User | Assistant | Results


@dataclass
class Step:
    """One turn of the model, with the results of its calls in call order.

    A malformed native call has no arguments. Malformed calls in the text are missing from `in_text`. `response_id` is
    the provider's id of the response, if known.
    """

    said: Assistant = field(default_factory=Assistant)
    results: list[CallResult] = field(default_factory=list)
    response_id: str | None = None


def steps_to_history(steps: Iterable[Step]) -> list[Message]:
    """Return the messages that the steps of a run add to the history; an empty turn adds none."""
    history: list[Message] = []
    for step in steps:
        if any(not isinstance(part, Thought) for part in step.said.parts):
            history.append(step.said)
        if step.results:
            history.append(Results(tuple(step.results)))
    return history


SEND_AGAIN = "; send the call again"
"""The end of the message to the model about its malformed call."""


_MAX_REREAD = 16 * 1024  # characters of a malformed call that are parsed again for an error message


def fault_of(call: ToolCall) -> str | None:
    """Return the error message for a malformed native call, for the model that wrote it; None for a valid call.

    A malformed call has no arguments, and `raw` holds what the model wrote instead.
    """
    if call.dialect != NATIVE or not call.raw:
        return None
    if len(call.raw) <= _MAX_REREAD:
        try:
            read_arguments(call.raw)
        except Rejected as fault:
            return fault.message + SEND_AGAIN
    return "the call cannot be read" + SEND_AGAIN

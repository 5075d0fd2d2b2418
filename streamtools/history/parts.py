"""What a history consists of: messages, and the parts of a turn of the model's, in the order in which they came.

A turn is text, reasoning, native calls, and provider items: what the provider sent as a block or an output item that
nobody here interprets. These go back verbatim, and in their place, to the provider that sent them. So does what stands
beside a part that is interpreted (citations of a text, the phase of a message, the caller of a call): it is kept as the
part's `own`, and laid over what is written for that provider. For another one both are left out, as are signatures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from streamtools.calls import NATIVE, ToolCall, read_arguments
from streamtools.json_values import Rejected


class Origin(NamedTuple):
    """Who said a turn, or who is asked: the format of the messages, the host, the model. None where it is not known.

    `client`: one has kept the turn, to whom all calls look alike, those that the model wrote as text too.
    """

    format: str | None = None
    host: str | None = None
    model: str | None = None
    client: bool = False

    def is_same(self, other: Origin) -> bool:
        """Return whether both are one provider: the same format, and the same host; unknown counts as same."""
        return all(None in pair or pair[0] == pair[1] for pair in zip(self[:2], other[:2], strict=True))


NOBODY = Origin()


class ProviderItem(NamedTuple):
    """What a provider of this format sent and nobody here interprets: it goes back to it verbatim."""

    format: str
    data: dict[str, Any]


class TextPart(NamedTuple):
    """A stretch of a turn's text. `own` are the members of its provider's beside the text."""

    text: str
    own: ProviderItem | None = None


class Thought(NamedTuple):
    """One block of reasoning that came in a channel of its own, with what goes back to the provider unchanged.

    `own` are the members of its provider's beside those: of chat completions, the fields in which it came.
    """

    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    own: ProviderItem | None = None


Part: TypeAlias = TextPart | Thought | ToolCall | ProviderItem


class CallResult(NamedTuple):
    """The result of one call, as the model reads it.

    `parts` are its content where that is more than text, as in a user's message; `own` the members of its provider's.
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
    """The system prompt, or a part of it. `own` are its provider's members, the content too if it is more than text."""

    text: str
    own: ProviderItem | None = None


@dataclass(frozen=True)
class User:
    """What the user says: a text, or parts of it with images and the like, as OpenAI's chat writes them.

    A part that it does not know is one of the provider's own, and goes to it as it is. `own` are its provider's members
    beside the content: a name.
    """

    content: str | list[dict[str, Any]]
    own: ProviderItem | None = None


@dataclass(frozen=True, init=False)
class Assistant:
    """What the model said in one turn: its `parts` in order, and `in_text` the calls that its text holds.

    `Assistant(text, calls, thoughts)` is one that thinks, speaks and calls, in this order. `origin` is who said it, and
    `response_id` what that provider calls its answer; two turns that differ in these alone are equal. Texts stay in
    `parts` with the calls that they hold.
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
        origin: Origin = NOBODY,
        response_id: str | None = None,
    ) -> None:
        said = (*thoughts, text, *calls) if parts is None else parts
        made = (TextPart(each) if isinstance(each, str) else each for each in said)
        kept = tuple(each for each in made if not (isinstance(each, TextPart) and each == ("", None)))
        self.__dict__.update(parts=kept, in_text=tuple(in_text), origin=origin, response_id=response_id)

    @property
    def text(self) -> str:
        """All texts, one behind the other; those of Responses are messages of their own, each on its line."""
        texts = (each.text for each in self.parts if isinstance(each, TextPart))
        return ("\n" if self.origin.format == "responses" else "").join(filter(None, texts))

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        """All blocks of reasoning."""
        return tuple(each for each in self.parts if isinstance(each, Thought))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """All native calls."""
        return tuple(each for each in self.parts if isinstance(each, ToolCall))

    @property
    def items(self) -> tuple[ProviderItem, ...]:
        """All provider items."""
        return tuple(each for each in self.parts if isinstance(each, ProviderItem))


@dataclass(frozen=True)
class Results:
    """The results of the calls of a turn."""

    results: tuple[CallResult, ...]


Message: TypeAlias = System | User | Assistant | Results


@dataclass
class Step:
    """One turn of the model and the results of its calls, in call order.

    Of its native calls, a malformed one has no arguments; malformed calls in its text are left out of `in_text`.
    `response_id` is the provider's, where it tells one.
    """

    said: Assistant = field(default_factory=Assistant)
    results: list[CallResult] = field(default_factory=list)
    response_id: str | None = None

    @property
    def text(self) -> str:
        """What it wrote, calls in its text included, reasoning left out."""
        return "".join(each.text for each in self.said.parts if isinstance(each, TextPart))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Its native calls."""
        return self.said.calls

    @property
    def thoughts(self) -> tuple[Thought, ...]:
        """Its reasoning."""
        return self.said.thoughts

    @property
    def in_text(self) -> tuple[ToolCall, ...]:
        """The calls in its text."""
        return self.said.in_text


def steps_to_history(steps: Iterable[Step]) -> list[Message]:
    """Return what the turns of a run add to the history; a turn that said nothing adds nothing."""
    history: list[Message] = []
    for step in steps:
        if any(not isinstance(each, Thought) for each in step.said.parts):
            history.append(step.said)
        if step.results:
            history.append(Results(tuple(step.results)))
    return history


SEND_AGAIN = "; send the call again"
"""What a model is told of its malformed call, behind what is wrong with it."""


LOOKED_AT = 16 * 1024
"""Characters of a malformed call that are read again, to say what is wrong with it."""


def fault_of(call: ToolCall) -> str | None:
    """Return what is wrong with a call of a history that is none, for the model that wrote it; None for one that is.

    Such a native call has no arguments; what stood in their place is its `raw`. Of a long one only that is said.
    """
    if call.dialect != NATIVE or not call.raw:
        return None
    if len(call.raw) <= LOOKED_AT:
        try:
            read_arguments(call.raw)
        except Rejected as fault:
            return fault.message + SEND_AGAIN
    return "the call cannot be read" + SEND_AGAIN

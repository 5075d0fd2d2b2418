"""What was said so far, in one form that every provider's can be written from.

A history is a list of messages: what the system, the user and the model said, and what the model was told of its calls.
It holds what the model wrote, calls in its text included, and never the words that an interface puts in between.

Providers refuse a history in which a call has no answer, or in which something stands between the two. So `settle` puts
each answer behind its call, and answers those that nobody has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from streamtools.calls import NATIVE, ToolCall
from streamtools.json_values import compact
from streamtools.parsing.dialects import Dialect

NOT_RUN = "this call was not run"
"""What the model is told of a call that nobody has run."""

Unanswered: TypeAlias = Literal["cancelled", "leave"] | None
"""What becomes of calls without an answer: they get one that says so, or stay as they are. None: they get one where the
history goes on after them; where it ends with them, who runs them puts the answers in.
"""


class CallResult(NamedTuple):
    """What the model is told of one call."""

    dialect: str | None
    name: str
    text: str
    call_id: str
    neutralise: bool = True
    is_error: bool = False


class Thought(NamedTuple):
    """One block of reasoning that came in a channel of its own, with what goes back to the provider unchanged.

    `behind` is the number of native calls of its turn that came before it.
    """

    text: str
    signature: str | None = None
    id: str | None = None
    redacted: bool = False
    behind: int = 0


@dataclass
class Step:
    """One turn of the model: what it wrote, reasoning left out, and what it is told of each of its calls, in order.

    `calls` are its native calls, of which a malformed one has no arguments; `in_text` those in its text, malformed ones
    left out.
    """

    text: str = ""
    results: list[CallResult] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[Thought] = field(default_factory=list)
    in_text: list[ToolCall] = field(default_factory=list)


@dataclass(frozen=True)
class System:
    """What the model is told to be."""

    text: str


@dataclass(frozen=True)
class User:
    """What the user says: a text, or parts of it with images and the like, as OpenAI's chat writes them.

    A part that it does not know is one of the provider's own, and goes to it as it is.
    """

    content: str | list[dict[str, Any]]


@dataclass(frozen=True)
class Assistant:
    """What the model wrote in one turn, calls in its text included; and beside it its native calls and its reasoning.

    `in_text` are the calls that its text holds.
    """

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    thoughts: tuple[Thought, ...] = ()
    in_text: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Results:
    """What the model is told of the calls of its turn."""

    results: tuple[CallResult, ...]


Message: TypeAlias = System | User | Assistant | Results


def steps_to_history(steps: Iterable[Step]) -> list[Message]:
    """Return what the turns of a run add to the history; a turn that said nothing adds nothing."""
    history: list[Message] = []
    for step in steps:
        if step.text or step.calls:
            history.append(Assistant(step.text, tuple(step.calls), tuple(step.thoughts), tuple(step.in_text)))
        if step.results:
            history.append(Results(tuple(step.results)))
    return history


def system_prompt(history: Iterable[Message]) -> str:
    """Return what the system says, for providers that want it outside of the messages; "" if it says nothing."""
    return "\n\n".join(message.text for message in history if isinstance(message, System) and message.text)


def settle(history: Iterable[Message], unanswered: Unanswered = None) -> list[Message]:
    """Return the history with one `Results` behind each turn that has calls, which answers native ones in their order.

    What stood between a call and its answer follows them. Raises ValueError for the answer to a native call that the
    last turn before it does not hold, and for a second answer to one.
    """
    settled: list[Message] = []
    turn = _Turn(Assistant())
    for message in history:
        if isinstance(message, Assistant):
            settled += turn.end(unanswered, goes_on=True)
            turn = _Turn(message)
            settled.append(message)
        elif isinstance(message, Results):
            for result in message.results:
                turn.add(result)
        else:
            turn.later.append(message)
    settled += turn.end(unanswered, goes_on=False)
    return settled


class _Turn:
    """The answers to the calls of one turn, and what was said between them and the next."""

    def __init__(self, said: Assistant) -> None:
        self._native = {call.id: call for call in said.calls}
        self._in_text = {call.id: call for call in said.in_text}
        self._told: dict[str, CallResult] = {}
        self._told_in_text: dict[str, CallResult] = {}
        self.later: list[Message] = []

    def add(self, result: CallResult) -> None:
        if result.dialect != NATIVE:
            self._told_in_text[result.call_id] = result
        elif result.call_id not in self._native:
            raise ValueError(f"a result answers call {result.call_id!r}, which the turn before it does not hold")
        elif result.call_id in self._told:
            raise ValueError(f"call {result.call_id!r} is answered twice")
        else:
            name = self._native[result.call_id].name  # whatever the result says: Gemini and Ollama compare them
            self._told[result.call_id] = result._replace(name=name)

    def end(self, unanswered: Unanswered, *, goes_on: bool) -> Iterator[Message]:
        if unanswered == "cancelled" or (unanswered is None and (goes_on or self.later)):
            for calls, told in ((self._native, self._told), (self._in_text, self._told_in_text)):
                for call in calls.values():
                    told.setdefault(call.id, CallResult(call.dialect, call.name, NOT_RUN, call.id, is_error=True))
        results = [self._told[id] for id in self._native if id in self._told]
        if results or self._told_in_text:
            yield Results((*results, *self._told_in_text.values()))
        yield from self.later


def without_reasoning(history: Iterable[Message]) -> list[Message]:
    """Return the history without reasoning and signatures, which are for the provider that gave them: to change it."""
    return [
        replace(
            message,
            thoughts=(),
            calls=tuple(msgspec.structs.replace(call, signature=None) for call in message.calls),
        )
        if isinstance(message, Assistant)
        else message
        for message in history
    ]


def calls_as_text(history: Iterable[Message], dialect: Dialect | None = None) -> list[Message]:
    """Return the history with native calls written into the text, for a request that declares no tools.

    They are written as `dialect` writes them, as if the model had, and answered in the same form; without one, as a
    line that no dialect takes for a call.
    """
    written: list[Message] = []
    for message in history:
        if isinstance(message, Assistant) and message.calls:
            calls = [_write_call(call, dialect) for call in message.calls]
            in_text = tuple(_move(call, dialect) for call in message.calls) if dialect else ()
            text = "\n".join([message.text, *calls] if message.text else calls)
            message = replace(message, text=text, calls=(), in_text=(*message.in_text, *in_text))
        elif isinstance(message, Results):
            kind = dialect.id if dialect else None
            moved = (each._replace(dialect=kind) if each.dialect == NATIVE else each for each in message.results)
            message = Results(tuple(moved))
        written.append(message)
    return written


def _move(call: ToolCall, dialect: Dialect) -> ToolCall:
    return msgspec.structs.replace(call, dialect=dialect.id, raw=_write_call(call, dialect))


def _write_call(call: ToolCall, dialect: Dialect | None) -> str:
    if dialect is None:
        return f"(called {call.name} with {compact(call.arguments)})"
    return dialect.write_call(call.name, call.arguments)

"""What was said so far, in one form that every provider's can be written from.

A history is a list of messages: what the system, the user and the model said, and the results of its calls.
It holds what the model wrote, calls in its text included, and never the words that an interface puts in between.

Providers refuse a history in which a call has no answer, or in which something stands between the two. So `settle` puts
each answer behind its call, and answers those that nobody has run.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from streamtools.calls import NATIVE, ToolCall
from streamtools.json_values import compact
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.base import neutralise

NOT_RUN = "this call was not run"
"""What the model reads as the result of a call that nobody has run."""

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that providers take neither in a name nor in an id."""

Unanswered: TypeAlias = Literal["cancelled", "leave"] | None
"""What becomes of calls without an answer: they get one that says so, or stay as they are. None: they get one where the
history goes on after them; where it ends with them, who runs them puts the answers in.
"""


class CallResult(NamedTuple):
    """The result of one call, as the model reads it."""

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
    """One turn of the model: what it wrote, reasoning left out, and the results of its calls, in order.

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
    """The system prompt, or a part of it."""

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
    """The results of the calls of a turn."""

    results: tuple[CallResult, ...]


Message: TypeAlias = System | User | Assistant | Results


def fit(name: str) -> str:
    """Return a name as providers take it: at most 64 of `[A-Za-z0-9_-]`."""
    return NOT_IN_NAMES.sub("_", name)[:64]


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
        self._in_text = said.in_text
        self._answers: dict[str, CallResult] = {}
        self._answers_in_text: dict[str, CallResult] = {}
        self.later: list[Message] = []

    def add(self, result: CallResult) -> None:
        if result.dialect != NATIVE:
            self._answers_in_text[result.call_id] = result
        elif result.call_id not in self._native:
            raise ValueError(f"a result answers call {result.call_id!r}, which the turn before it does not hold")
        elif result.call_id in self._answers:
            raise ValueError(f"call {result.call_id!r} is answered twice")
        else:
            name = self._native[result.call_id].name  # whatever the result says: Gemini and Ollama compare them
            self._answers[result.call_id] = result._replace(name=name)

    def end(self, unanswered: Unanswered, *, goes_on: bool) -> Iterator[Message]:
        if unanswered == "cancelled" or (unanswered is None and (goes_on or self.later)):
            for calls, answers in ((self._native.values(), self._answers), (self._in_text, self._answers_in_text)):
                for call in calls:
                    answers.setdefault(call.id, CallResult(call.dialect, call.name, NOT_RUN, call.id, is_error=True))
        results = [self._answers[id] for id in self._native if id in self._answers]
        if results or self._answers_in_text:
            yield Results((*results, *self._answers_in_text.values()))
        yield from self.later


def without_reasoning(history: Iterable[Message]) -> list[Message]:
    """Return the history without reasoning and signatures, which are for the provider that gave them: to change it."""
    return [
        replace(
            message, thoughts=(), calls=tuple(msgspec.structs.replace(call, signature=None) for call in message.calls)
        )
        if isinstance(message, Assistant)
        else message
        for message in history
    ]


# Calls in text, whose results have no place of their own in a request: they are words of the user's.


def calls_as_text(
    history: Iterable[Message], dialect: Dialect | None = None, *, reserved: Sequence[Dialect] = ()
) -> list[Message]:
    """Return the history with native calls written into the text, for a request that declares no tools.

    They are written as `dialect` writes them, as if the model had, and answered in the same form; without one, as a
    line that no dialect takes for a call, in which nothing begins that the `reserved` ones read.
    """
    written: list[Message] = []
    for message in history:
        if isinstance(message, Assistant) and message.calls:
            in_text = list(message.in_text)
            texts = [message.text] if message.text else []
            for call in message.calls:
                if dialect is None:
                    texts.append(neutralise(f"(called {call.name} with {compact(call.arguments)})", reserved))
                else:
                    texts.append(dialect.write_call(call.name, call.arguments))
                    in_text.append(msgspec.structs.replace(call, dialect=dialect.id, raw=texts[-1]))
            message = replace(message, text="\n".join(texts), calls=(), in_text=tuple(in_text))
        elif isinstance(message, Results):
            kind = dialect.id if dialect else None
            moved = (each._replace(dialect=kind) if each.dialect == NATIVE else each for each in message.results)
            message = Results(tuple(moved))
        written.append(message)
    return written


def tell_in_text(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history with the answers to calls in text as a user's message, one block each in its dialect's form.

    They are data: what looks like structure in them is disarmed, unless their tool says otherwise, and so it is in
    the answers to native calls where there are `dialects`: a model that quotes one must not call thereby. What the user
    says next stands in the same message, because templates of many models want user and assistant to alternate.
    """
    written: list[Message] = []
    text = ""  # of the answers, if the last message is one of those
    for message in history:
        if isinstance(message, User) and text:
            given = message.content
            if isinstance(given, str):
                written[-1] = User(f"{text}\n\n{given}" if given else text)
            else:
                written[-1] = User([{"type": "text", "text": text}, *given])
            text = ""
        elif isinstance(message, Results):
            native = tuple(each for each in message.results if each.dialect == NATIVE)
            if dialects:
                native = tuple(each._replace(text=_disarm(each, dialects)) for each in native)
            text = "\n".join(_block(result, dialects) for result in message.results if result.dialect != NATIVE)
            written += [Results(native)] if native else []
            written += [User(text)] if text else []
        else:
            written += [] if message == System("") else [message]
            text = ""
    return written


def answered_by_user(history: Iterable[Message], dialects: Sequence[Dialect]) -> list[Message]:
    """Return the history without the calls in text that a user's message behind them answers: they are not open.

    It answers a call if it holds the opening of a result of that tool's as the call's dialect writes it, once for each
    call. Whatever else the user says answers none.
    """
    checked: list[Message] = []
    turn: int | None = None  # the place of the last that has calls in text
    answered: set[str] = set()
    for message in history:
        if isinstance(message, Assistant):
            turn, answered = (len(checked) if message.in_text else None), set()
        elif isinstance(message, Results):
            answered.update(result.call_id for result in message.results)
        elif isinstance(message, User) and turn is not None and isinstance(said := checked[turn], Assistant):
            left = [call for call in said.in_text if call.id not in answered]
            found = _answered_in(message.content, left, dialects)
            checked[turn] = replace(said, in_text=tuple(call for call in said.in_text if call.id not in found))
        checked.append(message)
    return checked


def _answered_in(content: str | list[dict[str, Any]], calls: list[ToolCall], dialects: Sequence[Dialect]) -> set[str]:
    """Return the ids of the calls whose results a user's message holds."""
    text = content if isinstance(content, str) else "\n".join(str(part.get("text", "")) for part in content)
    found: set[str] = set()
    used: Counter[str] = Counter()
    for call in calls:
        dialect = next((each for each in dialects if each.id == call.dialect), None)
        if dialect is not None:
            opening = _opening(dialect, fit(call.name))
            used[opening] += 1
            if len(re.findall(opening, text)) >= used[opening]:
                found.add(call.id)
    return found


def _opening(dialect: Dialect, name: str) -> str:
    """Return the pattern of what stands before the text of a result, however its white space is written."""
    written = (dialect.write_result(name, text) for text in ("a", "1", "{}", "[]"))
    shared = takewhile(lambda each: len(set(each)) == 1, zip(*written, strict=False))
    opening = "".join(each[0] for each in shared).strip()
    end = r"(?![\w-])" if re.search(r"[\w-]$", opening) else ""  # no other tool's, whose name begins like this one's
    return r"\s+".join(map(re.escape, opening.split())) + end


def _block(result: CallResult, dialects: Sequence[Dialect]) -> str:
    name, text = fit(result.name), _disarm(result, dialects)
    dialect = next((each for each in dialects if each.id == result.dialect), None)
    return f"{name}: {text}" if dialect is None else dialect.write_result(name, text)


def _disarm(result: CallResult, dialects: Sequence[Dialect]) -> str:
    """Return the text of a result without what a model that repeats it would call."""
    text = result.text
    if not result.neutralise:
        return text
    if "\\" in text:  # structure may be hidden in escapes of JSON, which then goes without those that are not needed
        with contextlib.suppress(ValueError, RecursionError):
            plain = compact(json.loads(text))
            if (disarmed := neutralise(plain, dialects)) != plain:
                return disarmed
    return neutralise(text, dialects)

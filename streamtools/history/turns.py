"""What the formats share: the history that is being read, a turn while it is read, and what all write alike."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS, NATIVE, ToolCall, read_envelope
from streamtools.history.content import given, is_whole, read_content, text_in
from streamtools.history.messages import fit
from streamtools.history.parts import (
    Assistant,
    CallResult,
    Message,
    Origin,
    Part,
    ProviderItem,
    Results,
    System,
    TextPart,
    Thought,
    User,
)
from streamtools.json_values import Rejected, compact, fits, writable
from streamtools.limits import DEFAULT_LIMITS

_TWICE = "two calls of one turn have the same id"


class Reader:
    """The history so far, and the native calls of its last turn that have no answer.

    A turn of items, and results, come in as many messages as a client likes. They are collected, and made one message
    when another begins, so that each costs no more than it is long. From a `client`, results without a call count for
    nothing.
    """

    def __init__(self, *, client: bool = False, system: bool = False) -> None:
        self.place = 0  # which message is being read
        self.items: Draft | None = None  # the last turn of the assistant's, if the next item goes on with it
        self.client = client
        self._system = system
        self._history: list[Message] = []
        self._results: list[CallResult] = []  # those of the last message
        self._open: dict[str, str] = {}  # calls without an answer, by id with their names
        self._waiting: dict[str | None, deque[str]] = {}  # their ids, by the tool's name and for any; once asked for

    def close(self) -> list[Message]:
        """Return the whole history."""
        if self.items is not None:
            self._history.append(self.items.close())
            self.items = None
        if self._results:
            self._history.append(Results(tuple(self._results)))
            self._results.clear()
        return self._history

    def hear(self, message: System | User) -> None:
        """Add what the system or the user says; of a client's parts, those that hold all that they are."""
        if self.client and isinstance(message, User) and not isinstance(message.content, str):
            message = User([each for each in message.content if is_whole(each)])
        self.close().append(message)

    def instruct(self, text: str) -> None:
        """Add words of the system's. Raises ValueError if they are a client's and not allowed."""
        if self.client and not self._system:
            raise ValueError("a client's message of the system is refused; `system=True` allows it")
        self.hear(System(text))

    def say(self, said: Assistant) -> None:
        self.close().append(said)
        self._ask(said.calls)

    def is_open(self, id: str) -> bool:
        """Return whether a call of this id stands without an answer."""
        return id in self._open

    def go_on(self, format: str | None, *, anew: bool = False) -> Draft:
        """Return the turn that an item is a piece of: the last one, if that is the assistant's, or a new one.

        With `anew`, only a turn of items goes on.
        """
        if self.items is None:
            history = self.close()
            last = history[-1] if history and not anew else None
            self.items = Draft(self.place, client=self.client)
            if isinstance(last, Assistant):
                history.pop()
                self.items = Draft(self.place, list(last.parts), last.in_text, client=self.client)
            else:
                self._ask(())
        self.items.format = format or self.items.format
        return self.items

    def call(self, said: Draft, call: ToolCall) -> None:
        """Add a call to a turn of items, none of which has an answer."""
        if call.id in self._open:
            raise ValueError(_TWICE)
        said.parts.append(call)
        self._open[call.id] = call.name
        self._waiting.clear()

    def answer(
        self, id: object, content: object, *, is_error: bool = False, own: ProviderItem | None = None, text: str = ""
    ) -> None:
        """Add the result of a native call. Raises ValueError where the last turn has no such call that is open."""
        if not isinstance(id, str) or id not in self._open:
            if self.client:
                return
            raise ValueError(f"it answers call {id!r}, which does not stand without an answer in the turn before it")
        read = read_content(content)
        parts = () if isinstance(read, str) or all(each.get("type") == "text" for each in read) else tuple(read)
        if self.client:
            parts, own = tuple(filter(is_whole, parts)), None
        said = text or text_in(read)
        self.add(CallResult(NATIVE, self._open[id], said, id, is_error=is_error, parts=parts, own=own))

    def add(self, result: CallResult) -> None:
        """Add the result of a call."""
        if result.dialect == NATIVE and self._open.pop(result.call_id, None) is None:
            raise ValueError(f"it answers call {result.call_id!r}, which does not stand in the turn before it")
        if self.items is not None:
            self.close()
        self._results.append(result)

    def find(self, name: object) -> str | None:
        """Return the id of the first call without an answer to the tool of this name, or of all with None."""
        if not self._waiting:
            for id, called in self._open.items():
                for each in (called, None):
                    self._waiting.setdefault(each, deque()).append(id)
        waiting = self._waiting.get(name) if name is None or isinstance(name, str) else None
        while waiting and waiting[0] not in self._open:
            waiting.popleft()
        return waiting[0] if waiting else None

    def _ask(self, calls: Sequence[ToolCall]) -> None:
        self._open = {call.id: call.name for call in calls}
        self._waiting.clear()
        if len(self._open) < len(calls):
            raise ValueError(_TWICE)


@dataclass
class Draft:
    """A turn of the assistant's while its message is read, which is the one at this `place`."""

    place: int
    parts: list[Part] = field(default_factory=list)
    in_text: tuple[ToolCall, ...] = ()
    format: str | None = None
    """That of the provider which it shows to be of."""
    count: int = 0  # calls
    client: bool = False  # of whose it takes only what a provider has signed

    @property
    def calls(self) -> list[ToolCall]:
        return [each for each in self.parts if isinstance(each, ToolCall)]

    def add_text(self, text: str, own: Mapping[str, Any] | None = None) -> None:
        """Add a text; `own` are its provider's members beside it."""
        signature = (own or {}).get("thoughtSignature")
        if self.client and self.format and isinstance(signature, str):  # which nobody can forge
            self.parts.append(TextPart(text, ProviderItem(self.format, {"thoughtSignature": signature})))
        else:
            self.parts.append(TextPart(text, self.keep(own)))

    def add_thought(
        self,
        text: str,
        signature: object = None,
        id: object = None,
        *,
        redacted: bool = False,
        own: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a block of reasoning."""
        thought = Thought(text, text_or_none(signature), text_or_none(id), redacted, self.keep(own))
        if self.client and not thought.signature:
            thought = Thought(text)
        self.parts.append(thought)

    def add_call(
        self, call: object, id: object, own: Mapping[str, Any] | None = None, signature: object = None
    ) -> None:
        """Add a call; its id is made if it has none. What is no object is no call."""
        if isinstance(call, Mapping):
            made = f"call_{self.place}_{self.count}"
            self.count += 1
            self.parts.append(read_call(call, id, made, self.keep(own), signature))

    def add_item(self, data: Mapping[str, Any]) -> None:
        """Add a provider item, unless it nests so deep that it cannot be written again."""
        if self.format and not self.client and fits(data, DEFAULT_LIMITS.depth):
            self.parts.append(ProviderItem(self.format, dict(data)))

    def keep(self, own: Mapping[str, Any] | None) -> ProviderItem | None:
        """Return members as the provider's own; None if there are none, or what nests too deep."""
        return None if self.client else keep(self.format, own)

    def close(self) -> Assistant:
        """Return the turn."""
        return Assistant(parts=self.parts, in_text=self.in_text, origin=Origin(self.format))


def keep(format: str | None, own: Mapping[str, Any] | None) -> ProviderItem | None:
    """Return members as those of a provider's own; None if there are none, or what nests too deep."""
    members = {str(name): value for name, value in (own or {}).items() if value is not None}
    return ProviderItem(format, members) if format and members and fits(members, DEFAULT_LIMITS.depth) else None


def read_call(
    call: Mapping[str, Any], id: object, made: str, own: ProviderItem | None = None, signature: object = None
) -> ToolCall:
    """Return a call as the history holds it; its id is `made` if it has none.

    One that is malformed has no arguments, and as `raw` what was written in their place.
    """
    raw = ""
    try:
        read = read_envelope(call)
        name, arguments = read.name, read.arguments
        if not fits(arguments, DEFAULT_LIMITS.depth):  # as they would be in a text
            arguments, raw = {}, "{}"
    except Rejected:
        places = [call, each] if isinstance(each := call.get("function"), Mapping) else [call]
        named = [text for place in places for key in NAME_FIELDS if (text := given(place, key))]
        found = [place[key] for place in places for key in ARGUMENT_FIELDS if place.get(key) is not None]
        name, arguments = next(iter(named), ""), {}
        raw = next((each for each in found if isinstance(each, str) and each), "{}")
        raw = "" if raw == "null" and name else raw  # of Groq's Llama, for tools without parameters
    return ToolCall(
        id=text_or_none(id) or made,
        name=name,
        arguments=arguments,
        dialect=NATIVE,
        raw=raw,
        provider_id=text_or_none(id) or None,
        signature=text_or_none(signature),
        own={own.format: own.data} if own else None,
    )


def without(message: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """Return the members of an object other than those."""
    return {name: value for name, value in message.items() if name not in known}


def text_or_none(value: object) -> str | None:
    """Return a signature or an id; what is no text is none, as if it were not there."""
    return value if isinstance(value, str) else None


def in_order(message: Assistant) -> Iterator[Part]:
    """Yield what a turn said, one thing after the other; what it thought last and did nothing about is left out.

    A provider that reads its own reasoning again wants it before what it led to.
    """
    parts = message.parts
    end = len(parts)
    while end and (isinstance(last := parts[end - 1], Thought) or (isinstance(last, TextPart) and not last.text)):
        if isinstance(last, TextPart) and last.own:
            break
        end -= 1
    return iter(parts[:end])


def arguments_text(call: ToolCall) -> str:
    """Return arguments as JSON text; those of a malformed call as they were written."""
    return call.raw if call.raw and call.dialect == NATIVE else compact(writable(call.arguments))


def own_of(call: ToolCall, format: str) -> dict[str, Any]:
    """Return the members of a provider's own beside a call."""
    own = (call.own or {}).get(format)
    return own if isinstance(own, dict) else {}


class Names:
    """The names of the calls in a history, as its provider takes them.

    A model may call what does not exist, by names that its provider then refuses to read. The name of a tool that has
    answered is one that the provider has taken, and stays.
    """

    def __init__(self, history: Iterable[Message]) -> None:
        self._taken = {
            result.name
            for message in history
            if isinstance(message, Results)
            for result in message.results
            if result.dialect == NATIVE and result.name.strip() and not result.is_error
        }

    def of(self, name: str) -> str:
        return name if name in self._taken else fit(name) or "unknown"

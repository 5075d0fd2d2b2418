"""The history that is being read, whatever the format of its messages, and a turn of it while it is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS, NATIVE, ToolCall, read_envelope
from streamtools.errors import Code
from streamtools.history.content import given, of_client, read_content, text_in
from streamtools.history.parts import (
    SEND_AGAIN,
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
from streamtools.json_values import Rejected, count_values, fits
from streamtools.limits import DEFAULT_LIMITS

_SHORT = 256  # characters of a text whose values are counted with those in its strings


class ValueBudget:
    """How many values the arguments of all calls may hold where they are JSON in a text.

    Each is parsed in one go, during which no other thread runs, and all of them stay in memory.
    """

    def __init__(self) -> None:
        self._left = DEFAULT_LIMITS.values

    def take(self, call: Mapping[str, Any]) -> None:
        """Make room for the arguments of a call. Raises `Rejected` if there is not so much."""
        inner = call.get("function")
        for place in (call, inner) if isinstance(inner, Mapping) else (call,):
            for key in ARGUMENT_FIELDS:
                text = place.get(key)
                if isinstance(text, str):
                    self._take(text)

    def _take(self, text: str) -> None:
        count = text.count(",") + text.count("[") + text.count("{")
        if len(text) > _SHORT:
            count = count_values(text.encode(errors="surrogatepass"))
        if count > self._left:
            raise Rejected(Code.TOO_LARGE, f"the calls hold more than {DEFAULT_LIMITS.values} values")
        self._left -= count


class HistoryReader:
    """The history so far, and the native calls of its last turn that have no answer.

    A turn of items, and results, come in as many messages as a client likes. They are collected, and made one message
    when another begins, so that each costs no more than it is long. A result whose call stands further back goes there,
    and one without an open call is left out. Calls of one id in a turn get ids of their own, and results in this order.
    """

    def __init__(self, *, client: bool = False, system: bool = False) -> None:
        self.place = 0  # which message is being read
        self.items: TurnDraft | None = None  # the last turn of the assistant's, if the next item goes on with it
        self.client = client
        self.shown: str | None = None  # the format that a message has shown to be that of the list
        self.budget = ValueBudget()
        self._system = system
        self._history: list[Message] = []
        self._results: list[CallResult] = []  # those of the last message
        self._open: dict[str, ToolCall] = {}  # calls without an answer
        # By the tool's name, and under None all: calls in order, answered ones too; filled by the first `find`.
        self._waiting: dict[str | None, deque[ToolCall]] = {}
        self._again: dict[str, deque[str]] = {}  # the ids of further calls of one id
        self._numbers: dict[str, int] = {}  # and how far they have been numbered
        self._turn = 0  # the place of their turn in the history
        self._earlier: dict[str, tuple[int, ToolCall]] = {}  # calls of turns before that, by id, with their turn
        self._late: dict[int, list[CallResult]] = {}  # their results, by turn

    def flush(self) -> list[Message]:
        """End the turn and the results that are being collected; return the history so far, to which one may add."""
        if self.items is not None:
            self._history.append(self.items.close())
            self.items = None
        if self._results:
            self._history.append(Results(tuple(self._results)))
            self._results.clear()
        return self._history

    def finish(self) -> list[Message]:
        """Return the whole history, with results that came late behind the calls which they answer."""
        history: list[Message] = []
        for place, message in enumerate(self.flush()):
            history.append(message)
            if place in self._late:
                history.append(Results(tuple(self._late[place])))
        return history

    def hear(self, message: System | User) -> None:
        """Add what the system or the user says; of a client's parts, those that anybody may name."""
        if self.client:
            message = replace(message, own=None)
            if isinstance(message, User) and not isinstance(message.content, str):
                message = User([each for part in message.content if (each := of_client(part))])
        self.flush().append(message)

    def instruct(self, text: str, own: ProviderItem | None = None) -> None:
        """Add words of the system's. Raises ValueError if they are a client's and not allowed."""
        if self.client and not self._system:
            raise ValueError("a client's message of the system is refused; `system=True` allows it")
        self.hear(System(text, own))

    def say(self, said: Assistant) -> None:
        history = self.flush()
        self._begin_turn(len(history))
        parts = tuple(self._open_call(each) if isinstance(each, ToolCall) else each for each in said.parts)
        history.append(said if parts == said.parts else replace(said, parts=parts))

    def is_open(self, id: str) -> bool:
        return id in self._open

    def go_on(self, format: str | None, *, anew: bool = False) -> TurnDraft:
        """Return the turn that an item is a piece of: the last one, if that is the assistant's, or a new one.

        With `anew`, only a turn of items goes on.
        """
        if self.items is None:
            history = self.flush()
            last = history[-1] if history and not anew else None
            self.items = TurnDraft(self.place, self.budget, client=self.client)
            if isinstance(last, Assistant):
                history.pop()
                self.items = TurnDraft(self.place, self.budget, list(last.parts), last.in_text, client=self.client)
            else:
                self._begin_turn(len(history))
        self.items.format = format or self.items.format
        return self.items

    def call(self, said: TurnDraft, call: ToolCall) -> None:
        """Add a call to a turn of items, none of which has an answer."""
        said.parts.append(self._open_call(call))

    def take_call(
        self, format: str, call: Mapping[str, Any], id: object, rest: Mapping[str, Any], signature: object = None
    ) -> None:
        """Add the call that an item is, with the rest of its members, to the turn of which it is a piece."""
        said = self.go_on(format)
        self.call(said, read_call(call, id, f"call_{self.place}_0", self.budget, said.keep(rest), signature))

    def answer(
        self, id: object, content: object, *, is_error: bool = False, own: ProviderItem | None = None, text: str = ""
    ) -> None:
        """Add the result of a native call."""
        if isinstance(id, str) and id not in self._open and self._again.get(id):
            id = self._again[id].popleft()
        if not isinstance(id, str) or (id not in self._open and id not in self._earlier):
            return
        read = read_content(content)
        parts = () if isinstance(read, str) or all(each.get("type") == "text" for each in read) else tuple(read)
        if self.client:
            parts, own = tuple(each for part in parts if (each := of_client(part))), None
        said = text or text_in(read)
        place, call = (0, self._open[id]) if id in self._open else self._earlier[id]
        result = CallResult(NATIVE, call.name, said, id, is_error=is_error, parts=parts, own=own)
        if id in self._open:
            self.add(result)
        else:
            del self._earlier[id]
            self._late.setdefault(place, []).append(self._as_told(call, result))

    def add(self, result: CallResult) -> None:
        """Add the result of a call. Raises ValueError where the last turn has no such call that is open."""
        if result.dialect == NATIVE:
            call = self._open.pop(result.call_id, None)
            if call is None:
                raise ValueError(f"it answers call {result.call_id!r}, which does not stand in the turn before it")
            result = self._as_told(call, result)
        if self.items is not None:
            self.flush()
        self._results.append(result)

    def _as_told(self, call: ToolCall, result: CallResult) -> CallResult:
        """Return a result as the model is told it; of a malformed call an interface is shown less than what to do."""
        if self.client and call.raw:
            return result._replace(text=result.text.removesuffix(SEND_AGAIN) + SEND_AGAIN, is_error=True)
        return result

    def find(self, name: object) -> str | None:
        """Return the id of the first call without an answer to the tool of this name, or of all with None."""
        if not self._waiting:
            for call in self._open.values():
                self._wait_for(call)
        waiting = self._waiting.get(name) if name is None or isinstance(name, str) else None
        while waiting and self._open.get(waiting[0].id) is not waiting[0]:
            waiting.popleft()
        return waiting[0].id if waiting else None

    def _wait_for(self, call: ToolCall) -> None:
        for each in (call.name, None):
            self._waiting.setdefault(each, deque()).append(call)

    def _begin_turn(self, place: int) -> None:
        self._earlier |= {id: (self._turn, call) for id, call in self._open.items()}
        self._turn = place
        self._open, self._again, self._numbers = {}, {}, {}
        self._waiting.clear()

    def _open_call(self, call: ToolCall) -> ToolCall:
        """Return a call of the turn, open from now on, under an id that no other has."""
        if call.id in self._open:
            number = self._numbers.get(call.id, 1) + 1
            while (made := f"{call.id}_{number}") in self._open:
                number += 1
            self._numbers[call.id] = number
            self._again.setdefault(call.id, deque()).append(made)
            call = msgspec.structs.replace(call, id=made)
        self._open[call.id] = call
        if self._waiting:
            self._wait_for(call)
        return call


@dataclass
class TurnDraft:
    """A turn of the assistant's while its message is read, which is the one at this `place`."""

    place: int
    budget: ValueBudget
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
        if self.client and self.format and isinstance(signature, str) and signature:  # which nobody can forge
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
            self.parts.append(read_call(call, id, made, self.budget, self.keep(own), signature))

    def is_of(self, format: str) -> bool:
        """Return whether the turn is of a provider of this format, which it becomes if nothing has shown of which."""
        self.format = self.format or format
        return self.format == format

    def add_item(self, data: Mapping[str, Any]) -> None:
        """Add a provider item, unless it nests so deep that it cannot be written again."""
        if self.format and not self.client and fits(data, DEFAULT_LIMITS.depth):
            self.parts.append(ProviderItem(self.format, dict(data)))

    def keep(self, own: Mapping[str, Any] | None) -> ProviderItem | None:
        """Return members as the provider's own; None if there are none, or what nests too deep."""
        return None if self.client else keep(self.format, own)

    def close(self) -> Assistant:
        return Assistant(parts=self.parts, in_text=self.in_text, origin=Origin(self.format, client=self.client))


def keep(format: str | None, own: Mapping[str, Any] | None) -> ProviderItem | None:
    """Return members as those of a provider's own; None if there are none, or what nests too deep."""
    members = {str(name): value for name, value in (own or {}).items() if value is not None}
    return ProviderItem(format, members) if format and members and fits(members, DEFAULT_LIMITS.depth) else None


def read_call(
    call: Mapping[str, Any],
    id: object,
    made: str,
    budget: ValueBudget,
    own: ProviderItem | None = None,
    signature: object = None,
) -> ToolCall:
    """Return a call as the history holds it; its id is `made` if it has none.

    One that is malformed, or for which there is no `budget`, has no arguments, and as `raw` what was written in their
    place.
    """
    raw = ""
    try:
        budget.take(call)
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


def text_or_none(value: object) -> str | None:
    """Return a signature or an id; what is no text is none, as if it were not there."""
    return value if isinstance(value, str) else None

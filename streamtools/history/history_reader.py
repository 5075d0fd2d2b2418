"""Builds a history while messages are read, whatever their format: `HistoryReader`, and `TurnDraft` for one turn."""

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

_SHORT_TEXT = 256  # characters up to which values are counted roughly, including those in strings


class ValueBudget:
    """Limits the JSON values in the arguments of all calls, if these are text.

    Parsing a text blocks all other threads, and its values stay in memory.
    """

    def __init__(self) -> None:
        self._left = DEFAULT_LIMITS.values

    def take(self, call: Mapping[str, Any]) -> None:
        """Count the arguments of a call. Raises `Rejected` if the limit is exceeded."""
        inner = call.get("function")
        for holder in (call, inner) if isinstance(inner, Mapping) else (call,):
            for key in ARGUMENT_FIELDS:
                text = holder.get(key)
                if isinstance(text, str):
                    self._take(text)

    def _take(self, text: str) -> None:
        count = text.count(",") + text.count("[") + text.count("{")
        if len(text) > _SHORT_TEXT:
            count = count_values(text.encode(errors="surrogatepass"))
        if count > self._left:
            raise Rejected(Code.TOO_LARGE, f"the calls hold more than {DEFAULT_LIMITS.values} values")
        self._left -= count


class HistoryReader:
    """The history while it is read, and the open native calls of its last turn.

    The items of a turn, and the results of its calls, may be spread over many messages. They are collected into one
    message each, in linear time. A late result moves to its turn, and a result without an open call is dropped. Calls
    with the same id in one turn get unique ids, and their results are assigned in order.
    """

    def __init__(self, *, client: bool = False, system: bool = False) -> None:
        self.index = 0  # of the message that is being read
        self.turn: TurnDraft | None = None  # the last turn, if the next item may belong to it
        self.client = client
        self.list_format: str | None = None  # the format of the list, once a message reveals it
        self.budget = ValueBudget()
        self._system = system
        self._history: list[Message] = []
        self._results: list[CallResult] = []  # of the last turn
        self._open: dict[str, ToolCall] = {}  # calls without a result
        # Calls in order by tool name, and all calls by None, including answered ones. Filled by `find_open_call`.
        self._calls_by_name: dict[str | None, deque[ToolCall]] = {}
        self._renamed: dict[str, deque[str]] = {}  # the new ids of calls with the same id
        self._numbers: dict[str, int] = {}  # the last number given to an id
        self._turn_index = 0  # the index of the last turn in the history
        self._earlier: dict[str, tuple[int, ToolCall]] = {}  # open calls of earlier turns, with the index of their turn
        self._late: dict[int, list[CallResult]] = {}  # late results by the index of their turn

    def flush(self) -> list[Message]:
        """Finish the collected turn and results. Returns the history, to which the caller may add."""
        if self.turn is not None:
            self._history.append(self.turn.finish())
            self.turn = None
        if self._results:
            self._history.append(Results(tuple(self._results)))
            self._results.clear()
        return self._history

    def finish(self) -> list[Message]:
        """Return the whole history, with late results after their turns."""
        history: list[Message] = []
        for index, message in enumerate(self.flush()):
            history.append(message)
            if index in self._late:
                history.append(Results(tuple(self._late[index])))
        return history

    def add_message(self, message: System | User) -> None:
        """Add a system or user message. Of a client, only parts that any client may send are kept."""
        if self.client:
            message = replace(message, own=None)
            if isinstance(message, User) and not isinstance(message.content, str):
                message = User([kept for part in message.content if (kept := of_client(part))])
        self.flush().append(message)

    def add_system(self, text: str, own: ProviderItem | None = None) -> None:
        """Add a system message. Raises ValueError if a client sent it and that is not allowed."""
        if self.client and not self._system:
            raise ValueError("a client must not send system messages; pass `system=True` to allow them")
        self.add_message(System(text, own))

    def add_turn(self, said: Assistant) -> None:
        """Add a complete turn."""
        history = self.flush()
        self._begin_turn(len(history))
        parts = tuple(self._open_call(part) if isinstance(part, ToolCall) else part for part in said.parts)
        history.append(said if parts == said.parts else replace(said, parts=parts))

    def is_open(self, id: str) -> bool:
        """Return whether the last turn has an open call with this id."""
        return id in self._open

    def open_turn(self, format: str | None, *, only_items: bool = False) -> TurnDraft:
        """Return the turn that the next item belongs to: the last one if it is the assistant's, or a new one.

        With `only_items`, the item continues only a turn that consists of items.
        """
        if self.turn is None:
            history = self.flush()
            last = history[-1] if history and not only_items else None
            self.turn = TurnDraft(self.index, self.budget, client=self.client)
            if isinstance(last, Assistant):
                history.pop()
                self.turn = TurnDraft(self.index, self.budget, list(last.parts), last.in_text, client=self.client)
            else:
                self._begin_turn(len(history))
        self.turn.format = format or self.turn.format
        return self.turn

    def add_call(self, said: TurnDraft, call: ToolCall) -> None:
        """Add a call to a turn of items."""
        said.parts.append(self._open_call(call))

    def add_call_item(
        self, format: str, call: Mapping[str, Any], id: object, rest: Mapping[str, Any], signature: object = None
    ) -> None:
        """Add a call that is an item of a turn. `rest` holds its other members."""
        said = self.open_turn(format)
        self.add_call(said, read_call(call, id, f"call_{self.index}_0", self.budget, said.own_item(rest), signature))

    def add_native_result(
        self, id: object, content: object, *, is_error: bool = False, own: ProviderItem | None = None, text: str = ""
    ) -> None:
        """Add the result of a native call; drop it if there is no such call."""
        if isinstance(id, str) and id not in self._open and self._renamed.get(id):
            id = self._renamed[id].popleft()
        if not isinstance(id, str) or (id not in self._open and id not in self._earlier):
            return
        read = read_content(content)
        parts = () if isinstance(read, str) or all(part.get("type") == "text" for part in read) else tuple(read)
        if self.client:
            parts, own = tuple(kept for part in parts if (kept := of_client(part))), None
        text = text or text_in(read)
        index, call = (0, self._open[id]) if id in self._open else self._earlier[id]
        result = CallResult(NATIVE, call.name, text, id, is_error=is_error, parts=parts, own=own)
        if id in self._open:
            self.add_result(result)
        else:
            del self._earlier[id]
            self._late.setdefault(index, []).append(self._for_model(call, result))

    def add_result(self, result: CallResult) -> None:
        """Add the result of a call. Raises ValueError if the last turn has no such open call."""
        if result.dialect == NATIVE:
            call = self._open.pop(result.call_id, None)
            if call is None:
                raise ValueError(f"the result of call {result.call_id!r} must follow the turn that holds the call")
            result = self._for_model(call, result)
        if self.turn is not None:
            self.flush()
        self._results.append(result)

    def _for_model(self, call: ToolCall, result: CallResult) -> CallResult:
        """Restore the full error message of a malformed call, which an interface gets without its end."""
        if self.client and call.raw:
            return result._replace(text=result.text.removesuffix(SEND_AGAIN) + SEND_AGAIN, is_error=True)
        return result

    def find_open_call(self, name: object) -> str | None:
        """Return the id of the first open call of the tool `name`, or of any tool if `name` is None."""
        if not self._calls_by_name:
            for call in self._open.values():
                self._index_call(call)
        waiting = self._calls_by_name.get(name) if name is None or isinstance(name, str) else None
        while waiting and self._open.get(waiting[0].id) is not waiting[0]:
            waiting.popleft()
        return waiting[0].id if waiting else None

    def _index_call(self, call: ToolCall) -> None:
        for name in (call.name, None):
            self._calls_by_name.setdefault(name, deque()).append(call)

    def _begin_turn(self, index: int) -> None:
        self._earlier |= {id: (self._turn_index, call) for id, call in self._open.items()}
        self._turn_index = index
        self._open, self._renamed, self._numbers = {}, {}, {}
        self._calls_by_name.clear()

    def _open_call(self, call: ToolCall) -> ToolCall:
        """Register an open call of the turn. Returns it, with a new id if another call has the same."""
        if call.id in self._open:
            number = self._numbers.get(call.id, 1) + 1
            while (new_id := f"{call.id}_{number}") in self._open:
                number += 1
            self._numbers[call.id] = number
            self._renamed.setdefault(call.id, deque()).append(new_id)
            call = msgspec.structs.replace(call, id=new_id)
        self._open[call.id] = call
        if self._calls_by_name:
            self._index_call(call)
        return call


@dataclass
class TurnDraft:
    """A turn of the assistant while its message, at `index`, is read."""

    index: int
    budget: ValueBudget
    parts: list[Part] = field(default_factory=list)
    in_text: tuple[ToolCall, ...] = ()
    format: str | None = None
    """The provider format that this message reveals."""
    count: int = 0  # of calls
    client: bool = False  # a client wrote the message, so provider data counts only if it is signed

    @property
    def calls(self) -> list[ToolCall]:
        return [part for part in self.parts if isinstance(part, ToolCall)]

    def add_text(self, text: str, own: Mapping[str, Any] | None = None) -> None:
        """Add a text. `own` holds its other members."""
        signature = (own or {}).get("thoughtSignature")
        if self.client and self.format and isinstance(signature, str) and signature:  # a client cannot forge it
            self.parts.append(TextPart(text, ProviderItem(self.format, {"thoughtSignature": signature})))
        else:
            self.parts.append(TextPart(text, self.own_item(own)))

    def add_thought(
        self,
        text: str,
        signature: object = None,
        id: object = None,
        *,
        redacted: bool = False,
        own: Mapping[str, Any] | None = None,
    ) -> None:
        thought = Thought(text, text_or_none(signature), text_or_none(id), redacted, self.own_item(own))
        if self.client and not thought.signature:
            thought = Thought(text)
        self.parts.append(thought)

    def add_call(
        self, call: object, id: object, own: Mapping[str, Any] | None = None, signature: object = None
    ) -> None:
        """Add a call, with a generated id if it has none. Anything but an object is ignored."""
        if isinstance(call, Mapping):
            new_id = f"call_{self.index}_{self.count}"
            self.count += 1
            self.parts.append(read_call(call, id, new_id, self.budget, self.own_item(own), signature))

    def is_of(self, format: str) -> bool:
        """Return whether the turn has this format. A turn of unknown format gets it."""
        self.format = self.format or format
        return self.format == format

    def add_item(self, data: Mapping[str, Any]) -> None:
        """Add a provider item, unless it nests too deeply to be written again."""
        if self.format and not self.client and fits(data, DEFAULT_LIMITS.depth):
            self.parts.append(ProviderItem(self.format, dict(data)))

    def own_item(self, own: Mapping[str, Any] | None) -> ProviderItem | None:
        """Return members as provider data; see `provider_item`."""
        return None if self.client else provider_item(self.format, own)

    def finish(self) -> Assistant:
        """Return the turn."""
        return Assistant(parts=self.parts, in_text=self.in_text, origin=Origin(self.format, client=self.client))


def provider_item(format: str | None, own: Mapping[str, Any] | None) -> ProviderItem | None:
    """Return members as provider data, or None if there are none or they nest too deeply."""
    members = {str(name): value for name, value in (own or {}).items() if value is not None}
    return ProviderItem(format, members) if format and members and fits(members, DEFAULT_LIMITS.depth) else None


def read_call(
    call: Mapping[str, Any],
    id: object,
    new_id: str,
    budget: ValueBudget,
    own: ProviderItem | None = None,
    signature: object = None,
) -> ToolCall:
    """Return a call of a history. It gets the id `new_id` if it has none.

    A malformed call, or one that exceeds the `budget`, has no arguments, and `raw` is what the model wrote instead.
    """
    raw = ""
    try:
        budget.take(call)
        read = read_envelope(call)
        name, arguments = read.name, read.arguments
        if not fits(arguments, DEFAULT_LIMITS.depth):  # as for arguments in text
            arguments, raw = {}, "{}"
    except Rejected:
        holders = [call, inner] if isinstance(inner := call.get("function"), Mapping) else [call]
        names = [text for holder in holders for key in NAME_FIELDS if (text := given(holder, key))]
        found = [holder[key] for holder in holders for key in ARGUMENT_FIELDS if holder.get(key) is not None]
        name, arguments = next(iter(names), ""), {}
        raw = next((value for value in found if isinstance(value, str) and value), "{}")
        raw = "" if raw == "null" and name else raw  # Groq's Llama writes it for tools without parameters
    return ToolCall(
        id=text_or_none(id) or new_id,
        name=name,
        arguments=arguments,
        dialect=NATIVE,
        raw=raw,
        provider_id=text_or_none(id) or None,
        signature=text_or_none(signature),
        own={own.format: own.data} if own else None,
    )


def text_or_none(value: object) -> str | None:
    """Return a signature or an id; anything but text counts as missing."""
    return value if isinstance(value, str) else None

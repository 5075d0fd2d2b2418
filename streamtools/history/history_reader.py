"""Builds a history from messages of any format: `HistoryReader`, and `TurnDraft` for one turn."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import msgspec

from streamtools.calls import ARGUMENT_FIELDS, NAME_FIELDS, NATIVE, ToolCall, custom_as_function, read_envelope
from streamtools.errors import Code
from streamtools.history.content import accept_from_client, read_content, string_at, text_in
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
from streamtools.json_values import OBJECT, Rejected, count_values, fits
from streamtools.limits import DEFAULT_LIMITS


class ValueBudget:
    """Limits the number of JSON values that the calls of a history contain in arguments with JSON text.

    Arguments that arrive as objects are not counted. The limit is needed because parsing a text blocks all other
    threads, and the parsed values stay in memory.
    """

    def __init__(self) -> None:
        self._left = DEFAULT_LIMITS.values

    def take(self, call: Mapping[str, Any]) -> None:
        """Count the arguments of a call. Raises `Rejected` if the limit is exceeded."""
        inner = call.get("function")
        for holder in (call, inner) if isinstance(inner, OBJECT) else (call,):
            for text in [holder[key] for key in ARGUMENT_FIELDS if isinstance(holder.get(key), str)]:
                values = count_values(text.encode(errors="surrogatepass"))
                if values > self._left:
                    most = DEFAULT_LIMITS.values
                    raise Rejected(Code.TOO_LARGE, f"the arguments of all calls contain more than {most} JSON values")
                self._left -= values


class HistoryReader:
    """Collects messages into a history. Tracks native calls without a result. Such calls of the last turn are *open*.

    A source may spread one turn, and its results, over many messages. The reader merges them into one `Assistant` and
    one `Results` message, in linear time. A result that arrives after a later turn is moved to the turn of its call. A
    result is dropped if its call is unknown or already has a result. If open calls share an id, the later calls get new
    ids, and the results are assigned in order.
    """

    def __init__(self, *, client: bool = False, system: bool = False) -> None:
        self.index = 0  # the index of the current message
        self.turn: TurnDraft | None = None  # the turn under construction, which the next message may continue
        self.client = client  # whether a client sent the messages
        self.list_format: str | None = None  # the format of the message list; None until a message reveals it
        self.budget = ValueBudget()
        self._system = system
        self._history: list[Message] = []  # without results
        self._turn_end = 0  # the number of messages up to the last turn
        self._results: dict[int, list[CallResult]] = {}  # by the number of messages up to their turn
        self._waiting: dict[str, tuple[int, ToolCall]] = {}  # calls without a result, with the end of their turn
        # Maps a tool name to its calls in order. The key None maps to all calls. Answered calls remain.
        self._calls_by_name = defaultdict[str | None, deque[ToolCall]](deque)
        self._renamed: dict[str, deque[str]] = {}  # maps a duplicate id to the new ids of its calls
        self._numbers = count(2)  # the suffixes of new ids

    def flush(self) -> list[Message]:
        """Finish the collected turn. Returns the history without results. The caller may add messages to it."""
        if self.turn is not None:
            self._history.append(self.turn.finish())
            self.turn = None
        return self._history

    def finish(self) -> list[Message]:
        """Return the whole history. The results of each turn follow the turn."""
        history: list[Message] = []
        messages = self.flush()
        for index in range(len(messages) + 1):
            if index in self._results:
                history.append(Results(tuple(self._results[index])))
            history += messages[index : index + 1]
        return history

    def add_message(self, message: System | User) -> None:
        """Add a system or user message.

        If the history comes from a client, parts that clients must not send are dropped.
        """
        if self.client and isinstance(message, User) and not isinstance(message.content, str):
            message = User([kept for part in message.content if (kept := accept_from_client(part))])
        self.flush().append(message)

    def add_system(self, text: str, extra: ProviderItem | None = None) -> None:
        """Add a system message. Raises ValueError if a client sent it, unless `system=True` allows this."""
        if self.client and not self._system:
            raise ValueError("a client must not send system messages: add them on the server")
        self.add_message(System(text, extra))

    def add_turn(self, turn: Assistant) -> None:
        """Add a complete turn."""
        history = self.flush()
        self._begin_turn()
        parts = tuple([self._register_call(part) if isinstance(part, ToolCall) else part for part in turn.parts])
        history.append(turn if parts == turn.parts else replace(turn, parts=parts))

    def is_open(self, id: str) -> bool:
        """Return whether the last turn has an open call with this id."""
        return id in self._waiting and self._waiting[id][0] == self._turn_end

    def open_turn(self, format: str | None, *, only_items: bool = False) -> TurnDraft:
        """Return the turn to add the next part to: the last message if it is a turn without results, else a new turn.

        With `only_items`, only a turn under construction is continued, not a complete `Assistant` message.
        """
        if self.turn is None:
            history = self.flush()
            self.turn = TurnDraft(self.index, self.budget, client=self.client, register=self._register_call)
            last = history[-1] if history and self._turn_end not in self._results else None
            if isinstance(last, Assistant) and not only_items:
                history.pop()
                self.turn.parts, self.turn.in_text = list(last.parts), last.in_text
            else:
                self._begin_turn()
        self.turn.format = format or self.turn.format
        return self.turn

    def add_native_result(
        self, format: str | None, id: object, content: object, rest: Mapping[str, Any], *, is_error: bool = False
    ) -> None:
        """Add the result of the native call with this id. Does nothing if no such call waits for a result.

        `rest` holds the additional JSON fields of the result in this `format`.
        """
        if isinstance(id, str) and self._renamed.get(id) and not self.is_open(id):
            id = self._renamed[id].popleft()
        if not isinstance(id, str) or id not in self._waiting:
            return
        read = read_content(content)
        parts = () if isinstance(read, str) or all(part.get("type") == "text" for part in read) else tuple(read)
        extra = provider_item(format, rest)
        if self.client:
            parts, extra = tuple([kept for part in parts if (kept := accept_from_client(part))]), None
        turn_end, call = self._waiting.pop(id)
        text = text_in(read)
        if self.client and call.raw:  # clients do not receive the suffix of the error of a malformed call
            text, is_error = text.removesuffix(SEND_AGAIN) + SEND_AGAIN, True
        result = CallResult(NATIVE, call.name, text, id, is_error=is_error, parts=parts, extra=extra)
        if turn_end == self._turn_end:
            self.flush()
        self._results.setdefault(turn_end, []).append(result)

    def add_result(self, result: CallResult) -> None:
        """Add the result of a call. Raises ValueError for a native result if the last turn has no such open call."""
        if result.dialect == NATIVE:
            if not self.is_open(result.call_id):
                raise ValueError(f"the result of call {result.call_id!r} must follow the turn that holds the call")
            del self._waiting[result.call_id]
        self.flush()
        self._results.setdefault(self._turn_end, []).append(result)

    def find_open_call(self, name: object) -> str | None:
        """Return the id of the first open call of the tool `name`, or of any tool if `name` is None.

        Returns None if no such call is open.
        """
        waiting = self._calls_by_name.get(name) if name is None or isinstance(name, str) else None
        while waiting and self._waiting.get(waiting[0].id) != (self._turn_end, waiting[0]):
            waiting.popleft()
        return waiting[0].id if waiting else None

    def _begin_turn(self) -> None:
        self._turn_end, self._numbers = len(self._history) + 1, count(2)
        self._renamed.clear()
        self._calls_by_name.clear()

    def _register_call(self, call: ToolCall) -> ToolCall:
        """Register `call` as open. Returns the call, with a new id if another open call has the same id."""
        if self.is_open(call.id):
            new_id = next(new_id for number in self._numbers if not self.is_open(new_id := f"{call.id}_{number}"))
            self._renamed.setdefault(call.id, deque()).append(new_id)
            call = msgspec.structs.replace(call, id=new_id)
        self._waiting[call.id] = self._turn_end, call
        for name in (call.name, None):
            self._calls_by_name[name].append(call)
        return call


@dataclass
class TurnDraft:
    """An assistant turn under construction. `index` is the index of its message."""

    index: int
    budget: ValueBudget
    parts: list[Part] = field(default_factory=list)
    in_text: tuple[ToolCall, ...] = ()
    format: str | None = None
    """The provider format that this message reveals."""
    count: int = 0  # the number of calls that `add_call` added
    client: bool = False  # whether a client sent the message; provider data is then kept only if it is signed
    register: Callable[[ToolCall], ToolCall] | None = None  # registers each call that `add_call` adds

    def add_text(self, text: str, extra: Mapping[str, Any] | None = None) -> None:
        """Add text. `extra` holds the additional JSON fields that the provider sent with it."""
        item = self.to_provider_item(extra)
        if self.client and self.format and (signature := string_at(extra, "thoughtSignature")):
            item = ProviderItem(self.format, {"thoughtSignature": signature})  # a client cannot forge it
        self.parts.append(TextPart(text, item))

    def add_thought(
        self,
        text: str,
        signature: object = None,
        id: object = None,
        *,
        redacted: bool = False,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a block of reasoning. A client's block without a signature keeps only its text."""
        item = self.to_provider_item(extra)
        thought = Thought(text, text_or_none(signature), text_or_none(id), redacted, item)
        if self.client and not thought.signature:
            thought = Thought(text)
        self.parts.append(thought)

    def add_call(
        self, call: object, id: object, extra: Mapping[str, Any] | None = None, signature: object = None
    ) -> None:
        """Add a call. A call without an id gets a generated id. Does nothing if `call` is not a mapping."""
        if isinstance(call, OBJECT):
            new_id = f"call_{self.index}_{self.count}"
            self.count += 1
            read = read_call(call, id, new_id, self.budget, self.to_provider_item(extra), signature)
            self.parts.append(self.register(read) if self.register is not None else read)

    def claim_format(self, format: str) -> bool:
        """Set the format if it is unknown. Returns whether the turn has this format."""
        self.format = self.format or format
        return self.format == format

    def add_item(self, data: Mapping[str, Any]) -> None:
        """Add a provider item. Does nothing if a client sent it, its format is unknown, or it nests too deeply."""
        if self.format and not self.client and fits(data, DEFAULT_LIMITS.depth):
            self.parts.append(ProviderItem(self.format, dict(data)))

    def to_provider_item(self, fields: Mapping[str, Any] | None) -> ProviderItem | None:
        """Return the JSON fields as a ProviderItem, like `provider_item`. Returns None for a client's message."""
        return None if self.client else provider_item(self.format, fields)

    def finish(self) -> Assistant:
        """Return the complete turn."""
        return Assistant(parts=self.parts, in_text=self.in_text, origin=Origin(self.format, client=self.client))


def provider_item(format: str | None, fields: Mapping[str, Any] | None) -> ProviderItem | None:
    """Return the JSON fields that are not null as a ProviderItem.

    Returns None if the format is unknown, or the fields are empty or nest too deeply.
    """
    if not format or not fields:
        return None
    data = {str(name): value for name, value in fields.items() if value is not None}
    return ProviderItem(format, data) if data and fits(data, DEFAULT_LIMITS.depth) else None


def read_call(
    call: Mapping[str, Any],
    id: object,
    new_id: str,
    budget: ValueBudget,
    extra: ProviderItem | None = None,
    signature: object = None,
) -> ToolCall:
    """Return `call` as a ToolCall. The ToolCall gets the id `new_id` if `id` is empty or not a string.

    If the call is malformed or exceeds `budget`, `arguments` is empty. `raw` then holds the model's text, or "{}" if
    there is no text.
    """
    raw, call = "", custom_as_function(call)
    try:
        budget.take(call)
        read = read_envelope(call)
        name, arguments = read.name, read.arguments
        if not fits(arguments, DEFAULT_LIMITS.depth):  # calls in the model's text have the same depth limit
            arguments, raw = {}, "{}"
    except Rejected:
        holders = [call, inner] if isinstance(inner := call.get("function"), OBJECT) else [call]
        names = [text for holder in holders for key in NAME_FIELDS if (text := string_at(holder, key))]
        found = [holder[key] for holder in holders for key in ARGUMENT_FIELDS if holder.get(key) is not None]
        name, arguments = next(iter(names), ""), {}
        raw = next((value for value in found if isinstance(value, str) and value), "{}")
        raw = "" if raw == "null" and name else raw  # Groq's Llama writes "null" for tools without parameters
    return ToolCall(
        id=text_or_none(id) or new_id,
        name=name,
        arguments=arguments,
        dialect=NATIVE,
        raw=raw,
        provider_id=text_or_none(id) or None,
        signature=text_or_none(signature),
        own={extra.format: extra.data} if extra else None,
    )


def text_or_none(value: object) -> str | None:
    """Return `value` if it is a string, else None. Used for signatures and ids."""
    return value if isinstance(value, str) else None

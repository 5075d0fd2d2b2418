"""What the formats share: the history that is being read, the parts of a user's message, and what all write alike.

Inside a history, parts are as OpenAI's chat writes them. What is neither text nor image is a provider's own: it goes to
it as it is, and it is for the caller to know whether this provider takes it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from streamtools.calls import NATIVE, ToolCall, read_envelope
from streamtools.history.messages import Assistant, CallResult, Message, Results, System, Thought, User, fit
from streamtools.json_values import compact, fits, writable
from streamtools.limits import DEFAULT_LIMITS

Content: TypeAlias = str | list[dict[str, Any]]

_TWICE = "two calls of one turn have the same id"
_DATA = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


class Reader:
    """The history so far, and the native calls of its last turn that have no answer.

    A turn of items, and results, come in as many messages as a client likes. They are collected, and made one message
    when another begins, so that each costs no more than it is long.
    """

    def __init__(self) -> None:
        self.place = 0  # which message is being read
        self.items: Draft | None = (
            None  # the last turn of the assistant's, if the next item of Responses goes on with it
        )
        self._history: list[Message] = []
        self._results: list[CallResult] = []  # those of the last message
        self._open: dict[str, str] = {}  # calls without an answer, by id with their names
        self._waiting: dict[
            str | None, deque[str]
        ] = {}  # their ids, by the name of the tool and for any; once asked for

    def close(self) -> list[Message]:
        """Return the whole history."""
        if self.items is not None:
            text = "\n".join(filter(None, self.items.texts))
            self._history.append(
                Assistant(text, tuple(self.items.calls), tuple(self.items.thoughts), self.items.in_text)
            )
            self.items = None
        if self._results:
            self._history.append(Results(tuple(self._results)))
            self._results.clear()
        return self._history

    def hear(self, message: System | User) -> None:
        self.close().append(message)

    def say(self, said: Assistant) -> None:
        self.close().append(said)
        self._ask(said.calls)

    def go_on(self, *, anew: bool = False) -> Draft:
        """Return the turn that an item is a piece of: the last one, if that is the assistant's, or a new one.

        With `anew`, only a turn of items goes on.
        """
        if self.items is None:
            history = self.close()
            last = history[-1] if history and not anew else None
            self.items = Draft(self.place)
            if isinstance(last, Assistant):
                history.pop()
                self.items = Draft(self.place, [last.text], list(last.calls), list(last.thoughts), last.in_text)
            else:
                self._ask(())
        return self.items

    def call(self, said: Draft, call: ToolCall) -> None:
        """Add a call to a turn of items, none of which has an answer."""
        if call.id in self._open:
            raise ValueError(_TWICE)
        said.calls.append(call)
        self._open[call.id] = call.name
        self._waiting.clear()

    def answer(self, id: object, content: object, *, is_error: bool = False) -> None:
        """Add the result of a native call. Raises ValueError where the last turn has no such call that is open."""
        if not isinstance(id, str) or id not in self._open:
            raise ValueError(f"it answers call {id!r}, which does not stand without an answer in the turn before it")
        text = text_of("" if content is None else content)
        self.add(CallResult(NATIVE, self._open[id], text, id, is_error=is_error))

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
    texts: list[str] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    thoughts: list[Thought] = field(default_factory=list)
    in_text: tuple[ToolCall, ...] = ()

    def add_call(self, call: object, id: object) -> None:
        """Add a call; its id is made if it has none."""
        self.calls.append(read_call(call, id, f"call_{self.place}_{len(self.calls)}"))

    def add_thought(self, text: str, signature: object = None, *, redacted: bool = False) -> None:
        self.thoughts.append(Thought(text, text_or_none(signature), redacted=redacted, behind=len(self.calls)))


def read_call(call: object, id: object, made: str) -> ToolCall:
    """Return a call as the history holds it; its id is `made` if it has none."""
    read = read_envelope(call)
    if not fits(read.arguments, DEFAULT_LIMITS.depth):  # as they would be in a text
        raise ValueError(f"arguments nested deeper than {DEFAULT_LIMITS.depth}")
    extra = call.get("extra_content") if isinstance(call, Mapping) else None
    google = extra.get("google") if isinstance(extra, Mapping) else None
    signature = google.get("thought_signature") if isinstance(google, Mapping) else None
    return ToolCall(
        id=text_or_none(id) or made,
        name=read.name,
        arguments=read.arguments,
        dialect=NATIVE,
        provider_id=text_or_none(id) or None,
        signature=text_or_none(signature),
    )


def text_or_none(value: object) -> str | None:
    """Return a signature or an id; what is no text is none, as if it were not there."""
    return value if isinstance(value, str) else None


def list_of(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"a text or a list was expected, not {type(value).__name__}")
    return list(value)


def text_of(content: object) -> str:
    """Return a content that consists of text."""
    if isinstance(content, str):
        return content
    parts = []
    for part in list_of(content):
        is_text = isinstance(part, Mapping) and part.get("type") in ("output_text", "summary_text")  # of Responses
        parts.append(read_part({**part, "type": "text"} if is_text else part))
    for part in parts:
        if part.get("type") != "text":
            raise ValueError(f"a part of type {part.get('type')!r} stands where only text can")
    return "".join(part["text"] for part in parts)


def read_part(part: object) -> dict[str, Any]:
    """Return a part of a user's message, in any provider's spelling, as it is in a history.

    Raises ValueError for what is no part, or an image that is not there.
    """
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, Mapping):
        raise ValueError(f"a part of a message is a text or an object, not {type(part).__name__}")
    match part.get("type"):
        case "text" | "input_text":
            if not isinstance(part.get("text"), str):
                raise ValueError("a part of type 'text' holds no text")
            return {**part, "type": "text"}
        case "image_url" | "input_image":
            given = part.get("image_url")
            image = {"url": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
            if not isinstance(image.get("url"), str):
                raise ValueError("an image has no address")
            return {"type": "image_url", "image_url": image}
        case "image":
            match part.get("source"):  # of Anthropic's
                case {"type": "base64", "media_type": str() as kind, "data": str() as data}:
                    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}
                case {"type": "url", "url": str() as url}:
                    return {"type": "image_url", "image_url": {"url": url}}
            raise ValueError("an image has no source that can be read")
    return dict(part)


def write_parts(
    content: Content, text: Callable[[dict[str, Any]], Any], image: Callable[[dict[str, Any]], Any]
) -> list[dict[str, Any]]:
    """Return a user's content with each text and each image as these two write it; what they make None is left out."""
    written = []
    for part in map(read_part, [content] if isinstance(content, str) else content):
        kind = part.get("type")
        written.append(text(part) if kind == "text" else image(part["image_url"]) if kind == "image_url" else part)
    return [part for part in written if part is not None]


def data_of(url: str) -> tuple[str, str] | None:
    """Return the media type and the data that an address holds in Base64, None for one that leads elsewhere."""
    found = _DATA.fullmatch(url)
    return (found[1], found[2]) if found else None


def in_order(message: Assistant) -> list[Thought | str | ToolCall]:
    """Return what a turn said, one thing after the other; what it thought last and did nothing about is left out.

    A provider that reads its own reasoning again wants it before what it led to.
    """
    behind: dict[int, list[Thought]] = {}
    for each in message.thoughts:
        behind.setdefault(each.behind, []).append(each)
    said: list[Thought | str | ToolCall] = [*behind.get(0, ())]
    if message.text:
        said.append(message.text)
    for number, call in enumerate(message.calls, 1):
        said += (call, *behind.get(number, ()))
    while said and isinstance(said[-1], Thought):
        said.pop()
    return said


def arguments_text(call: ToolCall) -> str:
    return compact(writable(call.arguments))


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

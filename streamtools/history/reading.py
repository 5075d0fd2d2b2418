"""Messages that a caller has, from wherever, into one history.

Taken are OpenAI's chat messages, Anthropic's blocks, the items of Responses, Ollama's messages, and messages of a
history; a list may mix them. Gemini's contents are written and not read. A history that a provider would refuse is a
mistake of the caller's, which is named here and not by the provider in the middle of a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from streamtools.calls import NATIVE, ToolCall, read_envelope
from streamtools.history.messages import Assistant, CallResult, Message, Results, System, Thought, User
from streamtools.history.parts import read_part
from streamtools.json_values import fits
from streamtools.limits import DEFAULT_LIMITS


def read_messages(messages: Iterable[Mapping[str, Any] | Message]) -> list[Message]:
    """Return the history that `messages` are.

    Raises ValueError for what is no message, and for a result whose call does not stand in the turn before it; it says
    which message that is, counted from 0.
    """
    reader = _Reader()
    for place, message in enumerate(messages):
        try:
            reader.add(message, place)
        except ValueError as error:
            raise ValueError(f"message {place}: {error}") from None
    return reader.history


class _Reader:
    """The history so far, and the native calls of its last turn that have no answer."""

    def __init__(self) -> None:
        self.history: list[Message] = []
        self._open: dict[str, str] = {}  # the id and the name of each
        self._in_items = False  # the last turn of the assistant's goes on with the next item of Responses

    def add(self, message: Mapping[str, Any] | Message, place: int) -> None:
        if isinstance(message, System | User):
            self._hear(message)
        elif isinstance(message, Assistant):
            self._say(message)
        elif isinstance(message, Results):
            for result in message.results:
                self._append(result)
        elif not isinstance(message, Mapping):
            raise ValueError(f"a message is an object, not {type(message).__name__}")
        elif "parts" in message and "content" not in message:
            raise ValueError(
                "messages with `parts` (Gemini's, the AI SDK's) are not read: give their texts as `content`"
            )
        elif "role" in message:
            self._add_said(message, place)
        else:
            self._add_item(message, place)

    def _add_said(self, message: Mapping[str, Any], place: int) -> None:
        content = message.get("content")
        match message["role"]:
            case "system" | "developer":
                self._hear(System(_text(content)))
            case "user":
                self._add_user(content)
            case "assistant":
                self._add_assistant(message, place)
            case "tool":
                self._add_result(message)
            case role:
                raise ValueError(f"the role {role!r} is none of system, developer, user, assistant and tool")

    def _add_user(self, content: object) -> None:
        if isinstance(content, str):
            self._hear(User(content))
            return
        parts: list[dict[str, Any]] = []
        for part in _list(content):
            if isinstance(part, Mapping) and part.get("type") == "tool_result":
                self._answer_to(part.get("tool_use_id"), part.get("content"), is_error=part.get("is_error") is True)
            else:
                parts.append(read_part(part))
        if parts:
            self._hear(User(parts))

    def _add_assistant(self, message: Mapping[str, Any], place: int) -> None:
        content, texts = message.get("content"), []
        calls: list[ToolCall] = []
        thoughts: list[Thought] = []
        for part in [content] if isinstance(content, str) else _list(content or []):
            match part:
                case str() as text:
                    texts.append(text)
                case {"type": "text" | "output_text", "text": str() as text} | {
                    "type": "refusal",
                    "refusal": str() as text,
                }:
                    texts.append(text)
                case {"type": "thinking", "thinking": str() as text}:
                    thoughts.append(Thought(text, _said(part.get("signature")), behind=len(calls)))
                case {"type": "redacted_thinking", "data": str() as data}:
                    thoughts.append(Thought("", data, redacted=True, behind=len(calls)))
                case {"type": "tool_use"}:
                    calls.append(_read_call(part, part.get("id"), f"call_{place}_{len(calls)}"))
                case _:
                    kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
                    raise ValueError(f"a part of type {kind!r} of the assistant's cannot be read")
        if isinstance(thinking := message.get("thinking"), str) and thinking:
            thoughts.append(Thought(thinking))
        for call in _list(message.get("tool_calls") or []):
            id = call.get("id") if isinstance(call, Mapping) else None
            calls.append(_read_call(call, id, f"call_{place}_{len(calls)}"))
        if not texts and isinstance(refusal := message.get("refusal"), str):
            texts.append(refusal)
        said = Assistant("".join(texts), tuple(calls), tuple(thoughts))
        if self._in_items and not calls and isinstance(last := self.history[-1], Assistant):
            self.history[-1] = replace(last, text="\n".join(filter(None, (last.text, said.text))))
        else:
            self._say(said)

    def _add_item(self, item: Mapping[str, Any], place: int) -> None:
        """Add an item of Responses that is no message: a piece of a turn, or a result."""
        kind = item.get("type")
        if kind == "function_call_output":
            self._answer_to(item.get("call_id"), item.get("output"))
            return
        last = self.history[-1] if self.history else None
        said = last if isinstance(last, Assistant) else Assistant()
        if kind == "reasoning":
            if last is said and not self._in_items:
                said = Assistant()
            text = "\n\n".join(_text([part]) for part in _list(item.get("summary") or []))
            thought = Thought(text, _said(item.get("encrypted_content")), _said(item.get("id")), behind=len(said.calls))
            grown = replace(said, thoughts=(*said.thoughts, thought))
        elif kind == "function_call":
            call = _read_call({**item, "id": None}, item.get("call_id"), f"call_{place}_0")
            grown = replace(said, calls=(*said.calls, call))
        else:
            raise ValueError(f"it has no role, and an item of type {kind!r} cannot be read")
        if said is last:
            self.history.pop()
        self._say(grown)
        self._in_items = True

    def _hear(self, message: System | User) -> None:
        """Add what the model is told by somebody, and not by a tool."""
        self._in_items = False
        self.history.append(message)

    def _say(self, said: Assistant) -> None:
        self._in_items = False
        self._open = {call.id: call.name for call in said.calls}
        if len(self._open) < len(said.calls):
            raise ValueError("two calls of one turn have the same id")
        self.history.append(said)

    def _add_result(self, message: Mapping[str, Any]) -> None:
        """Add the result of a call, which is named by its id, or else by its tool, as older servers do."""
        id = message.get("tool_call_id")
        if not id:
            name = message.get("tool_name") or message.get("name")
            id = next((each for each, called in self._open.items() if name in (None, called)), None)
        self._answer_to(id, message.get("content"))

    def _answer_to(self, id: object, content: object, *, is_error: bool = False) -> None:
        if not isinstance(id, str) or id not in self._open:
            raise ValueError(f"it answers call {id!r}, which does not stand without an answer in the turn before it")
        text = _text("" if content is None else content)
        self._append(CallResult(NATIVE, self._open[id], text, id, is_error=is_error))

    def _append(self, result: CallResult) -> None:
        if result.dialect == NATIVE and self._open.pop(result.call_id, None) is None:
            raise ValueError(f"it answers call {result.call_id!r}, which does not stand in the turn before it")
        self._in_items = False
        last = self.history[-1] if self.history else None
        if isinstance(last, Results):
            self.history[-1] = Results((*last.results, result))
        else:
            self.history.append(Results((result,)))


def _read_call(call: object, id: object, made: str) -> ToolCall:
    """Return a call as the history holds it; its id is `made` if it has none."""
    read = read_envelope(call)
    if not fits(read.arguments, DEFAULT_LIMITS.depth):  # as they would be in a text
        raise ValueError(f"arguments nested deeper than {DEFAULT_LIMITS.depth}")
    extra = call.get("extra_content") if isinstance(call, Mapping) else None
    google = extra.get("google") if isinstance(extra, Mapping) else None
    signature = google.get("thought_signature") if isinstance(google, Mapping) else None
    return ToolCall(
        id=_said(id) or made,
        name=read.name,
        arguments=read.arguments,
        dialect=NATIVE,
        provider_id=_said(id) or None,
        signature=_said(signature),
    )


def _said(value: object) -> str | None:
    """Return a signature or an id; what is no text is none, as if it were not there."""
    return value if isinstance(value, str) else None


def _list(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"a text or a list was expected, not {type(value).__name__}")
    return list(value)


def _text(content: object) -> str:
    """Return a content that consists of text."""
    if isinstance(content, str):
        return content
    parts = [read_part({**part, "type": "text"} if _is_text(part) else part) for part in _list(content)]
    for part in parts:
        if part.get("type") != "text":
            raise ValueError(f"a part of type {part.get('type')!r} stands where only text can")
    return "".join(part["text"] for part in parts)


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") in ("output_text", "summary_text")

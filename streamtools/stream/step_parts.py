"""The parts of one turn, collected from the events of a step: text, reasoning, native calls, provider items.

A part ends where another one starts. Reasoning also ends with its signature.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.events import Raw, Reasoning
from streamtools.history import ProviderItem, TextPart, Thought
from streamtools.history.parts import Part
from streamtools.parsing.dialects import Dialect


@dataclass(slots=True)
class TextPieces:
    """A text that grows by small pieces. `pack` joins the recent ones, which takes a fraction of their memory."""

    _blocks: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._blocks or self.recent)

    def pack(self) -> None:
        self._blocks.append("".join(self.recent))
        self.recent.clear()

    def join(self) -> str:
        """Return the whole text."""
        self._blocks = ["".join(self._blocks + self.recent)]
        self.recent.clear()
        return self._blocks[0]

    def cut(self, length: int) -> None:
        """Keep the first `length` characters."""
        self._blocks = [self.join()[:length]]


class StepParts:
    """Collects the parts of one step. `written` is the text since the last part, with the calls in it."""

    def __init__(self) -> None:
        self.written = TextPieces()
        self._parts: list[Part] = []
        self._reasoning: list[str] = []  # of the open block
        self._reasoning_fields: dict[str, dict[str, Any]] = {}  # the provider's fields for reasoning, by format
        self._dropped: dict[str, ToolCall] = {}
        self._has_gaps = False  # text was left out, so its neighbors are joined

    def write(self, text: str | None) -> None:
        """Add text. None stands for text that is left out."""
        if self._reasoning:
            self._end_reasoning()
        self._has_gaps = self._has_gaps or text is None
        if text:
            self.written.recent.append(text)

    def think(self, event: Reasoning) -> None:
        """Add reasoning. A signature ends its block."""
        ends = event.signature or (event.id and not event.text)
        if event.text or ends:
            self._end_text()
        if event.text:
            self._reasoning.append(event.text)
        for format, data in (event.own or {}).items():
            self._reasoning_fields.setdefault(format, {}).update(data)
        if ends:
            self._end_reasoning(event.signature, event.id, event.redacted)

    def call(self, call: ToolCall) -> None:
        """Add a native call."""
        self._end_text()
        self._end_reasoning()
        self._parts.append(call)

    def drop(self, call: ToolCall) -> None:
        """Remove a call that does not count."""
        self._dropped[call.id] = call

    def keep_text_only(self) -> None:
        """Remove everything but the text: another model continues the step, and no call of it counts."""
        self._end_text()
        self.written.recent += [part.text for part in self._parts if isinstance(part, TextPart)]
        self._parts.clear()
        self._reasoning.clear()
        self._reasoning_fields.clear()

    def take(self, event: Raw) -> None:
        """Add a provider item."""
        format, data = event.format or "", event.data if event.item is None else event.item
        own = ProviderItem(format, data) if isinstance(data, dict) else None
        self._end_reasoning()
        if event.about == "text":
            self._end_text(own)
        elif own is not None:
            self._end_text()
            self._parts.append(own)

    def close(self, calls: Iterable[ToolCall], dialects: tuple[Dialect, ...]) -> list[Part]:
        """Return the parts. `calls` are the calls in the text.

        White space that a provider sends after a call belongs to the text before the call. If text was left out, the
        remaining text is quoted, so that the model does not read it as structure.
        """
        self._end_text()
        self._end_reasoning()
        self._keep_reasoning_fields()
        parts: list[Part] = []
        last: int | None = None  # index of the last text
        for part in self._parts:
            if isinstance(part, ToolCall) and part.id in self._dropped:
                continue
            if isinstance(part, TextPart) and last is not None and not part.own and not part.text.strip():
                before = parts[last]
                assert isinstance(before, TextPart)
                parts[last] = before._replace(text=before.text + part.text)
                continue
            last = len(parts) if isinstance(part, TextPart) and not part.own else last
            parts.append(part)
        for call in self._dropped.values():
            if call.dialect != NATIVE and call.raw:
                _cut(parts, call.raw)
        if self._has_gaps:
            from streamtools.history.calls_in_text import neutralise_between

            parts = neutralise_between(parts, calls, dialects)
        return parts

    def _end_text(self, own: ProviderItem | None = None) -> None:
        if own is None and not self.written:
            return
        text = self.written.join()
        self.written = TextPieces()
        own = own if own is not None and own.data else None
        if text or own:
            self._parts.append(TextPart(text, own))

    def _end_reasoning(self, signature: str | None = None, id: str | None = None, redacted: bool = False) -> None:
        text = "".join(self._reasoning)
        self._reasoning.clear()
        if text or signature or id:
            self._parts.append(Thought(text, signature, id, redacted))

    def _keep_reasoning_fields(self) -> None:
        """Keep the provider's fields for reasoning with the first block of reasoning."""
        text = "".join(part.text for part in self._parts if isinstance(part, Thought))
        for format, fields in self._reasoning_fields.items():
            own = ProviderItem(format, {name: text if value is None else value for name, value in fields.items()})
            at = next((at for at, part in enumerate(self._parts) if isinstance(part, Thought)), None)
            if at is None:
                self._parts.insert(0, Thought("", own=own))
            elif isinstance(first := self._parts[at], Thought):
                self._parts[at] = first._replace(own=own)


def _cut(parts: list[Part], raw: str) -> None:
    """Remove a call that does not count from the text, and the text if only white space is left."""
    for at, part in enumerate(parts):
        if isinstance(part, TextPart) and raw in part.text:
            left = part.text.replace(raw, "", 1)
            parts[at : at + 1] = [part._replace(text=left)] if left.strip() or part.own else []
            return

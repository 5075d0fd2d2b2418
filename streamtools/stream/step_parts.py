"""What the model said in the step that is open, put together from its events: the parts of a turn, in order.

A part ends where another begins: text where reasoning, a native call or something of the provider's own follows, and
reasoning with its signature, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamtools.calls import NATIVE, ToolCall
from streamtools.events import Raw, Reasoning
from streamtools.history import ProviderItem, TextPart, Thought
from streamtools.history.parts import Part
from streamtools.parsing.dialects import Dialect


class Pieces:
    """A text that grows by small pieces. Packed, many of them become one, which takes a fraction of the room."""

    __slots__ = ("_blocks", "recent")

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self.recent: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._blocks or self.recent)

    def pack(self) -> None:
        self._blocks.append("".join(self.recent))
        self.recent.clear()

    def join(self) -> str:
        """Return all of it."""
        self._blocks = ["".join(self._blocks + self.recent)]
        self.recent.clear()
        return self._blocks[0]

    def cut(self, length: int) -> None:
        """Keep so many characters, the first."""
        self._blocks = [self.join()[:length]]


class StepParts:
    """Gathers the parts of one step; `written` is the text since the last of them, calls in it included."""

    def __init__(self) -> None:
        self.written = Pieces()
        self._parts: list[Part] = []
        self._block: list[str] = []  # the reasoning that nothing has ended
        self._fields: dict[str, dict[str, Any]] = {}  # in which the reasoning came, by format
        self._dropped: dict[str, ToolCall] = {}
        self._is_joined = False  # what stood apart in the text, because something was taken out

    def write(self, text: str | None) -> None:
        """Add text; None stands for some that is left out."""
        if self._block:
            self._end_block()
        self._is_joined = self._is_joined or text is None
        if text:
            self.written.recent.append(text)

    def think(self, event: Reasoning) -> None:
        """Add reasoning, which its signature ends."""
        ends = event.signature or (event.id and not event.text)
        if event.text or ends:
            self._end_text()
        if event.text:
            self._block.append(event.text)
        for format, data in (event.own or {}).items():
            self._fields.setdefault(format, {}).update(data)
        if ends:
            self._end_block(event.signature, event.id, event.redacted)

    def call(self, call: ToolCall) -> None:
        """Add a native call."""
        self._end_text()
        self._end_block()
        self._parts.append(call)

    def drop(self, call: ToolCall) -> None:
        """Take back a call that does not count."""
        self._dropped[call.id] = call

    def forget_own(self) -> None:
        """Keep nothing but the text, for the step goes on with another model; of its calls none counts."""
        self._end_text()
        self.written.recent += [part.text for part in self._parts if isinstance(part, TextPart)]
        self._parts.clear()
        self._block.clear()
        self._fields.clear()

    def take(self, event: Raw) -> None:
        """Add what is of the provider's own."""
        format, data = event.format or "", event.data if event.item is None else event.item
        own = ProviderItem(format, data) if isinstance(data, dict) else None
        self._end_block()
        if event.about == "text":
            self._end_text(own)
        elif own is not None:
            self._end_text()
            self._parts.append(own)

    def close(self, calls: Iterable[ToolCall], dialects: tuple[Dialect, ...]) -> list[Part]:
        """Return the parts; `calls` are those in the text. White space that a provider sends behind a call belongs to
        the text before it. Where text was left out, what is left is not structure for the model that reads it.
        """
        self._end_text()
        self._end_block()
        self._mark_reasoning()
        parts: list[Part] = []
        last: int | None = None  # the place of the last text
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
        if self._is_joined:
            from streamtools.history import plain_between  # here, because few runs leave text out

            parts = plain_between(parts, calls, dialects)
        return parts

    def _end_text(self, own: ProviderItem | None = None) -> None:
        if own is None and not self.written:
            return
        text = self.written.join()
        self.written = Pieces()
        own = own if own is not None and own.data else None
        if text or own:
            self._parts.append(TextPart(text, own))

    def _end_block(self, signature: str | None = None, id: str | None = None, redacted: bool = False) -> None:
        text = "".join(self._block)
        self._block.clear()
        if text or signature or id:
            self._parts.append(Thought(text, signature, id, redacted))

    def _mark_reasoning(self) -> None:
        """Keep the fields in which the reasoning of the step came with the first block of it."""
        text = "".join(each.text for each in self._parts if isinstance(each, Thought))
        for format, fields in self._fields.items():
            own = ProviderItem(format, {name: text if value is None else value for name, value in fields.items()})
            at = next((at for at, each in enumerate(self._parts) if isinstance(each, Thought)), None)
            if at is None:
                self._parts.insert(0, Thought("", own=own))
            elif isinstance(first := self._parts[at], Thought):
                self._parts[at] = first._replace(own=own)


def _cut(parts: list[Part], raw: str) -> None:
    """Take a call that does not count out of the text, and the text with it if only white space stood around it."""
    for at, part in enumerate(parts):
        if isinstance(part, TextPart) and raw in part.text:
            left = part.text.replace(raw, "", 1)
            parts[at : at + 1] = [part._replace(text=left)] if left.strip() or part.own else []
            return

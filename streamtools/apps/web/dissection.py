"""The data of the debugger: one recorded answer, step by step.

The bytes go through the same adapter and machine as any stream. A step is one piece of the bytes. Positions are counted
in UTF-16 code units, the characters of JavaScript. By the law of conservation, every character of the model's text
belongs to one event. So the marks are derived from the events. Only near misses are searched for, because they stay
in the visible text.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from streamtools import events
from streamtools.errors import Code
from streamtools.events import SourceEvent, UIEvent
from streamtools.machine.state_machine import StreamMachine
from streamtools.recording import ExchangeHead
from streamtools.recording.event_replay import adapter_of
from streamtools.recording.exchanges import DETECT
from streamtools.recording.playback import Cut, recut
from streamtools.recording.reader import OpenRecording

Kind: TypeAlias = Literal["call", "error", "warning", "markup", "reasoning", "near", "native"]

MAX_STEPS = 50_000
"""The page cannot draw more steps."""

_NEAR_MISS_WINDOW = 4096  # characters of visible text in which a near miss is searched for


class TooManySteps(ValueError):
    """The cut makes more than `MAX_STEPS` steps."""


class Mark(NamedTuple):
    """A range of the model's text that is not plain visible text. `label` is the dialect or the warning code."""

    begin: int
    end: int
    kind: Kind
    label: str


class DebuggerStep(NamedTuple):
    """The state after one piece: time in milliseconds, lengths of body and text, number of events, buffered text."""

    at: float
    body: int
    written: int
    events: int
    buffered: int


class Dissection(msgspec.Struct, frozen=True):
    """One answer: the response body, the text that the model wrote, the events, and the steps."""

    title: str
    question: str
    format: str
    """The wire format of the provider."""
    dialects: list[str]
    """The dialects of the calls."""
    end: str
    body: str
    written: str
    marks: list[Mark]
    events: list[str]
    steps: list[DebuggerStep]


def dissect(recording: OpenRecording, cut: Cut = "recorded") -> Dissection:
    """Return the steps of a recording. Raises RecordingError for an invalid recording, and TooManySteps."""
    head = recording.head
    adapter = adapter_of(recording)
    machine = StreamMachine(execute="never", keep_markup=True, call_deltas=True)
    body, written = _JSText(), _ModelText()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    events_json: list[str] = []
    steps: list[DebuggerStep] = []

    def add_events(ui_events: Iterable[UIEvent], *, about_text: bool) -> None:
        for event in ui_events:
            if about_text:
                written.mark_event(event)
            if not isinstance(event, events.Markup):
                events_json.append(event.to_json())

    def feed(source_events: Iterable[SourceEvent]) -> None:
        for event in source_events:
            written.add(event)
            about_text = isinstance(event, events.TextDelta | events.ProviderCompleted)
            add_events(machine.feed(event), about_text=about_text)

    add_events(machine.start(), about_text=False)
    at = 0.0
    for at, data in recut(recording, cut):
        if len(steps) >= MAX_STEPS:
            raise TooManySteps(f"this cut makes more than {MAX_STEPS} steps: choose a coarser cut")
        body.add(decode(data))
        feed(adapter.take(data))
        steps.append(DebuggerStep(at, body.length, written.content.length, len(events_json), machine.buffered))
    body.add(decode(b"", final=True))
    end = recording.end.kind if recording.end is not None else ""
    feed(adapter.close() if end in ("", "end") else adapter.close(end))
    add_events(machine.close(), about_text=True)
    steps.append(DebuggerStep(at, body.length, written.content.length, len(events_json), 0))
    return Dissection(
        title=head.title,
        question=question_of(head),
        format=head.source if head.source != DETECT else adapter.format or "",
        dialects=sorted({mark.label for mark in written.marks if mark.kind in ("call", "error") and mark.label}),
        end=end,
        body=body.text,
        written=written.content.text,
        marks=written.marks,
        events=events_json,
        steps=steps,
    )


def question_of(head: ExchangeHead) -> str:
    """Return the last message of the request if it is a string in `messages`, as in most wire formats, else ""."""
    body = head.request.body if head.request is not None else None
    messages = body.get("messages") if isinstance(body, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else ""


class _JSText:
    """A growing text, and its length in JavaScript."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.length += js_length(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


def js_length(text: str) -> int:
    """Return the length of `text` in JavaScript, which counts UTF-16 code units."""
    return len(text) + sum(map("\uffff".__lt__, text)) if not text.isascii() else len(text)


class _ModelText:
    """The text that the model wrote, in order, with marks for the parts that became something else."""

    def __init__(self) -> None:
        self.content = _JSText()
        self.marks: list[Mark] = []
        self._pending: deque[tuple[int, str]] = deque()  # deltas that no event has covered: position of the rest, text
        self._covered = 0  # characters of the first pending delta that events have covered
        self._visible: list[str] = []  # the last visible text
        self._visible_end = 0  # the position after it
        self._streamed: set[str] = set()  # native calls whose arguments arrived in deltas

    def add(self, event: SourceEvent) -> None:
        match event:
            case events.TextDelta(text):
                self._pending.append((self.content.length, text))
                self.content.add(text)
            case events.ReasoningDelta(text):
                self._add_marked(text, "reasoning", "")
            case events.ToolCallDelta(key, text):
                self._streamed.add(key)
                self._add_marked(text, "native", "native")
            case events.NativeToolCall(key, name, arguments) if key not in self._streamed:
                shown = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                self._add_marked(f"{name or ''}{shown}", "native", "native")

    def mark_event(self, event: UIEvent) -> None:
        """Mark the part of the text that the event covers."""
        match event:
            case events.Text(text):
                self._cover(len(text))
                self._visible.append(text)
            case events.Reasoning(text):
                self._cover(len(text), "reasoning")
            case events.Markup(text):
                self._cover(len(text), "markup")
            case events.Call(call) if not call.is_native:
                self._cover(len(call.raw), "call", call.dialect)
            case events.Error(raw=str(raw), call=None) if event.dialect != "native":
                self._cover(len(raw), "error", event.dialect or "")
            case events.Warning(Code.NEAR_MISS, raw=str(raw)):
                visible = "".join(self._visible)[-_NEAR_MISS_WINDOW:]
                self._visible = [visible]
                if (index := visible.rfind(raw)) >= 0:
                    end = self._visible_end - js_length(visible[index + len(raw) :])
                    self.marks.append(Mark(end - js_length(raw), end, "near", event.dialect or ""))
            case events.Warning(Code.FORGED_RESULT | Code.HIDDEN_AFTER_CALL, raw=str(raw)):
                self._cover(len(raw), "warning", event.code)
            case events.Warning(Code.SKIPPED, raw=None, count=int(count)):
                self._cover(count, "error")

    def _add_marked(self, text: str, kind: Kind, label: str) -> None:
        begin = self.content.length
        self.content.add(text)
        self._mark(begin, self.content.length, kind, label)

    def _cover(self, count: int, kind: Kind | None = None, label: str = "") -> None:
        """Mark the next `count` characters of text. Reasoning and native calls may stand between them."""
        begin = end = -1
        while count and self._pending:
            position, delta = self._pending[0]
            text = delta[self._covered : self._covered + count]
            if position != end:
                self._mark(begin, end, kind, label)
                begin = position
            count -= len(text)
            end = position + js_length(text)
            self._covered += len(text)
            self._pending[0] = end, delta
            if self._covered == len(delta):
                self._pending.popleft()
                self._covered = 0
        if end >= 0:
            self._visible_end = end
        self._mark(begin, end, kind, label)

    def _mark(self, begin: int, end: int, kind: Kind | None, label: str) -> None:
        if kind is None or begin >= end:
            return
        last = self.marks[-1] if self.marks else None
        if last is not None and last.end == begin and last[2:] == (kind, label) and kind in ("reasoning", "native"):
            self.marks[-1] = last._replace(end=end)
        else:
            self.marks.append(Mark(begin, end, kind, label))

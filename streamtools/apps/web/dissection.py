"""Creates the data for the debugger, which shows one recorded answer step by step.

The recorded bytes are read as in any stream, with the adapter of the wire format and the state machine that finds
calls. Each step processes one chunk, and the last step the end of the response. Positions are counted in UTF-16 code
units, as JavaScript counts the characters of strings.

A mark is a range of the model's text, such as a call. Each character of the text is in exactly one event (the law of
conservation in `streamtools.testing`). So the marks are computed from the events. A near miss is text that looks like a
call but is not. It is a part of the visible text, and its position is found by a search.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from streamtools import events
from streamtools.errors import Code, RecordingError
from streamtools.events import SourceEvent, UIEvent
from streamtools.machine.state_machine import StreamMachine
from streamtools.recording import ExchangeHead
from streamtools.recording.event_replay import adapter_of
from streamtools.recording.files import DETECT, OpenExchange
from streamtools.recording.playback import Cut, recut

Kind: TypeAlias = Literal["call", "error", "warning", "markup", "reasoning", "near", "native"]
"""The kinds of marks. `error` is a malformed or skipped call. `warning` is an invented tool result, or text that is
hidden after a call. `near` is a near miss, and `native` a native call."""

MAX_STEPS = 50_000
"""The maximum number of chunks that the page can show. The end of the response is one more step."""

_NEAR_MISS_WINDOW = 4096  # a near miss is searched for only in this many of the last visible characters


class Mark(NamedTuple):
    """A range of the model's text that is not plain visible text.

    `label` is the dialect of a call, a malformed call or a near miss. For a native call, it is `"native"`. For a
    warning, it is the code. Otherwise it is empty.
    """

    begin: int
    end: int
    kind: Kind
    label: str


class DebuggerStep(NamedTuple):
    """The state after one chunk, or after the end of the response.

    `at` is the time in milliseconds since the request was sent. `body` and `written` are the lengths of the
    response body and of the model's text up to this chunk. `events` is the number of events up to this chunk.
    `buffered` is the number of characters that the machine buffers.
    """

    at: float
    body: int
    written: int
    events: int
    buffered: int


class Dissection(msgspec.Struct, frozen=True):
    """The data of one answer.

    `body` is the response body, and `written` the text that the model wrote. `end` says how the recorded response
    ended, such as `reset`. It is empty if the recording does not contain the end. `events` holds the events as JSON.
    """

    title: str
    question: str
    format: str
    """The id of the provider's wire format."""
    dialects: list[str]
    """The ids of the dialects in which the model wrote calls, including malformed calls."""
    end: str
    body: str
    written: str
    marks: list[Mark]
    events: list[str]
    steps: list[DebuggerStep]


def dissect(recording: OpenExchange, cut: Cut = "recorded") -> Dissection:
    """Read a recording and return its steps. `cut` sets the chunk boundaries.

    Raises RecordingError for an invalid recording, and for more than `MAX_STEPS` chunks.
    """
    head = recording.head
    adapter = adapter_of(recording)
    machine = StreamMachine(execute="never", keep_markup=True, call_deltas=True)
    body, written = _JSText(), _ModelText()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    events_json: list[str] = []
    steps: list[DebuggerStep] = []

    def add_events(ui_events: Iterable[UIEvent], *, about_text: bool) -> None:
        # Reasoning and native calls are marked when their deltas are added, so only events about text are marked here.
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
            raise RecordingError(f"this cut makes more than {MAX_STEPS} steps: choose a coarser cut")
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
    """Return the text of the last message in the recorded request.

    Returns "" if the body has no `messages`, or if the content of the last message is not a string.
    """
    body = head.request.body if head.request is not None else None
    messages = body.get("messages") if isinstance(body, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else ""


class _JSText:
    """A growing text, and its length in UTF-16 code units."""

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
    """Return the length of `text` in UTF-16 code units. A character above U+FFFF has two of them."""
    return len(text) + sum(map("\uffff".__lt__, text)) if not text.isascii() else len(text)


class _ModelText:
    """The text that the model wrote, in order, with marks for the parts that are not plain visible text."""

    def __init__(self) -> None:
        self.content = _JSText()
        self.marks: list[Mark] = []
        # Deltas that events have not covered completely: the position of the uncovered rest, and the text of the delta.
        self._pending: deque[tuple[int, str]] = deque()
        self._covered = 0  # number of characters of the first pending delta that events have covered
        self._visible: list[str] = []  # the last visible text
        self._visible_end = 0  # the position after the last text that an event has covered
        self._streamed: set[str] = set()  # keys of the native calls whose arguments arrived in deltas

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
            case events.NativeToolCall(name, arguments, key) if key not in self._streamed:
                shown = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                self._add_marked(f"{name or ''}{shown}", "native", "native")

    def mark_event(self, event: UIEvent) -> None:
        """Mark the part of the text that the event contains."""
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
        """Mark the next `count` characters of text. Reasoning and native calls between them are skipped.

        With `kind=None`, the characters are plain visible text and get no mark.
        """
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

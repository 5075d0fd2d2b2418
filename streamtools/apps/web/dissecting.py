"""One recorded answer, step by step, as the debugger shows it: what came, what was made of it, and what is held back.

The bytes go through the same adapter and the same machine as any stream; a step is one piece of them. All places are
counted in UTF-16 code units, which are the characters of JavaScript. Every character of the model's text belongs to one
event (the law of conservation), so the marks are read off the events, and nothing is searched for in the text but near
misses, which stay in it.
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
from streamtools.recording import DETECT, Cut, Head, OpenRecording, recut
from streamtools.recording.event_replay import adapter_of

Kind: TypeAlias = Literal["call", "error", "warning", "markup", "reasoning", "near", "native"]

MOST_STEPS = 50_000
"""Finer cuts are refused: a page draws so many, and no more."""


class TooManySteps(ValueError):
    """The cut makes more than `MOST_STEPS`."""


class Mark(NamedTuple):
    """What a range of the model's text is, if it is not text for the reader, and of which dialect."""

    begin: int
    end: int
    kind: Kind
    label: str


class DebuggerStep(NamedTuple):
    """What there is behind one piece: its time in ms, and how much of the body, the text and the events; how much of
    the text is held back, because it may still become a marker.
    """

    at: float
    body: int
    written: int
    events: int
    held: int


class Dissection(msgspec.Struct, frozen=True):
    """An answer: the body of the response, what the model wrote in it, and what that became, with the steps."""

    title: str
    question: str
    format: str
    """Which provider's form was read."""
    dialects: list[str]
    """In which calls were written."""
    end: str
    body: str
    written: str
    marks: list[Mark]
    events: list[str]
    steps: list[DebuggerStep]


def dissect(recording: OpenRecording, cut: Cut = "recorded") -> Dissection:
    """Return a recording's steps; raise `RecordingError` for what is none, and `TooManySteps`."""
    head = recording.head
    adapter = adapter_of(recording)
    machine = StreamMachine(execute="never", keep_markup=True, call_deltas=True)
    body, written = _Units(), _Written()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    as_json: list[str] = []
    steps: list[DebuggerStep] = []

    def show(made: Iterable[UIEvent], *, of_text: bool) -> None:
        for event in made:
            if of_text:
                written.explain(event)
            if not isinstance(event, events.Markup):
                as_json.append(event.to_json())

    def take(came: Iterable[SourceEvent]) -> None:
        for event in came:
            written.add(event)
            show(machine.feed(event), of_text=isinstance(event, events.TextDelta | events.ProviderCompleted))

    show(machine.start(), of_text=False)
    at = 0.0
    for at, data in recut(recording, cut):
        if len(steps) >= MOST_STEPS:
            raise TooManySteps(f"that makes more than {MOST_STEPS} steps: choose a coarser cut")
        body.add(decode(data))
        take(adapter.take(data))
        steps.append(DebuggerStep(at, body.length, written.units.length, len(as_json), machine.held))
    body.add(decode(b"", final=True))
    end = recording.end.kind if recording.end is not None else ""
    take(adapter.close() if end in ("", "end") else adapter.close(end))
    show(machine.close(), of_text=True)
    steps.append(DebuggerStep(at, body.length, written.units.length, len(as_json), 0))
    return Dissection(
        title=head.title,
        question=question_of(head),
        format=head.source if head.source != DETECT else adapter.format or "",
        dialects=sorted({mark.label for mark in written.marks if mark.kind in ("call", "error") and mark.label}),
        end=end,
        body=body.text,
        written=written.units.text,
        marks=written.marks,
        events=as_json,
        steps=steps,
    )


def question_of(head: Head) -> str:
    """Return what was asked last, if the request says so in a form that many providers share; else ""."""
    body = head.request.body if head.request is not None else None
    messages = body.get("messages") if isinstance(body, dict) else None
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, dict) else None
    return content if isinstance(content, str) else ""


class _Units:
    """Text that grows, and its length."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self.length = 0

    def add(self, text: str) -> None:
        self._pieces.append(text)
        self.length += units(text)

    @property
    def text(self) -> str:
        return "".join(self._pieces)


def units(text: str) -> int:
    """Return how many characters JavaScript counts."""
    return len(text) + sum(map("\uffff".__lt__, text)) if not text.isascii() else len(text)


class _Written:
    """What the model wrote, in the order in which it came, and what was made of which part."""

    def __init__(self) -> None:
        self.units = _Units()
        self.marks: list[Mark] = []
        self._unexplained: deque[tuple[int, str]] = deque()  # text, with where what is left of it stands
        self._explained = 0  # characters of the first of them
        self._seen: list[str] = []  # the text that was shown last
        self._behind = 0  # where that ends
        self._streamed: set[str] = set()  # native calls whose arguments came in pieces

    def add(self, event: SourceEvent) -> None:
        match event:
            case events.TextDelta(text):
                self._unexplained.append((self.units.length, text))
                self.units.add(text)
            case events.ReasoningDelta(text):
                self._add_marked(text, "reasoning", "")
            case events.ToolCallDelta(key, text):
                self._streamed.add(key)
                self._add_marked(text, "native", "native")
            case events.NativeToolCall(key, name, arguments) if key not in self._streamed:
                shown = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
                self._add_marked(f"{name or ''}{shown}", "native", "native")

    def explain(self, event: UIEvent) -> None:
        match event:
            case events.Text(text):
                self._take(len(text))
                self._seen.append(text)
            case events.Reasoning(text):
                self._take(len(text), "reasoning")
            case events.Markup(text):
                self._take(len(text), "markup")
            case events.Call(call) if not call.is_native:
                self._take(len(call.raw), "call", call.dialect)
            case events.Error(raw=str(raw), call=None) if event.dialect != "native":
                self._take(len(raw), "error", event.dialect or "")
            case events.Warning(Code.NEAR_MISS, raw=str(raw)):
                near = "".join(self._seen)[-_LONGEST:]
                self._seen = [near]
                if (back := near.rfind(raw)) >= 0:
                    end = self._behind - units(near[back + len(raw) :])
                    self.marks.append(Mark(end - units(raw), end, "near", event.dialect or ""))
            case events.Warning(Code.FORGED_RESULT | Code.HIDDEN_AFTER_CALL, raw=str(raw)):
                self._take(len(raw), "warning", event.code)
            case events.Warning(Code.SKIPPED, raw=None, count=int(count)):
                self._take(count, "error")

    def _add_marked(self, text: str, kind: Kind, label: str) -> None:
        begin = self.units.length
        self.units.add(text)
        self._mark(begin, self.units.length, kind, label)

    def _take(self, count: int, kind: Kind | None = None, label: str = "") -> None:
        """Say of the next characters of text what they are."""
        begin = end = -1
        while count and self._unexplained:
            at, whole = self._unexplained[0]
            text = whole[self._explained : self._explained + count]
            if at != end:  # something else than text stands between
                self._mark(begin, end, kind, label)
                begin = at
            count -= len(text)
            end = at + units(text)
            self._explained += len(text)
            self._unexplained[0] = end, whole
            if self._explained == len(whole):
                self._unexplained.popleft()
                self._explained = 0
        if end >= 0:
            self._behind = end
        self._mark(begin, end, kind, label)

    def _mark(self, begin: int, end: int, kind: Kind | None, label: str) -> None:
        if kind is None or begin >= end:
            return
        last = self.marks[-1] if self.marks else None
        if last is not None and last.end == begin and last[2:] == (kind, label) and kind in ("reasoning", "native"):
            self.marks[-1] = last._replace(end=end)
        else:
            self.marks.append(Mark(begin, end, kind, label))


_LONGEST = 4096  # characters in which a near miss is looked for

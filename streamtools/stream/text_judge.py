"""Lets a judge, such as a moderation model, approve the text of a model before it is shown.

Text is buffered until it is a complete sentence, reaches a length, or has waited for a time. This piece of text is
passed to the judge while more text arrives. All other events wait for the text before them, so the order of events
does not change. No call runs before the text of its turn is approved.

When the judge refuses a piece, the run ends. The remaining text is dropped, the other events are still shown, and the
calls stay pending.

The pieces depend on the text, on the events between the texts, and on `wait`. They do not depend on how the provider
splits its text into deltas.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import force_setattr, replace

from streamtools.errors import Checked, check_function, check_number
from streamtools.events import (
    Error,
    Matched,
    Partial,
    Raw,
    Reasoning,
    RuledReasoning,
    StepStart,
    Text,
    UIEvent,
    Warning,
)
from streamtools.logs import Logger
from streamtools.tools.cancellation import call_function, is_failure

log = Logger(__name__)

Ask: TypeAlias = Callable[[str, str], "bool | Awaitable[bool]"]
"""A function of a piece of text and of the text before it in the same turn. It returns True if the piece may be
shown."""

_LONG_SENTENCE: Final = 400
"""The length in characters after which a sentence is cut at the next white space. At twice this length it is cut even
inside a word."""
_CONTEXT: Final = 1000
"""The number of characters before a piece that the judge gets."""
_MAX_WAITING: Final = 1024
"""The number of waiting events at which the source is no longer read."""
# The end of a sentence, such as ".", "?\"" or "!)" before white space, or "。", or the end of a line.
_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]*_]{0,4}\s|[。！？]|\n")
_LONGEST_END: Final = 5
"""The length in characters of the longest match of `_SENTENCE`, without its last character."""
_SPACE = re.compile(r"\s")
_BETWEEN_TEXT = (Matched, Partial, Warning)
"""The types of events that do not end a piece. All other events end a piece, except events whose text is judged."""


@dataclass(frozen=True)
class TextJudge(Checked):
    """Decides which text of a model is shown: `TextJudge(is_fine)` with `async def is_fine(text, before) -> bool`.

    - `ask` is the function that judges. Its arguments are a sentence or a line of the visible text, and at most
      1,000 characters before it in the same turn. A sentence is cut after 400 to 800 characters.
    - `wait`: a piece that is still open after that many seconds is judged without waiting for its end.
    - `unanswered` decides about a piece if the judge raises, returns no bool, or does not return within `timeout`
      seconds: `"open"` shows the piece, `"closed"` refuses it.
    - `at_once` is the maximum number of pieces that are judged at the same time. While `at_once` pieces wait for a
      decision, the source is not read. At other times, text appears at most `wait` plus `timeout` seconds after its
      first character arrived.
    - `reasoning`: if True, reasoning is also judged. Otherwise it is shown without a judgment.

    Raises ValueError for a value that is out of range, and TypeError if `ask` is not such a function.
    """

    ask: Ask
    _: KW_ONLY
    wait: float = 1.0
    timeout: float = 5.0
    unanswered: Literal["open", "closed"] = "closed"
    at_once: int = 4
    reasoning: bool = False

    def __post_init__(self) -> None:
        check_function("ask", self.ask, "text", "before")
        check_number("wait", self.wait)
        check_number("timeout", self.timeout)
        check_number("at_once", self.at_once, 1)


@dataclass(slots=True, eq=False)
class Piece:
    """A piece of text for the judge. It is open while text is added to it."""

    before: str
    """The text before the piece in the same turn, at most `_CONTEXT` characters."""
    text: str = ""
    """The text of the piece."""
    ended: anyio.Event = field(default_factory=anyio.Event)
    """Set when the piece is complete and gets no more text."""
    approved: bool | None = None
    """The decision of the judge; None before the decision."""
    unreleased_events: int = 0
    """The number of events of the piece that have not been released yet."""


class Gate:
    """Buffers events until the text before them is approved. It does no I/O and never waits.

    `take` returns the events that may be shown. `unjudged` holds the complete pieces that the judge has not seen. New
    text is added to the piece `open`.
    """

    def __init__(self, judge: TextJudge) -> None:
        self._judged = (Text, Reasoning, RuledReasoning) if judge.reasoning else (Text,)
        self._queue: deque[tuple[UIEvent, Piece | None]] = deque()
        self.open: Piece | None = None
        self._kind: type[Any] = Text  # the event type of the open piece: Text or Reasoning
        self._text_before = ""  # the last text of this turn before the open piece, for the judge
        self._seq = 0  # the `seq` of the last released event; 0 before the first
        self.unreleased_pieces = 0
        """The number of complete pieces of which at least one event has not been released yet."""
        self.unjudged: deque[Piece] = deque()
        self.drops = False
        """True after the judge has refused a piece, or after the end of the stage: all further text is dropped."""

    def __len__(self) -> int:
        """Return the number of waiting events."""
        return len(self._queue)

    @property
    def text(self) -> str:
        """The visible text in the waiting events."""
        return "".join(event.text for event, _ in self._queue if type(event) is Text)

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Add events to the queue. Return all events of the queue that may be shown now."""
        for event in events:
            kind = type(event)
            if kind in self._judged and not self.drops:
                kind = Text if kind is Text else Reasoning
                if kind is not self._kind:
                    self.end_piece()
                    self._kind = kind
                self._split(event)
                continue
            if kind not in _BETWEEN_TEXT:
                self.end_piece()
                if kind is StepStart:
                    self._text_before = ""
            self._queue.append((event, None))
        out: list[UIEvent] = []
        while self._queue:
            event, piece = self._queue[0]
            if piece is not None and not self.drops:
                if piece.approved is None:
                    break
                self.drops = not piece.approved
                piece.unreleased_events -= 1
                self.unreleased_pieces -= not piece.unreleased_events
            self._queue.popleft()
            rest = _without_text(event) if self.drops else event
            if rest is not None:
                self.set_seq(rest)
                out.append(rest)
        return out

    def set_seq(self, event: UIEvent) -> None:
        """Set the `seq` of an event that is released. The gate splits and drops events, so their numbers change."""
        self._seq = event.seq if not self._seq else self._seq + 1
        if event.seq != self._seq:
            force_setattr(event, "seq", self._seq)

    def end_piece(self) -> None:
        """End the open piece, if there is one."""
        piece, self.open = self.open, None
        if piece is not None:
            piece.ended.set()
            self.unreleased_pieces += 1
            if piece.text.strip():
                self.unjudged.append(piece)
            else:
                piece.approved = True
            if self._kind is Text:
                self._text_before = (self._text_before + piece.text)[-_CONTEXT:]

    def _split(self, event: Any) -> None:
        """Add the text of an event to the open piece. Split the event at each end of a piece."""
        text, begin = event.text, 0
        end = self._find_end(text, begin)
        while end is not None and end < len(text):
            self._add(type(event)(text[begin:end]))
            self.end_piece()
            begin, end = end, self._find_end(text, end)
        self._add(replace(event, text=text[begin:]) if begin else event)
        if end is not None:
            self.end_piece()

    def _add(self, event: Any) -> None:
        if self.open is None:
            self.open = Piece(self._text_before)
        self.open.text += event.text  # a piece has a maximum length, so this takes constant time
        self.open.unreleased_events += 1
        self._queue.append((event, self.open))

    def _find_end(self, text: str, begin: int) -> int | None:
        """Return the position in `text` at which the open piece ends. Returns None if it does not end in `text`.

        The text before the position `begin` is ignored.
        """
        before = "" if self.open is None else self.open.text
        length, tail = len(before), before[-_LONGEST_END:]  # a sentence end may have started in `tail`
        last = begin + 2 * _LONG_SENTENCE - length  # the latest position at which the piece ends
        found = _SENTENCE.search(tail + text[begin : begin + _LONGEST_END + 1]) if tail else None
        if found is not None:
            last = min(last, begin + found.end() - len(tail))
        elif found := _SENTENCE.search(text, begin, last):
            last = found.end()
        if space := _SPACE.search(text, max(begin, begin + _LONG_SENTENCE - length), last):
            last = space.end()
        return last if last <= len(text) else None


def _without_text(event: UIEvent) -> UIEvent | None:
    """Return the event without the text of the model. Returns None if the event contains nothing except this text."""
    if isinstance(event, Text | Reasoning | Matched | Partial | Raw):
        return None
    if isinstance(event, Error | Warning) and event.raw is not None:
        return replace(event, raw=None)
    return event


class JudgeStage:
    """A stage that calls the judge for the text of one run.

    `begin` sets a task group and two functions. A task of the group calls the judge for each piece. `emit` is called
    when events may be shown. `refuse` is called when the judge refuses a piece.
    """

    def __init__(self, judge: TextJudge, run_id: str) -> None:
        self.gate = Gate(judge)
        self._judge = judge
        self._run_id = run_id
        self._group: TaskGroup | None = None
        self._calls = 0  # number of calls of the judge that run now
        self._timed: Piece | None = None  # the piece whose time limit has started

    def begin(
        self, group: TaskGroup, emit: Callable[[Sequence[UIEvent]], object], refuse: Callable[[], object]
    ) -> None:
        """Allow calls of the judge, in tasks of `group`."""
        self._group = group
        self._emit, self._refuse = emit, refuse
        self._changed = anyio.Event()  # set after the next decision

    def end(self) -> None:
        """Stop calling the judge, and drop all text that is not approved."""
        self._group = None
        self._emit, self._refuse = lambda _: None, lambda: None
        self.gate.drops = True

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Add events. Return the events that may be shown now."""
        released = self.gate.take(events)
        self._start_calls()
        return released

    @property
    def is_behind(self) -> bool:
        """True if too much text or too many events wait for the judge. The source is then not read."""
        return self.gate.unreleased_pieces >= self._judge.at_once or len(self.gate) >= _MAX_WAITING

    async def catch_up(self) -> None:
        """Wait until `is_behind` is False."""
        while self.is_behind and not self.gate.drops:
            if self.gate.unreleased_pieces:
                await self._changed.wait()
            else:
                self.gate.end_piece()
                self._emit(())

    async def wait_for_decisions(self) -> None:
        """Wait until the judge has approved all text. If the judge refuses a piece, wait until the run is cancelled."""
        self.gate.end_piece()
        self._emit(())
        while self.gate.unreleased_pieces and not self.gate.drops:
            await self._changed.wait()
        if self.gate.drops:
            await anyio.sleep_forever()

    def _start_calls(self) -> None:
        """Start calls of the judge for complete pieces, and start the time limit of the open piece."""
        group, gate = self._group, self.gate
        if group is None:
            return
        while gate.unjudged and self._calls < self._judge.at_once:
            self._calls += 1
            group.start_soon(self._call, gate.unjudged.popleft())
        if gate.open is not self._timed:
            self._timed = gate.open
            if gate.open is not None:
                group.start_soon(self._end_in_time, gate.open)

    async def _end_in_time(self, piece: Piece) -> None:
        with anyio.move_on_after(self._judge.wait):
            await piece.ended.wait()
        if not piece.ended.is_set():
            self.gate.end_piece()
            self._emit(())

    async def _call(self, piece: Piece) -> None:
        piece.approved = await decide(self._judge, piece, self._run_id)
        self._calls -= 1
        self._emit(())
        if self.gate.drops:
            self._refuse()
        self._changed.set()
        self._changed = anyio.Event()


async def decide(judge: TextJudge, piece: Piece, run_id: str) -> bool:
    """Return True if the piece may be shown. If the judge fails or is too slow, `unanswered` decides."""
    with anyio.move_on_after(judge.timeout):
        try:
            return bool(await call_function("ask", judge.ask, piece.text, piece.before, kinds=bool, expected="a bool"))
        except BaseException as error:
            if not is_failure(error):
                raise
            log.error("text_judge_failed", error, run_id=run_id)
            return judge.unanswered == "open"
    log.warning("text_judge_failed", run_id=run_id, error="it took too long")
    return judge.unanswered == "open"

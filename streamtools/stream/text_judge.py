"""A judge of the text that a reader sees, such as a moderation model. Text that it has not approved is never shown.

Text is buffered until it is a sentence, long enough, or old enough. Then the judge is called, while more text arrives.
All other events wait for the text before them, so the order stays, and no call runs before the text of its turn is
approved. When the judge refuses a piece, the run ends: its other text is dropped, its other events are still shown, and
its calls are pending.

Pieces depend only on the text and on how long an open piece may wait, not on the deltas of the provider.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from inspect import isawaitable, iscoroutine
from typing import Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import force_setattr, replace

from streamtools.events import Error, Matched, Partial, Raw, Reasoning, StepStart, Text, UIEvent, Warning
from streamtools.events.ui_events import RuledReasoning
from streamtools.logs import Logger
from streamtools.tools.failures import is_failure

log = Logger(__name__)

Ask: TypeAlias = Callable[[str, str], "bool | Awaitable[bool]"]
"""Gets a piece of text and the text before it in the same turn. Returns whether the piece may be shown."""

_LONG_SENTENCE: Final = 400
"""Characters after which a sentence is cut between two words. At twice as many it is cut anywhere."""
_MAX_WAITING: Final = 1024
"""Events that wait for the judge before the provider has to wait."""
_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]*_]{0,4}\s|[。！？]|\n")
_LONGEST_END: Final = 5
"""Characters of the longest sentence end, without its last one."""
_SPACE = re.compile(r"\s")
_BETWEEN_TEXT = (Matched, Partial, Warning)
"""Events that do not end a piece of text."""


@dataclass(frozen=True)
class TextJudge:
    """Decides which text of a model is shown: `TextJudge(is_fine)` with `async def is_fine(text, before) -> bool`.

    `ask` gets a piece of the text, as it would be shown, and at most `context` characters before it in the same turn.
    With `release="sentences"` a piece is a sentence or a line. With a number it ends between two words after that many
    characters. A piece that is still open after `wait` seconds is judged as it is. If the judge raises or gives no
    answer within `timeout` seconds, `unanswered` decides: `"open"` shows the piece, `"closed"` refuses it. So text
    appears at most `wait` plus `timeout` seconds after its first character arrived. The judge is called for `at_once`
    pieces at the same time; while more wait, nothing is read from the provider. With `reasoning`, reasoning is judged
    in the same way; otherwise it is shown unseen.

    Raises ValueError for a value that is out of range.
    """

    ask: Ask
    _: KW_ONLY
    release: Literal["sentences"] | int = "sentences"
    wait: float = 1.0
    timeout: float = 5.0
    unanswered: Literal["open", "closed"] = "closed"
    at_once: int = 4
    context: int = 1000
    reasoning: bool = False

    def __post_init__(self) -> None:
        if not callable(self.ask):
            raise ValueError(f"ask must be a function of a text and the text before it, got {self.ask!r}")
        if self.release != "sentences" and not (isinstance(self.release, int) and self.release >= 1):
            raise ValueError(f"release must be 'sentences' or a number of characters, got {self.release!r}")
        if not (self.wait > 0 and self.timeout > 0):
            raise ValueError(f"wait and timeout must be above 0 seconds, got {self.wait!r} and {self.timeout!r}")
        if self.unanswered not in ("open", "closed"):
            raise ValueError(f"unanswered must be 'open' or 'closed', got {self.unanswered!r}")
        if self.at_once < 1 or self.context < 0:
            raise ValueError(
                f"at_once must be at least 1 and context at least 0, got {self.at_once!r}, {self.context!r}"
            )


@dataclass(slots=True, eq=False)
class Piece:
    """A piece of text for the judge. `ended` is set when no more text is added."""

    before: str
    length: int = 0
    tail: str = ""
    """Its last characters, in which a sentence end may have started."""
    text: str = ""
    ended: anyio.Event = field(default_factory=anyio.Event)
    approved: bool | None = None
    """The decision of the judge; None before it."""
    waiting: int = 0
    """Events of the piece that wait."""
    _parts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add text."""
        self._parts.append(text)
        self.length += len(text)
        self.tail = (self.tail + text)[-_LONGEST_END:]

    def end(self) -> None:
        """Add no more text."""
        self.text = "".join(self._parts)
        self.ended.set()


class Gate:
    """Holds events back until the text before them is approved. Sans-IO.

    `take` returns the events that may be shown. `ended` holds the pieces to judge next, and `open` is the piece that
    text is added to.
    """

    def __init__(self, judge: TextJudge) -> None:
        self._judged = (Text, Reasoning, RuledReasoning) if judge.reasoning else (Text,)
        self._longest = _LONG_SENTENCE if judge.release == "sentences" else judge.release
        self._sentences = judge.release == "sentences"
        self._context = judge.context
        self._queue: deque[tuple[UIEvent, Piece | None]] = deque()
        self.open: Piece | None = None
        self._kind: type[Any] = Text  # of the text in the open piece
        self._past = ""  # the text of the turn before the open piece
        self._seq = 0  # of the last event that was released
        self.waiting = 0
        """Pieces that have ended and are not released."""
        self.ended: deque[Piece] = deque()
        self.drops = False
        """Whether all text is dropped."""

    def __len__(self) -> int:
        """Return how many events wait."""
        return len(self._queue)

    @property
    def text(self) -> str:
        """The text that waits."""
        return "".join(event.text for event, _ in self._queue if type(event) is Text)

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Add events. Return the events that may be shown now, with earlier ones that waited."""
        for event in events:
            kind = type(event)
            if kind in self._judged and not self.drops:
                kind = Text if kind is Text else Reasoning
                if kind is not self._kind:
                    self.end_piece()
                    self._kind = kind
                self._cut(event)
                continue
            if kind not in _BETWEEN_TEXT:
                self.end_piece()
                if kind is StepStart:
                    self._past = ""
            self._queue.append((event, None))
        out: list[UIEvent] = []
        while self._queue:
            event, piece = self._queue[0]
            if piece is not None and not self.drops:
                if piece.approved is None:
                    break
                self.drops = not piece.approved
                piece.waiting -= 1
                self.waiting -= not piece.waiting
            self._queue.popleft()
            rest = _without_text(event) if self.drops else event
            if rest is not None:
                self.number(rest)
                out.append(rest)
        return out

    def number(self, event: UIEvent) -> None:
        """Number an event that is released: text has been cut and dropped since it was made."""
        self._seq = event.seq if not self._seq else self._seq + 1
        if event.seq != self._seq:
            force_setattr(event, "seq", self._seq)

    def end_piece(self) -> None:
        """End the open piece, if there is one."""
        piece, self.open = self.open, None
        if piece is not None:
            piece.end()
            self.waiting += 1
            if piece.text.strip():
                self.ended.append(piece)
            else:
                piece.approved = True
            if self._kind is Text and self._context:
                self._past = (self._past + piece.text)[-self._context :]

    def _cut(self, event: Any) -> None:
        """Add text to the open piece, and end pieces at sentence ends."""
        text, begin = event.text, 0
        end = self._find_end(text, begin)
        while end is not None and end < len(text):
            self._add(type(event)(text[begin:end]))
            self.end_piece()
            begin, end = end, self._find_end(text, end)
        self._add(_with_text(event, text[begin:]) if begin else event)
        if end is not None:
            self.end_piece()

    def _add(self, event: Any) -> None:
        if self.open is None:
            self.open = Piece(self._past)
        self.open.add(event.text)
        self.open.waiting += 1
        self._queue.append((event, self.open))

    def _find_end(self, text: str, begin: int) -> int | None:
        """Return where the open piece ends in `text`, which it reads from `begin`; None if it stays open."""
        length, tail = (0, "") if self.open is None else (self.open.length, self.open.tail)
        last = begin + 2 * self._longest - length  # it ends here at the latest
        if self._sentences:
            found = _SENTENCE.search(tail + text[begin : begin + _LONGEST_END + 1]) if tail else None
            if found is not None:
                last = min(last, begin + found.end() - len(tail))
            elif found := _SENTENCE.search(text, begin, last):
                last = found.end()
        if space := _SPACE.search(text, max(begin, begin + self._longest - length), last):
            last = space.end()
        return last if last <= len(text) else None


def _with_text(event: Any, text: str) -> Any:
    """Return an event with another text, and with its other content."""
    rest = replace(event, text=text)
    if (kept := getattr(event, "__dict__", None)) is not None:
        rest.__dict__.update(kept)
    return rest


def _without_text(event: UIEvent) -> UIEvent | None:
    """Return an event without its text; None if nothing is left."""
    if isinstance(event, Text | Reasoning | Matched | Partial | Raw):
        return None
    if isinstance(event, Error | Warning) and event.raw is not None:
        return replace(event, raw=None)
    return event


class JudgeStage:
    """A stage that calls the judge of one run. After `begin`, each piece has a task in a group of the run.

    It calls `emit` when events may be shown, and `refuse` when the judge refuses a piece.
    """

    def __init__(self, judge: TextJudge, run_id: str) -> None:
        self.gate = Gate(judge)
        self._judge = judge
        self._run_id = run_id
        self._group: TaskGroup | None = None
        self._calls = 0  # of the judge that are running
        self._timed: Piece | None = None  # the open piece, which a task ends after `wait` seconds

    def begin(
        self, group: TaskGroup, emit: Callable[[Sequence[UIEvent]], object], refuse: Callable[[], object]
    ) -> None:
        """Call the judge in tasks of this group."""
        self._group = group
        self._emit, self._refuse = emit, refuse
        self._changed = anyio.Event()

    def end(self) -> None:
        """Stop: text that is not approved is dropped."""
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
        """Whether the provider has to wait for the judge."""
        return self.gate.waiting >= self._judge.at_once or len(self.gate) >= _MAX_WAITING

    async def catch_up(self) -> None:
        """Wait while too much text waits for the judge."""
        while self.is_behind and not self.gate.drops:
            if self.gate.waiting:
                await self._changed.wait()
            else:
                self.gate.end_piece()
                self._emit(())

    async def wait_for_decisions(self) -> None:
        """Wait until the judge has decided about all text. If it refuses a piece, this does not return."""
        self.gate.end_piece()
        self._emit(())
        while self.gate.waiting and not self.gate.drops:
            await self._changed.wait()
        if self.gate.drops:
            await anyio.sleep_forever()

    def _start_calls(self) -> None:
        """Call the judge for the pieces that have ended, and start the clock of the open piece."""
        group, gate = self._group, self.gate
        if group is None:
            return
        while gate.ended and self._calls < self._judge.at_once:
            self._calls += 1
            group.start_soon(self._call, gate.ended.popleft())
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


async def decide(judge: TextJudge, piece: Piece, run_id: str | None = None) -> bool:
    """Return whether a piece may be shown: the answer of the judge, or `unanswered` without one."""
    with anyio.move_on_after(judge.timeout):
        try:
            answer = judge.ask(piece.text, piece.before)
            return _verdict(judge, await answer if isawaitable(answer) else answer, run_id)
        except BaseException as error:
            if not is_failure(error):
                raise
            return _verdict(judge, error, run_id)
    return _verdict(judge, TimeoutError("it takes too long"), run_id)


def decide_now(judge: TextJudge, piece: Piece) -> bool:
    """Do the same without waiting. The judge is a plain function, and has no time limit."""
    try:
        answer = judge.ask(piece.text, piece.before)
        if iscoroutine(answer):
            answer.close()
    except Exception as error:
        return _verdict(judge, error, None)
    return _verdict(judge, answer, None)


def _verdict(judge: TextJudge, answer: object, run_id: str | None) -> bool:
    """Return the answer of the judge. If it is an error or no bool, log it and return what `unanswered` says."""
    if isinstance(answer, bool):
        return answer
    if isinstance(answer, BaseException) and not isinstance(answer, TimeoutError):
        log.error("text_judge_failed", answer, run_id=run_id)
    else:
        why = answer if isinstance(answer, TimeoutError) else f"it returned {type(answer).__qualname__}, and no bool"
        log.warning("text_judge_failed", run_id=run_id, error=str(why))
    return judge.unanswered == "open"

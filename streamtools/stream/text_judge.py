"""A judge of what a reader is shown, such as a moderation model: text that it has not approved is never shown.

Text waits until it is a sentence, or long enough, or old enough; then the judge is asked about it, while more comes.
All other events wait behind the text before them, so that the order stays what it was, and no call runs before the text
of its turn has been approved. Where text is refused, the run is over: what is left of its text is dropped, whatever
else it says still comes, and its calls are pending.

The cut into pieces depends on nothing but the text and the seconds that an open piece may wait; how the provider has
cut it changes nothing.
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
"""Gets a piece of text and what stands before it in the same turn; returns whether the piece may be shown."""

_LONG: Final = 400
"""Characters of a sentence from which on it is cut between two words, and at twice as many anywhere."""
_WAITING: Final = 1024
"""Events that wait for the judge before the provider has to."""
_SENTENCE = re.compile(r"[.!?…][\"'”’»)\]*_]{0,4}\s|[。！？]|\n")
_LOOK_BACK: Final = 5
"""Characters of an end that may have come before its last one."""
_SPACE = re.compile(r"\s")
_BESIDE = (Matched, Partial, Warning)
"""Events in the midst of text, which end no piece of it."""


@dataclass(frozen=True)
class TextJudge:
    """Who decides what of a model's text is shown: `async def is_fine(text, before) -> bool`.

    `ask` gets a piece of the text, as it would be shown, and at most `context` characters before it in the same turn.
    With `release="sentences"`, a piece is a sentence or a line; with a number, it ends between two words behind so many
    characters. A piece that has not ended `wait` seconds after it began is asked about as it is, and one about which
    the judge says nothing for `timeout` seconds, or about which it raises, is shown if `unanswered` is `"open"`, and
    refused if it is `"closed"`. So a piece is shown at most `wait` and `timeout` after its first character has come.
    The judge is asked about `at_once` pieces side by side; while there are more, nothing is read from the provider.
    With `reasoning`, what the model thinks is judged in the same way; without, it is shown unseen.

    Raises ValueError for values that are not allowed.
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
            raise ValueError(f"a judge is a function of a text and of what stands before it, not {self.ask!r}")
        if self.release != "sentences" and not (isinstance(self.release, int) and self.release >= 1):
            raise ValueError(f"release is 'sentences' or a number of characters, not {self.release!r}")
        if not (self.wait > 0 and self.timeout > 0):
            raise ValueError(f"wait and timeout are times above 0 seconds, not {self.wait!r} and {self.timeout!r}")
        if self.unanswered not in ("open", "closed"):
            raise ValueError(f"unanswered is 'open' or 'closed', not {self.unanswered!r}")
        if self.at_once < 1 or self.context < 0:
            raise ValueError(f"at_once is at least 1 and context at least 0, not {self.at_once!r} and {self.context!r}")


@dataclass(slots=True, eq=False)
class Piece:
    """A piece of text that the judge is asked about; `ended` is set when nothing is added to it any more."""

    before: str
    length: int = 0
    tail: str = ""
    """Its last characters, of which an end may have begun."""
    text: str = ""
    ended: anyio.Event = field(default_factory=anyio.Event)
    approved: bool | None = None
    """None until somebody has decided."""
    waiting: int = 0
    """Events of it that wait."""
    _parts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add text."""
        self._parts.append(text)
        self.length += len(text)
        self.tail = (self.tail + text)[-_LOOK_BACK:]

    def end(self) -> None:
        """Add nothing more."""
        self.text = "".join(self._parts)
        self.ended.set()


class Gate:
    """Lets out the events of a run behind the text that is approved. Sans-IO.

    `take` returns what may go; `ended` are pieces about which nobody has been asked yet, and `open` is the one that
    has begun.
    """

    def __init__(self, judge: TextJudge) -> None:
        self._judged = (Text, Reasoning, RuledReasoning) if judge.reasoning else (Text,)
        self._longest = _LONG if judge.release == "sentences" else judge.release
        self._sentences = judge.release == "sentences"
        self._context = judge.context
        self._queue: deque[tuple[UIEvent, Piece | None]] = deque()
        self.open: Piece | None = None
        self._kind: type[Any] = Text  # of what is in the open piece
        self._past = ""  # the text of the turn before the open piece
        self._seq = 0  # the number of the last event that has gone
        self.waiting = 0
        """Pieces that have ended and are not out."""
        self.ended: deque[Piece] = deque()
        self.drops = False
        """Text goes out no more."""

    def __len__(self) -> int:
        """Return how many events wait."""
        return len(self._queue)

    @property
    def text(self) -> str:
        """The text that waits."""
        return "".join(event.text for event, _ in self._queue if type(event) is Text)

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Take events in; return what may go out, also of those that came before."""
        for event in events:
            kind = type(event)
            if kind in self._judged and not self.drops:
                kind = Text if kind is Text else Reasoning
                if kind is not self._kind:
                    self.end_piece()
                    self._kind = kind
                self._cut(event)
                continue
            if kind not in _BESIDE:
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
        """Give an event the number of the next that goes out: text has been cut and dropped since it was made."""
        self._seq = event.seq if not self._seq else self._seq + 1
        if event.seq != self._seq:
            force_setattr(event, "seq", self._seq)

    def end_piece(self) -> None:
        """End the piece that is open, if there is one."""
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
        """Add text to pieces, which end where they have to."""
        text, begin, size = event.text, 0, len(event.text)
        while (end := self._find_end(text, begin)) is not None:
            whole = end == size
            self._add(
                (event if not begin else _with_text(event, text[begin:])) if whole else type(event)(text[begin:end])
            )
            self.end_piece()
            begin = end
            if whole:
                return
        self._add(event if not begin else _with_text(event, text[begin:]))

    def _add(self, event: Any) -> None:
        if self.open is None:
            self.open = Piece(self._past)
        self.open.add(event.text)
        self.open.waiting += 1
        self._queue.append((event, self.open))

    def _find_end(self, text: str, begin: int) -> int | None:
        """Return where the open piece ends in a text that goes on at `begin`, if it does."""
        length, tail = (0, "") if self.open is None else (self.open.length, self.open.tail)
        last = begin + 2 * self._longest - length  # where it ends in any case
        if self._sentences:
            found = _SENTENCE.search(tail + text[begin : begin + _LOOK_BACK + 1]) if tail else None
            if found is not None:
                last = min(last, begin + found.end() - len(tail))
            elif found := _SENTENCE.search(text, begin, last):
                last = found.end()
        if space := _SPACE.search(text, max(begin, begin + self._longest - length), last):
            last = space.end()
        return last if last <= len(text) else None


def _with_text(event: Any, text: str) -> Any:
    """Return the rest of an event, with all that it holds beside its text."""
    rest = replace(event, text=text)
    if (kept := getattr(event, "__dict__", None)) is not None:
        rest.__dict__.update(kept)
    return rest


def _without_text(event: UIEvent) -> UIEvent | None:
    """Return what is left of an event without what holds text; None if it is nothing."""
    if isinstance(event, Text | Reasoning | Matched | Partial | Raw):
        return None
    if isinstance(event, Error | Warning) and event.raw is not None:
        return replace(event, raw=None)
    return event


class JudgeStage:
    """Asks the judge of one run: from `begin` on, it has a task for each piece in a group of the run's.

    `hand_out` is called when something may go out, and `refuse` when text has been refused.
    """

    def __init__(self, judge: TextJudge, run_id: str) -> None:
        self.gate = Gate(judge)
        self._judge = judge
        self._run_id = run_id
        self._group: TaskGroup | None = None
        self._asking = 0  # about so many pieces
        self._timed: Piece | None = None  # the open piece, which somebody ends when it has waited for long enough

    def begin(
        self, group: TaskGroup, hand_out: Callable[[Sequence[UIEvent]], object], refuse: Callable[[], object]
    ) -> None:
        """Ask in this group."""
        self._group = group
        self._hand_out, self._refuse = hand_out, refuse
        self._changed = anyio.Event()

    def end(self) -> None:
        """Ask about nothing more: text that is not approved does not go out."""
        self._group = None
        self._hand_out, self._refuse = lambda _: None, lambda: None
        self.gate.drops = True

    def take(self, events: Sequence[UIEvent]) -> list[UIEvent]:
        """Take events in; return what may go out."""
        out = self.gate.take(events)
        self._go_on()
        return out

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the judge that the provider has to."""
        return self.gate.waiting >= self._judge.at_once or len(self.gate) >= _WAITING

    async def catch_up(self) -> None:
        """Wait while the judge is behind."""
        while self.is_behind and not self.gate.drops:
            if self.gate.waiting:
                await self._changed.wait()
            else:
                self.gate.end_piece()
                self._hand_out(())

    async def settle(self) -> None:
        """Wait until all that has come is decided. Where text is refused, this does not come back: the run is over."""
        self.gate.end_piece()
        self._hand_out(())
        while self.gate.waiting and not self.gate.drops:
            await self._changed.wait()
        if self.gate.drops:
            await anyio.sleep_forever()

    def _go_on(self) -> None:
        """Ask about what has ended, and let what has begun come to an end."""
        group, gate = self._group, self.gate
        if group is None:
            return
        while gate.ended and self._asking < self._judge.at_once:
            self._asking += 1
            group.start_soon(self._ask_about, gate.ended.popleft())
        if gate.open is not self._timed:
            self._timed = gate.open
            if gate.open is not None:
                group.start_soon(self._end_in_time, gate.open)

    async def _end_in_time(self, piece: Piece) -> None:
        with anyio.move_on_after(self._judge.wait):
            await piece.ended.wait()
        if not piece.ended.is_set():
            self.gate.end_piece()
            self._hand_out(())

    async def _ask_about(self, piece: Piece) -> None:
        piece.approved = await decide(self._judge, piece, self._run_id)
        self._asking -= 1
        self._hand_out(())
        if self.gate.drops:
            self._refuse()
        self._changed.set()
        self._changed = anyio.Event()


async def decide(judge: TextJudge, piece: Piece, run_id: str | None = None) -> bool:
    """Return whether a piece may be shown: what the judge says, or what counts where it says nothing."""
    with anyio.move_on_after(judge.timeout):
        try:
            said = judge.ask(piece.text, piece.before)
            return _verdict(judge, await said if isawaitable(said) else said, run_id)
        except BaseException as error:
            if not is_failure(error):
                raise
            return _without_word(judge, error, run_id)
    return _without_word(judge, "it takes too long", run_id)


def decide_now(judge: TextJudge, piece: Piece) -> bool:
    """Do so where nothing can be awaited: the judge is a plain function, and takes as long as it takes."""
    try:
        answer = judge.ask(piece.text, piece.before)
        if iscoroutine(answer):
            answer.close()
        return _verdict(judge, answer, None)
    except Exception as error:
        return _without_word(judge, error, None)


def _verdict(judge: TextJudge, answer: object, run_id: str | None) -> bool:
    if isinstance(answer, bool):
        return answer
    return _without_word(judge, f"it says {type(answer).__qualname__}, and neither True nor False", run_id)


def _without_word(judge: TextJudge, why: str | BaseException, run_id: str | None) -> bool:
    """Return what counts where the judge says nothing, and log why it does not."""
    if isinstance(why, str):
        log.warning("text_judge_failed", run_id=run_id, error=why)
    else:
        log.error("text_judge_failed", why, run_id=run_id)
    return judge.unanswered == "open"

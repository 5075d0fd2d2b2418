"""The calls of a run that may run, and what becomes of those of a turn in which a model broke off. Sans-IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from streamtools.calls import ToolCall
from streamtools.events import FollowUp, StepSuperseded, UIEvent, Usage
from streamtools.machine.ending import EndingRun
from streamtools.machine.turn import Turn
from streamtools.parsing.prose import Prose


class RunnableCalls(EndingRun):
    """The calls of a run that may run, and the tokens that its turns have used; `StreamMachine` sets the state."""

    __slots__ = (
        *(
            "_eager_native",
            "_eager_text",
            "_earlier",
            "_lost",
            "_noticed",
            "_parse",
            "_step",
            "_taken",
            "_turn",
            "_usage",
            "number",
            "pending",
            "runnable",
            "usage",
        ),
    )

    number: Callable[[], int]
    _parse: Callable[[str], list[UIEvent]]  # reads a delta of the open turn
    _step: int

    runnable: list[ToolCall]  # calls that may run now, until `take_runnable` returns them
    pending: list[ToolCall]  # calls that nobody has run
    usage: Usage | None  # of the turns that have ended
    _eager_native: bool  # complete native calls may run while their turn goes on
    _eager_text: bool  # those in text may
    _taken: list[ToolCall]
    _noticed: int  # how many calls of this turn have been added to `runnable` or `pending`
    _turn: Turn
    _usage: Usage | None  # of the turn that is open
    _flowing: bool  # a text delta needs nothing but to be remembered and parsed
    _earlier: list[tuple[str, Usage]]  # of models that broke off in this turn, and were not the last
    _lost: bool  # a part of the turn, or of what led to it

    @property
    def spent(self) -> int | None:
        """The tokens of the run so far, with those of the step that is open; None if no provider reports any."""
        turns = [usage for usage in (self.usage, self._usage) if usage is not None]
        return _sum(*(usage.total if usage.total is not None else _sum(usage.input, usage.output) for usage in turns))

    @property
    def held(self) -> int:
        """How many characters have been fed that nobody sees, because they may still become a call or a match."""
        return len(self._turn.parser.held)

    @property
    def salvaged(self) -> Collection[str]:
        """Ids of native calls that were found in a text which the provider could not read."""
        return self._turn.native.salvaged

    @property
    def passing(self) -> tuple[Turn, Prose] | None:
        """What a text is added to, and what says whether it is shown as it is, while no more depends on text.

        Who does as `feed` would with such a text needs no event of it.
        """
        turn = self._turn
        prose = turn.parser.prose if self._flowing and not turn.ruled and turn.output is None else None
        return None if prose is None else (turn, prose)

    def clean(self, event: UIEvent) -> UIEvent:
        """Return an event as rules leave it, for what others show of the model's words."""
        return self._turn.parser.clean(event)

    def without_matches(self, value: Any) -> Any:
        """Return plain data as rules leave the texts in it, for what others keep of the model's words."""
        cleaned: Any = self.clean(FollowUp([value]))
        return cleaned.messages[0]

    def reserve(self, calls: Iterable[ToolCall]) -> None:
        """Take note of the calls of the conversation: the ids of others differ from theirs."""
        self._turn.native.reserve(call.id for call in calls)

    def take_runnable(self) -> list[ToolCall]:
        """Return the calls that may run now. The caller runs them and, once `waiting`, calls `settle`."""
        runnable, self.runnable = self.runnable, []
        self._taken += runnable
        return runnable

    def put_back(self, calls: Sequence[ToolCall]) -> None:
        """Make calls pending that `take_runnable` has returned and that have not run."""
        self.pending += calls

    def runs_at_once(self, call_id: str, *, native_only: bool) -> bool:
        """Return whether a call that is being written will run as soon as it is complete, if nothing is wrong then."""
        call = next((call for call in self._turn.native.open.values() if call.id == call_id), None)
        return self._eager_native and call.fault is None if call is not None else self._eager_text and not native_only

    @property
    def has_run(self) -> bool:
        """Whether a call of the turn has been given to whoever runs calls."""
        return bool(self._taken)

    def discard(self) -> list[UIEvent]:
        """End the calls that are being written: the answer has broken off, and its turn is to be completed as it is."""
        return self._turn.discard() if self._open else []

    def go_on_behind(self, shown: str | None, model: str) -> tuple[list[UIEvent], str]:
        """Let a turn in which a `model` broke off go on with another answer, behind what was `shown` of it; return how
        calls of it end, and what the next model goes on with; with None, nothing. No call of it has run.
        """
        self._lost = False
        if not self._open:
            return [], shown or ""
        if self._usage is not None:
            self._earlier.append((model, self._usage))
            self.usage = self._usage if self.usage is None else self.usage + self._usage
            self._usage = None
        self.pending = [call for call in self.pending if call.id not in self._turn.native.unanswerable]
        self.runnable, self._noticed = [], 0
        events, written = self._turn.go_on_behind(shown)
        self._parse = self._turn.feed
        return events, written

    def supersede(self, model: str) -> list[UIEvent]:
        """End the step of a turn in which a `model` broke off, and which counts for nothing; nothing of it has run."""
        if not self._open:
            return []
        events, _ = self.go_on_behind(None, model)
        return [*events, *self.reset(), StepSuperseded(self._step, seq=self.number())]

    def reset(self) -> list[UIEvent]:
        """Break off the turn that is open."""
        raise NotImplementedError

    def _notice(self, calls: Sequence[ToolCall]) -> None:
        """Add new calls to `runnable`; those whose provider takes no result are pending."""
        for call in calls[self._noticed :]:
            (self.pending if call.id in self._turn.native.unanswerable else self.runnable).append(call)
        self._noticed = len(calls)


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None

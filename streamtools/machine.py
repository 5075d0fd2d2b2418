"""The state machine: source events in, UI events out, without I/O.

A run is a series of provider turns. A turn is open from its first event to its `provider-completed`, which compares the
provider's idea of the text with the deltas, earns the turn's calls, and leaves the machine reset for the next one. The
run ends when the transport does: well, if its terminator has come, and otherwise with the truth about what is missing.

The machine runs no tools. What may run stands in `due`; whoever runs it calls `settle` afterwards, which ends the step.
A caller that has nobody to run calls just goes on, and finds them under `pending` of `done`.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Unpack

import structlog

from streamtools.calls import ToolCall
from streamtools.ending import STOPPED_AFTER_CALL, Ending
from streamtools.errors import ClosedError, Code, UnreadableSource
from streamtools.events import (
    SOURCE_EVENTS,
    Call,
    ChainCompleted,
    Error,
    NativeToolCall,
    ProviderCompleted,
    Raw,
    Reasoning,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceRaw,
    SourceUsage,
    SourceWarning,
    Start,
    StepEnd,
    StepStart,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.options import ParserOptions
from streamtools.turn import Turn

log = structlog.get_logger(__name__)


class Verdict(NamedTuple):
    """Why the calls of a turn must not run; `fatal` if the run has failed with them."""

    calls: Sequence[ToolCall]
    message: str
    fatal: bool


class StreamMachine:
    """Turns the source events of one run into UI events; `feed` and `close` return them, eagerly.

    `dialects`, `tools` (declarations of tools, and no plain functions) and the options are those of `Parser`, and so
    are the errors. `native_tool_calls` says whether the model makes native
    calls: if True, or None (unknown), they count where they come and calls in text where none do; if False, the other
    way round. A `self_contained` agent runs its tools itself, and no call of its answer counts. `execute` says whether
    calls are due when their turn is complete, as soon as they are (`"eager"`, for calls of the kind that counts in any
    case), or never. `judge` is shown the calls of a complete turn and may object, so that with one no call is due
    before. `guard` is told at the end of each step how many of its calls were malformed, and whether the run goes on;
    it may return a reason to stop it. `run_id` is made if it is not given. Raises ValueError for a value that is not
    allowed.

    Read `due` and `take_due` to run calls, `pending` for those that nobody ran, `usage` for the tokens of all turns;
    `number` gives the `seq` of events that others make for this run.
    """

    # More than thirty attributes would make a table that instances do not share, which a server with many runs feels:
    # a delta of each run finds little of its own in the cache.
    __slots__ = (
        "_closed",
        "_declares_native",
        "_eager_native",
        "_eager_text",
        "_ending",
        "_execute",
        "_flowing",
        "_guard",
        "_judge",
        "_lost",
        "_malformed",
        "_noticed",
        "_open",
        "_parse",
        "_self_contained",
        "_started",
        "_step",
        "_taken",
        "_turn",
        "_usage",
        "_watchful",
        "due",
        "number",
        "pending",
        "run_id",
        "stopped",
        "usage",
        "waiting",
    )

    def __init__(
        self,
        *,
        dialects: Dialects = None,
        tools: Any = None,
        execute: Literal["completed", "eager", "never"] = "completed",
        native_tool_calls: bool | None = None,
        self_contained: bool = False,
        judge: Callable[[Sequence[ToolCall]], Verdict | None] | None = None,
        guard: Callable[[int, bool], str | None] | None = None,
        run_id: str | None = None,
        **options: Unpack[ParserOptions],
    ) -> None:
        if execute not in ("completed", "eager", "never"):
            raise ValueError(f"execute is 'completed', 'eager' or 'never', not {execute!r}")
        if native_tool_calls not in (True, False, None):
            raise ValueError(f"native_tool_calls is True, False or None, not {native_tool_calls!r}")
        self.number = itertools.count(1).__next__
        self.run_id = run_id or "run_" + secrets.token_urlsafe(12)
        self.due: list[ToolCall] = []  # calls that may run now; see `take_due`
        self.pending: list[ToolCall] = []  # calls that nobody has run
        self.usage: Usage | None = None  # of the turns that have ended
        self._turn = Turn(dialects, tools, options, self.number)
        self._parse = self._turn.parser.feed
        self._declares_native = native_tool_calls
        self._self_contained = self_contained
        self._execute = execute
        eager = execute == "eager" and judge is None and not self_contained
        self._eager_text = eager and native_tool_calls is False
        self._eager_native = eager and native_tool_calls is not False
        self._judge = judge
        self._guard = guard
        self._watchful = self._eager_text or options.get("after_call") == "stop"  # a delta may do more than give events
        self._step = 0
        self._started = False
        self._ending = Ending()
        self._closed = False
        self._lost = False  # a part of the turn, or of what led to it
        self.waiting = False  # the turn is complete, and `settle` ends its step when its calls have been run
        self.stopped = False  # we have ended the turn ourselves: the source is to be closed
        self._begin_turn()

    @property
    def spent(self) -> int | None:
        """The tokens of the run so far, with those of the turn whose step has not ended; None if nobody tells."""
        turns = [usage for usage in (self.usage, self._usage) if usage is not None]
        return _sum(*(usage.total if usage.total is not None else _sum(usage.input, usage.output) for usage in turns))

    @property
    def salvaged(self) -> set[str]:
        """Ids of native calls that were found in a text which the provider could not read."""
        return self._turn.native.adopted

    @property
    def closed(self) -> bool:
        """Whether `done` has gone out."""
        return self._closed

    def start(self) -> list[UIEvent]:
        """Return the first event of the run, which is shown before the first byte is read."""
        if self._started:
            return []
        self._started = True
        return [Start(self.run_id, seq=self.number())]

    def feed(self, event: SourceEvent) -> list[UIEvent]:
        """Return what `event` makes certain. Raises `ClosedError` behind the end of the run, and `UnreadableSource` for
        an object that is no source event.
        """
        if type(event) is TextDelta and self._flowing:
            text = event.text
            turn = self._turn
            size = len(text)
            if turn.room >= size:
                turn.room -= size
                turn.deltas.append(text)
                return self._parse(text)
            return turn.read(text)
        return self._feed(event)

    def resume(self, calls: Sequence[ToolCall]) -> list[UIEvent]:
        """Open a step for calls of an earlier run, which may run now; return how it begins."""
        events = self.start()
        self._step += 1
        events.append(StepStart(self._step, seq=self.number()))
        events += [Call(call, seq=self.number()) for call in calls]
        self._turn.native.reserve(call.id for call in calls)
        self.due = list(calls)
        self._ending.finish = "tool_calls"
        self._ending.earned = self.waiting = True
        return events

    def take_due(self) -> list[ToolCall]:
        """Return the calls that may run now, to somebody who runs them and then, once `waiting`, calls `settle`."""
        due, self.due = self.due, []
        self._taken += due
        return due

    def put_back(self, calls: Sequence[ToolCall]) -> None:
        """Take back calls that were taken and have not been run: they are pending."""
        self.pending += calls

    def stop(self, why: str) -> list[UIEvent]:
        """Break off the run, because of a bound of ours: nothing is read or run any more, and `done` says why.

        A run that has failed, and one in which nothing is left to be done, end as they would have.
        """
        self.stopped = True
        if not (self._closed or self._ending.failed or self._is_complete):
            self._ending.stop(why)
        return self.start() + self.reset() + self.settle()

    def settle(self) -> list[UIEvent]:
        """End the step, now that the calls that were taken have been run. Calls that nobody took are pending."""
        self.pending += self.due
        self.due = []
        if not self.waiting:
            return []
        self.waiting = False
        return self._end_step()

    def close(self) -> list[UIEvent]:
        """Return the last events: the transport has ended. What has not been earned is told truthfully."""
        if self._closed:
            return []
        events = self.start() + self.settle()
        if not (self._ending.earned or self._ending.is_certain):
            events += self._fail(Code.STREAM_INTERRUPTED, "the stream ended before it was complete")
            events += self.settle()
        return events + self._done()

    def cancel(self) -> list[UIEvent]:
        """Return the last events of a run that is left: nothing is read or run any more.

        A run that has failed, and one in which nothing is left to be done, are told as such.
        """
        if self._closed or self._ending.is_certain or self._is_complete:
            return self.close()
        return self.start() + self.reset() + self.settle() + self._done(left=True)

    def reset(self) -> list[UIEvent]:
        """Break off the turn that is open and return how it ends; the run goes on with the next one. Idempotent."""
        if not self._open:
            return []
        self._ending.break_off_turn()
        return self._end_turn([])

    @property
    def may_go_on(self) -> bool:
        """Whether another request may follow: an answer has ended well, and nothing has stopped the run."""
        ending = self._ending
        return self._is_complete and ending.earns_calls and not (self._closed or ending.is_certain)

    def go_on(self) -> None:
        """Take note that another request is to follow: until its answer is complete, the run is not."""
        self._ending.go_on()
        self.stopped = False

    def rest(self) -> None:
        """Take note that no other request follows after all."""
        self._ending.rest()

    @property
    def _is_complete(self) -> bool:
        """Whether the provider has ended the run, and nothing of it is left to be done."""
        return self._ending.earned and not (self._open or self.waiting)

    # One turn.

    def _begin_turn(self) -> None:
        self._open = False
        self._flowing = False  # a text delta needs nothing but to be remembered and parsed
        self._usage: Usage | None = None
        self._taken: list[ToolCall] = []
        self._noticed = 0  # calls that have become due
        self._malformed = 0

    def _feed(self, event: SourceEvent) -> list[UIEvent]:
        if self._closed:
            raise ClosedError("the run has ended; a new one needs a new machine")
        if not isinstance(event, SOURCE_EVENTS):
            raise UnreadableSource(f"{type(event)!r} is no source event")
        events = [] if self._started else self.start()
        if self.stopped or self._ending.failed:
            return events
        match event:
            case SourceWarning(code, message, raw, count):
                if code in (Code.BAD_FRAME, Code.SKIPPED):  # whatever it held is missing from a call that is open
                    self._turn.lose()
                    self._lost = True
                events.append(Warning(code, message, raw, count, seq=self.number()))
            case SourceRaw(data):
                events.append(Raw(data, seq=self.number()))
            case SourceError(message, code, status, cause, generation, url):
                log.warning("stream_failed", run_id=self.run_id, code=code.value, status=status, cause=cause, url=url)
                salvaged = self._salvage(generation) if generation else []
                events += salvaged or self._fail(code, message, status)
            case SourceUsage(usage) if self._step and not (self._open or self._ending.asked):  # behind its turn
                self.usage = usage if self.usage is None else self.usage + usage
                events.append(UsageReport(usage, seq=self.number()))
            case ChainCompleted(conversation_id):
                if self._open:  # older formats have no event for the end of a turn
                    events += self._complete(ProviderCompleted())
                self._ending.end_chain(conversation_id)
            case TextDelta("") if not self._open:  # text that begins is one thing, however it is cut
                pass
            case _:
                events += self._open_turn()
                if not self.stopped:  # by the guard, at the end of a step that nobody had settled
                    events += self._feed_turn(event)
        return events

    def _open_turn(self) -> list[UIEvent]:
        if self._open:
            return []
        events = self.settle()
        if self.stopped:
            return events
        self._ending.begin_turn()
        self._turn.begin()
        self._begin_turn()
        self._open = True
        self._flowing = not self._watchful
        self._step += 1
        return [*events, StepStart(self._step, seq=self.number())]

    def _feed_turn(self, event: SourceEvent) -> list[UIEvent]:
        match event:
            case TextDelta(text):
                return self._feed_text(text)
            case ReasoningDelta(text, signature, block, redacted):
                told = text or signature or block
                return [Reasoning(text, self.number(), signature, block, redacted)] if told else []
            case SourceUsage(usage):
                self._usage = usage
                return []
            case ProviderCompleted():
                return self._complete(event)
            case _:
                assert isinstance(event, ToolCallStart | ToolCallDelta | NativeToolCall)  # the last of the union
                events = self._turn.read_call(event)
                if self._eager_native:
                    self._notice(self._turn.native.calls)
                return events

    def _feed_text(self, text: str) -> list[UIEvent]:
        """Read text that may have consequences for more than the text."""
        turn = self._turn
        events = turn.read(text)
        if self._eager_text:
            self._notice(turn.parser.calls)
        if turn.parser.stopped:
            self._ending.earned = True
            self.stopped = True
            events += self._complete(ProviderCompleted(), STOPPED_AFTER_CALL)
        return events

    def _complete(self, event: ProviderCompleted, finish: str | None = None) -> list[UIEvent]:
        """End the turn as the provider ends it, or with a `finish` of our own."""
        self._ending.end_turn(event, finish, self._lost)
        self._usage = event.usage or self._usage
        return self._end_turn(self._turn.reconcile(event.text, event.tool_calls or ()))

    def _salvage(self, generation: str) -> list[UIEvent]:
        """Return how a turn ends well whose provider could not read the call in what its model had written, or []."""
        found = self._turn.find_calls(generation)
        if not found:
            return []
        events = self._open_turn() + self._turn.adopt(found)
        return events + self._complete(ProviderCompleted(finish_reason="tool_calls"))

    def _end_turn(self, events: list[UIEvent], fault: tuple[Code, str, int | None] | None = None) -> list[UIEvent]:
        """Decide what becomes of the turn's calls, and end the step unless some of them are to be run."""
        self._open = self._flowing = self._lost = False
        turn, ending = self._turn, self._ending
        events += turn.close()
        if fault is not None:
            events += self._report_failure(*fault)
        calls, endings, self._malformed = turn.choose(
            declares_native=self._declares_native, self_contained=self._self_contained
        )
        events += endings
        if ending.finish == "stop" and calls and calls is turn.native.calls:  # some providers say so whatever came
            ending.finish = "tool_calls"
        earned = ending.earns_calls
        verdict = self._judge(calls) if self._judge and not self._self_contained else None
        if verdict is not None and verdict.fatal and not earned:
            verdict = None  # who did not finish cannot be told what is missing; what was forbidden stays so
        if verdict is not None:
            events += [
                Error(Code.TOOL_CHOICE_VIOLATION, verdict.message, call_id=call.id, call=call, seq=self.number())
                for call in verdict.calls
            ]
            refused = {call.id for call in verdict.calls}
            calls = [call for call in calls if call.id not in refused]
        if earned and self._execute != "never":
            self._notice(calls)
        else:
            self.pending += self.due + calls[self._noticed :]
            self.due = []
        if ending.finish == "error" and not ending.failed:
            events += self._report_failure(Code.UPSTREAM_ERROR, "the provider ended the turn with an error", None)
        if verdict is not None and verdict.fatal:
            events += self._report_failure(Code.TOOL_CHOICE_VIOLATION, verdict.message, None)
        self.waiting = bool(self.due or self._taken)
        return events if self.waiting else events + self._end_step()

    def _notice(self, calls: Sequence[ToolCall]) -> None:
        """Take note of new calls that may run. Those that nobody can answer stay pending."""
        for call in calls[self._noticed :]:
            (self.pending if call.id in self._turn.native.unanswerable else self.due).append(call)
        self._noticed = len(calls)

    def _end_step(self) -> list[UIEvent]:
        events: list[UIEvent] = []
        ending = self._ending
        if self._usage is not None:
            self.usage = self._usage if self.usage is None else self.usage + self._usage
            events.append(UsageReport(self._usage, seq=self.number()))
            self._usage = None
        events.append(StepEnd(self._step, ending.finish, seq=self.number()))
        why = None
        if self._guard is not None and not ending.failed:
            why = self._guard(self._malformed, not ending.earned)
        if why is not None:
            self.stopped = True
            ending.stop(why)
        return events

    # The end of the run.

    def _fail(self, code: Code, message: str, status: int | None = None) -> list[UIEvent]:
        """Report the one fault that the run ends with; what is complete in the open turn is not earned."""
        if not self._open:
            return self._report_failure(code, message, status)
        self._ending.break_off_turn()
        return self._end_turn([], (code, message, status))

    def _report_failure(self, code: Code, message: str, status: int | None) -> list[UIEvent]:
        self._ending.failed = True
        return [Error(code, message, status=status, seq=self.number())]

    def _done(self, *, left: bool = False) -> list[UIEvent]:
        self._closed = True
        self._guard = None  # whose it is most likely has this machine: without the cycle, both are freed at once
        return [self._ending.done(self.pending, self.number(), left=left)]


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None

"""The state machine: source events in, UI events out, without I/O.

A run is a series of provider turns. A turn is open from its first event to its `provider-completed`, which compares the
completed text with the deltas, lets the calls of the turn run, and resets the machine for the next turn. The run ends
with the transport: well if the terminator has come, and otherwise with an error that says what is missing.

The machine runs no tools. Calls that may run are in `runnable`; the caller runs them and then calls `settle`, which
ends the step. A caller that runs no calls just feeds the next event, and finds the calls under `pending` of `done`.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from msgspec.structs import force_setattr

from streamtools.calls import ToolCall, ToolChoice
from streamtools.errors import ClosedError, Code, UnreadableSource
from streamtools.events import (
    SOURCE_EVENTS,
    Call,
    CallDelta,
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
    UsageReport,
    Warning,
)
from streamtools.logs import Logger
from streamtools.machine.ending import CALLS_MAY_RUN, EndedStep, Ending, RunState
from streamtools.machine.turn import Turn
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.policies import ParserKeywords

if TYPE_CHECKING:
    from streamtools.typed import OutputType

log = Logger(__name__)


class StreamMachine(RunState):
    """Turns the source events of one run into UI events; `feed` and `close` return them, eagerly.

    `dialects`, `tools` (declarations of tools, and no plain functions) and the options are those of `Parser`, and so
    are the errors. `native_tool_calls` says whether the model makes native calls: if True, or None (unknown), they
    count where they come and calls in text where none do; if False, the other way round. Unless `dialects` are named,
    no text is a call if it is True, nor, if None, behind the turn of the first native call. A `self_contained` agent
    runs its tools itself, and no call of its answer counts. `execute` says whether calls may run when their turn is
    complete, as soon as they are (`"eager"`, for calls of the kind that counts in any case), or never. `tool_choice`
    is what the request asked for: the calls of a complete turn that violate it are refused, and no call runs before.
    `run_id` is made if it is not given. The text is read as a value of the type `output`, too. Raises ValueError for a
    value that is not allowed.

    Read `runnable` and `take_runnable` to run calls, `pending` for those that nobody ran, `usage` for the tokens of all
    turns; `number` returns the `seq` for events that others make for this run.
    """

    __slots__ = (
        "_declares_native", "_execute", "_malformed", "_self_contained", "_started", "_watchful",
        "_writing", "ended_step", "run_id", "source", "tool_choice",
    )  # fmt: skip

    def __init__(
        self,
        *,
        dialects: Dialects = None,
        tools: Any = None,
        execute: Literal["completed", "eager", "never"] = "completed",
        native_tool_calls: bool | None = None,
        self_contained: bool = False,
        tool_choice: ToolChoice = ToolChoice(),  # noqa: B008  # which is immutable
        run_id: str | None = None,
        output: OutputType | None = None,
        **options: Unpack[ParserKeywords],
    ) -> None:
        if execute not in ("completed", "eager", "never"):
            raise ValueError(f"execute is 'completed', 'eager' or 'never', not {execute!r}")
        if native_tool_calls not in (True, False, None):
            raise ValueError(f"native_tool_calls is True, False or None, not {native_tool_calls!r}")
        self.number = itertools.count(1).__next__
        self.run_id = run_id or "run_" + secrets.token_urlsafe(12)
        self.runnable, self.pending, self.usage = [], [], None
        self._turn = Turn(dialects, tools, options, native_tool_calls, output)
        self._writing = {} if options.get("call_partials") else self._turn.native.open  # to which pieces are added here
        self._declares_native, self._self_contained = native_tool_calls, self_contained
        self._execute = execute
        eager = execute == "eager" and tool_choice.mode == "auto" and not self_contained
        self._eager_text = eager and native_tool_calls is False
        self._eager_native = eager and native_tool_calls is not False
        self.tool_choice = tool_choice
        """What the calls of the next complete turn may be."""
        self.ended_step: EndedStep | None = None
        """The step that has ended, until `take_ended_step` returns it."""
        self._watchful = self._eager_text or self._turn.may_stop  # a delta may do more than give events
        self._step, self._started, self._lost = 0, False, False
        self._ending = Ending()
        self.source: object = None  # which is read, for what it knows of whose answer that is
        self.closed = self.waiting = self.stopped = False
        self._begin_turn()

    def start(self) -> list[UIEvent]:
        """Return the first event of the run, which is shown before the first byte is read."""
        return self.numbered(self._start())

    def _start(self) -> list[UIEvent]:
        begun, self._started = self._started, True
        return [] if begun else [Start(self.run_id)]

    def feed(self, event: SourceEvent) -> list[UIEvent]:
        """Return what `event` makes certain. Raises `ClosedError` behind the end of the run, and `UnreadableSource` for
        an object that is no source event.
        """
        if self._flowing:
            if type(event) is TextDelta:
                text = event.text
                turn = self._turn
                size = len(text)
                if turn.room >= size:
                    turn.room -= size
                    turn.deltas.append(text)
                    parse = self._parse  # called as a variable: what looks like a method is looked up in the type first
                    events = parse(text)
                else:
                    events = turn.read(text)
                number = self.number
                for made in events:
                    force_setattr(made, "seq", number())
                return events
            if type(event) is ToolCallDelta:
                call = self._writing.get(event.key)
                text = event.text
                if call is not None and call.room >= len(text):  # as `add` of the turn's native calls would
                    call.room -= len(text)
                    call.pieces.append(text)
                    return self.numbered([CallDelta(call.id, text)]) if call.flows and text else []
        return self.numbered(self._feed(event))

    def resume(self, calls: Sequence[ToolCall]) -> list[UIEvent]:
        """Open a step for calls of an earlier run, which may run now; return how it begins."""
        events = self._start()
        self._step += 1
        events += [StepStart(self._step), *(Call(call) for call in calls)]
        self._turn.resume(calls)
        self.runnable = list(calls)
        self._ending.finish = "tool_calls"
        self._ending.complete = self.waiting = True
        return self.numbered(events)

    def stop(self, why: str) -> list[UIEvent]:
        """Break off the run, because of a bound of ours: nothing is read or run any more, and `done` says why.

        A run that has failed, and one in which nothing is left to be done, end as they would have.
        """
        return self.numbered(self._stop(why))

    def _stop(self, why: str) -> list[UIEvent]:
        self.stopped = True
        if not (self.closed or self._ending.failed or self._is_complete):
            self._ending.stop(why)
        return self._start() + self._reset() + self._settle()

    def end_run(self, why: str) -> None:
        """Read nothing more, because the step that has ended meets a limit; `done` gives the reason `why`."""
        self.stopped = True
        self._ending.stop(why)

    def take_ended_step(self) -> EndedStep | None:
        """Return the step that has ended since the last call, whose limits are to be checked; None if none has."""
        ended, self.ended_step = self.ended_step, None
        return ended

    def settle(self) -> list[UIEvent]:
        """End the step, now that the calls that were taken have been run. Calls that nobody took are pending."""
        return self.numbered(self._settle())

    def _settle(self) -> list[UIEvent]:
        self.pending += self.runnable
        self.runnable = []
        if not self.waiting:
            return []
        self.waiting = False
        return self._end_step()

    def close(self) -> list[UIEvent]:
        """Return the last events, at the end of the transport. A run that is not complete ends with an error."""
        return self.numbered(self._close())

    def _close(self) -> list[UIEvent]:
        if self.closed:
            return []
        events = self._start() + self._settle()
        if not (self._ending.complete or self._ending.is_certain):
            events += self._fail(Code.STREAM_INTERRUPTED, "the stream ended before it was complete")
            events += self._settle()
        return events + self._done()

    def cancel(self) -> list[UIEvent]:
        """Return the last events of a run that is left: nothing is read or run any more.

        A run that has failed, and one in which nothing is left to be done, end as they would have.
        """
        return self.numbered(self._cancel())

    def _cancel(self) -> list[UIEvent]:
        if self.closed or self._ending.is_certain or self._is_complete:
            return self._close()
        return self._start() + self._reset() + self._settle() + self._done(left=not self._ending.failed)

    def reset(self) -> list[UIEvent]:
        """Break off the turn that is open and return how it ends; the run goes on with the next one. Idempotent."""
        return self.numbered(self._reset())

    def _reset(self) -> list[UIEvent]:
        if not self._open:
            return []
        self._ending.break_off_turn()
        return self._end_turn([])

    # One turn.

    def _begin_turn(self) -> None:
        self._parse = self._turn.feed
        self._open = False
        self._flowing = False
        self._usage = None
        self._earlier = []
        self._taken = []
        self._noticed = 0
        self._malformed = 0

    def _feed(self, event: SourceEvent) -> list[UIEvent]:
        if self.closed:
            raise ClosedError("the run has ended; a new one needs a new machine")
        if not isinstance(event, SOURCE_EVENTS):
            raise UnreadableSource(f"{type(event)!r} is no source event")
        events = [] if self._started else self._start()
        if self.stopped or self._ending.failed:
            return events
        match event:
            case SourceWarning(code, message, raw, count):
                if code in (Code.BAD_FRAME, Code.SKIPPED):  # whatever it held is missing from a call that is open
                    self._turn.lose()
                    self._lost = True
                raw = None if self._turn.redacts else raw  # a frame may hold half of a match, and so may other data
                events.append(self.clean(Warning(code, message, raw, count)))
            case SourceRaw(data, None):
                events += [] if self._turn.redacts else [Raw(data)]
            case SourceError(message, code, status, cause, generation, url):
                log.warning("stream_failed", run_id=self.run_id, code=code.value, status=status, cause=cause, url=url)
                salvaged = self._salvage(generation) if generation else []
                events += salvaged or self._fail(code, message, status)
            case SourceUsage(usage) if self._step and not (self._open or self._ending.asked):  # behind its turn
                self.usage = usage if self.usage is None else self.usage + usage
                events.append(UsageReport(usage))
            case ChainCompleted(conversation_id):
                if self._open:  # older formats have no event for the end of a turn
                    events += self._complete(ProviderCompleted())
                self._ending.end_chain(conversation_id)
            case TextDelta("") if not self._open:  # text that begins is one thing, however it is cut
                pass
            case _:
                if not self._open:
                    events += self._open_turn()
                return events + self._feed_turn(event) if events else self._feed_turn(event)
        return events

    def _open_turn(self) -> list[UIEvent]:
        events = self._settle()
        self._ending.begin_turn()
        self._turn.begin()
        self._begin_turn()
        self._open = True
        self._flowing = not self._watchful
        self._step += 1
        format, *_ = getattr(self.source, "origin", (None,))
        return [*events, StepStart(self._step, format=format)]

    def _feed_turn(self, event: SourceEvent) -> list[UIEvent]:
        if not self._turn.ruled or isinstance(event, TextDelta | SourceUsage | ProviderCompleted):
            return self._feed_native(event)
        parser = self._turn.parser
        thinks = self._turn.thinks and isinstance(event, ReasoningDelta)
        events = self._turn.think(event) if thinks else self._turn.pause()  # type: ignore[arg-type]  # as `thinks` says
        rest = [] if thinks or parser.stopped else [*map(parser.clean, self._feed_native(event))]
        return events + (self._stop_turn(why) if (why := self._turn.stopped) else rest)

    def _feed_native(self, event: SourceEvent) -> list[UIEvent]:
        native = self._turn.native
        match event:
            case TextDelta(text):
                return self._feed_text(text)
            case ReasoningDelta(text, signature, block, redacted, own):
                has_content = text or signature or block or own
                return [Reasoning(text, 0, signature, block, redacted, own)] if has_content else []
            case SourceUsage(usage):
                self._usage = usage
                return []
            case SourceRaw(data, format, about):
                return [*self._turn.settle(), Raw(data, 0, format, about)]
            case ProviderCompleted():
                return self._complete(event)
            case ToolCallStart():
                return native.start(event)
            case ToolCallDelta():
                return native.add(event)
            case _:
                assert isinstance(event, NativeToolCall)  # the last of the union
                if event.provider_executed and event.key in native.ended and not self._eager_native:
                    return native.take_back(event)
                events = native.finish(event)
                if self._eager_native:
                    self._notice(native.calls)
                return events

    def _feed_text(self, text: str) -> list[UIEvent]:
        """Read text that may have consequences for more than the text."""
        turn = self._turn
        events = turn.read(text)
        if self._eager_text:
            self._notice(turn.parser.calls)
        return events + self._stop_turn(why) if (why := turn.stopped) else events

    def _stop_turn(self, why: str) -> list[UIEvent]:
        """End the turn that its text has stopped; what follows is not read."""
        self._ending.complete = self.stopped = True
        return self._complete(ProviderCompleted(), why)

    def _complete(self, event: ProviderCompleted, finish: str | None = None) -> list[UIEvent]:
        """End the turn as the provider ends it, or with a `finish` of our own."""
        self._ending.end_turn(event, finish, self._lost)
        self._usage = event.usage or self._usage
        again = event.text is not None or event.tool_calls
        return self._end_turn(self._turn.reconcile(event.text, event.tool_calls or ()) if again else [])

    def _salvage(self, generation: str) -> list[UIEvent]:
        """Return how a turn ends well whose provider could not read the call in what its model had written, or []."""
        found = self._turn.find_calls(generation)
        if not found:
            return []
        events = ([] if self._open else self._open_turn()) + self._turn.adopt(found)
        return events + self._complete(ProviderCompleted(finish_reason="tool_calls"))

    def _end_turn(self, events: list[UIEvent], fault: tuple[Code, str, int | None] | None = None) -> list[UIEvent]:
        """Decide what becomes of the turn's calls, and end the step unless some of them are to be run."""
        self._open = self._flowing = self._lost = False
        turn, ending = self._turn, self._ending
        events += turn.close()
        if turn.parser.stopped_by is not None and fault is None:
            self.stopped, fault = True, ending.end_by_rule(turn.parser.stopped_by)
        if fault is not None:
            events += self._report_failure(*fault)
        calls, endings, self._malformed = turn.choose(
            declares_native=self._declares_native, self_contained=self._self_contained
        )
        events += endings
        if ending.finish == "stop" and calls and calls is turn.native.calls:  # some providers say so whatever came
            ending.finish = "tool_calls"
        may_run = ending.finish in CALLS_MAY_RUN
        violation = None if self._self_contained else self.tool_choice.find_violation(calls)
        if violation is not None and violation.fatal and not may_run:
            violation = None  # a turn that was cut may lack a call; only calls that are forbidden are still refused
        if violation is not None:
            events += turn.refuse(calls, Code.TOOL_CHOICE_VIOLATION, violation.message)
            calls = []
        if may_run and self._execute != "never":
            self._notice(calls)
        else:
            self.pending += self.runnable + calls[self._noticed :]
            self.runnable = []
        if ending.finish == "error" and not ending.failed:
            events += self._report_failure(Code.UPSTREAM_ERROR, "the provider ended the turn with an error", None)
        if violation is not None and violation.fatal:
            events += self._report_failure(Code.TOOL_CHOICE_VIOLATION, violation.message, None)
        self.waiting = bool(self.runnable or self._taken)
        return events if self.waiting else events + self._end_step()

    def _end_step(self) -> list[UIEvent]:
        events: list[UIEvent] = []
        ending = self._ending
        events += (UsageReport(usage, model=model) for model, usage in self._earlier)
        if self._usage is not None:
            self.usage = self._usage if self.usage is None else self.usage + self._usage
            events.append(UsageReport(self._usage))
            self._usage = None
        events.append(StepEnd(self._step, ending.finish, 0, ending.response_id, ending.model))
        if not ending.failed:
            self.ended_step = EndedStep(self._malformed, not ending.complete)
        return events

    # The end of the run.

    def _fail(self, code: Code, message: str, status: int | None = None) -> list[UIEvent]:
        """Report the one fault that the run ends with; complete calls of the open turn do not run."""
        if not self._open:
            return self._report_failure(code, message, status)
        self._ending.break_off_turn()
        return self._end_turn([], (code, message, status))

    def _report_failure(self, code: Code, message: str, status: int | None) -> list[UIEvent]:
        self._ending.failed = True
        return [self.clean(Error(code, message, status=status))]

    def _done(self, *, left: bool = False) -> list[UIEvent]:
        self.closed = True
        self.source = None
        return [self._ending.done(self.pending, left=left)]

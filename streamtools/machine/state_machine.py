"""The state machine that turns the source events of one run into UI events, without I/O.

A run is a series of turns. A turn is one model response. It is open from its first event to `provider-completed`. At
that event, the machine compares the provider's completed text with the deltas, and decides which calls may run. When
the transport ends, the run also ends. If the provider has not completed the run by then, the run ends with an error.

The machine executes no tools. `runnable` holds the calls that may run. The caller takes these calls, executes them, and
then calls `end_step`. A caller that executes no calls feeds the next event. The field `pending` of the last event,
`done`, holds the calls that did not run.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Unpack

from msgspec.structs import force_setattr

from streamtools.calls import ToolCall, ToolChoice
from streamtools.errors import ClosedError, Code, UnreadableSource, check_word
from streamtools.events import (
    SOURCE_EVENTS,
    Call,
    ChainCompleted,
    Done,
    DoneReason,
    Error,
    FollowUp,
    NativeToolCall,
    Partial,
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
    StepSuperseded,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    UIEvent,
    Usage,
    UsageReport,
    Warning,
)
from streamtools.json_values import with_texts
from streamtools.logs import Logger
from streamtools.machine.logged_run import LoggedRun
from streamtools.machine.turn import Turn
from streamtools.parsing.call_events import BROKEN_OFF
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.options import ParserKeywords
from streamtools.typed import OutputType

log = Logger(__name__)

STOPPED_AFTER_CALL = "stopped_after_call"
"""The finish reason of a turn that `after_call="stop"` ends after a call."""

STOPPED_BY_RULE = "stopped_by_rule"
"""The finish reason of a turn that one of the `text_rules` ends."""

GUARD = "guard"
"""The finish reason of a run that stopped because a judge refused its text."""

PAUSE_TURN = "pause_turn"
"""Anthropic's finish reason of a paused turn. If the next request contains the turn, the model continues it."""

CALLS_MAY_RUN = frozenset(("stop", "tool_calls", STOPPED_AFTER_CALL, STOPPED_BY_RULE))
"""The finish reasons of turns whose calls may run."""

_CUT = frozenset(("length", "content_filter", "cancelled"))  # "cancelled" means: by the provider


class EndedStep(NamedTuple):
    """A step that has ended without a fault.

    `malformed` is the number of its malformed calls. `continues` is True if another step may follow.
    """

    malformed: int
    continues: bool


@dataclass(slots=True)
class Ending:
    """The facts that decide how one run ends.

    The first row of this table whose condition is true gives the `reason` of `done`:

        condition                                                                          reason
        the caller left an incomplete run, before any fault or limit                       cancelled
        a fault: the transport broke, the provider failed, or its answer cannot be used    failed
        a limit of this process, a judge of the text, or a tool stopped the run            stopped
        the provider cut its last turn off                                                 truncated
        a call waits for an approval, or for its result from the client                    waiting
        none of these                                                                      finished

    A transport that ends before the provider has completed the run is also a fault.
    """

    complete: bool = False
    """True if the run is complete: no further answer of the provider is expected."""
    requested: bool = False
    """True after another request was sent, until the first event of its answer arrives."""
    failed: bool = False
    stopped_by: str | None = None
    """The finish reason that names the limit, judge or tool that stopped the run. None if the run was not stopped."""
    asked: dict[str, bool] | None = None
    """Maps the id of each call that waits to True if it waits for an approval, or to False if for its result."""
    finish: str | None = None
    """The finish reason of the last turn. None if it is not known."""
    raw_finish: str | None = None
    conversation_id: str | None = None
    response_id: str | None = None
    """The provider's id of the last turn."""
    model: str | None = None

    @property
    def is_certain(self) -> bool:
        """True if the reason of `done` no longer depends on the provider."""
        return self.failed or bool(self.stopped_by)

    def end_turn(self, event: ProviderCompleted, finish: str | None, has_gap: bool) -> None:
        """Record the end of a turn. `finish` is its finish reason if this process ends the turn, and None otherwise.

        If the provider gives no reason, the reason is "stop". With `has_gap=True`, it is then "other", so that no call
        runs: a part of the stream is missing, and the provider's reason may have been in it.
        """
        self.finish = finish or event.finish_reason or "stop"
        if self.finish == "stop" and has_gap and event.raw_finish_reason is None and finish is None:
            self.finish = "other"
        self.raw_finish = event.raw_finish_reason
        self.response_id, self.model = event.response_id, event.model
        self.complete = self.complete or event.ends_run

    def break_off_turn(self) -> None:
        """Record that the open turn ends without a finish reason."""
        self.finish = self.raw_finish = self.response_id = self.model = None

    def stop(self, why: str) -> None:
        """Record that a limit stops the run. `why` becomes the finish reason if no other limit came first."""
        self.stopped_by = self.stopped_by or why

    def done(self, pending: list[ToolCall], *, left: bool) -> Done:
        """Return the last event of the run. `pending` holds the complete calls that did not run.

        `left` is True if the caller left the run before it ended.
        """
        reason: DoneReason
        if left:
            reason = "cancelled"
        elif self.failed:
            reason = "failed"
        elif self.stopped_by:
            reason = "stopped"
        else:
            reason = "truncated" if self.finish in _CUT else "waiting" if self.asked else "finished"
        finish = self.stopped_by or self.finish if reason == "stopped" else self.finish
        client = [id for id, is_approval in (self.asked or {}).items() if reason == "waiting" and not is_approval]
        return Done(reason, finish, self.raw_finish, pending, self.conversation_id, client=client)


class StreamMachine:
    """Turns the source events of one run into UI events.

    `dialects`, `tools` and the options are the parameters of `Parser`. Invalid values raise the same errors. `tools`
    must be declarations, not plain functions.

    - `native_tool_calls`: True if the model makes native calls, False if it makes none, None if this is not known.
      With True or None, the native calls of a turn are used. Calls in text are used in a turn without native calls.
      With False, calls in text are used. Native calls are used in a turn without calls in text.
      If the caller names no `dialects`, True means that text is not searched for calls. With None, text is not
      searched after the first turn with a native call.
    - `self_contained`: True for an agent that executes its tools itself. The machine then rejects all its calls.
    - `execute`: when a call becomes runnable. `"completed"`: when its turn is complete. `"eager"`: a native call when
      it is complete, and a call in text when its turn is complete. With `native_tool_calls=False`, a call in text when
      it is complete, and a native call when its turn is complete. `"never"`: no call becomes runnable.
    - `tool_choice`: the tool choice of the request. If a complete turn violates it, its calls are rejected. Any choice
      except `auto` turns `"eager"` off.
    - `run_id`: the id of the run. It is generated by default.
    - `output`: a type. The text is also parsed as a value of this type.

    `runnable` holds the calls that may run, and `pending` the calls that did not run. `usage` is the token usage of all
    ended turns, or None if none was reported. `number` returns the next `seq`. Other code that creates events for this
    run must also call `number`. Raises ValueError or TypeError for an invalid argument.
    """

    def __init__(
        self,
        *,
        dialects: Dialects = None,
        tools: Any = None,
        execute: Literal["completed", "eager", "never"] = "completed",
        native_tool_calls: bool | None = None,
        self_contained: bool = False,
        tool_choice: ToolChoice = ToolChoice(),  # noqa: B008  # the default is immutable
        run_id: str | None = None,
        output: OutputType | None = None,
        **options: Unpack[ParserKeywords],
    ) -> None:
        check_word("execute", execute, ("completed", "eager", "never"))
        check_word("native_tool_calls", native_tool_calls, (True, False, None))
        self._seq = 0  # the `seq` of the last event
        self.run_id = run_id or "run_" + secrets.token_urlsafe(12)
        self.tool_choice = tool_choice
        """The tool choice that is checked when the next turn is complete."""
        self.source: object = None
        """The source of the events that are fed, or None. Its `origin` names the provider's message format."""
        self.hide: Callable[[str], str] | None = None
        """Replaces the values of a vault in a text for telemetry or another model. None without a vault."""
        self.runnable: list[ToolCall] = []
        self.pending: list[ToolCall] = []
        self.usage: Usage | None = None
        self.closed = False
        """True after `done` was returned."""
        self.awaits_outcomes = False
        """True while a complete turn has calls to execute. The caller must then call `end_step` after they have run."""
        self.stopped = False
        """True if the machine, not the provider, has ended the run or the turn. The caller should close the source."""
        self.ended_step: EndedStep | None = None
        """The last step that ended without a fault. The caller checks its limits, and then sets this to None."""
        self._self_contained, self._execute = self_contained, execute
        eager = execute == "eager" and tool_choice.mode == "auto" and not self_contained
        self._eager_text = eager and native_tool_calls is False
        self._turn = Turn(dialects, tools, options, native_tool_calls, output, final=self._eager_text)
        self._eager_native = eager and native_tool_calls is not False
        self._started = False
        self._step = 0
        self._ending = Ending()
        self._has_gap = False  # a part of the stream is missing, in this turn or before it
        self._reset_turn()

    def number(self) -> int:
        """Return the `seq` of the next event of the run."""
        self._seq += 1
        return self._seq

    # Methods that drive a run from `start` to `close`.

    def start(self) -> list[UIEvent]:
        """Return the `start` event. Call this before the first byte is read, or let the first `feed` return it."""
        return self.number_all(self._start())

    def feed(self, event: SourceEvent) -> list[UIEvent]:
        """Read a source event. Returns UI events. Text that may be a part of a call or of a match is buffered.

        Raises `ClosedError` after the end of the run, and `UnreadableSource` for an object that is not a source event.
        """
        turn = self._turn
        # Fast path: saves 2.7 to 4.8 µs for each delta of text. It is `Turn.feed_text`, inlined. The parser numbers the
        # event of most deltas, because setting the `seq` here would take 7 % longer.
        if type(event) is TextDelta and (room := turn.room - len(text := event.text)) > 0:
            turn.room = room
            turn.deltas.append(text)
            turn.parser.seq = seq = self._seq + 1
            parse = turn.parse  # calling a local variable is faster than calling an attribute
            events = parse(text)
            if events and events[0].seq == seq:  # then it is the only event
                self._seq = seq
                return events
            turn.room -= 1  # limits the number of empty deltas
        else:
            events = self._feed(event)
        return self.number_all(events)

    def resume(self, calls: Sequence[ToolCall]) -> list[UIEvent]:
        """Open a step for `calls` of an earlier run, and make the calls runnable. Returns the step's first events."""
        events = self._start()
        self._step += 1
        events += [StepStart(self._step), *(Call(call) for call in calls)]
        self._turn.resume(calls)
        self.runnable = list(calls)
        self._ending.finish = "tool_calls"
        self._ending.complete = self.awaits_outcomes = True
        return self.number_all(events)

    def restore(self, logged: LoggedRun, code: Code = Code.SUPERSEDED, message: str = BROKEN_OFF) -> list[UIEvent]:
        """Continue a run from its log. Returns the events that are missing in its open step.

        A call that the model was still writing ends with an error with this `code` and `message`.

        If the turn of the open step is complete, its calls that have no outcome become runnable. If the run has failed,
        only calls that have started do, and the others are pending. Otherwise the turn is open again. To continue the
        run, the caller must then call `switch_model`.
        """
        self._started, self._step, self.usage = logged.seq > 0, logged.steps, logged.usage
        self._ending.finish, self._ending.complete = logged.finish_reason, not logged.awaits_answer
        self._ending.requested = logged.awaits_answer and logged.steps > 0
        self._turn.resume(logged.earlier_calls, logged.output_fault)
        self.pending = list(logged.pending)
        events, step = list[UIEvent](), logged.open
        if step is not None and step.is_answered:
            calls = [call for call in step.calls.values() if call.id not in step.outcomes]
            self.runnable = [call for call in calls if call.id in step.started or not logged.has_failed]
            self.pending += [call for call in calls if call not in self.runnable]
            self._taken += step.calls.values()
            self._turn.resume([*step.calls.values()])
            self._ending.finish = None if logged.has_failed else "tool_calls" if step.calls else "stop"
            self.awaits_outcomes = True
        elif step is not None:
            self._step -= 1
            self._open_turn()
            shown = [each for event in step.source_events() for each in self._feed(event) if isinstance(each, Partial)]
            events += shown[step.partials :]
            for native, calls in (False, self._turn.parser.calls), (True, self._turn.native.calls):
                calls[:] = [call for call in step.calls.values() if call.is_native == native]  # with the ids in the log
        if step is not None:
            events += step.close_calls(code, message)
        self._turn.native.reserve(logged.call_ids)
        self._ending.failed = logged.has_failed
        self._seq = logged.seq
        return self.number_all(events)

    def take_runnable(self) -> list[ToolCall]:
        """Return the calls that may run now, and empty `runnable`.

        The caller executes them. After they have run, it calls `end_step` if `awaits_outcomes` is True.
        """
        runnable, self.runnable = self.runnable, []
        self._taken += runnable
        return runnable

    def leave_pending(self, calls: Sequence[ToolCall], asked: dict[str, bool] | None = None) -> None:
        """Add `calls` to `pending`. `take_runnable` has returned them, and the caller did not execute them.

        `asked` maps the id of each call that waits to True if it waits for an approval, or to False if for its result.
        """
        self.pending += calls
        self._ending.asked = (self._ending.asked or {}) | (asked or {})

    def end_step(self) -> list[UIEvent]:
        """End the step after its calls have run. Calls that are still in `runnable` become pending."""
        return self.number_all(self._end_step())

    def end_run(self, why: str) -> None:
        """Stop the run, because a step has reached a limit or a judge has refused text. Later events are ignored.

        `why` becomes the finish reason if nothing has stopped the run before.
        """
        self.stopped = True
        self._ending.stop(why)

    def stop(self, why: str) -> list[UIEvent]:
        """Stop the run inside a turn, because of a limit. Later events are ignored, and no more calls run.

        `why` becomes the finish reason. A run that has failed, was stopped or is complete keeps its reason. Returns the
        last events of the turn and its step.
        """
        self.stopped = True
        if not (self.closed or self._ending.failed or self._is_complete):
            self._ending.stop(why)
        return self.number_all(self._start() + self._break_off_turn() + self._end_step())

    def fail(self, message: str) -> list[UIEvent]:
        """Return the events of an exception that ends the run. A run that has ended or was stopped keeps its reason."""
        has_ended = self.closed or self.stopped or self._ending.failed
        return self.number_all(self._start() + ([] if has_ended else self._fail(Code.STREAM_INTERRUPTED, message)))

    def close(self) -> list[UIEvent]:
        """Return the last events. Call this when the transport ends.

        A run that is neither complete nor stopped ends with an error.
        """
        if self.closed:
            return []
        events = self._start() + self._end_step()
        if not (self._ending.complete or self._ending.is_certain):
            events += self._fail(Code.STREAM_INTERRUPTED, "the stream ended before it was complete")
            events += self._end_step()
        return self.number_all(events + self._done())

    def cancel(self) -> list[UIEvent]:
        """Return the last events of a run that the caller leaves early. No more calls run.

        The reason in `done` is `cancelled`. A run that has failed, was stopped or is complete keeps its reason.
        """
        if self.closed or self._ending.is_certain or self._is_complete:
            return self.close()
        events = self._start() + self._break_off_turn() + self._end_step()
        return self.number_all(events + self._done(left=not self._ending.failed))

    # Methods for a run with several requests.

    @property
    def may_continue(self) -> bool:
        """True if another request may follow: the last turn allows calls to run, and nothing has stopped the run."""
        return self._is_complete and self._ending.finish in CALLS_MAY_RUN and not self._is_over

    @property
    def paused(self) -> bool:
        """True if the provider has paused its turn. A request that contains the turn makes the provider continue it."""
        return self._is_complete and self._ending.raw_finish == PAUSE_TURN and not self._is_over

    def expect_answer(self) -> None:
        """Record that another request is sent. The run is incomplete until the answer to it is complete."""
        self._ending.complete = self.stopped = False
        self._ending.requested = True

    def expect_no_answer(self) -> None:
        """Undo `expect_answer`: record that no request is sent, and that the run is complete."""
        self._ending.complete, self._ending.requested = True, False

    def discard(self) -> list[UIEvent]:
        """End the open calls after an answer has broken off. The caller then completes the turn without them."""
        return self.number_all(self._turn.discard())

    def switch_model(self, shown: str | None, model: str) -> tuple[list[UIEvent], str]:
        """Prepare an open turn for another model, after the answer of `model` has broken off.

        `shown` is the text that was shown. With None, the next model starts the turn again. Do not call this after a
        call of the turn has run. Returns the events that end calls, and the text that the next model must continue, in
        which `hide` has replaced values.
        """
        if shown is not None and self.hide is not None:
            shown = self.hide(shown)
        events, written = self._switch_model(shown, model)
        return self.number_all(events), written

    def restart_step(self, model: str) -> list[UIEvent]:
        """End the open step as superseded, because the answer of `model` has broken off.

        Do not call this after a call of the step has run.
        """
        events, _ = self._switch_model(None, model)
        # The value is incomplete, so the end of the turn would report it as invalid.
        events += [each for each in self._break_off_turn() if getattr(each, "code", None) is not Code.INVALID_OUTPUT]
        self._ending.requested = True
        return self.number_all([*events, StepSuperseded(self._step)])

    @property
    def turn_is_open(self) -> bool:
        """True if a turn has begun and not ended."""
        return self._is_open

    @property
    def output_fault(self) -> str:
        """Why the text of the last turn is not a valid value of the requested type; empty if it is valid."""
        return self._turn.output_fault

    @property
    def has_run_calls(self) -> bool:
        """True if `take_runnable` has returned a call of the open turn, or of the last one if none is open."""
        return bool(self._taken)

    def reserve(self, calls: Iterable[ToolCall]) -> None:
        """Register earlier calls of the conversation, so that the ids of new calls differ from theirs."""
        self._turn.native.reserve(call.id for call in calls)

    # For telemetry, and for code that shows or stores the text of the model.

    @property
    def tokens_used(self) -> int | None:
        """The number of tokens of the run, including the open step. None if no provider has reported usage."""
        usage = self.usage if self._turn_usage is None else self._turn_usage + self.usage
        return None if usage is None else usage.tokens

    @property
    def buffered(self) -> int:
        """The number of buffered characters. They may be the start of a call or of a match of a text rule."""
        return len(self._turn.parser.pending)

    @property
    def salvaged(self) -> Collection[str]:
        """The ids of native calls that were found in a text that the provider could not parse."""
        return self._turn.native.salvaged

    def clean(self, event: UIEvent) -> UIEvent:
        """Return `event` with the text rules applied to its texts."""
        return self._turn.parser.redact(event)

    def without_matches(self, value: Any) -> Any:
        """Return JSON-like data with the text rules applied to its strings. Values of a vault are replaced."""
        cleaned: Any = self.clean(FollowUp([value]))
        return cleaned.messages[0] if self.hide is None else with_texts(cleaned.messages[0], self.hide, self.hide)

    # Methods of one turn.

    def number_all(self, events: list[UIEvent]) -> list[UIEvent]:
        """Set the `seq` of each event, and return the events."""
        for event in events:
            self._seq += 1
            force_setattr(event, "seq", self._seq)
        return events

    def _start(self) -> list[UIEvent]:
        started, self._started = self._started, True
        return [] if started else [Start(self.run_id)]

    def _reset_turn(self) -> None:
        self._is_open = False  # a turn has begun and not ended
        self._turn_usage: Usage | None = None
        self._usage_of_others: list[tuple[str, Usage]] = []  # the usage of models that broke off in this turn
        self._taken: list[ToolCall] = []  # the calls of this turn that `take_runnable` has returned
        self._released = 0  # number of calls of this turn that were added to `runnable` or `pending`
        self._malformed = 0

    def _feed(self, event: SourceEvent) -> list[UIEvent]:
        if self.closed:
            raise ClosedError("the run has ended; a new one needs a new machine")
        if not isinstance(event, SOURCE_EVENTS):
            raise UnreadableSource(f"{type(event)!r} is not a source event")
        events = [] if self._started else self._start()
        if self.stopped or self._ending.failed:
            return events
        match event:
            case SourceWarning(code, message, raw, count):
                if code in (Code.BAD_FRAME, Code.SKIPPED):  # the lost frame may have held a piece of an open call
                    self._turn.mark_gap()
                    self._has_gap = True
                raw = None if self._turn.redacts else raw  # raw data may hold a part of a match
                events.append(self.clean(Warning(code, message, raw, count)))
            case SourceRaw(data, None):
                events += [] if self._turn.redacts else [Raw(data)]
            case SourceError(message, code, status, cause, generation, url):
                place = {"url": url, "raised_at": getattr(self.source, "raised_at", None)}
                log.warning("stream_failed", run_id=self.run_id, code=code.value, status=status, cause=cause, **place)
                salvaged = self._salvage(generation) if generation else []
                events += salvaged or self._fail(code, message, status)
            case SourceUsage(usage) if self._step and not (self._is_open or self._ending.requested):
                # This usage arrives after the end of its turn.
                self.usage = usage + self.usage
                events.append(UsageReport(usage))
            case ChainCompleted(conversation_id):
                if self._is_open:  # older formats do not report the end of a turn
                    events += self._complete(ProviderCompleted())
                self._ending.finish = self._ending.finish or "stop"
                self._ending.conversation_id, self._ending.complete = conversation_id, True
            case TextDelta("") if not self._is_open:  # empty text begins no turn
                pass
            case _:
                events += [] if self._is_open else self._open_turn()
                events += self._feed_with_rules(event) if self._turn.has_rules else self._feed_turn(event)
        return events

    def _open_turn(self) -> list[UIEvent]:
        events = self._end_step()
        self._ending.complete = self._ending.requested = False
        self._ending.response_id = self._ending.model = None
        self._turn.begin()
        self._reset_turn()
        self._is_open = True
        self._step += 1
        format, *_ = getattr(self.source, "origin", (None,))
        return [*events, StepStart(self._step, format=format)]

    def _feed_with_rules(self, event: SourceEvent) -> list[UIEvent]:
        """Read an event of a turn with text rules. An event that is neither text nor usage ends a match."""
        turn = self._turn
        if isinstance(event, TextDelta | SourceUsage | ProviderCompleted):
            return self._feed_turn(event)
        if turn.applies_rules_to_reasoning and isinstance(event, ReasoningDelta):
            events, rest = turn.filter(self._feed_turn(event)), []
        else:
            events = turn.filter([], ends=True)
            rest = [] if turn.parser.stopped else [*map(self.clean, self._feed_turn(event))]
        return events + (self._stop_turn() if turn.parser.stopped else rest)

    def _feed_turn(self, event: SourceEvent) -> list[UIEvent]:
        turn, native = self._turn, self._turn.native
        match event:
            case TextDelta(text):
                events = turn.feed_text(text)
                if self._eager_text:
                    self._add_new(turn.parser.calls)
                return events + self._stop_turn() if turn.parser.stopped else events
            case ReasoningDelta(text, signature, block, redacted, own):
                has_content = text or signature or block or own
                return [Reasoning(text, 0, signature, block, redacted, own)] if has_content else []
            case SourceUsage(usage):
                self._turn_usage = usage
                return []
            case SourceRaw(data, format, about):
                return [*turn.release_text(), Raw(data, 0, format, about)]
            case ProviderCompleted():
                return self._complete(event)
            case ToolCallStart():
                return native.start(event)
            case ToolCallDelta():
                return native.add(event)
            case _:
                assert isinstance(event, NativeToolCall)  # the only type left in the union
                if event.provider_executed and event.key in native.ended and not self._eager_native:
                    return native.reject_executed(event)
                events = native.finish(event)
                if self._eager_native:
                    self._add_new(native.calls)
                return events

    def _stop_turn(self) -> list[UIEvent]:
        """End the turn at a call or a match that stops it. After a match, `_end_turn` replaces the finish reason."""
        self._ending.complete = self.stopped = True
        return self._complete(ProviderCompleted(), STOPPED_AFTER_CALL)

    def _complete(self, event: ProviderCompleted, finish: str | None = None) -> list[UIEvent]:
        """End the turn with the provider's `event`. `finish` replaces the provider's finish reason."""
        self._ending.end_turn(event, finish, self._has_gap)
        self._turn_usage = event.usage or self._turn_usage
        return self._end_turn(self._turn.reconcile(event.text, event.tool_calls or ()))

    def _salvage(self, generation: str) -> list[UIEvent]:
        """Complete a turn after the provider has failed to read a call. `generation` is the text that the model wrote.

        Returns [] if the text contains no call.
        """
        found = self._turn.find_calls(generation)
        if not found:
            return []
        events = ([] if self._is_open else self._open_turn()) + self._turn.adopt(found)
        return events + self._complete(ProviderCompleted(finish_reason="tool_calls"))

    def _break_off_turn(self) -> list[UIEvent]:
        """End the open turn without a finish reason."""
        if not self._is_open:
            return []
        self._ending.break_off_turn()
        return self._end_turn([])

    def _end_turn(self, events: list[UIEvent], fault: tuple[Code, str, int | None] | None = None) -> list[UIEvent]:
        """End the turn and decide which of its calls may run. If none may run, the step also ends.

        `fault` is the code, the message and the HTTP status of the error that ends the turn.
        """
        self._is_open = self._has_gap = False
        turn, ending = self._turn, self._ending
        events += turn.close()
        if fault is None and (rule := turn.parser.stopped_by) is not None:
            self.stopped = True
            if rule.action == "fail":
                ending.break_off_turn()
                fault = Code.GUARD_FAILED, f"the answer contains text that the rule {rule.name!r} forbids", None
            else:
                ending.finish, ending.complete = STOPPED_BY_RULE, True
        if fault is not None:
            events += self._report_failure(*fault)
        calls, rejections, self._malformed = turn.choose_calls(self_contained=self._self_contained)
        events += rejections
        if ending.finish == "stop" and calls and calls is turn.native.calls:  # some providers always send "stop"
            ending.finish = "tool_calls"
        may_run = ending.finish in CALLS_MAY_RUN
        violation = None if self._self_contained else self.tool_choice.find_violation(calls)
        if violation is not None and violation.fatal and not may_run:
            violation = None  # a required call may be in the part that was cut off
        if violation is not None:
            events += turn.reject(calls, Code.TOOL_CHOICE_VIOLATION, violation.message)
            calls = []
        if may_run and self._execute != "never":
            self._add_new(calls)
        else:
            self.pending += self.runnable + calls[self._released :]
            self.runnable = []
        if ending.finish == "error" and not ending.failed:
            events += self._report_failure(Code.UPSTREAM_ERROR, "the provider ended the turn with an error", None)
        if violation is not None and violation.fatal:
            events += self._report_failure(Code.TOOL_CHOICE_VIOLATION, violation.message, None)
        self.awaits_outcomes = bool(self.runnable or self._taken)
        events += self._report_usage()
        return events if self.awaits_outcomes else events + self._report_step_end()

    def _add_new(self, calls: Sequence[ToolCall]) -> None:
        """Add new calls to `runnable`, or to `pending` if their results must not be sent to the provider."""
        if self.tool_choice.mode == "none":
            return  # `_end_turn` rejects the calls
        for call in calls[self._released :]:
            (self.pending if call.id in self._turn.native.unanswerable else self.runnable).append(call)
        self._released = len(calls)

    def _end_step(self) -> list[UIEvent]:
        self.pending += self.runnable
        self.runnable = []
        if not self.awaits_outcomes:
            return []
        self.awaits_outcomes = False
        return self._report_step_end()

    def _report_usage(self) -> list[UIEvent]:
        events: list[UIEvent] = [UsageReport(usage, model=model) for model, usage in self._usage_of_others]
        if self._turn_usage is not None:
            self.usage = self._turn_usage + self.usage
            events.append(UsageReport(self._turn_usage))
        self._turn_usage, self._usage_of_others = None, []
        return events

    def _report_step_end(self) -> list[UIEvent]:
        ending = self._ending
        events = self._report_usage()
        events.append(StepEnd(self._step, ending.finish, 0, ending.response_id, ending.model))
        if not ending.failed:
            self.ended_step = EndedStep(self._malformed, not ending.complete)
        return events

    def _switch_model(self, shown: str | None, model: str) -> tuple[list[UIEvent], str]:
        self._has_gap = False
        if not self._is_open:
            return [], shown or ""
        if self._turn_usage is not None:
            self._usage_of_others.append((model, self._turn_usage))
            self.usage = self._turn_usage + self.usage
            self._turn_usage = None
        self.pending = [call for call in self.pending if call.id not in self._turn.native.unanswerable]
        self.runnable, self._released = [], 0
        return self._turn.continue_after(shown)

    # Methods that end the run.

    @property
    def _is_over(self) -> bool:
        return self.closed or self._ending.is_certain

    @property
    def _is_complete(self) -> bool:
        """True if the provider has completed the run, and none of its turns or steps is open."""
        return self._ending.complete and not (self._is_open or self.awaits_outcomes)

    def _fail(self, code: Code, message: str, status: int | None = None) -> list[UIEvent]:
        """Return the events of a fault that ends the run. The calls of the open turn do not run."""
        if not self._is_open:
            return self._report_failure(code, message, status)
        self._ending.break_off_turn()
        return self._end_turn([], (code, message, status))

    def _report_failure(self, code: Code, message: str, status: int | None) -> list[UIEvent]:
        self._ending.failed = True
        return [self.clean(Error(code, message, status=status))]

    def _done(self, *, left: bool = False) -> list[UIEvent]:
        self.closed = True
        self.source = None
        done, events = self._ending.done(self.pending, left=left), list[UIEvent]()
        if done.reason == "finished" and self._turn.output_fault:
            events = self._report_failure(Code.INVALID_OUTPUT, self._turn.output_fault, None)
            done = self._ending.done(self.pending, left=left)
        return [*events, done]

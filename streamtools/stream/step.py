"""The calls of the open step, from the moment at which they may run to their outcomes.

Calls that may run while the model is still speaking are run beside the stream, which goes on; those of a complete turn
are run before anything else is read. Either way the step ends when all of them have, with one outcome for each call
that has begun, in call order. A call that was held back is pending: by a bound of the run, by a tool that has ended
it, or because somebody has to decide about it first.

Nothing here refers to the stream, so that there is no reference cycle: events are sent or returned to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import anyio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from streamtools import observing
from streamtools.calls import NATIVE, ToolCall
from streamtools.events import Raw, Reasoning, UIEvent
from streamtools.history import ProviderItem, TextPart, Thought
from streamtools.history.parts import Part
from streamtools.machine.state_machine import StreamMachine
from streamtools.parsing.dialects import Dialect
from streamtools.parsing.dialects.neutralising import restore
from streamtools.tools import Runner, ToolOutcome
from streamtools.tools.approvals import Approvals
from streamtools.tools.guards import GuardTracker
from streamtools.tools.runner import Send
from streamtools.tools.suspension import Resumption, Suspension

_id_of = attrgetter("id")


class StepCalls:
    """Runs the calls that a machine lets run, within the bounds of a watch, and notes the outcomes, step by step.

    Where the stream `executes` no calls, no turn counts as failed. `resumed` is what an earlier run has left. The
    options that a runner still needs are given to `make_runner`, which is called for the first calls: most runs have
    none. `note` gets the outcomes of each step.
    """

    def __init__(
        self,
        machine: StreamMachine,
        dialects: Sequence[Dialect],
        *,
        executes: bool,
        watch: GuardTracker,
        approvals: Approvals,
        resumed: Resumption | None,
        make_runner: Callable[..., Runner],
        note: Callable[[list[ToolOutcome]], object],
    ) -> None:
        self.running: list[ToolCall] = []
        """Calls of this step that the runner has been given."""
        self.trace = ""
        """Where the run stands for those who watch, for one that goes on with it."""
        self.machine = machine
        """The machine. The stream feeds it."""
        self._executes = executes
        self.watch = watch
        self._counts_tokens = watch.guards.tokens is not None
        self._approvals = approvals
        self._resumed = resumed
        self.dialects = dialects
        self._trusted = [dialect.id for dialect in dialects if dialect.has_nonce]
        self._make_runner = make_runner
        self._note = note
        self._runner: Runner | None = None
        self._outcomes: dict[str, ToolOutcome] = {}  # of those that have ended
        self._last_outcomes: list[ToolOutcome] = []  # of the step that has ended
        self._beside = 0  # runs of tools beside the stream
        self._all_run: anyio.Event | None = None

    @property
    def runner(self) -> Runner:
        """What runs the calls of all steps."""
        if self._runner is None:  # made late: it refers to us, and a run without calls is then freed at once
            self._runner = self._make_runner(
                number=self.machine.number,
                approvals=self._approvals,
                trusted=self._trusts,
                scope=self._run_of,
            )
        return self._runner

    async def run_calls(self, beside: TaskGroup, send: Send) -> list[UIEvent]:
        """Run the calls that may run: in the group `beside` the stream while the turn goes on, and to the end of the
        step once the turn is complete; return how the step ends, if it does.
        """
        machine, runner = self.machine, self._runner or self.runner
        calls = machine.take_runnable()
        admitted = self.watch.admit(calls, machine.tokens_used if self._counts_tokens else None)
        if admitted < len(calls):
            machine.leave_pending(calls[admitted:])
            calls = calls[:admitted]
        self.running += calls
        # The model may have repeated, in its arguments, what was done to texts that looked like calls.
        calls = [replace(call, arguments=restore(call.arguments, dialects=self.dialects)) for call in calls]
        if not machine.awaits_outcomes:
            self._beside += 1
            beside.start_soon(self._run_beside, runner, calls, send)
            return []
        self._tell_answered()
        self._keep(runner, calls, await runner.run(calls, send))
        return await self.end() if self._beside else self.end_calls() + self.settle()

    async def end(self) -> list[UIEvent]:
        """Wait for the tools that run beside the stream, and end the step; return how it ends."""
        if self._beside:
            self._tell_answered()
            self._all_run = anyio.Event()
            await self._all_run.wait()
        return self.end_calls() + self.settle()

    def end_calls(self) -> list[UIEvent]:
        """Note one outcome for each call of the step, in call order; return the events that say so and are not out.

        This waits for nothing: what has not ended by now counts as cancelled.
        """
        if self._runner is None:
            return []
        known, waiting = self._outcomes, self._approvals.suspended
        if waiting:
            self._put_back([call for call in self.running if call.id in waiting])
        unsent: list[UIEvent] = []
        if len(known) < len(self.running):
            outcomes, unsent = self._runner.close_calls([call for call in self.running if call.id not in known])
            known.update((outcome.call.id, outcome) for outcome in outcomes)
        self._last_outcomes = list(map(known.__getitem__, map(_id_of, self.running)))
        self._note(self._last_outcomes)
        self.running, self._outcomes = [], {}
        return unsent

    def settle(self) -> list[UIEvent]:
        """End the step, whose calls have been run, and check the limits of the run; return how the step ends."""
        events = self.machine.end_step()
        self.check_limits()
        return events

    def check_limits(self) -> None:
        """End the run if the step that has ended meets a limit. Call this before the next source event."""
        ended = self.machine.take_ended_step()
        if ended is None:
            return
        if self._executes:
            self.watch.end_turn(self._last_outcomes, ended.malformed)
            self._last_outcomes = []
        if ended.continues:
            self.watch.count_tokens(self.machine.tokens_used if self._counts_tokens else None)
        if self.watch.why is not None:
            self.machine.end_run(self.watch.why)

    def suspend(self, pending: Sequence[ToolCall]) -> Suspension | None:
        """Return what a run waits for that has ended with these calls pending; None if it waits for nobody."""
        questions = {**self._approvals.asked, **self._approvals.suspended}
        left = [questions[call.id] for call in pending if call.id in questions]
        return Suspension(run_id=self._run_of(left[0].call), questions=left, trace=self.trace) if left else None

    def _run_of(self, call: ToolCall) -> str:
        """Return the id of the run in which a call was made."""
        if self._resumed is not None and call.id in self._resumed.questions:
            return self._resumed.run_id
        return self.machine.run_id

    def _trusts(self, call: ToolCall) -> bool:
        """Return whether nobody but the model can have written a call: a native one, or one under a nonce."""
        return (call.is_native or call.dialect in self._trusted) and call.id not in self.machine.salvaged

    def _tell_answered(self) -> None:
        if (observed := observing.observed()) is not None:
            self.trace = observed.trace
            observed.answered()

    async def _run_beside(self, runner: Runner, calls: list[ToolCall], send: Send) -> None:
        self._keep(runner, calls, await runner.run(calls, send))
        self._beside -= 1
        if self._all_run is not None and not self._beside:
            self._all_run.set()

    def _keep(self, runner: Runner, calls: list[ToolCall], outcomes: Sequence[ToolOutcome]) -> None:
        """Keep what came of calls that have been run; those that have not begun are pending."""
        for outcome in outcomes:
            self._outcomes[outcome.call.id] = outcome
        if runner.stopped:
            self.watch.trip("tool_stop")
        if len(outcomes) < len(calls):
            self._put_back([call for call in calls if call.id not in self._outcomes])

    def _put_back(self, calls: list[ToolCall]) -> None:
        """Let calls that have not begun be pending."""
        self.machine.leave_pending(calls)
        held = {call.id for call in calls}
        for call_id in held:
            self._outcomes.pop(call_id, None)
        self.running = [call for call in self.running if call.id not in held]


# What the model said in the open step, put together from its events: the parts of a turn, in order.
#
# A part ends where another begins: text where reasoning, a native call or something of the provider's own follows, and
# reasoning with its signature, too.


@dataclass(slots=True)
class Pieces:
    """A text that grows by small pieces. Packed, many of them become one, which takes a fraction of the room."""

    _blocks: list[str] = field(default_factory=list)
    recent: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._blocks or self.recent)

    def pack(self) -> None:
        self._blocks.append("".join(self.recent))
        self.recent.clear()

    def join(self) -> str:
        """Return all of it."""
        self._blocks = ["".join(self._blocks + self.recent)]
        self.recent.clear()
        return self._blocks[0]

    def cut(self, length: int) -> None:
        """Keep so many characters, the first."""
        self._blocks = [self.join()[:length]]


class StepParts:
    """Gathers the parts of one step; `written` is the text since the last of them, calls in it included."""

    def __init__(self) -> None:
        self.written = Pieces()
        self._parts: list[Part] = []
        self._block: list[str] = []  # the reasoning that nothing has ended
        self._fields: dict[str, dict[str, Any]] = {}  # in which the reasoning came, by format
        self._dropped: dict[str, ToolCall] = {}
        self._is_joined = False  # what stood apart in the text, because something was taken out

    def write(self, text: str | None) -> None:
        """Add text; None stands for some that is left out."""
        if self._block:
            self._end_block()
        self._is_joined = self._is_joined or text is None
        if text:
            self.written.recent.append(text)

    def think(self, event: Reasoning) -> None:
        """Add reasoning, which its signature ends."""
        ends = event.signature or (event.id and not event.text)
        if event.text or ends:
            self._end_text()
        if event.text:
            self._block.append(event.text)
        for format, data in (event.own or {}).items():
            self._fields.setdefault(format, {}).update(data)
        if ends:
            self._end_block(event.signature, event.id, event.redacted)

    def call(self, call: ToolCall) -> None:
        """Add a native call."""
        self._end_text()
        self._end_block()
        self._parts.append(call)

    def drop(self, call: ToolCall) -> None:
        """Take back a call that does not count."""
        self._dropped[call.id] = call

    def forget_own(self) -> None:
        """Keep nothing but the text, for the step goes on with another model; of its calls none counts."""
        self._end_text()
        self.written.recent += [part.text for part in self._parts if isinstance(part, TextPart)]
        self._parts.clear()
        self._block.clear()
        self._fields.clear()

    def take(self, event: Raw) -> None:
        """Add what is of the provider's own."""
        format, data = event.format or "", event.data if event.item is None else event.item
        own = ProviderItem(format, data) if isinstance(data, dict) else None
        self._end_block()
        if event.about == "text":
            self._end_text(own)
        elif own is not None:
            self._end_text()
            self._parts.append(own)

    def close(self, calls: Iterable[ToolCall], dialects: tuple[Dialect, ...]) -> list[Part]:
        """Return the parts; `calls` are those in the text. White space that a provider sends behind a call belongs to
        the text before it. Where text was left out, what is left is not structure for the model that reads it.
        """
        self._end_text()
        self._end_block()
        self._mark_reasoning()
        parts: list[Part] = []
        last: int | None = None  # the place of the last text
        for part in self._parts:
            if isinstance(part, ToolCall) and part.id in self._dropped:
                continue
            if isinstance(part, TextPart) and last is not None and not part.own and not part.text.strip():
                before = parts[last]
                assert isinstance(before, TextPart)
                parts[last] = before._replace(text=before.text + part.text)
                continue
            last = len(parts) if isinstance(part, TextPart) and not part.own else last
            parts.append(part)
        for call in self._dropped.values():
            if call.dialect != NATIVE and call.raw:
                _cut(parts, call.raw)
        if self._is_joined:
            from streamtools.history import neutralise_between  # here, because few runs leave text out

            parts = neutralise_between(parts, calls, dialects)
        return parts

    def _end_text(self, own: ProviderItem | None = None) -> None:
        if own is None and not self.written:
            return
        text = self.written.join()
        self.written = Pieces()
        own = own if own is not None and own.data else None
        if text or own:
            self._parts.append(TextPart(text, own))

    def _end_block(self, signature: str | None = None, id: str | None = None, redacted: bool = False) -> None:
        text = "".join(self._block)
        self._block.clear()
        if text or signature or id:
            self._parts.append(Thought(text, signature, id, redacted))

    def _mark_reasoning(self) -> None:
        """Keep the fields in which the reasoning of the step came with the first block of it."""
        text = "".join(each.text for each in self._parts if isinstance(each, Thought))
        for format, fields in self._fields.items():
            own = ProviderItem(format, {name: text if value is None else value for name, value in fields.items()})
            at = next((at for at, each in enumerate(self._parts) if isinstance(each, Thought)), None)
            if at is None:
                self._parts.insert(0, Thought("", own=own))
            elif isinstance(first := self._parts[at], Thought):
                self._parts[at] = first._replace(own=own)


def _cut(parts: list[Part], raw: str) -> None:
    """Take a call that does not count out of the text, and the text with it if only white space stood around it."""
    for at, part in enumerate(parts):
        if isinstance(part, TextPart) and raw in part.text:
            left = part.text.replace(raw, "", 1)
            parts[at : at + 1] = [part._replace(text=left)] if left.strip() or part.own else []
            return

"""Tool calls of a model that makes none: its answer is asked for in two requests, or three.

First the request as it is (`fallback`; `force` leaves it out). If its answer holds a call, that is the answer. If not,
the model is asked in a request of its own whether tools are needed (`decision`). What it asks for become the calls of
the turn; if it asks for nothing, a last request without tools gives the answer. Where no tool may be called, nothing is
there to decide. All of it is one turn to the machine: what is not the answer is held, and only its cost is reported.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from msgspec.structs import replace

from streamtools.calls import EMULATED as PREFIX
from streamtools.conversation.emulated_decision import (
    ModelDecision,
    ask_for_decision,
    ask_without_tools,
    read_decision,
    refuses_tools,
)
from streamtools.conversation.models.http_model import Ask, Model, origin_of
from streamtools.conversation.reply import Reply
from streamtools.errors import Code, check_word
from streamtools.events import (
    Call,
    Done,
    Error,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceUsage,
    SourceWarning,
    Text,
    Thinking,
    UIEvent,
    Usage,
)
from streamtools.history import Origin
from streamtools.machine.state_machine import StreamMachine

Mode: TypeAlias = Literal["off", "fallback", "force"]


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """How calls are emulated.

    `"fallback"` asks for a decision where an answer holds no call, `"force"` in every turn. `keep_system="quote"` shows
    it the application's system prompt as data, which is otherwise left out of it. `reuse_upstream_answer` takes the
    first answer where no tool is needed, in place of another request. `decision_options` are merged into the body of
    the decision's request, from which stop words, formats and the limit of the answer's length are left out. `now`
    gives the nanoseconds in the ids of calls. Raises ValueError for a value that is not allowed.
    """

    mode: Mode = "fallback"
    keep_system: Literal["drop", "quote"] = "drop"
    reuse_upstream_answer: bool = False
    decision_options: Mapping[str, Any] = field(default_factory=dict)
    now: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        check_word("mode", self.mode, ("off", "fallback", "force"))
        check_word("keep_system", self.keep_system, ("drop", "quote"))


EMULATED = "tool calls emulated"
UNKNOWN = "unknown tool calls dropped"
DIFFERENT = "the answer held decisions that differ; the last counts, and no tool runs that needs approval or more trust"
UNREADABLE = "the decision whether tools are needed could not be read; none are called"

_BEGIN = ReasoningDelta("")
"""Says nothing, and begins the turn that the interface sees."""


@dataclass(eq=False, repr=False)
class EmulatedReply:
    """The answer to one turn, as a source of its events.

    `first` is the request as it would be without emulation, or None if it is left out; `ask` the same without any
    teaching, and with all tools, to choose from. `probe` makes machines that read as the run's own does. `think` is
    called when a decision begins and ends.
    """

    model: Model
    first: Ask | None
    ask: Ask
    emulation: Emulation
    probe: Callable[[], StreamMachine]
    think: Callable[[bool], None]

    def __post_init__(self) -> None:
        self._next: Callable[[], Awaitable[Sequence[SourceEvent]]] | None = self._begin  # what gives the next batch
        self._reply: Reply | None = None  # of the request that is open
        self._held: list[SourceEvent] | None = None  # the first answer, if it may still be the turn's
        self._before: Usage | None = None  # what the first answer has cost
        self._cost: Usage | None = None  # of requests that are not shown, reported with what is

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """Whose answer it is."""
        return origin_of(self.model)

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._next is None:
            raise StopAsyncIteration
        return await self._next()

    async def aclose(self) -> None:
        if self._reply is not None:
            await self._reply.aclose()

    # The three requests, in their order.

    async def _begin(self) -> Sequence[SourceEvent]:
        if self.first is not None:
            held = await self._try(self.first)
            if held is not None:
                return held
        if self.ask.tool_choice.mode == "none":
            return [_BEGIN, *self._answer([], None)]
        self._next = self._decide
        return [_BEGIN]

    async def _try(self, first: Ask) -> Sequence[SourceEvent] | None:
        """Send the first request. Return its answer, as far as it has come, as soon as it is that of the turn; None if
        it is complete and holds no call of any kind. A provider that knows no tools has made none.
        """
        self._reply = reply = Reply(self.model, first)
        self._next = self._pass_on
        machine = self.probe()
        held: list[SourceEvent] = []
        async for batch in reply:
            held += batch
            for event in batch:
                if isinstance(event, SourceError):
                    if not (first.tools and refuses_tools(event)):
                        return held
                    await reply.aclose()
                    return None
                if any(map(_is_of_call, machine.feed(event))):
                    return held
        if any(map(_is_of_call, machine.close())):
            return held
        await reply.aclose()
        self._held, self._before = held, machine.usage
        return None

    async def _decide(self) -> Sequence[SourceEvent]:
        ask, emulation = self.ask, self.emulation
        self.think(True)
        try:
            decision, cost = await self._ask_for_decision()
        finally:
            self.think(False)
        self._cost = _sum(self._before, cost)
        if isinstance(decision, SourceError):
            self._next = None
            return [*self._cost_so_far(), decision]
        known = {tool.name: not tool.requires_approval and tool.trust == "text" for tool in ask.tools}
        calls = [call for call in decision.calls if call.name in known]
        warnings = [SourceWarning(Code.EMULATED, EMULATED)]
        if len(calls) < len(decision.calls):
            warnings.append(SourceWarning(Code.UNKNOWN_DROPPED, UNKNOWN))
        if decision.differs:
            warnings.append(SourceWarning(Code.DECISIONS_DIFFER, DIFFERENT))
            calls = [call for call in calls if known[call.name]]
        if not decision.readable:
            warnings.append(SourceWarning(Code.DECISION_UNREADABLE, UNREADABLE))
        if not calls and ask.tool_choice.mode == "auto":
            return self._answer(warnings, cost)
        # A choice that demands a call fails where there is none.
        self._next = None
        now = emulation.now()
        made = [
            NativeToolCall(f"emulated {at}", call.name, call.arguments, f"{PREFIX}{now}_{at}", emulated=True)
            for at, call in enumerate(calls)
        ]
        end = ProviderCompleted(finish_reason="tool_calls" if made else "stop", usage=self._cost)
        return [*warnings, *made, end]

    async def _ask_for_decision(self) -> tuple[ModelDecision | SourceError, Usage | None]:
        """Return what the model decides and what that has cost, or the error that the run fails with."""
        emulation = self.emulation
        quote = emulation.keep_system == "quote"
        ask = ask_for_decision(self.ask, quote_system=quote, options=emulation.decision_options)
        self._reply = reply = Reply(self.model, ask)
        machine = StreamMachine(dialects=(), execute="never", reasoning="off")
        read: list[UIEvent] = []
        async for batch in reply:
            for event in batch:
                if isinstance(event, SourceError):
                    machine.close()  # what it has cost is reported all the same
                    return event, machine.usage
                read += machine.feed(event)
        read += machine.close()
        await reply.aclose()
        fault = next((each for each in read if isinstance(each, Error) and each.call_id is None), None)
        if fault is not None:
            return SourceError(fault.message, fault.code), machine.usage
        end = read[-1]
        if isinstance(end, Done) and end.reason == "truncated":  # what is missing may be the half of a call
            return ModelDecision([], False), machine.usage
        return read_decision("".join(each.text for each in read if isinstance(each, Text))), machine.usage

    def _answer(self, warnings: Sequence[SourceEvent], decided: Usage | None) -> Sequence[SourceEvent]:
        """Go on with the answer where no tool is needed; return what precedes it. `decided` is the decision's cost."""
        if self._held is not None and self.emulation.reuse_upstream_answer:
            self._next = None
            self._cost = decided
            return [*warnings, *self._cost_so_far(), *map(self._with_cost, self._held)]
        self._next = self._pass_on
        self._cost = _sum(self._before, decided)
        self._reply = Reply(self.model, ask_without_tools(self.ask))
        return [*warnings, *self._cost_so_far()]

    async def _pass_on(self) -> Sequence[SourceEvent]:
        assert self._reply is not None
        return [self._with_cost(event) for event in await anext(self._reply)]

    # The cost of the requests behind the answer is reported with its own.

    def _cost_so_far(self) -> list[SourceEvent]:
        return [] if self._cost is None else [SourceUsage(self._cost)]

    def _with_cost(self, event: SourceEvent) -> SourceEvent:
        if self._cost is None:
            return event
        if isinstance(event, SourceUsage):
            return SourceUsage(self._cost + event.usage)
        if isinstance(event, ProviderCompleted):
            cost, self._cost = self._cost, None  # a later turn has a cost of its own
            return replace(event, usage=cost + event.usage) if event.usage is not None else event
        return event


def _is_of_call(event: UIEvent) -> bool:
    """Return whether an event says that an answer holds a call, or has failed."""
    return isinstance(event, Call | Error) or (isinstance(event, Thinking) and event.active)


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return one if other is None else other if one is None else one + other

"""Emulates tool calls for a model that makes none, with up to three requests for each turn.

1. The *normal request* offers the tools. If its answer contains a call or an error, this answer is the turn, unless
   the error is a refusal of tools. The mode `"force"` omits this request.
2. The *decision request* asks the model which tools it needs. If the model names tools, their calls are the turn. An
   error, or the lack of a required call, also ends the turn. If the tool choice forbids calls, this request is omitted.
3. The *final request* offers no tools. Its answer is the turn.

The state machine of the run reads only the turn. The other answers are not shown, but their usage is reported.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from msgspec.structs import replace

from streamtools.calls import EMULATED as ID_PREFIX
from streamtools.conversation.decision import (
    ModelDecision,
    ask_for_decision,
    ask_without_tools,
    read_decision,
    refuses_tools,
)
from streamtools.conversation.models.model import Ask, Model, origin_of
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
    """Options for the emulation of calls.

    With the mode `"off"`, no calls are emulated. With `"fallback"`, the decision request is sent if the normal answer
    contains no call. With `"force"`, it is sent in every turn. It is never sent if the tool choice forbids calls. It
    omits the application's system prompt (`keep_system="drop"`), or quotes it as data (`keep_system="quote"`). With
    `reuse_upstream_answer`, the normal answer is the turn if no tool is needed, and the final request is not sent.
    `decision_options` are merged into the body of the decision request. The stop words, formats and length limits of
    the chat are removed from that body. `now` returns a time in nanoseconds, which becomes part of the ids of calls.
    Raises ValueError for a value that is not allowed.
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
DIFFERENT = "the answer has different decisions; the last one counts, without calls that must be approved or trusted"
UNREADABLE = "the decision about tools is unreadable; no tool is called"

_BEGIN_TURN = ReasoningDelta("")  # begins the turn without visible output


@dataclass(eq=False, repr=False)
class EmulatedReply:
    """The answer to one request of a chat, as a source of events.

    `normal` is the normal request, or None if it is omitted. `ask` is the same request, but with all tools and
    without a taught dialect. The other two requests are made from `ask`. `probe` creates a state machine with the same
    parser options as the machine of the run. `think` is called with True when the decision request begins, and with
    False when it ends.
    """

    model: Model
    normal: Ask | None
    ask: Ask
    emulation: Emulation
    probe: Callable[[], StreamMachine]
    think: Callable[[bool], None]

    def __post_init__(self) -> None:
        self._batches = self._run()
        self._reply: Reply | None = None  # the reply to the current request
        self._normal_answer: list[SourceEvent] | None = None  # the complete normal answer, if it contains no call
        self._normal_usage: Usage | None = None
        self._hidden_usage: Usage | None = None  # usage of answers that are not shown, until it is reported

    def __aiter__(self) -> Self:
        return self

    @property
    def origin(self) -> Origin:
        """The origin of the answer."""
        return origin_of(self.model)

    async def __anext__(self) -> Sequence[SourceEvent]:
        return await anext(self._batches)

    async def aclose(self) -> None:
        await self._batches.aclose()
        if self._reply is not None:
            await self._reply.aclose()

    async def _run(self) -> AsyncGenerator[Sequence[SourceEvent]]:
        """Send the requests in order, and yield the batches of the turn."""
        ask = self.ask
        if self.normal is not None:
            self._reply = reply = Reply(self.model, self.normal)
            beginning = await self._read_until_call(reply, bool(self.normal.tools))
            if beginning is not None:
                yield beginning
                async for batch in reply:
                    yield batch
                return
            await reply.aclose()
        yield [_BEGIN_TURN]
        warnings: list[SourceEvent] = []
        usage: Usage | None = None
        if ask.tool_choice.mode != "none":
            self.think(True)
            try:
                decision, usage = await self._ask_for_decision()
            finally:
                self.think(False)
            self._hidden_usage = _sum(self._normal_usage, usage)
            if isinstance(decision, SourceError):
                yield [*self._usage_events(), decision]
                return
            # Whether a call of the tool may run even if the answer contains different decisions.
            safe = {tool.name: not tool.requires_approval and tool.trust == "text" for tool in ask.tools}
            calls = [call for call in decision.calls if call.name in safe]
            warnings.append(SourceWarning(Code.EMULATED, EMULATED))
            if len(calls) < len(decision.calls):
                warnings.append(SourceWarning(Code.UNKNOWN_DROPPED, UNKNOWN))
            if decision.differs:
                warnings.append(SourceWarning(Code.DECISIONS_DIFFER, DIFFERENT))
                calls = [call for call in calls if safe[call.name]]
            if not decision.readable:
                warnings.append(SourceWarning(Code.DECISION_UNREADABLE, UNREADABLE))
            if calls or ask.tool_choice.mode != "auto":
                # If the tool choice requires a call and there is none, the state machine reports the violation.
                prefix = f"{ID_PREFIX}{self.emulation.now()}_"
                native = [
                    NativeToolCall(f"emulated {index}", call.name, call.arguments, f"{prefix}{index}", emulated=True)
                    for index, call in enumerate(calls)
                ]
                end = ProviderCompleted(finish_reason="tool_calls" if native else "stop", usage=self._hidden_usage)
                yield [*warnings, *native, end]
                return
        if self._normal_answer is not None and self.emulation.reuse_upstream_answer:
            self._hidden_usage = usage  # the normal answer contains its own usage
            yield [*warnings, *self._usage_events(), *map(self._with_hidden_usage, self._normal_answer)]
            return
        self._hidden_usage = _sum(self._normal_usage, usage)
        self._reply = reply = Reply(self.model, ask_without_tools(ask))
        yield [*warnings, *self._usage_events()]
        async for batch in reply:
            yield [self._with_hidden_usage(event) for event in batch]

    async def _read_until_call(self, reply: Reply, has_tools: bool) -> list[SourceEvent] | None:
        """Read the normal answer until it contains a call or an error, and return the events up to that point.

        Returns None if the complete answer contains no call, or if the provider refuses tools.
        """
        machine = self.probe()
        buffered: list[SourceEvent] = []
        async for batch in reply:
            buffered += batch
            for event in batch:
                if isinstance(event, SourceError):
                    return None if has_tools and refuses_tools(event) else buffered
                if any(map(_shows_call_or_error, machine.feed(event))):
                    return buffered
        if any(map(_shows_call_or_error, machine.close())):
            return buffered
        self._normal_answer, self._normal_usage = buffered, machine.usage
        return None

    async def _ask_for_decision(self) -> tuple[ModelDecision | SourceError, Usage | None]:
        """Send the decision request. Returns the decision or the error that ends the run, and the request's usage."""
        quote = self.emulation.keep_system == "quote"
        ask = ask_for_decision(self.ask, quote_system=quote, options=self.emulation.decision_options)
        self._reply = reply = Reply(self.model, ask)
        machine = StreamMachine(dialects=(), execute="never", reasoning="off")
        read: list[UIEvent] = []
        async for batch in reply:
            for event in batch:
                if isinstance(event, SourceError):
                    machine.close()  # updates the usage
                    return event, machine.usage
                read += machine.feed(event)
        read += machine.close()
        await reply.aclose()
        fault = next((event for event in read if isinstance(event, Error) and event.call_id is None), None)
        if fault is not None:
            return SourceError(fault.message, fault.code), machine.usage
        end = read[-1]
        if isinstance(end, Done) and end.reason == "truncated":  # a call may be incomplete
            return ModelDecision([], False), machine.usage
        return read_decision("".join(event.text for event in read if isinstance(event, Text))), machine.usage

    # The usage of hidden answers is added to the usage of the answer that is shown.

    def _usage_events(self) -> list[SourceEvent]:
        return [] if self._hidden_usage is None else [SourceUsage(self._hidden_usage)]

    def _with_hidden_usage(self, event: SourceEvent) -> SourceEvent:
        if self._hidden_usage is None:
            return event
        if isinstance(event, SourceUsage):
            return SourceUsage(self._hidden_usage + event.usage)
        if isinstance(event, ProviderCompleted):
            hidden, self._hidden_usage = self._hidden_usage, None  # a later turn must not report it again
            return replace(event, usage=hidden + event.usage) if event.usage is not None else event
        return event


def _shows_call_or_error(event: UIEvent) -> bool:
    return isinstance(event, Call | Error) or (isinstance(event, Thinking) and event.active)


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return one if other is None else other if one is None else one + other

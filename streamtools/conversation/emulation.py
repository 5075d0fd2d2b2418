"""Tool calls of a model that makes none: its answer is asked for in two requests, or three.

First the request as it is (`fallback`; `force` leaves it out). If its answer holds a call, that is the answer. If not,
the model is asked in a request of its own whether tools are needed (`decision`). What it asks for become the calls of
the turn; if it asks for nothing, a last request without tools gives the answer. All of it is one turn to the machine:
the answers in between are held, and only their cost is told.

The internal requests never see tools, so the calls and results of earlier turns stand in them as plain text: providers
refuse a history with calls in a request without tools, and a model that cannot see results asks for them again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec

from streamtools.conversation.decision import Wanted, read_decision, write_question
from streamtools.conversation.messages import System, calls_as_text
from streamtools.conversation.models.base import Ask, Model
from streamtools.conversation.request import Answer
from streamtools.errors import Code
from streamtools.events import (
    Call,
    Error,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceError,
    SourceEvent,
    SourceUsage,
    SourceWarning,
    Text,
    Usage,
)
from streamtools.machine import StreamMachine
from streamtools.tools import Tool

Mode = Literal["off", "fallback", "force"]

EMULATED = "tool calls emulated"
UNKNOWN = "unknown tool calls dropped"
UNREADABLE = "the decision whether tools are needed could not be read; none are called"

_OF_THE_ANSWER = frozenset(
    (
        *("stop", "stop_sequences", "stopSequences", "max_tokens", "max_completion_tokens", "max_output_tokens"),
        *("maxOutputTokens", "num_predict", "response_format", "format", "text", "responseMimeType", "responseSchema"),
        *("tools", "tool_choice", "toolConfig", "parallel_tool_calls"),
    )
)
"""Options that are meant for the answer, and would cut or shape a decision."""
_unsupported = re.compile(r"\b(tools?|functions?)\b[^.]{0,60}\bnot\b[^.]{0,20}\b(support|available|enabled)|"
                          r"\bnot support[^.]{0,60}\b(tools?|tool.?use|functions?)\b", re.IGNORECASE)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Emulation:
    """How calls are emulated.

    `keep_system="quote"` shows the decision the application's system prompt as data, which is otherwise left out of it.
    `reuse_upstream_answer` takes the first answer where no tool is needed, in place of a third request.
    `decision_options` are merged into the decision's request; `now` gives the nanoseconds in the ids of calls.
    """

    mode: Mode = "fallback"
    keep_system: Literal["drop", "quote"] = "drop"
    reuse_upstream_answer: bool = False
    decision_options: Mapping[str, Any] = field(default_factory=dict)
    now: Callable[[], int] = time.time_ns

    def __post_init__(self) -> None:
        for name, allowed in (("mode", ("off", "fallback", "force")), ("keep_system", ("drop", "quote"))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is one of {', '.join(map(repr, allowed))}, not {getattr(self, name)!r}")


class EmulatedAnswer:
    """The answer of one turn, as a source of its events. `think` is told when a decision begins and ends."""

    def __init__(
        self,
        model: Model,
        ask: Ask,
        emulation: Emulation,
        probe: Callable[[], StreamMachine],
        think: Callable[[bool], None],
    ) -> None:
        self._model = model
        self._ask = ask
        self._emulation = emulation
        self._probe = probe  # makes machines that read as the run's own does
        self._think = think
        self._phase: Literal["upstream", "decision", "answer", "over"] = "upstream"
        self._held: list[SourceEvent] = []  # the first answer
        self._spent: Usage | None = None  # by the requests whose answers are not shown
        self._told: Usage | None = None  # of the answer that is shown
        self._answer: Answer | None = None

    def __aiter__(self) -> EmulatedAnswer:
        return self

    async def __anext__(self) -> Sequence[SourceEvent]:
        if self._phase == "upstream":
            return await self._try_upstream()
        if self._phase == "decision":
            return await self._decide()
        if self._phase == "over" or self._answer is None:
            raise StopAsyncIteration
        return [self._with_cost(event) for event in await anext(self._answer)]

    async def aclose(self) -> None:
        """Close the request that is open."""
        if self._answer is not None:
            await self._answer.aclose()

    async def _try_upstream(self) -> Sequence[SourceEvent]:
        if self._emulation.mode == "fallback":
            self._held = held = await self._collect(self._ask)
            if not self._lacks_calls(held):
                self._phase = "over"
                return held
        if self._ask.tool_choice.mode == "none":  # then there is nothing to decide
            return self._begin_answer([])
        self._phase = "decision"
        return [ReasoningDelta("")]  # says nothing, and begins the turn that the interface is told of

    async def _decide(self) -> Sequence[SourceEvent]:
        self._think(True)
        try:
            asked = await self._collect(self._write_decision())
        finally:
            self._think(False)
        failed = next((event for event in asked if isinstance(event, SourceError)), None)
        if failed is not None:
            self._phase = "over"
            return [failed]
        decision = read_decision(self._text_of(asked))
        known = {tool.name for tool in self._ask.tools}
        calls = [call for call in decision.calls if call.name in known]
        warnings = [SourceWarning(Code.EMULATED, EMULATED)]
        if len(calls) < len(decision.calls):
            warnings.append(SourceWarning(Code.UNKNOWN_DROPPED, UNKNOWN))
        if not decision.readable:
            warnings.append(SourceWarning(Code.DECISION_UNREADABLE, UNREADABLE))
        if calls or self._ask.tool_choice.mode != "auto":  # a choice that demands a call fails where there is none
            self._phase = "over"
            return [*warnings, *self._write_calls(calls), self._end("tool_calls" if calls else "stop")]
        if self._emulation.reuse_upstream_answer and self._held:
            self._phase = "over"
            return [*warnings, *(self._with_cost(event) for event in self._held)]
        return self._begin_answer(warnings)

    def _begin_answer(self, warnings: list[SourceWarning]) -> Sequence[SourceEvent]:
        self._phase = "answer"
        plain = replace(
            self._ask,
            history=tuple(calls_as_text(self._ask.history)),
            tools=(),
            tool_choice=type(self._ask.tool_choice)(),
        )
        self._answer = Answer(self._model, plain)
        return warnings

    def _write_decision(self) -> Ask:
        ask = self._ask
        quoted = "\n\n".join(message.text for message in ask.history if isinstance(message, System))
        question = write_question(ask.tools, ask.tool_choice, quoted if self._emulation.keep_system == "quote" else "")
        history = [message for message in calls_as_text(ask.history) if not isinstance(message, System)]
        options = {**_without(ask.options), **self._emulation.decision_options}
        return Ask(history=(System(question), *history), options=options, dialects=ask.dialects)

    def _write_calls(self, calls: Sequence[Wanted]) -> list[SourceEvent]:
        now = self._emulation.now()
        return [
            NativeToolCall(f"emulated {at}", call.name, call.arguments, f"emulated_{now}_{at}", emulated=True)
            for at, call in enumerate(calls)
        ]

    def _end(self, reason: Literal["tool_calls", "stop"]) -> ProviderCompleted:
        return ProviderCompleted(finish_reason=reason, usage=self._spent)

    async def _collect(self, ask: Ask) -> list[SourceEvent]:
        """Return all events of an answer that is not shown, and add its cost to what was spent."""
        answer = Answer(self._model, ask)
        try:
            events = [event for batch in [batch async for batch in answer] for event in batch]
        finally:
            await answer.aclose()
        told: Usage | None = None
        for event in events:
            if isinstance(event, SourceUsage | ProviderCompleted):
                told = event.usage or told
        self._spent = _sum(self._spent, told)
        return events

    def _lacks_calls(self, events: Sequence[SourceEvent]) -> bool:
        """Return whether a complete answer holds no call of any kind; a provider that knows no tools has made none."""
        failed = next((event for event in events if isinstance(event, SourceError)), None)
        if failed is not None:
            return bool(_unsupported.search(failed.message))
        machine = self._probe()
        told = [out for event in events for out in machine.feed(event)] + machine.close()
        return not any(isinstance(out, Call | Error) for out in told)

    def _text_of(self, events: Sequence[SourceEvent]) -> str:
        machine = StreamMachine(dialects=(), execute="never", reasoning="off")
        told = [out for event in events for out in machine.feed(event)] + machine.close()
        return "".join(out.text for out in told if isinstance(out, Text))

    def _with_cost(self, event: SourceEvent) -> SourceEvent:
        """Return `event` with what the requests before it have cost added to its own cost."""
        if isinstance(event, SourceUsage):
            self._told = event.usage
            return SourceUsage(self._cost(event.usage) or event.usage)
        if isinstance(event, ProviderCompleted):
            return msgspec.structs.replace(event, usage=self._cost(event.usage or self._told))
        return event

    def _cost(self, usage: Usage | None) -> Usage | None:
        """Return the cost of the turn, of whose last answer `usage` is told; a held answer is among what was spent."""
        return self._spent if self._phase == "over" else _sum(self._spent, usage)


def check(emulation: Emulation, tools: Sequence[Tool]) -> None:
    """Raise ValueError for an emulation that has nothing to choose from."""
    if emulation.mode == "force" and not tools:
        raise ValueError("emulation is forced, and there are no function tools")


def _without(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without those of the answer, in the objects of Gemini and Ollama too."""
    return {
        name: _without(value) if isinstance(value, Mapping) else value
        for name, value in options.items()
        if name not in _OF_THE_ANSWER
    }


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return one if other is None else other if one is None else one + other

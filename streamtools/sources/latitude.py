"""Latitude's prompt runs: a chain of provider turns in one stream, in all eras and envelopes.

On the wire an event is named `latitude-event` (the chain) or `provider-event` (the AI SDK's parts of one turn) and its
data is the event itself. The documentation draws it as `{"type": "latitude-event", "data": …}`, and proxies send
`{"type": "event", "event": "latitude-event", "data": …}` beside short events of their own; all three are read. Names
and fields changed between versions; a table below holds what each name means, and each field is read under all of
the names that it had.

Calls are held until their turn ends, because a result in the same turn tells that the service has run the tool itself
(`held_calls.py`); the others are told as ones that nobody can answer, since no result is posted to the service. Older
servers name them only in what completes a turn, or in `tools-requested`.

Two things are peculiar. Every event of the chain repeats the whole conversation, so nothing is decoded that is not
used, and what passes as `raw` passes without it. And `chain-error` is followed by a `chain-completed` that looks like
success, while an `error` part of the provider comes before a `chain-error` that says more: so a part waits for what
follows it, and the first error is the only one and the last event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from streamtools.events import (
    ChainCompleted,
    NativeToolCall,
    ProviderCompleted,
    ReasoningDelta,
    SourceEvent,
    SourceRaw,
    TextDelta,
    Usage,
)
from streamtools.limits import DEFAULT_LIMITS, Limits
from streamtools.sources.adapter import REFUSED, UNREADABLE, FrameAdapter, convert
from streamtools.sources.frames import Frame, SSEDecoder
from streamtools.sources.held_calls import HeldCalls
from streamtools.sources.words import Fault, bounded, finish_reason, read_fault, read_usage
from streamtools.surrogates import whole

_USAGE = {
    "input": ("inputTokens", "promptTokens"),
    "output": ("outputTokens", "completionTokens"),
    "total": ("totalTokens",),
    "cache_read": ("cachedInputTokens",),
    "reasoning": ("reasoningTokens",),
}
_NAMED = ("latitude-event", "provider-event")


class _Response(msgspec.Struct, gc=False, rename="camel"):
    text: Any = None
    usage: Any = None
    tool_calls: Any = None


class _Event(msgspec.Struct, gc=False, rename="camel"):
    type: Any = None
    text_delta: Any = None
    text: Any = None
    delta: Any = None
    content: Any = None
    signature: Any = None
    uuid: Any = None
    response: _Response | None = None
    finish_reason: Any = None
    token_usage: Any = None
    usage: Any = None
    total_usage: Any = None
    error: Any = None
    message: Any = None
    id: Any = None
    tool_call_id: Any = None
    tool_name: Any = None
    args: Any = None
    input: Any = None
    provider_executed: Any = None
    tool_calls: Any = None
    tools: Any = None


class _Envelope(_Event, gc=False, rename="camel"):
    """An event, or what it travels in."""

    event: Any = None
    data: _Event | None = None


class _Text(msgspec.Struct, gc=False, rename="camel", forbid_unknown_fields=True):
    """A delta of text, as nearly all events are: of so few fields it is decoded in less time."""

    type: Literal["text-delta"]
    text_delta: str | None = None  # AI SDK 4
    text: str | None = None
    id: Any = None


_decode = msgspec.json.Decoder(_Envelope).decode
_decode_text = msgspec.json.Decoder(_Text).decode


class Latitude(FrameAdapter):
    """A Latitude run over SSE into source events; each provider turn completes, and the chain ends the run."""

    def __init__(self, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(SSEDecoder(limits.frame), limits)
        self._calls = HeldCalls(limits, answerable=False)
        self._listed = 0  # calls that were found in what completes a turn
        self._conversation: str | None = None
        self._open = False  # a turn has begun that is not completed
        self._turns = 0
        self._reason: str | None = None  # of the open turn, out of its own parts
        self._usage: Usage | None = None
        self._fault: Fault | None = None  # an error part that waits for the chain's own words
        self._handed_over = False  # the chain ended in asking for tools, as the first v3 servers did

    @property
    def ended(self) -> bool:
        return self._over or self._handed_over

    def _read(self, frame: Frame, events: list[SourceEvent]) -> None:
        if frame.event == "provider-event" and not self._text.half:
            try:
                delta = _decode_text(frame.data)
            except REFUSED:
                pass  # it is more, or something else
            else:
                self._open = True
                if text := delta.text if delta.text_delta is None else delta.text_delta:
                    events.append(TextDelta(text))
                return
        try:
            envelope = _decode(frame.data)
        except REFUSED:
            if frame.data.startswith(b"[DONE]"):
                self._complete_chain(_Event(), events)
                return
            value = self._decode(frame, events)
            if value is UNREADABLE:
                return
            if not isinstance(value, dict):
                self._pass_unknown(frame, value, events)
                return
            envelope = convert(_without_strays(value), _Envelope)
        if envelope.type == "text-delta" and frame.event == "provider-event":
            self._add_text(envelope, events)
            return
        name: Any = frame.event
        event: _Event = envelope
        if envelope.data is not None and envelope.type in ("event", *_NAMED):
            name = envelope.event if envelope.type == "event" else envelope.type
            event = envelope.data
        if isinstance(event.uuid, str) and name != "provider-event":
            self._conversation = bounded(event.uuid, 200)
        if name == "error" or (event.type == "error" and name != "provider-event"):
            self._report(event, events)
        elif event.type == "error":
            self._fault = self._fault or read_fault(event.error)
        elif isinstance(event.type, str) and (act := _MEANING.get(event.type)):
            act(self, event, events)
        elif (value := self._decode(frame, events)) is not UNREADABLE:
            if event.type in ("tool-result", "tool-error"):
                self._settle(event, events)
            self._pass_unknown(frame, value, events)

    def _add_text(self, event: _Event, events: list[SourceEvent]) -> None:
        self._open = True
        if text := self._text.join(_piece(event)):
            events.append(TextDelta(text))

    def _add_thought(self, event: _Event, events: list[SourceEvent]) -> None:
        self._open = True
        signature = event.signature if isinstance(event.signature, str) else None
        if (text := self._thought.join(_piece(event))) or signature:
            events.append(ReasoningDelta(text, signature))

    def _begin_call(self, event: _Event, events: list[SourceEvent]) -> None:
        self._open = True
        id = event.tool_call_id or event.id
        if isinstance(id, str):
            self._calls.begin(id, event.tool_name if isinstance(event.tool_name, str) else None, events)

    def _complete_call(self, event: _Event, events: list[SourceEvent]) -> None:
        self._open = True
        id = event.tool_call_id if isinstance(event.tool_call_id, str) else None
        name = event.tool_name if isinstance(event.tool_name, str) else None
        self._calls.complete(id, name, event.input if event.args is None else event.args, events)
        if event.provider_executed is True:
            self._settle(event, events)

    def _settle(self, event: _Event, events: list[SourceEvent]) -> None:
        """Tell a call that the service has run; its result passes behind it."""
        call = self._calls.settle(event.tool_call_id) if isinstance(event.tool_call_id, str) else None
        if call is not None:
            self._pass_raw(call.arguments, events)
            if isinstance(events[-1], SourceRaw):  # it can be written as JSON again
                events[-1] = call

    def _request_tools(self, event: _Event, events: list[SourceEvent]) -> None:
        """Append the calls that the service asks for and has not told before; then it has ended, and says no more."""
        self._tell_new(event.tools, events)
        self._handed_over = True

    def _tell_new(self, listed: Any, events: list[SourceEvent]) -> bool:
        """Append the calls of a list that were not told before, and return whether there are any."""
        new = [call for call in self._read_calls(listed) if call.id is not None and call.id not in self._calls.told]
        self._calls.told.update(call.id for call in new if call.id is not None)
        self._open = self._open or bool(new)
        events += new
        return bool(new)

    def _read_calls(self, listed: Any) -> list[NativeToolCall]:
        """Return the calls of a list, without those that the service has run in this turn."""
        calls = []
        for each in listed if isinstance(listed, list) else ():
            told = each if isinstance(each, dict) else {}
            id, name = (_first(told, names) for names in (("id", "toolCallId"), ("name", "toolName")))
            arguments = next((told[key] for key in ("arguments", "args", "input") if told.get(key) is not None), None)
            if (id or name) and id not in self._calls.settled:
                self._listed += 1
                calls.append(NativeToolCall(f"listed {self._listed}", name, arguments, id, answerable=False))
        return calls

    def _begin_turn(self, event: _Event, events: list[SourceEvent]) -> None:
        self._open = True

    def _note(self, event: _Event, events: list[SourceEvent]) -> None:
        """Remember how the provider ended, for servers whose completion does not repeat it."""
        self._reason = event.finish_reason if isinstance(event.finish_reason, str) else self._reason
        self._usage = read_usage(event.usage, _USAGE) or read_usage(event.total_usage, _USAGE) or self._usage

    def _complete_turn(self, event: _Event, events: list[SourceEvent]) -> None:
        if self._fault is not None:
            self._flush(events)
            self._fail(self._fault, events)
            return
        self._flush_text(events)
        self._note(event, events)
        response = event.response or _Response()
        text = whole(response.text) if isinstance(response.text, str) else None
        listed = self._read_calls(response.tool_calls or event.tool_calls)
        self._calls.release(events)
        self._calls.told.update(call.id for call in listed if call.id is not None)
        usage = read_usage(event.token_usage, _USAGE) or read_usage(response.usage, _USAGE) or self._usage
        raw = None if self._reason is None else bounded(self._reason, 100)
        events.append(
            ProviderCompleted(
                text, listed or None, finish_reason(raw), raw_finish_reason=raw, usage=usage, ends_run=False
            )
        )
        self._open, self._reason, self._usage = False, None, None
        self._turns += 1

    def _complete_chain(self, event: _Event, events: list[SourceEvent]) -> None:
        """Append the end of the run, and before it the end of a turn that had none: before v3 the last one has not."""
        if self._open or self._fault is not None or (event.response is not None and not self._turns):
            self._complete_turn(event, events)
        elif self._tell_new(event.tool_calls, events):
            self._complete_turn(_Event(finish_reason=event.finish_reason), events)
        if not self._over:
            events.append(ChainCompleted(self._conversation))
            self._over = True

    def _report(self, event: _Event, events: list[SourceEvent]) -> None:
        self._flush(events)
        fault = read_fault(event.error or event.message or _piece(event))
        self._fail(fault if fault.message else self._fault or fault, events)

    def _ignore(self, event: _Event, events: list[SourceEvent]) -> None:
        """What tells nothing that other events do not."""

    def _pass_unknown(self, frame: Frame, value: Any, events: list[SourceEvent]) -> None:
        """Append an event as it came, out of its envelope and without the conversation."""
        if frame.event == "error":
            self._fail(read_fault(value), events)
            return
        if isinstance(value, dict) and value.get("type") in ("event", *_NAMED) and isinstance(value.get("data"), dict):
            value = value["data"]
        if isinstance(value, dict):
            value.pop("messages", None)
        self._pass_raw(value, events)

    def _end(self, events: list[SourceEvent]) -> None:
        if self._handed_over:
            self._complete_chain(_Event(), events)
        elif self._fault is not None:
            self._flush(events)
            self._fail(self._fault, events)
        else:
            self._flush(events)

    def _flush(self, events: list[SourceEvent]) -> None:
        """Append what was held back. Calls that are whole are told, and not earned."""
        self._flush_text(events)
        self._calls.release(events)


def _without_strays(envelope: dict[str, Any]) -> dict[str, Any]:
    """Return an event without those members that the shape wants to be objects and that are none."""
    kept = dict(envelope)
    for place in (kept, kept["data"] if isinstance(kept.get("data"), dict) else {}):
        for name in ("data", "response"):
            if not isinstance(place.get(name), dict):
                place.pop(name, None)
    return kept


def _first(told: dict[str, Any], names: tuple[str, ...]) -> str | None:
    """Return the first of these members that is a text with something in it."""
    return next((value for name in names if isinstance(value := told.get(name), str) and value), None)


def _piece(event: _Event) -> str:
    """Return the text of a delta, under whichever name it came."""
    for value in (event.text_delta, event.text, event.delta, event.content):
        if isinstance(value, str):
            return value
    return ""


_MEANING: dict[str, Callable[[Latitude, _Event, list[SourceEvent]], None]] = {
    # one turn, as the AI SDK tells it; a proxy's own `text-delta` has its text in `content`
    "text-delta": Latitude._add_text,
    "reasoning": Latitude._add_thought,  # AI SDK 4
    "reasoning-delta": Latitude._add_thought,
    "reasoning-signature": Latitude._add_thought,
    "tool-input-start": Latitude._begin_call,
    "tool-call-streaming-start": Latitude._begin_call,  # AI SDK 4
    "tool-call": Latitude._complete_call,
    "finish": Latitude._note,
    "finish-step": Latitude._note,
    "step-finish": Latitude._note,  # AI SDK 4
    # the chain
    "provider-started": Latitude._begin_turn,
    "provider-completed": Latitude._complete_turn,
    "tools-requested": Latitude._request_tools,
    "chain-completed": Latitude._complete_chain,
    "chain-error": Latitude._report,
    # the chain before v3
    "chain-step": Latitude._begin_turn,
    "chain-step-complete": Latitude._complete_turn,
    "chain-complete": Latitude._complete_chain,
    # a proxy's own
    "finished": Latitude._complete_chain,
    "stream-error": Latitude._report,
    # what tells nothing that another event does not
    "chain-started": Latitude._ignore,
    "step-started": Latitude._ignore,
    "step-completed": Latitude._ignore,
    "start": Latitude._ignore,
    "start-step": Latitude._ignore,
    "tool-input-delta": Latitude._ignore,  # the arguments come whole with the call
    "tool-input-end": Latitude._ignore,
    "tool-call-delta": Latitude._ignore,
    "text-start": Latitude._ignore,
    "text-end": Latitude._ignore,
    "reasoning-start": Latitude._ignore,
    "reasoning-end": Latitude._ignore,
}
